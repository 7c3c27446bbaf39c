package scenario

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// corpus is every scenario of the repository.
func corpus(t *testing.T) []*Scenario {
	t.Helper()
	files, err := filepath.Glob("../../scenarios/*.txtar")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	var list []*Scenario
	for _, f := range files {
		data, err := os.ReadFile(f)
		require.NoError(t, err)
		s, err := Load(filepath.Base(f), data)
		require.NoError(t, err)
		require.NotEmpty(t, s.Description, "%s says what promise it keeps", f)
		list = append(list, s)
	}
	return list
}

// TestCorpusUnderCrash plays every scenario as it is and repeats it with crashes at calls of ports (CrashesInTests).
func TestCorpusUnderCrash(t *testing.T) {
	var points, runs, diverged atomic.Int64
	t.Cleanup(func() {
		t.Logf("%d points, %d runs with a crash, %d of them another story", points.Load(), runs.Load(), diverged.Load())
	})
	for _, s := range corpus(t) {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			r := s.Crash(CrashesInTests(2))
			require.Empty(t, r.Plain.Failures)
			for _, f := range r.Failures {
				t.Errorf("%s, %s: %v", f.Kind, f.At, f.Failures)
			}
			require.Positive(t, r.Points)
			points.Add(int64(r.Points))
			runs.Add(int64(r.Runs))
			diverged.Add(int64(r.Diverged))
		})
	}
}
