package agent

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"text/template/parse"
)

// SystemData is what a system text may show of its run, besides the definition.
type SystemData struct {
	Date         string          // the run's first day in UTC, 2006-01-02
	Run          string          // the run's id
	Input        json.RawMessage // checked JSON; nil = the run started from a message, and .Input is an error
	Interactions Interactions
	Exhausted    bool
}

// RenderSystem builds the system text of a run: a Template over .Date, .Run, .Agent, .Input (numbers keep their digits),
// .Tools (Name as the model knows it, Description) and .Interactions (Current, Max, Exhausted). A missing key is an error,
// and .Now is one: the text is built once.
func RenderSystem(d Definition, data SystemData) (string, error) {
	t, err := ParseTemplate(systemName, d.System)
	if err != nil {
		return "", fmt.Errorf("parse system text of %s: %w", d.Name, err)
	}
	dot, err := systemDot(d, data)
	if err != nil {
		return "", fmt.Errorf("render system text of %s: input: %w", d.Name, err)
	}
	text, err := t.Execute(dot)
	if err != nil {
		return "", fmt.Errorf("render system text of %s: %w", d.Name, err)
	}
	return text, nil
}

// systemName is what errors call the text.
const systemName = "system"

func systemDot(d Definition, data SystemData) (map[string]any, error) {
	tools := make([]any, len(d.Tools))
	for i, t := range d.Tools {
		tools[i] = map[string]any{"Name": t.ModelName(), "Description": t.Description}
	}
	left := data.Interactions
	dot := map[string]any{
		"Date": data.Date, "Run": data.Run, "Agent": d.Name, "Tools": tools,
		"Interactions": map[string]any{"Current": left.Current, "Max": left.Max, "Exhausted": data.Exhausted},
	}
	if data.Input == nil {
		return dot, nil
	}
	input, err := decodeNumbers(data.Input)
	dot["Input"] = input
	return dot, err
}

// CheckSystem finds what can be known to be wrong with a system text before there is a run: syntax, names that don't exist,
// and, where the text does not depend on .Input, everything else. {{define}}d templates are checked only if it doesn't.
func CheckSystem(text string) error {
	t, err := ParseTemplate(systemName, text)
	if err != nil {
		return fmt.Errorf("check system text: %w", err)
	}
	v := rootFields{}
	v.visit(t.trees[systemName].Root, true)
	if v.unknown != "" {
		return fmt.Errorf("check system text: .%s does not exist; want one of %s", v.unknown, strings.Join(systemNames, ", "))
	}
	if v.input || len(t.trees) > 1 {
		return nil
	}
	_, err = RenderSystem(Definition{Name: "check", System: text, Tools: []ToolSpec{{Name: "tool"}}},
		SystemData{Date: "2026-01-01", Run: "r", Interactions: Interactions{Max: 1}})
	return err
}

var systemNames = []string{".Agent", ".Date", ".Input", ".Interactions", ".Run", ".Tools"}

// rootFields collects what a template reads from its top-level dot.
type rootFields struct {
	unknown string // the first name that does not exist
	input   bool   // .Input is read, or dot as a whole
}

// visit walks n; atRoot says whether dot still is the top-level one there.
func (v *rootFields) visit(n parse.Node, atRoot bool) {
	switch n := n.(type) {
	case *parse.ListNode:
		if n != nil {
			visitAll(v, n.Nodes, atRoot)
		}
	case *parse.ActionNode:
		v.visit(n.Pipe, atRoot)
	case *parse.TemplateNode:
		v.visit(n.Pipe, atRoot)
	case *parse.IfNode:
		v.branch(&n.BranchNode, atRoot, atRoot)
	case *parse.RangeNode:
		v.branch(&n.BranchNode, atRoot, false)
	case *parse.WithNode:
		v.branch(&n.BranchNode, atRoot, false)
	default:
		v.expression(n, atRoot)
	}
}

func (v *rootFields) branch(n *parse.BranchNode, atRoot, bodyAtRoot bool) {
	v.visit(n.Pipe, atRoot)
	v.visit(n.List, bodyAtRoot)
	v.visit(n.ElseList, atRoot)
}

func (v *rootFields) expression(n parse.Node, atRoot bool) {
	switch n := n.(type) {
	case *parse.PipeNode:
		if n != nil {
			visitAll(v, n.Cmds, atRoot)
		}
	case *parse.CommandNode:
		visitAll(v, n.Args, atRoot)
	case *parse.ChainNode:
		v.visit(n.Node, atRoot)
	case *parse.DotNode:
		v.input = v.input || atRoot
	case *parse.FieldNode:
		if atRoot {
			v.name(n.Ident[0])
		}
	case *parse.VariableNode:
		if n.Ident[0] == "$" && len(n.Ident) > 1 {
			v.name(n.Ident[1])
		}
	}
}

func visitAll[N parse.Node](v *rootFields, nodes []N, atRoot bool) {
	for _, n := range nodes {
		v.visit(n, atRoot)
	}
}

func (v *rootFields) name(name string) {
	v.input = v.input || name == "Input"
	if v.unknown == "" && !slices.Contains(systemNames, "."+name) {
		v.unknown = name
	}
}
