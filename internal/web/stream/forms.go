package stream

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
)

// This file is the table of the forms arvo, cowork and forge: for each canonical event, the names and fields of the
// form. docs/events.md describes them; docs/openapi.yaml lists the names.

func rfc3339(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// arvoFrame says with every event whose it is.
func arvoFrame(e Event, id, name string, data object) any {
	return object{"id?", id, "type", name, "time", rfc3339(e.at), "data", data, "metadata", object{
		"subject", e.Thread, "initiatorId", e.parent, "selfId", e.agent, "selfVersion", e.version, "runId", e.Run,
	}}
}

// namedFrame is the frame of cowork and forge.
func namedFrame(e Event, id, name string, data object) any {
	return object{"id?", id, "type", name, "time", rfc3339(e.at), "run", e.Run, "subject", e.Thread, "data", data}
}

// arvo has no event for a run that ends without an output.
func (w *writer) arvo(e Event) {
	switch d := e.Data.(type) {
	case StepStartData:
		names := map[run.Lifecycle]string{
			run.LifecycleInit: "agent.init", run.LifecycleOutputError: "agent.self.correction",
		}
		messages, err := run.MarshalMessages(d.messages, d.asked)
		w.err = cmp.Or(w.err, err)
		w.tell(cmp.Or(names[d.Lifecycle], "agent.resume"), "system", d.system, "messages", json.RawMessage(messages),
			"tools", append([]string{}, d.tools...), "llmResponseType", d.output, "cycle", d.Cycle)
	case ToolCallReadyData:
		if d.Pending != "" {
			w.arvoApprovals(e)
			return
		}
		made := w.reply(e.Step)
		tokens := object{"prompt", made.Usage.Input, "completion", made.Usage.Output}
		w.tell("agent.tool.request", "tool", arvoTool(d.Kind, d.Name, d.Tool), "toolUseId", d.ID,
			"usage", object{"tokens", tokens}, "executionunits", made.Units)
	case ToolCallDoneData:
		if d.Reason == run.WhyDenied {
			w.tell("agent.tool.permission.denied", "tools", []object{arvoTool(d.Kind, d.Name, d.Tool)})
		}
	case ActivitySnapshotData:
		if r, ok := d.Content.(RequestContent); ok {
			var tools []object
			for _, t := range r.Tools {
				tools = append(tools, arvoTool(t.Kind, t.Name, t.Tool))
			}
			w.arvoBlocked(tools)
		}
	case RunFinishData:
		if d.Termination == run.ReasonSuspended {
			tools := []object{}
			for _, c := range d.Waiting {
				tools = append(tools, arvoTool(c.Kind, c.Name, c.Tool))
			}
			w.tell("agent.tool.request.delegation", "tools", tools)
		} else if d.Result != nil {
			w.tell("agent.output.finalization", "content", d.Result.Response)
			w.tell("agent.output", "output", d.Result.Response)
		}
	case DeltaData:
		switch e.Type {
		case TextDelta:
			w.tell("agent.llm.delta.text", "delta", d.Delta, "content", d.content)
		case ReasoningDelta:
			w.tell("agent.llm.delta", "delta", d.Delta, "content", d.content)
		default: // meta.error null: no error is known while arguments are being written
			w.tell("agent.llm.delta.tool", "toolname", d.Name, "toolUseId", d.ID, "input", d.content,
				"meta", object{"error", nil})
		}
	}
}

// arvoTool names a tool: as the model does, and by its original name.
func arvoTool(kind agent.ToolKind, name, original string) object {
	return object{"kind", kind, "name", name, "originalName", original}
}

// arvoApprovals tells once, at the entry's first pending call, of all its calls that wait for an approval.
func (w *writer) arvoApprovals(e Event) {
	var tools []object
	first := -1
	for _, o := range w.entry {
		d, ok := o.Data.(ToolCallReadyData)
		if !ok || d.Pending == "" {
			continue
		}
		if first < 0 {
			first = o.Index
		}
		if d.For == run.ForApproval {
			tools = append(tools, arvoTool(d.Kind, agent.ModelName(d.Tool), d.Tool))
		}
	}
	if len(tools) > 0 && e.Index == first {
		w.arvoBlocked(tools)
	}
}

func (w *writer) arvoBlocked(tools []object) {
	w.tell("agent.tool.permission.blocked", "tools", tools)
	w.tell("agent.tool.permission.requested", "tools", tools)
}

// cowork is seed 002's events, and names of our own where its front end has none: approvals, waits and bad ends.
func (w *writer) cowork(e Event) {
	switch d := e.Data.(type) {
	case StepStartData: // text that was shown and is not the answer is taken back
		r := w.reply(e.Step)
		if r.TextDropped {
			w.tell("stream-clear", "reason", "tool_calls")
		} else if r.Text != "" && r.sentBack {
			w.tell("stream-clear", "reason", "sent_back")
		}
		if r.Context != nil {
			w.tell("context-budget", "total", r.Context.Total, "remaining", r.Context.Remaining)
		}
	case ToolCallReadyData:
		if d.Pending == "" {
			w.tell("tool-call", "id", d.ID, "name", d.Tool, "arguments?", d.Arguments)
			return
		}
		call := object{"id", d.Pending, "name", d.Tool, "arguments?", d.input}
		w.tell("approval-requested", "approval?", d.Approval, "for", d.For, "calls", []object{call})
	case ToolCallDoneData:
		w.tell("tool-result", "id", d.ID, "name", d.Tool, "success", d.Outcome == run.StatusSucceeded,
			"content", d.Result.Content, "blob?", d.Result.Blob)
	case ActivitySnapshotData:
		if r, ok := d.Content.(RequestContent); ok {
			calls := []object{}
			for _, t := range r.Tools {
				for _, id := range t.Calls {
					calls = append(calls, object{"id", id, "name", t.Tool})
				}
			}
			w.tell("approval-requested", "approval?", r.Approval, "for", run.ForApproval, "calls", calls)
		}
	case PlanCreatedData:
		w.tell("plan-created", "message_id", d.Message, "steps", d.Steps)
	case StepExecutingData:
		w.tell("step-executing", "step", d.Step, "description", d.Description)
	case StepCompletedData:
		w.tell("step-completed", "step", d.Step, "success", d.Success, "call_id?", d.Call, "tool?", d.Tool,
			"preview?", d.Preview)
	case RunFinishData:
		w.coworkEnd(d)
	case DeltaData:
		if e.Type == TextDelta {
			w.tell("stream-token", "token", d.Delta, "attempt", d.Attempt)
		}
	}
}

func (w *writer) coworkEnd(d RunFinishData) {
	switch {
	case d.Result != nil:
		w.tell("stream-complete", "role", run.RoleAssistant, "content", d.Result.Response)
	case d.Termination == run.ReasonSuspended:
		w.tell("stream-suspended", "calls", append([]string{}, waitingCalls(d)...))
	case d.Termination == run.ReasonCancelled:
		w.tell("stream-cancelled", "reason", d.Termination)
	case d.Termination == run.ReasonError:
		cause := w.cause()
		w.tell("stream-error", "reason", d.Termination, "code?", cause.Code, "message?", cause.Message)
	default: // a good end without an output
		w.tell("stream-complete", "role", run.RoleAssistant, "content", "")
	}
}

func waitingCalls(d RunFinishData) (ids []string) {
	for _, c := range d.Waiting {
		ids = append(ids, c.Call)
	}
	return ids
}

// cause is the error that ended the run in this entry.
func (w *writer) cause() ErrorData {
	for _, e := range w.entry {
		if d, ok := e.Data.(ErrorData); ok {
			return d
		}
	}
	return ErrorData{}
}

// forge is seed 004's events in the spelling of its code (loop_start for LoopStart).
func (w *writer) forge(e Event) {
	switch d := e.Data.(type) {
	case RunStartData:
		w.tell("loop_start", "agent", d.Agent, "version?", d.Version, "resumed?", d.Resumed)
		w.tell("update_busy", "busy", true)
	case StepStartData:
		w.forgeStep(e, d)
	case InferenceDoneData:
		w.forgeSentBack(d)
	case ToolCallReadyData:
		w.forgeCall(d)
	case ToolCallResumedData:
		name := "tool_approval_granted"
		switch d.Result.Action {
		case "":
			return
		case run.ActionDeny, run.ActionCancel:
			name = "tool_approval_rejected"
		}
		w.tell(name, "approval?", d.Result.Approval, "tools", []object{forgeTool(d.Call, d.name, d.kind)},
			"by?", d.Result.By, "note?", d.Result.Note)
	case ToolCallDoneData:
		w.forgeDone(d)
	case ActivitySnapshotData:
		if r, ok := d.Content.(RequestContent); ok {
			var tools []object
			for _, t := range r.Tools {
				for _, id := range t.Calls {
					tools = append(tools, forgeTool(id, t.Name, t.Kind))
				}
			}
			w.tell("tool_approval_request", "approval?", r.Approval, "tools", tools, "note?", r.Reason)
		}
	case MessagesSnapshotData:
		if d.evicted && d.Summary != "" {
			w.tell("context_summarization", "summary", d.Summary)
		}
	case ErrorData:
		code := string(d.Code)
		if d.Code == run.CodeInteractionsExhausted {
			code = "max_iterations"
		}
		w.tell("error", "code", code, "message", d.Message)
	case RunFinishData:
		end := object{"reason", d.Termination}
		if d.Result != nil {
			end = append(end, "result?", d.Result.Response)
		}
		w.tell("loop_end", append(end, "waiting?", waitingCalls(d))...)
		w.tell("update_busy", "busy", false)
		w.tell("turn_end")
	case DeltaData:
		switch piece := (object{"content", d.Delta, "live", true, "attempt?", d.Attempt}); {
		case e.Type == TextDelta:
			w.tell("message_content", piece...)
		case e.Type == ReasoningDelta:
			w.tell("thinking_content", piece...)
		case d.Delta != "":
			w.tell("tool_call_content", piece...)
		case d.Name != "":
			w.tell("tool_call_start", "id", d.ID, "tool_name", d.Name, "live", true)
		}
	}
}

func forgeTool(id, name string, kind agent.ToolKind) object {
	return object{"id", id, "tool_name", name, "kind?", kind}
}

// forgeStep tells a whole reply but its calls: thinking, then text, as they were written.
func (w *writer) forgeStep(e Event, d StepStartData) {
	at := object{"iteration", d.Cycle.Current + 1, "max_iterations", d.Cycle.Max}
	w.tell("loop_iteration", at...)
	w.tell("api_call_start", at...)
	r := w.reply(e.Step)
	for _, thought := range slices.Concat(r.thoughts, r.written) {
		w.tell("thinking_start")
		w.tell("thinking_content", "content", thought)
		w.tell("thinking_end")
	}
	if r.text != "" {
		w.tell("message_start")
		w.tell("message_content", "content", r.text)
		w.tell("message_end")
	}
	w.tell("api_call_end", "model", r.Model, "requests", r.Requests, "stop_reason?", r.Stop, "duration_ms?", r.Duration)
	u := r.Usage
	w.tell("token_usage", "prompt_tokens", u.Total()-u.Output, "completion_tokens", u.Output, "total_tokens", u.Total())
}

// forgeSentBack tells of a reply that is not the last word: that a required call is missing, or what is wrong with
// it.
func (w *writer) forgeSentBack(d InferenceDoneData) {
	if !d.sentBack {
		return
	}
	code, message := "output", d.Refused
	switch d.RefusedAs {
	case run.KindNoToolCall:
		code = "no_tool_call"
		w.tell("no_tool_call", "code", code, "message", d.Refused)
	case run.KindMalformed: // a call that cannot be read is no call
		code, message = "parse", d.Problem
		w.tell("no_tool_call", "code", d.RefusedAs, "message", d.Refused)
	case run.KindMissingField:
		code, message = string(d.RefusedAs), d.Problem
	}
	w.tell("error", "code", code, "message", message)
}

func (w *writer) forgeCall(d ToolCallReadyData) {
	if d.Pending != "" {
		name := "tool_approval_request"
		if d.For != run.ForApproval {
			name = "user_input"
		}
		tool := append(forgeTool(d.Pending, agent.ModelName(d.Tool), d.Kind), "arguments?", d.input)
		w.tell(name, "approval?", d.Approval, "tools", []object{tool})
		return
	}
	w.tell("tool_call_start", "id", d.ID, "tool_name", d.Name)
	w.tell("tool_call_content", "content", string(d.Arguments))
	w.tell("tool_call_end")
	if !d.missing { // the seed has only an error for a tool that does not exist
		w.tell("tool_call", append(forgeTool(d.ID, d.Name, d.Kind), "arguments?", d.Arguments)...)
	}
}

func (w *writer) forgeDone(d ToolCallDoneData) {
	if d.Reason == run.WhyExpired {
		w.tell("tool_approval_timeout", "tools", []object{forgeTool(d.ID, d.Name, d.Kind)})
	}
	if d.Outcome == run.StatusSucceeded {
		w.tell("tool_result", "id", d.ID, "tool_name", d.Name, "result?", d.Result.Content, "reason?", d.Reason,
			"blob?", d.Result.Blob)
		return
	}
	code := cmp.Or(d.Reason, run.WhyToolError)
	if d.Reason == run.WhyUnknownTool {
		code = "tool_not_found"
	} else {
		w.tell("tool_result_error", "id", d.ID, "tool_name", d.Name, "error?", d.Result.Content, "reason?", d.Reason,
			"blob?", d.Result.Blob)
	}
	w.tell("error", "code", code, "message", d.Result.Content, "id", d.ID)
}
