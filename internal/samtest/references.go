package samtest

import (
	"regexp"
	"slices"
	"strings"
)

var placeholder = regexp.MustCompile(`\$\{([^!}][^}]*)\}`)

// pseudo are the parameters that CloudFormation has of itself.
var pseudo = []string{
	"AWS::AccountId", "AWS::NoValue", "AWS::NotificationARNs", "AWS::Partition", "AWS::Region", "AWS::StackId", "AWS::StackName", "AWS::URLSuffix",
}

// references says which Ref, GetAtt, Sub, If, Condition and DependsOn lead nowhere, inside AWS::Serverless resources too, and which
// parameters and conditions nobody uses.
func references(p *Project) []Problem {
	r := &refs{project: p, used: map[string]bool{}}
	for _, section := range []string{"Conditions", "Globals", "Resources", "Outputs", "Rules"} {
		for _, e := range p.Template.Get(section).entries() {
			r.of = e.Key
			walk(e.Value, section, r.visit)
		}
	}
	for _, section := range []string{"Parameters", "Conditions"} {
		for _, e := range p.Template.Get(section).entries() {
			if !r.used[e.Key] {
				r.of = e.Key
				r.problem(&Node{Line: e.Line}, "nothing refers to it")
			}
		}
	}
	return r.found
}

type refs struct {
	project *Project
	of      string
	used    map[string]bool
	found   []Problem
}

func (r *refs) problem(n *Node, text string) {
	r.found = append(r.found, Problem{File: TemplateFile, Line: n.Line, Of: r.of, Text: text})
}

func (r *refs) visit(_ string, n *Node) {
	if n.Kind == Map && n.Get("Type") != nil { // a resource
		for _, d := range n.Get("DependsOn").Each() {
			r.name(d, d.String(), "Resources")
		}
		if c := n.Get("Condition"); c != nil && c.Kind == Scalar {
			r.name(c, c.String(), "Conditions")
		}
	}
	switch name, arg := n.Call(); name {
	case "Ref":
		r.name(n, arg.String(), "Parameters", "Resources")
	case "Condition":
		r.name(n, arg.String(), "Conditions")
	case "Fn::If":
		if len(arg.Items) != 3 {
			r.problem(n, "If: want a condition and two values")
			return
		}
		r.name(n, arg.Items[0].String(), "Conditions")
	case "Fn::GetAtt":
		r.getAtt(n, arg)
	case "Fn::Sub":
		r.sub(n, arg)
	}
}

func (r *refs) name(n *Node, name string, sections ...string) {
	r.used[name] = true
	if slices.Contains(pseudo, name) {
		return
	}
	for _, s := range sections {
		if r.project.Template.Get(s, name) != nil {
			return
		}
	}
	r.problem(n, name+": want one of "+strings.Join(sections, " or "))
}

func (r *refs) getAtt(n, arg *Node) {
	if len(arg.Items) != 2 {
		r.problem(n, "GetAtt: want Resource.Attribute")
		return
	}
	r.attribute(n, arg.Items[0].String(), arg.Items[1].String())
}

func (r *refs) attribute(n *Node, id, attr string) {
	r.name(n, id, "Resources")
	kind := r.project.Template.Get("Resources", id, "Type").String()
	if known, ok := spec.Attributes[kind]; ok && !slices.Contains(known, attr) {
		r.problem(n, id+"."+attr+": a "+kind+" has no such attribute")
	}
}

func (r *refs) sub(n, arg *Node) {
	if arg.Kind != Scalar {
		r.problem(n, "Sub: want a text; the form with a map of its own is not checked here")
		return
	}
	for _, m := range placeholder.FindAllStringSubmatch(arg.Text, -1) {
		if id, attr, ok := strings.Cut(m[1], "."); ok {
			r.attribute(n, id, attr)
		} else {
			r.name(n, m[1], "Parameters", "Resources")
		}
	}
}
