package sweep

// policies draws what an agent does otherwise than its preset.
func (a *author) policies(d object, preset string) {
	set(a, 4, d, "", "executor", "sequential", "parallel_batch_approval", "parallel_streaming")
	set(a, 4, d, "", "wait", "any_external", "all_suspended")
	set(a, 4, d, "", "resume", "each", "all_answered", "batch_all")
	set(a, 4, d, "", "batch", "all", "highest_priority", "first")
	set(a, 8, d, "", "textBesideCalls", "keep", "drop")
	set(a, 8, d, "", "dropped", "silent", "notify")
	set(a, 8, d, "", "systemPrompt", "once", "every_inference")
	set(a, 8, d, "", "corrections", "persist", "ephemeral")
	set(a, 8, d, "", "cutText", "plain", "notice")
	set(a, 8, d, "", "text", "final", "heuristic", "require_tool")
	a.part(d, "permission", 2, func(p object) { a.permission(p, preset) })
	a.part(d, "limits", 3, a.limits)
	a.part(d, "model", 3, func(m object) { a.modelPolicy(m, d) })
	a.part(d, "guards", 5, func(g object) {
		set(a, 2, g, "guards.", "duplicateCalls", true, false)
		set(a, 2, g, "guards.", "failedRounds", 1, 2)
		set(a, 2, g, "guards.", "toolFailures", 1, 2)
	})
	a.part(d, "context", 4, a.context)
	a.part(d, "output", 5, func(o object) {
		o["format"] = "json"
		if a.chance("output.schema", 2) {
			o["schema"] = object{"type": "object", "required": []string{"v"}}
		}
		set(a, 3, o, "output.", "history", true)
	})
	a.part(d, "stop", 5, a.stop)
	a.plugins(d)
	if a.chance("prefilter", 12) {
		d["prefilter"] = object{"topK": 1}
	}
	if l, _ := d["limits"].(object); preset == "cowork" && d["output"] == nil && l["usd"] == nil && a.chance("orchestrator", 4) {
		d["orchestrator"] = object{"enabled": true, "planner": object{"id": "big"}, "router": object{"id": "small"}}
	}
}

// part draws an object of the agent's, once in so many times.
func (a *author) part(d object, key string, in int, draw func(object)) {
	if !a.chance(key, in) {
		return
	}
	o := object{}
	if draw(o); len(o) > 0 {
		d[key] = o
	}
}

func (a *author) permission(p object, preset string) {
	set(a, 2, p, "permission.", "default", "ask", "by_effect", "allow", "deny")
	set(a, 3, p, "permission.", "early", "keep", "refuse")
	mode := preset2mode[preset]
	if a.chance("permission.mode", 6) {
		mode = pick(a, "permission.mode", "suspend_and_replay", "block_and_retry", "advisory")
		p["mode"] = mode
	}
	if a.tags["approvalTool"] && mode == "advisory" {
		p["approvalTool"] = "tool_approval"
	}
	set(a, 2, p, "permission.", "approvers", []string{"user:ana", "group:operators"}, []string{"group:operators", "group:board"})
	tool := a.chance("permission.scope", 4)
	if tool {
		p["scope"] = "tool"
	}
	switch {
	case mode != "advisory" && a.chance("grants standing", 5):
		p["grants"] = "standing"
		if a.chance("permission.standing", 2) {
			p["standing"] = object{"uses": 1 + a.upTo("uses", 2)}
		}
	case tool && a.chance("grants once", 3):
		p["grants"] = "once"
	}
	var rules []object
	for range a.upTo("rules", 3) {
		rules = append(rules, a.rule())
	}
	if len(rules) > 0 {
		p["rules"] = rules
	}
}

var preset2mode = map[string]string{"arvo": "block_and_retry", "runner": "advisory"}

func (a *author) rule() object {
	r := object{
		"tool":    pick(a, "rule.tool", "pay.*", "look.*", "note.*", "*.n1", "*.n2"),
		"verdict": pick(a, "rule.verdict", "ask", "ask", "allow", "deny"),
	}
	if a.chance("rule.when", 3) {
		r["when"] = []object{pick(a, "rule.when", object{"path": "/n", "gt": 1}, object{"path": "/n", "eq": 1}, object{"path": "/n", "in": []int{0, 1}})}
	}
	set(a, 5, r, "rule.", "note", "Careful.")
	if r["verdict"] != "ask" {
		return r
	}
	set(a, 3, r, "rule.", "quorum", 2, 1, 3)
	set(a, 4, r, "rule.", "fourEyes", true)
	set(a, 3, r, "rule.", "expires", "1h", "5m", "48h")
	set(a, 4, r, "rule.", "approvers", []string{"user:ana", "user:ben", "user:cleo"}, []string{"group:operators"})
	if a.chance("rule.remind", 6) {
		r["remind"] = "20m"
		r["expires"] = "2h"
		a.tag("town")
	}
	if a.chance("rule.escalate", 6) {
		r["escalate"] = object{"after": "30m", "to": []string{"group:board"}}
		r["expires"] = "2h"
		a.tag("town")
	}
	return r
}

