package approval_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

// TestA8EditKeepsWhoIsLetInLater: where the edited call's rule has the same approvers and lets others in later than the first one, or nobody, those whom
// the first one lets in alone do not count towards it.
func TestA8EditKeepsWhoIsLetInLater(t *testing.T) {
	const large = `{"amount":700,"to":"x"}`
	guest := policy.Principal{ID: "user:gil", Groups: []string{"group:guests"}}
	auditor := policy.Principal{ID: "user:aud", Groups: []string{"group:auditors"}}
	for name, c := range map[string]struct {
		escalate *agent.Escalation // of the edited call's rule
		refused  []policy.Principal
		counts   policy.Principal
	}{
		"nobody is let in":    {nil, []policy.Principal{guest, auditor}, ben},
		"others are let in":   {&agent.Escalation{After: time.Hour, To: []string{"group:auditors"}}, []policy.Principal{guest, auditor}, ben},
		"the same are let in": {&agent.Escalation{After: time.Hour, To: []string{"group:guests"}}, []policy.Principal{auditor}, guest},
	} {
		t.Run(name, underRule(agent.Rule{Quorum: 2, Escalate: &agent.Escalation{After: time.Hour, To: []string{"group:guests"}}}, func(t *testing.T, r *fixture) {
			time.Sleep(time.Hour)
			r.must(r.edit(large, ana))
			for _, p := range c.refused {
				require.ErrorIs(t, errOf(r.decide(approval.Approve, p)), approval.ErrForbidden, p.ID)
			}
			r.must(r.approveShown(c.counts))
			r.resume()
			require.Equal(t, []string{large}, r.refund.paid)
		}, func(r *fixture) {
			over := run.Condition{Path: "/amount", Gt: json.RawMessage("600")}
			rules := &r.def.Permission.Rules
			*rules = append([]agent.Rule{(*rules)[0], {Tool: "refund", When: []run.Condition{over, {Path: "/amount", Lte: json.RawMessage("1000")}}, Verdict: agent.VerdictAsk, Quorum: 2, Escalate: c.escalate}}, (*rules)[1:]...)
		}))
	}
}

// TestA9FailingARequestTakesAnApproverOfAllOfIt: to fail a request ends what it asks of every tool, whichever one is named.
func TestA9FailingARequestTakesAnApproverOfAllOfIt(t *testing.T) {
	withToolsRequest(t, func(t *testing.T, r *fixture) {
		require.ErrorIs(t, errOf(r.decideTool(approval.Fail, "refund", ana)), approval.ErrForbidden)
		require.Equal(t, approval.Pending, r.approval().Status)
	})
}

// TestDecidingWhileAGrantBesideIsUsedUp: a claim that uses up the grant of one tool between a decision on another and its write takes nothing from it.
func TestDecidingWhileAGrantBesideIsUsedUp(t *testing.T) {
	withToolsRequest(t, func(t *testing.T, r *fixture) {
		r.must(r.decideTool(approval.Approve, "refund", boss))
		granted := run.ToolPermit{Tool: "refund", Approval: r.approval().ID, Digests: r.approval().Permissions[0].Digests}
		hookWrite(r.table, "A", func() error { return r.table.Table.Write(r.ctx, approval.PermitOp(tenant, granted, true)) }, nil)
		a := r.must(r.decideTool(approval.Approve, "wire", boss))
		require.Equal(t, approval.Approved, a.Status)
		require.Equal(t, "used", r.item().Attrs["v0"].String())
	})
}
