package stream

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/countersign/countersign/internal/agent"
)

// The types of the form forge: the names of seed 004 (LoopStart, ToolResultError) in the spelling of its code.
const (
	forgeLoopStart = "loop_start"
	forgeIteration = "loop_iteration"
	forgeLoopEnd   = "loop_end"
	forgeBusy      = "update_busy"
	forgeTurnEnd   = "turn_end"

	forgeCallStart = "api_call_start"
	forgeCallEnd   = "api_call_end"
	forgeUsage     = "token_usage"

	forgeThinkingStart = "thinking_start"
	forgeThinking      = "thinking_content"
	forgeThinkingEnd   = "thinking_end"
	forgeMessageStart  = "message_start"
	forgeMessage       = "message_content" // also live
	forgeMessageEnd    = "message_end"

	forgeToolStart   = "tool_call_start"
	forgeToolContent = "tool_call_content"
	forgeToolEnd     = "tool_call_end"
	forgeTool        = "tool_call"
	forgeResult      = "tool_result"
	forgeResultError = "tool_result_error"
	forgeNoTool      = "no_tool_call"
	forgeError       = "error"

	forgeAsked    = "tool_approval_request"
	forgeGranted  = "tool_approval_granted"
	forgeRejected = "tool_approval_rejected"
	forgeTimeout  = "tool_approval_timeout"
	forgeInput    = "user_input"
	forgeSummary  = "context_summarization"
)

// ForgeTypes are the types of the form, those of live text included.
func ForgeTypes() []string {
	return []string{
		forgeLoopStart, forgeIteration, forgeLoopEnd, forgeBusy, forgeTurnEnd, forgeCallStart, forgeCallEnd, forgeUsage,
		forgeThinkingStart, forgeThinking, forgeThinkingEnd, forgeMessageStart, forgeMessage, forgeMessageEnd,
		forgeToolStart, forgeToolContent, forgeToolEnd, forgeTool, forgeResult, forgeResultError, forgeNoTool, forgeError,
		forgeAsked, forgeGranted, forgeRejected, forgeTimeout, forgeInput, forgeSummary,
	}
}

// Codes of the event error that the seed names; others are those of the run's error or of the call's reason.
const (
	forgeToolNotFound  = "tool_not_found"
	forgeMaxIterations = "max_iterations"
	forgeParse         = "parse"  // tags that hold no call
	forgeOutput        = "output" // a last word that is none
)

// ForgeLoop is the data of loop_start: a run begins, or goes on after it has waited.
type ForgeLoop struct {
	Agent   string `json:"agent"`
	Version string `json:"version,omitempty"`
	Resumed bool   `json:"resumed,omitempty"`
}

// ForgeIteration is the data of loop_iteration and api_call_start.
type ForgeIteration struct {
	Iteration int `json:"iteration"` // from 1
	Max       int `json:"max_iterations"`
}

// ForgeCallEnd is the data of api_call_end.
type ForgeCallEnd struct {
	Model    string `json:"model"`
	Requests int    `json:"requests"` // to any model, failed ones included
	Stop     string `json:"stop_reason,omitempty"`
	Duration int64  `json:"duration_ms,omitempty"`
}

// ForgeUsage is the data of token_usage.
type ForgeUsage struct {
	Prompt     int64 `json:"prompt_tokens"` // cached ones included
	Completion int64 `json:"completion_tokens"`
	Total      int64 `json:"total_tokens"`
}

// ForgeContent is the data of thinking_content and message_content. A live one is a piece, and is told again as a whole.
type ForgeContent struct {
	Content string `json:"content"`
	Live    bool   `json:"live,omitempty"`
	Attempt int    `json:"attempt,omitempty"` // of a live one: another attempt says everything anew
}

