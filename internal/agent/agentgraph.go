package agent

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/jsonx"
)

// Agents finds a deployment's current definition of an agent by name. A nil Agents finds none.
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

// CheckAgents checks the delegation between agents: every agent that a tool names exists, no agent delegates to itself
// directly or indirectly, and every model under a budget in USD has a price. find finds the agents of names. The error
// joins all problems.
func CheckAgents(names []string, find Agents) error {
	var problems []error
	for _, name := range slices.Sorted(slices.Values(names)) {
		d, ok := find(name)
		if !ok {
			problems = append(problems, fmt.Errorf("agent %s is listed and not there", name))
			continue
		}
		problems = append(problems, checkDelegates(d, names, find)...)
		// report each circle once
		if path := findCircle(d, find, nil, map[string]bool{}); path != nil && slices.Min(path) == name {
			problems = append(problems, circleError(d, path))
		}
	}
	return errors.Join(problems...)
}

// CheckDelegates checks one agent as CheckAgents does. The agent need not be among names.
func CheckDelegates(d *Definition, names []string, find Agents) error {
	return errors.Join(append(checkDelegates(d, names, find), CheckCircle(d, find))...)
}

// CheckCircle returns an error if an agent delegates to itself, directly or through agents that find knows. Unknown
// agents are ignored.
func CheckCircle(d *Definition, find Agents) error {
	if path := findCircle(d, find, nil, map[string]bool{}); path != nil {
		return circleError(d, path)
	}
	return nil
}

// circleError names the tool of d, the first agent of path, that leads to the next one.
func circleError(d *Definition, path []string) error {
	path = append(path, path[0])
	at := slices.IndexFunc(d.Tools, func(t ToolSpec) bool { return t.Agent != nil && t.Agent.Agent == path[1] })
	return fmt.Errorf("agent %s: tools[%d].agent: an agent would work for itself: %s", d.Name, at,
		strings.Join(path, " -> "))
}

// findCircle returns the names on a path from d back to the first agent of path, or nil if there is none.
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
		case seen[t.Agent.Agent]: // a circle without the first agent is reported for its own agents
		default:
			if found := findCircle(find.Find(t.Agent.Agent), find, path, seen); found != nil {
				return found
			}
		}
	}
	return nil
}

// Warnings describes what is valid in d and has no effect, as patterns that match no tool and arguments that their tool
// does not have, or can only fail: a window that holds no request, messages to an agent that takes arguments. A rule
// also holds for the tools of the agents below d; the plugin tool-policy is about d's own tools. Tools that a server
// has not listed yet may match.
func (find Agents) Warnings(d *Definition) (found []string) {
	have := append(find.below(d.Name, map[string]bool{}), d)
	x := d.Context
	least := x.Reserve.Active + x.Reserve.Output + x.Reserve.Safety + x.RoundMinimum
	if x.Window > 0 && x.Window <= least {
		found = append(found, fmt.Sprintf("context.window: %d holds no request; reserve and roundMinimum take %d of it",
			x.Window, least))
	}
	for i, t := range d.Tools {
		if t.Kind == KindAgent && t.Agent != nil && string(t.Schema) == string(DelegateSchema) {
			if to := find.Find(t.Agent.Agent); to != nil && to.Input.Schema != nil {
				found = append(found, fmt.Sprintf("tools[%d].schema: got none, so a call is a message, and agent %s takes the "+
					"arguments of its input.schema alone", i, to.Name))
			}
		}
		parsed, err := parseTemplate("describe", t.Describe)
		if err != nil { // the check of the definition reports it
			continue
		}
		var read rootFields
		read.visit(parsed.Root, true)
		for _, name := range read.names {
			found = t.appendUnknown(found, fmt.Sprintf("tools[%d].describe", i), name)
		}
	}
	for i, r := range d.Permission.Rules {
		for k, c := range r.When {
			at, err := jsonx.ParsePointer(c.Path)
			of := slices.IndexFunc(have, func(d *Definition) bool { _, own := d.Tool(r.Tool); return own })
			if err == nil && len(at) > 0 && of >= 0 {
				t, _ := have[of].Tool(r.Tool)
				found = t.appendUnknown(found, fmt.Sprintf("permission.rules[%d].when[%d].path", i, k), at[0])
			}
		}
		if !slices.ContainsFunc(have, func(d *Definition) bool { return d.mayHave(r.Tool) }) {
			found = append(found, fmt.Sprintf("permission.rules[%d].tool: %s", i,
				d.describeUnmatched(r.Tool, ", so the rule holds for nothing")))
		}
	}
	for i, p := range d.Plugins {
		var c struct{ Allow, Exclude []string }
		if p.Name != "tool-policy" || json.Unmarshal(p.Config, &c) != nil { // another plugin of that name
			continue
		}
		for _, list := range []struct {
			key      string
			patterns []string
		}{{"allow", c.Allow}, {"exclude", c.Exclude}} {
			for k, pattern := range list.patterns {
				if !d.mayHave(pattern) {
					found = append(found, fmt.Sprintf("plugins[%d].config.%s[%d]: %s", i, list.key, k,
						d.describeUnmatched(pattern, "")))
				}
			}
		}
	}
	return found
}

