package runtime_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
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

// The sixteen rules of docs/protocol.md, one test each. Many stories are those of its list of what goes wrong without a rule.

// TestRule01JournalIsTheRun: entries that start, park, resume, end or hand over take HEAD along, every other entry is one put,
// nobody else writes HEAD but the waiter's token, and HEAD says what the journal folds to.
func TestRule01JournalIsTheRun(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.model.replies = []agent.Reply{calls("look c1", "note c2"), calls("pay c3"), calls("refund c4"), calls("refund c5")}
		w.start()
		for r := w.drive(0); r.Next == runtime.NextWait; r = w.drive(r.Woken) {
			w.park(r.Woken, 0, fmt.Sprint("token", r.Woken))
			_, err := w.decide(w.waitingCall(), approval.Approve)
			require.NoError(t, err)
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
			require.Equal(t, s.Drained, attrs["drained"].Int())
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

// waitingCall is the one call that is suspended.
func (w *world) waitingCall() string {
	s := w.state()
	require.Len(w.t, s.Waits(), 1)
	return s.Waits()[0].ID
}

// TestRule02ConflictMeansReload: what lost its sequence is planned again from the new fold, never written at another number, and
// an attempt that finds its step done routes on without asking the model again.
func TestRule02ConflictMeansReload(t *testing.T) {
	t.Run("another attempt was first", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			w.model.replies = []agent.Reply{calls("look c1")}
			w.start()
			w.table.Once(meanwhile(entry("replied"), func() { w.step(0) }))
			require.Equal(t, runtime.NextTools, w.step(0).Next)
			require.Equal(t, 1, w.written("replied"), "one inference for one step")
			require.EqualValues(t, 2, w.state().Entries)
			require.Len(t, w.model.asked, 2, "the reload did not ask a third time")
		})
	})
	t.Run("an input was drained first", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			w.model.replies = []agent.Reply{calls("look c1")}
			w.start()
			w.table.Once(meanwhile(entry("replied"), func() {
				require.NoError(t, w.send("m1", "And more."))
				w.drain()
			}))
			w.step(0)
			require.Equal(t, 1, w.written("replied"))
			require.Len(t, w.model.asked, 2, "the reply of a lost sequence is dropped")
			require.EqualValues(t, 0, w.state().Unseen, "the model has seen what was drained")
		})
	})
	t.Run("executed, then error", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			w.model.replies = []agent.Reply{calls("look c1")}
			w.start()
			w.table.Once(lost(entry("replied")))
			require.Equal(t, runtime.NextTools, w.step(0).Next)
			w.table.Once(lost(entry("call_finished")))
			require.Equal(t, runtime.NextStep, w.batchRun(0).Next)
			require.Len(t, w.model.asked, 1)
			require.EqualValues(t, 3, w.state().Entries)
			require.Equal(t, 1, w.written("call_finished"))
		})
	})
	t.Run("throttled: the identical entry again", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			w.start()
			w.table.Once(fault.WriteOf(entry("replied")), fault.Fail(store.ErrThrottled))
			require.Equal(t, runtime.NextDone, w.step(0).Next)
			require.Len(t, w.model.asked, 1, "a reply that is paid for is not asked for again")
		})
	})
	t.Run("a journal with a gap fails loudly", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			w.start()
			w.forge(run.Entry{Seq: 2, Writer: "forger"})
			_, err := w.stepper().Step(w.ctx, w.inv(0))
			require.ErrorContains(t, err, "the journal has a gap after 0")
		})
	})
	t.Run("an entry after the end fails loudly", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			w.start()
			require.Equal(t, runtime.NextDone, w.drive(0).Next)
			w.forge(run.Entry{Seq: 2, Writer: "forger"})
			_, err := w.stepper().Step(w.ctx, w.inv(0))
			require.ErrorContains(t, err, "the run ended at 1")
		})
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

// TestRule03InboxIsALog: inputs are applied once, in the order of their slots, however often and late they are sent again.
func TestRule03InboxIsALog(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.model.replies = []agent.Reply{calls("refund c1")}
		w.start()
		r := w.drive(0)
		w.park(r.Woken, 0, "t1")
		require.NoError(t, w.send("zzz", "First."))
		require.NoError(t, w.send("aaa", "Second."), "ids do not order")
		require.NoError(t, w.send("zzz", "First."), "a duplicate is answered like the first")
		require.Equal(t, []string{"t1", "t1", "t1"}, w.waiter.woken, "and wakes again")
		require.ErrorIs(t, w.send("zzz", "Other."), store.ErrOtherInput)

		r = w.drive(r.Woken)
		require.NoError(t, w.send("aaa", "Second."), "it was drained, and still is a duplicate")
		w.park(r.Woken, 0, "t2")
		_, err := w.decide("c1", approval.Deny)
		require.NoError(t, err)
		w.drive(r.Woken)
		require.Equal(t, []string{"Work.", "First.", "Second."}, w.heard())
		require.Equal(t, run.RunDone, w.state().Status)

		require.NoError(t, w.send("aaa", "Second."), "and is one after the end, too")
		require.ErrorIs(t, w.send("new", "Third."), runtime.ErrRunFinished)
	})
}

