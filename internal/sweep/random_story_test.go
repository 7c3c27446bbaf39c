package sweep

import (
	"fmt"
	"slices"

	"pgregory.net/rapid"
)

// writeModel writes what the model says: up to so many replies and errors. Ids of calls begin with the prefix.
func (a *author) writeModel(preset, prefix string, most int) []object {
	var list []object
	if a.tags["orchestrator"] && preset != "" {
		list = append(list, object{"text": `[plan.add_step(1, "look", "Look."), plan.add_step(2, "pay", "Pay."), plan.done()]`})
	}
	for range 1 + a.upTo("replies", most-1) {
		list = append(list, a.reply(prefix))
	}
	return append(list, a.final())
}

// final is a reply that ends a run, as far as it lies with the model.
func (a *author) final() object {
	if a.xml {
		return object{"text": tagged("task_completion", object{"result": "All is done."})}
	}
	return object{"text": pick(a, "final", "All is done.", `{"v": 1}`)}
}

func (a *author) reply(prefix string) object {
	r := object{}
	switch pick(a, "reply", "calls", "calls", "calls", "calls", "calls", "text", "error", "cut", "empty", "long") {
	case "text":
		r["text"] = pick(a, "said", "All is done.", "Shall I go on?", `{"v": 1}`, "I will now look. Remaining items follow.")
	case "error":
		r["error"] = pick(a, "error", "throttled", "timeout", "connection", "unavailable", "server", "auth", "invalid", "context_overflow")
		return r
	case "cut":
		return object{"text": "I was about to", "cut": true}
	case "empty":
		r["empty"] = true
	case "long":
		return object{"text": "It goes on and", "stop": "max_tokens"}
	default:
		a.say(r, prefix)
	}
	if a.chance("usage", 2) {
		r["usage"] = object{"input": 10, "output": 1 + a.upTo("output", 9)}
	}
	return r
}

// say adds calls to a reply.
func (a *author) say(r object, prefix string) {
	var calls []object
	for range 1 + a.upTo("calls", 3) {
		calls = append(calls, a.call(prefix))
	}
	if a.xml {
		r["text"] = tagged(fmt.Sprint(calls[0]["name"]), calls[0]["input"])
		return
	}
	r["calls"] = calls
	if a.chance("text beside", 4) {
		r["text"] = "I call."
	}
}

func tagged(name string, args any) string {
	return fmt.Sprintf(`<tool>{"server_name": "local", "tool_name": %q, "arguments": %s}</tool>`, name, jsonOf(args))
}

// call is one of the agent's tools, or now and then of none.
func (a *author) call(prefix string) object {
	a.next++
	c := object{"name": pick(a, "name", append(slices.Clone(a.names), "no_such")...), "input": object{}}
	id := fmt.Sprintf("%s%d", prefix, a.next)
	switch {
	case len(a.calls) > 0 && a.chance("id again", 12):
		c["id"] = a.calls[0]
	case a.chance("no id", 8):
	default:
		c["id"] = id
		a.calls = append(a.calls, id)
	}
	switch {
	case len(c["name"].(string)) > 4 && c["name"].(string)[:4] == "ask_":
		c["input"] = object{"message": "Help."}
	case c["name"] == "tool_approval":
		c["input"] = object{"message": "May I?", "tools": a.names[:1]}
	default:
		if in := pick(a, "n", -1, 0, 1, 5, -2); in >= 0 {
			c["input"] = object{"n": in}
		} else if in == -2 {
			c["input"] = object{"n": "many"}
		}
	}
	return c
}

// writePeople writes what people and services do.
func (a *author) writePeople() []object {
	about := a.calls
	if a.xml {
		about = []string{"c1-0", "c2-0", "c3-0"}
	}
	var list []object
	for _, id := range about {
		for a.chance("decided", 2) {
			list = append(list, a.decide(id))
		}
	}
	for range a.upTo("deeds", 3) {
		list = append(list, a.deed(about))
	}
	if n := len(list); n > 1 && a.chance("shuffled", 3) {
		list = rapid.Permutation(list).Draw(a.t, "people")
	}
	return list
}

// decide is what somebody does about a call.
func (a *author) decide(id string) object {
	do := pick(a, "do", "approve", "approve", "answer", "deny", "edit", "expire", "cancel_call", "ask", "reply")
	l := object{"do": do, "call": id}
	switch do {
	case "approve":
		if a.chance("approve.result", 4) {
			l["result"] = object{"n": 2}
		}
		if a.chance("approve.grant", 6) {
			l["grant"] = object{"uses": 1}
		}
	case "answer":
		switch pick(a, "answer", "result", "object", "error", "rerun") {
		case "object":
			l["result"] = object{"n": 1}
		case "error":
			l["error"] = "no"
		case "rerun":
			l["rerun"] = true
		default:
			l["result"] = "yes"
		}
	case "edit":
		l["args"] = object{"n": 7}
	case "ask", "reply":
		l["note"] = "Why?"
	}
	a.whoAndWhen(l)
	return l
}

// deed is what somebody does about the run.
func (a *author) deed(about []string) object {
	do := pick(a, "do", "message", "wait", "cancel_run", "undo", "deploy")
	l := object{"do": do}
	switch do {
	case "message":
		l["text"] = "And this."
	case "wait":
		l["text"] = pick(a, "waited", "10m", "2h", "30h")
	case "undo":
		if len(about) == 0 {
			return object{"do": "message", "text": "Undo it."}
		}
		l["call"] = pick(a, "undone", about...)
		return l
	}
	a.whoAndWhen(l)
	return l
}

func (a *author) whoAndWhen(l object) {
	set(a, 2, l, "", "by", "user:ana,group:operators", "user:ben,group:operators", "user:cleo,group:board", "user:eve")
	if len(a.helpers) > 0 && a.chance("of a helper", 4) {
		l["agent"] = a.helpers[0]
	}
	if a.chance("at", 4) {
		l["at"] = pick(a, "at", "inference:1", "inference:2", "executing:c1", "start", "inference:3", "executing:c2")
	}
}
