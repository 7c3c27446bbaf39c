package asl

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

const (
	required = true
	optional = false
)

// parser collects what is wrong with a definition.
type parser struct{ faults []error }

func (p *parser) fault(state, key, reason string) {
	p.faults = append(p.faults, &DefinitionError{State: state, Key: key, Reason: reason})
}

// fields reads the members of one object, and at the end refuses those nobody asked for.
type fields struct {
	p      *parser
	state  string
	prefix string // of keys in errors, as in Retry[0].
	m      map[string]any
	asked  map[string]bool
}

func (p *parser) fields(state, prefix string, m map[string]any) *fields {
	return &fields{p: p, state: state, prefix: prefix, m: m, asked: map[string]bool{}}
}

func (f *fields) fault(key, reason string) {
	f.p.fault(f.state, strings.TrimSuffix(f.prefix+key, "."), reason)
}

// end refuses the members that were not read.
func (f *fields) end() {
	for _, key := range slices.Sorted(maps.Keys(f.m)) {
		if !f.asked[key] {
			f.fault(key, "not supported here")
		}
	}
}

// has tells whether a member is there, be it null.
func (f *fields) has(key string) bool {
	_, ok := f.m[key]
	return ok
}

// get is a member that must not be null.
func (f *fields) get(key string, must bool) (any, bool) {
	f.asked[key] = true
	v, ok := f.m[key]
	if ok && v == nil || !ok && must {
		f.fault(key, "missing")
	}
	return v, v != nil
}

func (f *fields) text(key string, must bool) string {
	v, ok := f.get(key, must)
	if !ok {
		return ""
	}
	s, ok := v.(string)
	if !ok || s == "" && must {
		f.fault(key, "want a string")
	}
	return s
}

func (f *fields) flag(key string) bool {
	v, ok := f.get(key, optional)
	if !ok {
		return false
	}
	b, ok := v.(bool)
	if !ok {
		f.fault(key, "want true or false")
	}
	return b
}

// object is a required object; nil where it is not one, which is a fault.
func (f *fields) object(key string) map[string]any {
	v, ok := f.get(key, required)
	if !ok {
		return nil
	}
	m, ok := v.(map[string]any)
	if !ok {
		f.fault(key, "want an object")
	}
	return m
}

// objects are the elements of a list of objects, each read as fields.
func (f *fields) objects(key string) []*fields {
	v, ok := f.get(key, optional)
	if !ok {
		return nil
	}
	list, ok := v.([]any)
	if !ok || len(list) == 0 {
		f.fault(key, "want a list of objects")
	}
	var all []*fields
	for i, e := range list {
		m, ok := e.(map[string]any)
		if !ok {
			f.fault(fmt.Sprintf("%s[%d]", key, i), "want an object")
			continue
		}
		all = append(all, f.p.fields(f.state, fmt.Sprintf("%s%s[%d].", f.prefix, key, i), m))
	}
	return all
}

// integer is a whole number from low to high, or the default when it is not there.
func (f *fields) integer(key string, low, high, absent int) int {
	v, ok := f.get(key, optional)
	if !ok {
		return absent
	}
	n, _ := v.(json.Number)
	i, err := strconv.Atoi(string(n))
	if err != nil || i < low || i > high {
		f.fault(key, fmt.Sprintf("want a whole number from %d to %d", low, high))
		return absent
	}
	return i
}

// seconds is a positive number of seconds, 0 when it is not there.
func (f *fields) seconds(key string) int { return f.integer(key, 1, maxSeconds, 0) }

// path is a reference path that must not be null, nil when it is not there.
func (f *fields) path(key string) *path {
	text := f.text(key, optional)
	if text == "" {
		if f.m[key] == "" {
			f.fault(key, "want a path")
		}
		return nil
	}
	p, err := parsePath(text)
	if err == nil {
		err = p.checkContext(false)
	}
	if err != nil {
		f.fault(key, err.Error())
		return nil
	}
	return p
}

// selector is InputPath, OutputPath or ResultPath: a path, null, or not there (the zero value), which is $.
type selector struct {
	null bool
	path *path
}

func (f *fields) selector(key string) selector {
	if f.has(key) && f.m[key] == nil {
		f.asked[key] = true
		return selector{null: true}
	}
	return selector{path: f.path(key)}
}

// result is the selector of ResultPath, which cannot lead into the context object.
func (f *fields) result() selector {
	s := f.selector("ResultPath")
	if s.path != nil && s.path.context {
		f.fault("ResultPath", "must not lead into the context object")
	}
	return s
}

// template is a payload template, nil when it is not there.
func (f *fields) template(key string, token bool) *template {
	v, ok := f.get(key, optional)
	if !ok {
		return nil
	}
	t, err := parseTemplate(v, token)
	if err != nil {
		f.fault(key, err.Error())
		return nil
	}
	return t
}

// next reads Next and End, one of which must be there.
func (f *fields) next() string {
	next, end := f.text("Next", optional), f.flag("End")
	if (next != "") == end {
		f.fault("Next", "want either Next or End: true")
	}
	return next
}

// errorNames is ErrorEquals.
func (f *fields) errorNames() []string {
	const key = "ErrorEquals"
	v, _ := f.get(key, required)
	list, _ := v.([]any)
	var names []string
	for _, e := range list {
		name, ok := e.(string)
		if !ok || name == "" {
			f.fault(key, "want a list of names")
			return nil
		}
		if strings.HasPrefix(name, "States.") && !reserved[name] {
			f.fault(key, fmt.Sprintf("%s is not an error of the States Language", name))
		}
		names = append(names, name)
	}
	if len(names) == 0 {
		f.fault(key, "want a list of names")
	}
	if len(names) > 1 && slices.Contains(names, All) {
		f.fault(key, All+" must stand alone")
	}
	return names
}

// allLast refuses entries of Retry or Catch behind the one for States.ALL.
func (f *fields) allLast(key string, names [][]string) {
	for i, n := range names {
		if slices.Contains(n, All) && i < len(names)-1 {
			f.fault(fmt.Sprintf("%s[%d].ErrorEquals", key, i), All+" must be in the last entry")
		}
	}
}
