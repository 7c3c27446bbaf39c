package standins

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
)

// Bedrock is Amazon Bedrock on the loopback interface, for tests that drive the real SDK: the wire of
// ConverseStream and CountTokens, with replies from a script or a function. The SDK's own encoder writes the frames.
// Safe for concurrent use.
//
// A request that breaks a rule of Bedrock's (CheckConverse), or that comes when the script has run out, is refused with
// a ValidationException and uses up no turn; one that is not signed gets status 403. Reasoning must be what a Reply of
// this server, or Wrote, gave the very same model, byte for byte. CountTokens needs no turn, and nothing is counted for
// models whose id begins with "uncounted.". Signatures of requests are not verified, and quotas do not exist.
type Bedrock struct {
	http   *httptest.Server
	answer func(BedrockRequest) Turn

	mu       sync.Mutex
	script   []Turn
	requests []BedrockRequest
	proofs   map[string]bool // of the reasoning that was sent, see proof
}

// BedrockRequest is a request as it came, refused ones included.
type BedrockRequest struct {
	Model   string // unescaped
	Count   bool   // tokens were asked for, and no reply
	Header  http.Header
	Body    json.RawMessage
	Refused string // why it was refused; empty = it was answered
}

// Turn is one scripted answer: Reply, Stream, Failure or Body.
type Turn interface {
	serve(w http.ResponseWriter, r *http.Request)
}

// NewBedrock starts a server that answers with the turns in order.
func NewBedrock(turns ...Turn) *Bedrock {
	s := NewBedrockFunc(nil)
	s.script = turns
	s.answer = func(BedrockRequest) Turn {
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.script) == 0 {
			return nil
		}
		turn := s.script[0]
		s.script = s.script[1:]
		return turn
	}
	return s
}

// NewBedrockFunc starts a server that answers each request with what the function says, nil = it is refused. The
// function may be called from several goroutines at once.
func NewBedrockFunc(answer func(BedrockRequest) Turn) *Bedrock {
	s := &Bedrock{answer: answer, proofs: map[string]bool{}}
	mux := http.NewServeMux()
	for _, operation := range []string{"converse-stream", "count-tokens"} {
		mux.HandleFunc("POST /model/{id}/"+operation, func(w http.ResponseWriter, r *http.Request) {
			s.handle(w, r, operation)
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { s.handle(w, r, "") })
	s.http = httptest.NewServer(mux)
	return s
}

// Close stops the server; it cuts off who is still connected.
func (s *Bedrock) Close() {
	s.http.CloseClientConnections()
	s.http.Close()
}

// URL is the server's address, an endpoint for the SDK.
func (s *Bedrock) URL() string { return s.http.URL }

// Config is a configuration of the SDK that leads here: made-up credentials and region, this endpoint, a connection
// pool that Close lets go of. A client with another HTTP client than this configuration's may now and then lose a
// connection, see patient.
func (s *Bedrock) Config() aws.Config {
	return aws.Config{
		Region:       "eu-test-1",
		Credentials:  credentials.NewStaticCredentialsProvider("AKIACANARY", "canary-secret-access-key", ""),
		HTTPClient:   patient{s.http.Client()},
		BaseEndpoint: aws.String(s.URL()),
	}
}

// Then adds turns to the end of the script.
func (s *Bedrock) Then(turns ...Turn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script = append(s.script, turns...)
}

// Left is how many turns of the script nobody has asked for.
func (s *Bedrock) Left() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.script)
}

// Requests are the requests so far, in order of arrival.
func (s *Bedrock) Requests() []BedrockRequest { return snapshot(&s.mu, &s.requests) }

// Wrote says that a model has sent these blocks before, so that reasoning among them is taken back.
func (s *Bedrock) Wrote(model string, blocks ...Block) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range blocks {
		var c converseContent
		if json.Unmarshal(b.Whole, &c) == nil && c.ReasoningContent != nil {
			s.proofs[c.ReasoningContent.proof(model)] = true
		}
	}
}

// proof is a reasoning block and whose it is, to the byte.
func (r *reasoning) proof(model string) string {
	return fmt.Sprintf("%s %s", model, encode(r))
}

