package main

// drawPolicies draws settings that differ from the preset.
func (g *generator) drawPolicies(d object, preset string) {
	setMaybe(g, 4, d, "", "executor", "sequential", "parallel_batch_approval", "parallel_streaming")
	setMaybe(g, 4, d, "", "wait", "any_external", "all_suspended")
	setMaybe(g, 4, d, "", "resume", "each", "all_answered", "batch_all")
	setMaybe(g, 4, d, "", "batch", "all", "highest_priority", "first")
	setMaybe(g, 8, d, "", "textBesideCalls", "keep", "drop")
	setMaybe(g, 8, d, "", "dropped", "silent", "notify")
	setMaybe(g, 8, d, "", "systemPrompt", "once", "every_inference")
	setMaybe(g, 8, d, "", "corrections", "persist", "ephemeral")
	setMaybe(g, 8, d, "", "cutText", "plain", "notice")
	setMaybe(g, 8, d, "", "text", "final", "heuristic", "require_tool")
	g.drawSection(d, "permission", 2, func(p object) { g.drawPermission(p, preset) })
	g.drawSection(d, "limits", 3, g.drawLimits)
	g.drawSection(d, "model", 3, func(m object) { g.drawModelPolicy(m, d) })
	g.drawSection(d, "guards", 5, func(guards object) {
		setMaybe(g, 2, guards, "guards.", "duplicateCalls", true, false)
		setMaybe(g, 2, guards, "guards.", "failedRounds", 1, 2)
		setMaybe(g, 2, guards, "guards.", "toolFailures", 1, 2)
	})
	g.drawSection(d, "context", 4, g.drawContext)
	g.drawSection(d, "output", 5, func(o object) {
		o["format"] = "json"
		if g.chance("output.schema", 2) {
			o["schema"] = object{"type": "object", "required": []string{"v"}}
		}
		setMaybe(g, 3, o, "output.", "history", true)
	})
	g.drawSection(d, "stop", 5, g.drawStop)
	g.drawPlugins(d)
	if g.chance("prefilter", 12) {
		d["prefilter"] = object{"topK": 1}
	}
	if l, _ := d["limits"].(object); preset == "cowork" && d["output"] == nil && l["usd"] == nil && g.chance("orchestrator", 4) {
		d["orchestrator"] = object{"enabled": true, "planner": object{"id": "big"}, "router": object{"id": "small"}}
	}
}

// drawSection draws an object of agent.yaml with probability 1/in.
func (g *generator) drawSection(d object, key string, in int, draw func(object)) {
	if !g.chance(key, in) {
		return
	}
	o := object{}
	if draw(o); len(o) > 0 {
		d[key] = o
	}
}

func (g *generator) drawPermission(p object, preset string) {
	setMaybe(g, 2, p, "permission.", "default", "ask", "by_effect", "allow", "deny")
	setMaybe(g, 3, p, "permission.", "early", "keep", "refuse")
	mode := preset2mode[preset]
	if g.chance("permission.mode", 6) {
		mode = pick(g, "permission.mode", "suspend_and_replay", "block_and_retry", "advisory")
		p["mode"] = mode
	}
	if g.tags["approvalTool"] && mode == "advisory" {
		p["approvalTool"] = "tool_approval"
	}
	setMaybe(g, 2, p, "permission.", "approvers", []string{"user:ana", "group:operators"}, []string{"group:operators", "group:board"})
	tool := g.chance("permission.scope", 4)
	if tool {
		p["scope"] = "tool"
	}
	switch {
	case mode != "advisory" && g.chance("grants standing", 5):
		p["grants"] = "standing"
		if g.chance("permission.standing", 2) {
			p["standing"] = object{"uses": 1 + g.drawUpTo("uses", 2)}
		}
	case tool && g.chance("grants once", 3):
		p["grants"] = "once"
	}
	var rules []object
	for range g.drawUpTo("rules", 3) {
		rules = append(rules, g.drawRule())
	}
	if len(rules) > 0 {
		p["rules"] = rules
	}
}

var preset2mode = map[string]string{"arvo": "block_and_retry", "runner": "advisory"}

func (g *generator) drawRule() object {
	r := object{
		"tool":    pick(g, "rule.tool", "pay.*", "look.*", "note.*", "*.n1", "*.n2"),
		"verdict": pick(g, "rule.verdict", "ask", "ask", "allow", "deny"),
	}
	if g.chance("rule.when", 3) {
		r["when"] = []object{pick(g, "rule.when", object{"path": "/n", "gt": 1}, object{"path": "/n", "eq": 1}, object{"path": "/n", "in": []int{0, 1}})}
	}
	setMaybe(g, 5, r, "rule.", "note", "Careful.")
	if r["verdict"] != "ask" {
		return r
	}
	setMaybe(g, 3, r, "rule.", "quorum", 2, 1, 3)
	setMaybe(g, 4, r, "rule.", "fourEyes", true)
	setMaybe(g, 3, r, "rule.", "expires", "1h", "5m", "48h")
	setMaybe(g, 4, r, "rule.", "approvers", []string{"user:ana", "user:ben", "user:cleo"}, []string{"group:operators"})
	if g.chance("rule.remind", 6) {
		r["remind"] = "20m"
		r["expires"] = "2h"
		g.tag("directory")
	}
	if g.chance("rule.escalate", 6) {
		r["escalate"] = object{"after": "30m", "to": []string{"group:board"}}
		r["expires"] = "2h"
		g.tag("directory")
	}
	return r
}