// TestRule03AcceptedThoughTheAnswerWasLost: the client's retry is the same input.
func TestRule03AcceptedThoughTheAnswerWasLost(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.start()
		w.table.Once(lost(touches("K#")))
		require.ErrorIs(t, w.send("m1", "More."), errBlown)
		require.NoError(t, w.send("m1", "More."))
		w.drive(0)
		require.Equal(t, []string{"Work.", "More."}, w.heard())
	})
}

// TestRule04EndingClosesTheInbox: nothing accepted is lost to an end, and what is paid for is kept.
func TestRule04EndingClosesTheInbox(t *testing.T) {
	t.Run("a reply is committed without the end", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			w.model.replies = []agent.Reply{{Text: "Bye."}, {Text: "Bye indeed."}}
			w.model.once(func() error { return w.send("m1", "Wait!") })
			w.start()
			require.Equal(t, runtime.NextStep, w.step(0).Next)
			require.Equal(t, runtime.NextDone, w.step(0).Next)
			require.Len(t, w.model.asked, 2, "the first reply was not asked for again")
			s := w.state()
			require.EqualValues(t, 2, s.Inferences)
			require.EqualValues(t, 1, s.Drained)
			require.JSONEq(t, `"Bye indeed."`, string(s.Output))
		})
	})
	t.Run("its answer lost, too", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			w.model.once(func() error { return w.send("m1", "Wait!") })
			w.start()
			w.table.Once(lost(func(ops []store.Op) bool { return entry("replied")(ops) && len(ops) == 1 }))
			w.drive(0)
			require.Len(t, w.model.asked, 2)
			require.EqualValues(t, 2, w.state().Inferences)
		})
	})
	t.Run("a failure reloads and drains", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			w.model.once(func() error {
				require.NoError(t, w.send("m1", "Wait!"))
				return &agent.ModelError{Class: agent.ModelInvalid, Model: "m", Message: "no"}
			})
			w.start()
			require.Equal(t, runtime.NextDone, w.drive(0).Next, "the model was asked again, with what had arrived")
			require.Equal(t, []string{"Work.", "Wait!"}, w.heard())
		})
	})
	t.Run("a recorded failure reloads and drains", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			w.start()
			w.table.Once(meanwhile(entry("finished"), func() { require.NoError(t, w.send("m1", "Wait!")) }))
			r, err := w.stepper().Fail(w.ctx, w.inv(0), "gave up")
			require.NoError(t, err)
			require.Equal(t, runtime.NextFailed, r.Next)
			require.Equal(t, []string{"Work.", "Wait!"}, w.heard())
			require.Equal(t, run.ReasonError, w.state().Reason)
		})
	})
	t.Run("a cancel reloads and drains", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			w.start()
			w.table.Once(meanwhile(entry("finished"), func() { require.NoError(t, w.send("m1", "Wait!")) }))
			w.cancel()
			require.Equal(t, "Wait!", w.heard()[1])
			require.EqualValues(t, 1, w.state().Drained)
		})
	})
	t.Run("closed is for ever", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			w.start()
			w.drive(0)
			require.ErrorIs(t, w.send("m1", "Too late."), runtime.ErrRunFinished)
			require.Len(t, w.entries(), 2)
		})
	})
}

// TestRule05ParkingNeedsNoInboxCondition: one transaction parks, with the requests people see; an input that came meanwhile
// is the waiter's business; every entry into the wait has a wait of its own.
func TestRule05ParkingNeedsNoInboxCondition(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.model.replies = []agent.Reply{calls("refund c1", "refund c2")}
		w.start()
		w.table.Once(meanwhile(entry("parked"), func() { require.NoError(t, w.send("m1", "Hello?")) }))
		r := w.drive(0)
		require.Equal(t, runtime.NextWait, r.Next)
		parking := w.table.Written()[len(w.table.Written())-1]
		require.Len(t, parking, 4, "J, HEAD, two requests")
		require.Equal(t, "HEAD", parking[1].Item.SK)
		for _, op := range parking[2:] {
			require.Equal(t, "A", op.Item.SK)
			require.Equal(t, string(approval.Pending), op.Item.Attrs["status"].String())
		}
		require.Equal(t, r.Woken, w.state().WaitSeq)
		require.EqualValues(t, 0, w.head().Drained)

		w.park(r.Woken, 0, "t1")
		require.Equal(t, []string{"t1"}, w.waiter.woken)
		again := w.drive(r.Woken)
		require.Equal(t, runtime.NextWait, again.Next)
		require.Greater(t, again.Woken, r.Woken, "it parks again under a new wait")
		require.EqualValues(t, 1, w.head().Drained)
	})
}

