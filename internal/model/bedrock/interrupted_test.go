package bedrock

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/bedrockfake"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

// What was received before a stream broke off comes with the error: text, calls and reasoning whose blocks have ended.
func TestInterruptedStreams(t *testing.T) {
	reply := blocks(bedrockfake.Reasoning("sign", "hm"), bedrockfake.Text("I ", "see."), bedrockfake.ToolUse("a", "get", `{"x"`, `:1}`), bedrockfake.ToolUse("b", "get"))
	frames := reply.Frames()
	said := func(text string, calls ...agent.ReplyCall) *agent.Reply {
		return &agent.Reply{
			Model: "m", Text: text, Calls: calls, StopReason: policy.StopInterrupted,
			Reasoning: []run.RepliedReasoning{{Reasoning: signed("m", "hm", "sign")}},
		}
	}
	whole, bare := call("a", "get", `{"x":1}`), call("b", "get", `{}`)
	seen := map[string]bool{}
	for n := 1; n < len(frames); n++ {
		m, _ := against(t, Config{Stream: true}, bedrockfake.Stream{Frames: frames[:n]},
			bedrockfake.Stream{Frames: append(frames[:n:n], bedrockfake.Exception("modelStreamErrorException", "canary"))})
		for _, class := range []agent.ModelErrorClass{agent.ModelConnection, agent.ModelServer} {
			_, err := m.Generate(context.Background(), request())
			requireClass(t, class, err)
			kept := failureOf(t, err).Partial
			switch {
			case kept == nil:
				seen["nothing"] = true
			case len(kept.Calls) == 2:
				require.Equal(t, said("I see.", whole, bare), kept)
				seen["both calls"] = true
			case len(kept.Calls) == 1:
				require.Equal(t, said("I see.", whole), kept)
				seen["a call"] = true
			case kept.Text == "I see.":
				require.Equal(t, said("I see."), kept)
				seen["the text"] = true
			default:
				require.Equal(t, said("I "), kept)
				seen["a text"] = true
			}
		}
	}
	require.Len(t, seen, 5, "%v", seen)
}

// Reasoning that was cut has no proof that is worth anything: it is not kept.
func TestInterruptedReasoning(t *testing.T) {
	frames := blocks(bedrockfake.Text("a"), bedrockfake.Reasoning("sign", "hm")).Frames()
	for n := 4; n < len(frames)-3; n++ { // within the reasoning
		m, _ := against(t, Config{Stream: true}, bedrockfake.Stream{Frames: frames[:n]})
		_, err := m.Generate(context.Background(), request())
		require.Equal(t, &agent.Reply{Model: "m", Text: "a", StopReason: policy.StopInterrupted}, failureOf(t, err).Partial, n)
	}
}

// A model that is not there is not there the next moment either.
func TestNotFoundLasts(t *testing.T) {
	m, _ := against(t, Config{}, bedrockfake.Failure{Status: 404, Code: "ResourceNotFoundException"}, bedrockfake.Failure{Status: 503, Code: "ServiceUnavailableException"})
	_, err := m.Generate(context.Background(), request())
	requireClass(t, agent.ModelUnavailable, err)
	require.True(t, failureOf(t, err).Lasting)
	_, err = m.Generate(context.Background(), request())
	requireClass(t, agent.ModelUnavailable, err)
	require.False(t, failureOf(t, err).Lasting)
}

// Whoever listens hears text, reasoning and calls as they come.
func TestDeltas(t *testing.T) {
	var heard []agent.Delta
	server := bedrockfake.Block{Start: []byte(`{"toolUse":{"toolUseId":"s","name":"search","type":"server_tool_use"}}`), Deltas: nil}
	m, _ := against(t, Config{Stream: true, OnDelta: func(_ agent.Request, d agent.Delta) { heard = append(heard, d) }},
		blocks(bedrockfake.Reasoning("sign", "h", "m"), bedrockfake.Text("Hel", "lo"), server, bedrockfake.ToolUse("a", "get", `{"x"`, `:1}`), bedrockfake.ToolUse("b", "put")))
	_, err := m.Generate(context.Background(), request())
	require.NoError(t, err)
	require.Equal(t, []agent.Delta{
		{Kind: agent.DeltaReasoning, Text: "h"}, {Kind: agent.DeltaReasoning, Text: "m"}, {Kind: agent.DeltaText, Text: "Hel"}, {Kind: agent.DeltaText, Text: "lo"},
		{Kind: agent.DeltaCall, Call: "a", Name: "get"}, {Kind: agent.DeltaCall, Call: "a", Name: "get", Text: `{"x"`}, {Kind: agent.DeltaCall, Call: "a", Name: "get", Text: ":1}"},
		{Kind: agent.DeltaCall, Call: "b", Name: "put", Place: 1},
	}, heard)
}
