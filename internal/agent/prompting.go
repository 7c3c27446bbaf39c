package agent

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/run"
)

// PromptText is what the sections of a request say to the model that is asked.
type PromptText struct {
	System string // behind the system text; "" = nothing
	Turn   string // before the words of the newest user turn; "" = nothing
}

// SaySection is what a section says; "" = nothing, and it does not stand.
func (d *Definition) SaySection(s Section, dot map[string]any) (string, error) {
	text := s.Text
	if s.Loop && !d.loops() {
		text = ""
	}
	if own, ok := d.Prompt.Sections[s.Name]; ok {
		text = own
	}
	said, err := d.render("section", s.Name, text, dot)
	trimmed := strings.TrimSpace(said)
	if s.Name == SectionInstructions && trimmed != "" {
		return said, err
	}
	return trimmed, err
}

// PromptDot is what every section may show: what a system text may, and the rules that hold for models of these
// dialects.
func (d *Definition) PromptDot(data SystemData, asked []Dialect) (map[string]any, error) {
	dot, err := systemDot(*d, data)
	if err != nil {
		return nil, fmt.Errorf("render sections of %s: input: %w", d.Name, err)
	}
	native := slices.ContainsFunc(asked, func(l Dialect) bool { return l != DialectXML })
	dot["OneTool"] = !native || d.Batch == BatchFirst // in tags there is one call a reply
	dot["ToolRequired"] = d.Text == TextRequireTool
	ends := []any{} // the names of the tools that end a run
	for _, t := range d.LoopBreaking() {
		ends = append(ends, t.Name)
	}
	dot["LoopBreaking"] = ends
	return dot, nil
}

// WithParagraph adds a paragraph that may be empty.
func WithParagraph(first, second string) string {
	if second == "" {
		return first
	}
	return Paragraphs(first, second)
}

// Prompted is r with what its sections say to the model that is asked: System has all of its words, Turn those that are
// to stand before the newest user turn. r is left as it is. Doing it again changes nothing.
func (r Request) Prompted() Request {
	said := r.Prompts[cmp.Or(r.Model.Dialect, DialectNative)]
	r.Prompts = nil
	r.System, r.Turn = WithParagraph(r.System, said.System), WithParagraph(r.Turn, said.Turn)
	return r
}

// turnIndex returns where the turn's words stand in the newest user turn, or len(messages) if there is none. Results
// of tools and their media, which providers want first, stand before them.
func turnIndex(messages []run.Message) int {
	begin := len(messages)
	for begin > 0 && messages[begin-1].Role == run.RoleUser {
		begin--
	}
	at := begin
	for i := begin; i < len(messages); i++ {
		switch messages[i].Block.(type) {
		case run.ToolResult:
			at = i + 1
		case run.Media:
			if at == i && i > begin { // of the result before it
				at = i + 1
			}
		}
	}
	return at
}

// Prompt arranges the sections that stand around the agent's own words (seed 004), where the preset or the dialect has
// any, and names the code that gives two of them what they say.
type Prompt struct {
	Order PromptOrder `json:"order,omitempty"`
	// templates instead of the built-in ones, by name; "" leaves a section out
	Sections map[string]string `json:"sections,omitempty"`
	Planning string            `json:"planning,omitempty"` // a hook.ContextSource for planning_context; "" = none
	RAG      string            `json:"rag,omitempty"`      // a hook.ContextSource for rag_context; "" = none
}

// loops reports whether an agent works by the rules of seed 004: no reply without a call is its last word, or one of
// its models calls tools in tags. Only such an agent has built-in sections beside its own words and what its hooks
// give.
func (d *Definition) loops() bool { return d.Text == TextRequireTool || d.WritesCalls() }

// Dialects are those of the chain's models, each once.
func (d *Definition) Dialects() []Dialect {
	var all []Dialect
	for _, m := range d.Model.Chain() {
		if l := cmp.Or(m.Dialect, DialectNative); !slices.Contains(all, l) {
			all = append(all, l)
		}
	}
	return all
}

// Sectioned reports whether the agent may have any section beside its own words.
func (d *Definition) Sectioned() bool {
	p := d.Prompt
	return len(p.Sections) > 0 || p.Planning != "" || p.RAG != "" || d.loops()
}

// prompt checks order, names and texts: every text is executed with everything it may name.
func (c *checker) prompt(at string, d *Definition) {
	p := d.Prompt
	c.enumOrNone(at+".order", p.Order)
	for _, name := range jsonx.SortedKeys(p.Sections) {
		path := at + ".sections." + name
		i := slices.IndexFunc(sections, func(s Section) bool { return s.Name == name })
		if i < 0 {
			c.add(path, "got an unknown section, want one of "+joined(sections, ", ", func(s Section) string { return s.Name }))
			continue
		}
		s := sections[i]
		if s.XML && p.Sections[name] != "" && !slices.Contains(d.Dialects(), DialectXML) {
			c.add(path, "got a text, want none: none of the agent's models has the dialect xml, and others are told of their "+
				"tools by the provider")
		}
		c.noError(path, s.check(p.Sections[name], d.SystemPrompt))
	}
}
