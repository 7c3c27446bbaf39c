// Package stream turns a run into one sequence of events (docs/events.md) and encodes them in the formats of clients.
//
// The events of an entry are a pure function of the entry, of the run before it and of the pinned definition. The
// stream of a run is the events of its entries in order. An event's place is the entry's sequence and the event's index
// in the entry. A client that has the stream up to a place gets exactly the rest. Events are not stored; the journal
// is.
//
// Order: an attempt begins with run_start and ends with run_finish. Only the next attempt's run_start follows
// run_finish. Parking ends an attempt with the termination suspended. step_end precedes the outcomes of the step's
// calls. Among an entry's neighbouring outcomes, waiting calls precede finished calls. Uncommitted events are in no
// stream.
//
// Text is sent live while the model writes it. A piece has no place and is not repeated. The step's inference_complete
// has the whole text.
package stream

import (
	"cmp"
	"encoding/json"
	"fmt"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/prompt"
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

// Types returns the types of events that entries have.
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
	Thread string `json:"thread_id"` // the run's subject, else the run
	Seq    int64  `json:"seq"`
	Index  int    `json:"index"`
	Time   int64  `json:"timestamp_ms"`      // of the entry, since 1970
	Step   string `json:"step_id,omitempty"` // step_N, the run's N-th inference; "" = about the run
	Data   any    `json:"data"`              // one of the structs below, by Type

	agent, version string    // of the run
	parent         string    // the original run, else the calling run
	at             time.Time // Time in full precision
}

// newEvent returns an event of run s without its place and data.
func newEvent(s *run.AgentState, t Type, at time.Time) Event {
	e := Event{
		Type: t, Run: s.Run, Thread: cmp.Or(s.Subject, s.Run), Time: at.UnixMilli(), agent: s.Agent, version: s.Version,
		at: at,
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
	Parent  string `json:"parent_run_id,omitempty"` // the run that it continues or forks
	Agent   string `json:"agent"`
	Version string `json:"version,omitempty"`
	Resumed bool   `json:"resumed,omitempty"` // the run goes on: this is not its first attempt

	DelegatedBy *DelegatorData `json:"delegated_by,omitempty"` // nil = not delegated

	open []run.Call // calls with which a fork begins
}

// DelegatorData is the call that a run carries out.
type DelegatorData struct {
	Agent string `json:"agent"`
	Run   string `json:"run_id"`
	Call  string `json:"call_id"`
	Root  string `json:"root_run_id"` // the root run
}

// StepStartData begins an inference. It is written when the inference is done.
type StepStartData struct {
	Message   string        `json:"message_id"` // of the model's turn
	Lifecycle run.Lifecycle `json:"lifecycle,omitempty"`
	Cycle     Cycle         `json:"interactions"`

	// The model's request, for encodings that repeat it with every step.
	system   string
	messages []run.Message
	asked    int64    // inferences before this one
	tools    []string // as the model knows them
	output   agent.OutputKind
}

// Cycle is the interaction quota when an inference began.
type Cycle struct {
	Max       int  `json:"max"`
	Current   int  `json:"current"`
	Exhausted bool `json:"exhausted"`
}

// EncryptedThoughtData is reasoning that only its provider can read.
type EncryptedThoughtData struct {
	Message string `json:"message_id"`
	Value   []byte `json:"value"` // base64
}

// ToolCallStartData begins a call. With Pending it begins the request about that call.
type ToolCallStartData struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Pending string `json:"pending_call_id,omitempty"` // the call that people decide about; "" = a call of the model
}

// ToolCallReadyData is a call with its arguments: those of the model, before any edit.
type ToolCallReadyData struct {
	ID        string          `json:"id"`
	Name      string          `json:"name"` // the name the model used
	Arguments json.RawMessage `json:"arguments"`
	Tool      string          `json:"tool,omitempty"`     // the original name
	Kind      agent.ToolKind  `json:"kind,omitempty"`     // "" = no tool of that name
	Repaired  bool            `json:"repaired,omitempty"` // invalid JSON of the model was repaired
	Pending   string          `json:"pending_call_id,omitempty"`
	For       run.WaitFor     `json:"for,omitempty"`      // of a pending call: what it waits for
	Approval  string          `json:"approval,omitempty"` // of a pending call: the approval request

	input   json.RawMessage // of a pending call: the waiting call's arguments
	missing bool            // the agent has no such tool
}

// ToolCallDoneData is the outcome of a call.
type ToolCallDoneData struct {
	ID      string         `json:"id"`
	Name    string         `json:"name"`
	Tool    string         `json:"tool"`
	Kind    agent.ToolKind `json:"kind,omitempty"`
	Result  ToolResult     `json:"result"`
	Patch   []run.Patch    `json:"patch,omitempty"` // of the shared state, when the round is complete
	Message string         `json:"message_id"`      // of the result
	Outcome run.CallStatus `json:"outcome"`         // succeeded, failed or cancelled
	Reason  run.CallReason `json:"reason,omitempty"`

	pending string // the pending call that nobody has decided about and that ends with the call; "" = none
}

// ToolResult is a result as it is stored. A long one is in its blob.
type ToolResult struct {
	Content string      `json:"content"`
	Blob    string      `json:"blob,omitempty"`
	IsError bool        `json:"is_error,omitempty"`
	Media   []run.Media `json:"media,omitempty"`
	Whole   *run.Whole  `json:"whole,omitempty"` // where the whole result is, if it was cut
}

