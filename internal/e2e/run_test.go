package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/web"
)

// A run by the HTTP API: started, followed as a stream, parked, all functions gone, approved, done.
func TestRunByTheAPI(t *testing.T) {
	d := deploy(t, newRefundModel(t))
	ana := d.anaClient()
	started, err := ana.Start(t.Context(), refundStart("k"))
	require.NoError(t, err)
	again, err := ana.Start(t.Context(), refundStart("k"))
	require.NoError(t, err)
	require.Equal(t, started.ID, again.ID, "the same key and body are the same run")
	other := refundStart("k")
	other.Message = json.RawMessage(`"Another."`)
	_, err = ana.Start(t.Context(), other)
	requireProblem(t, err, 409, web.KeyReused)

	s := d.waitFor(acme, started.ID, isParked)
	require.Zero(t, d.refunds(s.Run))
	d.killAll() // waiting costs nothing: nobody has to be there
	page, err := ana.Approvals(t.Context(), "", "", 0)
	require.NoError(t, err)
	require.Len(t, page.Items, 1)
	require.JSONEq(t, `{"order":"1002","amount":120,"reason":"A wheel is broken."}`, string(page.Items[0].Args))
	_, err = d.client(acme, "ben", "sales").Decide(t.Context(), page.Items[0].ID, web.Verdict{Action: approval.Approve})
	requireProblem(t, err, 403, web.NotAllowed)
	_, err = d.client("other", "eve", "operators").Decide(t.Context(), page.Items[0].ID, web.Verdict{Action: approval.Approve})
	requireProblem(t, err, 404, web.ApprovalNotFound)

	d.follow(ana, started.ID, func(e web.Event) { // through a gateway that cannot stream: each answer ends
		if e.Type == "parked" {
			d.approve(ana, s)
		}
	})
	d.requireWholeRefund(d.waitFor(acme, s.Run, isDone))
	one, err := ana.Run(t.Context(), s.Run)
	require.NoError(t, err)
	require.Equal(t, run.RunDone, one.Status)
	decided, err := ana.Approval(t.Context(), page.Items[0].ID)
	require.NoError(t, err)
	require.Equal(t, "user:ana", decided.Decisions[0].By)
	require.Empty(t, d.bus.Undelivered())
	d.requireDeletion(ana, started.ID)
}

// requireDeletion deletes a run by the API, once its end has been cleaned up: functions/http does it with its own role.
func (d *deployment) requireDeletion(operator *web.Client, id string) {
	t := d.t
	t.Helper()
	_, err := d.client(acme, "ben", "sales").Delete(t.Context(), id)
	requireProblem(t, err, 403, web.NotAllowed)
	d.waitAtRest()
	d.ageOutbox() // of functions that were killed before they sent their events
	d.sweep()
	_, err = operator.Delete(t.Context(), id)
	require.NoError(t, err)
	_, err = operator.Run(t.Context(), id)
	requireProblem(t, err, 404, web.RunNotFound)
	again, err := operator.Delete(t.Context(), id)
	require.NoError(t, err)
	require.True(t, again.Already)
	page, err := operator.Deletions(t.Context(), "", 0)
	require.NoError(t, err)
	require.Len(t, page.Items, 1)
	require.Equal(t, []string{id, "user:ana"}, []string{page.Items[0].Run, page.Items[0].By})
}

func requireProblem(t *testing.T, err error, status int, kind web.ProblemType) {
	t.Helper()
	var p *web.Problem
	require.ErrorAs(t, err, &p)
	require.Equal(t, status, p.Status)
	require.Contains(t, p.Type, string(kind))
}

// follow follows a run to its end, from answer to answer, and requires that the client sees each event of the run once
// and in order.
func (d *deployment) follow(c *web.Client, id string, see func(web.Event)) {
	d.t.Helper()
	var ids []string
	deadline := d.clock.Now().Add(4 * time.Minute)
	for after, last := "", ""; last != "finished"; {
		require.True(d.t, d.clock.Now().Before(deadline), "%v", ids)
		require.NoError(d.t, c.Follow(d.t.Context(), id, after, func(e web.Event) error {
			ids, after, last = append(ids, e.ID), e.ID, e.Type
			see(e)
			return nil
		}))
	}
	all, err := d.anaClient().Events(d.t.Context(), id, "", 200)
	require.NoError(d.t, err)
	var want []string
	for _, e := range all.Items {
		want = append(want, e.ID)
	}
	require.Equal(d.t, want, ids)
}

// An event starts a run by the template's rule; delivered again, it starts nothing new.
func TestRunByAnEvent(t *testing.T) {
	d := deploy(t, newRefundModel(t), func(d *deployment) { d.bus.Deliveries = 3 })
	ana := d.client(eventTenant, "ana", "operators")
	for _, detail := range []string{
		`{"agent":"refunds","message":"A wheel of my chair is broken. Order 1002."}`,
		`{"agent":"refunds","order":"1002","complaint":"A wheel is broken."}`, // by data
	} {
		run := agent.RunID(eventTenant, "refunds", d.putEvent("Countersign Run Requested", detail))
		d.approve(ana, d.waitFor(eventTenant, run, isParked))
		d.requireWholeRefund(d.waitFor(eventTenant, run, isDone))
	}
	require.Empty(t, d.bus.Undelivered())
	page, err := ana.Runs(t.Context(), web.RunQuery{})
	require.NoError(t, err)
	require.Len(t, page.Items, 2)
	d.waitAtRest()
}

// waitAtRest waits until no execution runs.
func (d *deployment) waitAtRest() {
	d.t.Helper()
	require.Eventually(d.t, func() bool { return len(d.engine.List(d.t.Context(), "RUNNING")) == 0 }, 2*time.Minute, 10*time.Millisecond)
}

// sample returns a function's sample event.
func sample(t *testing.T, function, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "functions", function, "events", name))
	require.NoError(t, err)
	return data
}
