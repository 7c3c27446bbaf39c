package stream

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/countersign/countersign/internal/agent"
)

// AisdkPart is a part of the form aisdk: the AI SDK's UI message stream, version 1, with the members its type has (ai-sdk.dev;
// semantics.md, 3.11). Parts have no room for whose they are: data-run-info says it where an attempt begins. All attempts of a run are one message.
type AisdkPart struct {
	Type string `json:"type"`

	MessageID string `json:"messageId,omitempty"`
	ID        string `json:"id,omitempty"`
	Delta     string `json:"delta,omitempty"`

	Call     string          `json:"toolCallId,omitempty"`
	CallName string          `json:"toolName,omitempty"`
	Dynamic  bool            `json:"dynamic,omitempty"` // tools are not known to the front end beforehand
	Input    json.RawMessage `json:"input,omitempty"`
	Output   any             `json:"output,omitempty"`
	Approval string          `json:"approvalId,omitempty"`

	Error     string `json:"errorText,omitempty"`
	Reason    string `json:"reason,omitempty"`
	Finish    string `json:"finishReason,omitempty"`
	Data      any    `json:"data,omitempty"`
	Transient bool   `json:"transient,omitempty"`
}

// AisdkRun is the data of data-run-info.
type AisdkRun struct {
	Run     string `json:"run"`
	Subject string `json:"subject"` // the run's; the run where it has none
	Agent   string `json:"agent"`
	Version string `json:"version,omitempty"`
	Parent  string `json:"parent,omitempty"`
	Resumed bool   `json:"resumed,omitempty"`
}

// aisdkLines are the events that the form tells. A function, so that programs which tell nobody do not hold it.
func aisdkLines() map[Type]func(w *aisdkWriting, e Event) {
	return map[Type]func(w *aisdkWriting, e Event){
		RunStart:         (*aisdkWriting).start,
		StepStart:        (*aisdkWriting).step,
		ToolCallStart:    (*aisdkWriting).call,
		ToolCallReady:    (*aisdkWriting).ready,
		ToolCallResumed:  (*aisdkWriting).resumed,
		ToolCallDone:     (*aisdkWriting).done,
		InferenceDone:    (*aisdkWriting).data,
		StepEnd:          (*aisdkWriting).stepEnd,
		StateSnapshot:    (*aisdkWriting).data,
		StateDelta:       (*aisdkWriting).data,
		MessagesSnapshot: (*aisdkWriting).data,
		ActivitySnapshot: (*aisdkWriting).data,
		RunFinish:        (*aisdkWriting).finish,
	}
}

type aisdkWriting struct {
	of  []Event
	out []Encoded
}

func aisdk(events []Event) ([]Encoded, error) {
	w := &aisdkWriting{of: events}
	lines := aisdkLines()
	for _, e := range events {
		if tell, ok := lines[e.Type]; ok {
			tell(w, e)
		}
	}
	return w.out, nil
}

func (w *aisdkWriting) add(e Event, p AisdkPart) {
	w.out = append(w.out, Encoded{Seq: e.Seq, Index: len(w.out), Type: p.Type, Body: p})
}

func (w *aisdkWriting) start(e Event) {
	d, _ := e.Data.(RunStartData)
	w.add(e, AisdkPart{Type: "start", MessageID: e.Run})
	w.add(e, AisdkPart{Type: "data-run-info", Data: AisdkRun{e.Run, e.Thread, d.Agent, d.Version, d.Parent, d.Resumed}})
}

// step tells a reply's thoughts and text: they are closed before its calls begin.
func (w *aisdkWriting) step(e Event) {
	w.add(e, AisdkPart{Type: "start-step"})
	r, _ := reply(w.of, e.Step)
	for i, thought := range r.said.thoughts {
		w.words(e, "reasoning", fmt.Sprintf("rsn_%s_%d", stepIndex(e.Step), i), thought)
	}
	if r.Text != "" {
		w.words(e, "text", "txt_"+stepIndex(e.Step), r.Text)
	}
}

func (w *aisdkWriting) words(e Event, kind, id, text string) {
	w.add(e, AisdkPart{Type: kind + "-start", ID: id})
	w.add(e, AisdkPart{Type: kind + "-delta", ID: id, Delta: text})
	w.add(e, AisdkPart{Type: kind + "-end", ID: id})
}

