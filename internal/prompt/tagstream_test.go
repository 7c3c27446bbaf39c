package prompt

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
)

// However a reply in tags is cut, its listeners hear its text, what it thought, and its call, and no tag.
func TestHearTags(t *testing.T) {
	const reply = "I look. <thinking>a < b, <tool>not this</tool></thinking>Now.\n<tool>{\"server_name\": \"local\", \"tool_name\": \"look\", \"arguments\": {}}</tool> rest <tool>{}</tool>"
	for size := 1; size <= len(reply); size++ {
		heard, tool := map[agent.DeltaKind]string{}, ""
		hear := TranslateTags(func(_ agent.Request, d agent.Delta) {
			heard[d.Kind] += d.Text
			if d.Kind == agent.DeltaCall && d.Name != "" {
				tool = d.Name
			}
		})
		r := agent.Request{Tenant: "t", Run: "r", Inference: 1, Model: agent.ModelSpec{Dialect: agent.DialectXML}}
		hear(r, agent.Delta{Kind: agent.DeltaText, Text: "<thinking>an attempt that bro"})
		clear(heard)
		r.Attempt = 1
		for at := 0; at < len(reply); at += size {
			hear(r, agent.Delta{Kind: agent.DeltaText, Text: reply[at:min(at+size, len(reply))]})
		}
		require.Equal(t, "I look. Now.\n rest ", heard[agent.DeltaText], size)
		require.Equal(t, "a < b, <tool>not this</tool>", heard[agent.DeltaReasoning], size)
		require.Equal(t, `{"server_name": "local", "tool_name": "look", "arguments": {}}`, strings.TrimSpace(heard[agent.DeltaCall]), size)
		require.Equal(t, "look", tool, size)
	}
}

// What is not in tags passes as it comes, and another run's reply is its own.
func TestHearTagsPasses(t *testing.T) {
	var heard []agent.Delta
	hear := TranslateTags(func(_ agent.Request, d agent.Delta) { heard = append(heard, d) })
	xml := agent.Request{Tenant: "t", Run: "r", Inference: 1, Model: agent.ModelSpec{Dialect: agent.DialectXML}}
	other := xml
	other.Run = "s"
	hear(xml, agent.Delta{Kind: agent.DeltaText, Text: "<thinking>x"})
	hear(agent.Request{Tenant: "t", Run: "r"}, agent.Delta{Kind: agent.DeltaText, Text: "<tool>"})
	hear(other, agent.Delta{Kind: agent.DeltaText, Text: "y"})
	hear(xml, agent.Delta{Kind: agent.DeltaReasoning, Text: "z"})
	require.Equal(t, []agent.Delta{{Kind: agent.DeltaReasoning, Text: "x"}, {Kind: agent.DeltaText, Text: "<tool>"}, {Kind: agent.DeltaText, Text: "y"}, {Kind: agent.DeltaReasoning, Text: "z"}}, heard)
	for i := range 2 * maxStreamed {
		other.Run = strings.Repeat("r", i%7) + string(rune('a'+i%26)) + strings.Repeat("x", i/26)
		hear(other, agent.Delta{Kind: agent.DeltaText, Text: "y"})
	}
}
