package tool

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/run"
)

// Combining are the keywords that OpenAI and Claude refuse at the top of a tool's schema.
var Combining = []string{"allOf", "anyOf", "oneOf", "not", "enum"}

// ForModel returns a tool's description and schema in the form that a model's service takes. One refused tool fails
// every request that offers it. allows reports which keywords the service takes at the top of a schema. The other ones
// go into the description, and the properties of their branches become properties of the tool. The schema becomes an
// object with properties, each of its lists gets items, and definitions that nothing refers to go. If the service takes
// no definitions, they stand in the place of references. A call's arguments are still checked against the whole schema.
func ForModel(t agent.ToolSpec, allows func(keyword string) bool) (description string, schema json.RawMessage) {
	if len(t.Schema) == 0 {
		return t.Description, json.RawMessage(`{"type":"object","properties":{}}`)
	}
	decoded, err := jsonx.DecodeNumbers(t.Schema)
	top, ok := decoded.(map[string]any)
	if err != nil || !ok {
		return t.Description, t.Schema
	}
	changed := dropUnusedDefinitions(top)
	if !allows("$defs") {
		changed = inlineDefinitions(top) || changed
	}
	changed = change(top, addItems) || changed || top["type"] != "object"
	properties, ok := top["properties"].(map[string]any)
	if !ok {
		properties, changed = map[string]any{}, true
	}
	refused := map[string]any{}
	for _, key := range jsonx.SortedKeys(top) { // sorted, so that branches that disagree give the same schema each time
		value := top[key]
		if allows(key) {
			continue
		}
		delete(top, key)
		changed = true
		if slices.Contains([]string{"$schema", "$id", "title", "description", "additionalProperties"}, key) {
			continue
		}
		refused[key] = value
		for _, branch := range asList(value) {
			branch, _ := branch.(map[string]any)
			more, _ := branch["properties"].(map[string]any)
			for name, property := range more {
				if _, known := properties[name]; !known {
					properties[name] = property
				}
			}
		}
	}
	if !changed {
		return t.Description, t.Schema
	}
	top["type"], top["properties"] = "object", properties
	if schema, err = jsonx.MarshalVerbatim(top); err != nil {
		return t.Description, t.Schema
	}
	if len(refused) > 0 {
		rule, _ := jsonx.MarshalVerbatim(refused) // it was read from JSON
		t.Description = strings.TrimSpace(t.Description + "\n\nThe arguments must also fit this JSON Schema: " + string(rule))
	}
	return t.Description, schema
}

// dropUnusedDefinitions removes the definitions that nothing refers to, and reports whether there were any. Some
// servers repeat all of theirs in each tool, and every request would pay for them.
func dropUnusedDefinitions(top map[string]any) (dropped bool) {
	rest, unused, plain := maps.Clone(top), map[string]any{}, true
	for _, key := range definitionKeys {
		named, _ := top[key].(map[string]any)
		delete(rest, key)
		for name, s := range named {
			unused["#/"+key+"/"+name] = s
			plain = plain && !strings.ContainsAny(name, "~/%") // such a name is written otherwise in a reference
		}
	}
	var use func(v any)
	use = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, part := range v {
				use(part)
			}
		case map[string]any:
			ref, _ := v["$ref"].(string)
			plain = plain && v["$dynamicRef"] == nil && (ref == "" || ref == "#" || strings.HasPrefix(ref, "#/"))
			for at, s := range unused {
				if ref == at || strings.HasPrefix(ref, at+"/") {
					delete(unused, at)
					use(s)
				}
			}
			for _, part := range v {
				use(part)
			}
		}
	}
	use(rest)
	if !plain { // a reference may mean any of them
		return false
	}
	for _, key := range definitionKeys {
		named, _ := top[key].(map[string]any)
		maps.DeleteFunc(named, func(name string, _ any) bool { _, is := unused["#/"+key+"/"+name]; return is })
		if len(named) == 0 {
			delete(top, key)
		}
	}
	return len(unused) > 0
}

