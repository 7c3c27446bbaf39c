package main

import (
	"fmt"
	"slices"

	"pgregory.net/rapid"
)

// writeModel draws the model's script with up to so many replies and errors. Call ids begin with the prefix.
func (g *generator) writeModel(preset, prefix string, most int) []object {
	var list []object
	if g.tags["orchestrator"] && preset != "" {
		list = append(list, object{"text": `[plan.add_step(1, "look", "Look."), plan.add_step(2, "pay", "Pay."), plan.done()]`})
	}
	for range 1 + g.drawUpTo("replies", most-1) {
		list = append(list, g.drawReply(prefix))
	}
	return append(list, g.drawFinalReply())
}

// drawFinalReply draws a reply without calls.
func (g *generator) drawFinalReply() object {
	if g.xml {
		return object{"text": taggedCall("task_completion", object{"result": "All is done."})}
	}
	return object{"text": pick(g, "final", "All is done.", `{"v": 1}`)}
}

func (g *generator) drawReply(prefix string) object {
	r := object{}
	switch pick(g, "reply", "calls", "calls", "calls", "calls", "calls", "text", "error", "cut", "empty", "long") {
	case "text":
		r["text"] = pick(g, "said", "All is done.", "Shall I go on?", `{"v": 1}`, "I will now look. Remaining items follow.")
	case "error":
		r["error"] = pick(g, "error", "throttled", "timeout", "connection", "unavailable", "server", "auth", "invalid", "context_overflow")
		return r
	case "cut":
		return object{"text": "I was about to", "cut": true}
	case "empty":
		r["empty"] = true
	case "long":
		return object{"text": "It goes on and", "stop": "max_tokens"}
	default:
		g.addCalls(r, prefix)
	}
	if g.chance("usage", 2) {
		r["usage"] = object{"input": 10, "output": 1 + g.drawUpTo("output", 9)}
	}
	return r
}

// addCalls adds calls to a reply.
func (g *generator) addCalls(r object, prefix string) {
	var calls []object
	for range 1 + g.drawUpTo("calls", 3) {
		calls = append(calls, g.drawCall(prefix))
	}
	if g.xml {
		r["text"] = taggedCall(fmt.Sprint(calls[0]["name"]), calls[0]["input"])
		return
	}
	r["calls"] = calls
	if g.chance("text beside", 4) {
		r["text"] = "I call."
	}
}

func taggedCall(name string, args any) string {
	return fmt.Sprintf(`<tool>{"server_name": "local", "tool_name": %q, "arguments": %s}</tool>`, name, jsonOf(args))
}

// drawCall draws a call of one of the agent's tools, or rarely of an unknown tool.
func (g *generator) drawCall(prefix string) object {
	g.nextCall++
	c := object{"name": pick(g, "name", append(slices.Clone(g.toolNames), "no_such")...), "input": object{}}
	id := fmt.Sprintf("%s%d", prefix, g.nextCall)
	switch {
	case len(g.callIDs) > 0 && g.chance("id again", 12):
		c["id"] = g.callIDs[0] // perhaps that of a call for budget
	case g.chance("no id", 8):
	default:
		c["id"] = id
		g.callIDs = append(g.callIDs, id)
	}
	switch {
	case len(c["name"].(string)) > 4 && c["name"].(string)[:4] == "ask_":
		c["input"] = object{"message": "Help."}
	case c["name"] == "tool_approval":
		c["input"] = object{"message": "May I?", "tools": g.toolNames[:1]}
	default:
		if in := pick(g, "n", -1, 0, 1, 5, -2); in >= 0 {
			c["input"] = object{"n": in}
		} else if in == -2 {
			c["input"] = object{"n": "many"}
		}
	}
	return c
}

// writePeople draws people.jsonl.
func (g *generator) writePeople() []object {
	about := g.callIDs
	if g.xml {
		about = []string{"c1-0", "c2-0", "c3-0"}
	}
	var list []object
	for _, id := range about {
		for g.chance("decided", 2) {
			list = append(list, g.drawDecision(id))
		}
	}
	for range g.drawUpTo("deeds", 3) {
		list = append(list, g.drawRunAction(about))
	}
	if n := len(list); n > 1 && g.chance("shuffled", 3) {
		list = rapid.Permutation(list).Draw(g.t, "people")
	}
	return list
}

// drawDecision draws a line about a call.
func (g *generator) drawDecision(id string) object {
	do := pick(g, "do", "approve", "approve", "answer", "deny", "edit", "expire", "cancel_call", "ask", "reply")
	l := object{"do": do, "call": id}
	switch do {
	case "approve":
		if g.chance("approve.result", 4) {
			l["result"] = object{"n": 2}
		}
		if g.chance("approve.grant", 6) {
			l["grant"] = object{"uses": 1}
		}
	case "answer":
		switch pick(g, "answer", "result", "object", "error", "rerun") {
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
		l["args"] = pick(g, "args", object{"n": 7}, object{"tokens": 7})
	case "ask", "reply":
		l["note"] = "Why?"
	}
	g.drawActorAndTrigger(l)
	return l
}

// drawRunAction draws a line about the run.
func (g *generator) drawRunAction(about []string) object {
	do := pick(g, "do", "message", "wait", "cancel_run", "undo", "deploy")
	l := object{"do": do}
	switch do {
	case "message":
		l["text"] = "And this."
	case "wait":
		l["text"] = pick(g, "waited", "10m", "3h7m", "30h") // none ends with the 2h or the day of a request
	case "undo":
		if len(about) == 0 {
			return object{"do": "message", "text": "Undo it."}
		}
		l["call"] = pick(g, "undone", about...)
		return l
	}
	g.drawActorAndTrigger(l)
	return l
}

func (g *generator) drawActorAndTrigger(l object) {
	setMaybe(g, 2, l, "", "by", "user:ana,group:operators", "user:ben,group:operators", "user:cleo,group:board", "user:eve")
	if len(g.delegates) > 0 && g.chance("of a helper", 4) {
		l["agent"] = g.delegates[0]
	}
	if g.chance("at", 4) {
		l["at"] = pick(g, "at", "inference:1", "inference:2", "executing:c1", "start", "inference:3", "executing:c2")
	}
}
