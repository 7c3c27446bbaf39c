package agent

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// PlanReply turns a model's reply into the fact that is committed: calls chosen by the batch policy, ids made unique,
// arguments checked. requests counts what it took to get the reply, failed requests included. systemDigest is stored when it
// is not empty. Where the forced summary was asked for, calls are left out and an empty text has one that stands for it. What the text
// is worth as an output is for Judge to say.
func PlanReply(d *Definition, s *AgentState, r Reply, requests int, systemDigest string) Replied {
	r, unread := understood(d, s, r)
	e := planned(d, s, r, requests, systemDigest)
	e.Cost = d.Model.Answering(r.Place).Price.of(r.Usage)
	e.Pace = paced(d, s, e)
	e.Halt = halted(d, s, e)
	if unread != nil {
		e.Correction = d.refusedCall(unread, stitched(s, r.Text))
	}
	if r.Truncated {
		e = continued(d, s, e)
	}
	return worded(d, s, watched(d, s, recovered(d, s, e)))
}

// worded adds what stands in a planned reply to s beside the model's own words: that they were cut short, where it is not asked to go on,
// and what stands for a summary that it left empty.
func worded(d *Definition, s *AgentState, e Replied) Replied {
	if len(e.Calls) == 0 && !e.Correction.continues() {
		e.Text += cutNotice(d, stitched(s, e.Text), e.Stop)
	}
	if e.Summary && e.Text == "" && d.Output.Format != OutputJSON {
		e.Static = d.word(wordNoSummary, nil)
	}
	return e
}

// planned is the reply as a turn of the conversation.
func planned(d *Definition, s *AgentState, r Reply, requests int, systemDigest string) Replied {
	summary := summarises(d, s)
	if summary {
		r.Calls = nil
		if strings.TrimSpace(r.Text) == "" {
			r.Text = ""
		}
	}
	e := Replied{
		Inference: s.Inferences + 1, Model: r.Model, Requests: requests, Usage: r.Usage, Units: r.Usage.Input + r.Usage.Output,
		Text: validText(r.Text), Stop: r.StopReason, System: systemDigest, Summary: summary,
	}
	if !r.At.IsZero() {
		e.At = r.At.UnixMilli()
	}
	if len(r.Calls) == 0 {
		e.Reasoning = plannedReasoning(r.Reasoning, e.Text, nil)
		return e
	}
	if d.TextBesideCalls == TextBesideDrop {
		e.Text, e.TextDropped = "", strings.TrimSpace(e.Text) != ""
	}
	mine := map[string]bool{}
	used := func(id string) bool { return mine[id] || s.usedID(id, s.Prior+e.Inference) }
	kept := chosen(d, r.Calls)
	for i, place := range kept {
		c := r.Calls[place]
		id := CallID(c.ID, used, s.Prior+e.Inference, i)
		mine[id] = true
		e.Calls = append(e.Calls, plannedCall(d, id, whole(d.Model, r, c)))
	}
	markRepeats(d, s, e.Calls)
	e.Sequential = len(e.Calls) > 0 && d.Executor == ExecutorSequential
	e.Dropped = droppedNotice(d, r.Calls, kept)
	e.Reasoning = plannedReasoning(r.Reasoning, e.Text, kept)
	return e
}

// droppedNotice is what the model is told of the calls that are not kept, "" where it is told nothing.
func droppedNotice(d *Definition, calls []ReplyCall, kept []int) string {
	if d.Dropped != DroppedNotify || len(kept) == len(calls) {
		return ""
	}
	var left []ReplyCall
	for i, c := range calls {
		if !slices.Contains(kept, i) {
			left = append(left, c)
		}
	}
	return textDropped(d, left)
}

// cutNotice stands behind a text that its provider cut short (seed 000), "" behind any other. The words are those of providers.
func cutNotice(d *Definition, text, stop string) string {
	if d.CutText != CutTextNotice || d.Output.Format == OutputJSON {
		return ""
	}
	notice := ""
	switch stop {
	case "length", "max_tokens":
		notice = d.word(wordTruncated, nil)
	case "content_filter", "content_filtered", "guardrail_intervened":
		notice = d.word(wordFiltered, nil)
	}
	if notice != "" && text != "" {
		return "\n\n" + notice
	}
	return notice
}

// minted reports whether the id is one that only this inference makes.
func minted(id string, inference int64) bool {
	return strings.HasPrefix(id, "c"+strconv.FormatInt(inference, 10)+"-")
}

// original is the name of the call's tool in its definition.
func (rc RepliedCall) original() string {
	if rc.Tool == "" {
		return rc.Name
	}
	return rc.Tool
}

func plannedCall(d *Definition, id string, c ReplyCall) RepliedCall {
	p := RepliedCall{ID: id, Name: validText(c.Name), Input: safeInput(c.Input), Repaired: c.Repaired}
	if t, ok := d.ToolByModelName(c.Name); ok {
		p.Effect, p.Service, p.Breaks = t.Effect, t.AnsweredLater(), d.breaksLoop(t.Name)
		p.Ahead = d.Preset == PresetArvo && t.Kind == KindMCP
	}
	if original := d.OriginalName(c.Name); original != c.Name {
		p.Tool = original
	}
	return p
}

// whole is a call of a reply of m's chain with the arguments that the model meant, where that is to be found out (Repair). What was cut short by the
// limit of its output is not: of a number it may be the beginning.
func whole(m ModelSpec, r Reply, c ReplyCall) ReplyCall {
	if m.Repair != RepairOn || r.Truncated || len(c.Input) == 0 || isJSONObject(c.Input) {
		return c
	}
	if meant := repairedInput(c.Input); meant != nil {
		c.Input, c.Repaired = meant, true
	}
	return c
}

// safeInput is the model's arguments, compacted. What is not strict JSON becomes a JSON string of it, cut to 4 KiB: the
// conversation stays well formed, the gate refuses the call because no string is an object, and the model sees what it sent.
func safeInput(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage(`{}`)
	}
	if ok, err := CompactJSON(raw, JSONLimits{}); err == nil {
		return ok
	}
	return textOutput(validText(string(raw[:min(len(raw), 4096)])))
}

// validText is text as it is stored, so that whoever plans with it and whoever reads it back have the same, to the byte.
func validText(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// chosen are the places of the calls that are carried out; the others vanish without a trace (seed 000, prioritizeToolCalls).
func chosen(d *Definition, calls []ReplyCall) []int {
	priority := func(ReplyCall) int { return 0 }
	switch d.Batch {
	case BatchFirst:
		return []int{0}
	case BatchHighestPriority:
		priority = func(c ReplyCall) int {
			t, _ := d.ToolByModelName(c.Name) // an unknown tool has priority 0
			return t.Priority
		}
	}
	var places []int
	top := 0
	for i, c := range calls {
		p := priority(c)
		if i == 0 || p > top {
			places, top = nil, p
		}
		if p == top {
			places = append(places, i)
		}
	}
	return places
}
