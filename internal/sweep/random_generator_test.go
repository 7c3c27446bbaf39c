package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/countersign/countersign/internal/jsonx"
)

// generator writes random programs: an agent with its tools and delegates, and the scripts of the model and the people.
// The first option of each draw is the simplest, since rapid shrinks to it.
type generator struct {
	t    *rapid.T
	tags map[string]bool // optional features of the program

	fixedResults bool // every tool returns the same result each time, so the order of calls does not matter

	xml        bool     // the model's calls are text in tags
	tools      []object // of tools.yaml
	agentTools []object // of agent.yaml
	toolNames  []string // as the model names them
	callIDs    []string // the ids of the model's calls
	delegates  []string
	nextCall   int // number of the next call
}

// object is a JSON object.
type object = map[string]any

// chance is true with probability 1/in. It shrinks to false.
func (g *generator) chance(label string, in int) bool {
	yes := rapid.IntRange(0, in-1).Draw(g.t, label) == in-1
	if yes {
		g.tag(label)
	}
	return yes
}

func (g *generator) tag(label string) { g.tags[label] = true }

// pick draws one of the options; it shrinks to the first.
func pick[T any](g *generator, label string, options ...T) T {
	v := rapid.SampledFrom(options).Draw(g.t, label)
	g.tag(fmt.Sprintf("%s=%v", label, v))
	return v
}

// setMaybe sets a key to one of the options with probability 1/in.
func setMaybe[T any](g *generator, in int, of object, at, key string, options ...T) {
	if g.chance(at+key, in) {
		of[key] = pick(g, at+key, options...)
	}
}

func (g *generator) drawUpTo(label string, n int) int { return rapid.IntRange(0, n).Draw(g.t, label) }

// writeProgram returns a random archive.
func (g *generator) writeProgram() string {
	preset := pick(g, "preset", "countersign", "arvo", "runner", "tirea", "cowork", "forge")
	d := object{"name": "agent", "preset": preset, "system": "You work."}
	g.xml = preset == "forge"
	helpers := g.writeDelegates()
	g.writeTools(preset)
	g.drawPolicies(d, preset)
	model := g.writeModel(preset, "c", 6)
	people := g.writePeople()
	var b strings.Builder
	fmt.Fprintf(&b, "Written at random.\n-- agent.yaml --\n%s", yamlOf(g.addTools(d)))
	fmt.Fprintf(&b, "-- input.json --\n%s\n", jsonOf(g.drawInput()))
	if len(g.tools) > 0 {
		fmt.Fprintf(&b, "-- tools.yaml --\n%s", listOf(g.tools))
	}
	if g.chance("then", 8) {
		fmt.Fprintf(&b, "-- then.json --\n%s\n", jsonOf(pick(g, "then", object{"message": "Go on."}, object{"fork": "replied"}, object{"fork": "call_suspended"})))
	}
	b.WriteString(helpers)
	fmt.Fprintf(&b, "-- model.jsonl --\n%s", lines(model))
	if len(people) > 0 {
		fmt.Fprintf(&b, "-- people.jsonl --\n%s", lines(people))
	}
	if g.tags["directory"] {
		fmt.Fprintf(&b, "-- people.yaml --\n%s", listOf(g.drawDirectory()))
	}
	if g.tags["do=deploy"] {
		then := maps.Clone(d)
		delete(then, "tools")
		then["permission"] = object{"approvers": []string{"user:ana"}, "rules": []object{{"tool": "*", "verdict": pick(g, "tightened", "ask", "deny")}}}
		fmt.Fprintf(&b, "-- now.yaml --\n%s", yamlOf(then))
	}
	b.WriteString("-- want.json --\n{}\n")
	return b.String()
}

// drawInput draws input.json.
func (g *generator) drawInput() object {
	in := object{"message": "Do the work."}
	if g.chance("subject", 4) {
		in["subject"] = "user:ana"
	}
	return in
}

// addTools adds the tools of agent.yaml to the agent.
func (g *generator) addTools(d object) object {
	if len(g.agentTools) > 0 {
		d["tools"] = g.agentTools
	}
	return d
}

