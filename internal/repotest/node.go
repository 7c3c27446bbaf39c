package repotest

import (
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// Kind says which part of a Node is set.
type Kind int

// The kinds of nodes.
const (
	Scalar Kind = iota // Text
	List               // Items
	Map                // Entries
)

// Node is a value of a template. Intrinsic functions stand in their long form, a map of one entry: !Ref X is {Ref: X},
// !GetAtt X.Arn is {Fn::GetAtt: [X, Arn]}, !Sub "…" is {Fn::Sub: "…"}. A nil Node is an empty one.
type Node struct {
	Kind    Kind
	Text    string
	Bool    bool // true or false without quotes
	Items   []*Node
	Entries []Entry
}

// Entry is one key of a map.
type Entry struct {
	Key   string
	Value *Node
}

// ParseYAML reads a template. CloudFormation takes no anchors and no merges; neither does this.
func ParseYAML(text []byte) (*Node, error) {
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		return nil, fmt.Errorf("read template: %w", err)
	}
	if len(file.Docs) != 1 || file.Docs[0].Body == nil {
		return nil, errors.New("read template: want one document")
	}
	return read(file.Docs[0].Body)
}

func read(n ast.Node) (*Node, error) {
	out := &Node{}
	switch n := n.(type) {
	case ast.MapNode: // of one entry, or of several
		out.Kind = Map
		for entries := n.MapRange(); entries.Next(); {
			value, err := read(entries.Value())
			if err != nil {
				return nil, err
			}
			out.Entries = append(out.Entries, Entry{Key: entries.Key().GetToken().Value, Value: value})
		}
	case *ast.SequenceNode:
		out.Kind = List
		for _, v := range n.Values {
			item, err := read(v)
			if err != nil {
				return nil, err
			}
			out.Items = append(out.Items, item)
		}
	case *ast.TagNode: // a short form gets its long one
		arg, err := read(n.Value)
		if err != nil {
			return nil, err
		}
		name := strings.TrimPrefix(n.Start.Value, "!")
		switch name {
		case "Ref", "Condition":
		case "GetAtt":
			name = "Fn::GetAtt"
			if logical, attr, ok := strings.Cut(arg.Text, "."); ok {
				arg = &Node{Kind: List, Items: []*Node{{Text: logical}, {Text: attr}}}
			}
		default:
			name = "Fn::" + name
		}
		return &Node{Kind: Map, Entries: []Entry{{Key: name, Value: arg}}}, nil
	case *ast.LiteralNode:
		out.Text = n.Value.Value
	case *ast.StringNode:
		out.Text = n.Value
	case *ast.NullNode:
	case *ast.BoolNode:
		out.Text, out.Bool = n.GetToken().Value, true
	case *ast.IntegerNode, *ast.FloatNode:
		out.Text = n.GetToken().Value
	default:
		line := n.GetToken().Position.Line
		return nil, fmt.Errorf("read template: line %d: %s: CloudFormation does not take it", line, n.Type())
	}
	return out, nil
}

// Get follows keys into maps. It gives nil where one is missing.
func (n *Node) Get(keys ...string) *Node {
	for _, key := range keys {
		var next *Node
		for _, e := range n.entries() {
			if e.Key == key {
				next = e.Value
			}
		}
		n = next
	}
	return n
}

func (n *Node) entries() []Entry {
	if n == nil {
		return nil
	}
	return n.Entries
}

// String is the scalar's text; empty for anything else.
func (n *Node) String() string {
	if n == nil {
		return ""
	}
	return n.Text
}

// Each gives the items of a list, or a node that stands alone where a list may stand.
func (n *Node) Each() []*Node {
	switch {
	case n == nil:
		return nil
	case n.Kind == List:
		return n.Items
	default:
		return []*Node{n}
	}
}

// Call is the intrinsic function that the node is, and its argument; no name where it is none.
func (n *Node) Call() (name string, arg *Node) {
	if n == nil || len(n.Entries) != 1 {
		return "", nil
	}
	e := n.Entries[0]
	if e.Key == "Ref" || e.Key == "Condition" || strings.HasPrefix(e.Key, "Fn::") {
		return e.Key, e.Value
	}
	return "", nil
}

// Short writes a value for people and for comparison: Ref as its name, GetAtt as Name.Attribute, Sub as its text,
// If as one of its values or the other, a list or map in brackets.
func (n *Node) Short() string {
	if n == nil {
		return ""
	}
	switch name, arg := n.Call(); {
	case name == "Ref":
		return arg.String()
	case name == "Fn::GetAtt":
		return join(arg.Items, ".")
	case name == "Fn::Sub" && arg.Kind == Scalar:
		return arg.String()
	case name == "Fn::If" && len(arg.Items) == 3:
		return join(arg.Items[1:], " or ")
	}
	switch n.Kind {
	case List:
		return "[" + join(n.Items, ", ") + "]"
	case Map:
		parts := make([]string, len(n.Entries))
		for i, e := range n.Entries {
			parts[i] = e.Key + ": " + e.Value.Short()
		}
		return "{" + strings.Join(parts, ", ") + "}"
	default:
		return n.Text
	}
}

func join(nodes []*Node, by string) string {
	parts := make([]string, len(nodes))
	for i, n := range nodes {
		parts[i] = n.Short()
	}
	return strings.Join(parts, by)
}

// walk calls visit for every node beneath n, n included.
func (n *Node) walk(visit func(n *Node)) {
	if n == nil {
		return
	}
	visit(n)
	for _, e := range n.Entries {
		e.Value.walk(visit)
	}
	for _, item := range n.Items {
		item.walk(visit)
	}
}
