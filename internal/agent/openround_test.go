package agent

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A result is late where the model has spoken since it made the call, until an inference has carried it.
func TestLateResultsAreNamed(t *testing.T) {
	d := worldDefinition(func(d *Definition) { d.Wait, d.Limits.Interactions = WaitAllSuspended, 9 })
	s := commit(t, AgentState{}, "w1", (&world{def: d}).start())
	late := func(events ...Event) []string {
		for _, e := range events {
			s = commit(t, s, "w1", e)
		}
		r, _ := BuildRequest(&d, &s, Next(&d, &s), "")
		return r.Late
	}
	require.Empty(t, late(called(1, "a", "r"), suspend("a"), ran("r", "1")))
	require.Equal(t, []string{"a"}, late(text(2, "So."), decision(1, "a", ActionDeny)))
	require.Empty(t, late(called(3, "r3"), ran("r3", "3")), "an inference has carried it")
}
