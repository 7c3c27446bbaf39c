package agentfile

import (
	"github.com/countersign/countersign/internal/agent"
)

// plugins reads a list of names, each alone or with the plugin's configuration.
func (r *reader) plugins(dst *[]agent.PluginSpec) read {
	return func(f field) {
		r.list(f, func(item field) {
			p, ok := r.plugin(item)
			if !ok {
				return
			}
			*dst = append(*dst, p)
			if p.Name == "" {
				return // which the core says
			}
			if err := r.opt.Hooks.CheckPlugin(p); err != nil {
				r.add(item.path, err.Error())
			}
		})
	}
}

func (r *reader) plugin(f field) (p agent.PluginSpec, ok bool) {
	keys := map[string]read{"name": r.text(&p.Name), "config": r.raw(&p.Config)}
	switch f.kind {
	case kindSchema:
		whole := schemaField(f.path)
		r.mapping(whole, keys)
		f.describe(object{"anyOf": []object{{"type": "string"}, whole.schema}})
		return p, false
	case kindString:
		return agent.PluginSpec{Name: f.node.text}, true
	case kindMapping:
		r.mapping(f, keys)
		return p, true
	default:
		r.addWrongType(f, "a plugin's name, or a mapping of name and config")
		return p, false
	}
}