// TestRule06WaiterStoresThenLooks: whoever comes second, waiter or sender, wakes the run.
func TestRule06WaiterStoresThenLooks(t *testing.T) {
	token := touches("HEAD")
	t.Run("sent before the token is stored", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			r := w.parkedRun()
			w.table.Once(meanwhile(token, func() { require.NoError(t, w.send("m1", "Hello?")) }))
			w.park(r.Woken, 0, "t1")
			require.Equal(t, []string{"t1"}, w.waiter.woken, "the waiter completes its own")
		})
	})
	t.Run("sent between storing and looking", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			r := w.parkedRun()
			w.table.Once(afterwards(token, func() { require.NoError(t, w.send("m1", "Hello?")) }))
			w.park(r.Woken, 0, "t1")
			require.Equal(t, []string{"t1", "t1"}, w.waiter.woken)
		})
	})
	t.Run("nothing sent", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			r := w.parkedRun()
			w.park(r.Woken, 0, "t1")
			require.Empty(t, w.waiter.woken)
			require.Equal(t, "t1", w.head().Token)
		})
	})
	t.Run("a slow first waiter does not overwrite the second", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			r := w.parkedRun()
			w.table.Once(meanwhile(token, func() { w.park(r.Woken, 1, "second") }))
			w.park(r.Woken, 0, "first")
			require.Equal(t, "second", w.head().Token)
			require.Equal(t, []string{"first"}, w.waiter.woken, "the slow one completes its own")
			require.NoError(t, w.send("m1", "Hello?"))
			require.Equal(t, []string{"first", "second"}, w.waiter.woken)
		})
	})
	t.Run("its own token again", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			r := w.parkedRun()
			w.table.Once(lost(token))
			require.ErrorIs(t, w.waits().Park(w.ctx, w.ticket(r.Woken, 0, "t1")), errBlown)
			w.park(r.Woken, 0, "t1")
			require.Empty(t, w.waiter.woken)
		})
	})
	t.Run("another wait, another owner, a run that goes on", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			r := w.parkedRun()
			w.park(r.Woken-1, 5, "old wait")
			foreign := w.ticket(r.Woken, 5, "foreign")
			foreign.Execution = "other"
			require.NoError(t, w.waits().Park(w.ctx, foreign))
			require.Empty(t, w.head().Token)
			_, err := w.decide("c1", approval.Deny)
			require.NoError(t, err)
			w.drive(r.Woken)
			w.park(r.Woken, 5, "after")
			require.Equal(t, []string{"old wait", "foreign", "after"}, w.waiter.woken)
		})
	})
}

// parkedRun is a run that waits for a decision on its call c1.
func (w *world) parkedRun() runtime.Route {
	w.t.Helper()
	w.model.replies = []agent.Reply{calls("refund c1")}
	w.start()
	r := w.drive(0)
	require.Equal(w.t, runtime.NextWait, r.Next)
	return r
}

// TestRule07OnlyTheWokenTouchAParkedRun: a zombie that drained the answer would leave nothing to wake the run with.
func TestRule07OnlyTheWokenTouchAParkedRun(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.model.replies = []agent.Reply{calls("refund c1"), calls("refund c2")}
		w.start()
		first := w.drive(0)
		_, err := w.decide("c1", approval.Approve)
		require.NoError(t, err)
		second := w.drive(first.Woken)
		_, err = w.decide("c2", approval.Approve)
		require.NoError(t, err)
		before := w.state()
		for _, woken := range []int64{0, first.Woken, second.Woken - 1} { // a later one would be a wait that the journal does not have
			require.Equal(t, second, w.step(woken), "woken %d", woken)
			passed := second
			passed.Woken = woken // Step comes next, and no wait has ended meanwhile
			require.Equal(t, passed, w.batchRun(woken), "woken %d", woken)
		}
		require.Equal(t, before, w.state(), "nothing drained, nothing written")
		require.Equal(t, run.RunWaiting, w.head().Status)
		require.Equal(t, runtime.NextDone, w.drive(second.Woken).Next)
		require.Equal(t, 2, w.tool("refund").times())
	})
}

