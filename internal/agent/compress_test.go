package agent

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCompressResults(t *testing.T) {
	d := preset(t, PresetCowork)
	d.Context.CompressAfter = 1
	for name, c := range map[string]struct {
		in   ToolResult
		want string
	}{
		"nothing":         {ToolResult{}, ""},
		"short":           {ToolResult{Content: "Meeting Notes"}, "[Meeting Notes]"},
		"50 tokens":       {ToolResult{Content: strings.Repeat("x", 140)}, "[" + strings.Repeat("x", 140) + "]"},
		"51 tokens":       {ToolResult{Content: strings.Repeat("x", 141)}, "[~51 tokens: " + strings.Repeat("x", 100) + "…]"},
		"between runes":   {ToolResult{Content: "x" + strings.Repeat("é", 400)}, "[~287 tokens: x" + strings.Repeat("é", 49) + "…]"},
		"no instructions": {ToolResult{Content: "{{.Start}}" + strings.Repeat("x", 200)}, "[~75 tokens: {{.Start}}" + strings.Repeat("x", 90) + "…]"},
		"in a blob":       {ToolResult{Blob: "b"}, "[a long result, which is kept elsewhere]"},
	} {
		in := []Message{spoke(RoleUser, c.in), spoke(RoleUser, Text{"new"})}
		out := compressResults(d, &AgentState{}, in)
		got := out[0].Block.(ToolResult)
		require.Equal(t, c.want, got.Content, name)
		require.Empty(t, got.Blob, "%s: nothing is fetched for it", name)
		require.Equal(t, c.in, in[0].Block, "%s: not in place", name)
		require.Equal(t, in[1], out[1], name)
	}
	failed := compressResults(d, &AgentState{}, []Message{spoke(RoleUser, ToolResult{ID: "c1", Content: "no", IsError: true}), spoke(RoleUser, Text{})})
	require.Equal(t, ToolResult{ID: "c1", Content: "[no]", IsError: true}, failed[0].Block)
	newest := []Message{spoke(RoleUser, ToolResult{Content: "x"})}
	require.Equal(t, newest, compressResults(d, &AgentState{}, newest), "the newest stand whole")
	d.Wording = map[string]string{wordCompressed: "({{.Tokens}})"}
	require.Equal(t, "(72)", compressed(ToolResult{Content: strings.Repeat("x", 200)}, d.saying(wordCompressed)).Content)
}
