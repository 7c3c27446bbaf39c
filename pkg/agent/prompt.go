package agent

import "cmp"

// Prompt arranges the sections that stand around the agent's own words (seed 004), where the preset or the dialect has any.
type Prompt struct {
	Order    PromptOrder       `json:"order,omitempty"`
	Sections map[string]string `json:"sections,omitempty"` // texts that replace built-in ones, by name; "" leaves a section out
}

// PromptOrder is where sections stand.
type PromptOrder string

// The seed's order, in which tools and rules stand in the turn's message; or that of its code, in which everything stands in the system
// message. "" = seed.
const (
	PromptSeed PromptOrder = "seed"
	PromptCode PromptOrder = "code"
)

func (c *checker) prompt(at string, p Prompt) {
	oneOf(c, at+".order", cmp.Or(p.Order, PromptSeed), PromptSeed, PromptCode)
}
