package agentfile

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
)

// A service has no code: what it says is all there is. A contract that says neither kind nor schema is one; a tool with either is what it says.
func TestServices(t *testing.T) {
	read := func(tools string) (agent.Definition, error) {
		return Parse("agent.yaml", []byte("name: a\nsystem: s\nmodel: {provider: bedrock, id: m}\npreset: runner\ntools:\n"+tools), registered())
	}
	d, err := read(`  - {name: weather.now, kind: service, event: weather.v2, domain: eu, timeout: 2h, priority: 3, effect: read, description: Ask., schema: {type: object, required: [city]}}
  - {name: plain, kind: service}
  - name: human_review
  - {name: tool_approval, kind: service, priority: 7, description: Ours.}
`)
	require.NoError(t, err)
	require.Equal(t, agent.ToolSpec{
		Name: "weather.now", Kind: agent.KindService, Event: "weather.v2", Domain: "eu", Timeout: 2 * time.Hour, Priority: 3, Effect: run.EffectRead,
		Description: "Ask.", Schema: []byte(`{"type":"object","required":["city"]}`),
	}, d.Tools[0])
	require.Equal(t, run.EffectNonIdempotent, d.Tools[1].Effect)
	review, _ := agent.Contract("human_review")
	require.Equal(t, review, d.Tools[2])
	ours, _ := agent.Contract("tool_approval")
	ours.Priority, ours.Description = 7, "Ours."
	require.Equal(t, ours, d.Tools[3])
	require.Equal(t, agent.ValidatorsNotExhausted, d.Limits.Validators)

	d, err = read("  - {name: human_review, kind: service, schema: {type: object}}\n")
	require.NoError(t, err)
	require.Equal(t, agent.ToolSpec{Name: "human_review", Kind: agent.KindService, Effect: run.EffectNonIdempotent, Schema: []byte(`{"type":"object"}`)}, d.Tools[0])

	_, err = read("  - {name: orders.get, event: x}\n")
	require.ErrorContains(t, err, "tools[0].event: got an event, want none: only a service has one")
	_, err = read("  - {name: nobody.knows}\n")
	require.ErrorContains(t, err, "unknown tool nobody.knows")
}
