package repotest

// Sample events, functions/*/events/*.json, are what people copy: these tests compare them with the template, its rules
// and the state machine. internal/e2e gives each to the real bootstrap.

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
)

const key = "order-1002" // of the run that the samples are about

var runSample = agent.RunID("default", "refunds", key)

func readSample(t *testing.T, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, "functions", file))
	require.NoError(t, err)
	return b
}

// samples lists the files of functions, as step/events/first-step.json.
func samples(t *testing.T, functions ...string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(root, "functions/*/events/*"))
	require.NoError(t, err)
	var out []string
	for _, path := range found {
		file, err := filepath.Rel(filepath.Join(root, "functions"), path)
		require.NoError(t, err)
		if slices.Contains(functions, strings.Split(file, "/")[0]) {
			out = append(out, filepath.ToSlash(file))
		}
	}
	return out
}
