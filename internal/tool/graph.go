package tool

import (
	"maps"
	"slices"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// inPlace lists the schemas s applies to the very value it is applied to.
func inPlace(s *jsonschema.Schema) []*jsonschema.Schema {
	out := nonNil(s.Ref, s.Not, s.If, s.Then, s.Else)
	out = append(out, slices.Concat(s.AllOf, s.AnyOf, s.OneOf)...)
	out = slices.AppendSeq(out, maps.Values(s.DependentSchemas))
	for _, d := range s.Dependencies {
		out = appendSchema(out, d)
	}
	return out
}

// named lists the schemas s applies to one property or item each.
func named(s *jsonschema.Schema) []*jsonschema.Schema {
	out := slices.Concat(slices.Collect(maps.Values(s.Properties)), s.PrefixItems)
	if items, ok := s.Items.([]*jsonschema.Schema); ok {
		out = append(out, items...)
	}
	return out
}

// elements lists the schemas s applies to any number of properties, their names, or items.
func elements(s *jsonschema.Schema) []*jsonschema.Schema {
	out := nonNil(s.PropertyNames, s.UnevaluatedProperties, s.Contains, s.Items2020, s.UnevaluatedItems)
	out = slices.AppendSeq(out, maps.Values(s.PatternProperties))
	for _, either := range []any{s.AdditionalProperties, s.Items, s.AdditionalItems} {
		out = appendSchema(out, either)
	}
	return out
}

func nonNil(all ...*jsonschema.Schema) []*jsonschema.Schema {
	return slices.DeleteFunc(all, func(s *jsonschema.Schema) bool { return s == nil })
}

// appendSchema appends v where the library's any is a schema.
func appendSchema(out []*jsonschema.Schema, v any) []*jsonschema.Schema {
	if s, ok := v.(*jsonschema.Schema); ok {
		return append(out, s)
	}
	return out
}

// isCircular reports whether a schema applies itself to the same value, directly or indirectly. Validation would never
// end.
func isCircular(all []*jsonschema.Schema) bool {
	const open, done = 1, 2
	state := map[*jsonschema.Schema]int{}
	var visit func(*jsonschema.Schema) bool
	visit = func(s *jsonschema.Schema) bool {
		if state[s] != 0 {
			return state[s] == open
		}
		state[s] = open
		defer func() { state[s] = done }()
		return slices.ContainsFunc(inPlace(s), visit)
	}
	return slices.ContainsFunc(all, visit)
}
