package runtime_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/people/notify"
	"github.com/countersign/countersign/internal/people/person"
	"github.com/countersign/countersign/internal/runtime"
)

// pager keeps what it is given, or refuses it.
type pager struct {
	got   []string
	fails bool
}

func (p *pager) Name() string { return "pager" }

func (p *pager) Reaches(person.Person) bool { return true }

func (p *pager) Send(_ context.Context, m notify.Message) (string, error) {
	if p.fails {
		return "", errBlown
	}
	p.got = append(p.got, fmt.Sprintf("%s %s %s", m.To.ID, m.Occasion, m.Approval.Tools[0]))
	return "ref", nil
}

func (p *pager) Update(_ context.Context, ref string, m notify.Message) error {
	p.got = append(p.got, fmt.Sprintf("%s %s", ref, m.Approval.Status))
	return nil
}

func (w *world) notifier(p *pager) *notify.Notifier {
	operators := person.NewBook(tenant, person.Person{ID: ana.ID, Groups: ana.Groups})
	return &notify.Notifier{Table: w.table, Clock: w.ports.Clock, Directory: operators, Channels: []notify.Channel{p}}
}

// asks is a port that says what it says.
type asks struct {
	runs []string
	err  error
}

func (a *asks) NotifyRun(_ context.Context, _, run string) error {
	a.runs = append(a.runs, run)
	return a.err
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

// C3: whoever should have told people died; the sweep does it a minute later, once, and counts it.
func TestC3SweepTellsWhereNobodyDid(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := &pager{}
		w.parked("untold")
		sweep := w.sweeper()
		sweep.Notices = w.notifier(p)
		run := func() runtime.Report {
			r, err := sweep.Run(w.ctx)
			require.NoError(t, err)
			return r
		}
		w.sleep(30 * time.Second)
		require.Empty(t, run().Told, "whoever parks the run may be at it")
		w.sleep(time.Minute)
		require.Equal(t, map[string]int64{"notified": 1}, run().Told)
		require.Equal(t, []string{"user:ana asked refund"}, p.got)
		require.Empty(t, run().Told)

		p.fails = true
		w.parked("unreachable")
		w.sleep(2 * time.Minute)
		require.Empty(t, run().Told)
		p.fails = false
		w.sleep(time.Minute)
		require.Equal(t, map[string]int64{"notified": 1}, run().Told, "what is due is done by the next sweep")
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
