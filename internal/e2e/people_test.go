package e2e

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/agents"
	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/standins"
	"github.com/countersign/countersign/internal/web"
)

// bearer sends a token along.
type bearer struct{ token string }

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return http.DefaultTransport.RoundTrip(r)
}

// client returns a client of the HTTP API for a user of a tenant.
func (d *deployment) client(tenant, user string, groups ...string) *web.Client {
	d.t.Helper()
	token := standins.Token(map[string]any{"sub": user, "tenant": tenant, "groups": groups})
	return web.NewURLClient(d.apiURL, &http.Client{Transport: bearer{token}})
}

func (d *deployment) anaClient() *web.Client { return d.client(acme, "ana", "operators") }

// do makes a request and reads the answer.
func do(t *testing.T, c *http.Client, r *http.Request) (*http.Response, string) {
	t.Helper()
	resp, err := c.Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp, string(body)
}

// killAll ends the processes of all functions.
func (d *deployment) killAll() {
	d.t.Helper()
	for name, f := range d.functions {
		require.NoError(d.t, f.Kill(), name)
	}
}

// refundsAgent is a copy of the registered agent.
func refundsAgent(t *testing.T) *agent.Definition {
	t.Helper()
	known, ok := agents.Registry().Agent("refunds")
	require.True(t, ok)
	return new(*known)
}

// start starts a run with a message, past the functions.
func (d *deployment) start(r runtime.Start, message string) run.AgentState {
	d.t.Helper()
	r.Message = []run.UserBlock{{Block: run.Text{Text: message}}}
	s, err := (&runtime.Starter{Ports: d.ports}).Start(d.t.Context(), r)
	require.NoError(d.t, err)
	return s
}

// waitFor reads a run from the table until ok is true.
func (d *deployment) waitFor(tenant, runID string, ok func(*run.AgentState) bool) run.AgentState {
	d.t.Helper()
	var s run.AgentState
	require.Eventually(d.t, func() bool {
		l, err := d.ports.Journal.Load(d.t.Context(), tenant, runID)
		s = l.State
		return err == nil && ok(&s)
	}, 4*time.Minute, 10*time.Millisecond, "the run did not come to what was awaited")
	return s
}

func isParked(s *run.AgentState) bool { return s.Status == run.RunWaiting }

func isDone(s *run.AgentState) bool { return s.Status == run.RunDone }

// refundStart returns the request that starts a run with a refund of 120.
func refundStart(key string) web.Start {
	return web.Start{Agent: "refunds", Message: []byte(`"A wheel of my chair is broken. Order 1002."`), Key: key}
}

// approve approves what a parked run waits for.
func (d *deployment) approve(c *web.Client, s run.AgentState) {
	d.t.Helper()
	_, err := answered(d.t.Context(), d, func() (approval.Approval, error) {
		return c.Decide(d.t.Context(), s.Waits()[0].Wait.Approval, web.Verdict{Action: approval.Approve})
	})
	require.NoError(d.t, err)
}

// requireWholeRefund checks the final state that every refund run must have.
func (d *deployment) requireWholeRefund(s run.AgentState) {
	d.t.Helper()
	require.Equal(d.t, run.ReasonNaturalEnd, s.Reason, "%+v", s.Error)
	require.Equal(d.t, `"Refunded."`, string(s.Output))
	require.EqualValues(d.t, 3, s.Inferences)
	require.Equal(d.t, 1, d.refunds(s.Run), "paid once")
	want := []int64{3, 3, 2, 2, 1, 1} // user; call, result; call, result; text: its own inference counts for whom the model wrote
	var got []int64
	for _, m := range s.Messages.All() {
		got = append(got, m.Seen(s.Inferences))
	}
	require.Equal(d.t, want, got)
}

// Members of PeopleAdmins add and remove people by the API, with what the template permits functions/http then.
func TestPeopleByTheAPI(t *testing.T) {
	d := deploy(t, newRefundModel(t), func(d *deployment) { d.values["PeopleAdmins"] = "group:operators" })
	ask := func(user, group, method, path, body string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, d.apiURL+"/v1/people"+path, strings.NewReader(body))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/json")
		token := standins.Token(map[string]any{"sub": user, "tenant": acme, "groups": []string{group}})
		resp, text := do(t, &http.Client{Transport: bearer{token}}, r)
		return resp.StatusCode, text
	}
	status, text := ask("eve", "guests", http.MethodPut, "/user:eve", `{"groups":["group:operators"]}`)
	require.Equal(t, 403, status, text)
	status, text = ask("ana", "operators", http.MethodPut, "/user:cy", `{"groups":["group:operators"],"email":"cy@example.com"}`)
	require.Equal(t, 204, status, text)
	status, text = ask("ana", "operators", http.MethodDelete, "/user:eve", "")
	require.Equal(t, 204, status, text)
	status, text = ask("ana", "operators", http.MethodGet, "", "")
	require.Equal(t, 200, status, text)
	require.Contains(t, text, `{"id":"user:cy","groups":["group:operators"],"email":"cy@example.com"}`)
	require.Contains(t, text, "user:ana")
	require.NotContains(t, text, "user:eve")
}
