// Package tool helps to write tools, has the built-in ones, and defines a tool for the runtime: a description, a way to
// run it, and optionally a way to find out whether an interrupted call happened.
package tool

import (
	"bytes"
	"cmp"
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
	Attempt         int             // number of the attempt in one invocation, from 1; 0 = the tool is not run
	Root            string          // the folder to which the definition confines the tool; "" = none
	// people's answer to the tool's last question in this call; nil = the tool has not asked. Never nil after an answer
	Resume json.RawMessage

	Memo string // Memo of the ticket that Resume answers; "" = none

	// State is a copy of the state that the run's tools share, a JSON object. Under a sequential executor it includes the
	// changes of earlier calls. All calls of a parallel round get the state from before the round, on every attempt.
	State json.RawMessage
}

// Tool runs calls. Call may be entered concurrently. An error is an infrastructure error or a bug, and the model sees
// it as a failed call. A result with IsError is the tool's own answer. A result with Suspend asks people for input: the
// tool has had no effect yet, and the call is entered again under the same key once they have answered. The runtime
// catches panics.
type Tool interface {
	Spec() agent.ToolSpec
	Call(ctx context.Context, c Call) (agent.ToolResultData, error)
}

// Describer is implemented by tools that can say in one sentence what a call would do, for its approvers. Secrets in
// the arguments are masked. "" = no sentence for this call. The sentence is shown above the arguments, escaped and cut
// at its limit. It is not part of what is approved.
type Describer interface {
	Describe(args json.RawMessage) string
}

// Describe returns a tool's sentence for a call, on one line; "" if the tool has none. If the tool's code panics, the
// result is "" and approvers see the call itself.
func Describe(t Tool, args json.RawMessage) (sentence string) {
	defer func() {
		if recover() != nil {
			sentence = ""
		}
	}()
	for {
		if d, ok := t.(Describer); ok {
			return agent.Bounded(strings.TrimSpace(d.Describe(bytes.Clone(args))))
		}
		wrapped, ok := t.(interface{ Unwrap() Tool })
		if !ok {
			return ""
		}
		t = wrapped.Unwrap()
	}
}

// Outcome is the result of Reconcile.
type Outcome string

// The outcomes.
const (
	OutcomeDone    Outcome = "done"     // the call happened; the result is returned
	OutcomeNotDone Outcome = "not_done" // the call did not happen and never will by that attempt
	OutcomeUnknown Outcome = "unknown"  // a person has to decide
)

// Reconciler is implemented by tools that know the outcome of a call whose claimant died. It has no effect itself.
type Reconciler interface {
	Reconcile(ctx context.Context, c Call) (Outcome, agent.ToolResultData, error)
}

// Set holds a registry's tools by original name. It is immutable and safe for concurrent use. The zero Set is empty.
type Set struct {
	byName map[string]Tool
	specs  []agent.ToolSpec
}

// NewSet makes a set of tools in that order. Each spec is read once and stored, with the defaults for its kind and
// effect. It returns an error for a nil tool, for a spec that no run could use (as New does), and for two tools with
// the same original or model-facing name, naming both.
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
		spec.Kind = cmp.Or(spec.Kind, agent.KindInternal)
		spec.Effect = cmp.Or(spec.Effect, run.EffectNonIdempotent)
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

// State reads the value at a JSON Pointer of the state that the run's tools share, as the call sees it; "" is the whole
// state. If there is no value, found is false and v is zero. A number in an interface is a json.Number. It returns an
// error for a malformed pointer and for a value that is not a T.
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

// Change is one change of the state that the run's tools share. Use SetState or UnsetState to make one.
type Change struct {
	patch run.Patch
	err   error
}

// SetState returns the change that sets the value at a JSON Pointer to the JSON form of v. jsonx.Patch describes
// missing parents and lists, where "-" appends.
func SetState(pointer string, v any) Change {
	raw, err := jsonx.MarshalVerbatim(v)
	if err != nil {
		err = fmt.Errorf("set %q of the run's state: %T has no JSON form", pointer, v)
	}
	return Change{run.Patch{Path: pointer, Value: raw}, err}
}

// UnsetState returns the change that removes the member at a JSON Pointer from its object. A missing one is no error.
func UnsetState(pointer string) Change { return Change{patch: run.Patch{Path: pointer}} }

// Patched returns the result r with changes of the state, which are applied in that order when the result is stored. A
// result that is an error changes nothing.
//
// It returns an error if a value has no JSON form. A change that does not fit the state becomes an error result of the
// call. In a parallel round, another call's change of the same path ends the run (state_conflict).
func Patched(r agent.ToolResultData, changes ...Change) (agent.ToolResultData, error) {
	for _, c := range changes {
		if c.err != nil {
			return agent.ToolResultData{}, c.err
		}
		r.Patch = append(r.Patch, c.patch)
	}
	return r, nil
}

// Text returns a successful result with that text.
func Text(s string) agent.ToolResultData { return agent.ToolResultData{Content: s} }

// JSON returns a successful result with v as JSON on one line, without escaping characters such as < and &. It returns
// the error of encoding/json if v has no JSON form.
func JSON(v any) (agent.ToolResultData, error) {
	b, err := jsonx.MarshalVerbatim(v)
	if err != nil {
		return agent.ToolResultData{}, fmt.Errorf("encode tool result: %w", err)
	}
	return Text(string(b)), nil
}

// Ask returns the result of a tool that has had no effect and needs an answer of people. After the answer, the call is
// entered again with it in Call.Resume, unless the ticket's mode says otherwise.
func Ask(t run.Ticket) agent.ToolResultData { return agent.ToolResultData{Suspend: &t} }

// Errorf returns a tool's own failure, whose text the model sees.
func Errorf(format string, args ...any) agent.ToolResultData {
	return agent.ToolResultData{Content: fmt.Sprintf(format, args...), IsError: true}
}

// Refusal is Errorf for code below a tool's function: an error whose text is meant for the model. A tool made by New
// that returns a Refusal, wrapped or not, has its text as an error result. Any other error stays an error.
type Refusal string

// Error returns the text for the model.
func (r Refusal) Error() string { return string(r) }

// Refusef returns a Refusal.
func Refusef(format string, args ...any) error { return Refusal(fmt.Sprintf(format, args...)) }

// LostError is the error of a call that was sent but whose answer was lost or unreadable, so the call may have
// happened. For a non-idempotent call the outcome is unknown. A call that was certainly not sent, or certainly refused,
// has an error of another type.
type LostError struct{ Err error }

func (e *LostError) Error() string { return fmt.Sprintf("the answer was lost: %v", e.Err) }

func (e *LostError) Unwrap() error { return e.Err }

// ChangedError is the error of a call that was not sent, because the server's tool differs from the pinned one.
type ChangedError struct {
	Server, Tool string // the server's name in the definition, and its own name for the tool
	Want         string // the pinned digest
	Got          string // the digest of the server's current definition; "" = it has no such tool
}

func (e *ChangedError) Error() string {
	if e.Got == "" {
		return fmt.Sprintf("the server %s no longer has the tool %s; the call was not made", e.Server, e.Tool)
	}
	return fmt.Sprintf("the server %s has changed its definition of the tool %s since the run began; "+
		"the call was not made", e.Server, e.Tool)
}