func (a *author) limits(l object) {
	set(a, 2, l, "limits.", "interactions", 3, 1, 2)
	set(a, 3, l, "limits.", "onLimit", "summarise", "stop", "error")
	set(a, 4, l, "limits.", "grace", 1, 2)
	set(a, 6, l, "limits.", "tokens", 60, 20)
	set(a, 6, l, "limits.", "asks", 1, 2)
	set(a, 6, l, "limits.", "parallel", 1, 2)
	set(a, 6, l, "limits.", "children", 1, 2)
	set(a, 8, l, "limits.", "validators", "not_exhausted", "always")
}

func (a *author) modelPolicy(m, d object) {
	m["id"] = "first"
	set(a, 2, m, "model.", "retry", object{"attempts": 2, "backoff": "1s", "maxBackoff": "2s"}, object{"attempts": 3, "backoff": "0s", "maxBackoff": "2s", "window": "5s"})
	if a.chance("model.fallbacks", 3) {
		m["fallbacks"] = []object{{"id": "second"}}
	}
	if a.chance("model.staticText", 5) {
		m["staticText"] = `{"v": 0}`
	}
	set(a, 6, m, "model.", "timeout", "1m")
	set(a, 5, m, "model.", "continuations", 1, 2)
	set(a, 5, m, "model.", "cutStream", "keep", "fail")
	set(a, 6, m, "model.", "repair", "on", "off")
	if a.chance("model.dialect", 6) {
		m["dialect"] = pick(a, "model.dialect", "xml", "native")
		a.xml = m["dialect"] == "xml"
	}
	if a.chance("model.price", 6) {
		m["price"] = object{"input": 100000, "output": 200000}
		if m["fallbacks"] == nil && len(a.helpers) == 0 && a.chance("limits.usd", 2) {
			l, _ := d["limits"].(object)
			if l == nil {
				l = object{}
			}
			l["usd"] = 3
			d["limits"] = l
		}
	}
}

// context is so small a window that messages leave it.
func (a *author) context(c object) {
	if a.chance("context.window", 2) {
		c["window"], c["evictBelow"], c["roundMinimum"], c["keep"] = 600, 300, pick(a, "roundMinimum", 20, 200), 2
		c["reserve"] = object{"system": 0, "tools": 0, "active": 0, "output": 0, "safety": 0}
		set(a, 2, c, "context.", "summary", "model", "mechanical")
	}
	if a.chance("context.truncateResult", 2) {
		c["truncateResult"] = 100
		set(a, 2, c, "context.", "keepWhole", true, false)
	}
	set(a, 4, c, "context.", "compressAfter", 2)
	set(a, 4, c, "context.", "prune", 100)
	set(a, 4, c, "context.", "mask", true, false)
}

func (a *author) stop(s object) {
	set(a, 3, s, "stop.", "rounds", 2, 1)
	set(a, 4, s, "stop.", "timeout", "5m", "30s")
	set(a, 4, s, "stop.", "tokens", 50, 20)
	set(a, 4, s, "stop.", "consecutiveErrors", 1, 2)
	set(a, 4, s, "stop.", "contains", "done")
	set(a, 4, s, "stop.", "loopWindow", 2)
	if a.chance("stop.onTool", 4) && len(a.tools) > 0 {
		s["onTool"] = []any{a.tools[0]["name"]}
	}
}

func (a *author) plugins(d object) {
	var list []object
	if a.chance("plugin.reminder", 8) {
		list = append(list, object{"name": "reminder", "config": object{"texts": []string{"Be brief."}}})
	}
	if a.chance("plugin.permission", 8) {
		list = append(list, object{"name": "permission", "config": object{"default": pick(a, "plugin.default", "ask", "allow", "deny")}})
	}
	if a.chance("plugin.tool-policy", 10) {
		list = append(list, object{"name": "tool-policy", "config": object{"exclude": []string{"*.n2"}}})
	}
	if len(list) > 0 {
		d["plugins"] = list
	}
}
