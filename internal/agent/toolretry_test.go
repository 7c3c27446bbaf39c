package agent

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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
