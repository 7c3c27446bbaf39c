package sweep

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/countersign/countersign/internal/run"
)

// author writes whole programs at random: an agent, its tools and helpers, what the model says and what people do. What it draws first is what a
// program shrinks to: the plainest of everything.
type author struct {
	t    *rapid.T
	tags map[string]bool // what the program has that not every program has

	steady bool // each tool gives the same every time, so that it does not matter which call comes first

	xml     bool     // the model's calls are text in tags
	tools   []object // of tools.yaml
	listed  []object // of agent.yaml
	names   []string // as the model calls them
	calls   []string // ids that the model gives calls
	helpers []string
	next    int // number of the next call
}

// object is one in JSON, which YAML is as well.
type object = map[string]any

// chance is true once in so many times. It shrinks to false.
func (a *author) chance(label string, in int) bool {
	yes := rapid.IntRange(0, in-1).Draw(a.t, label) == in-1
	if yes {
		a.tag(label)
	}
	return yes
}

func (a *author) tag(label string) { a.tags[label] = true }

// pick draws one of the options; it shrinks to the first.
func pick[T any](a *author, label string, options ...T) T {
	v := rapid.SampledFrom(options).Draw(a.t, label)
	a.tag(fmt.Sprintf("%s=%v", label, v))
	return v
}

// set sets a key to one of the options, once in so many times.
func set[T any](a *author, in int, of object, at, key string, options ...T) {
	if a.chance(at+key, in) {
		of[key] = pick(a, at+key, options...)
	}
}

func (a *author) upTo(label string, n int) int { return rapid.IntRange(0, n).Draw(a.t, label) }

// program writes one.
func (a *author) program() string {
	preset := pick(a, "preset", "countersign", "arvo", "runner", "tirea", "cowork", "forge")
	d := object{"name": "agent", "preset": preset, "system": "You work."}
	a.xml = preset == "forge"
	helpers := a.writeHelpers()
	a.writeTools(preset)
	a.policies(d, preset)
	model := a.writeModel(preset, "c", 6)
	people := a.writePeople()
	var b strings.Builder
	fmt.Fprintf(&b, "Written at random.\n-- agent.yaml --\n%s", yamlOf(a.withTools(d)))
	fmt.Fprintf(&b, "-- input.json --\n%s\n", jsonOf(a.input()))
	if len(a.tools) > 0 {
		fmt.Fprintf(&b, "-- tools.yaml --\n%s", listOf(a.tools))
	}
	if a.chance("then", 8) {
		fmt.Fprintf(&b, "-- then.json --\n%s\n", jsonOf(pick(a, "then", object{"message": "Go on."}, object{"fork": "replied"}, object{"fork": "call_suspended"})))
	}
	b.WriteString(helpers)
	fmt.Fprintf(&b, "-- model.jsonl --\n%s", lines(model))
	if len(people) > 0 {
		fmt.Fprintf(&b, "-- people.jsonl --\n%s", lines(people))
	}
	if a.tags["town"] {
		fmt.Fprintf(&b, "-- people.yaml --\n%s", listOf(a.town()))
	}
	if a.tags["do=deploy"] {
		then := maps.Clone(d)
		delete(then, "tools")
		then["permission"] = object{"approvers": []string{"user:ana"}, "rules": []object{{"tool": "*", "verdict": pick(a, "tightened", "ask", "deny")}}}
		fmt.Fprintf(&b, "-- now.yaml --\n%s", yamlOf(then))
	}
	b.WriteString("-- want.json --\n{}\n")
	return b.String()
}

// input is what the run begins with.
func (a *author) input() object {
	in := object{"message": "Do the work."}
	if a.chance("subject", 4) {
		in["subject"] = "user:ana"
	}
	return in
}

// withTools is the agent with those of its tools that agent.yaml has.
func (a *author) withTools(d object) object {
	if len(a.listed) > 0 {
		d["tools"] = a.listed
	}
	return d
}

// town is people whom channels reach, and a channel that fails.
func (a *author) town() []object {
	list := []object{
		{"id": "user:ana", "groups": []string{"group:operators"}, "email": "ana@example.com", "slack": "U1"},
		{"id": "user:ben", "groups": []string{"group:board"}, "email": "ben@example.com"},
	}
	if a.chance("channelFails", 3) {
		list = append(list, object{"channel": pick(a, "channel", "email", "slack"), "fails": 1 + a.upTo("channelFailures", 2)})
	}
	return list
}

// writeHelpers writes the agents that the agent may ask, as files of the archive.
func (a *author) writeHelpers() string {
	if !a.chance("delegates", 4) {
		return ""
	}
	var b strings.Builder
	a.helpers = []string{"one", "two"}[:1+a.upTo("helpers", 1)]
	for i, name := range a.helpers {
		own := &author{t: a.t, tags: a.tags, next: a.next, steady: a.steady}
		d := object{"name": name, "system": "You help.", "preset": pick(a, "helper.preset", "countersign", "tirea", "cowork", "arvo")}
		if i+1 < len(a.helpers) && a.chance("nested", 3) {
			own.ask(a.helpers[i+1])
		}
		for range own.upTo("helper.tools", 2) {
			own.tool()
		}
		if own.chance("helper.ask", 3) {
			d["permission"] = object{"default": "ask"}
		}
		fmt.Fprintf(&b, "-- agents/%s/agent.yaml --\n%s", name, yamlOf(own.withTools(d)))
		if len(own.tools) > 0 {
			fmt.Fprintf(&b, "-- agents/%s/tools.yaml --\n%s", name, listOf(own.tools))
		}
		fmt.Fprintf(&b, "-- agents/%s/model.jsonl --\n%s", name, lines(own.writeModel("", name, 2)))
		a.ask(name)
	}
	return b.String()
}