// TestRule08OneArbiter: a decision and an expiry that meet have one winner, and everybody hears the same.
func TestRule08OneArbiter(t *testing.T) {
	// slow is a desk whose clock is an hour behind: to it, nothing has expired.
	slow := func(w *world) error {
		d := w.desk()
		d.Clock = late{w.ports.Clock, time.Hour}
		_, err := d.Decide(w.ctx, approval.DecisionInput{Tenant: tenant, ID: run.ApprovalID(w.run, "c1", 1), Action: approval.Deny, By: ana})
		return err
	}
	t.Run("decided first", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			r := w.parkedRun()
			w.sleep(w.def.Permission.Expires)
			w.table.Once(meanwhile(entry("call_cancelled"), func() { require.NoError(t, slow(w)) }))
			w.drive(r.Woken)
			require.Equal(t, run.WhyDenied, w.call("c1").Reason, "the person was told 200: the journal says so, too")
			require.Zero(t, w.written("call_cancelled"))
		})
	})
	t.Run("expired first", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			r := w.parkedRun()
			w.sleep(w.def.Permission.Expires)
			w.model.during = func(agent.Request) error { return nil }
			w.table.Once(meanwhile(touches("K#"), func() { w.drive(r.Woken) }))
			var decided *approval.DecidedError
			require.ErrorAs(t, slow(w), &decided)
			require.Equal(t, approval.Expired, decided.Approval.Status)
			require.Equal(t, run.WhyExpired, w.call("c1").Reason)
			require.Zero(t, w.state().Drained)
		})
	})
	t.Run("the token is settled already", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			r := w.parkedRun()
			w.park(r.Woken, 0, "t1")
			w.waiter.settled["t1"] = true
			_, err := w.decide("c1", approval.Approve)
			require.NoError(t, err, "settled means settled")
		})
	})
}

func (w *world) sleep(d time.Duration) {
	w.t.Helper()
	require.NoError(w.t, w.ports.Clock.Sleep(w.ctx, d))
}

// TestRule09Claim: what cannot be repeated runs under a claim of this very invocation.
func TestRule09Claim(t *testing.T) {
	t.Run("the claim is written before the tool is entered", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			w.model.replies = []agent.Reply{calls("pay c1")}
			w.tool("pay").inside(func() { require.Equal(t, run.StatusRunning, w.call("c1").Status) })
			w.start()
			w.drive(0)
			require.Equal(t, 1, w.tool("pay").times())
			require.Equal(t, 1, w.written("call_claimed"))
		})
	})
	t.Run("a lost answer is a claim all the same", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			w.model.replies = []agent.Reply{calls("pay c1")}
			w.start()
			w.step(0)
			w.table.Once(lost(entry("call_claimed")))
			w.batchRun(0)
			require.Equal(t, 1, w.tool("pay").times())
			require.Equal(t, 1, w.written("call_claimed"))
			require.Equal(t, run.StatusSucceeded, w.call("c1").Status)
		})
	})
	t.Run("a zombie's claim is not the retry's", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			w.model.replies = []agent.Reply{calls("pay c1")}
			w.start()
			w.step(0)
			dead := w.ends(entry("call_claimed"))
			_, err := w.batch().Run(dead, w.inv(0))
			require.Error(t, err)
			w.batchRun(0)
			require.Zero(t, w.tool("pay").times(), "nobody knows whether the first has run it")
			c := w.call("c1")
			require.Equal(t, run.StatusSuspended, c.Status)
			require.Equal(t, run.ForOutcome, c.Wait.For)
		})
	})
	t.Run("an approval is used up by the claim", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			r := w.parkedRun()
			_, err := w.decide("c1", approval.Approve)
			require.NoError(t, err)
			w.drive(r.Woken)
			i := slices.IndexFunc(w.table.Written(), entry("call_claimed"))
			used := w.table.Written()[i][len(w.table.Written()[i])-1]
			require.Equal(t, "A", used.Item.SK)
			require.EqualValues(t, 1, used.Item.Attrs["consumed"].Int())
		})
	})
	t.Run("the claimant alone stores the result", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			w.model.replies = []agent.Reply{calls("pay c1")}
			w.start()
			w.step(0)
			w.tool("pay").inside(func() {
				s := w.state()
				d := run.NewDraft(s, "intruder00", w.ports.Clock.Now())
				require.ErrorContains(t, d.Add(run.CallFinished{Call: "c1", Content: "mine"}), "another writer has the claim")
			})
			w.batchRun(0)
		})
	})
}

