package runtime_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
)

// TestRequestsOfAnEndedRunAreClosed: whoever ends a run may die before its requests are closed. The sweep closes
// them, and so does whoever decides one, who is told that the run has ended.
func TestRequestsOfAnEndedRunAreClosed(t *testing.T) {
	ended := func(t *testing.T, w *world) (request string) {
		t.Helper()
		w.parked("k")
		request = w.call("c1").Wait.Approval
		c := &runtime.Canceller{Ports: w.ports, Definitions: w.pinned}
		_, err := c.Cancel(w.ends(entry("finished")), tenant, w.run, "user:ana", "")
		require.Error(t, err, "it died behind the end")
		require.Equal(t, run.RunDone, w.state().Status)
		require.Equal(t, approval.Pending, w.approval(request).Status)
		return request
	}
	subtest(t, "by the sweep", func(t *testing.T, w *world) {
		request := ended(t, w)
		w.sleep(2 * time.Minute)
		require.EqualValues(t, 1, w.sweepAll().Repaired[runtime.RepairClosed])
		require.Equal(t, approval.Cancelled, w.approval(request).Status)
		w.sleep(2 * time.Minute)
		require.Empty(t, w.sweepAll().Repaired, "nothing is left")
	})
	subtest(t, "by a second cancel", func(t *testing.T, w *world) {
		request := ended(t, w)
		_, err := (&runtime.Canceller{Ports: w.ports, Definitions: w.pinned}).Cancel(w.ctx, tenant, w.run, "user:ana", "")
		require.NoError(t, err)
		require.Equal(t, approval.Cancelled, w.approval(request).Status)
		w.sleep(2 * time.Minute)
		require.Zero(t, w.sweepAll().Repaired[runtime.RepairClosed])
	})
	subtest(t, "by a decision", func(t *testing.T, w *world) {
		request := ended(t, w)
		for _, a := range []approval.Action{approval.Approve, approval.Deny} {
			_, err := w.desk().Decide(w.ctx, approval.DecisionInput{Tenant: tenant, ID: request, Action: a, By: ana})
			require.Error(t, err)
			if a == approval.Approve {
				require.ErrorIs(t, err, approval.ErrFinished)
			}
			require.Equal(t, approval.Cancelled, w.approval(request).Status)
		}
	})
}
