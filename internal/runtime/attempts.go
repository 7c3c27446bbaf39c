package runtime

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/tool"
)

// retryScope bounds the retries of an invocation: its context ends with the invocation, or when the run belongs to
// another.
type retryScope struct {
	ctx  context.Context
	stop context.CancelFunc
}

// entries is what came of calling a tool as often as its retry policy allows: the last result or error.
type entries struct {
	n        int // how often it was entered
	result   agent.ToolResultData
	err      error
	timedOut bool // the last one was given up on, and may still be under way
}

// reportedEntries is how often the tool was called, for the journal: 0 where the call's kind or its claim says it
// already.
func (a entries) reportedEntries() int {
	if a.n > 1 {
		return a.n
	}
	return 0
}

// isUnsure reports whether the outcome of the last call is unknown: it timed out, or its answer was lost.
func (a entries) isUnsure() bool {
	var lost *tool.LostError
	return a.timedOut || errors.As(a.err, &lost)
}

// errorText is the text of an error with the number of tries.
func (a entries) errorText(said string) string {
	if a.n > 1 {
		said += policy.TextAttempts(a.n)
	}
	return said
}

// enterUntilDone calls a tool until it answers, or until its retry policy, the invocation or the run allow no other
// try. Each try has the same key, the same state and the tool's whole time.
func (r *round) enterUntilDone(ctx context.Context, t tool.Tool, c run.Call, entered tool.Call) entries {
	spec, _ := r.def.Tool(c.Tool)
	var a entries
	_ = clock.Retry(r.retries.ctx, r.Clock, func(n int) (time.Duration, bool) { // a has what the last try gave
		once := entered // a tool has its own copies, to do with as it likes
		once.Attempt, once.Args = n, bytes.Clone(entered.Args)
		once.State, once.Resume = bytes.Clone(entered.State), bytes.Clone(entered.Resume)
		a.n = n
		limited, cancel := r.Clock.WithTimeout(ctx, r.timeout(ctx, c))
		defer cancel()
		a.result, a.err = callTool(limited, r.Clock, t, once)
		a.timedOut = a.err != nil && limited.Err() != nil
		wait, again := spec.Retry.Again(c.Effect, n)
		if at, ok := ctx.Deadline(); ok && at.Sub(r.Clock.Now())-wait < launchMargin { // no time to start another
			again = false
		}
		var changed *tool.ChangedError // from the one that the run is pinned to: another try does not change that
		return wait, again && a.err != nil && !errors.As(a.err, &changed)
	})
	return a
}
