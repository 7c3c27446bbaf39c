package run_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/prompt"
	"github.com/countersign/countersign/internal/run"
)

// A result is late where the model has spoken since it made the call, until an inference has carried it.
func TestLateResultsAreNamed(t *testing.T) {
	d := worldDefinition(func(d *agent.Definition) { d.Wait, d.Limits.Interactions = run.WaitAllSuspended, 9 })
	s := commit(t, run.AgentState{}, "w1", (&world{def: d}).start())
	late := func(events ...run.Event) []string {
		s = then(t, s, events...)
		r, _ := prompt.BuildRequest(&d, &s, policy.Next(&d, &s), "")
		return r.Late
	}
	require.Empty(t, late(called(1, "a", "r"), suspend("a"), ran("r", "1")))
	require.Equal(t, []string{"a"}, late(text(2, "So."), decision(1, "a", run.ActionDeny)))
	require.Empty(t, late(called(3, "r3"), ran("r3", "3")), "an inference has carried it")
}