// verified reports whether all of a request's reasoning is its model's own.
func (s *Bedrock) verified(r BedrockRequest) bool {
	b, err := readConverse(r.Body)
	if err != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range b.Messages {
		for _, c := range m.Content {
			if c.ReasoningContent != nil && !s.proofs[c.ReasoningContent.proof(r.Model)] {
				return false
			}
		}
	}
	return true
}

func (s *Bedrock) handle(w http.ResponseWriter, r *http.Request, operation string) {
	body, err := io.ReadAll(r.Body)
	request := BedrockRequest{
		Model: r.PathValue("id"), Count: operation == "count-tokens", Header: r.Header.Clone(), Body: body,
	}
	if request.Count { // what is no request of Converse breaks the rules of one
		var b struct {
			Input struct {
				Converse json.RawMessage `json:"converse"`
			} `json:"input"`
		}
		if request.Body = json.RawMessage(`{}`); json.Unmarshal(body, &b) == nil && b.Input.Converse != nil {
			request.Body = b.Input.Converse
		}
	}
	var failure Failure
	switch broken := CheckConverse(request.Body); {
	case err != nil:
		failure = invalid("the body cannot be read")
	case operation == "":
		failure = Failure{Status: http.StatusNotFound, Code: "UnknownOperationException", Message: "no such operation"}
	case r.Header.Get("Authorization") == "":
		failure = Failure{Status: http.StatusForbidden, Code: "MissingAuthenticationTokenException", Message: "not signed"}
	case broken != nil:
		failure = invalid(broken.Error())
	case !s.verified(request):
		failure = invalid("Invalid `signature` in `thinking` block")
	}
	var turn Turn = failure
	switch {
	case failure != (Failure{}):
	case request.Count && strings.HasPrefix(request.Model, "uncounted."):
		turn = invalid("The provided model doesn't support counting tokens.")
	case request.Count:
		turn = Body{Type: "application/json", Text: string(withEntry("inputTokens", CountTokens(request.Body)))}
	default:
		if turn = s.answer(request); turn == nil {
			failure = invalid("there is no answer left in the script")
			turn = failure
		}
	}
	if reply, ok := turn.(Reply); ok {
		s.Wrote(request.Model, reply.Blocks...)
	}
	request.Refused = failure.Message
	s.mu.Lock()
	s.requests = append(s.requests, request)
	s.mu.Unlock()
	turn.serve(w, r)
}

// CountTokens is how many tokens this server takes a request of Converse for: one for each four bytes of its body, as
// it was sent.
func CountTokens(body json.RawMessage) int { return (len(body) + 3) / 4 }

func invalid(message string) Failure {
	return Failure{Status: http.StatusBadRequest, Code: "ValidationException", Message: message}
}

// Failure is a refusal. Wait is what the client is told to wait in seconds; 0 = nothing.
type Failure struct {
	Status  int
	Code    string
	Message string
	Wait    int
}

func (f Failure) serve(w http.ResponseWriter, r *http.Request) {
	if f.Code != "" {
		w.Header().Set("X-Amzn-ErrorType", f.Code+":http://internal.amazon.com/coral/")
	}
	if f.Wait > 0 {
		w.Header().Set("Retry-After", fmt.Sprint(f.Wait))
	}
	Body{Status: f.Status, Type: "application/json", Text: string(withEntry("message", f.Message))}.serve(w, r)
}

// Body is an answer written out. Short bytes are promised and not sent.
type Body struct {
	Status int // 0 = 200
	Type   string
	Text   string
	Short  int
}

func (b Body) serve(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", b.Type)
	if b.Short > 0 {
		w.Header().Set("Content-Length", fmt.Sprint(len(b.Text)+b.Short))
	}
	w.WriteHeader(cmp.Or(b.Status, http.StatusOK))
	_, _ = io.WriteString(w, b.Text) // a client that hung up is the client's business
}

// patient is an HTTP client whose request bodies outlive the SDK's interest in them. The SDK (smithy-go 1.28.8) closes
// a body as soon as the response's header is there; net/http may not have seen the body's end by then, takes the close
// for a failed write and drops the connection with the response in it. That needs a server that answers within
// microseconds: this one.
type patient struct{ http *http.Client }

// Do sends a request with a copy of its body.
func (p patient) Do(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, fmt.Errorf("read request body: %w", err)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	return p.http.Do(r)
}
