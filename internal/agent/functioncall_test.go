package agent

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAnsweredLater(t *testing.T) {
	for kind, want := range map[ToolKind]bool{KindInternal: false, KindMCP: false, KindService: true, KindLambda: false, KindHTTP: false, KindAgent: true} {
		require.Equal(t, want, ToolSpec{Name: "t", Kind: kind}.AnsweredLater(), kind)
	}
	require.False(t, ToolSpec{Kind: KindLambda, Lambda: &LambdaTool{Function: "f"}}.AnsweredLater())
	require.True(t, ToolSpec{Kind: KindLambda, Lambda: &LambdaTool{Function: "f", Async: true}}.AnsweredLater())
}

// What a function gets is what the gate let through, byte for byte, under a key that every attempt shares.
func TestFunctionCall(t *testing.T) {
	args := json.RawMessage(`{"n":1.0,"of":"<a&b>"}`)
	got, err := FunctionCall{Tool: "stock.take", Args: args, Key: "r1/c1", Tenant: "acme", Run: "r1", Call: "c1", State: json.RawMessage(`{}`)}.Payload()
	require.NoError(t, err)
	require.Equal(t, `{"tool":"stock.take","args":{"n":1.0,"of":"<a&b>"},"key":"r1/c1","tenant":"acme","run":"r1","call":"c1"}`, string(got)) //nolint:testifylint // to the byte

	s := &AgentState{Tenant: "acme", Run: "r1", Agent: "clerk", Shared: json.RawMessage(`{"cart":[1]}`)}
	spec := ToolSpec{Name: "stock.take", Kind: KindLambda, Lambda: &LambdaTool{Function: "f", Async: true}}
	got, err = FunctionRequest(s, spec, Call{ID: "c1", Tool: "stock.take", Input: args}, Callback{AnswerTo: AnswerTo{Run: "r1", Call: "c1"}}).Payload()
	require.NoError(t, err)
	require.Equal(t, `{"tool":"stock.take","args":{"n":1.0,"of":"<a&b>"},"key":"r1/c1","tenant":"acme","run":"r1","call":"c1","state":{"cart":[1]},`+
		`"callback":{"answerTo":{"run":"r1","call":"c1"}}}`, string(got)) //nolint:testifylint // to the byte
}
