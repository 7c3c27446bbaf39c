package agentfile

import (
	"encoding/json"

	"github.com/countersign/countersign/internal/jsonx"
)

// Value is a piece of a file that somebody else gives a meaning to, with the place to name when it is wrong.
type Value struct {
	Key   string // its full path in the file
	Line  int
	JSON  json.RawMessage // the value as JSON: key order and digits as written
	Items []Value         // a list's elements; nil for everything else

	Members map[string]Value // a mapping's values; nil for everything else
}

// LineOf is the line of what stands at the end of a path of keys, or of the last key that leads there.
func (v Value) LineOf(keys ...string) int {
	for _, key := range keys {
		m, ok := v.Members[key]
		if !ok {
			break
		}
		v = m
	}
	return v.Line
}

// ParseMapping reads a mapping of these keys, to whose values somebody else gives a meaning; a file that says nothing
// is one without keys. A non-nil error is Problems.
func ParseMapping(name string, data []byte, keys ...string) (Value, error) {
	r := newReader(name, Options{})
	root, ok := r.tree(data)
	if !ok {
		return Value{}, r.err()
	}
	if root.kind == kindNull && len(r.problems) == 0 {
		root.node = &node{kind: kindMapping}
	}
	readers := map[string]read{}
	for _, key := range keys {
		readers[key] = func(field) {}
	}
	r.mapping(root, readers)
	return r.value(root), r.err()
}

// ParseList reads a bare list whose elements somebody else gives a meaning to. A non-nil error is Problems.
func ParseList(name string, data []byte) ([]Value, error) {
	r := newReader(name, Options{})
	root, ok := r.tree(data)
	var items []Value
	if ok {
		r.list(root, func(item field) { items = append(items, r.value(item)) })
	}
	return items, r.err()
}

func (r *reader) value(f field) Value {
	v := Value{Key: f.path, Line: r.line(f.path), JSON: f.json()}
	for i := range f.items {
		v.Items = append(v.Items, r.value(f.item(i)))
	}
	for _, m := range f.members {
		if v.Members == nil {
			v.Members = map[string]Value{}
		}
		v.Members[m.key] = r.value(f.child(m))
	}
	return v
}

// json writes a value as JSON, compact, key order and digits as written.
func (n *node) json() json.RawMessage { return n.appendJSON(nil) }

func (n *node) appendJSON(b []byte) []byte {
	switch n.kind {
	case kindMapping:
		b = append(b, '{')
		for i, m := range n.members {
			b = append(appendString(separate(b, i), m.key), ':')
			b = m.value.appendJSON(b)
		}
		return append(b, '}')
	case kindList:
		b = append(b, '[')
		for i, item := range n.items {
			b = item.appendJSON(separate(b, i))
		}
		return append(b, ']')
	case kindString:
		return appendString(b, n.text)
	case kindNull:
		return append(b, "null"...)
	}
	return append(b, n.text...)
}

func separate(b []byte, i int) []byte {
	if i > 0 {
		return append(b, ',')
	}
	return b
}

// appendString quotes s and, unlike json.Marshal, leaves <, > and & as they are.
func appendString(b []byte, s string) []byte {
	quoted, _ := jsonx.MarshalVerbatim(s) // no string makes it fail
	return append(b, quoted...)
}
