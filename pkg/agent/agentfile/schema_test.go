package agentfile

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/tool"
)

// asJSON is a file as the schema sees it.
func asJSON(t *testing.T, text string) json.RawMessage {
	t.Helper()
	r := newReader("agent.yaml", Options{})
	root, ok := r.tree([]byte(text))
	require.True(t, ok, "%v", r.problems)
	return root.json()
}

// The schema takes every key at a value that works, and every sample; what Parse refuses of a key by itself, it refuses.
func TestTheSchemaTakesWhatIsRead(t *testing.T) {
	fits, err := tool.Fits(Schema())
	require.NoError(t, err)
	for path, value := range otherValues {
		require.NoError(t, fits(asJSON(t, nested(path, value))), path)
	}
	samples, err := filepath.Glob("../../../agents/*/agent.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, samples)
	for _, name := range append(samples, "testdata/everything.yaml") {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		require.NoError(t, fits(asJSON(t, string(text))), name)
	}
	for _, bad := range []string{
		"colour: red", "name: 3", "preset: none", "limits: {interactions: many}", "limits: {usd: -1}", "permission: {rules: [{verdict: maybe}]}", "model: [demo]",
		"model: {fallbacks: [{provider: psychic}]}", "permission: {approvers: []}", "model: {price: {input: 1}}", "limits: {interactions: 1.5}",
		"permission: {rules: [{expires: soon}]}", "tools: {name: a}", "mcp: [{name: a, tools: {b: {effect: odd}}}]", "plugins: [3]", "context: {reserve: {system: some}}",
	} {
		require.Error(t, fits(asJSON(t, bad)), bad)
	}
}
