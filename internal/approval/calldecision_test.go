package approval_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
)

// withEarlyDecisions runs a test with a run that keeps early decisions and has taken no step.
func withEarlyDecisions(t *testing.T, f func(t *testing.T, r *fixture)) {
	t.Helper()
	withFixture(t, func(t *testing.T, r *fixture) {
		r.def.Early = agent.EarlyKeep
		r.startRun(args)
		f(t, r)
	})
}

func (r *fixture) callDecision(target string, a approval.Action, by policy.Principal) approval.DecisionInput {
	return approval.DecisionInput{Tenant: tenant, Run: r.run, Call: target, Action: a, By: by}
}

// decideCall decides a target of the run in its current state.
func (r *fixture) decideCall(d approval.DecisionInput) error {
	s := r.state()
	step, err := r.desk().PrepareDecision(r.ctx, &s, d)
	if err != nil {
		return err
	}
	return step(r.ctx, nil)
}

func (r *fixture) answer(n int, result string, by policy.Principal) error {
	q := approval.DecisionInput{Tenant: tenant, ID: run.ApprovalID(r.run, "c1", n), Action: approval.Approve, By: by}
	if result != "" {
		q.Result = json.RawMessage(result)
	}
	_, err := r.desk().Decide(r.ctx, q)
	return err
}

// A decision that was kept because its call was not suspended yet when it was looked at, and is by the time it is accepted, is applied all
// the same: through the request that people see by then.
func TestKeptDecisionThatIsLate(t *testing.T) {
	withEarlyDecisions(t, func(t *testing.T, r *fixture) {
		before := r.state()
		r.driveRun(0)
		step, err := r.desk().PrepareDecision(r.ctx, &before, r.callDecision("c1", approval.Approve, ana))
		require.NoError(t, err)
		r.park()
		require.NoError(t, step(r.ctx, nil))
		require.Equal(t, []string{"t1"}, r.resumedTokens, "it wakes the run")
		require.Equal(t, approval.Pending, r.approval().Status, "nobody has judged it yet")
		r.resume()
		require.Equal(t, []string{args}, r.refund.paid)
		a := r.approval()
		require.Equal(t, approval.Approved, a.Status)
		require.Equal(t, "user:ana", a.Decisions[0].By)
		require.EqualValues(t, 1, r.item().Attrs["consumed"].Int())
		require.Empty(t, r.state().Kept)
	})
}

// What such a decision grants of a tool lets nothing run in the entry that writes its request: the claim holds to what is on record by then.
func TestKeptGrantOfAToolIsHeldTo(t *testing.T) {
	withFixture(t, func(t *testing.T, r *fixture) {
		r.def.Early, r.def.Wait, r.def.Permission.Scope = agent.EarlyKeep, run.WaitAllSuspended, agent.ScopeTool
		r.startRun(args)
		r.replies[0].Calls = append(r.replies[0].Calls, agent.ReplyCall{ID: "c2", Name: "ghost", Input: json.RawMessage(`{}`)})
		r.replies = append(r.replies, refundReply("c3", args))
		before := r.state()
		infer := func() (runtime.Route, error) {
			return (&runtime.Stepper{Ports: r.ports, Definitions: r.loadDefinition}).Step(r.ctx, r.invocation(0))
		}
		for _, do := range []func() (runtime.Route, error){infer, func() (runtime.Route, error) { return r.batch(0) }, infer} {
			require.NoError(t, errOf(do()))
		}
		s := r.state()
		c3, _ := s.Call("c3")
		require.Equal(t, run.StatusNew, c3.Status)
		step, err := r.desk().PrepareDecision(r.ctx, &before, r.callDecision("c1", approval.Approve, ana))
		require.NoError(t, err)
		require.NoError(t, step(r.ctx, nil))
		r.driveRun(0)
		require.Equal(t, []string{args, args}, r.refund.paid)
		require.Equal(t, run.RunDone, r.state().Status)
		require.Equal(t, run.ToolGranted, r.approval().Permissions[0].Verdict)
	})
}

// Somebody decides on the request while an early decision is on its way: the request is decided once, by who was first.
func TestKeptDecisionThatIsOvertaken(t *testing.T) {
	withEarlyDecisions(t, func(t *testing.T, r *fixture) {
		before := r.state()
		r.driveRun(0)
		step, err := r.desk().PrepareDecision(r.ctx, &before, r.callDecision("c1", approval.Approve, ana))
		require.NoError(t, err)
		require.NoError(t, step(r.ctx, nil))
		hookWrite(r.table, "A", func() error { _, err := r.decide(approval.Deny, ben); return err }, nil)
		r.resume()
		require.Empty(t, r.refund.paid)
		require.Equal(t, run.WhyDenied, r.call().Reason)
		require.Equal(t, "user:ben", r.approval().Decisions[0].By)
	})
}

