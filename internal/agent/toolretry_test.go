package agent_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
)

func TestToolRetryAgain(t *testing.T) {
	r := agent.ToolRetry{Attempts: 5, Backoff: time.Second, MaxBackoff: 3 * time.Second}
	for i, want := range []time.Duration{time.Second, 2 * time.Second, 3 * time.Second, 3 * time.Second} {
		wait, again := r.Again(run.EffectIdempotent, i+1)
		require.True(t, again)
		require.Equal(t, want, wait)
	}
	for _, e := range []run.Effect{run.EffectNonIdempotent, ""} {
		_, again := r.Again(e, 1)
		require.False(t, again, "%q", e)
	}
	_, again := r.Again(run.EffectRead, 5)
	require.False(t, again)
	_, again = agent.ToolRetry{}.Again(run.EffectRead, 1)
	require.False(t, again)
	wait, again := agent.ToolRetry{Attempts: agent.MaxAttempts, Backoff: math.MaxInt64 / 3}.Again(run.EffectRead, agent.MaxAttempts-1)
	require.True(t, again)
	require.Positive(t, wait, "it never overflows")
}