func (g *generator) drawLimits(l object) {
	setMaybe(g, 2, l, "limits.", "interactions", 3, 1, 2)
	setMaybe(g, 3, l, "limits.", "onLimit", "summarise", "stop", "error")
	setMaybe(g, 4, l, "limits.", "grace", 1, 2)
	setMaybe(g, 6, l, "limits.", "tokens", 60, 20)
	setMaybe(g, 6, l, "limits.", "period", object{"every": "day", "tokens": 30}, object{"every": "month", "tokens": 30})
	if (l["tokens"] != nil || l["period"] != nil) && g.chance("onBudget", 2) {
		l["onBudget"] = "ask"
		g.callIDs = append(g.callIDs, "budget-1", "budget-2")
	}
	setMaybe(g, 6, l, "limits.", "asks", 1, 2)
	setMaybe(g, 6, l, "limits.", "parallel", 1, 2)
	setMaybe(g, 6, l, "limits.", "children", 1, 2)
	setMaybe(g, 8, l, "limits.", "validators", "not_exhausted", "always")
}

func (g *generator) drawModelPolicy(m, d object) {
	m["id"] = "first"
	setMaybe(g, 2, m, "model.", "retry", object{"attempts": 2, "backoff": "1s", "maxBackoff": "2s"}, object{"attempts": 3, "backoff": "0s", "maxBackoff": "2s", "window": "5s"})
	if g.chance("model.fallbacks", 3) {
		m["fallbacks"] = []object{{"id": "second"}}
	}
	if g.chance("model.staticText", 5) {
		m["staticText"] = `{"v": 0}`
	}
	setMaybe(g, 6, m, "model.", "timeout", "1m")
	setMaybe(g, 5, m, "model.", "continuations", 1, 2)
	setMaybe(g, 5, m, "model.", "cutStream", "keep", "fail")
	setMaybe(g, 6, m, "model.", "repair", "on", "off")
	if g.chance("model.dialect", 6) {
		m["dialect"] = pick(g, "model.dialect", "xml", "native")
		g.xml = m["dialect"] == "xml"
	}
	if g.chance("model.price", 6) {
		m["price"] = object{"input": 100000, "output": 200000}
		if m["fallbacks"] == nil && len(g.delegates) == 0 && g.chance("limits.usd", 2) {
			l, _ := d["limits"].(object)
			if l == nil {
				l = object{}
			}
			l["usd"] = 3
			d["limits"] = l
		}
	}
}

// drawContext draws a window that is so small that messages leave it.
func (g *generator) drawContext(c object) {
	if g.chance("context.window", 2) {
		c["window"], c["evictBelow"], c["roundMinimum"], c["keep"] = 600, 300, pick(g, "roundMinimum", 20, 200), 2
		c["reserve"] = object{"system": 0, "tools": 0, "active": 0, "output": 0, "safety": 0}
		setMaybe(g, 2, c, "context.", "summary", "model", "mechanical")
	}
	if g.chance("context.truncateResult", 2) {
		c["truncateResult"] = 100
		setMaybe(g, 2, c, "context.", "keepWhole", true, false)
	}
	setMaybe(g, 4, c, "context.", "compressAfter", 2)
	setMaybe(g, 4, c, "context.", "prune", 100)
	setMaybe(g, 4, c, "context.", "mask", true, false)
}

func (g *generator) drawStop(s object) {
	setMaybe(g, 3, s, "stop.", "rounds", 2, 1)
	setMaybe(g, 4, s, "stop.", "timeout", "5m", "30s")
	setMaybe(g, 4, s, "stop.", "tokens", 50, 20)
	setMaybe(g, 4, s, "stop.", "consecutiveErrors", 1, 2)
	setMaybe(g, 4, s, "stop.", "contains", "done")
	setMaybe(g, 4, s, "stop.", "loopWindow", 2)
	if g.chance("stop.onTool", 4) && len(g.tools) > 0 {
		s["onTool"] = []any{g.tools[0]["name"]}
	}
}

func (g *generator) drawPlugins(d object) {
	var list []object
	if g.chance("plugin.reminder", 8) {
		list = append(list, object{"name": "reminder", "config": object{"texts": []string{"Be brief."}}})
	}
	if g.chance("plugin.permission", 8) {
		list = append(list, object{"name": "permission", "config": object{"default": pick(g, "plugin.default", "ask", "allow", "deny")}})
	}
	if g.chance("plugin.tool-policy", 10) {
		list = append(list, object{"name": "tool-policy", "config": object{"exclude": []string{"*.n2"}}})
	}
	if len(list) > 0 {
		d["plugins"] = list
	}
}
