package agentfile

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/tool"
)

// definition reads a whole file over its preset's values.
func (r *reader) definition(f field) agent.Definition {
	preset := agent.PresetCountersign // also where the file's is refused, so that the rest can still be read
	if p, ok := f.member("preset"); ok {
		r.byType(&preset)(p)
	}
	d, _ := agent.PresetDefaults(preset) // each word has its defaults
	static := d.Model.StaticText
	r.mapping(f, r.keysOf(&d, map[string]read{
		"preset": func(f field) { f.describe(object{"enum": presets}) }, // read first
		"tools": func(f field) {
			r.list(f, func(item field) { d.Tools = append(d.Tools, r.tool(item, map[string]read{})) })
		},
		"mcp": func(f field) {
			r.list(f, func(item field) { d.MCP = append(d.MCP, r.server(item)) })
		},
		"permission": r.keys(r.keysOf(&d.Permission, map[string]read{
			"expires": nil, // each rule says it
			"early":   r.byType(&d.Early),
		})),
		"input":   r.keys(map[string]read{"schema": r.anySchema(&d.Input.Schema)}),
		"output":  r.keys(r.keysOf(&d.Output, map[string]read{"schema": r.anySchema(&d.Output.Schema)})),
		"stop":    r.keys(r.keysOf(&d.Stop, map[string]read{"onTool": r.names(&d.Stop.OnTool)})),
		"plugins": r.plugins(&d.Plugins),
		"analysis": r.keys(r.keysOf(&d.Analysis, map[string]read{
			"incomplete": r.names(&d.Analysis.Incomplete), "completion": r.names(&d.Analysis.Completion),
			"deflection": r.names(&d.Analysis.Deflection),
		})),
		"xml": r.keys(r.keysOf(&d.XML, map[string]read{"disable": r.names(&d.XML.Disable)})),
		// not written in a file, or under permission
		"early": nil, "hooksVersion": nil, "ceilings": nil, "delegators": nil, "below": nil, "folder": nil,
	}))
	for i, rule := range d.Permission.Rules { // one that names a tool as models do would hold for nothing
		shown := slices.IndexFunc(d.Tools, func(t agent.ToolSpec) bool { return agent.MatchTool(rule.Tool, t.ModelName()) })
		meant := func(t agent.ToolSpec) bool { return agent.MatchTool(rule.Tool, t.Name) }
		if shown >= 0 && !slices.ContainsFunc(append(d.EveryBuiltin(), d.Tools...), meant) {
			r.add(fmt.Sprintf("permission.rules[%d].tool", i),
				"got a name as models see it, want the original one: "+d.Tools[shown].Name)
		}
	}
	if d.Output.Format == agent.OutputJSON && d.Model.StaticText == static { // a preset's words are no JSON value
		d.Model.StaticText = ""
	}
	return d
}

// keysOf are the readers of a struct's fields, by the keys of its JSON, which are those of the file. own are readers in
// their place or beside them; nil = the file has no such key.
func (r *reader) keysOf(dst any, own map[string]read) map[string]read {
	readers := map[string]read{}
	s := reflect.ValueOf(dst).Elem()
	for i := range s.NumField() {
		key, _, _ := strings.Cut(s.Type().Field(i).Tag.Get("json"), ",")
		if _, special := own[key]; !special && key != "-" {
			readers[key] = r.byType(s.Field(i).Addr().Interface())
		}
	}
	for key, take := range own {
		if take != nil {
			readers[key] = take
		}
	}
	return readers
}

// byType is the reader for what dst points to.
func (r *reader) byType(dst any) read {
	switch dst := dst.(type) {
	case *string:
		return r.text(dst)
	case *int:
		return r.whole(dst)
	case *int64:
		return whole(r, dst, func(s string) (int64, error) { return strconv.ParseInt(s, 10, 64) })
	case *bool:
		return r.boolean(dst)
	case *time.Duration:
		return r.duration(dst)
	case *run.USD:
		return scalar(r, dst, kindNumber, "US dollars from 0 to 1000000 with at most 6 decimals",
			object{"type": "number", "minimum": 0, "maximum": 1000000}, agent.ParseUSD)
	case **float64: // a temperature
		return scalar(r, dst, kindNumber, "a number from 0 to 2", object{"type": "number", "minimum": 0, "maximum": 2},
			func(s string) (*float64, error) {
				x, err := strconv.ParseFloat(s, 64)
				return &x, err
			})
	case **int:
		return r.measured(dst)
	case *json.RawMessage:
		return r.raw(dst)
	case *[]string:
		return r.texts(dst)
	case *map[string]string:
		return r.textsByKey(dst)
	case *agent.ModelSpec:
		return r.model(dst)
	case **agent.ModelSpec: // beside the agent's own: one attempt where nothing is said
		return func(f field) {
			*dst = &agent.ModelSpec{Retry: agent.Retry{Attempts: 1}}
			r.model(*dst)(f)
		}
	case *[]agent.ModelErrorClass: // an empty list is none of them, and not what the preset has
		return func(f field) { *dst = []agent.ModelErrorClass{}; r.listOf(reflect.ValueOf(dst).Elem())(f) }
	case **agent.Price:
		return r.price(dst)
	case *agent.Rule:
		return r.rule(dst)
	}
	v := reflect.ValueOf(dst).Elem()
	if words := agent.EnumValues(v.Type()); words != nil {
		return r.word(v, words)
	}
	switch v.Kind() {
	case reflect.Slice:
		return r.listOf(v)
	case reflect.Pointer:
		return func(f field) {
			v.Set(reflect.New(v.Type().Elem()))
			r.byType(v.Interface())(f)
		}
	default:
		return r.keys(r.keysOf(dst, nil))
	}
}

