package standins

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/countersign/countersign/internal/clock"
)

// Functions is AWS Lambda as far as Invoke goes: it checks signatures, sizes and names, runs a function and answers
// with its result or its error, or, for the invocation type Event, takes the payload and runs the function afterwards,
// twice more if it fails. Safe for concurrent use once it is made.
type Functions struct {
	Credentials aws.Credentials
	Region      string
	Clock       clock.Clock
	// Named are the functions by name. One that panics with http.ErrAbortHandler breaks the connection after it ran.
	Named map[string]Function
	// Refuse is asked before the n-th request, from 1: a status other than 0 is its answer, with that code. Nil =
	// nothing is refused.
	Refuse func(n int) (status int, code string)

	count atomic.Int64
	mu    sync.Mutex
	asked []Invoked
}

// Function is a deployed function. An error is what its runtime reports.
type Function func(ctx context.Context, payload json.RawMessage) (any, *FunctionError)

// FunctionError is how a function, or Lambda in its place, says that it failed.
type FunctionError struct {
	Type    string   `json:"errorType,omitempty"`
	Message string   `json:"errorMessage"`
	Trace   []string `json:"trace,omitempty"`
}

// Invoked is one invocation of a function.
type Invoked struct {
	Function string
	Async    bool
	Payload  json.RawMessage
}

// Asked are the invocations that were taken, in order.
func (f *Functions) Asked() []Invoked { return snapshot(&f.mu, &f.asked) }

// ServeHTTP takes Invoke.
func (f *Functions) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	name, ok := strings.CutPrefix(r.URL.Path, "/2015-03-31/functions/")
	name, invokes := strings.CutSuffix(name, "/invocations")
	status, code := refusal(r, body, f.Credentials, "lambda", f.Region, &f.count, f.Refuse)
	switch {
	case err != nil:
		refuse(w, http.StatusBadRequest, "InvalidRequestContentException")
	case !ok || !invokes || r.Method != http.MethodPost:
		refuse(w, http.StatusNotFound, "UnknownOperationException")
	case status != 0:
		refuse(w, status, code)
	default:
		f.invoke(w, r, name, body)
	}
}

// refusal counts a request and returns why it is refused: its signature, or what a test says. Status 0 means it is
// taken.
func refusal(r *http.Request, body []byte, by aws.Credentials, service, region string, requests *atomic.Int64,
	refuse func(n int) (status int, code string),
) (status int, code string) {
	n := int(requests.Add(1))
	if !signed(r, body, by, service, region) {
		return http.StatusForbidden, "InvalidSignatureException"
	}
	if refuse == nil {
		return 0, ""
	}
	return refuse(n)
}

// refuse answers with an error as the services do. Its message repeats what a log must not hold.
func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("X-Amzn-Errortype", code+":http://internal.amazon.com/coral/")
	w.WriteHeader(status)
	const text = "Email address is not verified: s3cret@example.com"
	// Services differ in how they spell the key. The client is gone if this fails.
	_ = json.NewEncoder(w).Encode(map[string]string{"message": text, "Message": text})
}

func (f *Functions) invoke(w http.ResponseWriter, r *http.Request, name string, body []byte) {
	async := r.Header.Get("X-Amz-Invocation-Type") == "Event"
	limit := 6_291_556
	if async {
		limit = 1 << 20
	}
	run, ok := f.Named[name]
	switch {
	case !ok:
		refuse(w, http.StatusNotFound, "ResourceNotFoundException")
		return
	case len(body) > limit:
		refuse(w, http.StatusRequestEntityTooLarge, "RequestTooLargeException")
		return
	case !json.Valid(body):
		refuse(w, http.StatusBadRequest, "InvalidRequestContentException")
		return
	}
	f.mu.Lock()
	f.asked = append(f.asked, Invoked{Function: name, Async: async, Payload: body})
	f.mu.Unlock()
	if async {
		w.WriteHeader(http.StatusAccepted)
		f.Clock.Go(func() {
			for range 3 { // so often Lambda tries an event
				if _, failed := run(context.Background(), body); failed == nil {
					return
				}
			}
		})
		return
	}
	result, failed := run(r.Context(), body)
	if failed != nil {
		w.Header().Set("X-Amz-Function-Error", "Unhandled")
		result = failed
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(result) // the client is gone if this fails
}

var authorization = regexp.MustCompile(
	`^AWS4-HMAC-SHA256 Credential=[^,]+, ?SignedHeaders=([^,]+), ?Signature=[0-9a-f]{64}$`)

// signed reports whether the request is signed by the caller, for a service.
func signed(r *http.Request, body []byte, by aws.Credentials, service, region string) bool {
	given := authorization.FindStringSubmatch(r.Header.Get("Authorization"))
	at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	if given == nil || err != nil {
		return false
	}
	again, err := http.NewRequestWithContext(r.Context(), r.Method, "http://"+r.Host+r.URL.RequestURI(),
		bytes.NewReader(body))
	if err != nil {
		return false
	}
	for _, name := range strings.Split(given[1], ";") {
		if name != "host" && name != "content-length" {
			again.Header.Set(name, r.Header.Get(name))
		}
	}
	sum := sha256.Sum256(body)
	if err := v4.NewSigner().SignHTTP(context.Background(), by, again, hex.EncodeToString(sum[:]), service, region,
		at); err != nil {
		return false
	}
	return again.Header.Get("Authorization") == r.Header.Get("Authorization")
}
