package run_test

import (
	"slices"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

func worldServerTool(name string, e run.Effect) agent.ToolSpec {
	return agent.ToolSpec{Name: "files." + name, Kind: agent.KindMCP, Effect: e, MCP: &agent.MCPTool{Server: "files", Tool: name, Digest: "1"}}
}

// listings are what may come of asking the servers: all of their tools, some, none as one was not to be had, and that the run cannot do without.
func (w *world) listings() []step {
	listed := func(name string, s run.ServerState) step {
		return step{name: name, writer: "w1", events: []run.Event{run.ToolsListed{Definition: "d2", Servers: []run.ServerState{s}}}}
	}
	return []step{
		listed("list", run.ServerState{Name: "files", Protocol: "p", Tools: []string{"read", "pay"}}),
		listed("list some", run.ServerState{Name: "files", Tools: []string{"pay"}, Disabled: []run.DisabledTool{{Tool: "read", Why: run.DisabledNew, Digest: "2"}}}),
		{name: "list in vain", writer: "w1", events: []run.Event{policy.Fail(run.CodeMCPUnavailable, "down")}},
	}
}

// changes is what a call of a server's tool may come to beside a result: the server has changed the tool.
func (w *world) changes(c run.Call) []step {
	t, _ := w.def.Tool(c.Tool)
	if t.MCP == nil {
		return nil
	}
	return []step{{name: "tool changed", writer: max("w1", c.Claim), events: []run.Event{
		run.CallFinished{Call: c.ID, IsError: true, Reason: run.WhyToolChanged, Content: "changed"},
		run.ToolsDisabled{Server: t.MCP.Server, Tool: t.MCP.Tool, Why: run.DisabledChanged, Digest: "2"},
	}}}
}

// lacksTool reports whether the tool of a call is disabled in the run.
func lacksTool(s *run.AgentState, c run.Call) bool {
	return slices.ContainsFunc(s.Servers, func(v run.ServerState) bool {
		return slices.ContainsFunc(v.Disabled, func(d run.DisabledTool) bool { return v.Name+"."+d.Tool == c.Tool })
	})
}
