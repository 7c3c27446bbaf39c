package stream

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
)

// Chat writes what a run does as one message of the AI SDK's chat (UI message stream 1). Beyond the format Aisdk it
// writes live text as text of the message, and a request for approval on the call itself. It remembers what the client
// has of the reply that is being written. Not safe for concurrent use.
type Chat struct {
	// Ask describes a request to the client.
	Ask func(id string) (ChatRequest, error)

	calls    []string        // those that the message has
	step     []string        // those of its current step, where a client puts a call that is written again
	sent     map[string]bool // requests that the message has
	answered []string        // calls whose requests the client has answered, and that have no outcome in the message
	end      *RunFinishData  // of the attempt; nil = it goes on
	problem  string          // why the run ended in an error
	reply    chatReply
}

// ChatRequest is a request as a client sees it.
type ChatRequest struct {
	Mine  bool            // the client may decide it
	Args  json.RawMessage // those of an edit, which an approval would let run; nil = the call's own
	Shown any             // the rest
}

// chatReply is what the client has of the reply to an inference. The zero value is nothing.
type chatReply struct {
	inference int64
	attempt   int
	texts     map[string]string // of the parts text and reasoning
	open      string            // the part that goes on; "" = none
	complete  bool
}

// id is the id of a part.
func (r *chatReply) id(part string) string { return fmt.Sprintf("%s_%d", part, r.inference) }

// NewChat returns a Chat for a message that has these calls and requests already, some of the calls in its last step.
// The client has answered those of some calls.
func NewChat(calls, step, requests, answered []string) *Chat {
	c := &Chat{calls: calls, step: step, sent: map[string]bool{}, answered: answered}
	for _, id := range requests {
		c.sent[id] = id != ""
	}
	return c
}

// RequestOf is the request of an approval: its id is the request's, and where the request is told again, a dot and the
// entry with which that was.
func RequestOf(approval string) string {
	id, _, _ := strings.Cut(approval, ".")
	return id
}

// Start begins the message.
func (c *Chat) Start(message, runID string) []Encoded {
	return c.write(nil, func(w *writer) {
		w.emit("start", "messageId", message, "messageMetadata", object{"run", runID})
	})
}

// IsOver reports whether the attempt has ended, as far as entries were written: the run is done, or waits for people.
func (c *Chat) IsOver() bool { return c.end != nil }

// EndBelow ends the attempt at a call whose run waits for people.
func (c *Chat) EndBelow(call, runID string) []Encoded {
	c.end = &RunFinishData{Termination: run.ReasonSuspended}
	return c.write(nil, func(w *writer) {
		w.emit("data-waiting", "id", runID, "data", object{"for", "run", "call", call, "run", runID})
	})
}

// Finish ends the message, behind the entries before next. The client sends its metadata back. A call that the client
// has answered, and that has no outcome in the message, is asked about again, or goes on, or has the outcome that it
// had: else the client would send its answers again. What is returned is valid with an error.
func (c *Chat) Finish(next int64, after *run.AgentState) (out []Encoded, err error) {
	out = c.write(nil, func(w *writer) {
		c.closePart(w)
		for _, id := range slices.Clone(c.answered) {
			call, known := after.Call(id)
			switch {
			case !known:
			case call.Wait != nil && call.Wait.For == run.ForApproval:
				err = errors.Join(err, c.askOn(w, call, fmt.Sprintf("%s.%d", call.Wait.Approval, next)))
			case call.Result != nil:
				c.writeOutcome(w, id, call.Status, call.Reason, newToolResult(call.Result))
			default:
				c.writeCall(w, id, call.Name, call.Input)
			}
		}
		reason := "other"
		if c.end != nil {
			reason = cmp.Or(finishReasons[c.end.Termination], reason)
			switch c.end.Termination {
			case run.ReasonCancelled:
				w.emit("abort", "reason", cancelledText)
			case run.ReasonError:
				w.emit("error", "errorText", c.problem)
			}
		}
		w.emit("finish", "finishReason", reason, "messageMetadata", object{"next", next})
	})
	return out, err
}

// write returns what f emits about the events of one entry.
func (c *Chat) write(entry []Event, f func(w *writer)) []Encoded {
	w := &writer{form: encodings[Aisdk], entry: entry}
	f(w)
	return w.out
}

