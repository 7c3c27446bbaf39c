package runtime_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/tool"
)

// cost is what a piece of work needed of the table.
type cost struct{ gets, queries, puts, transactions, wcu int64 }

func (w *world) cost(work func()) cost {
	w.t.Helper()
	before := w.counts.Counts()
	work()
	c := w.counts.Counts().Sub(before)
	return cost{c.Gets, c.Queries, c.Writes, c.Transactions, c.WCU}
}

// TestCost is the table "What it costs" of docs/protocol.md, counted, all items below 1 KB, with the
// reads, which that table leaves out but for a plain iteration.
func TestCost(t *testing.T) {
	for replies, want := range map[string]cost{
		"":        {queries: 1, transactions: 2, wcu: 4 + 6}, // start and end
		"look c1": {queries: 2, puts: 2, transactions: 1, wcu: 4 + 2},
		"note c1": {queries: 2, puts: 2, transactions: 1, wcu: 4 + 2},
		"pay c1":  {queries: 2, puts: 3, transactions: 1, wcu: 4 + 3},
		// Several claims are one entry.
		"pay c1,pay c2,pay c3": {queries: 2, puts: 3, transactions: 1, wcu: 4 + 3},
	} {
		subtest(t, "a start and "+replies, func(t *testing.T, w *world) {
			require.Equal(t, want, w.cost(func() {
				if replies == "" {
					w.start()
					w.step(0)
					return
				}
				w.startRound(calls(strings.Split(replies, ",")...))
				w.batchRun(0)
			}))
		})
	}
	subtest(t, "park beside free calls", func(t *testing.T, w *world) {
		// A streaming executor shows the request before it runs what is free, so suspending and parking are two entries:
		// {J, APPROVAL}, then results and end of the batch as {J, HEAD}. That is 4 + 4 instead of 6 WCU: the price of an
		// early approval.
		w.startRound(calls("look c1", "refund c2"))
		require.Equal(t, cost{queries: 1, transactions: 2, wcu: 8}, w.cost(func() { w.batchRun(0) }))
	})
	subtest(t, "accept an input", func(t *testing.T, w *world) {
		w.start()
		// The second GetItem says whether there is such a run at all.
		require.Equal(
			t, cost{gets: 2, queries: 1, transactions: 1, wcu: 4}, w.cost(func() { require.NoError(t, w.send("m1", "Hi.")) }),
		)
	})
	subtest(t, "accept a decision, resume to a tool", func(t *testing.T, w *world) {
		r := w.parkedRun()
		// Reads beside the newest slot and HEAD: the request, for who may decide it, and the run, for what the call has
		// (A22).
		require.Equal(
			t, cost{gets: 2, queries: 2, transactions: 1, wcu: 4}, w.cost(func() { w.approve("c1", approval.Approve) }),
		)
		require.Equal(t, cost{queries: 1}, w.cost(func() { w.step(r.Woken) }))
		// {J drain + claim, HEAD, APPROVAL consumed}, then the result's put.
		require.Equal(t, cost{queries: 1, transactions: 1, puts: 1, wcu: 6 + 1}, w.cost(func() { w.batchRun(r.Woken) }))
	})
	subtest(t, "resume to inference", func(t *testing.T, w *world) {
		r := w.parkedRun()
		w.model.replies = append(w.model.replies, calls("look c2"))
		w.approve("c1", approval.Deny)
		require.Equal(t, cost{queries: 1, transactions: 1, wcu: 4}, w.cost(func() { w.step(r.Woken) }))
	})
	subtest(t, "expired", func(t *testing.T, w *world) {
		r := w.parkedRun()
		w.model.replies = append(w.model.replies, calls("look c2"))
		w.sleep(24 * time.Hour)
		// {J expired, HEAD, APPROVAL}, then the reply's put.
		require.Equal(t, cost{queries: 2, transactions: 1, puts: 1, wcu: 6 + 1}, w.cost(func() { w.step(r.Woken) }))
	})
	subtest(t, "take-over", func(t *testing.T, w *world) {
		w.start()
		w.waiter.ended(w.owner)
		// {J, HEAD}, and the record of the repair.
		require.Equal(t, cost{queries: 1, transactions: 1, wcu: 6}, w.cost(func() { w.sweep() }))
	})
}

// approve decides by the request's id, as a person does, and reads nothing else.
func (w *world) approve(call string, a approval.Action) {
	w.t.Helper()
	w.decided(approval.DecisionInput{ID: run.ApprovalID(w.run, call, 1), Action: a})
}

// What was accepted can always be drained, whatever the run does next: no entry has to hold more than an item can.

const large = 256 << 10

// flood accepts twice what an entry can hold.
func (w *world) flood() {
	w.t.Helper()
	for i := range 2 {
		require.NoError(w.t, w.send(fmt.Sprint("m", i), strings.Repeat("x", large)))
	}
}

func TestLargeInputsAreDrained(t *testing.T) {
	for name, end := range map[string]func(w *world){
		"step":   func(w *world) { require.Equal(w.t, runtime.NextDone, w.drive(0).Next) },
		"cancel": func(w *world) { w.cancel() },
		"fail": func(w *world) {
			require.NoError(w.t, errOf(w.stepper().Fail(w.ctx, w.inv(0), "gave up")))
		},
		"batch": func(w *world) {
			w.model.replies = []agent.Reply{calls("pay c1")}
			w.drive(0)
			require.Equal(t, 1, w.tool("pay").times())
		},
	} {
		subtest(t, name, func(t *testing.T, w *world) {
			w.start()
			if name == "batch" {
				w.tool("pay").inside(w.flood)
			} else {
				w.flood()
			}
			end(w)
			s := w.state()
			require.Equal(t, run.RunDone, s.Status)
			require.EqualValues(t, 2, s.Drained)
			require.Equal(t, "Work.", w.heard()[0])
			require.GreaterOrEqual(t, len(w.heard()), 3)
		})
	}
	subtest(t, "a parked run", func(t *testing.T, w *world) {
		r := w.parkedRun()
		w.flood()
		again := w.drive(r.Woken)
		require.Equal(t, runtime.NextWait, again.Next)
		require.Greater(t, again.Woken, r.Woken)
		require.EqualValues(t, 2, w.head().Drained)
	})
	subtest(t, "what is larger is not accepted", func(t *testing.T, w *world) {
		w.start()
		require.ErrorIs(t, w.send("m", strings.Repeat("x", 300<<10)), store.ErrTooLarge)
	})
}

// Results that finish together are one entry as far as one can hold them.
func TestLargeResultsTakeSeveralEntries(t *testing.T) {
	for name, content := range map[string]string{"text": strings.Repeat("x", 45<<10), "control characters": strings.Repeat("\x01", 45<<10)} {
		subtest(t, name, func(t *testing.T, w *world) {
			var specs []string
			for i := range 12 {
				specs = append(specs, fmt.Sprintf("look c%d", i))
			}
			w.def.Context.TruncateResult = 0
			w.tool("look").work = func(context.Context, tool.Call) (agent.ToolResultData, error) {
				return agent.ToolResultData{Content: content}, nil
			}
			w.startWith(calls(specs...))
			require.Equal(t, runtime.NextDone, w.drive(0).Next)
			require.Equal(t, 12, w.tool("look").times())
			require.Equal(t, 12, w.written("call_finished"))
			require.Equal(t, name != "text", w.call("c0").Result.Blob != "", "what counts is its stored length")
			last := w.model.asked[1].Messages
			require.Equal(t, content, last[len(last)-1].Block.(run.ToolResult).Content, "whole, from the blob if need be")
		})
	}
}