// ForgeTool is the data of the events about a call.
type ForgeTool struct {
	ID        string          `json:"id"`
	Name      string          `json:"tool_name"` // as the model names it
	Kind      agent.ToolKind  `json:"kind,omitempty"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
	Live      bool            `json:"live,omitempty"` // it is being written
}

// ForgeResult is the data of tool_result and tool_result_error.
type ForgeResult struct {
	ID     string           `json:"id"`
	Name   string           `json:"tool_name"`
	Result string           `json:"result,omitempty"`
	Error  string           `json:"error,omitempty"`
	Reason agent.CallReason `json:"reason,omitempty"`
	Blob   string           `json:"blob,omitempty"` // where all of a long one is
}

// ForgeError is the data of error and no_tool_call.
type ForgeError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	ID      string `json:"id,omitempty"` // of the call it is about
}

// ForgeApproval is the data of the events about approvals.
type ForgeApproval struct {
	Approval string      `json:"approval,omitempty"`
	Tools    []ForgeTool `json:"tools"`
	By       string      `json:"by,omitempty"`
	Note     string      `json:"note,omitempty"`
}

// ForgeEnd is the data of loop_end.
type ForgeEnd struct {
	Reason  agent.Reason    `json:"reason"`
	Result  json.RawMessage `json:"result,omitempty"`
	Waiting []string        `json:"waiting,omitempty"` // calls, of a suspended one
}

// ForgeBusy is the data of update_busy.
type ForgeBusy struct {
	Busy bool `json:"busy"`
}

// ForgeSummary is the data of context_summarization: messages have left, and this stands for them.
type ForgeSummary struct {
	Summary string `json:"summary"`
}

// forgeLines are the events that the form tells. A function, so that programs which tell nobody do not hold it.
func forgeLines() map[Type]func(w *forgeWriting, e Event) {
	return map[Type]func(w *forgeWriting, e Event){
		RunStart:        (*forgeWriting).start,
		StepStart:       (*forgeWriting).step,
		ToolCallReady:   (*forgeWriting).call,
		ToolCallResumed: (*forgeWriting).resumed,
		ToolCallDone:    (*forgeWriting).done,
		InferenceDone:   (*forgeWriting).replied,
		Error:           (*forgeWriting).failed,
		RunFinish:       (*forgeWriting).finish,

		ActivitySnapshot: (*forgeWriting).activity,
		MessagesSnapshot: (*forgeWriting).messages,
	}
}

type forgeWriting struct{ naming }

func forge(events []Event) ([]Encoded, error) {
	w := &forgeWriting{naming{of: events}}
	lines := forgeLines()
	for _, e := range events {
		if tell, ok := lines[e.Type]; ok {
			tell(w, e)
		}
	}
	return w.out, nil
}

// none is the data of events that only mark a place.
type none struct{}

func (w *forgeWriting) start(e Event) {
	d, _ := e.Data.(RunStartData)
	w.add(e, forgeLoopStart, ForgeLoop{d.Agent, d.Version, d.Resumed})
	w.add(e, forgeBusy, ForgeBusy{true})
}

// step tells a whole reply but its calls: thinking, then what is said, as they were written.
func (w *forgeWriting) step(e Event) {
	d, _ := e.Data.(StepStartData)
	at := ForgeIteration{Iteration: d.Cycle.Current + 1, Max: d.Cycle.Max}
	w.add(e, forgeIteration, at)
	w.add(e, forgeCallStart, at)
	r, ok := reply(w.of, e.Step)
	if !ok {
		return
	}
	for _, thought := range slices.Concat(r.said.thoughts, r.said.written) {
		w.add(e, forgeThinkingStart, none{})
		w.add(e, forgeThinking, ForgeContent{Content: thought})
		w.add(e, forgeThinkingEnd, none{})
	}
	if r.said.text != "" {
		w.add(e, forgeMessageStart, none{})
		w.add(e, forgeMessage, ForgeContent{Content: r.said.text})
		w.add(e, forgeMessageEnd, none{})
	}
	w.add(e, forgeCallEnd, ForgeCallEnd{r.Model, r.Requests, r.Stop, r.Duration})
	u := r.Usage
	w.add(e, forgeUsage, ForgeUsage{Prompt: u.Total() - u.Output, Completion: u.Output, Total: u.Total()})
}

// replied tells of a reply that is not the last word: that it has no call, where it must have one, and what is wrong with it.
func (w *forgeWriting) replied(e Event) {
	d, _ := e.Data.(InferenceDoneData)
	if !d.said.sentBack {
		return
	}
	code, message := forgeOutput, d.Refused
	switch d.RefusedAs {
	case agent.KindNoToolCall:
		code = forgeNoTool
		w.add(e, forgeNoTool, ForgeError{Code: forgeNoTool, Message: d.Refused})
	case agent.KindMalformed: // a call that cannot be read is none
		code, message = forgeParse, d.Problem
		w.add(e, forgeNoTool, ForgeError{Code: string(d.RefusedAs), Message: d.Refused})
	case agent.KindMissingField:
		code, message = string(d.RefusedAs), d.Problem
	}
	w.add(e, forgeError, ForgeError{Code: code, Message: message})
}

func (w *forgeWriting) call(e Event) {
	d, _ := e.Data.(ToolCallReadyData)
	if d.Pending != "" {
		w.asked(e, d)
		return
	}
	w.add(e, forgeToolStart, ForgeTool{ID: d.ID, Name: d.Name})
	w.add(e, forgeToolContent, ForgeContent{Content: string(d.Arguments)})
	w.add(e, forgeToolEnd, none{})
	if d.missing { // the seed has the error alone
		return
	}
	w.add(e, forgeTool, ForgeTool{ID: d.ID, Name: d.Name, Kind: d.Kind, Arguments: d.Arguments})
}

// asked tells that a person is asked: for an approval, or for what the tool wants to know.
func (w *forgeWriting) asked(e Event, d ToolCallReadyData) {
	kind := forgeAsked
	if d.For != agent.ForApproval {
		kind = forgeInput
	}
	w.add(e, kind, ForgeApproval{Approval: d.Approval, Tools: []ForgeTool{{ID: d.Pending, Name: agent.ModelName(d.Tool), Kind: d.Kind, Arguments: d.input}}})
}

func (w *forgeWriting) resumed(e Event) {
	d, _ := e.Data.(ToolCallResumedData)
	said := ForgeApproval{
		Approval: d.Result.Approval, Tools: []ForgeTool{{ID: d.Call, Name: d.name, Kind: d.kind}}, By: d.Result.By, Note: d.Result.Note,
	}
	switch {
	case d.Result.Action == agent.ActionDeny || d.Result.Action == agent.ActionCancel:
		w.add(e, forgeRejected, said)
	case d.Result.Action != "":
		w.add(e, forgeGranted, said)
	}
}

func (w *forgeWriting) done(e Event) {
	d, _ := e.Data.(ToolCallDoneData)
	r := ForgeResult{ID: d.ID, Name: d.Name, Reason: d.Reason, Blob: d.Result.Blob}
	if d.Reason == agent.WhyExpired {
		w.add(e, forgeTimeout, ForgeApproval{Tools: []ForgeTool{{ID: d.ID, Name: d.Name, Kind: d.Kind}}})
	}
	if d.Outcome == agent.StatusSucceeded {
		r.Result = d.Result.Content
		w.add(e, forgeResult, r)
		return
	}
	r.Error = d.Result.Content
	if d.Reason == agent.WhyUnknownTool { // it was never a call of a tool: the seed has the error alone
		w.add(e, forgeError, ForgeError{Code: forgeToolNotFound, Message: r.Error, ID: d.ID})
		return
	}
	w.add(e, forgeResultError, r)
	w.add(e, forgeError, ForgeError{Code: cmp.Or(string(d.Reason), string(agent.WhyToolError)), Message: r.Error, ID: d.ID})
}

func (w *forgeWriting) activity(e Event) {
	d, _ := e.Data.(ActivitySnapshotData)
	r, ok := d.Content.(RequestContent)
	if !ok {
		return
	}
	asked := ForgeApproval{Approval: r.Approval, Note: r.Reason}
	for _, t := range r.Tools {
		for _, id := range t.Calls {
			asked.Tools = append(asked.Tools, ForgeTool{ID: id, Name: t.Name, Kind: t.Kind})
		}
	}
	w.add(e, forgeAsked, asked)
}

func (w *forgeWriting) messages(e Event) {
	if d, _ := e.Data.(MessagesSnapshotData); d.evicted && d.Summary != "" {
		w.add(e, forgeSummary, ForgeSummary{d.Summary})
	}
}

func (w *forgeWriting) failed(e Event) {
	d, _ := e.Data.(ErrorData)
	code := string(d.Code)
	if d.Code == agent.CodeInteractionsExhausted {
		code = forgeMaxIterations
	}
	w.add(e, forgeError, ForgeError{Code: code, Message: d.Message})
}

func (w *forgeWriting) finish(e Event) {
	d, _ := e.Data.(RunFinishData)
	end := ForgeEnd{Reason: d.Termination}
	if d.Result != nil {
		end.Result = d.Result.Response
	}
	for _, c := range d.Waiting {
		end.Waiting = append(end.Waiting, c.Call)
	}
	w.add(e, forgeLoopEnd, end)
	w.add(e, forgeBusy, ForgeBusy{false})
	w.add(e, forgeTurnEnd, none{})
}

func forgeDelta(s Said) Encoded {
	return namedDelta(s, forgeMessage, ForgeContent{Content: s.Text, Live: true, Attempt: s.Attempt})
}

// forgePiece tells of reasoning and of a call while they are written: the call's tool as soon as it is known.
func forgePiece(s Said) Encoded {
	switch {
	case s.Kind == agent.DeltaReasoning:
		return namedDelta(s, forgeThinking, ForgeContent{Content: s.Text, Live: true, Attempt: s.Attempt})
	case s.Text == "" && s.Name != "":
		return namedDelta(s, forgeToolStart, ForgeTool{ID: s.Call, Name: s.Name, Live: true})
	case s.Text != "":
		return namedDelta(s, forgeToolContent, ForgeContent{Content: s.Text, Live: true, Attempt: s.Attempt})
	default:
		return Encoded{}
	}
}
