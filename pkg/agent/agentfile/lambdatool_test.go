package agentfile

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
)

// A function has no code here: what its entry says is all there is.
func TestLambdaTools(t *testing.T) {
	read := func(tools string) (agent.Definition, error) {
		return Parse("agent.yaml", []byte("name: a\nsystem: s\nmodel: {provider: bedrock, id: m}\ntools:\n"+tools), registered())
	}
	d, err := read(`  - {name: stock.take, kind: lambda, function: "arn:aws:lambda:eu-central-1:000000000000:function:stock:live", timeout: 10s, effect: idempotent, description: Take., schema: {type: object, required: [sku]}}
  - {name: orders.get, kind: lambda, function: orders, async: true, timeout: 2h}
`)
	require.NoError(t, err)
	require.Equal(t, []agent.ToolSpec{
		{
			Name: "stock.take", Kind: agent.KindLambda, Timeout: 10 * time.Second, Effect: run.EffectIdempotent, Description: "Take.",
			Schema: []byte(`{"type":"object","required":["sku"]}`), Lambda: &agent.LambdaTool{Function: "arn:aws:lambda:eu-central-1:000000000000:function:stock:live"},
		},
		{
			Name: "orders.get", Kind: agent.KindLambda, Timeout: 2 * time.Hour, Effect: run.EffectNonIdempotent, Schema: []byte(`{"type":"object"}`),
			Lambda: &agent.LambdaTool{Function: "orders", Async: true},
		},
	}, d.Tools)
	for tools, want := range map[string]string{
		"  - {name: x, kind: lambda}\n":                                         "agent.yaml:5: tools[0].function: got nothing, want the name or ARN of a function of AWS Lambda",
		"  - {name: x, kind: lambda, function: a/secret}\n":                     "agent.yaml:5: tools[0].function: got something else, want the name or ARN of a function of AWS Lambda",
		"  - {name: x, kind: lambda, function: 5}\n":                            "agent.yaml:5: tools[0].function: got a number, want a string in quotes",
		"  - {name: x, kind: lambda, function: f, async: later}\n":              "agent.yaml:5: tools[0].async: got a string, want true or false",
		"  - {name: orders.get, function: f}\n":                                 "agent.yaml:5: tools[0].function: got a function, want none: only a tool of kind lambda has one",
		"  - {name: x, kind: service, async: true}\n":                           "agent.yaml:5: tools[0].function: got a function, want none: only a tool of kind lambda has one",
		"  - {name: x, kind: lambda, function: f, async: true, timeout: 59s}\n": "agent.yaml:5: tools[0].timeout: got less than a minute, want a minute or more: so long it has to answer",
		"  - {name: x, kind: lambda, function: f, event: e}\n":                  "agent.yaml:5: tools[0].event: got an event, want none: only a service has one",
	} {
		_, err := read(tools)
		require.EqualError(t, err, want)
	}
}

// What an entry says of a function is its own: the one it is laid over keeps what it has.
func TestLambdaOverlay(t *testing.T) {
	have := agent.ToolSpec{Name: "x", Kind: agent.KindLambda, Effect: run.EffectRead, Schema: []byte(`{"type":"object"}`), Lambda: &agent.LambdaTool{Function: "f"}}
	list, err := ParseTools("tools.yaml", []byte("- {name: x, async: true}\n"), Options{Tools: func(string) (agent.ToolSpec, bool) { return have, true }})
	require.NoError(t, err)
	require.Equal(t, &agent.LambdaTool{Function: "f", Async: true}, list[0].Spec.Lambda)
	require.Equal(t, &agent.LambdaTool{Function: "f"}, have.Lambda)
}
