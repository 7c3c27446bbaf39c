package e2e

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
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
// role in the template does not permit, as IAM would, counts what is written to the table, and can end a function's
// process at a write. It also reaches DynamoDB Local, which is contained and answers this process's own HTTP client
// alone.
type relay struct {
	t *testing.T
	services
	roles  map[string][]repotest.Line
	values repotest.Values
	kill   func(function string) error

	mu     sync.Mutex
	opened map[string]int // connections by function
	strike *killPoint
	// requests of the table since setKillPoint, and by function those that write
	requests int
	writes   map[string]int
	throttle func() bool // whether the table refuses the next request; nil = it does not
}

// services are those of AWS, by the name that requests are signed for.
type services map[string]target

type target struct {
	url    string
	client aws.HTTPClient
}

// killPoint kills the process of the n-th table request from now on, before or after the table has it.
type killPoint struct {
	n      int
	writes string // the n-th by which this function writes; "" = the n-th by any
	after  bool
	struck string // the function it met; "" = none yet
}

func newRelay(d *deployment) *relay {
	d.t.Helper()
	r := &relay{
		t: d.t, services: d.services, values: d.values, opened: map[string]int{}, writes: map[string]int{}, roles: map[string][]repotest.Line{},
		kill: func(function string) error { return d.functions[function].Kill() },
	}
	for _, f := range functions {
		lines, err := d.project.Lines(resource(f)+"Role", d.values)
		require.NoError(d.t, err)
		require.NotEmpty(d.t, lines, f)
		r.roles[f] = lines
		permits.add(f, lines)
	}
	return r
}

// resource is how the names of a function's resources in the template begin.
func resource(function string) string { return strings.ToUpper(function[:1]) + function[1:] }

// endpoint is where a function reaches all services.
func (r *relay) endpoint(function string) string {
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { r.forward(w, q, function) }))
	srv.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if state == http.StateNew {
			r.opened[function]++
		}
	}
	srv.Start()
	r.t.Cleanup(srv.Close)
	return srv.URL
}

// connections is how many connections a function has opened.
func (r *relay) connections(function string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.opened[function]
}

// scope is what a signature is for: a day, a region and a service.
var scope = regexp.MustCompile(`[^/=]+/\d{8}/[a-z0-9-]+/([a-z0-9]+)/aws4_request`)

// serviceOf is the service that a request is signed for, in its header or, where it was signed for somebody else, in its
// query.
func serviceOf(q *http.Request) string {
	for _, signature := range []string{q.Header.Get("Authorization"), q.URL.Query().Get("X-Amz-Credential")} {
		if m := scope.FindStringSubmatch(signature); m != nil {
			return m[1]
		}
	}
	return ""
}

// setKillPoint replaces the kill point, and restarts the count of requests.
func (r *relay) setKillPoint(s *killPoint) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests, r.writes, r.strike = 0, map[string]int{}, s
}

// setThrottle has the table refuse requests.
func (r *relay) setThrottle(refuses func() bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.throttle = refuses
}

// counts is how many requests of the table there were since setKillPoint, and by function how many that write.
func (r *relay) counts() (requests int, writes map[string]int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.requests, maps.Clone(r.writes)
}

// isPermitted reports whether the function's role permits a request.
func (r *relay) isPermitted(function, service string, q *http.Request, body []byte) bool {
	ok := true
	for _, asked := range requestsOf(r.values, service, q, body) {
		line, permitted := repotest.Permit(r.roles[function], asked)
		if !permitted {
			r.t.Errorf("functions/%s calls %s on %s %v, which its role does not permit", function, asked.Action, asked.Resource, asked.Context)
			ok = false
			continue
		}
		permits.use(function, line)
	}
	return ok
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
	if r.requests++; writes {
		r.writes[function]++
	}
	s := r.strike
	switch {
	case s == nil || s.struck != "":
		return false, false
	case s.writes == "" && r.requests != s.n, s.writes != "" && (!writes || s.writes != function || r.writes[function] != s.n):
		return false, false
	}
	s.struck = function
	return !s.after, s.after
}

func (r *relay) forward(w http.ResponseWriter, q *http.Request, function string) {
	service := serviceOf(q)
	body, err := io.ReadAll(q.Body)
	if err != nil {
		return // the function is gone
	}
	if !r.isPermitted(function, service, q, body) {
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, `{"__type":"AccessDeniedException","message":"no policy allows it"}`)
		return
	}
	r.mu.Lock()
	throttle := r.throttle
	r.mu.Unlock()
	if service == "dynamodb" && throttle != nil && throttle() {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"__type":"com.amazonaws.dynamodb.v20120810#ThrottlingException","message":"Rate exceeded"}`)
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
	resp, err := r.send(q, body, service)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer resp.Body.Close()
	if thenEnd {
		r.killProcess(function)
		return
	}
	answer(w, resp)
}

// send sends a request on to a service, whatever becomes of whoever asked.
func (s services) send(q *http.Request, body []byte, service string) (*http.Response, error) {
	to, ok := s[service]
	if !ok {
		return nil, fmt.Errorf("service %q: there is none here", service)
	}
	out, err := http.NewRequest(q.Method, to.url+q.URL.RequestURI(), bytes.NewReader(body)) //nolint:noctx // see above
	if err != nil {
		return nil, err
	}
	out.Header, out.Host = q.Header.Clone(), q.Host // the host is signed
	return to.client.Do(out)
}

// ServeHTTP is one endpoint for all services, as LocalEndpoint is.
func (s services) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(q.Body)
	if err != nil {
		return // whoever asked is gone
	}
	resp, err := s.send(q, body, serviceOf(q))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer resp.Body.Close()
	answer(w, resp)
}

func answer(w http.ResponseWriter, resp *http.Response) {
	for k, v := range resp.Header {
		w.Header()[k] = v
	}
	w.WriteHeader(resp.StatusCode)
	_, _ = io.Copy(flushing{w}, resp.Body) // a function that is gone by now does not miss it
}

// flushing passes every write on at once, as models' streams need it.
type flushing struct{ http.ResponseWriter }

func (w flushing) Write(p []byte) (int, error) {
	n, err := w.ResponseWriter.Write(p)
	_ = http.NewResponseController(w.ResponseWriter).Flush() // the next write fails, too
	return n, err
}

func (r *relay) killProcess(function string) {
	if err := r.kill(function); err != nil {
		r.t.Errorf("end %s: %v", function, err)
	}
}
