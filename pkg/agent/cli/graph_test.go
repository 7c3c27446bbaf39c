package cli

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
		{"run-states.md", "Run status", "What a run's status may do. A run that is done stays done; a run that waits has a call that waits, and every wait expires.", statesDiagram(run.RunArrows())},
		{"call-states.md", "Tool-call status", "What a tool call's status may do. Succeeded, failed and cancelled calls stay so and are never executed again.", statesDiagram(run.CallArrows())},
	}
	for _, p := range pages {
		want := "# " + p.title + "\n\n" + p.about + "\n\n```mermaid\n" + p.diagram + "```\n\n" +
			"Generated from the table in `internal/run/tables.go` by `go test ./pkg/agent/cli -run TestDiagrams -update`.\n"
		file := filepath.Join("..", "..", "..", "docs", p.file)
		if *update {
			require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
			require.NoError(t, os.WriteFile(file, []byte(want), 0o644))
		}
		got, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, want, string(got), file)
	}
}