func newToolResult(r *run.Result) ToolResult {
	return ToolResult{Content: r.Content, Blob: r.Blob, IsError: r.IsError, Media: r.Media, Whole: r.Whole}
}

// ToolCallResumedData is the end of a wait by a decision or an answer. Target is the pending call.
type ToolCallResumedData struct {
	Target string  `json:"target_id"`
	Call   string  `json:"call_id"`
	Result Verdict `json:"result"`

	name string // of the call
	kind agent.ToolKind
}

// Verdict is the decision or answer on a call that waited.
type Verdict struct {
	Action    run.DecisionAction `json:"action,omitempty"` // of a decision
	By        string             `json:"by,omitempty"`
	Note      string             `json:"note,omitempty"`
	Arguments json.RawMessage    `json:"arguments,omitempty"` // an edit: these run instead
	Approval  string             `json:"approval,omitempty"`
	Result    json.RawMessage    `json:"result,omitempty"`  // of an approval: the given input
	Content   string             `json:"content,omitempty"` // of an answer
	Blob      string             `json:"blob,omitempty"`
	IsError   bool               `json:"is_error,omitempty"`
	Rerun     bool               `json:"rerun,omitempty"` // of an answer: run the call again
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

// InferenceDoneData is a reply. Text is the kept text, complete.
type InferenceDoneData struct {
	Model    string    `json:"model"`
	Usage    run.Usage `json:"usage"`
	Units    int64     `json:"execution_units,omitempty"`
	Requests int       `json:"requests"` // to any model, failed ones included
	Text     string    `json:"text,omitempty"`
	Stop     string    `json:"stop_reason,omitempty"`
	Refused  string    `json:"refused,omitempty"`     // why the text is not the run's output
	Duration int64     `json:"duration_ms,omitempty"` // from the beginning of the step to the reply

	RefusedAs run.CorrectionKind `json:"refused_as,omitempty"` // "" = cut short, or not an output
	Problem   string             `json:"problem,omitempty"`    // of a malformed call

	TextDropped bool           `json:"text_dropped,omitempty"` // text beside the calls was dropped
	Context     *ContextBudget `json:"context,omitempty"`      // nil = not counted, or plenty

	// What the canonical form has in the conversation.
	thoughts []string // in order, without encrypted ones
	written  []string // text between thinking tags, of a reply without calls
	text     string   // text outside thinking and tool tags
	sentBack bool     // refused, with a correction for the model
}

// ContextBudget is the use of the model's window by a request, in tokens.
type ContextBudget struct {
	Total     int `json:"total"`
	Remaining int `json:"remaining"` // for the conversation to grow
}

// DeltaData is a piece of text, of reasoning or of a call's arguments. The first piece of a call may be empty.
type DeltaData struct {
	Delta   string `json:"delta"`
	Attempt int    `json:"attempt"` // a new attempt repeats everything

	// Of a call.
	Index *int   `json:"index,omitempty"` // among the reply's calls, in order of their beginning
	ID    string `json:"id,omitempty"`    // as the model has it; the call of tool_call_start may have another
	Name  string `json:"name,omitempty"`  // of its tool, as the model has it

	content string // of the same text, reasoning or arguments in this attempt so far
}

// StepEndData ends an inference.
type StepEndData struct{}

// MessagesSnapshotData is the whole conversation, as in a run's JSON.
type MessagesSnapshotData struct {
	Messages []policy.MessageView `json:"messages"`
	Summary  string               `json:"summary,omitempty"` // of evicted messages

	evicted bool // messages were evicted
	list    []run.Message
}

// ActivitySnapshotData is an action of somebody other than the model.
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

// RequestContent is the content of the activity permission_request: a request about tools whose calls were blocked.
type RequestContent struct {
	Approval string          `json:"approval"`
	Reason   string          `json:"reason,omitempty"`
	Tools    []RequestedTool `json:"tools"`
}

// RequestedTool is a tool of a permission request, with its blocked calls.
type RequestedTool struct {
	Kind  agent.ToolKind `json:"kind,omitempty"`
	Name  string         `json:"name"`
	Tool  string         `json:"tool"`
	Calls []string       `json:"calls"`
}

// ErrorData is the error that ends a run. It precedes run_finish.
type ErrorData struct {
	Message string        `json:"message"`
	Code    run.ErrorCode `json:"code,omitempty"`
}

// RunFinishData ends an attempt.
type RunFinishData struct {
	Result      *Response  `json:"result,omitempty"` // only of a natural end with output
	Termination run.Reason `json:"termination"`
	Waiting     []Waiting  `json:"waiting,omitempty"` // of a suspended one
}

// Response is a run's output.
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
	Message string        `json:"message_id"`
	Steps   []prompt.Step `json:"steps"`
}

// StepExecutingData begins a step of a plan. Its call, if any, comes before its completion.
type StepExecutingData struct {
	Step        int    `json:"step"` // its number in the plan
	Description string `json:"description"`
}

// StepCompletedData is the result of a step: of its call, an error too, or that there was no call.
type StepCompletedData struct {
	Step    int    `json:"step"`
	Success bool   `json:"success"` // a tool was called, even if it failed
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
