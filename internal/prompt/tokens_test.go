package prompt

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
)

// By hand: bytes over 3.2 and 2.8, rounded up.
func TestTokensOfBytes(t *testing.T) {
	for _, c := range []struct{ bytes, prose, json int }{
		{0, 0, 0}, {1, 1, 1}, {2, 1, 1}, {3, 1, 2}, {4, 2, 2}, {14, 5, 5}, {15, 5, 6}, {16, 5, 6}, {17, 6, 7}, {28, 9, 10}, {29, 10, 11},
		{320, 100, 115}, {321, 101, 115}, {1600, 500, 572}, {6317, 1975, 2257}, {6319, 1975, 2257}, {6320, 1975, 2258}, {5_000_000, 1_562_500, 1_785_715},
	} {
		require.Equal(t, c.prose, ProseTokens(c.bytes), "%d bytes of prose", c.bytes)
		require.Equal(t, c.json, JSONTokens(c.bytes), "%d bytes of JSON", c.bytes)
	}
	for tokens := range 2000 {
		n := proseBytes(tokens)
		require.LessOrEqual(t, ProseTokens(n), tokens)
		require.Greater(t, ProseTokens(n+1), tokens)
	}
}

func TestTokensOfMessages(t *testing.T) {
	blob := strings.Repeat("ab", 32)
	for name, c := range map[string]struct {
		block run.Block
		want  int
	}{
		"empty text":        {run.Text{}, 4},
		"text":              {run.Text{Text: strings.Repeat("x", 32)}, 4 + 10},
		"bytes, not runes":  {run.Text{Text: strings.Repeat("é", 16)}, 4 + 10},
		"call":              {run.ToolUse{ID: "toolu_0123456789", Name: "fs_move", Input: json.RawMessage(`{"a":1}`)}, 4 + 10 + 3},
		"result":            {run.ToolResult{ID: "c1", Content: strings.Repeat("x", 61)}, 4 + 20 + 1},
		"result of long id": {run.ToolResult{ID: strings.Repeat("i", 64), Content: "x"}, 4 + 1 + 20},
		"result in a blob":  {run.ToolResult{ID: "c1", Blob: blob}, 4 + 10_000 + 1},
		"picture":           {run.Media{Name: "p", MediaType: "image/png", Data: strings.Repeat("A", 100_000)}, 4 + 1600},
		"text file":         {run.Media{Name: "p", MediaType: "text/csv", Data: strings.Repeat("A", 128)}, 4 + 30},
		"file in a blob":    {run.Media{Name: "p", MediaType: "text/csv", Blob: blob}, 4 + 1600},
		"reasoning":         {run.Reasoning{Text: strings.Repeat("x", 16), Signature: strings.Repeat("s", 8), Redacted: make([]byte, 8)}, 4 + 10},
	} {
		require.Equal(t, c.want, MessageTokens(run.Message{Role: run.RoleUser, Block: c.block}, map[string][]byte{blob: make([]byte, 32_000)}), name)
	}
}

// Definitions are measured as the JSON that offers them.
func TestTokensOfTools(t *testing.T) {
	require.Zero(t, toolTokens(nil))
	one := []agent.ToolSpec{{Name: "look", Description: "Look.", Schema: json.RawMessage(`{"type":"object"}`)}}
	require.Equal(t, JSONTokens(len(`[{"name":"look","description":"Look.","inputSchema":{"type":"object"}}]`)), toolTokens(one))
	require.Greater(t, toolTokens(append(one, one...)), toolTokens(one))
}
