package stream

import (
	"cmp"
	"slices"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

// This file is the table of the forms arvo, cowork and forge: for each canonical event, the names and fields of the
// form. docs/events.md describes them; docs/openapi.yaml lists the names.

func rfc3339(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// arvoFrame adds the run and its agent to every event.
func arvoFrame(e Event, id, name string, data object) any {
	return object{"id?", id, "type", name, "time", rfc3339(e.at), "data", data, "metadata", object{
		"subject", e.Thread, "initiatorId", e.parent, "selfId", e.agent, "selfVersion", e.version, "runId", e.Run,
	}}
}

// namedFrame is the frame of cowork and forge.
func namedFrame(e Event, id, name string, data object) any {
	return object{"id?", id, "type", name, "time", rfc3339(e.at), "run", e.Run, "subject", e.Thread, "data", data}
}

// writeArvo has no event for a run that ends without an output.
func (w *writer) writeArvo(e Event) {
	switch d := e.Data.(type) {
	case StepStartData:
		names := map[run.Lifecycle]string{
			run.LifecycleInit: "agent.init", run.LifecycleOutputError: "agent.self.correction",
		}
		messages, err := policy.ViewMessages(policy.WithSeenCounts(d.messages, d.asked))
		w.err = cmp.Or(w.err, err)
		w.emit(cmp.Or(names[d.Lifecycle], "agent.resume"), "system", d.system, "messages", messages,
			"tools", append([]string{}, d.tools...), "llmResponseType", d.output, "cycle", d.Cycle)
	case ToolCallReadyData:
		if d.Pending != "" {
			w.writeArvoApprovals(e)
			return
		}
		made := w.findReply(e.Step)
		tokens := object{"prompt", made.Usage.Total() - made.Usage.Output, "completion", made.Usage.Output}
		w.emit("agent.tool.request", "tool", arvoTool(d.Kind, d.Name, d.Tool), "toolUseId", d.ID,
			"usage", object{"tokens", tokens}, "executionunits", made.Units)
	case ToolCallDoneData:
		if d.Reason == run.WhyDenied {
			w.emit("agent.tool.permission.denied", "tools", []object{arvoTool(d.Kind, d.Name, d.Tool)})
		}
	case ActivitySnapshotData:
		if r, ok := d.Content.(RequestContent); ok {
			var tools []object
			for _, t := range r.Tools {
				tools = append(tools, arvoTool(t.Kind, t.Name, t.Tool))
			}
			w.writeArvoBlocked(tools)
		}
	case RunFinishData:
		if d.Termination == run.ReasonSuspended {
			tools := []object{}
			for _, c := range d.Waiting {
				tools = append(tools, arvoTool(c.Kind, c.Name, c.Tool))
			}
			w.emit("agent.tool.request.delegation", "tools", tools)
		} else if d.Result != nil {
			w.emit("agent.output.finalization", "content", d.Result.Response)
			w.emit("agent.output", "output", d.Result.Response)
		}
	case DeltaData:
		switch e.Type {
		case TextDelta:
			w.emit("agent.llm.delta.text", "delta", d.Delta, "content", d.content)
		case ReasoningDelta:
			w.emit("agent.llm.delta", "delta", d.Delta, "content", d.content)
		default: // meta.error null: no error is known while arguments are being written
			w.emit("agent.llm.delta.tool", "toolname", d.Name, "toolUseId", d.ID, "input", d.content,
				"meta", object{"error", nil})
		}
	}
}

// arvoTool returns the name of a tool for the model and its original name.
func arvoTool(kind agent.ToolKind, name, original string) object {
	return object{"kind", kind, "name", name, "originalName", original}
}

// writeArvoApprovals writes all calls of the entry that wait for approval, at the first of them.
func (w *writer) writeArvoApprovals(e Event) {
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
		w.writeArvoBlocked(tools)
	}
}

func (w *writer) writeArvoBlocked(tools []object) {
	w.emit("agent.tool.permission.blocked", "tools", tools)
	w.emit("agent.tool.permission.requested", "tools", tools)
}

// writeCowork writes seed 002's events, with new names for what its front end lacks: approvals, waits and errors.
func (w *writer) writeCowork(e Event) {
	switch d := e.Data.(type) {
	case StepStartData: // retract shown text that is not the answer
		r := w.findReply(e.Step)
		if r.TextDropped {
			w.emit("stream-clear", "reason", "tool_calls")
		} else if r.Text != "" && r.sentBack {
			w.emit("stream-clear", "reason", "sent_back")
		}
		if r.Context != nil {
			w.emit("context-budget", "total", r.Context.Total, "remaining", r.Context.Remaining)
		}
	case ToolCallReadyData:
		if d.Pending == "" {
			w.emit("tool-call", "id", d.ID, "name", d.Tool, "arguments?", d.Arguments)
			return
		}
		call := object{"id", d.Pending, "name", d.Tool, "arguments?", d.input}
		w.emit("approval-requested", "approval?", d.Approval, "for", d.For, "calls", []object{call})
	case ToolCallDoneData:
		w.emit("tool-result", "id", d.ID, "name", d.Tool, "success", d.Outcome == run.StatusSucceeded,
			"content", d.Result.Content, "blob?", d.Result.Blob)
	case ActivitySnapshotData:
		if r, ok := d.Content.(RequestContent); ok {
			calls := []object{}
			for _, t := range r.Tools {
				for _, id := range t.Calls {
					calls = append(calls, object{"id", id, "name", t.Tool})
				}
			}
			w.emit("approval-requested", "approval?", r.Approval, "for", run.ForApproval, "calls", calls)
		}
	case PlanCreatedData:
		w.emit("plan-created", "message_id", d.Message, "steps", d.Steps)
	case StepExecutingData:
		w.emit("step-executing", "step", d.Step, "description", d.Description)
	case StepCompletedData:
		w.emit("step-completed", "step", d.Step, "success", d.Success, "call_id?", d.Call, "tool?", d.Tool,
			"preview?", d.Preview)
	case RunFinishData:
		switch {
		case d.Result != nil:
			w.emit("stream-complete", "role", run.RoleAssistant, "content", d.Result.Response)
		case d.Termination == run.ReasonSuspended:
			w.emit("stream-suspended", "calls", append([]string{}, waitingCalls(d)...))
		case d.Termination == run.ReasonCancelled:
			w.emit("stream-cancelled", "reason", d.Termination)
		case d.Termination == run.ReasonError:
			cause := w.findError()
			w.emit("stream-error", "reason", d.Termination, "code?", cause.Code, "message?", cause.Message)
		default: // a good end without an output
			w.emit("stream-complete", "role", run.RoleAssistant, "content", "")
		}
	case DeltaData:
		if e.Type == TextDelta {
			w.emit("stream-token", "token", d.Delta, "attempt", d.Attempt)
		}
	}
}

func waitingCalls(d RunFinishData) (ids []string) {
	for _, c := range d.Waiting {
		ids = append(ids, c.Call)
	}
	return ids
}

// findError returns the error that ended the run in this entry.
func (w *writer) findError() ErrorData {
	for _, e := range w.entry {
		if d, ok := e.Data.(ErrorData); ok {
			return d
		}
	}
	return ErrorData{}
}

// writeForge writes seed 004's events, spelled as in its code (loop_start for LoopStart).
func (w *writer) writeForge(e Event) {
	switch d := e.Data.(type) {
	case RunStartData:
		w.emit("loop_start", "agent", d.Agent, "version?", d.Version, "resumed?", d.Resumed)
		w.emit("update_busy", "busy", true)
	case StepStartData:
		w.writeForgeStep(e, d)
	case InferenceDoneData:
		w.writeForgeCorrection(d)
	case ToolCallReadyData:
		w.writeForgeCall(d)
	case ToolCallResumedData:
		name := "tool_approval_granted"
		switch d.Result.Action {
		case "":
			return
		case run.ActionDeny, run.ActionCancel:
			name = "tool_approval_rejected"
		}
		w.emit(name, "approval?", d.Result.Approval, "tools", []object{forgeTool(d.Call, d.name, d.kind)},
			"by?", d.Result.By, "note?", d.Result.Note)
	case ToolCallDoneData:
		w.writeForgeResult(d)
	case ActivitySnapshotData:
		if r, ok := d.Content.(RequestContent); ok {
			var tools []object
			for _, t := range r.Tools {
				for _, id := range t.Calls {
					tools = append(tools, forgeTool(id, t.Name, t.Kind))
				}
			}
			w.emit("tool_approval_request", "approval?", r.Approval, "tools", tools, "note?", r.Reason)
		}
	case MessagesSnapshotData:
		if d.evicted && d.Summary != "" {
			w.emit("context_summarization", "summary", d.Summary)
		}
	case ErrorData:
		code := string(d.Code)
		if d.Code == run.CodeInteractionsExhausted {
			code = "max_iterations"
		}
		w.emit("error", "code", code, "message", d.Message)
	case RunFinishData:
		end := object{"reason", d.Termination}
		if d.Result != nil {
			end = append(end, "result?", d.Result.Response)
		}
		w.emit("loop_end", append(end, "waiting?", waitingCalls(d))...)
		w.emit("update_busy", "busy", false)
		w.emit("turn_end")
	case DeltaData:
		switch piece := (object{"content", d.Delta, "live", true, "attempt?", d.Attempt}); {
		case e.Type == TextDelta:
			w.emit("message_content", piece...)
		case e.Type == ReasoningDelta:
			w.emit("thinking_content", piece...)
		case d.Delta != "":
			w.emit("tool_call_content", piece...)
		case d.Name != "":
			w.emit("tool_call_start", "id", d.ID, "tool_name", d.Name, "live", true)
		}
	}
}

func forgeTool(id, name string, kind agent.ToolKind) object {
	return object{"id", id, "tool_name", name, "kind?", kind}
}

// writeForgeStep writes a reply without its calls: first thinking, then text.
func (w *writer) writeForgeStep(e Event, d StepStartData) {
	at := object{"iteration", d.Cycle.Current + 1, "max_iterations", d.Cycle.Max}
	w.emit("loop_iteration", at...)
	w.emit("api_call_start", at...)
	r := w.findReply(e.Step)
	for _, thought := range slices.Concat(r.thoughts, r.written) {
		w.emit("thinking_start")
		w.emit("thinking_content", "content", thought)
		w.emit("thinking_end")
	}
	if r.text != "" {
		w.emit("message_start")
		w.emit("message_content", "content", r.text)
		w.emit("message_end")
	}
	w.emit("api_call_end", "model", r.Model, "requests", r.Requests, "stop_reason?", r.Stop, "duration_ms?", r.Duration)
	u := r.Usage
	w.emit("token_usage", "prompt_tokens", u.Total()-u.Output, "completion_tokens", u.Output, "total_tokens", u.Total())
}

// writeForgeCorrection writes why a reply was refused: a required call is missing, or the reply is invalid.
func (w *writer) writeForgeCorrection(d InferenceDoneData) {
	if !d.sentBack {
		return
	}
	code, message := "output", d.Refused
	switch d.RefusedAs {
	case policy.KindNoToolCall:
		code = "no_tool_call"
		w.emit("no_tool_call", "code", code, "message", d.Refused)
	case policy.KindMalformed: // a call that cannot be read is no call
		code, message = "parse", d.Problem
		w.emit("no_tool_call", "code", d.RefusedAs, "message", d.Refused)
	case policy.KindMissingField:
		code, message = string(d.RefusedAs), d.Problem
	}
	w.emit("error", "code", code, "message", message)
}

func (w *writer) writeForgeCall(d ToolCallReadyData) {
	if d.Pending != "" {
		name := "tool_approval_request"
		if d.For != run.ForApproval {
			name = "user_input"
		}
		tool := append(forgeTool(d.Pending, agent.ModelName(d.Tool), d.Kind), "arguments?", d.input)
		w.emit(name, "approval?", d.Approval, "tools", []object{tool})
		return
	}
	w.emit("tool_call_start", "id", d.ID, "tool_name", d.Name)
	w.emit("tool_call_content", "content", string(d.Arguments))
	w.emit("tool_call_end")
	if !d.missing { // the seed has only an error for a tool that does not exist
		w.emit("tool_call", append(forgeTool(d.ID, d.Name, d.Kind), "arguments?", d.Arguments)...)
	}
}

func (w *writer) writeForgeResult(d ToolCallDoneData) {
	if d.Reason == run.WhyExpired {
		w.emit("tool_approval_timeout", "tools", []object{forgeTool(d.ID, d.Name, d.Kind)})
	}
	if d.Outcome == run.StatusSucceeded {
		w.emit("tool_result", "id", d.ID, "tool_name", d.Name, "result?", d.Result.Content, "reason?", d.Reason,
			"blob?", d.Result.Blob)
		return
	}
	code := cmp.Or(d.Reason, run.WhyToolError)
	if d.Reason == run.WhyUnknownTool {
		code = "tool_not_found"
	} else {
		w.emit("tool_result_error", "id", d.ID, "tool_name", d.Name, "error?", d.Result.Content, "reason?", d.Reason,
			"blob?", d.Result.Blob)
	}
	w.emit("error", "code", code, "message", d.Result.Content, "id", d.ID)
}
