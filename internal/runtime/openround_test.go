package runtime_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
)

// openWorld asks the model while calls wait; c1 is free and c2 waits.
func openWorld(t *testing.T, f func(t *testing.T, w *world)) {
	inBubble(t, func(t *testing.T, w *world) {
		w.def.Wait = run.WaitAllSuspended
		w.model.replies = []agent.Reply{calls("look c1", "refund c2"), {Text: "It waits."}}
		f(t, w)
	})
}

// resultOf is a call's result in a request.
func resultOf(t *testing.T, r agent.Request, call string) string {
	t.Helper()
	results, err := policy.ResultsByCall(r.Messages)
	require.NoError(t, err)
	require.Contains(t, results, call)
	return results[call].Content
}

// The last word while a call waits parks the run in the entry of the reply, and what arrives meanwhile is drained by the wake that the
// waiter's look makes (rules 1, 5, 6, 16).
func TestTheLastWordParksInItsOwnEntry(t *testing.T) {
	openWorld(t, func(t *testing.T, w *world) {
		w.start()
		w.model.during = func(r agent.Request) error {
			if r.Inference == 2 {
				return w.send("m1", "Well?")
			}
			return nil
		}
		r := w.drive(0)
		require.Equal(t, runtime.NextWait, r.Next)
		parking := w.table.Written()[slices.IndexFunc(w.table.Written(), entry("parked"))]
		require.Len(t, parking, 2, "J and HEAD: the request was made with the call")
		last := w.entries()[len(w.entries())-1]
		require.Equal(t, []run.Checkpoint{run.CheckpointAssistantTurn, run.CheckpointRunFinished}, last.Kinds)
		require.Equal(t, last.Seq, w.state().WaitSeq)
		require.EqualValues(t, 2, w.state().Inferences)
		require.Zero(t, w.head().Drained, "the reply had not heard it")

		w.park(r.Woken, 0, "t1")
		require.Equal(t, []string{"t1"}, w.waiter.woken, "the waiter looks")
		w.drive(r.Woken)
		require.Len(t, w.model.asked, 3)
		require.Contains(t, resultOf(t, w.model.asked[2], "c2"), "awaiting approval, paused")
		require.Equal(t, run.LifecycleInput, w.model.asked[2].Lifecycle)
	})
}

// A reply that parks and whose answer is lost was written once, and the attempt goes where it led (rule 2).
func TestALostAnswerOfTheLastWord(t *testing.T) {
	openWorld(t, func(t *testing.T, w *world) {
		w.start()
		w.table.Once(lost(entry("parked")))
		r := w.drive(0)
		require.Equal(t, runtime.NextWait, r.Next)
		require.Equal(t, r.Woken, w.state().WaitSeq)
		require.Len(t, w.model.asked, 2)
		require.Equal(t, []int{2, 1}, []int{w.written("replied"), w.written("parked")})
	})
}

// Input to a run that waits is heard by the woken alone, at once, and the run parks again under a new wait (rule 7).
func TestInputWakesAnOpenRound(t *testing.T) {
	openWorld(t, func(t *testing.T, w *world) {
		w.start()
		first := w.drive(0)
		require.NoError(t, w.send("m1", "Well?"))
		before := w.state()
		for _, woken := range []int64{0, first.Woken - 1} {
			require.Equal(t, first, w.step(woken), "woken %d", woken)
			passed := first
			passed.Woken = woken
			require.Equal(t, passed, w.batchRun(woken), "woken %d", woken)
		}
		require.Equal(t, before, w.state())
		second := w.drive(first.Woken)
		require.Equal(t, runtime.NextWait, second.Next)
		require.Greater(t, second.Woken, first.Woken)
		require.Equal(t, []string{"Work.", "Well?"}, w.heard())
		require.Len(t, w.model.asked, 3)
		require.Zero(t, w.tool("refund").times())

		_, err := w.decide("c2", approval.Approve)
		require.NoError(t, err)
		require.Equal(t, runtime.NextDone, w.drive(second.Woken).Next)
		require.Equal(t, 1, w.tool("refund").times())
		require.Equal(t, []string{"c2"}, w.model.asked[3].Late)
	})
}

