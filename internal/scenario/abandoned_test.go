package scenario_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/scenario"
)

// A run parks although a child that nobody waits for has not been taken off yet: its answer wakes the run. Step and batch
// handed such a run to each other for ever. A crash changes which of two expiries comes first, so the story is played
// without.
func TestARunParksBesideAChildThatNobodyWaitsFor(t *testing.T) {
	const name = "testdata/plain/abandoned-child-next-wait.txtar"
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	s, err := scenario.Load(name, text)
	require.NoError(t, err)
	r := s.Run(scenario.Options{})
	require.Empty(t, r.Failures)
}
