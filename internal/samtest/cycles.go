package samtest

import (
	"slices"
	"strings"
)

// cycles says which resources refer to each other in a circle, Globals included: CloudFormation could make none of them first.
func cycles(p *Project) []Problem {
	g := graph{to: map[string][]string{}, state: map[string]visit{}}
	for _, r := range p.Resources() {
		g.to[r.ID] = p.refersTo(r)
	}
	var found []Problem
	for _, r := range p.Resources() {
		if circle := g.walk(r.ID, nil); circle != nil {
			found = append(found, r.problem(nil, "refers to itself: %s", strings.Join(circle, " to ")))
		}
	}
	return found
}

// refersTo lists the resources that must be there before r.
func (p *Project) refersTo(r Resource) []string {
	var out []string
	add := func(id string) {
		if p.Template.Get("Resources", id) != nil && !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	look := func(_ string, n *Node) {
		switch name, arg := n.Call(); name {
		case "Ref":
			add(arg.String())
		case "Fn::GetAtt":
			add(arg.Items[0].String())
		case "Fn::Sub":
			for _, m := range placeholder.FindAllStringSubmatch(arg.String(), -1) {
				id, _, _ := strings.Cut(m[1], ".")
				add(id)
			}
		}
	}
	walk(r.Properties, "", look)
	if section, ok := strings.CutPrefix(r.Type, "AWS::Serverless::"); ok {
		walk(p.Template.Get("Globals", section), "", look)
	}
	for _, d := range r.Node.Get("DependsOn").Each() {
		add(d.String())
	}
	return out
}

type visit int

const (
	unseen visit = iota
	open
	closed
)

type graph struct {
	to    map[string][]string
	state map[string]visit
}

// walk gives the first circle that it meets from id on, each at most once.
func (g graph) walk(id string, path []string) []string {
	path = append(path, id)
	switch g.state[id] {
	case open:
		return path[slices.Index(path, id):]
	case closed:
		return nil
	}
	g.state[id] = open
	defer func() { g.state[id] = closed }()
	for _, next := range g.to[id] {
		if circle := g.walk(next, path); circle != nil {
			return circle
		}
	}
	return nil
}
