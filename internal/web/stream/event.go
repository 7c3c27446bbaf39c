// Package stream makes of a run one sequence of events (docs/events.md) and writes them in the formats that
// clients know.
//
// The events of an entry are a pure function of the entry, of the run before it and of the definition the run is
// pinned to. The stream of a run is the events of its entries, one entry after the other. An event's place is the
// entry's sequence and the event's index in it; whoever has seen the stream up to a place gets exactly the rest.
// Events are not stored: the journal is.
//
// Order. An attempt begins with run_start and ends with run_finish. Behind run_finish stands nothing but the next
// attempt's run_start. Parking ends an attempt with the termination suspended. step_end stands before the outcomes
// of the step's calls. Among an entry's neighbouring outcomes, calls that came to wait stand before calls that are
// done. An event that was not committed is in no stream.
//
// Text is told live while the model writes it, and never again as a piece: a piece has no place. The step's
// inference_complete has the whole text.
package stream

import (
	"cmp"
	"encoding/json"
	"fmt"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/plan"
	"github.com/countersign/countersign/internal/run"
)

// Type is the type of an event.
type Type string

// The types. The deltas are live only: Types has the others.
const (
	RunStart         Type = "run_start"
	StepStart        Type = "step_start"
	TextDelta        Type = "text_delta"
	ReasoningDelta   Type = "reasoning_delta"
	ToolCallDelta    Type = "tool_call_delta"
	EncryptedThought Type = "reasoning_encrypted_value"
	ToolCallStart    Type = "tool_call_start"
	ToolCallReady    Type = "tool_call_ready"
	ToolCallDone     Type = "tool_call_done"
	ToolCallResumed  Type = "tool_call_resumed"
	InferenceDone    Type = "inference_complete"
	StepEnd          Type = "step_end"
	StateSnapshot    Type = "state_snapshot"
	StateDelta       Type = "state_delta"
	MessagesSnapshot Type = "messages_snapshot"
	ActivitySnapshot Type = "activity_snapshot"
	PlanCreated      Type = "plan_created"
	StepExecuting    Type = "step_executing"
	StepCompleted    Type = "step_completed"
	Error            Type = "error"
	RunFinish        Type = "run_finish"
)

// Types are the types that the events of entries have.
func Types() []Type {
	return []Type{
		RunStart, StepStart, EncryptedThought, ToolCallStart, ToolCallReady, ToolCallDone, ToolCallResumed, InferenceDone,
		StepEnd, StateSnapshot, StateDelta, MessagesSnapshot, ActivitySnapshot, PlanCreated, StepExecuting, StepCompleted,
		Error, RunFinish,
	}
}

// Event is one event of a run's stream. Seq is its entry's sequence, Index its place among the entry's events.
type Event struct {
	Type   Type   `json:"type"`
	Run    string `json:"run_id"`
	Thread string `json:"thread_id"` // the run's subject; the run where it has none
	Seq    int64  `json:"seq"`
	Index  int    `json:"index"`
	Time   int64  `json:"timestamp_ms"`      // of the entry, since 1970
	Step   string `json:"step_id,omitempty"` // step_N, the run's N-th inference; "" = about the run
	Data   any    `json:"data"`              // one of the structs below, by Type

	agent, version string    // of the run
	parent         string    // the run that it continues or branches off, else the one whose call it carries out
	at             time.Time // Time, as fine as it is known
}

// newEvent is an event of run s without its place and data.
func newEvent(s *run.AgentState, t Type, at time.Time) Event {
	e := Event{
		Type: t, Run: s.Run, Thread: cmp.Or(s.Subject, s.Run), Time: at.UnixMilli(), agent: s.Agent, version: s.Version, at: at,
	}
	if s.From != nil {
		e.parent = s.From.Run
	} else if s.Parent != nil {
		e.parent = s.Parent.Run
	}
	return e
}

// RunStartData begins an attempt.
type RunStartData struct {
	Parent  string `json:"parent_run_id,omitempty"` // the run that it continues or branches off
	Agent   string `json:"agent"`
	Version string `json:"version,omitempty"`
	Resumed bool   `json:"resumed,omitempty"` // the run goes on: this is not its first attempt

	DelegatedBy *DelegatorData `json:"delegated_by,omitempty"` // nil = nobody delegated it
}

// DelegatorData is the call that a run carries out.
type DelegatorData struct {
	Agent string `json:"agent"`
	Run   string `json:"run_id"`
	Call  string `json:"call_id"`
	Root  string `json:"root_run_id"` // the run that nobody delegated
}

