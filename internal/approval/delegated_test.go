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
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
)

// bossOnly is an approver of the delegating policy only.
var bossOnly = policy.Principal{ID: "user:chief", Groups: []string{"group:bosses"}}

// delegatingPolicy is the policy of an agent that delegates: bosses decide.
func delegatingPolicy() agent.Permission {
	return agent.Permission{
		Mode: agent.ModeSuspendAndReplay, Default: agent.DefaultAsk, Approvers: []string{"group:bosses"}, Expires: time.Hour,
		Scope: agent.ScopeTool, Grants: agent.GrantsStanding,
	}
}

// delegated is withDelegatedRun as a subtest.
func delegated(change func(r *fixture), f func(t *testing.T, r *fixture)) func(*testing.T) {
	return func(t *testing.T) { withDelegatedRun(t, change, f) }
}

// withDelegatedRun runs a test with a run that was delegated under delegatingPolicy and is parked on its calls.
func withDelegatedRun(t *testing.T, change func(r *fixture), f func(t *testing.T, r *fixture)) {
	t.Helper()
	withFixture(t, func(t *testing.T, r *fixture) {
		r.def.Ceilings = []agent.Permission{delegatingPolicy()}
		if change != nil {
			change(r)
		}
		r.startDelegatedRun()
		f(t, r)
	})
}

var parentOfRun = run.Parent{Run: "rparent", Call: "c7", Root: "rroot", Depth: 2}

// writeParentRun writes a run that waits for the delegated run. Its definition does not matter.
func (r *fixture) writeParentRun(definition string) {
	r.t.Helper()
	d := run.NewDraft(run.AgentState{}, r.ports.IDs.Writer(), r.ports.Clock.Now())
	require.NoError(r.t, d.Add(
		run.RunStarted{
			Tenant: tenant, Run: parentOfRun.Run, Agent: "desk", Definition: definition, Owner: runtime.ExecutionName(parentOfRun.Run, 0), MaxInteractions: 5, BodyDigest: "b",
			Messages: []run.UserBlock{{Block: run.Text{Text: "Pay Ana back."}}},
		},
		run.Replied{Inference: 1, Model: "m", Requests: 1, Calls: []run.RepliedCall{
			{ID: parentOfRun.Call, Name: "ask", Effect: run.EffectIdempotent, Input: json.RawMessage(`{}`), Service: true},
		}},
		run.CallClaimed{Call: parentOfRun.Call, Child: &run.Child{Run: r.run}},
	))
	require.NoError(r.t, r.ports.Journal.Append(r.ctx, run.AgentState{}, d))
}

// startDelegatedRun writes the first entry of a delegated run, and drives it.
func (r *fixture) startDelegatedRun() {
	r.t.Helper()
	if r.replies == nil {
		r.replies = []agent.Reply{refundReply("c1", args)}
	}
	pinned, err := json.Marshal(r.def)
	require.NoError(r.t, err)
	r.run = agent.RunID(tenant, r.def.Name, "below")
	require.NoError(r.t, r.ports.Blobs.Put(r.ctx, tenant, store.BlobDigest(pinned), pinned))
	r.writeParentRun(store.BlobDigest(pinned))
	d := run.NewDraft(run.AgentState{}, r.ports.IDs.Writer(), r.ports.Clock.Now())
	require.NoError(r.t, d.Add(run.RunStarted{
		Tenant: tenant, Run: r.run, Agent: r.def.Name, Definition: store.BlobDigest(pinned), Owner: runtime.ExecutionName(r.run, 0), Parent: &parentOfRun,
		MaxInteractions: r.def.Limits.Interactions, BodyDigest: "b", Messages: []run.UserBlock{{Block: run.Text{Text: "Pay Ana back."}}},
	}))
	require.NoError(r.t, r.ports.Journal.Append(r.ctx, run.AgentState{}, d))
	require.Equal(r.t, runtime.NextWait, r.driveRun(0).Next)
}

// A9, A10: who decides is an approver under the run's own policy and under each above that asks, whatever they decide.
func TestDelegatedCallsTakeApproversOfEachPolicy(t *testing.T) {
	for _, action := range []approval.Action{approval.Approve, approval.Deny, approval.Cancel, approval.Edit} {
		withDelegatedRun(t, nil, func(t *testing.T, r *fixture) {
			a := r.approval()
			require.Equal(t, []string{"group:operators"}, a.Approvers)
			require.Equal(t, [][]string{{"group:bosses"}}, a.Above)
			require.Equal(t, []string{"rparent", "c7", "rroot"}, []string{a.Parent, a.ParentCall, a.Root})
			require.Equal(t, time.Hour, a.ExpiresAt.Sub(a.RequestedAt), "the shortest life counts")
			q := r.request(action, boss)
			if action == approval.Edit {
				q.Args = json.RawMessage(`{"amount":7,"to":"ana@example.com"}`)
			}
			for _, q.By = range []policy.Principal{ana, bossOnly, stranger, {}} {
				require.ErrorIs(t, errOf(r.desk().Decide(r.ctx, q)), approval.ErrForbidden)
				require.Empty(t, r.inbox())
			}
			q.By = boss
			r.must(r.desk().Decide(r.ctx, q))
			r.resume()
			pays := action == approval.Approve || action == approval.Edit
			require.Equal(t, pays, len(r.refund.paid) == 1)
		})
	}
}

