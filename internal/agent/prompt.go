package agent

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// Prompt arranges the sections that stand around the agent's own words (seed 004), where the preset or the dialect has any, and names the
// code that gives two of them what they say.
type Prompt struct {
	Order    PromptOrder       `json:"order,omitempty"`
	Sections map[string]string `json:"sections,omitempty"` // templates instead of the built-in ones, by name; "" leaves a section out
	Planning string            `json:"planning,omitempty"` // a hook.ContextSource for planning_context; "" = none
	RAG      string            `json:"rag,omitempty"`      // a hook.ContextSource for rag_context; "" = none
}

// PromptOrder is where sections stand.
type PromptOrder string

// The seed's order, in which tools and rules stand in the turn's message; or that of its code, in which everything stands in the system
// message. "" = seed.
const (
	PromptSeed PromptOrder = "seed"
	PromptCode PromptOrder = "code"
)

// loops reports whether an agent works by the rules of seed 004: no reply without a call is its last word, or one of its models calls tools
// in tags. Only such an agent has built-in sections beside its own words and what its hooks give.
func (d *Definition) loops() bool { return d.Text == TextRequireTool || d.writesCalls() }

// dialects are those of the chain's models, each once.
func (d *Definition) dialects() []Dialect {
	var all []Dialect
	for _, m := range d.Model.Chain() {
		if l := cmp.Or(m.Dialect, DialectNative); !slices.Contains(all, l) {
			all = append(all, l)
		}
	}
	return all
}

// sectioned reports whether the agent may have any section beside its own words.
func (d *Definition) sectioned() bool {
	p := d.Prompt
	return len(p.Sections) > 0 || p.Planning != "" || p.RAG != "" || d.loops()
}

// sectionText is the template of a section under d; "" = it does not stand.
func (d *Definition) sectionText(s Section) string {
	if own, ok := d.Prompt.Sections[s.Name]; ok {
		return own
	}
	if s.Loop && !d.loops() {
		return ""
	}
	return s.Text
}

// prompt checks order, names and texts: every text is executed with everything it may name.
func (c *checker) prompt(at string, d *Definition) {
	p := d.Prompt
	oneOf(c, at+".order", cmp.Or(p.Order, PromptSeed), PromptSeed, PromptCode)
	for _, name := range slices.Sorted(maps.Keys(p.Sections)) {
		path := at + ".sections." + name
		s, ok := sectionOf(name)
		if !ok {
			c.add(path, "got an unknown section, want one of "+strings.Join(sectionNames(), ", "))
			continue
		}
		if s.XML && p.Sections[name] != "" && !slices.Contains(d.dialects(), DialectXML) {
			c.add(path, "got a text, want none: none of the agent's models has the dialect xml, and others are told of their tools by the provider")
		}
		if err := s.check(p.Sections[name], d.SystemPrompt); err != nil {
			c.add(path, err.Error())
		}
	}
}
