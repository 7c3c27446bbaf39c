package badinput

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// node is a JSON value that keeps its spelling. It can hold invalid JSON, and unchanged parts of a text stay as they
// are.
type node struct {
	open    byte   // { or [; 0 = a scalar
	raw     string // the text of a scalar
	members []member
}

// member is a value of an object, with the spelling of its key, or of an array.
type member struct {
	key string
	val *node
}

func parseValue(raw json.RawMessage) (*node, error) {
	raw = bytes.TrimSpace(raw)
	if raw[0] != '{' && raw[0] != '[' {
		return &node{raw: string(raw)}, nil
	}
	n, d := &node{open: raw[0]}, json.NewDecoder(bytes.NewReader(raw))
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	for d.More() {
		var m member
		if n.open == '{' {
			key, err := d.Token()
			if err != nil {
				return nil, err
			}
			m.key = strconv.Quote(fmt.Sprint(key))
		}
		var val json.RawMessage
		if err := d.Decode(&val); err != nil {
			return nil, err
		}
		var err error
		if m.val, err = parseValue(val); err != nil {
			return nil, err
		}
		n.members = append(n.members, m)
	}
	return n, nil
}

func (n *node) String() string {
	if n.open == 0 {
		return n.raw
	}
	var parts []string
	for _, m := range n.members {
		if n.open == '{' {
			parts = append(parts, m.key+":"+m.val.String())
		} else {
			parts = append(parts, m.val.String())
		}
	}
	return string(n.open) + strings.Join(parts, ",") + string(n.open+2) // ] and } stand two behind [ and {
}

// find returns the parent of the value at a JSON Pointer, and its index there.
func (n *node) find(pointer string) (parent *node, at int, ok bool) {
	steps := strings.Split(strings.TrimPrefix(pointer, "/"), "/")
	for i, step := range steps {
		at, ok = n.indexOf(step)
		if !ok {
			return nil, 0, false
		}
		if i == len(steps)-1 {
			return n, at, true
		}
		n = n.members[at].val
	}
	return nil, 0, false
}

func (n *node) indexOf(step string) (int, bool) {
	for i, m := range n.members {
		if n.open == '{' && m.key == strconv.Quote(step) || n.open == '[' && strconv.Itoa(i) == step {
			return i, true
		}
	}
	return 0, false
}
