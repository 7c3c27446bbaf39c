package approval_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// withToolsRequest runs a test in a bubble with a run that is parked on one request about two tools: refund, which ana
// and ben decide, and wire, which boss decides.
func withToolsRequest(t *testing.T, f func(t *testing.T, r *fixture)) {
	t.Helper()
	withFixture(t, func(t *testing.T, r *fixture) {
		p := &r.def.Permission
		p.Mode, p.Scope = agent.ModeBlockAndRetry, agent.ScopeTool
		wire := r.def.Tools[0]
		wire.Name = "wire"
		r.def.Tools = append(r.def.Tools, wire)
		p.Rules = []agent.Rule{{Tool: "wire", Verdict: agent.VerdictAsk, Approvers: []string{"group:bosses"}}}
		r.startAndPark(args, func() {
			wire := agent.ReplyCall{ID: "c2", Name: "wire", Input: json.RawMessage(args)}
			r.replies[0].Calls = append(r.replies[0].Calls, wire)
		})
		f(t, r)
	})
}

func (r *fixture) decideTool(a approval.Action, tool string, by policy.Principal) (approval.Approval, error) {
	q := r.request(a, by)
	q.Tool = tool
	return r.desk().Decide(r.ctx, q)
}

// A decision aimed at a blocked call is one on its tool; one aimed at the request is one on all that is open. Neither is kept.
func TestDirectDecisionsAboutTools(t *testing.T) {
	for _, early := range []agent.EarlyDecision{agent.EarlyKeep, agent.EarlyRefuse} {
		withToolsRequest(t, func(t *testing.T, r *fixture) {
			r.def.Early = early
			require.NoError(t, r.decideCall(r.callDecision("c2", approval.Deny, boss)))
			require.Equal(t, []run.ToolVerdict{"", run.ToolDenied}, verdicts(r.approval()))
			require.ErrorIs(t, r.decideCall(r.callDecision("c1", approval.Approve, stranger)), approval.ErrForbidden)
			d := r.callDecision(r.approval().ID, approval.Approve, boss)
			d.Key = "d1"
			require.NoError(t, r.decideCall(d))
			require.Equal(t, []run.ToolVerdict{run.ToolGranted, run.ToolDenied}, verdicts(r.approval()))
			d.Action = approval.Cancel
			require.Error(t, r.decideCall(d))
			require.Len(t, r.inbox(), 2)
			r.resume()
			require.Len(t, r.state().Permissions.Tools, 2)
			require.Empty(t, r.state().Kept)
		})
	}
}

func verdicts(a approval.Approval) []run.ToolVerdict {
	var out []run.ToolVerdict
	for _, p := range a.Permissions {
		out = append(out, p.Verdict)
	}
	return out
}

func TestADecidedToolOfARequestThatWaits(t *testing.T) {
	err := &approval.DecidedError{Approval: approval.Approval{ID: "a1", Status: approval.Pending, Decisions: []approval.Decision{{Action: approval.Approve}}}}
	require.EqualError(t, err, "approval a1 is decided about that tool, and waits for the others")
}

// A9, A12: each tool has its own approvers and is decided once; who names none decides about all that are open, or
// about none.
func TestDecideTools(t *testing.T) {
	const none, granted, denied = run.ToolVerdict(""), run.ToolGranted, run.ToolDenied
	const pending, yes, no = approval.Pending, approval.Approve, approval.Deny
	type said struct {
		do           approval.Action
		tool         string
		by           policy.Principal
		want         error // nil = taken
		refund, wire run.ToolVerdict
		then         approval.Status
	}
	decided := &approval.DecidedError{}
	for name, story := range map[string][]said{
		"one by one": {
			{yes, "refund", ana, nil, granted, none, pending}, {no, "wire", boss, nil, granted, denied, approval.Approved},
		},
		"all at once": {{no, "", boss, nil, denied, denied, approval.Denied}},
		"not all of them, so none": {
			{yes, "", ana, approval.ErrForbidden, none, none, pending}, {yes, "wire", boss, nil, none, granted, pending},
			{yes, "", ana, nil, granted, granted, approval.Approved}, // what is left
		},
		"somebody else's tool": {{no, "wire", ana, approval.ErrForbidden, none, none, pending}},
		"no such tool":         {{no, "mail", boss, approval.ErrKind, none, none, pending}},
		"all of it fails":      {{approval.Fail, "refund", ana, approval.ErrForbidden, none, none, pending}},
		"the first word counts": {
			{no, "refund", ana, nil, denied, none, pending}, {no, "refund", ben, nil, denied, none, pending},
			{yes, "refund", ben, decided, denied, none, pending},
		},
		"the rest twice is the same": {
			{no, "refund", ana, nil, denied, none, pending}, {yes, "", boss, nil, denied, granted, approval.Approved},
			{yes, "", boss, nil, denied, granted, approval.Approved},
			{no, "", boss, decided, denied, granted, approval.Approved},
		},
		"cancelled": {{approval.Cancel, "", boss, nil, run.ToolCancelled, run.ToolCancelled, approval.Cancelled}},
	} {
		withToolsRequest(t, func(t *testing.T, r *fixture) {
			for i, s := range story {
				_, err := r.decideTool(s.do, s.tool, s.by)
				if errors.As(s.want, new(*approval.DecidedError)) {
					require.ErrorAs(t, err, new(*approval.DecidedError), "%s %d", name, i)
				} else {
					require.ErrorIs(t, err, s.want, "%s %d", name, i)
				}
				require.Equal(t, []run.ToolVerdict{s.refund, s.wire}, verdicts(r.approval()), "%s %d", name, i)
				require.Equal(t, s.then, r.approval().Status, "%s %d", name, i)
			}
		})
	}
}

