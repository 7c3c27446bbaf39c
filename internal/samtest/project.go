package samtest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Project is the files that are deployed together.
type Project struct {
	Template *Node
	Machine  Machine
	Makefile string
	// Reads are the COUNTERSIGN_ variables that the functions read.
	Reads []string
}

// Problem is one thing that is wrong with a project.
type Problem struct {
	File string
	Line int    // 0 = of the whole file
	Of   string // logical id, state or path
	Text string
}

func (p Problem) String() string {
	where := p.File
	if p.Line > 0 {
		where += fmt.Sprintf(":%d", p.Line)
	}
	return fmt.Sprintf("%s: %s: %s", where, p.Of, p.Text)
}

// Files of a project, beneath its root.
const (
	TemplateFile = "template.yaml"
	MachineFile  = "statemachine/agent.asl.json"
	MakefileName = "Makefile"
)

// Read reads a project's files from its root. Replace, where it is not nil, changes each file's text before it is read.
func Read(root string, replace func(file, text string) string) (*Project, error) {
	texts := map[string]string{}
	for _, file := range []string{TemplateFile, MachineFile, MakefileName} {
		b, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			return nil, fmt.Errorf("read project: %w", err)
		}
		texts[file] = string(b)
		if replace != nil {
			texts[file] = replace(file, texts[file])
		}
	}
	template, err := ParseYAML([]byte(texts[TemplateFile]))
	if err != nil {
		return nil, err
	}
	p := &Project{Template: template, Makefile: texts[MakefileName]}
	if err := json.Unmarshal([]byte(texts[MachineFile]), &p.Machine); err != nil {
		return nil, fmt.Errorf("read state machine: %w", err)
	}
	p.Reads, err = variables(root, "internal/lambdafn", "internal/tools/egress", "internal/tools/secrets", "internal/people/slack")
	return p, err
}

// Check gives the problems that all rules see.
func (p *Project) Check() []Problem {
	var all []Problem
	for _, r := range Rules() {
		all = append(all, r.Check(p)...)
	}
	return all
}

// Rule is one kind of problem.
type Rule struct {
	Name  string
	Check func(*Project) []Problem
}

// Rules lists every rule.
func Rules() []Rule {
	return []Rule{
		{"references", references}, {"cycles", cycles}, {"properties", properties}, {"globals", globals},
		{"functions", functions}, {"build", build}, {"timeouts", timeouts}, {"variables", environment},
		{"machine", machine}, {"machine-flow", flow}, {"substitutions", substitutions},
		{"roles", roles}, {"wildcards", wildcards}, {"principals", principals},
		{"kept", kept}, {"logs", logs}, {"bucket", bucket}, {"events", eventTargets}, {"event-starts", eventStarts}, {"api", api}, {"alarms", alarms},
	}
}

// Resource is a resource of the template.
type Resource struct {
	ID         string
	Type       string
	Line       int
	Node       *Node
	Properties *Node
}

func (r Resource) problem(n *Node, format string, args ...any) Problem {
	line := r.Line
	if n != nil {
		line = n.Line
	}
	return Problem{File: TemplateFile, Line: line, Of: r.ID, Text: fmt.Sprintf(format, args...)}
}

// Resources gives the resources of the types, or all of them, in order of the file.
func (p *Project) Resources(types ...string) []Resource {
	var out []Resource
	for _, e := range p.Template.Get("Resources").entries() {
		r := Resource{ID: e.Key, Line: e.Line, Type: e.Value.Get("Type").String(), Node: e.Value, Properties: e.Value.Get("Properties")}
		if len(types) == 0 || slices.Contains(types, r.Type) {
			out = append(out, r)
		}
	}
	return out
}

// Property is a function's property, its own or that of Globals.
func (p *Project) Property(r Resource, name string) *Node {
	if own := r.Properties.Get(name); own != nil {
		return own
	}
	section, ok := strings.CutPrefix(r.Type, "AWS::Serverless::")
	if !ok {
		return nil
	}
	return p.Template.Get("Globals", section, name)
}

// walk calls visit for every node beneath n, n included, with the keys that lead to it.
func walk(n *Node, path string, visit func(path string, n *Node)) {
	if n == nil {
		return
	}
	visit(path, n)
	for _, e := range n.Entries {
		walk(e.Value, path+"."+e.Key, visit)
	}
	for i, item := range n.Items {
		walk(item, fmt.Sprintf("%s[%d]", path, i), visit)
	}
}
