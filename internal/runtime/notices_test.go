package runtime_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/runtime"
)

// asks is a port that keeps whose people it was to tell, and fails as it is told to.
type asks struct {
	runs, asked []string
	err         error
}

func (a *asks) NotifyRun(_ context.Context, _, run string) error {
	a.runs = append(a.runs, run)
	return a.err
}

func (a *asks) ProcessDue(context.Context, int) (map[string]int64, error) { return nil, a.err }

func (a *asks) EnsureNotified(_ context.Context, of approval.Approval) (map[string]int64, error) {
	a.asked = append(a.asked, of.ID)
	return map[string]int64{"notified": 1}, a.err
}

// Rule 6: behind the token and the look people are told. What goes wrong with that hurts no run, and where the wait is
// over nobody is.
func TestRule06ThenItNotifies(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		told, warned := &asks{err: errBlown}, []string{}
		w.ports.Notify = told
		w.ports.Warn = func(what string, err error) {
			require.ErrorIs(t, err, errBlown)
			warned = append(warned, what)
		}
		r := w.parkedRun()
		w.park(r.Woken, 0, "token")
		require.Equal(t, []string{w.run}, told.runs)
		require.Equal(t, []string{"tell people of run " + w.run}, warned)
		w.decide("c1")
		w.park(r.Woken, 1, "token of a retry")
		require.Len(t, told.runs, 1, "something has arrived")
	})
}

// C3: whoever should have told people died; the sweep does it a minute later, and counts it. What fails hurts no run.
func TestC3SweepTellsWhereNobodyDid(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		told := &asks{}
		w.parked("untold")
		sweep := w.sweeper()
		sweep.Notices = told
		run := func() runtime.Report {
			r, err := sweep.Run(w.ctx)
			require.NoError(t, err)
			require.Empty(t, r.Failed)
			return r
		}
		w.sleep(30 * time.Second)
		require.Empty(t, run().Notified, "whoever parks the run may be at it")
		require.Empty(t, told.asked)
		w.sleep(time.Minute)
		require.Equal(t, map[string]int64{"notified": 1}, run().Notified)
		require.Equal(t, []string{w.call("c1").Wait.Approval}, told.asked)
		told.err = errBlown
		require.True(t, run().Complete)
	})
}

// C3: channels that take for ever leave a sweep the time to repair.
func TestC3SlowChannelsLeaveTimeToRepair(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		never := w.neverStarted(tenant, "never")
		w.sleep(2 * time.Minute)
		sweep := w.sweeper()
		sweep.Notices = slow{w}
		ctx, cancel := context.WithTimeout(w.ctx, 3*time.Minute)
		defer cancel()
		r, err := sweep.Run(ctx)
		require.NoError(t, err)
		require.EqualValues(t, 1, r.Repaired[runtime.RepairStarted])
		require.Equal(t, runtime.ExecutionRunning, w.waiter.status[runtime.ExecutionName(never, 0)])
	})
}

type slow struct{ w *world }

func (s slow) ProcessDue(ctx context.Context, _ int) (map[string]int64, error) {
	return nil, s.w.ports.Clock.Sleep(ctx, time.Hour)
}

func (slow) EnsureNotified(context.Context, approval.Approval) (map[string]int64, error) {
	return nil, nil
}
