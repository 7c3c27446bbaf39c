// Package tool is for writing tools: a description, a way to run it, and optionally a way to find out whether an interrupted run of it
// happened.
package tool

import "github.com/countersign/countersign/internal/tools/port"

// Call is one call as a tool receives it.
type Call = port.Call

// Tool runs calls.
type Tool = port.Tool

// LostError is the error of a call whose answer was lost: it may have been carried out.
type LostError = port.LostError

// ChangedError is the error of a call that was not sent because its tool is not what the run is pinned to.
type ChangedError = port.ChangedError

// Outcome is what Reconcile found out.
type Outcome = port.Outcome

// Reconciler is implemented by tools that can tell what became of a call whose claimant died.
type Reconciler = port.Reconciler

// The outcomes.
const (
	OutcomeDone    = port.OutcomeDone    // it happened; the result is given
	OutcomeNotDone = port.OutcomeNotDone // it did not happen and never will by that attempt
	OutcomeUnknown = port.OutcomeUnknown // a person must say
)
