package runtime_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/tool"
)

// Rules of docs/protocol.md that no swept scenario reaches. docs/reliability.md says which scenario holds each of the
// others.

// TestRule01JournalIsTheRun: entries that start, park, resume, end or hand over take HEAD along, every other entry is
// one put, nobody else writes HEAD but the waiter's token, and HEAD says what the journal folds to.
func TestRule01JournalIsTheRun(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.startWith(calls("look c1", "note c2"), calls("pay c3"), calls("refund c4"), calls("refund c5"))
		for r := w.drive(0); r.Next == runtime.NextWait; r = w.drive(r.Woken) {
			w.park(r.Woken, 0, fmt.Sprint("token", r.Woken))
			parked := w.state()
			w.decide(parked.Waits()[0].ID)
		}
		require.Equal(t, run.RunDone, w.state().Status)
		var s run.AgentState
		for _, ops := range w.table.Written() {
			head := slices.IndexFunc(ops, func(op store.Op) bool { return op.Item.SK == "HEAD" })
			if !strings.HasPrefix(ops[0].Item.SK, "J#") {
				require.False(t, head >= 0 && ops[head].Kind == store.Put, "only entries move HEAD")
				continue
			}
			e, err := run.UnmarshalEntry(ops[0].Item.Body)
			require.NoError(t, err)
			require.Equal(t, []store.Cond{{Op: store.ItemAbsent}}, ops[0].If)
			require.Equal(t, s.Status == run.RunWaiting || movesRun(e), head >= 0, "entry %d", e.Seq)
			if !movesRun(e) {
				require.Len(t, ops, 1, "entry %d is one put", e.Seq)
			}
			s, err = run.ApplyEntry(s, e)
			require.NoError(t, err)
			if head < 0 {
				continue
			}
			attrs := ops[head].Item.Attrs
			require.Equal(t, string(s.Status), attrs["status"].String())
			require.Equal(t, s.Owner, attrs["owner"].String())
			require.Equal(t, s.WaitSeq, attrs["waitSeq"].Int())
			var view store.Head
			require.NoError(t, json.Unmarshal(ops[head].Item.Body, &view))
			require.Equal(t, s.Drained, view.Drained)
			require.Empty(t, attrs["token"].String())
		}
		require.Equal(t, w.state(), s)
	})
}

func movesRun(e run.Entry) bool {
	return slices.ContainsFunc(e.Events, func(ev run.Event) bool {
		return slices.Contains([]string{"run_started", "parked", "resumed", "finished", "handed_over"}, run.EventType(ev))
	})
}

// TestRule02ConflictMeansReload: what lost its sequence is planned again from the new fold, never written at another
// number, and an attempt that finds its step done routes on without asking the model again.
func TestRule02ConflictMeansReload(t *testing.T) {
	subtest(t, "throttled: the identical entry again", func(t *testing.T, w *world) {
		w.start()
		w.table.Once(fault.WriteOf(entry("replied")), fault.Fail(store.ErrThrottled))
		require.Equal(t, runtime.NextDone, w.step(0).Next)
		require.Len(t, w.model.asked, 1, "a reply that is paid for is not asked for again")
	})
	subtest(t, "a journal with a gap fails loudly", func(t *testing.T, w *world) {
		w.start()
		w.forge(run.Entry{Seq: 2, Writer: "forger"})
		require.ErrorContains(t, errOf(w.stepper().Step(w.ctx, w.inv(0))), "the journal has a gap after 0")
	})
	subtest(t, "an entry after the end fails loudly", func(t *testing.T, w *world) {
		w.start()
		require.Equal(t, runtime.NextDone, w.drive(0).Next)
		w.forge(run.Entry{Seq: 2, Writer: "forger"})
		require.ErrorContains(t, errOf(w.stepper().Step(w.ctx, w.inv(0))), "the run ended at 1")
	})
}

