package policy

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
)

// The precondition of an approved call is read right before the call, also before one that may run again: the lost
// attempt may have changed what it depends on. A call that may be repeated is finished without another look.
func TestPreconditionIsReadBeforeEachRun(t *testing.T) {
	d := &agent.Definition{Tools: []agent.ToolSpec{
		{Name: "look", Effect: run.EffectRead}, {Name: "pay", Precondition: &agent.Precondition{Tool: "look"}},
	}}
	for _, test := range []struct {
		call  run.Call
		grant run.Grant
		reads bool
	}{
		{run.Call{Effect: run.EffectNonIdempotent}, run.Grant{}, true},
		{run.Call{Effect: run.EffectNonIdempotent}, run.Grant{Consumed: true}, true},
		{run.Call{Effect: run.EffectNonIdempotent}, run.Grant{Consumed: true, Again: true}, true},
		{run.Call{Effect: run.EffectNonIdempotent}, run.Grant{Consumed: true, Tool: true}, false},
		{run.Call{Effect: run.EffectNonIdempotent, Service: true}, run.Grant{Consumed: true}, false},
		{run.Call{Effect: run.EffectIdempotent}, run.Grant{}, true},
		{run.Call{Effect: run.EffectIdempotent}, run.Grant{Consumed: true}, false},
	} {
		c := test.call
		c.Tool, c.Input, c.Grant, c.Checked = "pay", json.RawMessage(`{}`), &test.grant, &run.Checked{}
		_, reads, err := RequiredReading(d, &run.AgentState{}, c, Gate{Run: true})
		require.NoError(t, err)
		require.Equal(t, test.reads, reads, "%+v", test)
	}
}
