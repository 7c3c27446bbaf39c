package agent

import (
	"encoding/json"
	"strconv"
	"strings"
)

// PlanReply turns a model's reply into the fact that is committed: calls chosen by the batch policy, ids made unique,
// arguments checked. requests counts what it took to get the reply, failed requests included. systemDigest is stored when it
// is not empty.
func PlanReply(d *Definition, s *AgentState, r Reply, requests int, systemDigest string) Replied {
	e := Replied{
		Inference: s.Inferences + 1, Model: r.Model, Requests: requests, Usage: r.Usage, Units: r.Usage.Input + r.Usage.Output,
		Text: r.Text, Stop: r.StopReason, System: systemDigest,
	}
	if len(r.Calls) == 0 {
		return e
	}
	if d.TextBesideCalls == TextBesideDrop {
		e.Text = ""
	}
	mine := map[string]bool{}
	used := func(id string) bool {
		_, taken := s.Call(id)
		return taken || mine[id] || s.EvictedMessages > 0 && !minted(id, s.Prior+e.Inference) // who knows the ids of what was evicted
	}
	for i, c := range chosen(d, r.Calls) {
		id := CallID(c.ID, used, s.Prior+e.Inference, i)
		mine[id] = true
		e.Calls = append(e.Calls, plannedCall(d, id, c))
	}
	return e
}

// minted reports whether the id is one that only this inference makes.
func minted(id string, inference int64) bool {
	return strings.HasPrefix(id, "c"+strconv.FormatInt(inference, 10)+"-")
}

func plannedCall(d *Definition, id string, c ReplyCall) RepliedCall {
	p := RepliedCall{ID: id, Name: c.Name, Input: safeInput(c.Input)}
	if t, ok := d.ToolByModelName(c.Name); ok {
		p.Effect = t.Effect
		if t.Name != c.Name {
			p.Tool = t.Name
		}
	}
	return p
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
	text := strings.ToValidUTF8(string(raw[:min(len(raw), 4096)]), "\uFFFD")
	return textOutput(text)
}

// chosen are the calls that are carried out; the others vanish without a trace (seed 000, prioritizeToolCalls).
func chosen(d *Definition, calls []ReplyCall) []ReplyCall {
	switch d.Batch {
	case BatchFirst:
		return calls[:1]
	case BatchHighestPriority:
		return highestPriority(d, calls)
	default:
		return calls
	}
}

func highestPriority(d *Definition, calls []ReplyCall) []ReplyCall {
	priority := func(c ReplyCall) int {
		t, _ := d.ToolByModelName(c.Name) // an unknown tool has priority 0
		return t.Priority
	}
	top := priority(calls[0])
	for _, c := range calls[1:] {
		top = max(top, priority(c))
	}
	var out []ReplyCall
	for _, c := range calls {
		if priority(c) == top {
			out = append(out, c)
		}
	}
	return out
}