// Two rounds are open and both decided before the wake: each call runs once, in one batch, and each request has its end.
func TestCallsOfTwoRoundsReplayTogether(t *testing.T) {
	openWorld(t, func(t *testing.T, w *world) {
		w.model.replies = []agent.Reply{calls("look c1", "refund c2"), calls("refund c3", "refund c4"), {Text: "Three."}}
		w.start()
		r := w.drive(0)
		require.Equal(t, runtime.NextWait, r.Next)
		require.Len(t, w.model.asked, 2, "a round of which nothing came back asks nobody")
		s := w.state()
		require.Len(t, s.Waits(), 3)
		for _, call := range []string{"c4", "c2"} {
			_, err := w.decide(call, approval.Approve)
			require.NoError(t, err)
		}
		r = w.drive(r.Woken)
		require.Equal(t, runtime.NextWait, r.Next)
		require.Equal(t, 2, w.tool("refund").times())
		require.Len(t, w.model.asked, 3)
		require.Contains(t, resultOf(t, w.model.asked[2], "c3"), "paused")
		require.NotContains(t, resultOf(t, w.model.asked[2], "c2")+resultOf(t, w.model.asked[2], "c4"), "paused")

		asked := w.call("c3").Wait.Approval
		require.Equal(t, run.RunDone, w.cancel().Status)
		require.Equal(t, run.StatusCancelled, w.call("c3").Status)
		a, err := approval.Get(w.ctx, w.counts, tenant, asked)
		require.NoError(t, err)
		require.Equal(t, approval.Cancelled, a.Status)
	})
}

// The oldest expiry of any round is when the run has to be looked at again, and what expires is told at once.
func TestAnOlderRoundExpires(t *testing.T) {
	openWorld(t, func(t *testing.T, w *world) {
		w.model.replies = []agent.Reply{calls("look c1", "refund c2"), calls("refund c3")}
		w.start()
		w.model.during = func(r agent.Request) error {
			if r.Inference == 2 {
				w.sleep(w.def.Permission.Expires / 2) // while the model thinks
			}
			return nil
		}
		r := w.drive(0)
		require.Equal(t, runtime.NextWait, r.Next)
		require.InDelta(t, (w.def.Permission.Expires / 2).Seconds(), float64(r.WaitSeconds), 2)
		w.sleep(w.def.Permission.Expires/2 + 1e9)
		r = w.drive(r.Woken)
		require.Equal(t, runtime.NextWait, r.Next, "c3 still waits")
		require.Equal(t, run.WhyExpired, w.call("c2").Reason)
		require.Equal(t, run.StatusSuspended, w.call("c3").Status)
		require.Equal(t, []string{"c2"}, w.model.asked[2].Late)
	})
}

// A branch of a run whose calls are open over rounds asks anew for each, and goes on under the same policies.
func TestForkOfOpenRounds(t *testing.T) {
	openWorld(t, func(t *testing.T, w *world) {
		w.start()
		w.drive(0)
		parent := w.state()
		s, err := (&runtime.Starter{Ports: w.ports}).Fork(w.ctx, runtime.Fork{Tenant: tenant, Run: w.run, At: parent.Seq(), Key: "k2"})
		require.NoError(t, err)
		require.Equal(t, run.WaitAllSuspended, s.Wait)
		w.run, w.owner = s.Run, s.Owner
		r := w.drive(0)
		require.Equal(t, runtime.NextWait, r.Next)
		s = w.state()
		require.Zero(t, s.Inferences, "nothing has come back")
		_, err = w.decide("c2", approval.Deny)
		require.NoError(t, err)
		w.model.replies = nil
		require.Equal(t, runtime.NextDone, w.drive(r.Woken).Next)
		require.Equal(t, 1, w.tool("look").times(), "c1 is settled and does not run again")
	})
}
