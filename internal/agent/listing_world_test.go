package agent

import "slices"

func worldServerTool(name string, e Effect) ToolSpec {
	return ToolSpec{Name: "files." + name, Kind: KindMCP, Effect: e, MCP: &MCPTool{Server: "files", Tool: name, Digest: "1"}}
}

// listings are what may come of asking the servers: all of their tools, some, none as one was not to be had, and that the run cannot do without.
func (w *world) listings() []step {
	listed := func(name string, s ServerState) step {
		return step{name: name, writer: "w1", events: []Event{ToolsListed{Definition: "d2", Servers: []ServerState{s}}}}
	}
	return []step{
		listed("list", ServerState{Name: "files", Protocol: "p", Tools: []string{"read", "pay"}}),
		listed("list some", ServerState{Name: "files", Tools: []string{"pay"}, Disabled: []DisabledTool{{Tool: "read", Why: DisabledNew, Digest: "2"}}}),
		{name: "list in vain", writer: "w1", events: []Event{Fail(CodeMCPUnavailable, "down")}},
	}
}

// changes is what a call of a server's tool may come to beside a result: the server has changed the tool.
func (w *world) changes(c Call) []step {
	t, _ := w.def.Tool(c.Tool)
	if t.MCP == nil {
		return nil
	}
	return []step{{name: "tool changed", writer: max("w1", c.Claim), events: []Event{
		CallFinished{Call: c.ID, IsError: true, Reason: WhyToolChanged, Content: "changed"},
		ToolsDisabled{Server: t.MCP.Server, Tool: t.MCP.Tool, Why: DisabledChanged, Digest: "2"},
	}}}
}

// lacksTool reports whether the tool of a call is disabled in the run.
func lacksTool(s *AgentState, c Call) bool {
	return slices.ContainsFunc(s.Servers, func(v ServerState) bool {
		return slices.ContainsFunc(v.Disabled, func(d DisabledTool) bool { return v.Name+"."+d.Tool == c.Tool })
	})
}