// drain commits an entry that drains the inbox and does nothing else.
func (w *world) drain() {
	w.t.Helper()
	j := store.NewJournal(w.counts, 0)
	l, err := j.Load(w.ctx, tenant, w.run)
	require.NoError(w.t, err)
	d := run.NewDraft(l.State, w.ids.Writer(), w.ports.Clock.Now())
	require.NoError(w.t, d.Add(l.Inbox...))
	require.NoError(w.t, j.Append(w.ctx, l.State, d))
}

// forge writes an entry past all rules.
func (w *world) forge(e run.Entry) {
	w.t.Helper()
	body, err := run.MarshalEntry(e)
	require.NoError(w.t, err)
	key := store.Key{PK: "T#" + tenant + "#RUN#" + w.run, SK: fmt.Sprintf("J#%010d", e.Seq)}
	require.NoError(w.t, w.counts.Write(w.ctx, store.Op{Kind: store.Put, Item: store.Item{Key: key, Body: body}}))
}

// TestRule03ADuplicateWakesAgain: whoever sent an input may have died before it woke the run; the same input again does.
func TestRule03ADuplicateWakesAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		r := w.parkedRun()
		w.park(r.Woken, 0, "t1")
		for range 2 {
			require.NoError(t, w.send("m1", "Hello?"))
		}
		require.Equal(t, []string{"t1", "t1"}, w.waiter.woken)
		w.drive(r.Woken)
		require.EqualValues(t, 1, w.state().Drained, "it is one input all the same")
	})
}

// TestRule04EndingClosesTheInbox: nothing accepted is lost to an end, and what is paid for is kept.
func TestRule04EndingClosesTheInbox(t *testing.T) {
	subtest(t, "a recorded failure reloads and drains", func(t *testing.T, w *world) {
		w.start()
		w.table.Once(meanwhile(entry("finished"), func() { require.NoError(t, w.send("m1", "Wait!")) }))
		r, err := w.stepper().Fail(w.ctx, w.inv(0), "gave up")
		require.NoError(t, err)
		require.Equal(t, runtime.NextFailed, r.Next)
		require.Equal(t, []string{"Work.", "Wait!"}, w.heard())
		require.Equal(t, run.ReasonError, w.state().Reason)
	})
	subtest(t, "a cancel reloads and drains", func(t *testing.T, w *world) {
		w.start()
		w.table.Once(meanwhile(entry("finished"), func() { require.NoError(t, w.send("m1", "Wait!")) }))
		w.cancel()
		require.Equal(t, "Wait!", w.heard()[1])
		require.EqualValues(t, 1, w.state().Drained)
	})
}

// parkedRun is a run that waits for a decision on its call c1.
func (w *world) parkedRun() runtime.Route {
	w.t.Helper()
	w.startWith(calls("refund c1"))
	r := w.drive(0)
	require.Equal(w.t, runtime.NextWait, r.Next)
	return r
}

func (w *world) sleep(d time.Duration) {
	w.t.Helper()
	require.NoError(w.t, w.ports.Clock.Sleep(w.ctx, d))
}

// ends is a context that ends right after the next write that fits: the invocation dies there.
func (w *world) ends(fits func([]store.Op) bool) context.Context {
	ctx, cancel := context.WithCancel(w.ctx)
	w.table.Once(fault.WriteOf(fits), fault.After(func() error { cancel(); return ctx.Err() }))
	return ctx
}

