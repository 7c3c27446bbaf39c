package lambdafn_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/hook"
	"github.com/countersign/countersign/internal/lambdafn"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
)

// closing is a plugin that says which runs it has seen at their end, behind that end.
type closing struct {
	ended []run.Reason
	err   error
}

func (c *closing) code() map[string]hook.Factory {
	return map[string]hook.Factory{"closing": func(json.RawMessage) (hook.Plugin, error) {
		return hook.Plugin{RunEnd: func(_ context.Context, m *hook.Moment) error {
			if m.Run().Status == run.RunDone {
				c.ended = append(c.ended, m.Run().Reason)
			}
			return c.err
		}}, nil
	}}
}

// What functions/http cancels is cleaned up after by an execution of the state machine, which succeeds. Code that fails for
// good fails its executions, and in the end every sweep, which is an alarm and no reason to sweep again.
func TestCleaningUpThatFailsIsAnAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &closing{}
		s := deploy(t, pay, c.code())
		cancel := func(id string) {
			require.Equal(t, 202, s.do(ana, "POST /v1/runs/"+id+"/cancel", `{}`).StatusCode)
			synctest.Wait()
		}
		requireCleaner := func(id string, n int64, status string) {
			d, err := s.machine.Engine.Describe(t.Context(), executionARN+runtime.CleanupName(id, n))
			require.NoError(t, err)
			require.EqualValues(t, status, d.Status)
		}
		well := s.waiting(ana, "well").ID
		cancel(well)
		require.Equal(t, []run.Reason{run.ReasonCancelled}, c.ended)
		requireCleaner(well, 0, "SUCCEEDED")
		time.Sleep(time.Hour)
		require.Empty(t, s.swept(ruleEvent).Repaired)
		require.Empty(t, s.swept(statusEvent(runtime.ExecutionName(well, 0), "ABORTED", inputOf("acme", well))).Repaired)
		synctest.Wait()
		require.Len(t, c.ended, 1)

		failing := s.waiting(ana, "failing").ID
		c.err = errors.New("sk-canary")
		s.metrics.take()
		cancel(failing)
		started := int64(1)
		for failed := int64(0); failed == 0; {
			time.Sleep(5 * time.Minute)
			r := s.swept(ruleEvent)
			failed = r.Failures
			started += r.Repaired[runtime.RepairCleaning]
			require.Less(t, started, int64(100))
			if failed > 0 {
				require.Equal(t, failing, r.Failed[0].Run)
				require.Equal(t, lambdafn.KindInternal, r.Failed[0].Kind)
				require.EqualValues(t, 1, s.metrics.take()["SweepFailures"])
			}
		}
		require.EqualValues(t, 8, started)
		require.NoError(t, s.machine.Resume(t.Context(), "acme"), "it keeps nobody from working")
		require.NotContains(t, s.logs.String(), "sk-canary")
		requireCleaner(failing, 7, "FAILED")
		l, err := s.machine.Ports.Journal.Load(t.Context(), "acme", failing)
		require.NoError(t, err)
		require.Equal(t, run.ReasonCancelled, l.State.Reason, "it is as it ended")
	})
}
