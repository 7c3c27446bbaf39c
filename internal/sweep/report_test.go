package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestWriteKeepsTheRest: a report takes the place of the one before, and nothing else of the file changes.
func TestWriteKeepsTheRest(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report.md")
	require.NoError(t, os.WriteFile(file, []byte("before\n"+begins+"\nold\n"+ends+"\nafter\n"), 0o600))
	lane := Lane{Name: "pairs", About: "all of them", Scenarios: []string{"a", "b"}}
	text := section([]result{{lane, Count{Points: 3, Runs: 40, Pruned: 5}, 1, 2 * time.Second}}, Count{Points: 3, Runs: 40, Pruned: 5}, 1, 3*time.Second)
	require.Contains(t, text, "| *pairs*: all of them | 2 | 3 | 40 | 5 | 0 | 0 | 1 | 2 |\n| all |  | 3 | 40 | 5 | 0 | 0 | 1 | 3 |\n")
	for range 2 {
		require.NoError(t, write(file, text))
		got, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, "before\n"+begins+"\n\n"+text+"\n"+ends+"\nafter\n", string(got))
	}
}

// TestWriteWantsItsPlace: a file without one is left as it is.
func TestWriteWantsItsPlace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report.md")
	for _, text := range []string{"", begins + "\n", ends + "\n"} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		require.ErrorContains(t, write(file, "x"), "want the lines")
		got, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, text, string(got))
	}
	require.Error(t, write(filepath.Join(t.TempDir(), "none.md"), "x"))
}
