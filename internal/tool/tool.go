// Package tool is for writing tools, and what a tool is to the runtime: a description, a way to run it, and optionally
// a way to find out whether an interrupted run of it happened.
package tool

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
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

// Describe returns the sentence of a tool for a call, on one line; "" if the tool has none. A panic of the tool's code
// is no sentence either: people are shown the call.
func Describe(t Tool, args json.RawMessage) (sentence string) {
	defer func() {
		if recover() != nil {
			sentence = ""
		}
	}()
	for {
		if d, ok := t.(Describer); ok {
			return agent.Bounded(strings.TrimSpace(d.Describe(args)))
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

// Reconciler is implemented by tools that can tell what became of a call whose claimant died. It has no effect itself.
type Reconciler interface {
	Reconcile(ctx context.Context, c Call) (Outcome, agent.ToolResultData, error)
}

// Set is the tools of one registry, by original name. It does not change once made and is safe for concurrent use; the
// zero Set is empty.
type Set struct {
	byName map[string]Tool
	specs  []agent.ToolSpec
}

// NewSet makes a set of tools in that order. Each spec is read once and kept. It returns an error for a nil tool, a
// spec no run could use (as New does), and two tools whose original or model-facing names are the same, with both.
func NewSet(tools ...Tool) (*Set, error) {
	s := &Set{byName: map[string]Tool{}}
	taken := map[string]string{} // model-facing name to original name
	for i, t := range tools {
		if t == nil {
			return nil, fmt.Errorf("make tool set: tool %d is nil", i)
		}
		spec := t.Spec()
		if _, err := checkSpec(spec); err != nil {
			return nil, fmt.Errorf("make tool set: tool %q: %w", spec.Name, err)
		}
		if other, ok := taken[spec.ModelName()]; ok {
			return nil, fmt.Errorf("make tool set: tools %q and %q are both %q to the model", other, spec.Name, spec.ModelName())
		}
		taken[spec.ModelName()] = spec.Name
		s.byName[spec.Name] = t
		s.specs = append(s.specs, spec)
	}
	return s, nil
}

// Lookup returns the tool of that original name.
func (s *Set) Lookup(original string) (Tool, bool) {
	t, ok := s.byName[original]
	return t, ok
}

// Specs returns copies of the specs in order of registration.
func (s *Set) Specs() []agent.ToolSpec {
	out := slices.Clone(s.specs)
	for i := range out {
		out[i].Schema = bytes.Clone(out[i].Schema)
	}
	return out
}

// State reads the value at a JSON Pointer of the state that the run's tools share, as the call sees it; "" is all of
// it. found is false, and the value zero, where there is none. A number in an interface is a json.Number. It returns an
// error for a malformed pointer and for a value that is no T.
func State[T any](c Call, pointer string) (v T, found bool, err error) {
	state := c.State
	if len(state) == 0 {
		state = json.RawMessage(`{}`)
	}
	raw, found, err := jsonx.Lookup(state, pointer)
	if err != nil || !found {
		return v, false, err
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		return *new(T), true, fmt.Errorf("read %q of the run's state: it is no %T", pointer, v)
	}
	return v, true, nil
}

// Change is one change of the state that the run's tools share. Make it by SetState or UnsetState.
type Change struct {
	patch run.Patch
	err   error
}

// SetState makes the JSON form of v the value at a JSON Pointer: see agent.Patch for what is made on the way and for
// lists, where "-" appends.
func SetState(pointer string, v any) Change {
	raw, err := jsonx.MarshalVerbatim(v)
	if err != nil {
		err = fmt.Errorf("set %q of the run's state: %T has no JSON form", pointer, v)
	}
	return Change{run.Patch{Path: pointer, Value: raw}, err}
}

// UnsetState takes the member at a JSON Pointer out of its object. Where there is none it does nothing.
func UnsetState(pointer string) Change { return Change{patch: run.Patch{Path: pointer}} }

// Patched is the result r of a call that also changes the state, in that order, once it is stored. A result that is an
// error changes nothing.
//
// It returns an error where a value has no JSON form. A change that the state does not take is an error result of the
// call; in a parallel round, another call's change of the same path ends the run (state_conflict).
func Patched(r agent.ToolResultData, changes ...Change) (agent.ToolResultData, error) {
	for _, c := range changes {
		if c.err != nil {
			return agent.ToolResultData{}, c.err
		}
		r.Patch = append(r.Patch, c.patch)
	}
	return r, nil
}

// Text is a successful result with that text.
func Text(s string) agent.ToolResultData { return agent.ToolResultData{Content: s} }

// JSON is a successful result holding v as JSON on one line, characters such as < and & as they are. It returns the
// error of encoding/json when v has no JSON form.
func JSON(v any) (agent.ToolResultData, error) {
	b, err := jsonx.MarshalVerbatim(v)
	if err != nil {
		return agent.ToolResultData{}, fmt.Errorf("encode tool result: %w", err)
	}
	return Text(string(b)), nil
}

// Ask is the result of a tool that has had no effect and cannot go on before people answer. Once they have, the call is
// entered again with their answer in Call.Resume, unless the ticket's mode says otherwise.
func Ask(t run.Ticket) agent.ToolResultData { return agent.ToolResultData{Suspend: &t} }

// Errorf is a tool's own, considered failure: the model hears the text.
func Errorf(format string, args ...any) agent.ToolResultData {
	return agent.ToolResultData{Content: fmt.Sprintf(format, args...), IsError: true}
}

// Refusal is Errorf for code deeper than a tool's own function: an error whose text is meant for the model. A tool made
// by New that returns one, wrapped or not, answers its text as an error result; every other error stays an error.
type Refusal string

// Error is the text for the model.
func (r Refusal) Error() string { return string(r) }

// Refusef makes a Refusal.
func Refusef(format string, args ...any) error { return Refusal(fmt.Sprintf(format, args...)) }

// LostError is the error of a call that was sent and whose answer did not come, or could not be read: whoever carries
// it out may have done it. Where doing it twice is one time too many, nobody can say what became of it. A call that was
// surely not sent, or surely refused, is an error of another type.
type LostError struct{ Err error }

func (e *LostError) Error() string { return fmt.Sprintf("the answer was lost: %v", e.Err) }

func (e *LostError) Unwrap() error { return e.Err }

// ChangedError is the error of a call that was not sent, because the tool is not, or is no longer, what the run is
// pinned to.
type ChangedError struct {
	Server, Tool string // the server's name in the definition, and its own name of the tool
	Want         string // the digest the run is pinned to
	Got          string // the digest of what the server says now; "" = it has no such tool
}

func (e *ChangedError) Error() string {
	if e.Got == "" {
		return fmt.Sprintf("the server %s no longer has the tool %s; the call was not made", e.Server, e.Tool)
	}
	return fmt.Sprintf("the server %s has changed its definition of the tool %s since the run began; "+
		"the call was not made", e.Server, e.Tool)
}