// listOf reads a list whose items their type reads.
func (r *reader) listOf(list reflect.Value) read {
	return func(f field) {
		r.list(f, func(item field) {
			v := reflect.New(list.Type().Elem())
			r.byType(v.Interface())(item)
			list.Set(reflect.Append(list, v.Elem()))
		})
	}
}

func (r *reader) model(m *agent.ModelSpec) read {
	own := map[string]read{
		"provider": r.word(reflect.ValueOf(&m.Provider).Elem(), []string{"bedrock", "openai", "script", "demo"}),
		"fallbacks": func(f field) {
			if !f.describe(object{"type": "array", "items": object{"$ref": "#/properties/model"}}) {
				r.listOf(reflect.ValueOf(&m.Fallbacks).Elem())(f)
			}
		},
	}
	return r.keys(r.keysOf(m, own))
}

// price reads what a model costs. Input and output have to be there; 0 is a price.
func (r *reader) price(dst **agent.Price) read {
	return func(f field) {
		var p agent.Price
		r.mapping(f, r.keysOf(&p, nil))
		for _, key := range []string{"input", "output"} {
			if _, ok := f.member(key); !ok && f.kind == kindMapping {
				r.add(join(f.path, key), "got nothing, want USD a million tokens")
			}
		}
		f.describe(object{"required": []string{"input", "output"}})
		*dst = &p
	}
}

// anySchema reads a schema, or null for none. What is wrong with it as a schema is told here: the core checks its
// form alone.
func (r *reader) anySchema(dst *json.RawMessage) read {
	return func(f field) {
		switch f.kind {
		case kindSchema:
			f.describe(object{"type": []string{"object", "null"}})
			return
		case kindNull:
			return
		case kindMapping:
		default:
			r.addWrongType(f, "a JSON Schema, a mapping")
			return
		}
		*dst = f.json()
		if _, err := tool.Compile(*dst); err != nil {
			r.add(f.path, err.Error())
		}
	}
}

func (r *reader) rule(rule *agent.Rule) read {
	return r.keys(r.keysOf(rule, map[string]read{
		"quorum": func(f field) { // 0 is the default, and not said
			r.whole(&rule.Quorum)(f)
			if f.kind == kindNumber && rule.Quorum == 0 {
				r.add(f.path, fmt.Sprintf("got 0, want 1 to %d people", agent.MaxQuorum))
			}
		},
		"remind":  r.positiveDuration(&rule.Remind),
		"expires": r.positiveDuration(&rule.Expires), // 0 is the default, and would be taken for never
		"escalate": func(f field) { // that both keys are there, the check says
			e := &agent.Escalation{}
			r.mapping(f, map[string]read{"after": r.positiveDuration(&e.After), "to": r.texts(&e.To)})
			if f.kind == kindMapping {
				rule.Escalate = e
			}
		},
	}))
}

// positiveDuration reads a duration greater than zero.
func (r *reader) positiveDuration(dst *time.Duration) read {
	return func(f field) {
		before := len(r.problems)
		if r.duration(dst)(f); *dst == 0 && len(r.problems) == before {
			r.add(f.path, "got no time at all, want a duration of more than zero")
		}
	}
}

// plugins reads a list of names, each alone or with the plugin's configuration.
func (r *reader) plugins(dst *[]agent.PluginSpec) read {
	return func(f field) {
		r.list(f, func(item field) {
			var p agent.PluginSpec
			keys := map[string]read{"name": r.text(&p.Name), "config": r.raw(&p.Config)}
			switch item.kind {
			case kindSchema:
				whole := schemaField(item.path)
				r.mapping(whole, keys)
				item.describe(object{"anyOf": []object{{"type": "string"}, whole.schema}})
				return
			case kindString:
				p.Name = item.node.text
			case kindMapping:
				r.mapping(item, keys)
			default:
				r.addWrongType(item, "a plugin's name, or a mapping of name and config")
				return
			}
			*dst = append(*dst, p)
		})
	}
}