// Under block_and_retry a policy above has the tool asked for, by its approvers as well; one whose decisions are of
// calls lets a grant of the tool hold for one claim, and the request says so.
func TestDelegatedToolsAreGrantedBelowTheirCeilings(t *testing.T) {
	for name, c := range map[string]struct {
		scope  agent.Scope
		grants agent.Grants
		holds  agent.Grants
		paid   int // of two calls under the grant
	}{
		"of tools":          {agent.ScopeTool, agent.GrantsRun, agent.GrantsRun, 2},
		"of tools, once":    {agent.ScopeTool, agent.GrantsOnce, agent.GrantsOnce, 1},
		"of calls":          {agent.ScopeCall, agent.GrantsRun, agent.GrantsOnce, 1},
		"of calls for good": {agent.ScopeCall, agent.GrantsStanding, agent.GrantsOnce, 1},
	} {
		t.Run(name, delegated(func(r *fixture) {
			p := &r.def.Permission
			p.Mode, p.Scope = agent.ModeBlockAndRetry, agent.ScopeTool
			p.Grants, p.Default = agent.GrantsStanding, agent.DefaultAllow
			r.def.Ceilings[0].Scope, r.def.Ceilings[0].Grants = c.scope, c.grants
		}, func(t *testing.T, r *fixture) {
			a := r.approval()
			require.Equal(t, approval.KindTools, a.Kind)
			require.Equal(t, "rroot", a.Root)
			require.Equal(t, c.holds, a.Grants)
			require.Equal(t, []string{"group:bosses"}, a.Permissions[0].Calls[0].Approvers, "its own policy allows the call")
			require.ErrorIs(t, errOf(r.decideTool(approval.Approve, "refund", ana)), approval.ErrForbidden)
			r.must(r.decideTool(approval.Approve, "refund", bossOnly))
			r.replies = append(r.replies, refundReply("c3", args), refundReply("c4", args))
			r.resume()
			require.Len(t, r.refund.paid, c.paid)
		}))
	}
}

// Both policies ask for a tool: who grants it is of both.
func TestDelegatedToolsTakeApproversOfEachPolicy(t *testing.T) {
	withDelegatedRun(t, func(r *fixture) {
		r.def.Permission.Mode, r.def.Permission.Scope, r.def.Permission.Default = agent.ModeBlockAndRetry, agent.ScopeTool, agent.DefaultAsk
	}, func(t *testing.T, r *fixture) {
		require.Equal(t, []string{"group:bosses", "group:operators"}, r.approval().Approvers)
		require.Equal(t, [][]string{{"group:bosses"}}, r.approval().Permissions[0].Calls[0].Above)
		for _, by := range []policy.Principal{ana, bossOnly, stranger} {
			require.ErrorIs(t, errOf(r.decideTool(approval.Approve, "refund", by)), approval.ErrForbidden)
		}
		r.must(r.decideTool(approval.Approve, "refund", boss))
	})
}

// A standing grant that was given below a ceiling is on record with all who had to agree: who is one of them alone
// takes nothing back. It holds for no run of the agent that nobody delegated, or that others did.
func TestStandingGrantsBelowACeiling(t *testing.T) {
	withDelegatedRun(t, func(r *fixture) {
		r.def.Permission.Scope, r.def.Permission.Grants = agent.ScopeTool, agent.GrantsStanding
	}, func(t *testing.T, r *fixture) {
		r.must(r.decide(approval.Approve, boss))
		r.resume()
		require.Len(t, r.refund.paid, 1)
		list := r.listStanding()
		require.Len(t, list, 1)
		require.Equal(t, [][]string{{"group:bosses"}}, list[0].Above)
		s, c := r.state(), r.call()
		require.Equal(t, list[0].Digest, policy.StandingOf(r.def, &s, c))
		stricter := delegatingPolicy()
		stricter.Expires++
		for _, other := range [][]agent.Permission{nil, {delegatingPolicy(), delegatingPolicy()}, {stricter}} {
			d := *r.def
			d.Ceilings = other
			require.NotEqual(t, list[0].Digest, policy.StandingOf(&d, &s, c))
		}
		require.ErrorIs(t, r.revoke(ana), approval.ErrForbidden)
		require.ErrorIs(t, r.revoke(bossOnly), approval.ErrForbidden)
		require.NoError(t, r.revoke(boss))
	})
}

// What became of a delegated call, and what its tool asks, surfaces at the root like every request, and takes the same
// people.
func TestDelegatedQuestionsTakeApproversOfEachPolicy(t *testing.T) {
	for kind, prepare := range map[approval.Kind]func(r *fixture){
		approval.KindOutcome: func(r *fixture) { r.refund.setHanging(true) },
		approval.KindInput: func(r *fixture) {
			r.refund.tickets = []run.Ticket{{ID: "why", Message: "Why?", Mode: run.TicketReplay}}
		},
	} {
		t.Run(string(kind), delegated(prepare, func(t *testing.T, r *fixture) {
			r.must(r.decide(approval.Approve, boss))
			r.resume()
			a, err := approval.Get(r.ctx, r.table, tenant, r.call().Wait.Approval)
			require.NoError(t, err)
			require.Equal(t, []string{string(kind), "rroot"}, []string{string(a.Kind), a.Root})
			before := r.refund.setHanging(false)
			q := approval.DecisionInput{Tenant: tenant, Run: r.run, Call: "c1", Action: approval.Rerun}
			if kind == approval.KindInput {
				q = approval.DecisionInput{Tenant: tenant, ID: a.ID, Action: approval.Approve, Result: json.RawMessage(`"so"`)}
			}
			for _, q.By = range []policy.Principal{ana, bossOnly, stranger} {
				require.ErrorIs(t, errOf(r.desk().Decide(r.ctx, q)), approval.ErrForbidden)
			}
			q.By = boss
			r.must(r.desk().Decide(r.ctx, q))
			r.resume()
			require.Len(t, r.refund.paid, before+1)
		}))
	}
}