// drawDirectory draws people.yaml: people with channels, and a failing channel.
func (g *generator) drawDirectory() []object {
	list := []object{
		{"id": "user:ana", "groups": []string{"group:operators"}, "email": "ana@example.com", "slack": "U1"},
		{"id": "user:ben", "groups": []string{"group:board"}, "email": "ben@example.com"},
	}
	if g.chance("channelFails", 3) {
		list = append(list, object{"channel": pick(g, "channel", "email", "slack"), "fails": 1 + g.drawUpTo("channelFailures", 2)})
	}
	return list
}

// writeDelegates returns the files of the agents that the agent may delegate to.
func (g *generator) writeDelegates() string {
	if !g.chance("delegates", 4) {
		return ""
	}
	var b strings.Builder
	g.delegates = []string{"one", "two"}[:1+g.drawUpTo("helpers", 1)]
	for i, name := range g.delegates {
		own := &generator{t: g.t, tags: g.tags, nextCall: g.nextCall, fixedResults: g.fixedResults}
		d := object{"name": name, "system": "You help.", "preset": pick(g, "helper.preset", "countersign", "tirea", "cowork", "arvo")}
		if i+1 < len(g.delegates) && g.chance("nested", 3) {
			own.addAgentTool(g.delegates[i+1])
		}
		for range own.drawUpTo("helper.tools", 2) {
			own.addTool()
		}
		if own.chance("helper.ask", 3) {
			d["permission"] = object{"default": "ask"}
		}
		fmt.Fprintf(&b, "-- agents/%s/agent.yaml --\n%s", name, yamlOf(own.addTools(d)))
		if len(own.tools) > 0 {
			fmt.Fprintf(&b, "-- agents/%s/tools.yaml --\n%s", name, listOf(own.tools))
		}
		fmt.Fprintf(&b, "-- agents/%s/model.jsonl --\n%s", name, lines(own.writeModel("", name, 2)))
		g.addAgentTool(name)
	}
	return b.String()
}

// addAgentTool adds a tool that delegates to another agent.
func (g *generator) addAgentTool(name string) {
	t := object{"name": "ask." + name, "kind": "agent", "agent": name, "description": "Ask."}
	if g.chance("history", 4) {
		t["history"] = true
	}
	if g.chance("budget", 6) {
		t["budget"] = object{"tokens": 20}
	}
	g.agentTools = append(g.agentTools, t)
	g.toolNames = append(g.toolNames, "ask_"+name)
}

// writeTools draws the agent's tools with their results.
func (g *generator) writeTools(preset string) {
	for range 1 + g.drawUpTo("tools", 3) {
		g.addTool()
	}
	if g.chance("service", 4) {
		t := object{"name": "wait.for", "kind": "service", "description": "Wait.", "schema": object{"type": "object"}}
		setMaybe(g, 3, t, "service.", "timeout", "2m", "2h")
		setMaybe(g, 4, t, "service.", "effect", "read", "idempotent")
		g.agentTools, g.toolNames = append(g.agentTools, t), append(g.toolNames, "wait_for")
	}
	if g.chance("function", 8) {
		t := object{"name": "later.do", "kind": "lambda", "function": "later", "async": true, "description": "Do it later.", "schema": object{"type": "object"}}
		setMaybe(g, 2, t, "function.", "effect", "read", "idempotent")
		g.agentTools, g.toolNames = append(g.agentTools, t), append(g.toolNames, "later_do")
	}
	if preset == "runner" && g.chance("approvalTool", 2) {
		g.agentTools = append(g.agentTools, object{"name": "tool_approval"})
		g.toolNames = append(g.toolNames, "tool_approval")
	}
}

var prefixes = map[string]string{"read": "look", "idempotent": "note", "non_idempotent": "pay"}

