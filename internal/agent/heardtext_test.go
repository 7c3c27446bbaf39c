package agent

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// However a reply in tags is cut, its listeners hear its text, what it thought, and its call, and no tag.
func TestHearTags(t *testing.T) {
	const reply = "I look. <thinking>a < b, <tool>not this</tool></thinking>Now.\n<tool>{\"server_name\": \"local\", \"tool_name\": \"look\", \"arguments\": {}}</tool> rest <tool>{}</tool>"
	for size := 1; size <= len(reply); size++ {
		heard, tool := map[DeltaKind]string{}, ""
		hear := HearTags(func(_ Request, d Delta) {
			heard[d.Kind] += d.Text
			if d.Kind == DeltaCall && d.Name != "" {
				tool = d.Name
			}
		})
		r := Request{Tenant: "t", Run: "r", Inference: 1, Model: ModelSpec{Dialect: DialectXML}}
		hear(r, Delta{Kind: DeltaText, Text: "<thinking>an attempt that bro"})
		clear(heard)
		r.Attempt = 1
		for at := 0; at < len(reply); at += size {
			hear(r, Delta{Kind: DeltaText, Text: reply[at:min(at+size, len(reply))]})
		}
		require.Equal(t, "I look. Now.\n rest ", heard[DeltaText], size)
		require.Equal(t, "a < b, <tool>not this</tool>", heard[DeltaReasoning], size)
		require.Equal(t, `{"server_name": "local", "tool_name": "look", "arguments": {}}`, strings.TrimSpace(heard[DeltaCall]), size)
		require.Equal(t, "look", tool, size)
	}
}

// What is not in tags passes as it comes, and another run's reply is its own.
func TestHearTagsPasses(t *testing.T) {
	var heard []Delta
	hear := HearTags(func(_ Request, d Delta) { heard = append(heard, d) })
	xml := Request{Tenant: "t", Run: "r", Inference: 1, Model: ModelSpec{Dialect: DialectXML}}
	other := xml
	other.Run = "s"
	hear(xml, Delta{Kind: DeltaText, Text: "<thinking>x"})
	hear(Request{Tenant: "t", Run: "r"}, Delta{Kind: DeltaText, Text: "<tool>"})
	hear(other, Delta{Kind: DeltaText, Text: "y"})
	hear(xml, Delta{Kind: DeltaReasoning, Text: "z"})
	require.Equal(t, []Delta{{Kind: DeltaReasoning, Text: "x"}, {Kind: DeltaText, Text: "<tool>"}, {Kind: DeltaText, Text: "y"}, {Kind: DeltaReasoning, Text: "z"}}, heard)
	for i := range 2 * maxHeard {
		other.Run = strings.Repeat("r", i%7) + string(rune('a'+i%26)) + strings.Repeat("x", i/26)
		hear(other, Delta{Kind: DeltaText, Text: "y"})
	}
}
