package approval_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

// interrupted parks the run on the unknown outcome of its refund, which ana approved where it takes an approval.
func (r *fixture) interrupted() {
	r.t.Helper()
	r.refund.setHanging(true)
	r.startAndPark(args)
	if r.call().Wait.For == run.ForApproval {
		r.must(r.decide(approval.Approve, ana))
		r.resume()
	}
	require.Equal(r.t, run.ForOutcome, r.call().Wait.For)
	require.Equal(r.t, 1, r.refund.setHanging(false))
}

// Whoever may act for the tenant may say what became of a call; to run one again that was approved takes one of its approvers.
func TestSettleTakesAnApproverToRunAgain(t *testing.T) {
	rerun := approval.DecisionInput{Action: approval.Rerun}
	result := approval.DecisionInput{Content: "paid", Action: approval.ReportResult}
	for name, c := range map[string]struct {
		allowed bool // without asking anybody
		says    approval.DecisionInput
		by      policy.Principal
		refused bool
	}{
		"approved, again by an approver":          {false, rerun, ben, false},
		"approved, again by a stranger":           {false, rerun, stranger, true},
		"approved, again by nobody":               {false, rerun, policy.Principal{}, true},
		"approved, the result by a stranger":      {false, result, stranger, false},
		"never asked about, again by a stranger":  {true, rerun, stranger, false},
		"never asked about, result by a stranger": {true, result, stranger, false},
	} {
		t.Run(name, func(t *testing.T) {
			withFixture(t, func(t *testing.T, r *fixture) {
				if c.allowed {
					r.def.Permission.Rules = []agent.Rule{{Tool: "refund", Verdict: agent.VerdictAllow}}
				}
				r.interrupted()
				says := c.says
				says.Tenant, says.Run, says.Call, says.By = tenant, r.run, "c1", c.by
				_, err := r.desk().Decide(r.ctx, says)
				if c.refused {
					require.ErrorIs(t, err, approval.ErrForbidden)
					require.Empty(t, r.inbox(), "nothing was said")
					require.Equal(t, run.ForOutcome, r.call().Wait.For, "it still waits")
					return
				}
				require.NoError(t, err)
				r.resume()
				executions := 1
				if says.Action == approval.Rerun {
					executions = 2
				}
				require.Len(t, r.refund.paid, executions)
				require.Equal(t, "paid", r.call().Result.Content)
			})
		})
	}
}

// A8: whoever says what became of a call that a person had changed, the model is told of the change.
func TestSettleOfAnEditedCallTellsOfTheEdit(t *testing.T) {
	const edited = `{"amount":5,"to":"x"}`
	for name, says := range map[string]approval.DecisionInput{
		"a result":  {Action: approval.ReportResult, Content: "paid"},
		"an error":  {Action: approval.ReportError, Content: "not paid"},
		"run again": {Action: approval.Rerun},
	} {
		t.Run(name, func(t *testing.T) {
			withFixture(t, func(t *testing.T, r *fixture) {
				r.refund.setHanging(true)
				r.startAndPark(args)
				r.must(r.desk().Decide(r.ctx, approval.DecisionInput{Tenant: tenant, ID: r.call().Wait.Approval, Action: approval.Edit, Args: []byte(edited), By: ana}))
				r.resume()
				require.Equal(t, 1, r.refund.setHanging(false))
				says.Tenant, says.Run, says.Call, says.By = tenant, r.run, "c1", ben
				for range 2 { // said again, it is the same answer
					r.must(r.desk().Decide(r.ctx, says))
				}
				r.resume()
				want := says.Content
				if says.Action == approval.Rerun {
					want = "paid"
				}
				require.Equal(t, agent.TextEdited(ana.ID, edited)+want, r.call().Result.Content)
			})
		})
	}
}
