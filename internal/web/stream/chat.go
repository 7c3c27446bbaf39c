package stream

import (
	"cmp"
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
	// Ask describes a request to the client. Mine says that the client may decide it.
	Ask func(id string) (request any, mine bool, err error)

	calls []string // those that the message has
	// requests that the message has, with the approval by which the client may still answer each; "" = it may not
	asked   map[string]string
	end     *RunFinishData
	problem string // why the run ended in an error
	reply   chatReply
}

// chatReply is what the client has of the reply to an inference. The zero value is nothing.
type chatReply struct {
	inference int64
	attempt   int
	texts     map[string]string // of the parts text and reasoning
	open      string            // the part that goes on; "" = none
}

// NewChat returns a Chat for a message that has these calls and requests already. asked has the approval by which the
// client may still answer each request; "" = it may not.
func NewChat(calls []string, asked map[string]string) *Chat { return &Chat{calls: calls, asked: asked} }

// RequestOf is the request of an approval: its id is the request's, and where an earlier message has the request as
// well, a dot and the entry with which the message ends.
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

// Finish ends the message, behind the entries before next. The client sends its metadata back.
func (c *Chat) Finish(next int64) []Encoded {
	return c.write(nil, func(w *writer) {
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
			c.calls = append(c.calls, d.ID)
			w.emit("tool-input-start", "toolCallId", d.ID, "toolName", d.Name, "dynamic", true)
		}
	case ToolCallReadyData:
		if d.Pending != "" {
			return c.ask(w, d.Pending, d.For, d.Approval, d.Approval, after)
		}
		w.emit("tool-input-available", "toolCallId", d.ID, "toolName", d.Name, "dynamic", true, "input", d.Arguments)
	case ToolCallResumedData:
		c.repeatCall(w, d.Call, after)
		r := d.Result
		if len(r.Arguments) > 0 { // an edit
			w.emit("tool-input-available", "toolCallId", d.Call, "toolName", d.name, "dynamic", true,
				"input", r.Arguments)
		}
		if id := c.asked[r.Approval]; r.By != "" && id != "" { // not the client
			w.emit("tool-approval-response", "approvalId", id, "approved", r.Action == run.ActionApprove,
				"reason?", r.Note)
		}
	case ToolCallDoneData:
		c.repeatCall(w, d.ID, after)
		switch {
		case d.Reason == run.WhyDenied:
			w.emit("tool-output-denied", "toolCallId", d.ID)
		case d.Outcome != run.StatusSucceeded:
			w.emit("tool-output-error", "toolCallId", d.ID, "dynamic", true, "errorText", d.Result.Content)
		default:
			w.emit("tool-output-available", "toolCallId", d.ID, "dynamic", true, "output", d.Result)
		}
	case StepEndData:
		w.emit("finish-step")
	case ActivitySnapshotData:
		if request, ok := d.Content.(RequestContent); ok {
			w.emit("data-waiting", "id", request.Approval, "data", object{"for", "tools", "request", request})
		}
	case RunFinishData:
		people := d.Termination != run.ReasonSuspended || len(d.Waiting) == 0
		for _, wait := range d.Waiting { // those that an earlier message has, as well
			people = people || wait.For != run.ForAnswer
			again := wait.Approval + "." + strconv.FormatInt(w.now.Seq, 10)
			if err := c.ask(w, wait.Call, wait.For, wait.Approval, again, after); err != nil {
				return err
			}
		}
		if people {
			c.end, c.problem = &d, w.errorMessage()
		}
	}
	return nil
}

// ask tells the client of a request, once. One that it may decide is that approval of the call.
func (c *Chat) ask(w *writer, call string, what run.WaitFor, id, approval string, after *run.AgentState) error {
	if _, told := c.asked[id]; told || what == run.ForAnswer {
		return nil
	}
	request, mine, err := c.Ask(id)
	if err != nil {
		return err
	}
	c.repeatCall(w, call, after)
	if mine && what == run.ForApproval {
		c.asked[id] = approval
		w.emit("tool-approval-request", "approvalId", approval, "toolCallId", call, "approvalDescriptor", request)
		return nil
	}
	c.asked[id] = ""
	w.emit("data-waiting", "id", id, "data", object{"for", what, "call", call, "request", request})
	return nil
}

// repeatCall writes a call that an earlier message has: a client takes no result of a call that is not in its message.
func (c *Chat) repeatCall(w *writer, id string, after *run.AgentState) {
	call, known := after.Call(id)
	if slices.Contains(c.calls, id) || !known {
		return
	}
	c.calls = append(c.calls, id)
	w.emit("tool-input-available", "toolCallId", id, "toolName", call.Name, "dynamic", true, "input", call.Input)
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
	*r = chatReply{inference, attempt, map[string]string{}, ""}
}

// extend adds text to a part of the reply, and ends the part before it.
func (c *Chat) extend(w *writer, part, text string) {
	r := &c.reply
	if text == "" {
		return
	}
	id := func(part string) string { return part + "_" + strconv.FormatInt(r.inference, 10) }
	if r.open != part {
		c.closePart(w)
		r.open = part
		w.emit(part+"-start", "id", id(part))
	}
	r.texts[part] += text
	w.emit(part+"-delta", "id", id(part), "delta", text)
}

func (c *Chat) closePart(w *writer) {
	if r := &c.reply; r.open != "" {
		w.emit(r.open+"-end", "id", r.open+"_"+strconv.FormatInt(r.inference, 10))
		r.open = ""
	}
}

// finishReply writes what the client does not have of a reply. Where the live text was another one, as before a dialect
// was taken out of it, the step begins again.
func (c *Chat) finishReply(w *writer, inference int64, d InferenceDoneData) {
	r, thoughts := &c.reply, strings.Join(d.thoughts, "")
	c.beginReply(w, inference, r.attempt)
	moreThoughts, begins := strings.CutPrefix(thoughts, r.texts["reasoning"])
	moreText, goesOn := strings.CutPrefix(d.Text, r.texts["text"])
	if !begins || !goesOn || moreThoughts != "" && r.texts["text"] != "" {
		c.beginReply(w, inference, r.attempt-1)
		moreThoughts, moreText = thoughts, d.Text
	}
	c.extend(w, "reasoning", moreThoughts)
	c.extend(w, "text", moreText)
	c.closePart(w)
}
