package stream

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/countersign/countersign/internal/agent"
)

// ArvoEvent is an event of the form arvo (semantics.md, 1.9).
type ArvoEvent struct {
	ID       string       `json:"id,omitempty"` // seq.index; "" = a piece of text, which has none
	Type     string       `json:"type"`
	Time     string       `json:"time"` // RFC 3339, UTC
	Data     any          `json:"data"`
	Metadata ArvoMetadata `json:"metadata"`
}

// ArvoMetadata says with every event whose it is.
type ArvoMetadata struct {
	Subject   string `json:"subject"`     // the run's; the run where it has none
	Initiator string `json:"initiatorId"` // the run that it continues or branches off; "" = it began by itself
	Self      string `json:"selfId"`      // the agent
	Version   string `json:"selfVersion"`
	Run       string `json:"runId"`
}

// ArvoContext is the data of agent.init, agent.resume and agent.self.correction.
type ArvoContext struct {
	System   string           `json:"system"`
	Messages json.RawMessage  `json:"messages"`
	Tools    []string         `json:"tools"`
	Response agent.OutputKind `json:"llmResponseType"`
	Cycle    Cycle            `json:"cycle"`
}

// ArvoTool names a tool: as the model does, and as it is.
type ArvoTool struct {
	Kind     agent.ToolKind `json:"kind"`
	Name     string         `json:"name"`
	Original string         `json:"originalName"`
}

// ArvoToolRequest is the data of agent.tool.request: one call, and what the inference that made it took.
type ArvoToolRequest struct {
	Tool  ArvoTool  `json:"tool"`
	ID    string    `json:"toolUseId"`
	Usage ArvoUsage `json:"usage"`
	Units int64     `json:"executionunits"`
}

// ArvoUsage counts tokens.
type ArvoUsage struct {
	Tokens struct {
		Prompt     int64 `json:"prompt"`
		Completion int64 `json:"completion"`
	} `json:"tokens"`
}

// ArvoTools is the data of agent.tool.request.delegation and of the events about permissions.
type ArvoTools struct {
	Tools []ArvoTool `json:"tools"`
}

// ArvoContent is the data of agent.output.finalization.
type ArvoContent struct {
	Content json.RawMessage `json:"content"`
}

// ArvoOutput is the data of agent.output.
type ArvoOutput struct {
	Output json.RawMessage `json:"output"`
}

// ArvoText is the data of agent.llm.delta.text, and of agent.llm.delta.
type ArvoText struct {
	Delta   string `json:"delta"`
	Content string `json:"content"` // so far
}

// ArvoCallPiece is the data of agent.llm.delta.tool.
type ArvoCallPiece struct {
	Tool  string        `json:"toolname"`  // as the model has it
	ID    string        `json:"toolUseId"` // as the model has it
	Input string        `json:"input"`     // so far: the beginning of JSON
	Meta  ArvoPieceMeta `json:"meta"`
}

// ArvoPieceMeta says what is wrong with an input.
type ArvoPieceMeta struct {
	Error *string `json:"error"` // null: nothing is known to be, or it is not all there
}

// The types of the form.
const (
	arvoInit       = "agent.init"
	arvoResume     = "agent.resume"
	arvoCorrection = "agent.self.correction"
	arvoTool       = "agent.tool.request"
	arvoDelegation = "agent.tool.request.delegation"
	arvoBlocked    = "agent.tool.permission.blocked"
	arvoRequested  = "agent.tool.permission.requested"
	arvoDenied     = "agent.tool.permission.denied"
	arvoFinalize   = "agent.output.finalization"
	arvoOutput     = "agent.output"
	arvoDeltas     = "agent.llm.delta" // of what is neither text nor a call: reasoning
	arvoText       = "agent.llm.delta.text"
	arvoCall       = "agent.llm.delta.tool"
)

// arvoLines are the events that the form tells. What ends a run otherwise than with an output is no event of it.
func arvoLines() map[Type]func(w *arvoWriting, e Event) error {
	return map[Type]func(w *arvoWriting, e Event) error{
		StepStart:     (*arvoWriting).step,
		ToolCallReady: (*arvoWriting).call,
		ToolCallDone:  (*arvoWriting).result,
		RunFinish:     (*arvoWriting).finish,

		ActivitySnapshot: (*arvoWriting).activity,
	}
}

// arvoWriting is an entry's events in the form.
type arvoWriting struct {
	of        []Event
	out       []Encoded
	requested bool // people are asked once for all calls of an entry
}

func arvo(events []Event) ([]Encoded, error) {
	w := &arvoWriting{of: events}
	lines := arvoLines()
	for _, e := range events {
		if tell, ok := lines[e.Type]; ok {
			if err := tell(w, e); err != nil {
				return nil, err
			}
		}
	}
	return w.out, nil
}

