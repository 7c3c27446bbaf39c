package agent

import (
	"context"

	core "github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/tool"
)

// Tool is something that a model may call. Make one with NewTool, or implement it: Spec describes the tool, Call
// carries out one call. A spec needs Name, Description and Schema; its zero Kind and Effect are KindInternal and
// EffectNonIdempotent. A tool is safe for concurrent use.
type Tool = tool.Tool

// Call is one call as a tool receives it. Call.Key is equal on every attempt of the same call: pass it on as an
// idempotency key. Call.Root is the folder of a tool that has one, Call.Resume what people answered to AskPeople.
type Call = tool.Call

// Result is what a tool gives back: Content, the text; IsError; Media. The zero Result is an empty text.
type Result = core.ToolResultData

// ToolSpec describes a tool of a definition: name, description, schema of its arguments, effect.
type ToolSpec = core.ToolSpec

// ToolOptions are the optional parts of a tool. The zero value and nil are valid: the runtime's default timeout, no
// reconciliation.
type ToolOptions[In any] = tool.Options[In]

// Effect says what calling a tool twice means.
type Effect = run.Effect

// The effects.
const (
	EffectRead          = run.EffectRead          // nothing changes; no person is asked by default
	EffectIdempotent    = run.EffectIdempotent    // twice with the same Call.Key is once
	EffectNonIdempotent = run.EffectNonIdempotent // twice is twice; the default of NewTool
)

// NewTool makes a tool of a function. Its JSON Schema is derived from In, a struct whose tags json, jsonschema and
// jsonschema_description (of github.com/invopop/jsonschema) are read: a field without omitempty or omitzero is
// required. A default is told to the model and not filled in. In the tag jsonschema a comma ends a text, and a keyword
// that the type does not have means nothing: a look at Spec().Schema shows what there is.
//
// A type with UnmarshalText is a string. One with UnmarshalJSON and no exported fields is any value, unless its method
// JSONSchema says what it reads. A time.Duration is a number of nanoseconds. Arguments that do not fit reach neither f
// nor an approver.
//
// An error of f says that the call did not happen: the model is told, and a call of any other effect than
// EffectNonIdempotent is repeated as the agent's retry says. Where the call may have happened, as after a lost answer,
// f returns a *LostError: a non-idempotent call is then not repeated, and Reconcile or a person says what became of it.
// The same holds where f panics or outlives its timeout. An error made by Refuse is told to the model as it is.
//
// NewTool returns an error for a name that models do not take, a missing description or function, and a type without a
// schema.
func NewTool[In any](
	name, description string, effect Effect, f func(ctx context.Context, c Call, in In) (Result, error),
	opts *ToolOptions[In],
) (Tool, error) {
	return tool.New(name, description, effect, f, opts)
}

// BuiltinTools are the tools that agents may name without bringing them: list_directory, read_text, move_file and
// extract_text, each confined to the folder that the agent names.
func BuiltinTools() ([]Tool, error) { return tool.Builtin() }

// TextResult is a successful result with a text.
func TextResult(text string) Result { return tool.Text(text) }

// JSONResult is a successful result with v as JSON on one line. The error is encoding/json's.
func JSONResult(v any) (Result, error) { return tool.JSON(v) }

// ErrorResult is a failure that the model reads and may react to.
func ErrorResult(format string, args ...any) Result { return tool.Errorf(format, args...) }

// Refuse is ErrorResult as an error, for code below a tool's own function.
func Refuse(format string, args ...any) error { return tool.Refusef(format, args...) }

// Ticket is a question of a tool's own to people: Message, ResponseSchema of the answer, Memo that comes back with it.
// The zero Ticket asks whether the call may go on.
type Ticket = run.Ticket

// AskPeople is the result of a tool that had no effect yet and needs an answer first. After the answer the tool is
// called again with it in Call.Resume.
func AskPeople(t Ticket) Result { return tool.Ask(t) }

// Describer is a Tool that can say in one sentence what a call would do, for those who are asked to approve it.
// ToolOptions.Describe makes one.
type Describer = tool.Describer

// Reconciler is a Tool that can say what became of a call whose process died, that timed out or whose answer was lost.
// ToolOptions.Reconcile makes one.
type Reconciler = tool.Reconciler

// Outcome is what became of a call.
type Outcome = tool.Outcome

// The outcomes.
const (
	OutcomeDone    = tool.OutcomeDone    // it happened; the result is given
	OutcomeNotDone = tool.OutcomeNotDone // it did not happen and never will by that attempt
	OutcomeUnknown = tool.OutcomeUnknown // a person decides
)

// LostError is the error of a call that was sent and whose answer was lost: it may have happened. See NewTool.
type LostError = tool.LostError

// Change is one change of the state that the tools of a run share. Make it by SetState or UnsetState.
type Change = tool.Change

// State reads the value at a JSON Pointer of the run's shared state; "" is all of it. found is false, and the value
// zero, where there is none. The error is that of a malformed pointer, or of a value that is no T.
func State[T any](c Call, pointer string) (value T, found bool, err error) {
	return tool.State[T](c, pointer)
}

// SetState sets the value at a JSON Pointer to the JSON form of v; a pointer that ends in "/-" appends to a list.
func SetState(pointer string, v any) Change { return tool.SetState(pointer, v) }

// UnsetState removes the member at a JSON Pointer. Where there is none it does nothing.
func UnsetState(pointer string) Change { return tool.UnsetState(pointer) }

// WithState is the result r of a call that also changes the shared state, once r is stored. A result that is an error
// changes nothing.
func WithState(r Result, changes ...Change) (Result, error) { return tool.Patched(r, changes...) }
