// Package repotest holds the files of this repository to each other: imports, template, state machine, sample events
// and docs/costs.md. Tests of other packages take roles, rules and timeouts from its Project.
//
// Its own tests check what the validators of tools/template do not see: above all what stands in Globals and in
// AWS::Serverless resources, and what template, Makefile and code must agree on.
package repotest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/standins"
)

// Files of a project, beneath its root.
const (
	TemplateFile = "template.yaml"
	MachineFile  = "statemachine/agent.asl.json"
	MakefileName = "Makefile"
)

// Project is the files that are deployed together.
type Project struct {
	Template    *Node
	MachineText string
	Machine     Machine
	Makefile    string
}

// Machine is what tests read of the state machine's definition.
type Machine struct {
	States map[string]struct {
		Parameters         map[string]any
		TimeoutSeconds     int
		TimeoutSecondsPath string
		Retry              []struct{ ErrorEquals []string }
	}
}

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
	p := &Project{Template: template, MachineText: texts[MachineFile], Makefile: texts[MakefileName]}
	if err := json.Unmarshal([]byte(p.MachineText), &p.Machine); err != nil {
		return nil, fmt.Errorf("read state machine: %w", err)
	}
	return p, nil
}

// Resource is a resource of the template.
type Resource struct {
	ID         string
	Type       string
	Node       *Node
	Properties *Node
}

// alias is by what a function is called, so that a new version takes over gradually.
func (r Resource) alias() string { return "${" + r.ID + ".Arn}:live" }

// Resources gives the resources of the types, or all of them, in order of the file.
func (p *Project) Resources(types ...string) []Resource {
	var out []Resource
	for _, e := range p.Template.Get("Resources").entries() {
		r := Resource{ID: e.Key, Type: e.Value.Get("Type").String(), Node: e.Value, Properties: e.Value.Get("Properties")}
		if len(types) == 0 || slices.Contains(types, r.Type) {
			out = append(out, r)
		}
	}
	return out
}

// Property is a function's property, its own or that of Globals.
func (p *Project) Property(r Resource, path ...string) *Node {
	if own := r.Properties.Get(path...); own != nil {
		return own
	}
	section, _ := strings.CutPrefix(r.Type, "AWS::Serverless::")
	return p.Template.Get(append([]string{"Globals", section}, path...)...)
}

// EventRule is a rule of the event bus, with values in the place of parameters.
type EventRule struct {
	ID      string
	Target  string // of its one target, in short
	Pattern json.RawMessage
	Input   *standins.InputTransformer // nil = the target gets the event as it is
}

// EventRules are the rules of the template, with values in the place of references.
func (p *Project) EventRules(values Values) ([]EventRule, error) {
	var out []EventRule
	for _, r := range p.Resources("AWS::Events::Rule") {
		if on := r.Node.Get("Condition"); on != nil {
			switch taken, err := p.Holds(on.String(), values); {
			case err != nil:
				return nil, err
			case !taken:
				continue
			}
		}
		target := r.Properties.Get("Targets").Each()[0]
		transformer := target.Get("InputTransformer")
		resolved, err := p.Resolve(&Node{Kind: Map, Entries: []Entry{
			{"pattern", r.Properties.Get("EventPattern")}, {"template", transformer.Get("InputTemplate")},
		}}, values)
		if err != nil {
			return nil, fmt.Errorf("read rule %s: %w", r.ID, err)
		}
		pattern, err := json.Marshal(resolved.(map[string]any)["pattern"])
		if err != nil {
			return nil, fmt.Errorf("read rule %s: %w", r.ID, err)
		}
		rule := EventRule{ID: r.ID, Target: target.Get("Arn").Short(), Pattern: pattern}
		if transformer != nil {
			template := fmt.Sprint(resolved.(map[string]any)["template"])
			rule.Input = &standins.InputTransformer{Paths: map[string]string{}, Template: template}
			for _, e := range transformer.Get("InputPathsMap").entries() {
				rule.Input.Paths[e.Key] = e.Value.String()
			}
		}
		out = append(out, rule)
	}
	return out, nil
}
