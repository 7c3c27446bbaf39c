package lambdafn_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/asl"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/web/api"
)

// An event's run whose tenant has as many running runs as it may have waits in its execution, for a day here, and begins
// when there is room.
func TestEventsWaitForRoom(t *testing.T) {
	inStack(t, pay, func(t *testing.T, s *stack) {
		s.machine.Starter.MaxRunning = 1
		const body = `{"agent":"payer","message":"pay 5","key":"k"}`
		s.mute.Store(true)
		require.Equal(t, 503, s.do(ana, "POST /v1/runs", body).StatusCode, "it is written, and its execution does not start")
		s.mute.Store(false)
		x, err := s.machine.Engine.Start(t.Context(), "an-event", []byte(`{"agent":"payer","tenant":"acme","key":"e","message":"pay 5"}`))
		require.NoError(t, err)
		time.Sleep(24 * time.Hour)
		id := agent.RunID("acme", "payer", "e")
		require.Equal(t, 404, s.do(ana, "GET /v1/runs/"+id, "").StatusCode)
		require.Equal(t, 202, s.do(ana, "POST /v1/runs", body).StatusCode)
		synctest.Wait()
		time.Sleep(5 * time.Minute)
		require.Equal(t, run.RunWaiting, read[api.Run](s, ana, 200, "GET /v1/runs/"+id, "").Status)
		x, err = s.machine.Engine.Describe(t.Context(), x.ExecutionARN)
		require.NoError(t, err)
		require.Equal(t, asl.Running, x.Status)
	})
}
