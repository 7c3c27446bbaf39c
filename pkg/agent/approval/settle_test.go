package approval_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/pkg/agent"
	"github.com/countersign/countersign/pkg/agent/approval"
)

// interrupted parks the run on the unknown outcome of its refund, which ana approved where it takes an approval.
func (r *room) interrupted() {
	r.t.Helper()
	r.refund.hanging = true
	r.start(args)
	if r.call().Wait.For == agent.ForApproval {
		_, err := r.decide(approval.Approve, ana)
		require.NoError(r.t, err)
		r.resume()
	}
	require.Equal(r.t, agent.ForOutcome, r.call().Wait.For)
	require.Len(r.t, r.refund.paid, 1)
	r.refund.hanging = false
}

// Whoever may act for the tenant may say what became of a call; to run one again that was approved takes one of its approvers.
func TestSettleTakesAnApproverToRunAgain(t *testing.T) {
	rerun := approval.Outcome{Rerun: true}
	result := approval.Outcome{Content: "paid"}
	for name, c := range map[string]struct {
		allowed bool // without asking anybody
		says    approval.Outcome
		by      agent.Principal
		refused bool
	}{
		"approved, again by an approver":          {false, rerun, ben, false},
		"approved, again by a stranger":           {false, rerun, stranger, true},
		"approved, again by nobody":               {false, rerun, agent.Principal{}, true},
		"approved, the result by a stranger":      {false, result, stranger, false},
		"never asked about, again by a stranger":  {true, rerun, stranger, false},
		"never asked about, result by a stranger": {true, result, stranger, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRoom(t)
				if c.allowed {
					r.def.Permission.Rules = []agent.Rule{{Tool: "refund", Verdict: agent.VerdictAllow}}
				}
				r.interrupted()
				says := c.says
				says.Tenant, says.Run, says.Call, says.By = tenant, r.run, "c1", c.by
				_, err := r.desk().Settle(r.ctx, says)
				if c.refused {
					require.ErrorIs(t, err, approval.ErrForbidden)
					require.Empty(t, r.inbox(), "nothing was said")
					require.Equal(t, agent.ForOutcome, r.call().Wait.For, "it still waits")
					return
				}
				require.NoError(t, err)
				r.resume()
				executions := 1
				if says.Rerun {
					executions = 2
				}
				require.Len(t, r.refund.paid, executions)
				require.Equal(t, "paid", r.call().Result.Content)
			})
		})
	}
}
