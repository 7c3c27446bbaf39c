package agent

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestToolRetryAgain(t *testing.T) {
	r := ToolRetry{Attempts: 5, Backoff: time.Second, MaxBackoff: 3 * time.Second}
	for n, want := range []time.Duration{1: time.Second, 2: 2 * time.Second, 3: 3 * time.Second, 4: 3 * time.Second} {
		if n == 0 {
			continue
		}
		for _, e := range []Effect{EffectRead, EffectIdempotent} {
			wait, again := r.Again(e, n)
			require.True(t, again)
			require.Equal(t, want, wait)
		}
		for _, e := range []Effect{EffectNonIdempotent, ""} {
			_, again := r.Again(e, n)
			require.False(t, again, "%q", e)
		}
	}
	_, again := r.Again(EffectRead, 5)
	require.False(t, again)
	_, again = ToolRetry{}.Again(EffectRead, 1)
	require.False(t, again)
	wait, again := ToolRetry{Attempts: MaxAttempts, Backoff: math.MaxInt64 / 3}.Again(EffectRead, MaxAttempts-1)
	require.True(t, again)
	require.Positive(t, wait, "it never overflows")
}

// TestLaunchesFillsWhatRoomThereIs: whoever starts what may, in order, whenever something ends, is never over a bound and never idle while
// something could run.
func TestLaunchesFillsWhatRoomThereIs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := &Definition{Limits: Limits{Parallel: rapid.IntRange(0, 4).Draw(t, "parallel")}}
		for _, name := range []string{"a", "b", "c"} {
			d.Tools = append(d.Tools, ToolSpec{Name: name, Concurrency: rapid.IntRange(0, 3).Draw(t, name)})
		}
		waiting := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "gone"}), 0, 12).Draw(t, "calls")
		var busy []string
		for len(waiting) > 0 || len(busy) > 0 {
			var left []string
			for _, tool := range waiting {
				if Launches(d, busy, tool) {
					busy = append(busy, tool)
				} else {
					left = append(left, tool)
				}
			}
			require.True(t, d.Limits.Parallel == 0 || len(busy) <= d.Limits.Parallel)
			of := map[string]int{}
			for _, tool := range busy {
				of[tool]++
			}
			for _, s := range d.Tools {
				require.True(t, s.Concurrency == 0 || of[s.Name] <= s.Concurrency)
			}
			require.NotEmpty(t, busy, "nothing runs and %v wait", left)
			waiting = left
			end := rapid.IntRange(0, len(busy)-1).Draw(t, "ends")
			busy = append(busy[:end:end], busy[end+1:]...)
		}
	})
}