// Entry writes the events of an entry. after is the run behind it.
func (c *Chat) Entry(events []Event, after *run.AgentState) (out []Encoded, err error) {
	out = c.write(events, func(w *writer) {
		for _, w.now = range events {
			if err == nil {
				err = c.event(w, after)
			}
		}
	})
	return out, err
}

func (c *Chat) event(w *writer, after *run.AgentState) error {
	switch d := w.now.Data.(type) {
	case RunStartData:
		c.end = nil
	case StepStartData:
		n, _ := strconv.ParseInt(strings.TrimPrefix(w.now.Step, "step_"), 10, 64)
		c.finishReply(w, n, w.findReply(w.now.Step))
	case ToolCallStartData:
		if d.Pending == "" {
			c.calls, c.step = append(c.calls, d.ID), append(c.step, d.ID)
			w.emit("tool-input-start", "toolCallId", d.ID, "toolName", d.Name, "dynamic", true)
		}
	case ToolCallReadyData:
		if d.Pending != "" {
			return c.ask(w, d.Pending, d.For, d.Approval, d.Approval, after)
		}
		w.emit("tool-input-available", "toolCallId", d.ID, "toolName", d.Name, "dynamic", true, "input", d.Arguments)
	case ToolCallResumedData:
		c.repeatCall(w, d.Call, after)
		if args := d.Result.Arguments; len(args) > 0 { // an edit
			c.writeCall(w, d.Call, d.name, args)
		}
	case ToolCallDoneData:
		c.repeatCall(w, d.ID, after)
		c.answered = slices.DeleteFunc(c.answered, func(id string) bool { return id == d.ID })
		c.writeOutcome(w, d.ID, d.Outcome, d.Reason, d.Result)
	case StepEndData:
		w.emit("finish-step")
	case ActivitySnapshotData:
		if request, ok := d.Content.(RequestContent); ok {
			c.sent[request.Approval] = true
			w.emit("data-waiting", "id", request.Approval, "data", object{"for", "tools", "request", request})
		}
	case RunFinishData:
		people := d.Termination != run.ReasonSuspended || len(d.Waiting) == 0
		for _, wait := range d.Waiting { // those that an earlier message has, as well
			people = people || wait.For != run.ForAnswer
			again := fmt.Sprintf("%s.%d", wait.Approval, w.now.Seq)
			if err := c.ask(w, wait.Call, wait.For, wait.Approval, again, after); err != nil {
				return err
			}
		}
		if people {
			c.end, c.problem = &d, w.errorMessage()
			c.writeResult(w, d.Result)
		}
	}
	return nil
}

// writeResult writes what a run gives that no reply has said: of a plan's, or a text of the definition.
func (c *Chat) writeResult(w *writer, result *Response) {
	if result == nil {
		return
	}
	text, said := "", c.reply.texts["text"]
	isValue := json.Unmarshal(result.Response, &text) != nil
	if isValue {
		text = string(result.Response)
	}
	if said = strings.TrimSpace(said); c.reply.complete && said != "" && // the last piece of it, where there are several
		(strings.HasSuffix(strings.TrimSpace(text), said) || isValue && json.Valid([]byte(said))) {
		return
	}
	n := c.reply.inference
	if c.reply.complete || n == 0 {
		n++
	}
	c.finishReply(w, n, InferenceDoneData{text: text})
	w.emit("finish-step")
}

// ask tells the client of a request, once. One that it may decide is that approval of the call.
func (c *Chat) ask(w *writer, call string, what run.WaitFor, id, approval string, after *run.AgentState) error {
	if what == run.ForAnswer || c.sent[id] {
		return nil
	}
	c.sent[id] = true
	if of, _ := after.Call(call); of.Reason == run.WhyAwaiting { // blocked: it has its outcome
		what = "tools"
	} else if c.repeatCall(w, call, after); what == run.ForApproval && of.Wait != nil {
		return c.askOn(w, of, approval)
	}
	request, err := c.Ask(id)
	w.emit("data-waiting", "id", id, "data", object{"for", what, "call", call, "request", request.Shown})
	return err
}

