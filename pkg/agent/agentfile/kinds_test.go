package agentfile

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
)

// readTools reads tools behind the five lines of a file that may delegate.
func readTools(tools string) (agent.Definition, error) {
	return Parse("agent.yaml", []byte(`name: a
system: s
model: {provider: bedrock, id: m, price: {input: 1, output: 1}}
limits: {depth: 2, children: 3}
tools:
`+tools), registered())
}

// A service has no code: what it says is all there is. A contract that says neither kind nor schema is one; a tool with
// either is what it says.
func TestServices(t *testing.T) {
	d, err := readTools(`  - name: weather.now
    kind: service
    event: weather.v2
    domain: eu
    timeout: 2h
    priority: 3
    effect: read
    description: Ask.
    schema: {type: object, required: [city]}
  - {name: plain, kind: service}
  - name: human_review
  - {name: tool_approval, kind: service, priority: 7, description: Ours.}
preset: runner
`)
	require.NoError(t, err)
	require.Equal(t, agent.ToolSpec{
		Name: "weather.now", Kind: agent.KindService, Event: "weather.v2", Domain: "eu", Timeout: 2 * time.Hour, Priority: 3,
		Effect: run.EffectRead, Description: "Ask.", Schema: []byte(`{"type":"object","required":["city"]}`),
	}, d.Tools[0])
	require.Equal(t, run.EffectNonIdempotent, d.Tools[1].Effect)
	review, _ := agent.Contract("human_review")
	require.Equal(t, review, d.Tools[2])
	ours, _ := agent.Contract("tool_approval")
	ours.Priority, ours.Description = 7, "Ours."
	require.Equal(t, ours, d.Tools[3])
	require.Equal(t, agent.ValidatorsNotExhausted, d.Limits.Validators)

	d, err = readTools("  - {name: human_review, kind: service, schema: {type: object}}\n")
	require.NoError(t, err)
	require.Equal(t, agent.ToolSpec{
		Name: "human_review", Kind: agent.KindService, Effect: run.EffectNonIdempotent, Schema: []byte(`{"type":"object"}`),
	}, d.Tools[0])
}

// What a kind of tool does not take; testdata/keys.txt has what its keys do not.
func TestKindsAreRefused(t *testing.T) {
	const function = "the name or ARN of a function of AWS Lambda"
	const noFunction = "got a function, want none: only a tool of kind lambda has one"
	const early = "got less than a minute, want a minute or more: so long it has to answer"
	for tool, want := range map[string]string{
		"name: x, kind: lambda":                                         "function: got nothing, want " + function,
		"name: x, kind: lambda, function: a/secret":                     "function: got something else, want " + function,
		"name: orders.get, function: f":                                 "function: " + noFunction,
		"name: x, kind: service, async: true":                           "function: " + noFunction,
		"name: x, kind: lambda, function: f, async: true, timeout: 59s": "timeout: " + early,
		"name: x, kind: lambda, function: f, event: e":                  "event: got an event, want none: only a service has one",

		"name: x, kind: agent":                                      "agent: got nothing, want ",
		"name: x, kind: agent, agent: No":                           "agent: got something else, want ",
		"name: x, kind: service, agent: b":                          "agent: got a value, want none: only kind agent has it",
		"name: orders.get, history: true":                           "history: got a value, want none: only kind agent has it",
		"name: x, kind: agent, agent: b, timeout: 5s":               "timeout: got less than a minute",
		"name: x, kind: agent, agent: b, event: e":                  "event: got an event, want none",
		"name: x, kind: agent, agent: b, schema: {type: string}":    "schema: want a JSON Schema with type: object",
		"name: x, kind: agent, agent: b, budget: {usd: 1.23456789}": "budget.usd: ",
		"name: x, kind: agent, agent: b, results: [{text: no}]":     "results: got an unknown key",

		"name: orders.get, event: x": "event: got an event, want none: only a service has one",
	} {
		_, err := readTools("  - {" + tool + "}\n")
		require.ErrorContains(t, err, "agent.yaml:6: tools[0]."+want, tool)
	}
	_, err := readTools("  - {name: nobody.knows}\n")
	require.ErrorContains(t, err, "unknown tool nobody.knows")
}

// What an entry says of a function is its own: the one it is laid over keeps what it has.
func TestLambdaOverlay(t *testing.T) {
	have := agent.ToolSpec{
		Name: "x", Kind: agent.KindLambda, Effect: run.EffectRead, Schema: []byte(`{"type":"object"}`),
		Lambda: &agent.LambdaTool{Function: "f"},
	}
	known := Options{Tools: func(string) (agent.ToolSpec, bool) { return have, true }}
	list, err := ParseTools("tools.yaml", []byte("- {name: x, async: true}\n"), known)
	require.NoError(t, err)
	require.Equal(t, &agent.LambdaTool{Function: "f", Async: true}, list[0].Spec.Lambda)
	require.Equal(t, &agent.LambdaTool{Function: "f"}, have.Lambda)
}
