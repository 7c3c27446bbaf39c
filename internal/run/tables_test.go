package run_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/run"
)

// TestTables: terminal states have no way out, every state can be reached, and no arrow stands twice.
func TestTables(t *testing.T) {
	runs, calls := map[run.RunStatus]bool{}, map[run.CallStatus]bool{}
	for _, a := range run.RunArrows() {
		require.False(t, a.From.Terminal(), a)
		require.True(t, a.To.Valid(), a)
		runs[a.To] = true
	}
	pairs := map[[2]run.CallStatus]bool{}
	for _, a := range run.CallArrows() {
		require.False(t, a.From.Terminal(), a)
		require.True(t, a.To.Valid(), a)
		require.False(t, pairs[[2]run.CallStatus{a.From, a.To}], a)
		pairs[[2]run.CallStatus{a.From, a.To}], calls[a.To] = true, true
	}
	require.Len(t, runs, 3)
	require.Len(t, calls, 7)
	run.RunArrows()[0].To, run.CallArrows()[0].To = run.RunDone, run.StatusFailed
	require.Equal(t, run.RunRunning, run.RunArrows()[0].To, "the table itself cannot be changed")
	require.Equal(t, run.StatusNew, run.CallArrows()[0].To)
}