// TestRule10UnknownAndLate: a claim without a result is never run again, and what the claimant comes back with is not
// lost.
func TestRule10UnknownAndLate(t *testing.T) {
	t.Run("though its delivery met an error", func(t *testing.T) {
		for _, goesWrong := range []func(func([]store.Op) bool) (func(fault.Call) bool, fault.Hook){lost, failed} {
			inBubble(t, func(t *testing.T, w *world) {
				r := w.lateResult(func() runtime.Route {
					r := w.batchRun(0)
					w.table.Once(goesWrong(touches("I#late/")))
					return r
				})
				w.drive(r.Woken)
				require.Equal(t, run.StatusSucceeded, w.call("c1").Status)
				require.EqualValues(t, 1, w.state().Drained)
			})
		}
	})
	subtest(t, "to a run that was taken over", func(t *testing.T, w *world) {
		w.lateResult(func() runtime.Route {
			w.waiter.ended(w.owner)
			require.Equal(t, runtime.RepairTookOver, w.sweep())
			return runtime.Route{}
		})
		require.EqualValues(t, 0, w.state().Drained, "a former owner writes no entry")
		w.owner = runtime.ExecutionName(w.run, 1)
		w.drive(0)
		require.Equal(t, run.StatusSucceeded, w.call("c1").Status)
	})
	subtest(t, "a claimant that still is one stores it at the new sequence", func(t *testing.T, w *world) {
		w.startRound(calls("pay c1"))
		w.table.Once(meanwhile(entry("call_finished"), func() {
			require.NoError(t, w.send("m1", "Quick!"))
			w.drain()
		}))
		w.batchRun(0)
		require.Equal(t, run.StatusSucceeded, w.call("c1").Status)
		require.EqualValues(t, 1, w.state().Drained, "not through the inbox")
		require.Equal(t, 1, w.tool("pay").times())
	})
	subtest(t, "a settled call ignores it", func(t *testing.T, w *world) {
		r := w.lateResult(func() runtime.Route {
			r := w.batchRun(0)
			w.decided(approval.DecisionInput{Content: "refunded", Action: approval.ReportResult})
			return r
		})
		w.drive(r.Woken)
		require.Equal(t, "refunded", w.call("c1").Result.Content)
	})
	subtest(t, "one that somebody let run again takes it, and does not run", func(t *testing.T, w *world) {
		r := w.lateResult(func() runtime.Route {
			r := w.batchRun(0)
			w.decided(approval.DecisionInput{Action: approval.Rerun})
			return r
		})
		w.drive(r.Woken)
		require.Equal(t, "ok c1", w.call("c1").Result.Content)
		require.Equal(t, 1, w.tool("pay").times())
	})
	subtest(t, "nor does one that people are asked about once more", func(t *testing.T, w *world) {
		w.spec("refund", func(t *agent.ToolSpec) { t.Precondition = &agent.Precondition{Tool: "look"} })
		w.tool("look").gives("paid")
		w.startRound(calls("refund c1"))
		w.batchRun(0)
		r := w.step(0)
		woken := r.Woken
		w.decide("c1")
		w.tool("refund").inside(func() {
			w.batchRun(0)
			r = w.step(0)
			w.tool("look").gives("refunded")
			w.decided(approval.DecisionInput{Action: approval.Rerun})
			r = w.drive(r.Woken)
			require.Equal(t, run.ForApproval, w.call("c1").Wait.For)
			w.park(r.Woken, 0, "t1")
		})
		w.drive(woken)
		w.drive(r.Woken)
		require.Equal(t, "ok c1", w.call("c1").Result.Content)
		require.Equal(t, 1, w.tool("refund").times())
		require.Equal(t, approval.Voided, w.approval(run.ApprovalID(w.run, "c1", 3)).Status)
	})
	subtest(t, "and so does one whose result lies behind it", func(t *testing.T, w *world) {
		r := w.lateResult(func() runtime.Route { return w.batchRun(0) })
		w.decided(approval.DecisionInput{Content: "refunded", Action: approval.ReportResult})
		w.drive(r.Woken)
		require.Equal(t, "ok c1", w.call("c1").Result.Content, "the inbox is an order")
		require.Equal(t, approval.Approved, w.approval(run.ApprovalID(w.run, "c1", 1)).Status)
	})
}

// lateResult runs pay in one invocation and, while it is inside the tool, lets others act; a waiter stores token t1 if
// they park.
func (w *world) lateResult(others func() runtime.Route) (r runtime.Route) {
	w.t.Helper()
	w.startRound(calls("pay c1"))
	w.tool("pay").inside(func() {
		r = others()
		if s := w.state(); s.Status == run.RunWaiting {
			r = w.step(0)
			w.park(r.Woken, 0, "t1")
		}
	})
	w.batchRun(0)
	require.Equal(w.t, 1, w.tool("pay").times())
	return r
}