// ends is a context that ends right after the next write that fits: the invocation dies there.
func (w *world) ends(fits func([]store.Op) bool) context.Context {
	ctx, cancel := context.WithCancel(w.ctx)
	w.table.Once(fault.WriteOf(fits), fault.After(func() error { cancel(); return ctx.Err() }))
	return ctx
}

// TestRule10UnknownAndLate: a claim without a result is never run again, and what the claimant comes back with is not lost.
func TestRule10UnknownAndLate(t *testing.T) {
	t.Run("a result after the retry's unknown comes through the inbox", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			r := w.lateResult(func() runtime.Route { return w.batchRun(0) })
			require.Equal(t, runtime.NextWait, r.Next)
			require.Equal(t, []string{"t1"}, w.waiter.woken, "and wakes the run")
			w.drive(r.Woken)
			c := w.call("c1")
			require.Equal(t, run.StatusSucceeded, c.Status)
			require.Equal(t, "ok c1", c.Result.Content)
			a, err := approval.Get(w.ctx, w.table, tenant, run.ApprovalID(w.run, "c1", 1))
			require.NoError(t, err)
			require.Equal(t, approval.Voided, a.Status, "nobody is asked any more")
		})
	})
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
	t.Run("to a run that was taken over", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
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
	})
	t.Run("a claimant that still is one stores it at the new sequence", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			w.model.replies = []agent.Reply{calls("pay c1")}
			w.start()
			w.step(0)
			w.table.Once(meanwhile(entry("call_finished"), func() {
				require.NoError(t, w.send("m1", "Quick!"))
				w.drain()
			}))
			w.batchRun(0)
			require.Equal(t, run.StatusSucceeded, w.call("c1").Status)
			require.EqualValues(t, 1, w.state().Drained, "not through the inbox")
			require.Equal(t, 1, w.tool("pay").times())
		})
	})
	t.Run("a settled call ignores it", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			r := w.lateResult(func() runtime.Route {
				r := w.batchRun(0)
				_, err := w.desk().Decide(w.ctx, approval.DecisionInput{Tenant: tenant, Run: w.run, Call: "c1", Content: "refunded", By: ana, Action: approval.ReportResult})
				require.NoError(t, err)
				return r
			})
			w.drive(r.Woken)
			require.Equal(t, "refunded", w.call("c1").Result.Content)
		})
	})
	t.Run("and so does one whose result lies behind it", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			r := w.lateResult(func() runtime.Route { return w.batchRun(0) })
			_, err := w.desk().Decide(w.ctx, approval.DecisionInput{Tenant: tenant, Run: w.run, Call: "c1", Content: "refunded", By: ana, Action: approval.ReportResult})
			require.NoError(t, err)
			w.drive(r.Woken)
			require.Equal(t, "ok c1", w.call("c1").Result.Content, "the inbox is an order")
			a, err := approval.Get(w.ctx, w.table, tenant, run.ApprovalID(w.run, "c1", 1))
			require.NoError(t, err)
			require.Equal(t, approval.Approved, a.Status)
		})
	})
	t.Run("what may be repeated is", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			w.model.replies = []agent.Reply{calls("note c1")}
			w.start()
			w.step(0)
			w.tool("note").inside(func() { w.batchRun(0) })
			w.batchRun(0)
			require.Equal(t, 2, w.tool("note").times())
			require.Equal(t, w.tool("note").entered[0].Key, w.tool("note").entered[1].Key, "under the same key")
			require.Equal(t, 1, w.written("call_finished"))
		})
	})
}

