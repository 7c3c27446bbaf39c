package stream

import (
	"encoding/json"

	"github.com/countersign/countersign/internal/agent"
)

// The types of the form cowork: those of seed 002, and behind them what its front end was told otherwise or not at all.
const (
	coworkToken     = "stream-token" // live only
	coworkClear     = "stream-clear"
	coworkComplete  = "stream-complete"
	coworkToolCall  = "tool-call"
	coworkResult    = "tool-result"
	coworkBudget    = "context-budget"
	coworkPlan      = "plan-created"
	coworkStep      = "step-executing"
	coworkStepDone  = "step-completed"
	coworkApproval  = "approval-requested"
	coworkWaiting   = "stream-suspended"
	coworkFailed    = "stream-error"
	coworkCancelled = "stream-cancelled"
)

// CoworkTypes are the types of the form, those of live text included.
func CoworkTypes() []string {
	return []string{
		coworkToken, coworkClear, coworkComplete, coworkToolCall, coworkResult, coworkBudget, coworkPlan, coworkStep, coworkStepDone,
		coworkApproval, coworkWaiting, coworkFailed, coworkCancelled,
	}
}

// CoworkToken is the data of stream-token: a piece of text. Another attempt says everything anew.
type CoworkToken struct {
	Token   string `json:"token"`
	Attempt int    `json:"attempt"`
}

// CoworkClear is the data of stream-clear: the text that was shown is not the answer.
type CoworkClear struct {
	Reason string `json:"reason"` // tool_calls or sent_back
}

// CoworkMessage is the data of stream-complete: the run's answer.
type CoworkMessage struct {
	Role    agent.Role      `json:"role"`
	Content json.RawMessage `json:"content"` // a string, or the value where the output is JSON
}

// CoworkCall is the data of tool-call.
type CoworkCall struct {
	ID        string          `json:"id"`
	Name      string          `json:"name"`                // the original name
	Arguments json.RawMessage `json:"arguments,omitempty"` // none in a request about tools
}

// CoworkResult is the data of tool-result.
type CoworkResult struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Success bool   `json:"success"`
	Content string `json:"content"`
	Blob    string `json:"blob,omitempty"` // where all of a long result is
}

// CoworkApproval is the data of approval-requested: people are asked.
type CoworkApproval struct {
	Approval string       `json:"approval,omitempty"`
	For      string       `json:"for"`
	Calls    []CoworkCall `json:"calls"`
}

// CoworkWaiting is the data of stream-suspended: the run waits, and goes on by itself when these are settled.
type CoworkWaiting struct {
	Calls []string `json:"calls"`
}

// CoworkEnd is the data of stream-error and stream-cancelled.
type CoworkEnd struct {
	Reason  agent.Reason    `json:"reason"`
	Code    agent.ErrorCode `json:"code,omitempty"`
	Message string          `json:"message,omitempty"`
}

// coworkLines are the events that the form tells. A function, so that programs which tell nobody do not hold it.
func coworkLines() map[Type]func(w *coworkWriting, e Event) {
	return map[Type]func(w *coworkWriting, e Event){
		ToolCallReady: (*coworkWriting).call,
		ToolCallDone:  (*coworkWriting).result,
		StepStart:     (*coworkWriting).step,
		RunFinish:     (*coworkWriting).finish,

		ActivitySnapshot: (*coworkWriting).activity,

		PlanCreated:   (*coworkWriting).plan,
		StepExecuting: (*coworkWriting).plan,
		StepCompleted: (*coworkWriting).plan,
	}
}

type coworkWriting struct{ naming }

func cowork(events []Event) ([]Encoded, error) {
	w := &coworkWriting{naming{of: events}}
	lines := coworkLines()
	for _, e := range events {
		if tell, ok := lines[e.Type]; ok {
			tell(w, e)
		}
	}
	return w.out, nil
}

// step tells first of a reply what is to be taken back.
func (w *coworkWriting) step(e Event) {
	d, _ := reply(w.of, e.Step)
	switch {
	case d.TextDropped:
		w.add(e, coworkClear, CoworkClear{Reason: "tool_calls"})
	case d.Text != "" && d.said.sentBack:
		w.add(e, coworkClear, CoworkClear{Reason: "sent_back"})
	}
	if d.Context != nil {
		w.add(e, coworkBudget, *d.Context)
	}
}

func (w *coworkWriting) call(e Event) {
	d, _ := e.Data.(ToolCallReadyData)
	if d.Pending == "" {
		w.add(e, coworkToolCall, CoworkCall{ID: d.ID, Name: d.Tool, Arguments: d.Arguments})
		return
	}
	w.add(e, coworkApproval, CoworkApproval{
		Approval: d.Approval, For: string(d.For), Calls: []CoworkCall{{ID: d.Pending, Name: d.Tool, Arguments: d.input}},
	})
}

func (w *coworkWriting) result(e Event) {
	d, _ := e.Data.(ToolCallDoneData)
	w.add(e, coworkResult, CoworkResult{
		ID: d.ID, Name: d.Tool, Success: d.Outcome == agent.StatusSucceeded, Content: d.Result.Content, Blob: d.Result.Blob,
	})
}

func (w *coworkWriting) activity(e Event) {
	d, _ := e.Data.(ActivitySnapshotData)
	if c, ok := d.Content.(RequestContent); ok {
		asked := CoworkApproval{Approval: c.Approval, For: string(agent.ForApproval), Calls: []CoworkCall{}}
		for _, t := range c.Tools {
			for _, id := range t.Calls {
				asked.Calls = append(asked.Calls, CoworkCall{ID: id, Name: t.Tool})
			}
		}
		w.add(e, coworkApproval, asked)
	}
}

// plan tells of a plan and its steps as the canonical form does.
func (w *coworkWriting) plan(e Event) {
	names := map[Type]string{PlanCreated: coworkPlan, StepExecuting: coworkStep, StepCompleted: coworkStepDone}
	w.add(e, names[e.Type], e.Data)
}

func (w *coworkWriting) finish(e Event) {
	d, _ := e.Data.(RunFinishData)
	switch {
	case d.Result != nil:
		w.add(e, coworkComplete, CoworkMessage{Role: agent.RoleAssistant, Content: d.Result.Response})
	case d.Termination == agent.ReasonSuspended:
		waiting := CoworkWaiting{Calls: []string{}}
		for _, c := range d.Waiting {
			waiting.Calls = append(waiting.Calls, c.Call)
		}
		w.add(e, coworkWaiting, waiting)
	case d.Termination == agent.ReasonCancelled:
		w.add(e, coworkCancelled, CoworkEnd{Reason: d.Termination})
	case d.Termination == agent.ReasonError:
		end := CoworkEnd{Reason: d.Termination}
		for _, o := range w.of {
			if cause, ok := o.Data.(ErrorData); ok {
				end.Code, end.Message = cause.Code, cause.Message
			}
		}
		w.add(e, coworkFailed, end)
	default: // it ended well and has said nothing
		w.add(e, coworkComplete, CoworkMessage{Role: agent.RoleAssistant, Content: json.RawMessage(`""`)})
	}
}

func coworkDelta(s Said) Encoded { return namedDelta(s, coworkToken, CoworkToken{s.Text, s.Attempt}) }