func (w *arvoWriting) add(e Event, kind string, data any) {
	n := len(w.out)
	w.out = append(w.out, Encoded{Seq: e.Seq, Index: n, Type: kind, Body: ArvoEvent{
		ID: fmt.Sprintf("%d.%d", e.Seq, n), Type: kind, Time: rfc3339(time.UnixMilli(e.Time)), Data: data, Metadata: e.who.arvo(e.Run, e.Thread),
	}})
}

func rfc3339(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

func (o who) arvo(run, thread string) ArvoMetadata {
	return ArvoMetadata{Subject: thread, Initiator: o.parent, Self: o.agent, Version: o.version, Run: run}
}

func (w *arvoWriting) step(e Event) error {
	d, _ := e.Data.(StepStartData)
	messages, err := agent.MarshalMessages(d.asked.messages, d.asked.inferences)
	if err != nil {
		return err
	}
	kind := arvoResume
	switch d.Lifecycle {
	case agent.LifecycleInit:
		kind = arvoInit
	case agent.LifecycleOutputError:
		kind = arvoCorrection
	}
	tools := d.asked.tools
	if tools == nil {
		tools = []string{}
	}
	w.add(e, kind, ArvoContext{System: d.asked.system, Messages: messages, Tools: tools, Response: d.asked.output, Cycle: d.Cycle})
	return nil
}

func (w *arvoWriting) call(e Event) error {
	d, _ := e.Data.(ToolCallReadyData)
	if d.Pending != "" {
		w.permission(e)
		return nil
	}
	r := ArvoToolRequest{Tool: ArvoTool{d.Kind, d.Name, d.Tool}, ID: d.ID}
	if i := slices.IndexFunc(w.of, func(o Event) bool { return o.Type == InferenceDone && o.Step == e.Step }); i >= 0 {
		made, _ := w.of[i].Data.(InferenceDoneData)
		r.Usage.Tokens.Prompt, r.Usage.Tokens.Completion, r.Units = made.Usage.Input, made.Usage.Output, made.Units
	}
	w.add(e, arvoTool, r)
	return nil
}

// permission tells once of all calls of the entry that came to wait for an approval.
func (w *arvoWriting) permission(e Event) {
	if w.requested {
		return
	}
	var asked []ArvoTool
	for _, o := range w.of {
		if d, ok := o.Data.(ToolCallReadyData); ok && d.Pending != "" && d.For == agent.ForApproval {
			asked = append(asked, w.tool(d))
		}
	}
	if len(asked) == 0 {
		return
	}
	w.requested = true
	w.add(e, arvoBlocked, ArvoTools{asked})
	w.add(e, arvoRequested, ArvoTools{asked})
}

// tool is the tool that a pending call asks about.
func (w *arvoWriting) tool(d ToolCallReadyData) ArvoTool {
	return ArvoTool{Kind: d.Kind, Name: agent.ModelName(d.Tool), Original: d.Tool}
}

func (w *arvoWriting) result(e Event) error {
	if d, _ := e.Data.(ToolCallDoneData); d.Reason == agent.WhyDenied {
		w.add(e, arvoDenied, ArvoTools{[]ArvoTool{{Kind: d.Kind, Name: d.Name, Original: d.Tool}}})
	}
	return nil
}

// activity tells of a request about tools.
func (w *arvoWriting) activity(e Event) error {
	d, _ := e.Data.(ActivitySnapshotData)
	r, ok := d.Content.(RequestContent)
	if !ok {
		return nil
	}
	var asked []ArvoTool
	for _, t := range r.Tools {
		asked = append(asked, ArvoTool{Kind: t.Kind, Name: t.Name, Original: t.Tool})
	}
	w.add(e, arvoBlocked, ArvoTools{asked})
	w.add(e, arvoRequested, ArvoTools{asked})
	return nil
}

func (w *arvoWriting) finish(e Event) error {
	d, _ := e.Data.(RunFinishData)
	switch {
	case d.Termination == agent.ReasonSuspended:
		delegated := ArvoTools{Tools: []ArvoTool{}}
		for _, c := range d.Waiting {
			delegated.Tools = append(delegated.Tools, ArvoTool{c.Kind, c.Name, c.Tool})
		}
		w.add(e, arvoDelegation, delegated)
	case d.Result != nil:
		w.add(e, arvoFinalize, ArvoContent{d.Result.Response})
		w.add(e, arvoOutput, ArvoOutput{d.Result.Response})
	}
	return nil
}

func arvoDelta(s Said) Encoded { return arvoSaid(s, arvoText, ArvoText{s.Text, s.Content}) }

// arvoPiece tells of reasoning and of calls.
func arvoPiece(s Said) Encoded {
	if s.Kind == agent.DeltaReasoning {
		return arvoSaid(s, arvoDeltas, ArvoText{s.Text, s.Content})
	}
	return arvoSaid(s, arvoCall, ArvoCallPiece{Tool: s.Name, ID: s.Call, Input: s.Content})
}

func arvoSaid(s Said, kind string, data any) Encoded {
	return Encoded{Type: kind, Body: ArvoEvent{Type: kind, Time: rfc3339(s.At), Data: data, Metadata: s.who.arvo(s.Run, s.Thread)}}
}
