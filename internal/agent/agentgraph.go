package agent

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Agents finds a deployment's current definition of an agent by name. Nil knows none.
type Agents func(name string) (*Definition, bool)

// Find returns the agent of that name, or nil if there is none.
func (find Agents) Find(name string) *Definition {
	if find != nil {
		if d, ok := find(name); ok {
			return d
		}
	}
	return nil
}

// CheckAgents checks what agents that ask each other are to one another: each agent that a tool names is there, none
// works for itself, over whatever others, and what is held to a budget in USD has prices. find finds those of names.
// The error is all that is wrong.
func CheckAgents(names []string, find Agents) error {
	var found []error
	for _, name := range slices.Sorted(slices.Values(names)) {
		d, ok := find(name)
		if !ok {
			found = append(found, fmt.Errorf("agent %s is listed and not there", name))
			continue
		}
		found = append(found, checkDelegates(d, names, find)...)
		// each circle is told once
		if path := findCircle(d, find, nil, map[string]bool{}); path != nil && slices.Min(path) == name {
			found = append(found, circleError(path))
		}
	}
	return errors.Join(found...)
}

// CheckDelegates is CheckAgents for what concerns one agent, whether it is among those of names or not.
func CheckDelegates(d *Definition, names []string, find Agents) error {
	return errors.Join(append(checkDelegates(d, names, find), CheckCircle(d, find))...)
}

// CheckCircle checks that an agent does not work for itself, over whatever others that find knows. Those it does not
// know are no matter.
func CheckCircle(d *Definition, find Agents) error {
	if path := findCircle(d, find, nil, map[string]bool{}); path != nil {
		return circleError(path)
	}
	return nil
}

func circleError(path []string) error {
	return fmt.Errorf("an agent would work for itself: %s", strings.Join(append(path, path[0]), " -> "))
}

// findCircle returns a path from d back to the first agent of path, without that agent's name; nil if there is none.
func findCircle(d *Definition, find Agents, path []string, seen map[string]bool) []string {
	if d == nil {
		return nil
	}
	seen[d.Name] = true
	path = append(slices.Clip(path), d.Name)
	for _, t := range d.Tools {
		switch {
		case t.Kind != KindAgent || t.Agent == nil:
		case t.Agent.Agent == path[0]:
			return path
		case seen[t.Agent.Agent]: // a circle of others is told of them
		default:
			if found := findCircle(find.Find(t.Agent.Agent), find, path, seen); found != nil {
				return found
			}
		}
	}
	return nil
}

// checkDelegates checks the agents that one asks.
func checkDelegates(d *Definition, names []string, find Agents) []error {
	var found []error
	for i, t := range d.Tools {
		if t.Kind != KindAgent || t.Agent == nil {
			continue
		}
		if find.Find(t.Agent.Agent) == nil {
			found = append(found, fmt.Errorf("agent %s: tools[%d].agent: there is no agent %.64q; known: %s", d.Name, i,
				t.Agent.Agent,
				strings.Join(slices.Sorted(slices.Values(names)), ", ")))
			continue
		}
		found = append(found, checkChannels(d, find.below(t.Agent.Agent, map[string]bool{d.Name: true}))...)
		if d.Limits.USD == 0 && t.Agent.USD == 0 {
			continue
		}
		all := find.below(t.Agent.Agent, map[string]bool{})
		if at := slices.IndexFunc(all, func(d *Definition) bool { return !d.Priced() }); at >= 0 {
			found = append(found, fmt.Errorf("agent %s: tools[%d]: a budget in USD is set, and a model of agent %s has no price",
				d.Name, i, all[at].Name))
		}
	}
	return found
}

// below returns the agent of that name and those that work for it, each once, the one that asks before those it asks.
// Agents whose names are in seen are left out; below adds to it.
func (find Agents) below(name string, seen map[string]bool) []*Definition {
	d := find.Find(name)
	if d == nil || seen[name] {
		return nil
	}
	seen[name] = true
	all := []*Definition{d}
	for _, t := range d.Tools {
		if t.Kind == KindAgent && t.Agent != nil {
			all = append(all, find.below(t.Agent.Agent, seen)...)
		}
	}
	return all
}

// checkChannels finds the tools of agents below d that nobody can approve, whatever they are called with: the channels
// of their rule and of d's rule have none in common. Rules with conditions are not looked at.
func checkChannels(d *Definition, below []*Definition) []error {
	var found []error
	for _, b := range below {
		for _, t := range b.Tools {
			own, above := b.Permission.channelsOf(t), d.Permission.channelsOf(t)
			if c := own.Narrow(above); c.Via != nil && len(c.Via) == 0 {
				found = append(found,
					fmt.Errorf("agent %s: permission.rules: %s of agent %s is approved here by %s, and there by %s: "+
						"nobody could approve it; want a channel in common", d.Name, t.Name, b.Name, above.Words(), own.Words()))
			}
		}
	}
	return found
}

// channelsOf returns the channels of the rule that decides about every call of the tool; all, if there is no such rule.
func (p Permission) channelsOf(t ToolSpec) Channels {
	for _, r := range p.Rules {
		if MatchTool(r.Tool, t.Name) && p.Mode != ModeAdvisory {
			if len(r.When) > 0 {
				return Channels{}
			}
			return r.Channels()
		}
	}
	return Channels{}
}

// Priced reports whether it is known what each of the agent's models costs.
func (d *Definition) Priced() bool {
	unpriced := func(m ModelSpec) bool { return m.Price == nil }
	return !slices.ContainsFunc(d.Model.Chain(), unpriced) && !slices.ContainsFunc(d.Orchestrator.models(),
		func(m planModel) bool { return unpriced(*m.spec) })
}
