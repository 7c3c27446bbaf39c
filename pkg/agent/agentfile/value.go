package agentfile

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Value is a piece of a file that somebody else gives a meaning to, with the place to name when it is wrong.
type Value struct {
	Key   string // its full path in the file
	Line  int
	JSON  json.RawMessage // the value as JSON: key order and digits as written
	Items []Value         // a list's elements; nil for everything else
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
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		panic(fmt.Sprintf("encode a string: %v", err)) // no string makes Encode fail, and a buffer takes everything
	}
	return append(b, bytes.TrimSuffix(buf.Bytes(), []byte("\n"))...)
}
