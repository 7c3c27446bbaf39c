package policy

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
)

// Whatever lets an approved call run, its precondition is read right before: also when a person, or the tool, has said
// that the call may run again. The lost attempt may have changed what it depends on.
func TestPreconditionIsReadBeforeEachRun(t *testing.T) {
	d := &agent.Definition{Tools: []agent.ToolSpec{
		{Name: "look", Effect: run.EffectRead},
		{Name: "pay", Effect: run.EffectNonIdempotent, Precondition: &agent.Precondition{Tool: "look"}},
	}}
	for _, test := range []struct {
		grant run.Grant
		reads bool
	}{
		{run.Grant{}, true},
		{run.Grant{Consumed: true}, true},
		{run.Grant{Consumed: true, Again: true}, true},
		{run.Grant{Consumed: true, Tool: true}, false},
	} {
		c := run.Call{ID: "c1", Tool: "pay", Input: json.RawMessage(`{}`), Grant: &test.grant, Checked: &run.Checked{}}
		_, reads, err := RequiredReading(d, &run.AgentState{}, c, Gate{Run: true})
		require.NoError(t, err)
		require.Equal(t, test.reads, reads, "%+v", test.grant)
	}
}