// askOn tells the client of the request on a call, with the arguments that an approval would let run.
func (c *Chat) askOn(w *writer, call run.Call, approval string) error {
	id := call.Wait.Approval
	request, err := c.Ask(id)
	args := call.Input
	if request.Args != nil {
		args = request.Args
	}
	if request.Args != nil || slices.Contains(c.answered, call.ID) { // else the message has them
		c.writeCall(w, call.ID, call.Name, args)
	}
	c.answered = slices.DeleteFunc(c.answered, func(id string) bool { return id == call.ID })
	if request.Mine {
		w.emit("tool-approval-request", "approvalId", approval, "toolCallId", call.ID, "approvalDescriptor", request.Shown)
	} else {
		w.emit("data-waiting", "id", id, "data", object{"for", run.ForApproval, "call", call.ID, "request", request.Shown})
	}
	return err
}

func (c *Chat) writeOutcome(w *writer, call string, status run.CallStatus, why run.CallReason, result ToolResult) {
	switch {
	case why == run.WhyDenied:
		w.emit("tool-output-denied", "toolCallId", call)
	case status != run.StatusSucceeded:
		w.emit("tool-output-error", "toolCallId", call, "dynamic", true, "errorText", result.Content)
	default:
		w.emit("tool-output-available", "toolCallId", call, "dynamic", true, "output", result)
	}
}

// writeCall writes a call, perhaps again. What the message has of it in an earlier step stays there, and ends.
func (c *Chat) writeCall(w *writer, id, name string, args json.RawMessage) {
	if slices.Contains(c.calls, id) && !slices.Contains(c.step, id) {
		w.emit("tool-output-error", "toolCallId", id, "dynamic", true, "errorText", "This call goes on below.")
	}
	c.step = append(c.step, id)
	w.emit("tool-input-available", "toolCallId", id, "toolName", name, "dynamic", true, "input", args)
}

// repeatCall writes a call that an earlier message has: a client takes no result of a call that is not in its message.
func (c *Chat) repeatCall(w *writer, id string, after *run.AgentState) {
	call, known := after.Call(id)
	if slices.Contains(c.calls, id) || !known {
		return
	}
	c.writeCall(w, id, call.Name, call.Input)
	c.calls = append(c.calls, id)
}

// Live writes a piece of a reply that a model is writing. Calls are written when they are complete.
func (c *Chat) Live(d Delta) []Encoded {
	parts := map[agent.DeltaKind]string{agent.DeltaText: "text", agent.DeltaReasoning: "reasoning"}
	return c.write(nil, func(w *writer) {
		if part := parts[d.Kind]; part != "" {
			c.beginReply(w, d.Inference, d.Attempt)
			c.extend(w, part, d.Text)
		}
	})
}

// beginReply begins a step, and takes back what an attempt has written that failed.
func (c *Chat) beginReply(w *writer, inference int64, attempt int) {
	r := &c.reply
	switch {
	case r.inference != inference:
		w.emit("start-step")
	case r.attempt != attempt:
		w.emit("reset-step")
	default:
		return
	}
	c.step, *r = nil, chatReply{inference: inference, attempt: attempt, texts: map[string]string{}}
}

// extend adds text to a part of the reply, and ends the part before it.
func (c *Chat) extend(w *writer, part, text string) {
	r := &c.reply
	if text == "" {
		return
	}
	if r.open != part {
		c.closePart(w)
		r.open = part
		w.emit(part+"-start", "id", r.id(part))
	}
	r.texts[part] += text
	w.emit(part+"-delta", "id", r.id(part), "delta", text)
}

func (c *Chat) closePart(w *writer) {
	if r := &c.reply; r.open != "" {
		w.emit(r.open+"-end", "id", r.id(r.open))
		r.open = ""
	}
}

// finishReply writes what the client does not have of a reply. Where the live text was another one, the step begins
// again. Text that was dropped from the conversation stays where it was shown.
func (c *Chat) finishReply(w *writer, inference int64, d InferenceDoneData) {
	r, thoughts := &c.reply, strings.Join(slices.Concat(d.thoughts, d.written), "")
	c.beginReply(w, inference, r.attempt)
	moreThoughts, begins := strings.CutPrefix(thoughts, r.texts["reasoning"])
	moreText, goesOn := strings.CutPrefix(d.text, r.texts["text"])
	if d.TextDropped {
		moreText, goesOn = "", true
	}
	if !begins || !goesOn || moreThoughts != "" && r.texts["text"] != "" {
		c.beginReply(w, inference, r.attempt-1)
		moreThoughts, moreText = thoughts, d.text
	}
	c.extend(w, "reasoning", moreThoughts)
	c.extend(w, "text", moreText)
	c.closePart(w)
	r.complete = true
}