// lateResult runs pay in one invocation and, while it is inside the tool, lets others act; a waiter stores token t1 if they park.
func (w *world) lateResult(others func() runtime.Route) (r runtime.Route) {
	w.t.Helper()
	w.model.replies = []agent.Reply{calls("pay c1")}
	w.start()
	w.step(0)
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

// TestRule10LateTickets: a tool that asks for input under a claim asks although its claimant lost the race for the entry.
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
		_, err := w.desk().Decide(w.ctx, approval.DecisionInput{Tenant: tenant, ID: approvalID, Action: approval.Approve, Result: json.RawMessage(with), By: ana})
		require.NoError(w.t, err)
	}
	status := func(w *world, n int) approval.Status {
		a, err := approval.Get(w.ctx, w.table, tenant, run.ApprovalID(w.run, "c1", n))
		require.NoError(w.t, err)
		return a.Status
	}
	t.Run("after the retry's unknown", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			asks(w)
			r := w.lateResult(func() runtime.Route { return w.batchRun(0) })
			require.Equal(t, []string{"t1"}, w.waiter.woken)
			r = w.drive(r.Woken)
			require.Equal(t, runtime.NextWait, r.Next)
			c := w.call("c1")
			require.Equal(t, run.ForInput, c.Wait.For)
			require.Equal(t, []approval.Status{approval.Voided, approval.Pending}, []approval.Status{status(w, 1), status(w, 2)}, "nobody is asked what became of it")
			w.park(r.Woken, 0, "t2")
			answered(w, c.Wait.Approval, `"A"`)
			require.Equal(t, runtime.NextDone, w.drive(r.Woken).Next)
			require.Equal(t, `paid from "A"`, w.call("c1").Result.Content)
			require.Equal(t, 2, w.tool("pay").times())
		})
	})
	t.Run("though its delivery met an error", func(t *testing.T) {
		for _, goesWrong := range []func(func([]store.Op) bool) (func(fault.Call) bool, fault.Hook){lost, failed} {
			inBubble(t, func(t *testing.T, w *world) {
				asks(w)
				r := w.lateResult(func() runtime.Route {
					r := w.batchRun(0)
					w.table.Once(goesWrong(touches("I#late/")))
					return r
				})
				w.drive(r.Woken)
				require.Equal(t, run.ForInput, w.call("c1").Wait.For)
				require.EqualValues(t, 1, w.state().Drained)
			})
		}
	})
	t.Run("to a run that was taken over", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			asks(w)
			w.lateResult(func() runtime.Route {
				w.waiter.ended(w.owner)
				require.Equal(t, runtime.RepairTookOver, w.sweep())
				return runtime.Route{}
			})
			w.owner = runtime.ExecutionName(w.run, 1)
			w.drive(0)
			require.Equal(t, run.ForInput, w.call("c1").Wait.For)
		})
	})
	t.Run("a call that somebody let run again ignores it", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			asks(w)
			r := w.lateResult(func() runtime.Route {
				r := w.batchRun(0)
				_, err := w.desk().Decide(w.ctx, approval.DecisionInput{Tenant: tenant, Run: w.run, Call: "c1", Action: approval.Rerun, By: ana})
				require.NoError(t, err)
				return r
			})
			r = w.drive(r.Woken)
			require.Equal(t, runtime.NextWait, r.Next)
			require.Equal(t, 2, w.tool("pay").times(), "it runs again, and asks itself")
			require.Equal(t, approval.Pending, status(w, 2))
		})
	})
	t.Run("a run that was cancelled asks nobody", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			asks(w)
			w.lateResult(func() runtime.Route { w.cancel(); return runtime.Route{} })
			require.Equal(t, run.WhyOutcomeUnknown, w.call("c1").Reason)
			require.Zero(t, w.state().Drained)
		})
	})
}

// TestRule11CancelIsAnEntry: the fence is the entry, and the execution is stopped after it.
func TestRule11CancelIsAnEntry(t *testing.T) {
	t.Run("nothing is claimed after it", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			w.model.replies = []agent.Reply{calls("pay c1")}
			w.start()
			w.step(0)
			w.table.Once(meanwhile(entry("call_claimed"), func() { w.cancel() }))
			require.Equal(t, runtime.NextDone, w.batchRun(0).Next)
			require.Zero(t, w.tool("pay").times())
			require.Equal(t, run.WhyCancelled, w.call("c1").Reason)
		})
	})
	t.Run("what was claimed before is unknown", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			w.model.replies = []agent.Reply{calls("pay c1")}
			w.start()
			w.step(0)
			w.tool("pay").inside(func() { w.cancel() })
			w.batchRun(0)
			require.Equal(t, run.WhyOutcomeUnknown, w.call("c1").Reason)
			require.Equal(t, run.ReasonCancelled, w.state().Reason)
		})
	})
	t.Run("the entry first, then the execution, each as often as it takes", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
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
			a, err := approval.Get(w.ctx, w.table, tenant, run.ApprovalID(w.run, "c1", 1))
			require.NoError(t, err)
			require.Equal(t, approval.Cancelled, a.Status)
			require.Equal(t, run.RunDone, w.head().Status)
		})
	})
	t.Run("a decision that came first is drained, and the call cancelled", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			w.parkedRun()
			w.table.Once(meanwhile(entry("finished"), func() {
				_, err := w.decide("c1", approval.Approve)
				require.NoError(t, err)
			}))
			w.cancel()
			require.EqualValues(t, 1, w.state().Drained)
			require.Equal(t, run.StatusCancelled, w.call("c1").Status)
			require.Zero(t, w.tool("refund").times())
		})
	})
	t.Run("a run that has ended stays as it is", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			w.start()
			w.drive(0)
			require.Equal(t, run.ReasonNaturalEnd, w.cancel().Reason)
			require.Empty(t, w.waiter.stopped)
		})
	})
}

