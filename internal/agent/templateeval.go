package agent

import (
	"encoding/json"
	"errors"
	"strings"
	"text/template/parse"
)

// pipeline evaluates commands, each one's value being the last argument of the next, and gives the value to the variables declared.
func (e *execution) pipeline(dot any, pipe *parse.PipeNode) (any, error) {
	if pipe == nil {
		return nil, nil
	}
	var last operand
	for _, c := range pipe.Cmds {
		v, err := e.command(dot, c, last)
		if err != nil {
			return nil, err
		}
		last = operand{v, true}
	}
	for _, d := range pipe.Decl {
		if !pipe.IsAssign {
			e.vars = append(e.vars, variable{d.Ident[0], last.value})
			continue
		}
		if err := e.assign(d.Ident[0], last.value); err != nil {
			return nil, err
		}
	}
	return last.value, nil
}

// command evaluates a function with its arguments, or anything else without any.
func (e *execution) command(dot any, c *parse.CommandNode, last operand) (any, error) {
	first := c.Args[0]
	e.node = first
	if err := e.spend(1); err != nil {
		return nil, err
	}
	if name, ok := first.(*parse.IdentifierNode); ok {
		return e.call(dot, name, c.Args[1:], last)
	}
	if len(c.Args) > 1 || last.given {
		return nil, e.failf("can't give argument to non-function %s", first)
	}
	if _, ok := first.(*parse.NilNode); ok {
		return nil, e.failf("nil is not a command")
	}
	return e.operand(dot, first)
}

// operand evaluates a command's only word, or one of a function's arguments.
func (e *execution) operand(dot any, node parse.Node) (any, error) {
	e.node = node
	switch n := node.(type) {
	case *parse.DotNode:
		return dot, nil
	case *parse.NilNode:
		return nil, nil
	case *parse.BoolNode:
		return n.True, nil
	case *parse.StringNode:
		return n.Text, nil
	case *parse.NumberNode:
		return e.number(n)
	case *parse.FieldNode:
		return e.fields(dot, n.Ident)
	case *parse.VariableNode:
		v, err := e.variable(n.Ident[0])
		if err != nil {
			return nil, err
		}
		return e.fields(v.value, n.Ident[1:])
	case *parse.PipeNode:
		return e.pipeline(dot, n)
	case *parse.IdentifierNode:
		return e.call(dot, n, nil, operand{})
	case *parse.ChainNode:
		v, err := e.operand(dot, n.Node)
		if err != nil {
			return nil, err
		}
		e.node = n
		return e.fields(v, n.Field)
	default:
		return nil, e.failf("%s cannot be evaluated", n)
	}
}

// number gives a constant the type that its syntax tells.
func (e *execution) number(n *parse.NumberNode) (any, error) {
	switch {
	case n.IsComplex:
		return n.Complex128, nil
	case n.IsFloat && writtenAsFloat(n.Text):
		return n.Float64, nil
	case n.IsInt:
		return int(n.Int64), nil
	default:
		return nil, e.failf("%s overflows int", n.Text)
	}
}

// writtenAsFloat tells 1.0 and 1e3 from 1, 0x1e and '.'.
func writtenAsFloat(text string) bool {
	hex := strings.HasPrefix(text, "0x") || strings.HasPrefix(text, "0X")
	if text[0] == '\'' || hex && !strings.ContainsAny(text, "pP") {
		return false
	}
	return strings.ContainsAny(text, ".eEpP")
}

// fields follows names from v on.
func (e *execution) fields(v any, names []string) (any, error) {
	var err error
	for _, name := range names {
		if v, err = e.field(v, name); err != nil {
			return nil, err
		}
	}
	return v, nil
}

func (e *execution) field(v any, name string) (any, error) {
	switch v := v.(type) {
	case nil:
		return nil, e.failf("nil data; no entry for key %q", name)
	case map[string]any:
		value, ok := v[name]
		if !ok {
			return nil, e.failf("map has no entry for key %q", name)
		}
		return value, nil
	case json.Number:
		value, err := numberMethod(v, name)
		if err != nil {
			return nil, e.failf("error calling %s: %w", name, err)
		}
		return value, nil
	default:
		return nil, e.failf("can't evaluate field %s in type %T", name, v)
	}
}

// numberMethod is how a text compares the numbers of its input.
func numberMethod(n json.Number, name string) (any, error) {
	switch name {
	case "String":
		return n.String(), nil
	case "Int64":
		return n.Int64()
	case "Float64":
		return n.Float64()
	default:
		return nil, errors.New("a number has only String, Int64 and Float64")
	}
}

// call calls a function. and and or evaluate no more arguments than they need.
func (e *execution) call(dot any, node *parse.IdentifierNode, args []parse.Node, last operand) (any, error) {
	e.node = node
	f := templateFunctions[node.Ident]
	count := len(args)
	if last.given {
		count++
	}
	if count < f.min || f.max >= 0 && count > f.max {
		return nil, e.failf("wrong number of args for %s: got %d", node.Ident, count)
	}
	values := make([]any, 0, count)
	for _, a := range args {
		v, err := e.operand(dot, a)
		if err != nil {
			return nil, err
		}
		if f.enough != nil && f.enough(v) {
			return v, nil
		}
		values = append(values, v)
	}
	if last.given {
		values = append(values, last.value)
	}
	e.node = node
	result, err := f.call(values)
	if err != nil {
		return nil, e.failf("error calling %s: %w", node.Ident, err)
	}
	return result, e.made(result)
}

// made counts what a function made.
func (e *execution) made(v any) error {
	text, ok := v.(string)
	if !ok {
		return nil
	}
	if len(text) > maxTemplateOutput {
		return e.failf("too long: want at most %d bytes, got %d", maxTemplateOutput, len(text))
	}
	return e.spend(len(text))
}
