// Package tool is for writing tools, and what a tool is to the runtime: a description, a way to run it, and optionally
// a way to find out whether an interrupted run of it happened.
package tool

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
)

// Call is one call as a tool receives it.
type Call struct {
	Tenant, Run, ID string
	Name            string          // original tool name
	Args            json.RawMessage // validated against the schema, the stored bytes
	Key             string          // stable idempotency key run/call; equal on every attempt
	Attempt         int             // which one this is of one invocation, from 1; 0 = nothing is entered
	Root            string          // the folder the definition confines the tool to; empty = it names none
	// what people answered when the tool last asked for input in this call; nil = it did not. Never nil after it did
	Resume json.RawMessage

	Memo string // what the tool's own ticket had in Memo when it asked for Resume; "" = nothing

	// State is a copy of the state that the run's tools share, a JSON object. Under a sequential executor it has what the
	// calls before this one changed; the calls of a parallel round all have that of before the round, on every attempt.
	State json.RawMessage
}

// Tool runs calls. Call may be entered concurrently. An error is infrastructure's or a bug's and is shown to the model
// as a failed call; a result with IsError is the tool's own, considered answer. A result with Suspend asks people for
// input: by it the tool says that it has had no effect, and once they have answered the call is entered again under the
// same key. A panic is caught by the runtime.
type Tool interface {
	Spec() agent.ToolSpec
	Call(ctx context.Context, c Call) (agent.ToolResultData, error)
}

// Describer is implemented by tools that can say in one sentence what a call would do, for the people who are asked to
// approve it. Secrets among the arguments are masked. "" = the tool has no sentence for this call. The sentence stands
// above the arguments and is no part of what is approved; what it says is escaped and cut at its limit.
type Describer interface {
	Describe(args json.RawMessage) string
}

// Describe returns the sentence of a tool for a call, on one line; "" if the tool has none. A panic of the tool's code is
// no sentence either: people are shown the call.
func Describe(t Tool, args json.RawMessage) (sentence string) {
	defer func() {
		if recover() != nil {
			sentence = ""
		}
	}()
	for {
		if d, ok := t.(Describer); ok {
			return run.Bounded(strings.TrimSpace(strings.ToValidUTF8(d.Describe(args), "\uFFFD")))
		}
		wrapped, ok := t.(interface{ Unwrap() Tool })
		if !ok {
			return ""
		}
		t = wrapped.Unwrap()
	}
}

// Outcome is what Reconcile found out.
type Outcome string

// The outcomes.
const (
	OutcomeDone    Outcome = "done"     // it happened; the result is given
	OutcomeNotDone Outcome = "not_done" // it did not happen and never will by that attempt
	OutcomeUnknown Outcome = "unknown"  // a person must say
)

// Reconciler is implemented by tools that can tell what became of a call whose claimant died. It has no effect of its
// own.
type Reconciler interface {
	Reconcile(ctx context.Context, c Call) (Outcome, agent.ToolResultData, error)
}
