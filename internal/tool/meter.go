package tool

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"regexp/syntax"
	"slices"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Limits of one check. The budget lets every sensible schema check 256 KiB of arguments, and ends a hostile one
// (references that double at each level) after a fraction of a second.
const (
	checkBudget     = 500_000
	bytesPerUnit    = 64 // of text compared, or of pattern instructions times text
	maxPatternBytes = 1024
	maxPatternInsts = 10_000 // instructions of the compiled pattern
)

var errSpent = errors.New("budget spent")

// meter bounds the work of one check. Every subschema pays, when it is entered, for itself and for the visits it will
// cause; once the budget is spent every further visit ends at once, and the outcome counts for nothing.
type meter struct{ left int }

func (m *meter) isSpent() bool { return m.left < 0 }

func (m *meter) pay(units int) error {
	if m.left >= 0 {
		m.left -= units
	}
	if m.isSpent() {
		return errSpent
	}
	return nil
}

// install puts the meter at the entrance of every schema reachable from root. The library calls a schema's format
// before it descends, on every visit; formats are annotations here, which leaves the place free. It refuses what cannot
// be metered.
func (m *meter) install(root *jsonschema.Schema) error {
	// List root and every schema under it, each once.
	seen := map[*jsonschema.Schema]bool{root: true}
	all := []*jsonschema.Schema{root}
	for i := 0; i < len(all); i++ {
		for _, s := range slices.Concat(inPlace(all[i]), named(all[i]), elements(all[i])) {
			if !seen[s] {
				seen[s] = true
				all = append(all, s)
			}
		}
	}
	for _, s := range all {
		if s.DynamicRef != nil || s.RecursiveRef != nil {
			return errors.New("$dynamicRef and $recursiveRef are not supported in a tool's schema")
		}
	}
	if isCircular(all) {
		return errors.New("a $ref leads in a circle")
	}
	for _, s := range all {
		once, each := 1, 0 // what a visit costs: for s itself and its alternatives, and for each element of the value
		for _, c := range append(inPlace(s), named(s)...) {
			once += weight(c)
		}
		for _, c := range elements(s) {
			each += weight(c)
		}
		s.Format = &jsonschema.Format{Name: "checked", Validate: func(v any) error {
			switch v := v.(type) {
			case map[string]any:
				return m.pay(once + each*len(v))
			case []any:
				return m.pay(once + (each+1)*len(v))
			case string:
				return m.pay(once + len(v)/bytesPerUnit)
			default:
				return m.pay(once)
			}
		}}
	}
	return nil
}

// weight is what happens in a schema before its own meter is asked: the enum is compared.
func weight(s *jsonschema.Schema) int {
	if s.Enum == nil {
		return 1
	}
	return 1 + len(s.Enum.Values)
}

// pattern is the regular expression engine: RE2, linear in the text, with the compiled size bounded and metered.
func (m *meter) pattern(expr string) (jsonschema.Regexp, error) {
	if len(expr) > maxPatternBytes {
		return nil, fmt.Errorf("a pattern of %d bytes, at most %d are read", len(expr), maxPatternBytes)
	}
	parsed, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return nil, err
	}
	prog, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return nil, err
	}
	if len(prog.Inst) > maxPatternInsts {
		return nil, fmt.Errorf("the pattern compiles to %d instructions, at most %d are run", len(prog.Inst), maxPatternInsts)
	}
	return &meteredPattern{Regexp: regexp.MustCompile(expr), size: len(prog.Inst), meter: m}, nil // it was parsed above
}

// meteredPattern pays for the text it is matched against.
type meteredPattern struct {
	*regexp.Regexp
	size  int
	meter *meter
}

func (p *meteredPattern) MatchString(s string) bool {
	return p.meter.pay(1+p.size*len(s)/bytesPerUnit) == nil && p.Regexp.MatchString(s)
}

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