// addTool adds a tool of tools.yaml.
func (g *generator) addTool() {
	effect := pick(g, "effect", "non_idempotent", "read", "idempotent")
	name := fmt.Sprintf("%s.n%d", prefixes[effect], len(g.tools)+1)
	t := object{
		"name": name, "effect": effect, "description": "A tool.",
		"schema": object{"type": "object", "properties": object{"n": object{"type": "integer", "minimum": 0}}},
	}
	var results []object
	more := 0
	if !g.fixedResults {
		more = g.drawUpTo("results", 2)
	}
	for range 1 + more {
		results = append(results, g.drawResult())
	}
	t["results"] = results
	if g.chance("reconciles not", 3) {
		t["reconcile"] = false
	}
	setMaybe(g, 4, t, "tool.", "timeout", "30s", "5s")
	setMaybe(g, 6, t, "tool.", "concurrency", 1, 2)
	setMaybe(g, 8, t, "tool.", "maxResult", 100)
	setMaybe(g, 6, t, "tool.", "priority", 5, 1)
	if effect != "non_idempotent" {
		setMaybe(g, 3, t, "tool.", "retry", object{"attempts": 2, "backoff": "1s"}, object{"attempts": 3, "backoff": "250ms"})
	}
	g.addDependencies(t, effect)
	g.tools, g.toolNames = append(g.tools, t), append(g.toolNames, strings.ReplaceAll(name, ".", "_"))
}

// addDependencies gives a tool an undo tool or a precondition among the other tools.
func (g *generator) addDependencies(t object, effect string) {
	for _, o := range g.tools {
		switch {
		case t["undo"] == nil && effect != "read" && o["effect"] != "read" && g.chance("undoable", 2):
			t["undo"] = object{"tool": o["name"], "args": object{"n": object{"args": "/n"}}}
		case t["precondition"] == nil && effect == "non_idempotent" && o["effect"] == "read" && g.chance("precondition", 4):
			t["precondition"] = object{"tool": o["name"], "args": object{"n": object{"args": "/n"}}}
		}
	}
}

// drawResult draws the result of an execution.
func (g *generator) drawResult() object {
	switch pick(g, "result", "text", "json", "error", "fails", "suspend", "sleep", "patch", "large", "media") {
	case "json":
		return object{"json": object{"v": g.drawUpTo("v", 3), "id": "x1"}}
	case "error":
		return object{"error": "it is not there"}
	case "fails":
		return object{"fails": "connection refused"}
	case "suspend":
		s := object{"message": "Which?"}
		setMaybe(g, 2, s, "suspend.", "mode", "result", "pass", "replay")
		if g.chance("suspend.responseSchema", 4) {
			s["responseSchema"] = object{"type": "object"}
		}
		return object{"suspend": s}
	case "sleep":
		return object{"text": "done at last", "sleep": pick(g, "sleep", "1s", "10s", "2m", "20m")}
	case "patch":
		return object{"text": "noted", "patch": []object{{"path": pick(g, "path", "/a", "/b", "/a/c"), "value": g.drawUpTo("patched", 2)}}}
	case "large":
		return object{"text": strings.Repeat("much ", 60)}
	case "media":
		return object{"text": "a picture", "media": object{"name": "a.png", "mediaType": "image/png", "data": "iVBORw0KGgo="}}
	default:
		return object{"text": "done"}
	}
}

// yamlOf formats an object as YAML with a key on each line.
func yamlOf(o object) string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(o)) {
		fmt.Fprintf(&b, "%s: %s\n", key, jsonOf(o[key]))
	}
	return b.String()
}

// listOf formats a YAML list with an element on each line.
func listOf(list []object) string {
	var b strings.Builder
	for _, o := range list {
		fmt.Fprintf(&b, "- %s\n", jsonOf(o))
	}
	return b.String()
}

// lines formats JSON lines.
func lines(list []object) string {
	var b strings.Builder
	for _, o := range list {
		fmt.Fprintln(&b, jsonOf(o))
	}
	return b.String()
}

func jsonOf(v any) string {
	raw, err := jsonx.MarshalVerbatim(v)
	if err != nil {
		panic(err) // maps, lists and strings always marshal
	}
	return strings.TrimSpace(string(raw))
}
