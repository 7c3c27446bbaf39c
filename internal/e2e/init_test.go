package e2e

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/lambdart"
)

// coldStarts is how often each function is started: enough for a median.
const coldStarts = 20

// Every function starts from Lambda's environment alone, and asks nobody anything before its first event. How long that takes is
// printed and not asserted: docs/performance.md has the target.
func TestColdStart(t *testing.T) {
	mains, err := filepath.Glob(filepath.Join("..", "..", "functions", "*", "main.go"))
	require.NoError(t, err)
	require.NotEmpty(t, mains)
	for _, file := range mains {
		name := filepath.Base(filepath.Dir(file))
		f := lambdart.Start(lambdart.Config{
			Name: name, Bootstrap: bootstrap(t, name), Env: append(environment("runs", t.TempDir()), "AWS_ENDPOINT_URL=http://127.0.0.1:1"), Timeout: time.Minute, Clock: clock.System(),
		})
		var took []time.Duration
		for range coldStarts {
			d, err := f.ColdStart(t.Context())
			require.NoError(t, err, name)
			took = append(took, d)
		}
		require.NoError(t, f.Close())
		slices.Sort(took)
		t.Logf("%-8s from process start to the first request for an event: median %v, fastest %v, slowest %v",
			name, took[len(took)/2], took[0], took[len(took)-1])
	}
}
