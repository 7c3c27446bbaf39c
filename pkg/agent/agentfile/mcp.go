package agentfile

import (
	"path/filepath"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
)

// server reads one. A command runs in the file's own folder, unless the file names another one.
func (r *reader) server(f field) agent.MCPServer {
	m := agent.MCPServer{}
	required := true
	r.mapping(f, map[string]read{
		"name":     r.text(&m.Name),
		"command":  r.texts(&m.Command),
		"dir":      r.root(&m.Dir),
		"env":      r.textsByKey(&m.Env),
		"url":      r.text(&m.URL),
		"headers":  r.textsByKey(&m.Headers),
		"tools":    r.patterns(&m.Tools),
		"allow":    r.names(&m.Allow),
		"deny":     r.names(&m.Deny),
		"timeout":  r.duration(&m.Timeout),
		"required": r.boolean(&required),
	})
	m.Optional = !required
	if m.Dir == "" && len(m.Command) > 0 && filepath.IsAbs(r.opt.Dir) {
		m.Dir = filepath.Clean(r.opt.Dir)
	}
	return m
}

// patterns reads what holds of a server's tools, in the file's order: the first pattern that matches wins.
func (r *reader) patterns(dst *[]agent.MCPPattern) read {
	return func(f field) {
		pattern := func(p *agent.MCPPattern, f field) {
			r.mapping(f, map[string]read{
				"effect":   enum(r, &p.Effect, []run.Effect{run.EffectRead, run.EffectIdempotent, run.EffectNonIdempotent}),
				"timeout":  r.duration(&p.Timeout),
				"priority": r.whole(&p.Priority),
			})
		}
		if f.kind == kindSchema {
			each := schemaField(f.path)
			pattern(&agent.MCPPattern{}, each)
			f.describe(object{"type": "object", "additionalProperties": each.schema})
			return
		}
		if f.kind != kindMapping {
			r.addWrongType(f, "a mapping of patterns")
			return
		}
		for _, member := range f.members {
			p := agent.MCPPattern{Match: member.key}
			pattern(&p, f.child(member))
			*dst = append(*dst, p)
		}
	}
}
