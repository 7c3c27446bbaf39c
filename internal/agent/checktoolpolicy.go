package agent

import (
	"fmt"
	"slices"
	"strings"
)

// MaxAttempts is how often a call may be entered in one invocation.
const MaxAttempts = 20

// toolPolicy checks how a tool's calls are made.
func (c *checker) toolPolicy(at string, t ToolSpec) {
	r := t.Retry
	c.that(r.Attempts >= 0 && r.Attempts <= MaxAttempts, at+".retry.attempts", fmt.Sprintf("got %d, want 0 to %d", r.Attempts, MaxAttempts))
	c.that(r.Attempts <= 1 || t.Effect != EffectNonIdempotent, at+".retry.attempts",
		fmt.Sprintf("got %d, want one: a tool of effect non_idempotent is entered at most once", r.Attempts))
	c.that(r.Backoff >= 0, at+".retry.backoff", "got less than zero, want a duration")
	c.that(r.MaxBackoff == 0 || r.MaxBackoff >= r.Backoff, at+".retry.maxBackoff", "got less than backoff, want at least as much")
	c.that(t.Concurrency >= 0, at+".concurrency", fmt.Sprintf("got %d, want zero or more", t.Concurrency))
	c.that(t.MaxResult >= 0 && t.MaxResult <= MaxResult, at+".maxResult", fmt.Sprintf("got %d, want 0 to %d bytes", t.MaxResult, MaxResult))
	if t.AnsweredLater() {
		c.that(r == ToolRetry{}, at+".retry", "got a policy, want none: the call is sent out and answered later")
		c.that(t.Concurrency == 0, at+".concurrency", "got a bound, want none: the call is sent out and answered later")
	}
	if t.Undo != nil && t.Undo.Args != nil {
		if err := checkUndoArgs(t.Undo.Args); err != nil {
			c.add(at+".undo.args", err.Error())
		}
	}
}

// listsLater reports whether a name may be that of a tool of an MCP server, which is known once the server has been asked.
func (d *Definition) listsLater(tool string) bool {
	return slices.ContainsFunc(d.MCP, func(m MCPServer) bool { return strings.HasPrefix(tool, m.Name+".") })
}

// undos wants what takes a tool's calls back to be a tool of the agent.
func (c *checker) undos(d *Definition) {
	for i, t := range d.Tools {
		if t.Undo == nil {
			continue
		}
		at := fmt.Sprintf("tools[%d].undo.tool", i)
		_, known := d.Tool(t.Undo.Tool)
		switch {
		case t.Undo.Tool == "":
			c.add(at, "got nothing, want the original name of a tool of this agent")
		case !known && d.listsLater(t.Undo.Tool):
		case !known || d.breaksLoop(t.Undo.Tool):
			c.add(at, "got no tool of this agent, want the original name of one")
		}
	}
}
