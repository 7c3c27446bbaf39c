package policy_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

// The model is asked about what a builder gave, whatever of it counts as seen, also in a fork of a run that continued
// another one and got no reply.
func TestBuildersMessagesAreAskedAbout(t *testing.T) {
	def, err := agent.PresetDefaults(agent.PresetCountersign)
	require.NoError(t, err)
	for _, seen := range [][]int64{{1}, {1, 0}, {0, 1}} {
		s := run.AgentState{Status: run.RunRunning, Prior: 1, Built: true, Interactions: run.Interactions{Max: 9}}
		for i, n := range seen {
			s.Messages = s.Messages.Append(run.Message{
				Role: run.RoleUser, Block: run.Text{Text: "x"}, Base: n, Source: run.Source{Run: "r1", Seq: 1, Part: i}})
			if n == 0 {
				s.Unseen++
			}
		}
		require.Equal(t, policy.ActInfer, policy.Next(&def, &s).Kind, "%v", seen)
	}
}
