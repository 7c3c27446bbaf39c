package policy_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

// TestCurrentServers: a run loses the tools of a server that the agent, as it is now, denies or does not lock (A17).
func TestCurrentServers(t *testing.T) {
	server := func(change func(*agent.MCPServer)) agent.MCPServer {
		m := agent.MCPServer{Name: "files", URL: "https://files.example.com/mcp",
			Locked: map[string]string{"delete": "d1", "move": "d2"}}
		change(&m)
		return m
	}
	remove := agent.ToolSpec{Name: "files.delete", Kind: agent.KindMCP, Effect: run.EffectNonIdempotent,
		MCP: &agent.MCPTool{Server: "files", Tool: "delete", Digest: "d1"}}
	pinned := agent.Definition{Name: "desk", Permission: agent.Permission{Default: agent.DefaultAllow},
		Tools: []agent.ToolSpec{remove}, MCP: []agent.MCPServer{server(func(*agent.MCPServer) {})}}
	for name, c := range map[string]struct {
		servers []agent.MCPServer
		want    agent.Verdict
	}{
		"the same":         {pinned.MCP, agent.VerdictAllow},
		"no server":        {nil, agent.VerdictDeny},
		"denied":           {[]agent.MCPServer{server(func(m *agent.MCPServer) { m.Deny = []string{"del*"} })}, agent.VerdictDeny},
		"not allowed":      {[]agent.MCPServer{server(func(m *agent.MCPServer) { m.Allow = []string{"move"} })}, agent.VerdictDeny},
		"allowed":          {[]agent.MCPServer{server(func(m *agent.MCPServer) { m.Allow = []string{"delete"} })}, agent.VerdictAllow},
		"not locked":       {[]agent.MCPServer{server(func(m *agent.MCPServer) { delete(m.Locked, "delete") })}, agent.VerdictDeny},
		"locked otherwise": {[]agent.MCPServer{server(func(m *agent.MCPServer) { m.Locked["delete"] = "d3" })}, agent.VerdictDeny},
		"no lock":          {[]agent.MCPServer{server(func(m *agent.MCPServer) { m.Locked = nil })}, agent.VerdictDeny},
	} {
		now, d := pinned, pinned
		now.Tools, now.MCP = nil, c.servers
		d.Now = policy.CurrentOf(&pinned, func(string) (*agent.Definition, bool) { return &now, true })
		dec := policy.DecideIn(&d, &run.AgentState{}, remove, json.RawMessage(`{}`))
		require.Equal(t, c.want, dec.Verdict, name)
	}
}
