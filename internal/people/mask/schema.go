package mask

import (
	"maps"
	"net/url"
	"reflect"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
)

// marks are the schemas that hold for a value, each with the document it is of. None marks nothing.
type marks struct {
	doc  *document
	of   []map[string]any
	seen map[uintptr]bool // those that are in of
}

// document is a schema as a whole, with what was found in it and compiled of it: values have many members.
type document struct {
	root     any
	refs     map[string]any      // by reference
	patterns map[string]*pattern // nil = one that cannot be read

	// how many more schemas are looked at; every value behind them counts as marked. The bound is far above what valid
	// arguments take, and is there because a stranger may have written the schema, or the arguments of a refused call.
	left int
}

const maxLooks = 1_000_000

// pattern is one of patternProperties. Matching a key costs up to size for each of its bytes.
type pattern struct {
	*regexp.Regexp
	size int
}

func newPattern(text string) *pattern {
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil
	}
	prog, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return nil
	}
	return &pattern{regexp.MustCompile(text), len(prog.Inst)}
}

func newMarks(doc *document) marks { return marks{doc: doc, seen: map[uintptr]bool{}} }

// add adds schemas, and those that hold together with them. Of alternatives all are added: what one of them marks is
// masked, whichever holds.
func (m *marks) add(schemas ...any) {
	for _, schema := range schemas {
		if m.doc.left--; m.doc.left < 0 {
			return
		}
		s, ok := schema.(map[string]any)
		at := reflect.ValueOf(s).Pointer()
		if !ok || m.seen[at] {
			continue
		}
		m.seen[at] = true
		m.of = append(m.of, s)
		for _, key := range []string{"allOf", "anyOf", "oneOf"} {
			list, _ := s[key].([]any)
			m.add(list...)
		}
		m.add(s["if"], s["then"], s["else"])
		m.add(slices.Collect(maps.Values(object(s["dependentSchemas"])))...)
		for _, key := range []string{"$ref", "$dynamicRef", "$recursiveRef"} {
			if ref, ok := s[key].(string); ok {
				m.add(m.doc.find(ref))
			}
		}
	}
}

func object(v any) map[string]any {
	o, _ := v.(map[string]any)
	return o
}

// find is the schema that a reference within the document names; nil if there is none.
func (d *document) find(ref string) any {
	if found, known := d.refs[ref]; known {
		return found
	}
	var found any
	switch name, local := strings.CutPrefix(ref, "#"); {
	case !local:
		found = findSubschema(d.root, "$id", ref)
	case name != "" && name[0] != '/':
		found = findSubschema(d.root, "", name)
	default:
		found = d.pointed(name)
	}
	d.refs[ref] = found
	return found
}

// pointed is what a JSON pointer in a reference leads to; nil if that is nothing.
func (d *document) pointed(fragment string) any {
	if plain, err := url.PathUnescape(fragment); err == nil {
		fragment = plain
	}
	found := d.root
	for _, part := range strings.Split(fragment, "/")[1:] {
		if list, ok := found.([]any); ok { // of alternatives, which generators refer to by their place
			i, err := strconv.Atoi(part)
			if found = nil; err == nil && i >= 0 && i < len(list) {
				found = list[i]
			}
			continue
		}
		found = object(found)[strings.NewReplacer("~1", "/", "~0", "~").Replace(part)]
	}
	return found
}

// findSubschema returns the schema in v with that anchor, or the one with that name under that key.
func findSubschema(v any, key, name string) any {
	o := object(v)
	if o != nil && (key != "" && o[key] == name || key == "" && (o["$anchor"] == name || o["$dynamicAnchor"] == name)) {
		return o
	}
	list, _ := v.([]any)
	for _, member := range slices.AppendSeq(slices.Clip(list), maps.Values(o)) {
		if found := findSubschema(member, key, name); found != nil {
			return found
		}
	}
	return nil
}

// secret reports whether one of the schemas says that the value is a secret: writeOnly, format: password, x-secret.
func (m marks) secret() bool {
	return m.doc != nil && m.doc.left < 0 || slices.ContainsFunc(m.of, func(s map[string]any) bool {
		return s["writeOnly"] == true || s["x-secret"] == true || s["format"] == "password"
	})
}

// unlessExhausted returns the schemas, or none if no more are looked at.
func (m marks) unlessExhausted() []map[string]any {
	if m.doc != nil && m.doc.left < 0 {
		return nil
	}
	return m.of
}

func (m marks) member(key string) marks {
	under := newMarks(m.doc)
	for _, s := range m.unlessExhausted() {
		known := false
		if one, ok := object(s["properties"])[key]; ok {
			under.add(one)
			known = true
		}
		for text, one := range object(s["patternProperties"]) {
			re, compiled := m.doc.patterns[text]
			if !compiled {
				re = newPattern(text) // nil where it is none: it may match
				m.doc.patterns[text] = re
			}
			if re != nil {
				m.doc.left -= re.size * len(key) / 64
			}
			if re == nil || m.doc.left < 0 || re.MatchString(key) {
				under.add(one)
				known = true
			}
		}
		if !known {
			under.add(s["additionalProperties"])
		}
		under.add(s["unevaluatedProperties"])
	}
	return under
}

func (m marks) element(i int) marks {
	under := newMarks(m.doc)
	for _, s := range m.unlessExhausted() {
		prefix, _ := s["prefixItems"].([]any)
		tuple, ok := s["items"].([]any) // of drafts before 2020-12
		if ok {
			prefix = tuple
		}
		switch {
		case i < len(prefix):
			under.add(prefix[i])
		case ok:
			under.add(s["additionalItems"])
		default:
			under.add(s["items"])
		}
		under.add(s["contains"], s["unevaluatedItems"])
	}
	return under
}
