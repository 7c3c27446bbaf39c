package agent

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the pages of diagrams anew")

// TestDiagramsAreTheTables keeps docs/ and the tables together; -update writes the pages.
func TestDiagramsAreTheTables(t *testing.T) {
	pages := []struct{ file, title, about, diagram string }{
		{"run-states.md", "Run status", "What a run's status may do. A run that is done stays done; a run that waits has a call that waits, and every wait expires.", RunDiagram()},
		{"call-states.md", "Tool-call status", "What a tool call's status may do. Succeeded, failed and cancelled calls stay so and are never executed again.", CallDiagram()},
	}
	for _, p := range pages {
		want := "# " + p.title + "\n\n" + p.about + "\n\n```mermaid\n" + p.diagram + "```\n\n" +
			"Generated from the table in `internal/agent/tables.go` by `go test ./internal/agent -run TestDiagrams -update`.\n"
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
	runs, calls := map[RunStatus]bool{}, map[CallStatus]bool{}
	for _, a := range RunArrows() {
		require.False(t, a.From.Terminal(), a)
		require.True(t, a.To.Valid(), a)
		runs[a.To] = true
	}
	pairs := map[[2]CallStatus]bool{}
	for _, a := range CallArrows() {
		require.False(t, a.From.Terminal(), a)
		require.True(t, a.To.Valid(), a)
		require.False(t, pairs[[2]CallStatus{a.From, a.To}], a)
		pairs[[2]CallStatus{a.From, a.To}], calls[a.To] = true, true
	}
	require.Len(t, runs, 3)
	require.Len(t, calls, 7)
	RunArrows()[0].To, CallArrows()[0].To = RunDone, StatusFailed
	require.Equal(t, RunRunning, RunArrows()[0].To, "the table itself cannot be changed")
	require.Equal(t, StatusNew, CallArrows()[0].To)
}
