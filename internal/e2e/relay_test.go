package e2e

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/repotest"
)

func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv.URL
}

// relay stands between the functions and the services. It knows which function asks: it refuses what the function's
// role in the template does not grant, counts what is written to the table, and can end a function's process at a
// write. It also reaches DynamoDB Local, which is contained and answers this process's own HTTP client alone.
type relay struct {
	t       *testing.T
	targets map[string]target // by service
	grants  map[string][]string
	kill    func(function string) error

	mu     sync.Mutex
	made   map[bool]int // requests of the table since next: all, and those that write
	strike *killPoint
}

type target struct {
	url    string
	client aws.HTTPClient
}

// killPoint kills the process of the n-th table request from now on, before or after the table has it.
type killPoint struct {
	n      int
	writes bool // the n-th that writes
	after  bool
	struck string // the function it met; "" = none yet
}

func newRelay(t *testing.T, dynamo aws.Config, s3, sfn, bedrock, bus, secrets string, kill func(function string) error) *relay {
	t.Helper()
	p, err := repotest.Read("../..", nil)
	require.NoError(t, err)
	r := &relay{t: t, kill: kill, made: map[bool]int{}, grants: map[string][]string{}, targets: map[string]target{
		"dynamodb": {aws.ToString(dynamo.BaseEndpoint), dynamo.HTTPClient}, "s3": {s3, http.DefaultClient}, "states": {sfn, http.DefaultClient},
		"bedrock": {bedrock, http.DefaultClient}, "events": {bus, http.DefaultClient},
		"secretsmanager": {secrets, http.DefaultClient},
	}}
	for _, f := range functions {
		r.grants[f] = p.Grants(strings.ToUpper(f[:1]) + f[1:] + "Role")
		require.NotEmpty(t, r.grants[f], f)
	}
	return r
}

// environment returns a function's environment variables with the addresses of the services.
func (r *relay) environment(function string) []string {
	at := func(variable, service string) string {
		return "AWS_ENDPOINT_URL_" + variable + "=" + serve(r.t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { r.forward(w, q, function, service) }))
	}
	return []string{
		at("DYNAMODB", "dynamodb"), at("S3", "s3"), at("SFN", "states"), at("BEDROCK_RUNTIME", "bedrock"), at("EVENTBRIDGE", "events"),
		at("SECRETS_MANAGER", "secretsmanager"),
	}
}

// setKillPoint replaces the kill point, and restarts the count of requests.
func (r *relay) setKillPoint(s *killPoint) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.made, r.strike = map[bool]int{}, s
}

// count is how many requests of the table there were since next, or how many that write.
func (r *relay) count(writes bool) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.made[writes]
}

// isPermitted reports whether the function's role permits a request.
func (r *relay) isPermitted(function, service string, q *http.Request, body []byte) bool {
	ok := true
	for _, action := range actions(service, q, body) {
		name, on, _ := strings.Cut(action, " ")
		granted := slices.ContainsFunc(r.grants[function], func(g string) bool {
			return strings.HasPrefix(g, name+" on ") && (on == "" || strings.Contains(g, on))
		})
		if !granted {
			r.t.Errorf("functions/%s calls %s, which its role does not grant", function, action)
			ok = false
		}
	}
	return ok
}

// actions returns the actions that a policy must allow for a request.
func actions(service string, q *http.Request, body []byte) []string {
	switch service {
	case "dynamodb", "states", "events", "secretsmanager":
		op := q.Header.Get("X-Amz-Target")
		op = op[strings.Index(op, ".")+1:]
		if op == "TransactWriteItems" {
			return inTransaction(body)
		}
		if bytes.Contains(body, []byte(`"IndexName"`)) {
			return []string{service + ":" + op + " /index/"}
		}
		return []string{service + ":" + op}
	case "bedrock":
		if strings.HasSuffix(q.URL.Path, "/converse-stream") {
			return []string{"bedrock:InvokeModelWithResponseStream"}
		}
		return []string{"bedrock:InvokeModel"}
	default:
		switch {
		case q.Method == http.MethodPut:
			return []string{"s3:PutObject"}
		case q.URL.Query().Has("list-type"):
			return []string{"s3:ListBucket"}
		default:
			return []string{"s3:GetObject"}
		}
	}
}

func inTransaction(body []byte) (all []string) {
	var in struct{ TransactItems []map[string]json.RawMessage }
	if err := json.Unmarshal(body, &in); err != nil {
		return []string{"dynamodb:TransactWriteItems of no known form"}
	}
	names := map[string]string{"Put": "PutItem", "Update": "UpdateItem", "ConditionCheck": "ConditionCheckItem", "Delete": "DeleteItem"}
	for _, item := range in.TransactItems {
		for kind := range item {
			all = append(all, "dynamodb:"+names[kind])
		}
	}
	return all
}

// countRequest counts a request of the table, and reports whether it is the kill point.
func (r *relay) countRequest(service string, q *http.Request, function string) (before, after bool) {
	if service != "dynamodb" {
		return false, false
	}
	op := q.Header.Get("X-Amz-Target")
	op = op[strings.Index(op, ".")+1:]
	writes := op == "PutItem" || op == "UpdateItem" || op == "TransactWriteItems"
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.made[false]++; writes {
		r.made[true]++
	}
	s := r.strike
	if s == nil || s.struck != "" || s.writes && !writes || r.made[s.writes] != s.n {
		return false, false
	}
	s.struck = function
	return !s.after, s.after
}

func (r *relay) forward(w http.ResponseWriter, q *http.Request, function, service string) {
	body, err := io.ReadAll(q.Body)
	if err != nil {
		return // the function is gone
	}
	if !r.isPermitted(function, service, q, body) {
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, `{"__type":"AccessDeniedException","message":"no policy allows it"}`)
		return
	}
	before, after := r.countRequest(service, q, function)
	if before {
		r.killProcess(function)
		return
	}
	r.forwardRequest(w, q, body, function, service, after)
}

// forwardRequest forwards a request. It reaches the service even if the process ends.
func (r *relay) forwardRequest(w http.ResponseWriter, q *http.Request, body []byte, function, service string, thenEnd bool) {
	to := r.targets[service]
	out, err := http.NewRequest(q.Method, to.url+q.URL.RequestURI(), bytes.NewReader(body)) //nolint:noctx // see above
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	out.Header = q.Header.Clone()
	resp, err := to.client.Do(out)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer resp.Body.Close()
	if thenEnd {
		r.killProcess(function)
		return
	}
	for k, v := range resp.Header {
		w.Header()[k] = v
	}
	w.WriteHeader(resp.StatusCode)
	_, _ = io.Copy(w, resp.Body) // a function that is gone by now does not miss it
}

func (r *relay) killProcess(function string) {
	if err := r.kill(function); err != nil {
		r.t.Errorf("end %s: %v", function, err)
	}
}
