package agent

import "fmt"

// delegate checks what only a tool of kind agent has. Whether there is such an agent, CheckAgents says.
func (c *checker) delegate(at string, t ToolSpec) {
	if t.Kind != KindAgent {
		c.that(t.Agent == nil, at+".agent", "got an agent, want none: only kind agent has one")
		return
	}
	if t.Agent == nil {
		c.add(at+".agent", "got nothing, want the name of an agent")
		return
	}
	c.form(ValidAgentName(t.Agent.Agent), at+".agent", t.Agent.Agent, agentNameForm)
	c.that(t.Agent.Tokens >= 0, at+".budget.tokens", fmt.Sprintf("got %d, want zero or more", t.Agent.Tokens))
	c.that(t.Agent.USD >= 0, at+".budget.usd", "got less than zero, want zero or more")
}

// amounts checks what a run may use, and how far delegation may go.
func (c *checker) amounts(at string, l Limits) {
	c.that(l.Tokens >= 0, at+".tokens", fmt.Sprintf("got %d, want zero or more", l.Tokens))
	c.that(l.USD >= 0, at+".usd", "got less than zero, want zero or more")
	c.that(l.Depth >= 0 && l.Depth <= maxDepth, at+".depth", fmt.Sprintf("got %d, want 1 to %d", l.Depth, maxDepth))
	c.that(l.Children >= 0 && l.Children <= MaxChildren, at+".children", fmt.Sprintf("got %d, want 1 to %d", l.Children, MaxChildren))
}

// maxDepth is how many runs there may be below any root.
const maxDepth = 16
