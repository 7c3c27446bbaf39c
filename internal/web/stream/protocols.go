package stream

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

// This file is the table of the protocols of front ends, AG-UI (docs.ag-ui.com) and the AI SDK's UI message stream
// (ai-sdk.dev): for each canonical event, the protocol's types with their members.

// aguiFrame leaves out the run, which AG-UI names at the start and the end of an attempt.
func aguiFrame(e Event, _, name string, data object) any {
	return append(object{"type", name, "timestamp", e.Time}, data...)
}

// writeAgui writes an attempt as a run of the protocol. A parked attempt ends with the outcome interrupt.
func (w *writer) writeAgui(e Event) {
	switch d := e.Data.(type) {
	case RunStartData:
		w.emit("RUN_STARTED", "threadId", e.Thread, "runId", e.Run, "parentRunId?", d.Parent)
	case StepStartData: // thoughts and text are closed before the reply's calls begin
		w.emit("STEP_STARTED", "stepName", e.Step)
		r := w.findReply(e.Step)
		for i, thought := range r.thoughts {
			id := fmt.Sprintf("%s_r%d", d.Message, i)
			w.emit("REASONING_START", "messageId", id)
			w.emit("REASONING_MESSAGE_START", "messageId", id, "role", "reasoning")
			w.emit("REASONING_MESSAGE_CONTENT", "messageId", id, "delta", thought)
			w.emit("REASONING_MESSAGE_END", "messageId", id)
			w.emit("REASONING_END", "messageId", id)
		}
		if r.Text != "" {
			w.emit("TEXT_MESSAGE_START", "messageId", d.Message, "role", "assistant")
			w.emit("TEXT_MESSAGE_CONTENT", "messageId", d.Message, "delta", r.Text)
			w.emit("TEXT_MESSAGE_END", "messageId", d.Message)
		}
	case EncryptedThoughtData:
		w.emit("REASONING_ENCRYPTED_VALUE", "subtype", "message", "entityId", d.Message, "encryptedValue", d.Value)
	case ToolCallStartData:
		parent := "" // the newest reply before it
		for _, other := range w.entry {
			if step, ok := other.Data.(StepStartData); ok && d.Pending == "" && other.Index < e.Index {
				parent = step.Message
			}
		}
		w.emit("TOOL_CALL_START", "toolCallId", d.ID, "toolCallName", d.Name, "parentMessageId?", parent)
	case ToolCallReadyData:
		if args := string(d.Arguments); args != "" && args != "{}" {
			w.emit("TOOL_CALL_ARGS", "delta", args, "toolCallId", d.ID)
		}
		w.emit("TOOL_CALL_END", "toolCallId", d.ID)
	case ToolCallDoneData:
		w.emit("TOOL_CALL_RESULT", "messageId", d.Message, "role", "tool", "toolCallId", d.ID, "content",
			d.Result.Content)
	case StepEndData:
		w.emit("STEP_FINISHED", "stepName", e.Step)
	case StateSnapshotData:
		w.emit("STATE_SNAPSHOT", "snapshot", d.State)
	case StateDeltaData:
		w.emit("STATE_DELTA", "delta", d.Delta)
	case MessagesSnapshotData:
		w.emit("MESSAGES_SNAPSHOT", "messages", newAguiMessages(d.list))
	case ActivitySnapshotData:
		w.emit("ACTIVITY_SNAPSHOT", "messageId", d.Message, "content", d.Content, "activityType", d.Kind,
			"replace?", d.Replace)
	case RunFinishData:
		w.writeAguiEnd(e, d)
	case DeltaData:
		if e.Type == TextDelta {
			w.emit("CUSTOM", "name", "text_delta", "value", newLiveObject(e))
		}
	}
}

// writeAguiEnd ends an attempt. A decision may name the id of an interrupt.
func (w *writer) writeAguiEnd(e Event, d RunFinishData) {
	switch d.Termination {
	case run.ReasonCancelled:
		w.emit("RUN_ERROR", "message", cancelledText, "code", "CANCELLED")
		return
	case run.ReasonError:
		w.emit("RUN_ERROR", "message", w.errorMessage(), "code", "ERROR")
		return
	}
	end, outcome := object{"threadId", e.Thread, "runId", e.Run}, object{"type", "success"}
	if d.Termination == run.ReasonSuspended {
		var interrupts []object
		for _, c := range d.Waiting {
			interrupts = append(interrupts, object{"id", c.Call, "reason", c.For, "toolCallId?", c.Call})
		}
		outcome = object{"type", "interrupt", "interrupts?", interrupts}
	} else if d.Result != nil {
		end = append(end, "result?", d.Result.Response)
	}
	w.emit("RUN_FINISHED", append(end, "outcome", outcome)...)
}

