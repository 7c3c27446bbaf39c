package cli

import (
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

// --dir is where an agent's tools work, those of the programs that are its servers as well; a server that is somewhere else has no folder.
func TestDirIsForProgramsToo(t *testing.T) {
	agents, dir := t.TempDir(), t.TempDir()
	file := filepath.Join(agents, "agent.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`
name: tidy
system: You tidy.
model: {provider: demo, id: stand-in}
tools: [{name: extract_text, root: inbox}]
mcp:
  - {name: files, command: [mcp-server-filesystem, "."], dir: inbox}
  - {name: more, command: [mcp-server-filesystem, "."]}
  - {name: web, url: "https://files.example.com/mcp"}
`), 0o600))
	p := &program{registry: testRegistry()}
	folders := func(c agentOverrides) []string {
		d, err := p.loadAgent(file, c)
		require.NoError(t, err)
		return []string{d.Tools[0].Root, d.MCP[0].Dir, d.MCP[1].Dir, d.MCP[2].Dir}
	}
	require.Equal(t, []string{filepath.Join(agents, "inbox"), filepath.Join(agents, "inbox"), agents, ""}, folders(agentOverrides{}))
	require.Equal(t, []string{dir, dir, dir, ""}, folders(agentOverrides{dir: dir}))
}

// What a command line says of a registered agent is for that command alone.
func TestDirLeavesTheRegisteredAgent(t *testing.T) {
	r := testRegistry()
	own, err := r.Read(fstest.MapFS{"agent.yaml": {Data: []byte(`
name: own
system: You tidy.
model: {provider: demo, id: stand-in}
mcp: [{name: files, command: [mcp-server-filesystem, "."]}]
`)}}, "agent.yaml")
	require.NoError(t, err)
	own.MCP[0].Dir = "/registered"
	require.NoError(t, r.Add(own))
	d, err := (&program{registry: r}).loadAgent("own", agentOverrides{dir: t.TempDir()})
	require.NoError(t, err)
	require.NotEqual(t, "/registered", d.MCP[0].Dir)
	kept, ok := r.Agent("own")
	require.True(t, ok)
	require.Equal(t, "/registered", kept.MCP[0].Dir)
}
