package runtime

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/tool"
)

// patience is how long an invocation goes on trying calls again: its context ends with the invocation, or when the run is not its own any
// more.
type patience struct {
	ctx  context.Context
	stop context.CancelFunc
}

func newPatience(ctx context.Context) patience {
	ctx, stop := context.WithCancel(ctx)
	return patience{ctx, stop}
}

// attempts is what came of entering a tool, as often as its policy says: the last one's word, or its error.
type attempts struct {
	n      int // how often it was entered
	result agent.ToolResultData
	err    error
	ranOut bool // the last one was given up on, and may still be under way
}

// entered is how often the tool was entered, as a fact says it: 0 where its kind or the claim says it already.
func (a attempts) entered() int {
	if a.n > 1 {
		return a.n
	}
	return 0
}

// unsure reports whether what became of the last one is open: it ran out of time, or its answer was lost.
func (a attempts) unsure() bool {
	var lost *tool.LostError
	return a.ranOut || errors.As(a.err, &lost)
}

// changed reports whether the tool is not what the run is pinned to: asking again does not change that.
func (a attempts) changed() bool {
	var changed *tool.ChangedError
	return errors.As(a.err, &changed)
}

// text is an error's, with how often it was tried.
func (a attempts) text(said string) string {
	if a.n > 1 {
		said += policy.TextAttempts(a.n)
	}
	return said
}

// attempts enters a tool until it gives its word, or the policy of its definition, the invocation or the run leave no other try. Each is
// under the same key, sees the same state and has the tool's whole time.
func (r *round) attempts(ctx context.Context, t tool.Tool, c run.Call, entered tool.Call) attempts {
	spec, _ := r.def.Tool(c.Tool)
	var a attempts
	for {
		a.n++
		once := entered // a tool has its own copies, to do with as it likes
		once.Attempt, once.Args, once.State, once.Resume = a.n, bytes.Clone(entered.Args), bytes.Clone(entered.State), bytes.Clone(entered.Resume)
		r.attempt(ctx, t, c, once, &a)
		wait, again := spec.Retry.Again(c.Effect, a.n)
		if a.err == nil || a.changed() || !again || !r.waitToRetry(ctx, wait) {
			return a
		}
	}
}

func (r *round) attempt(ctx context.Context, t tool.Tool, c run.Call, entered tool.Call, a *attempts) {
	ctx, cancel := r.Clock.WithTimeout(ctx, r.timeout(ctx, c))
	defer cancel()
	a.result, a.err = call(ctx, r.Clock, t, entered)
	a.ranOut = a.err != nil && ctx.Err() != nil
}

// waitToRetry waits before another attempt, and reports whether there is to be one: there must be time to start it, and the run still be
// this invocation's.
func (r *round) waitToRetry(ctx context.Context, wait time.Duration) bool {
	if at, ok := ctx.Deadline(); ok && at.Sub(r.Clock.Now())-wait < launchMargin {
		return false
	}
	return r.Clock.Sleep(r.patience.ctx, wait) == nil && r.patience.ctx.Err() == nil
}