// StepStartData begins an inference. It is known once the inference is there.
type StepStartData struct {
	Message   string        `json:"message_id"` // of the model's turn
	Lifecycle run.Lifecycle `json:"lifecycle,omitempty"`
	Cycle     Cycle         `json:"interactions"`

	// What the model was asked with, for the encodings that tell it with every step.
	system   string
	messages []run.Message
	asked    int64    // inferences before this one
	tools    []string // as the model knows them
	output   agent.OutputKind
}

// Cycle is the quota as an inference began.
type Cycle struct {
	Max       int  `json:"max"`
	Current   int  `json:"current"`
	Exhausted bool `json:"exhausted"`
}

// EncryptedThoughtData is reasoning that its provider alone can read.
type EncryptedThoughtData struct {
	Message string `json:"message_id"`
	Value   []byte `json:"value"` // base64
}

// ToolCallStartData begins a call; Pending, the call that it stands for.
type ToolCallStartData struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Pending string `json:"pending_call_id,omitempty"` // it asks a person about this call; "" = the model made it
}

// ToolCallReadyData is a call with its arguments. The model's are what it asked for, before any edit.
type ToolCallReadyData struct {
	ID        string          `json:"id"`
	Name      string          `json:"name"` // the name the model used
	Arguments json.RawMessage `json:"arguments"`
	Tool      string          `json:"tool,omitempty"`     // the original name
	Kind      agent.ToolKind  `json:"kind,omitempty"`     // "" = no tool of that name
	Repaired  bool            `json:"repaired,omitempty"` // the model's arguments were not JSON and were made it
	Pending   string          `json:"pending_call_id,omitempty"`
	For       run.WaitFor     `json:"for,omitempty"`      // of a pending one: what is asked for
	Approval  string          `json:"approval,omitempty"` // of a pending one: the request people see

	input   json.RawMessage // of a pending one: the arguments of the call that waits
	missing bool            // the agent has no such tool
}

// ToolCallDoneData is what became of a call.
type ToolCallDoneData struct {
	ID      string         `json:"id"`
	Name    string         `json:"name"`
	Tool    string         `json:"tool"`
	Kind    agent.ToolKind `json:"kind,omitempty"`
	Result  ToolResult     `json:"result"`
	Patch   []run.Patch    `json:"patch,omitempty"` // of the shared state, once its round is at rest
	Message string         `json:"message_id"`      // of the result
	Outcome run.CallStatus `json:"outcome"`         // succeeded, failed or cancelled
	Reason  run.CallReason `json:"reason,omitempty"`
}

// ToolResult is a result as it is stored: a long one is in its blob.
type ToolResult struct {
	Content string      `json:"content"`
	Blob    string      `json:"blob,omitempty"`
	IsError bool        `json:"is_error,omitempty"`
	Media   []run.Media `json:"media,omitempty"`
	Whole   *run.Whole  `json:"whole,omitempty"` // where all of it is, where it was cut
}

// ToolCallResumedData is the end of a wait: somebody has said something. Target is the pending call of it.
type ToolCallResumedData struct {
	Target string  `json:"target_id"`
	Call   string  `json:"call_id"`
	Result Verdict `json:"result"`

	name string // of the call
	kind agent.ToolKind
}

// Verdict is what was said of a call that waited.
type Verdict struct {
	Action    run.DecisionAction `json:"action,omitempty"` // of a decision
	By        string             `json:"by,omitempty"`
	Note      string             `json:"note,omitempty"`
	Arguments json.RawMessage    `json:"arguments,omitempty"` // an edit: these run instead
	Approval  string             `json:"approval,omitempty"`
	Result    json.RawMessage    `json:"result,omitempty"`  // what was given with it
	Content   string             `json:"content,omitempty"` // of an answer
	Blob      string             `json:"blob,omitempty"`
	IsError   bool               `json:"is_error,omitempty"`
	Rerun     bool               `json:"rerun,omitempty"` // of an answer: it is run again
}

// StateSnapshotData is the state that the run's tools share.
type StateSnapshotData struct {
	State json.RawMessage `json:"state"`
}

// StateDeltaData is how the shared state changed: a JSON Patch (RFC 6902) of its members, sorted by name.
type StateDeltaData struct {
	Delta []StateOperation `json:"delta"`
}

// StateOperation is add, replace or remove.
type StateOperation struct {
	Op    string          `json:"op"`
	Path  string          `json:"path"`
	Value json.RawMessage `json:"value,omitempty"` // none with remove
}