const cancelledText = "the run was cancelled"

// errorMessage returns the message of the error that ended the run in this entry.
func (w *writer) errorMessage() string {
	return cmp.Or(w.findError().Message, "the run ended in error")
}

// aguiMessage is a message of AG-UI. An assistant message has the text and the calls of one reply.
type aguiMessage struct {
	ID      string   `json:"id"`
	Role    string   `json:"role"` // user, assistant, reasoning or tool
	Content string   `json:"content"`
	Calls   []object `json:"toolCalls,omitempty"`
	Call    string   `json:"toolCallId,omitempty"` // of a tool's
	Error   string   `json:"error,omitempty"`      // of a tool's that failed
}

// newAguiMessages converts a conversation to AG-UI's messages with the stream's ids. Media are replaced by their
// names.
func newAguiMessages(list []run.Message) []aguiMessage {
	out, replies, thoughts := []aguiMessage{}, map[string]int{}, map[string]int{}
	reply := func(id string) *aguiMessage { // the message of what one reply said and called
		if _, ok := replies[id]; !ok {
			replies[id] = len(out)
			out = append(out, aguiMessage{ID: id, Role: "assistant"})
		}
		return &out[replies[id]]
	}
	for _, m := range list {
		id := fmt.Sprintf("m%d.%d", m.Source.Seq, m.Source.Event)
		if m.Source.Run != "" {
			id = m.Source.Run + "_" + id
		}
		switch b := m.Block.(type) {
		case run.ToolResult:
			result := aguiMessage{ID: "result_" + b.ID, Role: "tool", Content: b.Content, Call: b.ID}
			if b.IsError {
				result.Error = b.Content
			}
			out = append(out, result)
		case run.Reasoning:
			if b.Text != "" {
				out = append(out, aguiMessage{ID: fmt.Sprintf("%s_r%d", id, thoughts[id]), Role: "reasoning",
					Content: b.Text})
				thoughts[id]++
			}
		case run.ToolUse:
			r := reply(id)
			function := object{"name", b.Name, "arguments", string(b.Input)}
			r.Calls = append(r.Calls, object{"id", b.ID, "type", "function", "function", function})
		default:
			if m.Role == run.RoleAssistant {
				reply(id).Content += aguiText(b)
				continue
			}
			out = append(out, aguiMessage{ID: fmt.Sprintf("%s_%d", id, m.Source.Part), Role: "user",
				Content: aguiText(b)})
		}
	}
	return out
}

func aguiText(b run.Block) string {
	switch b := b.(type) {
	case run.Text:
		return b.Text
	case run.Media:
		return fmt.Sprintf("[%s %s]", b.MediaType, b.Name)
	default:
		return ""
	}
}

// aisdkFrame leaves out the run, which data-run-info names at the start of an attempt. The AI SDK ends a stream at a
// piece with keys that would change an object's prototype: a value with such keys is sent as text.
func aisdkFrame(_ Event, _, name string, data object) any {
	for i := 1; i < len(data); i += 2 {
		if _, plain := data[i].(string); plain {
			continue
		}
		raw, err := json.Marshal(data[i])
		var v any
		if err == nil && json.Unmarshal(raw, &v) == nil && changesPrototype(v) {
			data[i] = string(raw)
		}
	}
	return append(object{"type", name}, data...)
}

func changesPrototype(v any) bool {
	switch v := v.(type) {
	case []any:
		return slices.ContainsFunc(v, changesPrototype)
	case map[string]any:
		_, proto := v["__proto__"]
		class, _ := v["constructor"].(map[string]any)
		_, changes := class["prototype"]
		return proto || changes || slices.ContainsFunc(slices.Collect(maps.Values(v)), changesPrototype)
	}
	return false
}