// stepIndex counts steps from 0.
func stepIndex(step string) string {
	n, err := strconv.Atoi(strings.TrimPrefix(step, "step_"))
	if err != nil { // a step of no number has no reply
		return "0"
	}
	return strconv.Itoa(n - 1)
}

func (w *aisdkWriting) call(e Event) {
	d, _ := e.Data.(ToolCallStartData)
	w.add(e, AisdkPart{Type: "tool-input-start", Call: d.ID, CallName: d.Name, Dynamic: true})
}

// ready tells a call's arguments. A call that asks for an approval is a part of its own, which the answer closes.
func (w *aisdkWriting) ready(e Event) {
	d, _ := e.Data.(ToolCallReadyData)
	w.add(e, AisdkPart{Type: "tool-input-available", Call: d.ID, CallName: d.Name, Dynamic: true, Input: d.Arguments})
	if d.Pending != "" && d.For == agent.ForApproval {
		w.add(e, AisdkPart{Type: "tool-approval-request", Approval: d.ID, Call: d.ID})
	}
}

func (w *aisdkWriting) resumed(e Event) {
	d, _ := e.Data.(ToolCallResumedData)
	switch {
	case d.Result.Action == agent.ActionDeny || d.Result.Action == agent.ActionCancel:
		w.add(e, AisdkPart{Type: "tool-output-denied", Call: d.Target})
	case d.Result.IsError:
		w.add(e, AisdkPart{Type: "tool-output-error", Call: d.Target, Dynamic: true, Error: d.Result.Content})
	default:
		w.add(e, AisdkPart{Type: "tool-output-available", Call: d.Target, Dynamic: true, Output: d.Result})
	}
}

func (w *aisdkWriting) done(e Event) {
	d, _ := e.Data.(ToolCallDoneData)
	if d.Outcome == agent.StatusSucceeded {
		w.add(e, AisdkPart{Type: "tool-output-available", Call: d.ID, Dynamic: true, Output: d.Result})
		return
	}
	w.add(e, AisdkPart{Type: "tool-output-error", Call: d.ID, Dynamic: true, Error: d.Result.Content})
}

func (w *aisdkWriting) stepEnd(e Event) { w.add(e, AisdkPart{Type: "finish-step"}) }

// data tells what the SDK has no part for, as it is.
func (w *aisdkWriting) data(e Event) {
	w.add(e, AisdkPart{Type: "data-" + strings.ReplaceAll(string(e.Type), "_", "-"), Data: e.Data})
}

func (w *aisdkWriting) finish(e Event) {
	d, _ := e.Data.(RunFinishData)
	switch d.Termination {
	case agent.ReasonCancelled:
		w.add(e, AisdkPart{Type: "abort", Reason: "the run was cancelled"})
		return
	case agent.ReasonError:
		w.add(e, AisdkPart{Type: "error", Error: why(w.of)})
	}
	w.add(e, AisdkPart{Type: "finish", Finish: finishReason(d.Termination)})
}

// finishReasons are the SDK's words for why an attempt ended; for any other it is other.
var finishReasons = map[agent.Reason]string{
	agent.ReasonNaturalEnd:                           "stop",
	agent.ReasonSuspended:                            "stop",
	agent.ReasonError:                                "error",
	agent.Stopped(agent.StopMaxRounds):               "length",
	agent.Stopped(agent.StopTimeout):                 "length",
	agent.Stopped(agent.StopTokens):                  "length",
	agent.Stopped(string(agent.CodeTokensExhausted)): "length",
	agent.Stopped(agent.StopOnTool):                  "tool-calls",
	agent.Stopped(agent.StopContains):                "stop",
	agent.Stopped(agent.StopConsecutiveErrors):       "error",
	agent.Stopped(agent.StopLoop):                    "error",
}

func finishReason(r agent.Reason) string {
	if word, ok := finishReasons[r]; ok {
		return word
	}
	return "other"
}

func aisdkDelta(s Said) Encoded {
	p := AisdkPart{Type: "data-text-delta", Transient: true, Data: DeltaData{Delta: s.Text, Attempt: s.Attempt}}
	return Encoded{Type: p.Type, Body: p}
}