// InferenceDoneData is a reply. Text is what is kept of it, all at once.
type InferenceDoneData struct {
	Model    string    `json:"model"`
	Usage    run.Usage `json:"usage"`
	Units    int64     `json:"execution_units,omitempty"`
	Requests int       `json:"requests"` // to any model, failed ones included
	Text     string    `json:"text,omitempty"`
	Stop     string    `json:"stop_reason,omitempty"`
	Refused  string    `json:"refused,omitempty"`     // why the text is not the run's output
	Duration int64     `json:"duration_ms,omitempty"` // from the beginning of the step to the reply

	RefusedAs run.CorrectionKind `json:"refused_as,omitempty"` // "" = it was cut short, or is no output
	Problem   string             `json:"problem,omitempty"`    // with a call that could not be read

	TextDropped bool           `json:"text_dropped,omitempty"` // there was a text beside the calls, which is not kept
	Context     *ContextBudget `json:"context,omitempty"`      // nil = nobody counts, or there was plenty

	// What the canonical form has in the conversation.
	thoughts []string // in order; those that their provider alone can read are none
	written  []string // what the text of a reply without calls has between thinking tags
	text     string   // without that, and without what stands between tags of tools
	sentBack bool     // it is not the last word, and the model is told why
}

// ContextBudget is what a request had of its model's window, in tokens.
type ContextBudget struct {
	Total     int `json:"total"`
	Remaining int `json:"remaining"` // for the conversation to grow
}

// DeltaData is a piece of text, of reasoning, or of a call's arguments, the first of which may be empty: a call
// begins.
type DeltaData struct {
	Delta   string `json:"delta"`
	Attempt int    `json:"attempt"` // another attempt says everything anew

	// Of a call.
	Index *int   `json:"index,omitempty"` // among the reply's calls, in order of their beginning
	ID    string `json:"id,omitempty"`    // as the model has it; the call of tool_call_start may have another
	Name  string `json:"name,omitempty"`  // of its tool, as the model has it

	content string // of the same text, reasoning or arguments in this attempt so far
}

// StepEndData ends an inference.
type StepEndData struct{}

// MessagesSnapshotData is the whole conversation, as a run's JSON shows it.
type MessagesSnapshotData struct {
	Messages json.RawMessage `json:"messages"`
	Summary  string          `json:"summary,omitempty"` // of messages that have left it

	evicted bool // it is told because messages have left
	list    []run.Message
}

// ActivitySnapshotData is what somebody beside the model did.
type ActivitySnapshotData struct {
	Message string `json:"message_id"`
	Kind    string `json:"activity_type"` // user_input or permission_request
	Content any    `json:"content"`
	Replace bool   `json:"replace"`
}

// InputContent is the content of the activity user_input.
type InputContent struct {
	By       string          `json:"by,omitempty"`
	Messages []run.UserBlock `json:"messages"`
}

// RequestContent is the content of the activity permission_request: people are asked about tools whose calls were
// blocked.
type RequestContent struct {
	Approval string          `json:"approval"`
	Reason   string          `json:"reason,omitempty"`
	Tools    []RequestedTool `json:"tools"`
}

// RequestedTool is one of them, with the calls that were blocked.
type RequestedTool struct {
	Kind  agent.ToolKind `json:"kind,omitempty"`
	Name  string         `json:"name"`
	Tool  string         `json:"tool"`
	Calls []string       `json:"calls"`
}

// ErrorData is what ends a run with the termination error, in front of its run_finish.
type ErrorData struct {
	Message string        `json:"message"`
	Code    run.ErrorCode `json:"code,omitempty"`
}

// RunFinishData ends an attempt.
type RunFinishData struct {
	Result      *Response  `json:"result,omitempty"` // only of a natural end with something said
	Termination run.Reason `json:"termination"`
	Waiting     []Waiting  `json:"waiting,omitempty"` // of a suspended one
}

// Response is what a run came to.
type Response struct {
	Response json.RawMessage `json:"response"` // a string, or the value where the output is JSON
}

// Waiting is a call that waits.
type Waiting struct {
	Call     string         `json:"call_id"`
	Name     string         `json:"name"`
	Tool     string         `json:"tool"`
	Kind     agent.ToolKind `json:"kind,omitempty"`
	For      run.WaitFor    `json:"for"`
	Approval string         `json:"approval,omitempty"`
}

// PlanCreatedData is a plan that is to be carried out.
type PlanCreatedData struct {
	Message string      `json:"message_id"`
	Steps   []plan.Step `json:"steps"`
}

// StepExecutingData begins a step of a plan. Its call comes, or does not, between this and its completion.
type StepExecutingData struct {
	Step        int    `json:"step"` // its number in the plan
	Description string `json:"description"`
}

// StepCompletedData is what came of a step: its call's result, an error too, or that no call came of it.
type StepCompletedData struct {
	Step    int    `json:"step"`
	Success bool   `json:"success"` // a tool was called, whatever it said
	Call    string `json:"call_id,omitempty"`
	Tool    string `json:"tool,omitempty"`    // the original name
	Preview string `json:"preview,omitempty"` // the first 200 characters of the result
}

func stepID(n int64) string {
	if n < 1 {
		return ""
	}
	return fmt.Sprint("step_", n)
}
