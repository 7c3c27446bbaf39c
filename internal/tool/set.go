package tool

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/countersign/countersign/internal/agent"
)

// Set is the tools of one registry, by original name. It does not change once made and is safe for concurrent use; the
// zero Set is empty.
type Set struct {
	byName map[string]Tool
	specs  []agent.ToolSpec
}

// NewSet makes a set of tools in that order. Each spec is read once and kept. It returns an error for a nil tool, a
// spec no run could use (as New does), and two tools whose original or model-facing names are the same; that error
// names both.
func NewSet(tools ...Tool) (*Set, error) {
	s := &Set{byName: map[string]Tool{}}
	taken := map[string]string{} // model-facing name to original name
	for i, t := range tools {
		if t == nil {
			return nil, fmt.Errorf("make tool set: tool %d is nil", i)
		}
		spec := t.Spec()
		if _, err := checkSpec(spec); err != nil {
			return nil, fmt.Errorf("make tool set: tool %q: %w", spec.Name, err)
		}
		if other, ok := taken[spec.ModelName()]; ok {
			return nil, fmt.Errorf("make tool set: tools %q and %q are both %q to the model", other, spec.Name, spec.ModelName())
		}
		taken[spec.ModelName()] = spec.Name
		s.byName[spec.Name] = t
		s.specs = append(s.specs, spec)
	}
	return s, nil
}

// Lookup returns the tool of that original name.
func (s *Set) Lookup(original string) (Tool, bool) {
	t, ok := s.byName[original]
	return t, ok
}

// Valid checks arguments against a tool's schema, as Validate does: that of a run's own definition, whatever the set's
// tool says today.
func (s *Set) Valid(t agent.ToolSpec, args json.RawMessage) error { return Validate(t, args) }

// Specs returns copies of the specs in order of registration.
func (s *Set) Specs() []agent.ToolSpec {
	out := slices.Clone(s.specs)
	for i := range out {
		out[i].Schema = bytes.Clone(out[i].Schema)
	}
	return out
}
