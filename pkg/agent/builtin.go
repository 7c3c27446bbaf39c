package agent

import (
	"fmt"
	"slices"
)

// builtins are the built-in tools that are offered to the model now, behind the agent's own.
func (d *Definition) builtins(s *AgentState) []ToolSpec {
	var tools []ToolSpec
	if t, ok := d.readMore(); ok && s.cutResults() {
		tools = append(tools, t)
	}
	return tools
}

// builtin finds a built-in tool that the agent has, offered now or not. To the model it has the same name.
func (d *Definition) builtin(name string) (ToolSpec, bool) {
	if name == ReadMore {
		return d.readMore()
	}
	return ToolSpec{}, false
}

// builtinNames refuses tools that the model could not tell from a built-in one.
func (c *checker) builtinNames(d *Definition) {
	for i, t := range d.Tools {
		if _, taken := d.builtin(t.ModelName()); taken {
			c.add(fmt.Sprintf("tools[%d].name", i), t.ModelName()+" is the name of a built-in tool, want another one, or context.keepWhole: false")
		}
	}
}

// ToolsIn are the agent's tools and the built-in ones that it is offered in the state s.
func (d *Definition) ToolsIn(s *AgentState) []ToolSpec {
	return append(slices.Clip(d.Tools), d.builtins(s)...)
}
