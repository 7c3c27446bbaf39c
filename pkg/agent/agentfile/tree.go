package agentfile

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/countersign/countersign/internal/agent"
)

// kind is what a value is; its text completes "got ...".
type kind string

const (
	kindMapping kind = "a mapping"
	kindList    kind = "a list"
	kindString  kind = "a string"
	kindNumber  kind = "a number"
	kindBool    kind = "a boolean"
	kindNull    kind = "nothing"
	kindSchema  kind = "any value" // what a file may say there is described; see Schema
)

// node is a YAML value reduced to what JSON has.
type node struct {
	kind    kind
	text    string // strings: the value; numbers: the digits as written; booleans: true or false
	members []member
	items   []*node
	schema  object // of kindSchema: what may stand there
}

type member struct {
	key   string
	value *node
}

const (
	maxBytes  = 1<<20 - 1
	maxDepth  = 64
	maxTokens = 100_000
)

// tree parses data. It reports false, and adds the problem, if there is no telling what the file says.
func (r *reader) tree(data []byte) (field, bool) {
	refuse := func(line int, problem string) (field, bool) {
		r.addProblem(line, "", problem)
		return field{}, false
	}
	switch {
	case len(data) > maxBytes:
		return refuse(1, fmt.Sprintf("got %d bytes, want less than 1 MiB", len(data)))
	case !utf8.Valid(data):
		return refuse(1, "got bytes that are not UTF-8, want UTF-8")
	case bytes.ContainsFunc(data, func(c rune) bool {
		return c < ' ' && c != '\t' && c != '\n' && c != '\r' || c == 0x7f
	}):
		return refuse(1, "got a control character, want it escaped in double quotes")
	}
	text := strings.ReplaceAll(strings.TrimPrefix(string(data), "\ufeff"), "\r\n", "\n") // in quotes the lexer keeps \r
	tokens := lexer.Tokenize(text)
	if t := findExcess(tokens); t != nil {
		return refuse(t.Position.Line, "got too much in one file or line, or too deep, want less than 64 levels")
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	var s *yaml.SyntaxError
	switch {
	case errors.As(err, &s) && s.Token != nil: // the parser's reason, without the piece of the file that it would show
		problem := "not YAML: " + s.Message
		if strings.HasPrefix(s.Message, "',' or '}'") { // it takes {user:ana: 1} for a key without a value
			problem += ` (within braces a key with a colon needs quotes: "user:ana")`
		}
		return refuse(s.Token.Position.Line, problem)
	case err != nil:
		return refuse(1, "not YAML")
	case len(file.Docs) > 1:
		second := file.Docs[1]
		line := lineOf(second.Body)
		if second.Start != nil { // its --- mark
			line = second.Start.Position.Line
		}
		return refuse(line, "got a second document, want one")
	}
	var body ast.Node
	if len(file.Docs) == 1 {
		body = file.Docs[0].Body
	}
	return field{node: r.node("", body, maxDepth)}, true
}

// findExcess finds the token at which a file gets too costly: the parser recurses and copies each value's path.
func findExcess(tokens token.Tokens) *token.Token {
	flow, entries, line := 0, 0, 0
	for i, t := range tokens {
		if t.Position.Line != line {
			entries, line = 0, t.Position.Line
		}
		switch t.Type {
		case token.MappingStartType, token.SequenceStartType:
			flow++
		case token.MappingEndType, token.SequenceEndType:
			flow--
		case token.SequenceEntryType, token.MappingKeyType, token.TagType, token.AnchorType:
			entries++
		}
		if flow > maxDepth || entries > maxDepth || i > maxTokens {
			return t
		}
	}
	return nil
}

// node converts n, which stands at path, and notes the lines of everything in it.
func (r *reader) node(path string, n ast.Node, depth int) *node {
	if depth == 0 {
		r.add(path, "got too deep, want less than 64 levels")
		return &node{kind: kindNull}
	}
	switch n := n.(type) {
	case nil, *ast.NullNode:
		return &node{kind: kindNull}
	case *ast.MappingNode:
		return r.mappingNode(path, n.Values, depth)
	case *ast.MappingValueNode:
		return r.mappingNode(path, []*ast.MappingValueNode{n}, depth)
	case *ast.SequenceNode:
		list := &node{kind: kindList}
		for i, v := range n.Values {
			at := fmt.Sprintf("%s[%d]", path, i)
			r.lines[at] = lineOf(v)
			list.items = append(list.items, r.node(at, v, depth-1))
		}
		return list
	case *ast.StringNode:
		return plainScalar(n)
	case *ast.LiteralNode:
		return &node{kind: kindString, text: n.Value.Value}
	case *ast.BoolNode:
		return &node{kind: kindBool, text: strconv.FormatBool(n.Value)}
	case *ast.AnchorNode, *ast.AliasNode:
		r.add(path, "got an anchor or alias, want the value itself (a text that starts with & or * needs quotes)")
	case *ast.TagNode:
		r.add(path, "got a tag, want a plain value")
	case *ast.DirectiveNode:
		r.add(path, "got a directive, want none")
	default:
		if t := n.GetToken(); t != nil && jsonNumber.MatchString(t.Value) {
			return &node{kind: kindNumber, text: t.Value}
		}
		r.add(path, "got a number in a form JSON does not have, want decimal digits (or quotes, if it is a text)")
	}
	return &node{kind: kindNull}
}

func (r *reader) mappingNode(path string, values []*ast.MappingValueNode, depth int) *node {
	n := &node{kind: kindMapping}
	seen := map[string]int{}
	for _, v := range values {
		key := v.Key.GetToken().Value
		if k, ok := v.Key.(*ast.StringNode); ok && plainScalar(k).kind == kindString {
			key = k.Value
		} else if _, isNumber := v.Key.(*ast.IntegerNode); !isNumber || !r.numbersAsKeys {
			r.addProblem(lineOf(v.Key), join(path, key), "got a key that is not a string, want a string (quote it)")
			continue
		}
		line, at := lineOf(v.Key), join(path, key)
		if first, twice := seen[key]; twice {
			r.addProblem(line, at, fmt.Sprintf("got the key a second time, want it once (first in line %d)", first))
			continue
		}
		seen[key], r.lines[at] = line, line
		n.members = append(n.members, member{key, r.node(at, v.Value, depth-1)})
	}
	return n
}

var jsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)

// plainScalar tells numbers from strings, since the parser takes 1e3 and integers of more than 64 bits for strings.
func plainScalar(n *ast.StringNode) *node {
	if n.Token.Type == token.StringType && jsonNumber.MatchString(n.Value) {
		return &node{kind: kindNumber, text: n.Value}
	}
	return &node{kind: kindString, text: n.Value}
}

// lineOf is the line a node starts in; a block mapping's own token is its first colon.
func lineOf(n ast.Node) int {
	if n == nil || n.GetToken() == nil {
		return 1
	}
	return max(n.GetToken().Position.Line, 1)
}

// join appends a key to a path.
var join = agent.KeyPath