// writeAisdk writes all attempts of a run as one message. Tools are dynamic: the front end does not know them in
// advance.
func (w *writer) writeAisdk(e Event) {
	switch d := e.Data.(type) {
	case RunStartData:
		w.emit("start", "messageId", e.Run)
		w.emit("data-run-info", "data", object{
			"run", e.Run, "subject", e.Thread, "agent", d.Agent, "version?", d.Version, "parent?", d.Parent,
			"resumed?", d.Resumed,
		})
		for _, c := range d.open { // a client takes no outcome of a call that the message does not have
			w.emit("tool-input-available", "toolCallId", c.ID, "toolName", c.Name, "dynamic", true, "input", c.Input)
		}
	case StepStartData: // thoughts and text are closed before the reply's calls begin
		w.emit("start-step")
		r := w.findReply(e.Step)
		n, _ := strconv.Atoi(strings.TrimPrefix(e.Step, "step_"))
		for i, thought := range r.thoughts {
			w.writeAisdkText("reasoning", fmt.Sprintf("rsn_%d_%d", n-1, i), thought)
		}
		if r.Text != "" {
			w.writeAisdkText("text", fmt.Sprintf("txt_%d", n-1), r.Text)
		}
	case ToolCallStartData:
		w.emit("tool-input-start", "toolCallId", d.ID, "toolName", d.Name, "dynamic", true)
	case ToolCallReadyData:
		w.emit("tool-input-available", "toolCallId", d.ID, "toolName", d.Name, "dynamic", true, "input?", d.Arguments)
		if d.Pending != "" && d.For == run.ForApproval {
			w.emit("tool-approval-request", "toolCallId", d.ID, "approvalId", d.ID)
		}
	case ToolCallResumedData: // the answer closes the call that asked for it
		r := d.Result
		w.writeAisdkOutput(d.Target, r.Action == run.ActionDeny || r.Action == run.ActionCancel, r.IsError, r.Content,
			r)
	case ToolCallDoneData:
		if d.pending != "" { // as when its time is over
			w.writeAisdkOutput(d.pending, false, true, d.Result.Content, nil)
		}
		w.writeAisdkOutput(d.ID, false, d.Outcome != run.StatusSucceeded, d.Result.Content, d.Result)
	case StepEndData:
		w.emit("finish-step")
	case InferenceDoneData, StateSnapshotData, StateDeltaData, MessagesSnapshotData, ActivitySnapshotData:
		w.emit("data-"+strings.ReplaceAll(string(e.Type), "_", "-"), "data", e.Data)
	case RunFinishData:
		if d.Termination == run.ReasonCancelled {
			w.emit("abort", "reason", cancelledText)
			return
		}
		if d.Termination == run.ReasonError {
			w.emit("error", "errorText", w.errorMessage())
		}
		w.emit("finish", "finishReason", cmp.Or(finishReasons[d.Termination], "other"))
	case DeltaData:
		if e.Type == TextDelta {
			w.emit("data-text-delta", "data", d, "transient", true)
		}
	}
}

func (w *writer) writeAisdkText(kind, id, text string) {
	w.emit(kind+"-start", "id", id)
	w.emit(kind+"-delta", "id", id, "delta", text)
	w.emit(kind+"-end", "id", id)
}

func (w *writer) writeAisdkOutput(call string, denied, failed bool, text string, output any) {
	switch {
	case denied:
		w.emit("tool-output-denied", "toolCallId", call)
	case failed:
		w.emit("tool-output-error", "toolCallId", call, "dynamic", true, "errorText?", text)
	default:
		w.emit("tool-output-available", "toolCallId", call, "dynamic", true, "output", output)
	}
}

// finishReasons are the AI SDK's reasons for the end of an attempt; any other is "other".
var finishReasons = map[run.Reason]string{
	run.ReasonNaturalEnd: "stop", run.ReasonSuspended: "stop", run.Stopped(policy.StopContains): "stop",
	run.ReasonError: "error", run.Stopped(policy.StopConsecutiveErrors): "error", run.Stopped(policy.StopLoop): "error",
	run.Stopped(policy.StopMaxRounds): "length", run.Stopped(policy.StopTimeout): "length",
	run.Stopped(policy.StopTokens): "length", run.Stopped(string(run.CodeTokensExhausted)): "length",
	run.Stopped(policy.StopOnTool): "tool-calls",
}
