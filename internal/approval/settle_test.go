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

// Whoever may act for the tenant may say what became of a call, and have one run again that nobody was asked about.
// To run one again that was approved takes one of its approvers.
func TestSettleTakesAnApproverToRunAgain(t *testing.T) {
	for allowed, says := range map[bool][]approval.DecisionInput{
		false: {{Content: "paid", Action: approval.ReportResult, By: stranger}, {Action: approval.Rerun, By: ben}},
		true:  {{Action: approval.Rerun, By: stranger}},
	} {
		for _, q := range says {
			withFixture(t, func(t *testing.T, r *fixture) {
				if allowed {
					r.def.Permission.Rules = []agent.Rule{{Tool: "refund", Verdict: agent.VerdictAllow}}
				}
				r.interrupted()
				q.Tenant, q.Run, q.Call = tenant, r.run, "c1"
				if !allowed {
					again := approval.DecisionInput{Tenant: tenant, Run: r.run, Call: "c1", Action: approval.Rerun}
					for _, again.By = range []policy.Principal{stranger, {}} {
						require.ErrorIs(t, errOf(r.desk().Decide(r.ctx, again)), approval.ErrForbidden)
					}
					require.Empty(t, r.inbox())
				}
				r.must(r.desk().Decide(r.ctx, q))
				r.resume()
				executions := 1
				if q.Action == approval.Rerun {
					executions = 2
				}
				require.Len(t, r.refund.paid, executions)
				require.Equal(t, "paid", r.call().Result.Content)
			})
		}
	}
}

// A8: whoever says what became of a call that a person had changed, the model is told of the change.
func TestSettleOfAnEditedCallTellsOfTheEdit(t *testing.T) {
	const edited = `{"amount":5,"to":"x"}`
	for want, says := range map[string]approval.DecisionInput{
		"not paid": {Action: approval.ReportError, Content: "not paid"}, "paid": {Action: approval.Rerun},
	} {
		withFixture(t, func(t *testing.T, r *fixture) {
			r.refund.setHanging(true)
			r.startAndPark(args)
			r.must(r.edit(edited, ana))
			r.resume()
			require.Equal(t, 1, r.refund.setHanging(false))
			says.Tenant, says.Run, says.Call, says.By = tenant, r.run, "c1", ben
			for range 2 { // said again, it is the same answer
				r.must(r.desk().Decide(r.ctx, says))
			}
			r.resume()
			require.Equal(t, agent.TextEdited(ana.ID, edited)+want, r.call().Result.Content)
		})
	}
}