// Who decides about a tool while somebody decides about another of the request loses neither.
func TestDecideToolsAtOnce(t *testing.T) {
	withToolsRequest(t, func(t *testing.T, r *fixture) {
		hookWrite(r.table, "A", func() error {
			r.must(r.decideTool(approval.Deny, "wire", boss))
			return nil
		}, nil)
		a := r.must(r.decideTool(approval.Approve, "refund", ana))
		require.Equal(t, []run.ToolVerdict{run.ToolGranted, run.ToolDenied}, verdicts(a))
		require.Len(t, r.approval().Decisions, 2)
		require.Len(t, r.inbox(), 2)
	})
}

// A decision whose answer was lost is the same decision when it is made again, and is there once.
func TestDecideToolsLostAnswer(t *testing.T) {
	withToolsRequest(t, func(t *testing.T, r *fixture) {
		hookWrite(r.table, "A", nil, func() error { return errReset })
		r.must(r.decideTool(approval.Deny, "", boss)) // it was found on record
		r.must(r.decideTool(approval.Deny, "", boss))
		require.Len(t, r.inbox(), 1)
	})
}

// A13, A14: a verdict that was given in time counts, though the time was up before the run heard of it; the others are not granted.
func TestToolsExpire(t *testing.T) {
	withToolsRequest(t, func(t *testing.T, r *fixture) {
		r.untilExpiry(time.Second)
		r.must(r.decideTool(approval.Approve, "refund", ana))
		r.untilExpiry(0)
		require.ErrorIs(t, errOf(r.decideTool(approval.Approve, "wire", boss)), approval.ErrExpired)
		r.resume()
		require.Equal(t, approval.Expired, r.approval().Status)
		require.Error(t, errOf(r.decideTool(approval.Approve, "wire", boss)))
		said := r.state().Permissions
		require.Len(t, said.Tools, 1)
		require.Equal(t, "refund", said.Tools[0].Tool)
		require.Empty(t, said.Asked)
	})
}

// Rule 8: between a decision and the expiry there is one winner. Who was told that it counts, it counts.
func TestToolExpiryLosesToADecision(t *testing.T) {
	withToolsRequest(t, func(t *testing.T, r *fixture) {
		waiting := r.state().WaitSeq
		r.untilExpiry(time.Millisecond)
		late := false
		hookWrite(r.table, "J#", func() error { // the entry that says expired is on its way
			if late {
				return nil
			}
			late = true
			it := r.item()
			require.Equal(t, store.Str(""), it.Attrs["v0"])
			d := r.desk()
			d.Clock = slowClock{d.Clock} // a desk whose clock is behind
			q := r.request(approval.Approve, ana)
			q.Tool = "refund"
			r.must(d.Decide(r.ctx, q))
			return nil
		}, nil)
		r.untilExpiry(0)
		r.driveRun(waiting)
		require.True(t, late)
		require.Equal(t, []run.ToolVerdict{run.ToolGranted, ""}, verdicts(r.approval()))
		require.Len(t, r.state().Permissions.Tools, 1, "the journal says what the person was told")
	})
}

// slowClock is a minute slow.
type slowClock struct{ clock.Clock }

func (e slowClock) Now() time.Time { return e.Clock.Now().Add(-time.Minute) }

// A18: a claim is held to the record. A grant that is not there any more lets nothing run.
func TestClaimIsHeldToTheGrant(t *testing.T) {
	withToolsRequest(t, func(t *testing.T, r *fixture) {
		r.must(r.decideTool(approval.Approve, "refund", ana))
		r.must(r.decideTool(approval.Deny, "wire", boss))
		it := r.item()
		it.Attrs["v0"] = store.Str("denied")
		require.NoError(t, r.table.Table.Write(r.ctx, store.Op{Kind: store.Put, Item: it}))
		r.replies = append(r.replies, refundReply("c3", args))
		r.resume()
		s := r.state()
		c, _ := s.Call("c3")
		require.Equal(t, run.WhyVoided, c.Reason)
		require.Empty(t, r.refund.paid)
	})
}

// A grant that was used up while others of its request were undecided stays used up, and they can still be decided, or expire.
func TestDecidingBesideAGrantThatIsUsedUp(t *testing.T) {
	withToolsRequest(t, func(t *testing.T, r *fixture) {
		r.must(r.decideTool(approval.Approve, "refund", boss))
		granted := run.ToolPermit{Tool: "refund", Approval: r.approval().ID, Digests: r.approval().Permissions[0].Digests}
		require.NoError(t, r.table.Write(r.ctx, approval.PermitOp(tenant, granted, true)))

		known := run.PermissionRequest{Approval: granted.Approval, Tools: []run.AskedTool{{Verdict: run.ToolGranted}, {}}}
		require.True(t, store.Holds(approval.CloseToolsOp(tenant, known, approval.Expired).If, r.item(), true))
		r.must(r.decideTool(approval.Approve, "wire", boss))
		require.False(t, store.Holds(approval.CloseToolsOp(tenant, known, approval.Expired).If, r.item(), true))
		live, err := approval.IsPermitLive(r.ctx, r.table, tenant, granted)
		require.NoError(t, err)
		require.False(t, live)
	})
}