// TestRule12OneOwner: who does not own the run writes nothing and ends quietly, at every load.
func TestRule12OneOwner(t *testing.T) {
	t.Run("two executions of one event", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			st := runtime.Starter{Ports: w.ports}
			w.model.replies = []agent.Reply{calls("refund c1")}
			w.run = agent.RunID(tenant, w.def.Name, "k1")
			var first, second run.AgentState
			var err error
			w.table.Once(meanwhile(entry("run_started"), func() {
				first, err = st.Create(w.ctx, w.request("Work."), w.run, "delivery-1")
				require.NoError(t, err)
			}))
			second, err = st.Create(w.ctx, w.request("Work."), w.run, "delivery-2")
			require.NoError(t, err)
			require.Equal(t, "delivery-1", first.Owner)
			require.Equal(t, first, second)
			w.owner = "delivery-1"
			parked := w.drive(0)
			require.Equal(t, runtime.NextWait, parked.Next)
			before := w.state()
			w.owner = "delivery-2"
			for _, woken := range []int64{0, parked.Woken} {
				require.Equal(t, runtime.NextDone, w.step(woken).Next)
				require.Equal(t, runtime.NextDone, w.batchRun(woken).Next)
			}
			r, err := w.stepper().Fail(w.ctx, w.inv(0), "gave up")
			require.NoError(t, err)
			require.Equal(t, runtime.NextFailed, r.Next)
			require.Equal(t, before, w.state())
		})
	})
	t.Run("by API", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			st := runtime.Starter{Ports: w.ports}
			failures := 1
			w.waiter.onStart = func(name string) error {
				require.Equal(t, name, w.owner)
				if failures--; failures >= 0 {
					return errBlown
				}
				return nil
			}
			w.run = agent.RunID(tenant, w.def.Name, "k1")
			w.owner = runtime.ExecutionName(w.run, 0)
			w.table.Once(lost(entry("run_started")))
			_, err := st.Start(w.ctx, w.request("Work."))
			require.ErrorIs(t, err, errBlown, "written, not started")
			require.Equal(t, w.owner, w.state().Owner)
			w.start()
			w.start()
			require.Equal(t, []string{w.owner, w.owner}, w.waiter.started, "duplicates repeat the start by its name")
			require.Len(t, w.entries(), 1)
			_, err = st.Start(w.ctx, w.request("Other work."))
			require.ErrorIs(t, err, runtime.ErrKeyReused)
		})
	})
	t.Run("a hundred clients", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			st := runtime.Starter{Ports: w.ports}
			var wg sync.WaitGroup
			runs := make([]run.AgentState, 100)
			for i := range runs {
				wg.Go(func() {
					s, err := st.Start(w.ctx, w.request("Work."))
					if err != nil {
						t.Error(err)
					}
					runs[i] = s
				})
			}
			wg.Wait()
			for _, s := range runs {
				require.Equal(t, runs[0].Run, s.Run)
				require.Equal(t, runs[0].LastWriter(), s.LastWriter())
			}
		})
	})
}

// TestRule13HandOverNamesTheSuccessorFirst: an execution that has written enough names its successor, which is started by that
// name, as often as anybody asks.
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
	t.Run("ended before its run", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			r := w.parkedRun()
			w.park(r.Woken, 0, "dead")
			_, err := w.decide("c1", approval.Deny)
			require.NoError(t, err)
			w.waiter.ended(w.owner)
			next := runtime.ExecutionName(w.run, 1)
			w.waiter.onStart = func(string) error { return errBlown }
			_, err = (&runtime.Sweeper{Ports: w.ports, Definitions: w.pinned}).Repair(w.ctx, tenant, w.run)
			require.ErrorIs(t, err, errBlown, "it dies between the entry and the start")
			require.Equal(t, next, w.head().Owner)
			require.Equal(t, run.RunRunning, w.head().Status)
			w.waiter.onStart = nil
			require.Equal(t, runtime.RepairStarted, w.sweep(), "the next one starts it")
			require.Equal(t, runtime.RepairNone, w.sweep())
			require.Equal(t, runtime.NextContinue, w.step(r.Woken).Next, "the old one ends")
			w.owner = next
			require.Equal(t, runtime.NextDone, w.drive(0).Next)
		})
	})
	t.Run("take-over is conditional on the sequence", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			w.start()
			w.waiter.ended(w.owner)
			w.table.Once(meanwhile(entry("handed_over"), func() { w.step(0) }))
			r, err := (&runtime.Sweeper{Ports: w.ports, Definitions: w.pinned}).Repair(w.ctx, tenant, w.run)
			require.NoError(t, err, "somebody acts on the run: it needs no repair")
			require.Equal(t, runtime.RepairNone, r)
			require.Zero(t, w.written("handed_over"))
		})
	})
	t.Run("past the limit the run ends as failed", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			w.start()
			for i := int64(0); w.head().Status != run.RunDone; i++ {
				w.waiter.ended(runtime.ExecutionName(w.run, i))
				require.NotEqual(t, runtime.RepairNone, w.sweep())
			}
			require.Equal(t, run.ReasonError, w.state().Reason)
			require.EqualValues(t, 100, w.state().Generation)
			require.ErrorIs(t, w.send("m1", "Hello?"), runtime.ErrRunFinished)
		})
	})
	t.Run("it wakes at last by itself", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			r := w.parkedRun()
			w.park(r.Woken, 0, "t1")
			w.waiter.settled["t1"] = true
			require.NoError(t, w.send("m1", "Hello?"))
			w.waiter.onSettled = func() { w.drive(r.Woken) }
			require.Equal(t, runtime.RepairNone, w.sweep())
			require.Empty(t, w.waiter.stopped)
			require.Equal(t, w.owner, w.state().Owner)
		})
	})
	t.Run("no token yet: the waiter looks by itself", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			w.parkedRun()
			require.NoError(t, w.send("m1", "Hello?"))
			require.Equal(t, runtime.RepairNone, w.sweep())
		})
	})
}

