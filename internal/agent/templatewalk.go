package agent

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"text/template/parse"
)

// How a loop's body ends early. They never leave the loop: parsing refuses both elsewhere.
var (
	errTemplateBreak    = errors.New("break")
	errTemplateContinue = errors.New("continue")
)

// walk executes a node.
func (e *execution) walk(dot any, node parse.Node) error {
	e.node = node
	if err := e.spend(1); err != nil {
		return err
	}
	switch n := node.(type) {
	case *parse.ListNode:
		return e.walkList(dot, n)
	case *parse.TextNode:
		return e.write(string(n.Text))
	case *parse.ActionNode:
		return e.walkAction(dot, n)
	case *parse.IfNode:
		return e.walkChoice(dot, &n.BranchNode, false)
	case *parse.WithNode:
		return e.walkChoice(dot, &n.BranchNode, true)
	case *parse.RangeNode:
		return e.walkRange(dot, n)
	case *parse.TemplateNode:
		return e.walkTemplate(dot, n)
	case *parse.BreakNode:
		return errTemplateBreak
	case *parse.ContinueNode:
		return errTemplateContinue
	case *parse.CommentNode:
		return nil
	default:
		return e.failf("%s cannot be executed", n)
	}
}

func (e *execution) walkList(dot any, list *parse.ListNode) error {
	for _, n := range list.Nodes {
		if err := e.walk(dot, n); err != nil {
			return err
		}
	}
	return nil
}

// walkAction prints a pipeline's value, unless it is given to a variable. Variables live until the next end.
func (e *execution) walkAction(dot any, n *parse.ActionNode) error {
	v, err := e.pipeline(dot, n.Pipe)
	if err != nil || len(n.Pipe.Decl) > 0 {
		return err
	}
	e.node = n
	text := fmt.Sprint(printable(v))
	if e.escape != nil {
		text = e.escape(text)
	}
	return e.write(text)
}

// printable is what a value looks like in a text.
func printable(v any) any {
	if v == nil {
		return "<no value>"
	}
	return v
}

// walkChoice executes if and with.
func (e *execution) walkChoice(dot any, n *parse.BranchNode, with bool) error {
	defer e.pop(len(e.vars))
	v, err := e.pipeline(dot, n.Pipe)
	switch {
	case err != nil:
		return err
	case !truth(v):
		return e.walkElse(dot, n)
	case with:
		return e.walk(v, n.List)
	default:
		return e.walk(dot, n.List)
	}
}

func (e *execution) walkElse(dot any, n *parse.BranchNode) error {
	if n.ElseList == nil {
		return nil
	}
	return e.walk(dot, n.ElseList)
}

func (e *execution) walkRange(dot any, n *parse.RangeNode) error {
	defer e.pop(len(e.vars))
	v, err := e.pipeline(dot, n.Pipe)
	if err != nil {
		return err
	}
	e.node = n
	var some bool
	switch v := v.(type) {
	case nil:
	case []any:
		some = len(v) > 0
		err = each(e, n, slices.All(v))
	case map[string]any:
		some = len(v) > 0
		err = e.eachKey(n, v)
	case int, int64, uint8:
		count, _ := integer(v)
		some = count > 0
		err = e.count(n, v, count)
	default:
		return e.failf("range can't iterate over %v", v)
	}
	switch {
	case errors.Is(err, errTemplateBreak):
		return nil
	case err != nil || some:
		return err
	default:
		return e.walkElse(dot, &n.BranchNode)
	}
}

// each executes a loop's body for all the pairs.
func each[K any](e *execution, n *parse.RangeNode, pairs func(yield func(K, any) bool)) (err error) {
	mark := len(e.vars)
	for k, v := range pairs {
		err = e.iterate(n, mark, k, v)
		if err != nil {
			return err
		}
	}
	return nil
}

// eachKey executes a loop's body for the entries of m in the order of their keys.
func (e *execution) eachKey(n *parse.RangeNode, m map[string]any) error {
	keys := slices.Sorted(maps.Keys(m))
	return each(e, n, func(yield func(string, any) bool) {
		for _, k := range keys {
			if !yield(k, m[k]) {
				return
			}
		}
	})
}

// count executes a loop's body for 0 to n-1, in the type of v.
func (e *execution) count(n *parse.RangeNode, v any, count int64) error {
	if len(n.Pipe.Decl) > 1 {
		return e.failf("can't use %v to iterate over more than one variable", v)
	}
	return each(e, n, func(yield func(any, any) bool) {
		for i := range count {
			if !yield(nil, likeInteger(v, i)) {
				return
			}
		}
	})
}

// iterate executes a loop's body once: with one variable it is the element, with two the index comes first.
func (e *execution) iterate(n *parse.RangeNode, mark int, index, element any) error {
	defer e.pop(mark)
	decl := n.Pipe.Decl
	values := []any{index, element}[2-min(len(decl), 2):]
	for i, v := range values {
		if !n.Pipe.IsAssign {
			e.vars[mark-len(values)+i].value = v
			continue
		}
		if err := e.assign(decl[i].Ident[0], v); err != nil {
			return err
		}
	}
	err := e.walk(element, n.List)
	if errors.Is(err, errTemplateContinue) {
		return nil
	}
	return err
}

// walkTemplate executes another template, which sees no variables of this one but what it gets as dot.
func (e *execution) walkTemplate(dot any, n *parse.TemplateNode) error {
	tree := e.templates.trees[n.Name]
	if tree == nil {
		return e.failf("template %q not defined", n.Name)
	}
	if e.depth == maxTemplateDepth {
		return e.failf("exceeded maximum template depth (%d)", maxTemplateDepth)
	}
	dot, err := e.pipeline(dot, n.Pipe)
	if err != nil {
		return err
	}
	inner := *e
	inner.tree, inner.depth, inner.vars = tree, e.depth+1, []variable{{"$", dot}}
	return inner.walk(dot, tree.Root)
}