// The claim that follows an early approval reads the request itself: a request that was withdrawn behind the run's back lets nothing run.
func TestA6EarlyApprovalIsConsumed(t *testing.T) {
	withEarlyDecisions(t, func(t *testing.T, r *fixture) {
		require.NoError(t, r.decideCall(r.callDecision("c1", approval.Approve, ana)))
		hookWrite(r.table, "A", nil, func() error { // the entry that suspends and decides
			return r.table.Table.Write(r.ctx, store.Op{Kind: store.Update, Item: store.Item{Key: r.key(), Attrs: map[string]store.Value{"consumed": store.Num(1)}}})
		})
		r.driveRun(0)
		require.Empty(t, r.refund.paid)
		require.Equal(t, run.WhyVoided, r.call().Reason)
	})
}

func TestKeptDecisionsAtTheDoor(t *testing.T) {
	withEarlyDecisions(t, func(t *testing.T, r *fixture) {
		withID := func(a approval.Action) approval.DecisionInput {
			d := r.callDecision("c1", a, ana)
			d.Key = "d1"
			return d
		}
		require.NoError(t, r.decideCall(withID(approval.Approve)))
		require.NoError(t, r.decideCall(withID(approval.Approve)), "the same again")
		require.Len(t, r.inbox(), 1)
		require.ErrorIs(t, r.decideCall(withID(approval.Cancel)), store.ErrOtherInput)
		require.ErrorIs(t, r.decideCall(r.callDecision("c1", approval.Edit, ana)), approval.ErrKind)
		require.ErrorIs(t, r.decideCall(r.callDecision("", approval.Approve, ana)), approval.ErrNoCall)
		require.ErrorIs(t, r.decideCall(r.callDecision("c1", approval.Approve, policy.Principal{ID: "ana"})), approval.ErrForbidden)
		bad := r.callDecision("c1", approval.Approve, ana)
		bad.Result = json.RawMessage(`{"a":1,"a":2}`)
		require.ErrorAs(t, r.decideCall(bad), new(*policy.AnswerError))

		for i := range policy.MaxKept { // c1 has one; the run has taken in none of them
			err := r.decideCall(r.callDecision(fmt.Sprint("early", i), approval.Deny, ana))
			require.Equal(t, i == policy.MaxKept-1, errors.Is(err, approval.ErrKept), err)
		}
		require.NoError(t, r.decideCall(r.callDecision("c1", approval.Deny, ben)), "the last one on a target")
	})
	withParkedRun(t, func(t *testing.T, r *fixture) { // early: refuse
		require.ErrorIs(t, r.decideCall(r.callDecision("c9", approval.Approve, ana)), approval.ErrNoCall)
		require.NoError(t, r.decideCall(r.callDecision("fc_c1", approval.Deny, ana)), "the pending id of an approval")
		r.resume()
		require.NoError(t, r.decideCall(r.callDecision("c1", approval.Deny, ana)), "the same decision again")
		var decided *approval.DecidedError
		require.ErrorAs(t, r.decideCall(r.callDecision(run.ApprovalID(r.run, "c1", 1), approval.Approve, ana)), &decided)
	})
}

// A decision on a call that has ended without ever waiting changes nothing; on a run that has ended neither.
func TestIllegalDecisionsAreIgnored(t *testing.T) {
	withFixture(t, func(t *testing.T, r *fixture) {
		r.def.Early = agent.EarlyKeep
		r.startRun(`{"amount":-1,"to":"x"}`) // refused at the gate
		before := r.state()
		r.driveRun(0)
		entries := r.state().Entries
		require.ErrorIs(t, r.decideCall(r.callDecision("c1", approval.Approve, ana)), approval.ErrIgnored)
		step, err := r.desk().PrepareDecision(r.ctx, &before, r.callDecision("c1", approval.Approve, ana))
		require.NoError(t, err)
		require.ErrorIs(t, step(r.ctx, nil), approval.ErrFinished)
		require.Equal(t, entries, r.state().Entries)
	})
}

