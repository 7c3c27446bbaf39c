package policy_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

func TestServiceEvent(t *testing.T) {
	s := run.AgentState{Tenant: "acme", Run: "r1", Agent: "clerk", AccessControl: "team:a", ExecutionUnits: 7}
	spec := agent.ToolSpec{Name: "com.weather", Kind: agent.KindService, Domain: "eu"}
	for in, want := range map[string]string{
		`{}`:                                   `{"parentSubject$$":"r1"}`,
		`{"a":1.0,"b":"<&>"}`:                  `{"a":1.0,"b":"<&>","parentSubject$$":"r1"}`,
		`{"parentSubject$$":"mine","a":1e400}`: `{"a":1e400,"parentSubject$$":"r1"}`,
	} {
		e, err := policy.ServiceEvent(&s, spec, run.Call{ID: "c1", Input: json.RawMessage(in)})
		require.NoError(t, err)
		require.Equal(t, want, string(e.Data), "order and digits are kept")
		require.Equal(t, policy.Outgoing{
			ID: "r1/c1", Type: "com.weather", Tenant: "acme", Run: "r1", Agent: "clerk", Call: "c1", Subject: "r1", ParentSubject: "r1",
			AccessControl: "team:a", Domain: "eu", ExecutionUnits: 7, Data: e.Data,
		}, e)
	}
	s.Subject, spec.Event = `the "order"`, "weather.v2"
	e, err := policy.ServiceEvent(&s, spec, run.Call{ID: "c1", Input: json.RawMessage(`{}`)})
	require.NoError(t, err)
	require.Equal(t, []string{"weather.v2", s.Subject, `{"parentSubject$$":"the \"order\""}`}, []string{e.Type, e.Subject, string(e.Data)})
	for _, in := range []string{``, `"x"`, `[1]`} {
		_, err := policy.ServiceEvent(&s, spec, run.Call{ID: "c1", Input: json.RawMessage(in)})
		require.Error(t, err, in)
	}
}

// What a function gets is what the gate let through, byte for byte, under a key that every attempt shares.
func TestFunctionCall(t *testing.T) {
	args := json.RawMessage(`{"n":1.0,"of":"<a&b>"}`)
	got, err := policy.FunctionCall{Tool: "stock.take", Args: args, Key: "r1/c1", Tenant: "acme", Run: "r1", Call: "c1", State: json.RawMessage(`{}`)}.Payload()
	require.NoError(t, err)
	require.Equal(t, `{"tool":"stock.take","args":{"n":1.0,"of":"<a&b>"},"key":"r1/c1","tenant":"acme","run":"r1","call":"c1"}`, string(got)) //nolint:testifylint // to the byte

	s := &run.AgentState{Tenant: "acme", Run: "r1", Agent: "clerk", Shared: json.RawMessage(`{"cart":[1]}`)}
	spec := agent.ToolSpec{Name: "stock.take", Kind: agent.KindLambda, Lambda: &agent.LambdaTool{Function: "f", Async: true}}
	got, err = policy.FunctionRequest(s, spec, run.Call{ID: "c1", Tool: "stock.take", Input: args}, policy.Callback{AnswerTo: policy.AnswerTo{Run: "r1", Call: "c1"}}).Payload()
	require.NoError(t, err)
	require.Equal(t, `{"tool":"stock.take","args":{"n":1.0,"of":"<a&b>"},"key":"r1/c1","tenant":"acme","run":"r1","call":"c1","state":{"cart":[1]},`+
		`"callback":{"answerTo":{"run":"r1","call":"c1"}}}`, string(got)) //nolint:testifylint // to the byte
}