// ask adds a tool that is another agent.
func (a *author) ask(name string) {
	t := object{"name": "ask." + name, "kind": "agent", "agent": name, "description": "Ask."}
	if a.chance("history", 4) {
		t["history"] = true
	}
	if a.chance("budget", 6) {
		t["budget"] = object{"tokens": 20}
	}
	a.listed = append(a.listed, t)
	a.names = append(a.names, "ask_"+name)
}

// writeTools writes what the agent's tools are, and what each execution of them gives.
func (a *author) writeTools(preset string) {
	for range 1 + a.upTo("tools", 3) {
		a.tool()
	}
	if a.chance("service", 4) {
		t := object{"name": "wait.for", "kind": "service", "description": "Wait.", "schema": object{"type": "object"}}
		set(a, 3, t, "service.", "timeout", "2m", "2h")
		set(a, 4, t, "service.", "effect", "read", "idempotent")
		a.listed, a.names = append(a.listed, t), append(a.names, "wait_for")
	}
	if a.chance("function", 8) {
		t := object{"name": "later.do", "kind": "lambda", "function": "later", "async": true, "description": "Do it later.", "schema": object{"type": "object"}}
		set(a, 2, t, "function.", "effect", "read", "idempotent")
		a.listed, a.names = append(a.listed, t), append(a.names, "later_do")
	}
	if preset == "runner" && a.chance("approvalTool", 2) {
		a.listed = append(a.listed, object{"name": "tool_approval"})
		a.names = append(a.names, "tool_approval")
	}
}

var prefixes = map[string]string{"read": "look", "idempotent": "note", "non_idempotent": "pay"}

// tool adds one of the agent's own.
func (a *author) tool() {
	effect := pick(a, "effect", "non_idempotent", "read", "idempotent")
	name := fmt.Sprintf("%s.n%d", prefixes[effect], len(a.tools)+1)
	t := object{
		"name": name, "effect": effect, "description": "A tool.",
		"schema": object{"type": "object", "properties": object{"n": object{"type": "integer", "minimum": 0}}},
	}
	var results []object
	more := 0
	if !a.steady {
		more = a.upTo("results", 2)
	}
	for range 1 + more {
		results = append(results, a.result())
	}
	t["results"] = results
	if a.chance("reconciles not", 3) {
		t["reconcile"] = false
	}
	set(a, 4, t, "tool.", "timeout", "30s", "5s")
	set(a, 6, t, "tool.", "concurrency", 1, 2)
	set(a, 8, t, "tool.", "maxResult", 100)
	set(a, 6, t, "tool.", "priority", 5, 1)
	if effect != "non_idempotent" {
		set(a, 3, t, "tool.", "retry", object{"attempts": 2, "backoff": "1s"}, object{"attempts": 3, "backoff": "250ms"})
	}
	a.dependOn(t, effect)
	a.tools, a.names = append(a.tools, t), append(a.names, strings.ReplaceAll(name, ".", "_"))
}

// dependOn has a tool taken back by another one, or depend on what another one reads.
func (a *author) dependOn(t object, effect string) {
	for _, o := range a.tools {
		switch {
		case t["undo"] == nil && effect != "read" && o["effect"] != "read" && a.chance("undoable", 2):
			t["undo"] = object{"tool": o["name"], "args": object{"n": object{"args": "/n"}}}
		case t["precondition"] == nil && effect == "non_idempotent" && o["effect"] == "read" && a.chance("precondition", 4):
			t["precondition"] = object{"tool": o["name"], "args": object{"n": object{"args": "/n"}}}
		}
	}
}

// result is what an execution gives.
func (a *author) result() object {
	switch pick(a, "result", "text", "json", "error", "fails", "suspend", "sleep", "patch", "large", "media") {
	case "json":
		return object{"json": object{"v": a.upTo("v", 3), "id": "x1"}}
	case "error":
		return object{"error": "it is not there"}
	case "fails":
		return object{"fails": "connection refused"}
	case "suspend":
		s := object{"message": "Which?"}
		set(a, 2, s, "suspend.", "mode", "result", "pass", "replay")
		if a.chance("suspend.responseSchema", 4) {
			s["responseSchema"] = object{"type": "object"}
		}
		return object{"suspend": s}
	case "sleep":
		return object{"text": "done at last", "sleep": pick(a, "sleep", "1s", "10s", "2m", "20m")}
	case "patch":
		return object{"text": "noted", "patch": []object{{"path": pick(a, "path", "/a", "/b", "/a/c"), "value": a.upTo("patched", 2)}}}
	case "large":
		return object{"text": strings.Repeat("much ", 60)}
	case "media":
		return object{"text": "a picture", "media": object{"name": "a.png", "mediaType": "image/png", "data": "iVBORw0KGgo="}}
	default:
		return object{"text": "done"}
	}
}

// yamlOf is an agent's file: a key a line.
func yamlOf(o object) string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(o)) {
		fmt.Fprintf(&b, "%s: %s\n", key, jsonOf(o[key]))
	}
	return b.String()
}

// listOf is a file that is a list: an element a line.
func listOf(list []object) string {
	var b strings.Builder
	for _, o := range list {
		fmt.Fprintf(&b, "- %s\n", jsonOf(o))
	}
	return b.String()
}

// lines are objects a line each.
func lines(list []object) string {
	var b strings.Builder
	for _, o := range list {
		fmt.Fprintln(&b, jsonOf(o))
	}
	return b.String()
}

func jsonOf(v any) string {
	raw, err := run.MarshalVerbatim(v)
	if err != nil {
		panic(err) // it is made of maps, lists and words
	}
	return strings.TrimSpace(string(raw))
}
