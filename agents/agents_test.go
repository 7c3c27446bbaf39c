package agents_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/agents"
	"github.com/countersign/countersign/agents/compiled"
	"github.com/countersign/countersign/pkg/agent/catalog"
)

// What is deployed is what the agents' files say: the same bytes, and so the same digest, for every agent.
func TestAgentsAreCompiled(t *testing.T) {
	want, err := catalog.Text(agents.Registry())
	require.NoError(t, err)
	got, err := os.ReadFile(filepath.Join("compiled", "agents.json"))
	require.NoError(t, err)
	require.Equal(t, string(want), string(got), "agents/compiled is old: run `make compiled`")
	require.NotEmpty(t, agents.Registry().Agents())
	require.Equal(t, agents.Registry().Agents(), compiled.Agents().Agents())
	for _, name := range agents.Registry().Agents() {
		read, _ := agents.Registry().Agent(name)
		known, ok := compiled.Agents().Agent(name)
		require.True(t, ok, name)
		from, err := json.Marshal(read)
		require.NoError(t, err)
		to, err := json.Marshal(known)
		require.NoError(t, err)
		require.Equal(t, string(from), string(to), name)
	}
}
