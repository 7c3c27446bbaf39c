package lambdafn

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
)

// agentsByName are agents that can be listed.
type agentsByName map[string]*agent.Definition

func (a agentsByName) Agent(name string) (*agent.Definition, bool) { d, ok := a[name]; return d, ok }
func (a agentsByName) Agents() []string                            { return []string{"files", "web", "plain"} }

// An agent that needs a program on the machine is taken out at cold start, told once, and whoever starts it is told why; the others work.
func TestAgentsThatNeedPrograms(t *testing.T) {
	all := agentsByName{
		"files": {Name: "files", MCP: []agent.MCPServer{{Name: "web", URL: "https://x.example"}, {Name: "fs", Command: []string{"server-filesystem", "/data"}}}},
		"web":   {Name: "web", MCP: []agent.MCPServer{{Name: "web", URL: "https://x.example"}}},
		"plain": {Name: "plain"},
	}
	const why = "agent files needs a program on this machine (mcp server fs has a command) and cannot run in a deployed function"
	var told []string
	able := fitAgents(all, func(text string) { told = append(told, text) })
	require.Equal(t, []string{why}, told)
	require.Equal(t, []string{"web", "plain"}, able.Agents())
	for name, there := range map[string]bool{"files": false, "web": true, "plain": true, "ghost": false} {
		_, ok := able.Agent(name)
		require.Equal(t, there, ok, name)
	}
	require.Equal(t, why, able.Unfit("files"))
	require.Empty(t, able.Unfit("web"))
	require.Empty(t, able.Unfit("ghost"))

	h := &Deployment{Agents: able.Agent, Unfit: able.Unfit}
	for name, says := range map[string]string{"files": "start run: " + why, "ghost": `start run: agent "ghost" is not known to this deployment`} {
		_, err := h.create(context.Background(), &event{Name: "x", State: state{Agent: name}})
		require.ErrorContains(t, err, says)
		var kind *Error
		require.ErrorAs(t, err, &kind)
	}
}
