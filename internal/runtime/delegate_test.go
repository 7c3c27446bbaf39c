package runtime_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
)

// delegating lets the world's agent ask another one, aide, which may ask a third, and so on for so many levels: aide0, aide1, ...
func (w *world) delegating(levels int) {
	agents := map[string]*agent.Definition{}
	next := func(d *agent.Definition, level int) {
		d.Tools = append(d.Tools, agent.ToolSpec{
			Name: "ask", Kind: agent.KindAgent, Effect: run.EffectIdempotent, Schema: agent.DelegateSchema, Timeout: time.Hour,
			Agent: &agent.Delegate{Agent: fmt.Sprintf("aide%d", level)},
		})
		d.Permission.Rules = append(d.Permission.Rules, agent.Rule{Tool: "ask", Verdict: agent.VerdictAllow})
	}
	written := *w.def
	for i := range levels {
		d := written
		d.Name, d.Tools, d.Limits.Depth = fmt.Sprintf("aide%d", i), nil, levels
		if i+1 < levels {
			next(&d, i+1)
		}
		agents[d.Name] = &d
	}
	w.def.Limits.Depth = levels
	next(w.def, 0)
	w.ports.Agents = func(name string) (*agent.Definition, bool) { d, ok := agents[name]; return d, ok }
}

// child is the run of the world's newest open child.
func (w *world) child() string {
	w.t.Helper()
	open := w.state().Children.Open
	require.NotEmpty(w.t, open)
	return open[len(open)-1].Run
}

// to makes a run the one that the world acts on.
func (w *world) to(run string) {
	w.run, w.owner = run, runtime.ExecutionName(run, 0)
}

// TestOrphansAskNothing: a run that is written after the one that asked for it has ended, or has stopped waiting for it, ends before it asks its
// model anything, and says so to nobody who goes on: nobody could have called it off before it was there.
func TestOrphansAskNothing(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile func(w *world, root string) // before the child is written
		status    run.RunStatus               // of the root, behind it
	}{
		"the caller is cancelled": {func(w *world, root string) {
			w.to(root)
			w.cancel()
		}, run.RunDone},
		"the call has expired": {func(w *world, root string) {
			w.to(root)
			w.commit(
				w.call("c1").Claim,
				run.CallSuspended{Call: "c1", For: run.ForAnswer, Expires: w.ports.Clock.Now().Add(time.Second)},
				run.CallCancelled{Call: "c1", Reason: run.WhyExpired, Content: "late"},
			)
		}, run.RunRunning},
	} {
		subtest(t, name, func(t *testing.T, w *world) {
			w.delegating(1)
			w.startWith(calls(`ask c1 {"message":"Help."}`))
			root := w.run
			require.Equal(t, runtime.NextTools, w.step(0).Next)
			child := agent.ChildID(tenant, "aide0", root, "c1")
			w.table.Once(meanwhile(func(ops []store.Op) bool { return ops[0].Item.PK == "T#"+tenant+"#RUN#"+child }, func() { c.meanwhile(w, root) }))
			w.waiter.onStart = func(name string) error { // the execution begins at once, while who started it has not come on
				if name == runtime.ExecutionName(child, 0) {
					w.to(child)
					w.step(0)
				}
				return nil
			}
			first := w.inv(0)
			require.NoError(t, errOf(w.batch().Run(w.ctx, first)))
			w.waiter.onStart = nil
			w.to(child)
			require.Equal(t, run.RunDone, w.state().Status)
			require.Equal(t, run.ReasonCancelled, w.state().Reason)
			require.Len(t, w.model.asked, 1, "the root has asked")
			require.Zero(t, w.state().ModelCalls)
			w.to(root)
			require.Equal(t, c.status, w.state().Status)
		})
	}
}

// TestCancellingALine: cancelling the root ends every run below it, however deep, counts each once, and takes requests in proportion to the
// square of the depth at most, not twice as many for each level.
func TestCancellingALine(t *testing.T) {
	cost := func(levels int) (requests int64) {
		inBubble(t, func(t *testing.T, w *world) {
			w.delegating(levels)
			w.startWith(calls(`ask c1 {"message":"Help."}`))
			root, line := w.run, []string{w.run}
			for range levels {
				w.drive(0)
				w.to(w.child())
				line = append(line, w.run)
			}
			w.to(root)
			before := w.counts.Counts()
			w.cancel()
			did := w.counts.Counts().Sub(before)
			requests = did.Gets + did.Queries + did.Writes + did.Transactions
			for _, runID := range line {
				w.to(runID)
				require.Equal(t, run.ReasonCancelled, w.state().Reason, runID)
			}
		})
		return requests
	}
	four, eight := cost(4), cost(8)
	require.LessOrEqual(t, eight, 4*four)
}
