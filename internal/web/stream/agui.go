package stream

import (
	"encoding/json"
	"fmt"

	"github.com/countersign/countersign/internal/agent"
)

// AguiEvent is an event of the form agui: the AG-UI protocol's own, with the members its type has (docs.ag-ui.com; semantics.md, 3.11). By
// the protocol a run is named where an attempt begins and ends, and nowhere else. An attempt is a run of the protocol; one that waits ends with
// the outcome interrupt.
type AguiEvent struct {
	Type      string `json:"type"`
	Timestamp int64  `json:"timestamp"` // milliseconds since 1970

	Thread string `json:"threadId,omitempty"` // the run's subject; the run where it has none
	Run    string `json:"runId,omitempty"`
	Parent string `json:"parentRunId,omitempty"`
	Step   string `json:"stepName,omitempty"`

	MessageID     string `json:"messageId,omitempty"`
	Role          string `json:"role,omitempty"`
	Delta         any    `json:"delta,omitempty"` // a text; of STATE_DELTA, a JSON Patch
	Call          string `json:"toolCallId,omitempty"`
	CallName      string `json:"toolCallName,omitempty"`
	ParentMessage string `json:"parentMessageId,omitempty"`
	Content       any    `json:"content,omitempty"` // a text; of ACTIVITY_SNAPSHOT, an object

	Snapshot json.RawMessage `json:"snapshot,omitempty"`
	Messages []AguiMessage   `json:"messages,omitzero"`
	Activity string          `json:"activityType,omitempty"`
	Replace  bool            `json:"replace,omitempty"`

	Subtype   string `json:"subtype,omitempty"`
	Entity    string `json:"entityId,omitempty"`
	Encrypted []byte `json:"encryptedValue,omitempty"` // base64

	Result  json.RawMessage `json:"result,omitempty"`
	Outcome *AguiOutcome    `json:"outcome,omitempty"`
	Message string          `json:"message,omitempty"`
	Code    string          `json:"code,omitempty"`

	Name  string `json:"name,omitempty"`
	Value any    `json:"value,omitempty"`
}

// AguiOutcome is how a run of the protocol finished.
type AguiOutcome struct {
	Type       string          `json:"type"` // success or interrupt
	Interrupts []AguiInterrupt `json:"interrupts,omitempty"`
}

// AguiInterrupt is what the run waits for. A decision may name it.
type AguiInterrupt struct {
	ID     string `json:"id"`
	Reason string `json:"reason"`
	Call   string `json:"toolCallId,omitempty"`
}

// AguiMessage is a message of the protocol. An assistant's holds what one reply said and called.
type AguiMessage struct {
	ID      string     `json:"id"`
	Role    string     `json:"role"` // user, assistant, reasoning or tool
	Content string     `json:"content"`
	Calls   []AguiCall `json:"toolCalls,omitempty"`
	Call    string     `json:"toolCallId,omitempty"` // of a tool's
	Error   string     `json:"error,omitempty"`      // of a tool's that failed
}

// AguiCall is a call in a message.
type AguiCall struct {
	ID       string       `json:"id"`
	Type     string       `json:"type"` // function
	Function AguiFunction `json:"function"`
}

// AguiFunction is what is called, with arguments as JSON in a text.
type AguiFunction struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// Codes of RUN_ERROR.
const (
	aguiCancelled = "CANCELLED"
	aguiError     = "ERROR"
)

// aguiLines are the events that the form tells. A function, so that programs which tell nobody do not hold it.
func aguiLines() map[Type]func(w *aguiWriting, e Event) {
	return map[Type]func(w *aguiWriting, e Event){
		RunStart:         (*aguiWriting).start,
		StepStart:        (*aguiWriting).step,
		EncryptedThought: (*aguiWriting).encrypted,
		ToolCallStart:    (*aguiWriting).call,
		ToolCallReady:    (*aguiWriting).ready,
		ToolCallDone:     (*aguiWriting).done,
		StepEnd:          (*aguiWriting).stepEnd,
		StateSnapshot:    (*aguiWriting).state,
		StateDelta:       (*aguiWriting).delta,
		MessagesSnapshot: (*aguiWriting).messages,
		ActivitySnapshot: (*aguiWriting).activity,
		RunFinish:        (*aguiWriting).finish,
	}
}

type aguiWriting struct {
	of      []Event
	out     []Encoded
	message string // the newest reply's
}

