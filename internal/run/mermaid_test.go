package run_test

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/run"
)

var update = flag.Bool("update", false, "write the pages of diagrams anew")

// TestDiagramsAreTheTables keeps docs/ and the tables together; -update writes the pages.
func TestDiagramsAreTheTables(t *testing.T) {
	pages := []struct{ file, title, about, diagram string }{
		{"run-states.md", "Run status", "What a run's status may do. A run that is done stays done; a run that waits has a call that waits, and every wait expires.", run.RunDiagram()},
		{"call-states.md", "Tool-call status", "What a tool call's status may do. Succeeded, failed and cancelled calls stay so and are never executed again.", run.CallDiagram()},
	}
	for _, p := range pages {
		want := "# " + p.title + "\n\n" + p.about + "\n\n```mermaid\n" + p.diagram + "```\n\n" +
			"Generated from the table in `internal/run/tables.go` by `go test ./internal/run -run TestDiagrams -update`.\n"
		file := filepath.Join("..", "..", "docs", p.file)
		if *update {
			require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
			require.NoError(t, os.WriteFile(file, []byte(want), 0o644))
		}
		got, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, want, string(got), file)
	}
}

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