// appendUnknown adds to found that the tool has no argument of that name, as far as its schema lists all of them.
func (t ToolSpec) appendUnknown(found []string, at, name string) []string {
	var s map[string]json.RawMessage
	var properties map[string]json.RawMessage
	if json.Unmarshal(t.Schema, &s) != nil || json.Unmarshal(s["properties"], &properties) != nil {
		return found
	}
	for _, key := range []string{"$ref", "allOf", "anyOf", "oneOf", "if", "patternProperties", "dependentSchemas"} {
		if s[key] != nil {
			return found
		}
	}
	more := string(s["additionalProperties"])
	if _, known := properties[name]; known || more != "" && more != "false" {
		return found
	}
	names := slices.Sorted(maps.Keys(properties))
	text := fmt.Sprintf("%s: %s has no argument %.64q; it has %s", at, t.Name, name,
		cmp.Or(strings.Join(names, ", "), "none"))
	if like := Closest(name, names); len(like) > 0 {
		text += "; did you mean " + like[0] + "?"
	}
	return append(found, text)
}

// checkDelegates checks the agents to which d delegates.
func checkDelegates(d *Definition, names []string, find Agents) []error {
	var problems []error
	for i, t := range d.Tools {
		if t.Kind != KindAgent || t.Agent == nil {
			continue
		}
		if find.Find(t.Agent.Agent) == nil {
			problems = append(problems, fmt.Errorf("agent %s: tools[%d].agent: there is no agent %.64q; known: %s", d.Name, i,
				t.Agent.Agent,
				strings.Join(slices.Sorted(slices.Values(names)), ", ")))
			continue
		}
		problems = append(problems, checkChannels(d, find.below(t.Agent.Agent, map[string]bool{d.Name: true}))...)
		if d.Limits.USD == 0 && t.Agent.USD == 0 {
			continue
		}
		all := find.below(t.Agent.Agent, map[string]bool{})
		if at := slices.IndexFunc(all, func(d *Definition) bool { return !d.Priced() }); at >= 0 {
			problems = append(problems, fmt.Errorf(
				"agent %s: tools[%d]: a budget in USD is set, and a model of agent %s has no price", d.Name, i, all[at].Name))
		}
	}
	return problems
}

// below returns the agent of that name and all agents below it, each once, an agent before those it delegates to. It
// leaves out the names in seen and adds to seen the names it visits.
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

// checkChannels finds tools of agents below d that nobody could ever approve: the tool's rule and d's rule allow no
// common channel. Rules with conditions are ignored.
func checkChannels(d *Definition, below []*Definition) []error {
	var problems []error
	for _, b := range below {
		for _, t := range b.Tools {
			own, above := b.Permission.channelsOf(t), d.Permission.channelsOf(t)
			if c := own.Narrow(above); c.Via != nil && len(c.Via) == 0 {
				problems = append(problems,
					fmt.Errorf("agent %s: permission.rules: %s of agent %s is approved here by %s, and there by %s: "+
						"nobody could approve it; want a channel in common", d.Name, t.Name, b.Name, above.Words(), own.Words()))
			}
		}
	}
	return problems
}

// channelsOf returns the channels of the rule that decides about every call of the tool, or all channels if there is no
// such rule.
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

// Priced reports whether all of the agent's models have a price.
func (d *Definition) Priced() bool {
	unpriced := func(m ModelSpec) bool { return m.Price == nil }
	return !slices.ContainsFunc(d.Model.Chain(), unpriced) && !slices.ContainsFunc(d.Orchestrator.models(),
		func(m planModel) bool { return unpriced(*m.spec) })
}
