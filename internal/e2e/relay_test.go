package e2e

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/countersign/countersign/internal/dynamolocal"
)

func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv.URL
}

// relay lets the functions reach DynamoDB Local, which is contained and answers this process's own HTTP client alone. It knows which
// function asks, counts what is written, and can end a function's process at a write.
type relay struct {
	t      *testing.T
	client aws.HTTPClient
	kill   func(function string) error

	mu     sync.Mutex
	writes int
	strike *strike
}

// strike ends the process that makes the n-th write from now on, before the table has it or after.
type strike struct {
	n      int
	after  bool
	struck string // the function it met; "" = none yet
}

func newRelay(t *testing.T, cfg aws.Config, kill func(function string) error) *relay {
	return &relay{t: t, client: cfg.HTTPClient, kill: kill}
}

// address is where a function finds the table.
func (r *relay) address(function string) string {
	return serve(r.t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { r.forward(w, q, function) }))
}

// next sets a strike, in place of one before it, and starts counting anew.
func (r *relay) next(s *strike) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writes, r.strike = 0, s
}

// count is how many writes there were since next.
func (r *relay) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.writes
}

// due counts a write and reports whether the strike is on it.
func (r *relay) due(q *http.Request, function string) (before, after bool) {
	op := q.Header.Get("X-Amz-Target")
	op = op[strings.Index(op, ".")+1:]
	if op != "PutItem" && op != "UpdateItem" && op != "TransactWriteItems" {
		return false, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writes++
	if r.strike == nil || r.writes != r.strike.n {
		return false, false
	}
	r.strike.struck = function
	return !r.strike.after, r.strike.after
}

func (r *relay) forward(w http.ResponseWriter, q *http.Request, function string) {
	before, after := r.due(q, function)
	if before {
		r.end(function)
		return
	}
	body, err := io.ReadAll(q.Body)
	if err != nil {
		return // the function is gone
	}
	// What a process has sent reaches the table even if the process ends.
	out, err := http.NewRequest(q.Method, dynamolocal.Endpoint+q.URL.Path, strings.NewReader(string(body))) //nolint:noctx // see above
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	out.Header = q.Header.Clone()
	resp, err := r.client.Do(out)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer resp.Body.Close()
	if after {
		r.end(function)
		return
	}
	for k, v := range resp.Header {
		w.Header()[k] = v
	}
	w.WriteHeader(resp.StatusCode)
	_, _ = io.Copy(w, resp.Body) // a function that is gone by now does not miss it
}

func (r *relay) end(function string) {
	if err := r.kill(function); err != nil {
		r.t.Errorf("end %s: %v", function, err)
	}
}