func agui(events []Event) ([]Encoded, error) {
	w := &aguiWriting{of: events}
	lines := aguiLines()
	for _, e := range events {
		if tell, ok := lines[e.Type]; ok {
			tell(w, e)
		}
	}
	return w.out, nil
}

func (w *aguiWriting) add(e Event, a AguiEvent) {
	a.Timestamp = e.Time
	w.out = append(w.out, Encoded{Seq: e.Seq, Index: len(w.out), Type: a.Type, Body: a})
}

func (w *aguiWriting) start(e Event) {
	d, _ := e.Data.(RunStartData)
	w.add(e, AguiEvent{Type: "RUN_STARTED", Thread: e.Thread, Run: e.Run, Parent: d.Parent})
}

// step tells a reply's thoughts and text: they are closed before its calls begin.
func (w *aguiWriting) step(e Event) {
	d, _ := e.Data.(StepStartData)
	w.message = d.Message
	w.add(e, AguiEvent{Type: "STEP_STARTED", Step: e.Step})
	r, _ := reply(w.of, e.Step)
	for i, thought := range r.said.thoughts {
		id := fmt.Sprintf("%s_r%d", d.Message, i)
		w.add(e, AguiEvent{Type: "REASONING_START", MessageID: id})
		w.add(e, AguiEvent{Type: "REASONING_MESSAGE_START", MessageID: id, Role: "reasoning"})
		w.add(e, AguiEvent{Type: "REASONING_MESSAGE_CONTENT", MessageID: id, Delta: thought})
		w.add(e, AguiEvent{Type: "REASONING_MESSAGE_END", MessageID: id})
		w.add(e, AguiEvent{Type: "REASONING_END", MessageID: id})
	}
	if r.Text == "" {
		return
	}
	w.add(e, AguiEvent{Type: "TEXT_MESSAGE_START", MessageID: d.Message, Role: "assistant"})
	w.add(e, AguiEvent{Type: "TEXT_MESSAGE_CONTENT", MessageID: d.Message, Delta: r.Text})
	w.add(e, AguiEvent{Type: "TEXT_MESSAGE_END", MessageID: d.Message})
}

func (w *aguiWriting) encrypted(e Event) {
	d, _ := e.Data.(EncryptedThoughtData)
	w.add(e, AguiEvent{Type: "REASONING_ENCRYPTED_VALUE", Subtype: "message", Entity: d.Message, Encrypted: d.Value})
}

func (w *aguiWriting) call(e Event) {
	d, _ := e.Data.(ToolCallStartData)
	a := AguiEvent{Type: "TOOL_CALL_START", Call: d.ID, CallName: d.Name}
	if d.Pending == "" {
		a.ParentMessage = w.message
	}
	w.add(e, a)
}

func (w *aguiWriting) ready(e Event) {
	d, _ := e.Data.(ToolCallReadyData)
	if args := string(d.Arguments); args != "" && args != "{}" {
		w.add(e, AguiEvent{Type: "TOOL_CALL_ARGS", Call: d.ID, Delta: args})
	}
	w.add(e, AguiEvent{Type: "TOOL_CALL_END", Call: d.ID})
}

func (w *aguiWriting) done(e Event) {
	d, _ := e.Data.(ToolCallDoneData)
	w.add(e, AguiEvent{Type: "TOOL_CALL_RESULT", MessageID: d.Message, Call: d.ID, Role: "tool", Content: d.Result.Content})
}

func (w *aguiWriting) stepEnd(e Event) { w.add(e, AguiEvent{Type: "STEP_FINISHED", Step: e.Step}) }

func (w *aguiWriting) state(e Event) {
	d, _ := e.Data.(StateSnapshotData)
	w.add(e, AguiEvent{Type: "STATE_SNAPSHOT", Snapshot: d.State})
}

func (w *aguiWriting) delta(e Event) {
	d, _ := e.Data.(StateDeltaData)
	w.add(e, AguiEvent{Type: "STATE_DELTA", Delta: d.Delta})
}

func (w *aguiWriting) messages(e Event) {
	d, _ := e.Data.(MessagesSnapshotData)
	w.add(e, AguiEvent{Type: "MESSAGES_SNAPSHOT", Messages: aguiMessages(d.list)})
}

func (w *aguiWriting) activity(e Event) {
	d, _ := e.Data.(ActivitySnapshotData)
	w.add(e, AguiEvent{Type: "ACTIVITY_SNAPSHOT", MessageID: d.Message, Activity: d.Kind, Content: d.Content, Replace: d.Replace})
}