var (
	definitionKeys = []string{"$defs", "definitions"}
	namedSchemas   = []string{"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}
	plainValues    = []string{"const", "enum", "default", "examples"} // which hold no schemas
)

// inlineDefinitions replaces each reference by the definition that it names, and reports whether there was one. It
// replaces a reference that names none, that its definition holds itself, or that makes the schema too large, by a
// schema that allows anything. The definitions stay only in that case.
func inlineDefinitions(top map[string]any) (changed bool) {
	whole, left := true, maxSchemaValues
	var inline func(part any, byName bool, within []string) any
	inline = func(part any, byName bool, within []string) any {
		left--
		if list, ok := part.([]any); ok && len(list) > 0 {
			return run.Map(list, func(v any) any { return inline(v, false, within) })
		}
		s, ok := part.(map[string]any)
		if !ok {
			return part
		}
		out := map[string]any{}
		ref, refers := s["$ref"].(string)
		if refers = refers && !byName; refers {
			changed = true
			names, err := jsonx.ParsePointer(strings.TrimPrefix(ref, "#"))
			target := top
			for _, name := range names {
				target, _ = target[name].(map[string]any)
			}
			if err == nil && target != nil && left > 0 && !slices.Contains(within, ref) {
				out = inline(target, false, append(slices.Clip(within), ref)).(map[string]any)
			} else {
				whole = false
			}
		}
		for key, value := range s {
			switch {
			case refers && key == "$ref":
			case !byName && slices.Contains(plainValues, key):
				out[key] = value
			default:
				out[key] = inline(value, !byName && slices.Contains(namedSchemas, key), within)
			}
		}
		return out
	}
	inlined := maps.Clone(top)
	for _, key := range definitionKeys {
		delete(inlined, key)
	}
	inlined = inline(inlined, false, nil).(map[string]any)
	maps.DeleteFunc(top, func(key string, _ any) bool {
		return changed && whole || !slices.Contains(definitionKeys, key)
	})
	maps.Copy(top, inlined)
	return changed
}

// asList returns a list as it is, and any other value as the only one of a list.
func asList(value any) []any {
	if list, ok := value.([]any); ok {
		return list
	}
	return []any{value}
}

// TypeBranches returns a schema as Kimi takes it, which refuses a type beside anyOf: each branch gets the type.
func TypeBranches(schema json.RawMessage) json.RawMessage {
	decoded, err := jsonx.DecodeNumbers(schema)
	if err != nil || !change(decoded, moveType) {
		return schema
	}
	moved, err := jsonx.MarshalVerbatim(decoded)
	if err != nil {
		return schema
	}
	return moved
}

func moveType(s map[string]any) bool {
	branches, ok := s["anyOf"].([]any)
	if !ok || s["type"] == nil {
		return false
	}
	for _, b := range branches {
		if b, ok := b.(map[string]any); ok && b["type"] == nil && b["$ref"] == nil {
			b["type"] = s["type"]
		}
	}
	delete(s, "type")
	return true
}

// addItems adds to a list that says nothing of its items that they may be anything, and writes a part that may be
// anything as an object: Ollama, Fireworks and Gemini refuse true, as Go's MCP servers have it.
func addItems(s map[string]any) (added bool) {
	if _, has := s["items"]; s["items"] == true || !has && slices.Contains(asList(s["type"]), any("array")) {
		s["items"], added = map[string]any{}, true
	}
	properties, _ := s["properties"].(map[string]any)
	for name, property := range properties {
		if property == true {
			properties[name], added = map[string]any{}, true
		}
	}
	return added
}

// change changes each schema within a decoded one. It reports whether there was one to change.
func change(schema any, one func(map[string]any) bool) (changed bool) {
	s, ok := schema.(map[string]any)
	if !ok {
		return false
	}
	changed = one(s)
	for key, value := range s {
		var inside []any
		switch {
		case slices.Contains(namedSchemas, key):
			named, _ := value.(map[string]any)
			inside = slices.Collect(maps.Values(named))
		case slices.Contains(plainValues, key):
		default:
			inside = asList(value)
		}
		for _, part := range inside {
			changed = change(part, one) || changed
		}
	}
	return changed
}