// TestRule10SilentTools: a tool whose code panics, or never says what became of a call, leaves that to people.
func TestRule10SilentTools(t *testing.T) {
	for name, silent := range map[string]func(){
		"panics": func() { panic("secret") }, "never returns": func() { time.Sleep(time.Hour) },
	} {
		subtest(t, name, func(t *testing.T, w *world) {
			w.tool("pay").reconcile = func(tool.Call) (tool.Outcome, agent.ToolResultData, error) {
				silent()
				return tool.OutcomeDone, agent.ToolResultData{}, nil
			}
			w.lateResult(func() runtime.Route { w.batchRun(0); return w.batchRun(0) })
			require.Equal(t, 1, w.written("call_unknown"))
			time.Sleep(2 * time.Hour)
		})
	}
}

// TestRule10LateTickets: a tool that asks for input under a claim asks although its claimant lost the race for the
// entry.
func TestRule10LateTickets(t *testing.T) {
	asks := func(w *world) {
		w.tool("pay").work = func(_ context.Context, c tool.Call) (agent.ToolResultData, error) {
			if c.Resume == nil {
				return agent.ToolResultData{Suspend: &run.Ticket{Message: "From which account?"}}, nil
			}
			return agent.ToolResultData{Content: "paid from " + string(c.Resume)}, nil
		}
	}
	answered := func(w *world, approvalID, with string) {
		w.decided(approval.DecisionInput{ID: approvalID, Action: approval.Approve, Result: json.RawMessage(with)})
	}
	status := func(w *world, n int) approval.Status { return w.approval(run.ApprovalID(w.run, "c1", n)).Status }
	subtest(t, "after the retry's unknown", func(t *testing.T, w *world) {
		asks(w)
		r := w.lateResult(func() runtime.Route { return w.batchRun(0) })
		require.Equal(t, []string{"t1"}, w.waiter.woken)
		r = w.drive(r.Woken)
		require.Equal(t, runtime.NextWait, r.Next)
		c := w.call("c1")
		require.Equal(t, run.ForInput, c.Wait.For)
		require.Equal(
			t, []approval.Status{
				approval.Voided, approval.Pending,
			}, []approval.Status{status(w, 1), status(w, 2)}, "nobody is asked what became of it",
		)
		w.park(r.Woken, 0, "t2")
		answered(w, c.Wait.Approval, `"A"`)
		require.Equal(t, runtime.NextDone, w.drive(r.Woken).Next)
		require.Equal(t, `paid from "A"`, w.call("c1").Result.Content)
		require.Equal(t, 2, w.tool("pay").times())
	})
	subtest(t, "a call that somebody let run again ignores it", func(t *testing.T, w *world) {
		asks(w)
		r := w.lateResult(func() runtime.Route {
			r := w.batchRun(0)
			w.decided(approval.DecisionInput{Action: approval.Rerun})
			return r
		})
		r = w.drive(r.Woken)
		require.Equal(t, runtime.NextWait, r.Next)
		require.Equal(t, 2, w.tool("pay").times(), "it runs again, and asks itself")
		require.Equal(t, approval.Pending, status(w, 2))
	})
	subtest(t, "a run that was cancelled asks nobody", func(t *testing.T, w *world) {
		asks(w)
		w.lateResult(func() runtime.Route { w.cancel(); return runtime.Route{} })
		require.Equal(t, run.WhyOutcomeUnknown, w.call("c1").Reason)
		require.Zero(t, w.state().Drained)
	})
}

// TestRule11CancelIsAnEntry: the fence is the entry, and the execution is stopped after it.
func TestRule11CancelIsAnEntry(t *testing.T) {
	subtest(t, "the entry first, then the execution, each as often as it takes", func(t *testing.T, w *world) {
		r := w.parkedRun()
		w.park(r.Woken, 0, "t1")
		failures := 1
		w.waiter.onStop = func(string) error {
			require.Equal(t, run.RunDone, w.state().Status)
			if failures--; failures >= 0 {
				return errBlown
			}
			return nil
		}
		w.table.Once(lost(entry("finished")))
		s := w.cancel()
		require.Equal(t, run.ReasonCancelled, s.Reason)
		require.Equal(t, []string{w.owner}, w.waiter.stopped)
		require.Equal(t, 1, w.written("finished"))
		require.Equal(t, approval.Cancelled, w.approval(run.ApprovalID(w.run, "c1", 1)).Status)
		require.Equal(t, run.RunDone, w.head().Status)
	})
}