// Every answer lets an approved call run exactly once more, consumed in the claim like the approval was; nothing else does.
func TestA6AnswersAreConsumedOnce(t *testing.T) {
	withFixture(t, func(t *testing.T, r *fixture) {
		r.refund.tickets = []run.Ticket{{Message: "From where?"}, {}}
		r.startAndPark(args)
		r.must(r.decide(approval.Approve, ana))
		r.resume()
		require.Empty(t, r.refund.paid)
		require.Equal(t, run.ForInput, r.call().Wait.For)
		require.ErrorIs(t, r.answer(2, `"savings"`, stranger), approval.ErrForbidden)
		r.must(r.decide(approval.Approve, ana)) // the first request's decision is known
		r.resume()
		require.Len(t, r.refund.resumes, 1, "and lets nothing run again")

		require.NoError(t, r.answer(2, `"savings"`, ana))
		require.NoError(t, r.answer(2, `"savings"`, ana), "the same again")
		require.ErrorAs(t, r.answer(2, `"checking"`, ana), new(*approval.DecidedError))
		woken := r.state().WaitSeq
		hookWrite(r.table, "J#", func() error { _, err := r.batch(woken); return err }, nil)
		require.NoError(t, errOf(r.batch(woken)))
		r.driveRun(0)
		require.Equal(t, []string{"", `"savings"`}, r.refund.resumes, "two invocations, one entering")

		require.NoError(t, r.answer(3, "", boss))
		require.NoError(t, r.answer(3, "null", boss), "null is true")
		r.resume()
		require.Equal(t, []string{"", `"savings"`, "true"}, r.refund.resumes)
		require.Equal(t, []string{args}, r.refund.paid)
		for n := 1; n <= 3; n++ {
			it, _, err := r.table.Table.Get(r.ctx, store.Key{PK: "T#" + tenant + "#APPROVAL#" + run.ApprovalID(r.run, "c1", n), SK: "A"})
			require.NoError(t, err)
			require.EqualValues(t, 1, it.Attrs["consumed"].Int(), "request %d", n)
		}
	})
}

// A decision that is sent again, by whatever name of its target and under its own id, never answers a later question.
func TestRepeatedDecisionAnswersNothingElse(t *testing.T) {
	withFixture(t, func(t *testing.T, r *fixture) {
		r.def.Early = agent.EarlyKeep
		r.def.Permission.Default = agent.DefaultAllow
		r.refund.tickets = []run.Ticket{{ID: "confirm", Pending: run.Pending{ID: "p"}}, {ID: "confirm", Pending: run.Pending{ID: "p"}}}
		r.startAndPark(args)
		yes := r.callDecision("confirm", approval.Approve, ana)
		yes.Key, yes.Result = "d1", json.RawMessage(`"first"`)
		require.NoError(t, r.decideCall(yes))
		for _, again := range []string{"confirm", "p", "c1"} {
			yes.Call = again
			require.NoError(t, r.decideCall(yes), "answered and not drained: known as %s", again)
		}
		require.Len(t, r.inbox(), 1)
		r.resume()
		require.Equal(t, run.ForInput, r.call().Wait.For, "it asks again")
		yes.Call = "confirm"
		require.ErrorIs(t, r.decideCall(yes), store.ErrOtherInput, "the same decision is none on another question")
		require.Equal(t, run.StatusSuspended, r.call().Status)
		yes.Key = "d2"
		require.NoError(t, r.decideCall(yes))
		r.resume()
		for _, again := range []string{"confirm", "p", "c1"} {
			yes.Call = again
			require.NoError(t, r.decideCall(yes), "settled: known as %s", again)
		}
		require.Equal(t, []string{"", `"first"`, `"first"`}, r.refund.resumes)
		require.Empty(t, r.state().Kept)
	})
}

// A tool whose question nobody could be asked has failed; the run goes on.
func TestQuestionThatCannotBeAsked(t *testing.T) {
	for _, ticket := range []run.Ticket{
		{Mode: "later"}, {ResponseSchema: json.RawMessage(`{"type":"nothing"}`)}, {Parameters: json.RawMessage(`{`)},
	} {
		withParkedRun(t, func(t *testing.T, r *fixture) {
			r.refund.tickets = []run.Ticket{ticket}
			r.must(r.decide(approval.Approve, ana))
			r.resume()
			c := r.call()
			require.Equal(t, []any{run.StatusFailed, run.WhyToolError}, []any{c.Status, c.Reason})
			require.Contains(t, c.Result.Content, "cannot be shown")
		})
	}
}

// TestA8AnsweredArgumentsAreNeverWeaker: where an answer is what the call goes on with, it takes who and as many as
// these arguments do, also of an answer that came before the question.
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
			require.ErrorIs(t, r.answer(2, large, ana), approval.ErrRequester)
			require.NoError(t, r.answer(2, large, ben))
			require.Empty(t, r.inbox(), "it takes two")
			require.NoError(t, r.answer(2, large, cem))
			r.resume()
			require.Equal(t, []string{large}, r.refund.paid)
		}, func(r *fixture) {
			r.starters, r.def.Early = []string{"user:ana"}, agent.EarlyKeep
			over := []run.Condition{{Path: "/amount", Gt: json.RawMessage("600")}}
			strict := agent.Rule{Tool: "refund", When: over, Verdict: agent.VerdictAsk, Quorum: 2, FourEyes: true}
			r.def.Permission.Rules = slices.Insert(r.def.Permission.Rules, 1, strict)
		}))
	}
}
