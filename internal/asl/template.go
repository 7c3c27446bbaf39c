package asl

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// template is a payload template: JSON in which the members whose names end in .$ are paths. One of the fields is used.
type template struct {
	object map[string]*template
	array  []*template
	path   *path
	value  any // a scalar
}

// parseTemplate compiles a template; token tells whether $$.Task.Token may be used in it.
func parseTemplate(v any, token bool) (*template, error) {
	switch v := v.(type) {
	case map[string]any:
		return parseObjectTemplate(v, token)
	case []any:
		t := &template{array: make([]*template, len(v))}
		for i := range v {
			var err error
			if t.array[i], err = parseTemplate(v[i], token); err != nil {
				return nil, fmt.Errorf("[%d]: %w", i, err)
			}
		}
		return t, nil
	default:
		return &template{value: v}, nil
	}
}

func parseObjectTemplate(m map[string]any, token bool) (*template, error) {
	t := &template{object: make(map[string]*template, len(m))}
	for _, key := range slices.Sorted(maps.Keys(m)) {
		name, isPath := strings.CutSuffix(key, ".$")
		if t.object[name] != nil {
			return nil, fmt.Errorf("%s: given twice, with and without .$", name)
		}
		parse := parseTemplate
		if isPath {
			parse = parsePathTemplate
		}
		child, err := parse(m[key], token)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		t.object[name] = child
	}
	return t, nil
}

func parsePathTemplate(v any, token bool) (*template, error) {
	text, ok := v.(string)
	if !ok {
		return nil, fmt.Errorf("want a path, got %v", v)
	}
	p, err := parsePath(text)
	if err != nil {
		return nil, err
	}
	return &template{path: p}, p.checkContext(token)
}

// uses tells whether the path is anywhere in the template.
func (t *template) uses(path string) bool {
	for _, child := range t.object {
		if child.uses(path) {
			return true
		}
	}
	return slices.ContainsFunc(t.array, func(c *template) bool { return c.uses(path) }) || t.path != nil && t.path.text == path
}

// eval fills the template in. A path that leads nowhere is a States.Runtime, as in Step Functions, where the States
// Language has States.ParameterPathFailure.
func (t *template) eval(s scope) (any, error) {
	switch {
	case t.path != nil:
		v, ok := s.get(t.path)
		if !ok {
			return nil, nowhere(t.path)
		}
		return v, nil
	case t.object != nil:
		return t.evalObject(s)
	case t.array != nil:
		return t.evalArray(s)
	default:
		return t.value, nil
	}
}

func (t *template) evalObject(s scope) (any, error) {
	m := make(map[string]any, len(t.object))
	for _, key := range slices.Sorted(maps.Keys(t.object)) { // in order, so that the same path fails every time
		v, err := t.object[key].eval(s)
		if err != nil {
			return nil, err
		}
		m[key] = v
	}
	return m, nil
}

func (t *template) evalArray(s scope) (any, error) {
	list := make([]any, len(t.array))
	for i, child := range t.array {
		var err error
		if list[i], err = child.eval(s); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// scope is what paths are looked up in.
type scope struct {
	data    any
	context func() any // the context object
}

func (sc scope) get(p *path) (any, bool) {
	if p.context {
		return p.get(sc.context())
	}
	return p.get(sc.data)
}
