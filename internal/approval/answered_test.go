package approval_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

// TestA8AnsweredArgumentsAreNeverWeaker: where an answer is what the call goes on with, it takes who and as many as these arguments do, also of an
// answer that came before the question.
func TestA8AnsweredArgumentsAreNeverWeaker(t *testing.T) {
	const large = `{"amount":700,"to":"x"}`
	for name, early := range map[string]string{"asked": "", "by several": "user:ben", "four eyes": "user:ana"} {
		t.Run(name, underRule(agent.Rule{}, func(t *testing.T, r *fixture) {
			r.refund.tickets = []run.Ticket{{ID: "which", Mode: run.TicketPass}}
			if early != "" {
				kept := r.callDecision("which", approval.Approve, policy.Principal{ID: early, Groups: ben.Groups})
				kept.Result = json.RawMessage(large)
				require.NoError(t, r.decideCall(kept))
			}
			r.must(r.decide(approval.Approve, ben))
			r.resume()
			require.Equal(t, run.ForInput, r.call().Wait.For)
			require.Empty(t, r.state().Kept)
			answer := func(by policy.Principal) (approval.Approval, error) {
				return r.desk().Decide(r.ctx, approval.DecisionInput{
					Tenant: tenant, ID: run.ApprovalID(r.run, "c1", 2), Action: approval.Approve, Result: json.RawMessage(large), By: by,
				})
			}
			require.ErrorIs(t, errOf(answer(ana)), approval.ErrRequester)
			a, err := answer(ben)
			require.NoError(t, err)
			require.Equal(t, approval.Pending, a.Status)
			require.Empty(t, r.inbox())
			a, err = answer(cem)
			require.NoError(t, err)
			require.Equal(t, approval.Approved, a.Status)
			r.resume()
			require.Equal(t, []string{large}, r.refund.paid)
		}, func(r *fixture) {
			r.starters, r.def.Early = []string{"user:ana"}, agent.EarlyKeep
			strict := agent.Rule{
				Tool: "refund", When: []run.Condition{{Path: "/amount", Gt: json.RawMessage("600")}}, Verdict: agent.VerdictAsk, Quorum: 2, FourEyes: true,
			}
			rules := &r.def.Permission.Rules
			*rules = append([]agent.Rule{(*rules)[0], strict}, (*rules)[1:]...)
		}))
	}
}
