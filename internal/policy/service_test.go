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
