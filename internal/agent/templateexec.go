package agent

import (
	"fmt"
	"strings"
	"text/template/parse"
)

// Template is a text in the language of text/template, missing keys being errors, over plain data: nil, bool, int, int64, float64,
// string, json.Number, []any and map[string]any. Plain data has no methods but json.Number's String, Int64 and Float64. Every
// function but js and call is there.
//
// As in the original a json.Number is text: it is true even if it is 0, lt and gt compare two of them as words, and comparing one with a
// number is an error. {{if gt .Input.amount.Int64 100}} compares numbers.
//
// It exists because text/template looks methods up by names it computes, and a program with such a look-up keeps every exported
// method of every type it links: bootstraps would be twice their size (ADR 0015). A differential test holds it to the original.
//
// Safe for concurrent use.
type Template struct {
	name  string
	trees map[string]*parse.Tree
}

// What one execution may take, so that a text over somebody's input ends soon.
const (
	maxTemplateOutput = 1 << 20 // bytes of output, and of any one text a function makes
	maxTemplateWork   = 1 << 23 // nodes visited and bytes made
	maxTemplateDepth  = 500     // templates invoked within templates
)

// ParseTemplate parses a text. An error names the template and the line.
func ParseTemplate(name, text string) (*Template, error) {
	known := map[string]any{} // to parse, a name that is there is a function
	for name := range templateFunctions {
		known[name] = true
	}
	trees, err := parse.Parse(name, text, "", "", known)
	if err != nil {
		return nil, err
	}
	return &Template{name, trees}, nil
}

// Execute gives the text over data, the value of dot and $. An error names the template, the line, the expression and, for a missing
// key, the key. Too much output or work, and templates that invoke each other without end, are errors.
func (t *Template) Execute(data any) (string, error) {
	return t.execute(data, nil, maxTemplateOutput)
}

// ExecuteEscaped is Execute of a page: what actions print is written as escape has it, while the template's own text stays as it is, and the output may
// have limit bytes.
func (t *Template) ExecuteEscaped(data any, escape func(string) string, limit int) (string, error) {
	return t.execute(data, escape, limit)
}

func (t *Template) execute(data any, escape func(string) string, limit int) (string, error) {
	out, left := &strings.Builder{}, max(maxTemplateWork, 8*limit)
	e := &execution{templates: t, tree: t.trees[t.name], out: out, left: &left, vars: []variable{{"$", data}}, escape: escape, limit: limit}
	if err := e.walk(data, e.tree.Root); err != nil {
		return "", err
	}
	return out.String(), nil
}

// execution is one template being executed. A template that is invoked by it has its own.
type execution struct {
	templates *Template
	tree      *parse.Tree // the template that is executed
	out       *strings.Builder
	left      *int // work that may still be done
	node      parse.Node
	vars      []variable // a stack
	depth     int
	escape    func(string) string // of what actions print; nil = it is written as it is
	limit     int                 // of the output, in bytes
}

type variable struct {
	name  string
	value any
}

// operand is the value of the command before this one in a pipeline; given is false at a pipeline's start.
type operand struct {
	value any
	given bool
}

// failf is an error at the current node.
func (e *execution) failf(format string, args ...any) error {
	location, context := e.tree.ErrorContext(e.node)
	return fmt.Errorf("template: %s: executing %q at <%s>: %w", location, e.tree.Name, context, fmt.Errorf(format, args...))
}

// spend takes n from the work that is left.
func (e *execution) spend(n int) error {
	if *e.left -= n; *e.left < 0 {
		return e.failf("too much work: want at most %d nodes visited and bytes made", maxTemplateWork)
	}
	return nil
}

func (e *execution) write(text string) error {
	if len(text) > e.limit-e.out.Len() {
		return e.failf("too much output: want at most %d bytes", e.limit)
	}
	e.out.WriteString(text)
	return e.spend(len(text))
}

func (e *execution) pop(mark int) { e.vars = e.vars[:mark] }

// variable finds the last declared variable of that name.
func (e *execution) variable(name string) (*variable, error) {
	for i := len(e.vars) - 1; i >= 0; i-- {
		if e.vars[i].name == name {
			return &e.vars[i], nil
		}
	}
	return nil, e.failf("undefined variable: %s", name)
}

// assign gives a variable that is there another value.
func (e *execution) assign(name string, value any) error {
	v, err := e.variable(name)
	if err == nil {
		v.value = value
	}
	return err
}