func (w *aguiWriting) finish(e Event) {
	d, _ := e.Data.(RunFinishData)
	switch d.Termination {
	case agent.ReasonCancelled:
		w.add(e, AguiEvent{Type: "RUN_ERROR", Message: "the run was cancelled", Code: aguiCancelled})
	case agent.ReasonError:
		w.add(e, AguiEvent{Type: "RUN_ERROR", Message: why(w.of), Code: aguiError})
	case agent.ReasonSuspended:
		waits := &AguiOutcome{Type: "interrupt"}
		for _, c := range d.Waiting {
			waits.Interrupts = append(waits.Interrupts, AguiInterrupt{ID: c.Call, Reason: string(c.For), Call: c.Call})
		}
		w.add(e, AguiEvent{Type: "RUN_FINISHED", Thread: e.Thread, Run: e.Run, Outcome: waits})
	default:
		end := AguiEvent{Type: "RUN_FINISHED", Thread: e.Thread, Run: e.Run, Outcome: &AguiOutcome{Type: "success"}}
		if d.Result != nil {
			end.Result = d.Result.Response
		}
		w.add(e, end)
	}
}

// why is the message of the error that ended the run in this entry.
func why(of []Event) string {
	for _, e := range of {
		if d, ok := e.Data.(ErrorData); ok {
			return d.Message
		}
	}
	return "the run ended in error"
}

// aguiMessages is a conversation in the protocol's messages. Their ids are those under which they were told; media are named.
func aguiMessages(list []agent.Message) []AguiMessage {
	c := &aguiConversation{said: []AguiMessage{}, replies: map[string]int{}, thoughts: map[string]int{}}
	for _, m := range list {
		id := fmt.Sprintf("m%d.%d", m.Source.Seq, m.Source.Event)
		if m.Source.Run != "" {
			id = m.Source.Run + "_" + id
		}
		c.add(id, m)
	}
	return c.said
}

// aguiConversation is a conversation under way.
type aguiConversation struct {
	said     []AguiMessage
	replies  map[string]int // the place of the message that a reply has, by its id
	thoughts map[string]int // how many a reply has
}

func (c *aguiConversation) add(id string, m agent.Message) {
	switch b := m.Block.(type) {
	case agent.ToolResult:
		told := AguiMessage{ID: "result_" + b.ID, Role: "tool", Content: b.Content, Call: b.ID}
		if b.IsError {
			told.Error = b.Content
		}
		c.said = append(c.said, told)
	case agent.Reasoning:
		if b.Text != "" {
			c.said = append(c.said, AguiMessage{ID: fmt.Sprintf("%s_r%d", id, c.thoughts[id]), Role: "reasoning", Content: b.Text})
			c.thoughts[id]++
		}
	case agent.ToolUse:
		r := c.reply(id)
		r.Calls = append(r.Calls, AguiCall{b.ID, "function", AguiFunction{b.Name, string(b.Input)}})
	default:
		if m.Role == agent.RoleAssistant {
			c.reply(id).Content += aguiText(b)
			return
		}
		c.said = append(c.said, AguiMessage{ID: fmt.Sprintf("%s_%d", id, m.Source.Part), Role: "user", Content: aguiText(b)})
	}
}

// reply is the message of what one reply said and called.
func (c *aguiConversation) reply(id string) *AguiMessage {
	at, ok := c.replies[id]
	if !ok {
		at = len(c.said)
		c.said, c.replies[id] = append(c.said, AguiMessage{ID: id, Role: "assistant"}), at
	}
	return &c.said[at]
}

func aguiText(b agent.Block) string {
	switch b := b.(type) {
	case agent.Text:
		return b.Text
	case agent.Media:
		return fmt.Sprintf("[%s %s]", b.MediaType, b.Name)
	default:
		return ""
	}
}

// aguiLive is the name of the custom event of live text.
const aguiLive = "text_delta"

func aguiDelta(s Said) Encoded {
	return Encoded{Type: "CUSTOM", Body: AguiEvent{
		Type: "CUSTOM", Timestamp: s.At.UnixMilli(), Name: aguiLive, Value: DeltaEvent{
			Type: TextDelta, Run: s.Run, Thread: s.Thread, Time: s.At.UnixMilli(), Step: stepID(s.Inference), Data: DeltaData{Delta: s.Text, Attempt: s.Attempt},
		},
	}}
}
