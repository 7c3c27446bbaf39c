package agentfile

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

// A tool of kind agent has no code: it names another agent, and takes a message unless it has a schema of its own.
func TestDelegates(t *testing.T) {
	read := func(tools string) (agent.Definition, error) {
		return Parse("agent.yaml", []byte("name: a\nsystem: s\nmodel: {provider: bedrock, id: m, price: {input: 1, output: 1}}\nlimits: {depth: 2, children: 3}\ntools:\n"+tools), registered())
	}
	d, err := read(`  - {name: research.web, kind: agent, agent: researcher, description: Ask.}
  - {name: judge, kind: agent, agent: judge, history: true, budget: {tokens: 5000, usd: 0.25}, effect: non_idempotent, domain: eu, timeout: 2h, schema: {type: object, required: [case]}}
`)
	require.NoError(t, err)
	require.Equal(t, []agent.ToolSpec{
		{
			Name: "research.web", Kind: agent.KindAgent, Effect: run.EffectIdempotent, Description: "Ask.", Schema: policy.DelegateSchema,
			Agent: &agent.Delegate{Agent: "researcher"},
		},
		{
			Name: "judge", Kind: agent.KindAgent, Effect: run.EffectNonIdempotent, Schema: []byte(`{"type":"object","required":["case"]}`), Domain: "eu", Timeout: 2 * time.Hour,
			Agent: &agent.Delegate{Agent: "judge", History: true, Tokens: 5000, USD: 250_000_000_000},
		},
	}, d.Tools)
	require.Equal(t, []int{2, 3}, []int{d.Limits.Depth, d.Limits.Children})

	for tools, want := range map[string]string{
		"  - {name: x, kind: agent}\n":                                      "agent.yaml:6: tools[0].agent: got nothing, want ",
		"  - {name: x, kind: agent, agent: No}\n":                           "agent.yaml:6: tools[0].agent: got something else, want ",
		"  - {name: x, kind: agent, agent: b, budget: {tokens: -1}}\n":      "agent.yaml:6: tools[0].budget.tokens: ",
		"  - {name: x, kind: agent, agent: b, budget: {euro: 1}}\n":         "agent.yaml:6: tools[0].budget.euro: got an unknown key, want one of tokens, usd",
		"  - {name: x, kind: service, agent: b}\n":                          "agent.yaml:6: tools[0].agent: got a value, want none: only kind agent has it",
		"  - {name: orders.get, history: true}\n":                           "agent.yaml:6: tools[0].history: got a value, want none: only kind agent has it",
		"  - {name: x, kind: agent, agent: b, timeout: 5s}\n":               "agent.yaml:6: tools[0].timeout: got less than a minute",
		"  - {name: x, kind: agent, agent: b, event: e}\n":                  "agent.yaml:6: tools[0].event: got an event, want none",
		"  - {name: x, kind: agent, agent: b, schema: {type: string}}\n":    "agent.yaml:6: tools[0].schema: want a JSON Schema with type: object",
		"  - {name: x, kind: agent, agent: b, budget: {usd: 1.23456789}}\n": "agent.yaml:6: tools[0].budget.usd: ",
		"  - {name: x, kind: agent, agent: b, budget: 5}\n":                 "agent.yaml:6: tools[0].budget: ",
		"  - {name: x, kind: agent, agent: b, results: [{text: no}]}\n":     "agent.yaml:6: tools[0].results: got an unknown key",
		"  - {name: x, kind: agent, agent: b, history: maybe}\n":            "agent.yaml:6: tools[0].history: ",
	} {
		_, err := read(tools)
		require.Error(t, err, tools)
		require.ErrorContains(t, err, want, tools)
	}
}
