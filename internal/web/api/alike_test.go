package api_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/web/api"
)

// mistake is one mistake of a client, made on every route that can meet it.
type mistake struct {
	name   string
	status int
	kind   api.ProblemType
	detail string // what each detail contains
	meets  func(op string) bool
	// change changes a request that would be accepted.
	change func(line, body string) (wrongLine, wrongBody string)
	header []string
}

// The same mistake gets the same answer on every route: type, title and status, and the detail but for ids and paths. Nothing is done.
func TestTheSameFaultIsTheSameProblem(t *testing.T) {
	d, b := readDocument(t), newBench(t, pay)
	own := b.start("k")
	foreign, err := b.Starter.Start(t.Context(), runtime.Start{
		Tenant: "globex", Agent: b.agent(), Message: []run.UserBlock{{Block: run.Text{Text: "x"}}},
	})
	require.NoError(t, err)
	var asked []approval.Approval
	require.Eventually(t, func() bool {
		var err error
		asked, _, err = approval.List(t.Context(), b.backend.Table, "globex", approval.Query{Status: approval.Pending, Limit: 1})
		return err == nil && len(asked) == 1
	}, time.Minute, time.Millisecond)
	hasBody := func(op string) bool { return d.body(op) != nil }
	isList := func(op string) bool { return slices.Contains(d.parameters(op, "query"), "limit") }
	ofRun := func(op string) bool { return strings.Contains(op, "/runs/{id}") }
	ofApproval := func(op string) bool { return strings.Contains(op, "/approvals/{id}") }
	hasCaller := func(op string) bool { return !strings.Contains(op, "{token}") }
	every := func(string) bool { return true }
	query := func(text string) func(string, string) (string, string) {
		return func(line, body string) (string, string) { return line + "?" + text, body }
	}
	body := func(text string) func(string, string) (string, string) {
		return func(line, _ string) (string, string) { return line, text }
	}
	id := func(text string) func(string, string) (string, string) {
		return func(line, body string) (string, string) {
			return strings.NewReplacer(own.ID, text, own.Waiting[0].Approval, text).Replace(line), body
		}
	}
	same := func(line, body string) (string, string) { return line, body }
	for _, f := range []mistake{
		{"a method", 405, api.BadMethod, "got PATCH, want ", every, func(line, _ string) (string, string) {
			_, path, _ := strings.Cut(line, " ")
			return "PATCH " + path, ""
		}, nil},
		{"nobody in particular", 403, api.NotAllowed, "nobody", hasCaller, same, []string{api.AsHeader, "nobody"}},
		{"an unknown parameter", 400, api.InvalidRequest, `query parameter "zzz" is not known, want `, every, query("zzz=1"), nil},
		{"a broken query", 400, api.InvalidRequest, "the query: ", every, query("a=%zz"), nil},
		{"no limit", 400, api.InvalidRequest, `limit: got "0", want 1 to 200`, isList, query("limit=0"), nil},
		{"too much", 400, api.InvalidRequest, `limit: got "201", want 1 to 200`, isList, query("limit=201"), nil},
		{"a limit twice", 400, api.InvalidRequest, `"limit" is given 2 times`, isList, query("limit=1&limit=1"), nil},
		{"a forged cursor", 400, api.InvalidRequest, `cursor: got "x", want one that a page gave`, isList, query("cursor=x"), nil},
		{"no run", 404, api.RunNotFound, noRun, ofRun, id(noRun), nil},
		{"no run's id", 404, api.RunNotFound, "x", ofRun, id("x"), nil},
		{"another tenant's run", 404, api.RunNotFound, foreign.Run, ofRun, id(foreign.Run), nil},
		{"no request", 404, api.ApprovalNotFound, noApproval, ofApproval, id(noApproval), nil},
		{"no request's id", 404, api.ApprovalNotFound, "x", ofApproval, id("x"), nil},
		{"another tenant's request", 404, api.ApprovalNotFound, asked[0].ID, ofApproval, id(asked[0].ID), nil},
		{"broken JSON", 400, api.InvalidRequest, "the body: ", hasBody, body(`{`), nil},
		{"no object", 400, api.InvalidRequest, "the body: want an object", hasBody, body(`null`), nil},
		{"an unknown key", 400, api.InvalidRequest, `"/zzz": want a known key`, hasBody, body(`{"zzz":1}`), nil},
		{"a key twice", 400, api.InvalidRequest, "the body: ", hasBody, body(`{"zzz":1,"zzz":1}`), nil},
		{"another type", 415, api.BadMediaType, `got Content-Type "text/plain", want application/json`, hasBody, same,
			[]string{"Content-Type", "text/plain"}},
		{"a body that is too large", 413, api.TooLarge, "the body is larger than 262144 bytes", hasBody,
			body(`{"note":"` + strings.Repeat("x", 256<<10) + `"}`), nil},
	} {
		t.Run(f.name, func(t *testing.T) {
			var first *api.Problem
			for _, op := range api.Routes() {
				if !f.meets(op) {
					continue
				}
				line, text := f.change(strings.ReplaceAll(real(op, own), "{call}", "c1"), d.example(op))
				got := b.do(line, text, f.header...)
				p := problemIn(t, got, f.status, f.kind)
				d.check(t, op, got)
				require.Contains(t, p.Detail, f.detail, op)
				if first == nil {
					first = &p
				}
				require.Equal(t, first.Title, p.Title, op)
				if f.status != http.StatusNotFound && f.status != http.StatusMethodNotAllowed && f.name != "an unknown parameter" {
					require.Equal(t, first.Detail, p.Detail, op)
				}
				method, _, _ := strings.Cut(op, " ")
				allowed := slices.Contains(strings.Split(got.header.Get("Allow"), ", "), method)
				require.Equal(t, f.status == http.StatusMethodNotAllowed, allowed, op)
			}
			require.NotNil(t, first, "no route meets it")
		})
	}
	require.Equal(t, own, b.waitUntilParked(own.ID), "nothing was done")
	require.Empty(t, b.paid)

	b.server.Close()
	b.server = httptest.NewUnstartedServer(nil)
	_, port, _ := strings.Cut(b.server.Listener.Addr().String(), ":")
	b.server.Config.Handler = api.Guard{Token: devToken, Port: port}.Protect(api.Handler(b.backend))
	b.server.Start()
	for _, op := range api.Routes() {
		if !hasCaller(op) {
			continue
		}
		got := b.do(real(op, own), d.example(op))
		p := problemIn(t, got, http.StatusUnauthorized, api.Unauthenticated)
		d.check(t, op, got)
		require.NotEmpty(t, got.header.Get("WWW-Authenticate"))
		require.Contains(t, p.Detail, "want the token", op)
	}
}