// TestRule15Cache: a warm invocation never sees a phantom and never leaves a gap.
func TestRule15Cache(t *testing.T) {
	warm := func(t *testing.T, f func(t *testing.T, w *world)) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) { f(t, newWorld(t, clock.System(), 4)) })
	}
	t.Run("a put that failed is no entry", func(t *testing.T) {
		warm(t, func(t *testing.T, w *world) {
			w.model.replies = []agent.Reply{calls("look c1")}
			w.start()
			dead, cancel := context.WithCancel(w.ctx)
			w.table.Once(fault.WriteOf(entry("replied")), fault.Before(func() error { cancel(); return dead.Err() }))
			_, err := w.stepper().Step(dead, w.inv(0))
			require.ErrorIs(t, err, context.Canceled)
			require.Equal(t, runtime.NextTools, w.step(0).Next)
			require.Equal(t, runtime.NextDone, w.drive(0).Next)
			require.Len(t, w.model.asked, 3)
			require.EqualValues(t, 2, w.state().Inferences)
		})
	})
	t.Run("others write in between", func(t *testing.T) {
		warm(t, func(t *testing.T, w *world) {
			w.model.replies = []agent.Reply{calls("look c1"), calls("look c2")}
			w.start()
			w.step(0)
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
	t.Run("a restored table", func(t *testing.T) {
		warm(t, func(t *testing.T, w *world) {
			w.model.replies = []agent.Reply{calls("look c1")}
			w.start()
			w.step(0)
			fresh := newWorld(t, clock.System(), 0) // the same start without the reply
			fresh.start()
			w.table.Table = fresh.counts
			require.Equal(t, runtime.NextTools, w.step(0).Next)
			require.EqualValues(t, 2, fresh.state().Entries, "planned from what is there, not from what was")
		})
	})
}

// TestRule16SeenIsWhatWasSent: a message that came while the model was thinking was not seen by it.
func TestRule16SeenIsWhatWasSent(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.model.replies = []agent.Reply{calls("look c1"), {Text: "Bye."}}
		w.model.once(func() error { return w.send("m1", "More.") })
		w.start()
		w.step(0)
		s := w.state()
		require.Zero(t, s.Drained, "the reply's entry drains what was read before the call, and nothing else")
		require.EqualValues(t, 1, s.Messages.At(0).Seen(s.Inferences))
		w.drive(0)
		s = w.state()
		require.EqualValues(t, 1, s.Drained)
		for _, m := range s.Messages.All() {
			if text, ok := m.Block.(run.Text); ok && text.Text == "More." {
				require.EqualValues(t, 1, m.Seen(s.Inferences), "sent with the second inference alone")
			}
		}
		require.Len(t, w.model.asked[0].Messages, 1)
	})
}

// TestRule16ALostReplyIsNotCounted: seenCount counts committed inferences.
func TestRule16ALostReplyIsNotCounted(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.start()
		w.table.Once(meanwhile(entry("replied"), func() {
			require.NoError(t, w.send("m1", "More."))
			w.drain()
		}))
		w.drive(0)
		s := w.state()
		require.Len(t, w.model.asked, 2)
		require.EqualValues(t, 1, s.Inferences)
		require.EqualValues(t, 1, s.Messages.At(0).Seen(s.Inferences))
		require.EqualValues(t, 1, s.Messages.At(1).Seen(s.Inferences))
	})
}
