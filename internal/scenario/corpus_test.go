package scenario

import (
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/hook"
)

// corpus is every scenario of the repository.
func corpus(t *testing.T) []*Scenario {
	t.Helper()
	files, err := filepath.Glob("../../scenarios/*.txtar")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	var list []*Scenario
	for _, f := range files {
		s := loadFile(t, f, hook.Set{})
		require.NotEmpty(t, s.Description, "%s says what promise it keeps", f)
		list = append(list, s)
	}
	return list
}

// requireUnderCrash plays a scenario as it is and with crashes at calls of ports (CrashesInTests).
func requireUnderCrash(t *testing.T, s *Scenario) CrashResult {
	t.Helper()
	r := s.Crash(CrashesInTests(2))
	require.Empty(t, r.Plain.Failures)
	for _, f := range r.Failures {
		t.Errorf("%s, %s: %v", f.Kind, f.At, f.Failures)
	}
	require.Positive(t, r.Points)
	return r
}

// TestCorpusUnderCrash plays every scenario.
func TestCorpusUnderCrash(t *testing.T) {
	var points, runs, diverged atomic.Int64
	t.Cleanup(func() {
		t.Logf("%d points, %d runs with a crash, %d of them another story", points.Load(), runs.Load(), diverged.Load())
	})
	for _, s := range corpus(t) {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			r := requireUnderCrash(t, s)
			points.Add(int64(r.Points))
			runs.Add(int64(r.Runs))
			diverged.Add(int64(r.Diverged))
		})
	}
}