// TestRule13HandOverNamesTheSuccessorFirst: an execution that has written enough names its successor, which is started
// by that name, as often as anybody asks.
func TestRule13HandOverNamesTheSuccessorFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, clock.System(), 1)
		w.def.Limits.Interactions = 2000
		w.model.replies = make([]agent.Reply, 700)
		for i := range w.model.replies {
			w.model.replies[i] = calls(fmt.Sprintf("look c%d", i))
		}
		w.start()
		w.table.Once(lost(entry("handed_over")))
		r := w.drive(0)
		next := runtime.ExecutionName(w.run, 1)
		want := runtime.Route{Tenant: tenant, Run: w.run, Next: runtime.NextContinue, Successor: next}
		require.Equal(t, want, r)
		require.Equal(t, next, w.state().Owner)
		require.Equal(t, next, w.head().Owner)
		before := w.state()
		require.EqualValues(t, 752, before.Entries, "the start, 375 iterations, the hand-over")
		require.Equal(t, want, w.step(0), "the hand-over's answer was lost: start it again")
		require.Equal(t, want, w.batchRun(0))
		require.Equal(t, before, w.state())

		former := w.owner
		w.owner = next
		require.Equal(t, runtime.NextTools, w.step(0).Next, "the successor goes on")
		w.waiter.ended(next)
		require.Equal(t, runtime.RepairTookOver, w.sweep())
		w.owner = former
		require.Equal(t, runtime.NextDone, w.step(0).Next, "a former owner that is not the last one ends")
	})
}

// TestRule14Sweeper: what disagrees with its execution is repaired, once.
func TestRule14Sweeper(t *testing.T) {
	subtest(t, "take-over is conditional on the sequence", func(t *testing.T, w *world) {
		w.start()
		w.waiter.ended(w.owner)
		w.table.Once(meanwhile(entry("handed_over"), func() { w.step(0) }))
		r, err := (&runtime.Sweeper{Ports: w.ports, Definitions: w.pinned}).Repair(w.ctx, tenant, w.run)
		require.NoError(t, err, "somebody acts on the run: it needs no repair")
		require.Equal(t, runtime.RepairNone, r)
		require.Zero(t, w.written("handed_over"))
	})
	subtest(t, "it wakes at last by itself", func(t *testing.T, w *world) {
		r := w.parkedRun()
		w.park(r.Woken, 0, "t1")
		w.waiter.settled["t1"] = true
		require.NoError(t, w.send("m1", "Hello?"))
		w.waiter.onSettled = func() { w.drive(r.Woken) }
		require.Equal(t, runtime.RepairNone, w.sweep())
		require.Empty(t, w.waiter.stopped)
		require.Equal(t, w.owner, w.state().Owner)
	})
	subtest(t, "no token yet: the waiter looks by itself", func(t *testing.T, w *world) {
		w.parkedRun()
		require.NoError(t, w.send("m1", "Hello?"))
		require.Equal(t, runtime.RepairNone, w.sweep())
	})
}

// TestRule15Cache: a warm invocation never sees a phantom and never leaves a gap.
func TestRule15Cache(t *testing.T) {
	warm := func(t *testing.T, f func(t *testing.T, w *world)) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) { f(t, newWorld(t, clock.System(), 4)) })
	}
	t.Run("others write in between", func(t *testing.T) {
		warm(t, func(t *testing.T, w *world) {
			w.startRound(calls("look c1"), calls("look c2"))
			other := *w
			other.ports.Journal = store.NewJournal(w.table, 4)
			for range 2 { // two machines take turns, each with a cache of its own
				other.batchRun(0)
				other.step(0)
				w.batchRun(0)
				w.step(0)
			}
			require.Equal(t, run.RunDone, w.state().Status)
			require.Len(t, w.model.asked, 3)
			require.Equal(t, 2, w.tool("look").times())
		})
	})
}
