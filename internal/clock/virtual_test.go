package clock

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	bg    = context.Background()
)

// trace records what happened when, in virtual seconds since epoch.
type trace struct {
	v     *Virtual
	lines []string
}

func newTrace() *trace { return &trace{v: NewVirtual(epoch)} }

func (tr *trace) add(format string, args ...any) {
	at := tr.v.Now().Sub(epoch).Seconds()
	tr.lines = append(tr.lines, fmt.Sprintf("%g ", at)+fmt.Sprintf(format, args...))
}

// sleeper is a task that says when it woke and how.
func (tr *trace) sleeper(ctx context.Context, name string, d time.Duration) {
	tr.v.Go(func() { tr.add("%s %v", name, tr.v.Sleep(ctx, d)) })
}

func (tr *trace) waiter(ctx context.Context, name string, s Signal) {
	tr.v.Go(func() { tr.add("%s %v", name, s.Wait(ctx, 0)) })
}

func (tr *trace) run(t *testing.T, main func(), want ...string) {
	t.Helper()
	require.NoError(t, tr.v.Run(main))
	require.Equal(t, want, tr.lines)
}

func TestTasksRunInTheOrderTheyBecameAble(t *testing.T) {
	tr := newTrace()
	tr.run(t, func() {
		s := tr.v.NewSignal()
		tr.waiter(bg, "w1", s)
		tr.waiter(bg, "w2", s)
		tr.sleeper(bg, "late", 3*time.Second)
		tr.sleeper(bg, "early", time.Second)
		tr.sleeper(bg, "tie", time.Second)
		tr.add("main %v", tr.v.Sleep(bg, 2*time.Second))
		s.Notify()
		tr.v.Go(func() { tr.add("new") })
		s.Notify()
		_ = tr.v.Sleep(bg, time.Hour)
	}, "1 early <nil>", "1 tie <nil>", "2 main <nil>", "2 w1 <nil>", "2 new", "2 w2 <nil>", "3 late <nil>")
}

func TestSignal(t *testing.T) {
	tr := newTrace()
	s := tr.v.NewSignal()
	s.Notify()
	s.Notify()
	done, cancel := context.WithCancel(bg)
	cancel()
	tr.run(t, func() {
		tr.add("sticky wins over a dead context: %v", s.Wait(done, 0))
		tr.add("two count once: %v", s.Wait(bg, time.Second))
		tr.add("dead context: %v", s.Wait(done, 0))
		tr.v.Go(s.Notify)
		tr.add("woken: %v", s.Wait(bg, time.Hour))
		tr.add("not sticky after waking: %v", s.Wait(bg, time.Second))
		tr.v.Go(func() {
			_ = tr.v.Sleep(bg, time.Second)
			s.Notify()
		})
		tr.add("timer made first wins the instant: %v", s.Wait(bg, time.Second))
		tr.add("and the notification stays: %v", s.Wait(bg, time.Second))
	},
		"0 sticky wins over a dead context: <nil>",
		"1 two count once: timed out waiting",
		"1 dead context: context canceled",
		"1 woken: <nil>",
		"2 not sticky after waking: timed out waiting",
		"3 timer made first wins the instant: timed out waiting",
		"3 and the notification stays: <nil>")
}

func TestSleepAtOnce(t *testing.T) {
	tr := newTrace()
	done, cancel := context.WithCancel(bg)
	cancel()
	tr.run(t, func() {
		tr.v.Go(func() { tr.add("never gets a turn") })
		tr.add("%v %v", tr.v.Sleep(bg, 0), tr.v.Sleep(bg, -1))
		tr.add("%v %v", tr.v.Sleep(done, 0), tr.v.Sleep(done, time.Hour))
	}, "0 <nil> <nil>", "0 context canceled context canceled")
}

func TestCancelWakesInParkingOrder(t *testing.T) {
	tr := newTrace()
	ctx, cancel := context.WithCancel(bg)
	tr.run(t, func() {
		s := tr.v.NewSignal()
		tr.sleeper(ctx, "a", time.Hour)
		tr.waiter(ctx, "b", s)
		tr.sleeper(bg, "other", time.Second)
		tr.sleeper(ctx, "c", time.Minute)
		_ = tr.v.Sleep(bg, time.Second)
		cancel()
		s.Notify() // reaches b before the scheduler sees the cancel
		_ = tr.v.Sleep(bg, time.Second)
	}, "1 other <nil>", "1 b <nil>", "1 a context canceled", "1 c context canceled")
}

func TestDeadlock(t *testing.T) {
	tr := newTrace()
	var errs []error
	err := tr.v.Run(func() {
		s := tr.v.NewSignal()
		tr.v.Go(func() { errs = append(errs, s.Wait(bg, 0)) })
		_ = tr.v.Sleep(bg, time.Second)
		errs = append(errs, tr.v.NewSignal().Wait(bg, 0))
	})
	require.ErrorIs(t, err, ErrDeadlock)
	require.Equal(t, []error{ErrStopped, ErrStopped}, errs)
	require.ErrorIs(t, ErrStopped, context.Canceled)
}

func TestTasksLeftAreEnded(t *testing.T) {
	tr := newTrace()
	tr.run(t, func() {
		tr.v.Go(func() {
			defer func() { tr.add("cleaned") }()
			for {
				tr.add("%v", tr.v.Sleep(bg, time.Minute)) // does not care for errors
				tr.v.Go(func() { tr.add("at 60 only") })
			}
		})
		tr.sleeper(bg, "second", time.Hour)
		_ = tr.v.Sleep(bg, 90*time.Second)
		tr.v.Go(func() { tr.add("not begun") })
	}, "60 <nil>", "60 at 60 only",
		"90 second virtual clock stopped: context canceled", "90 virtual clock stopped: context canceled", "90 cleaned")
	require.NoError(t, tr.v.Run(func() { require.Equal(t, epoch.Add(90*time.Second), tr.v.Now()) }))
}

func TestPanic(t *testing.T) {
	boom := func() { panic("boom") }
	for name, main := range map[string]func(v *Virtual){
		"main":          func(*Virtual) { boom() },
		"task":          func(v *Virtual) { v.Go(boom); _ = v.Sleep(bg, 1) },
		"idle hook":     func(v *Virtual) { v.SetIdle(func() bool { boom(); return true }); _ = v.Sleep(bg, 1) },
		"while stopped": func(v *Virtual) { v.Go(func() { _ = v.Sleep(bg, 2); boom() }); _ = v.Sleep(bg, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			v := NewVirtual(epoch)
			var p *PanicError
			require.ErrorAs(t, v.Run(func() { main(v) }), &p)
			require.Equal(t, "boom", p.Value)
			require.Contains(t, string(p.Stack), "TestPanic")
		})
	}
}

func TestGoexitOfMainOrHookEndsTheCaller(t *testing.T) {
	for name, main := range map[string]func(v *Virtual){
		"main": func(*Virtual) { runtime.Goexit() },
		"hook": func(v *Virtual) { v.SetIdle(func() bool { runtime.Goexit(); return true }); _ = v.Sleep(bg, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			returned, done := false, make(chan struct{})
			go func() {
				defer close(done)
				v := NewVirtual(epoch)
				_ = v.Run(func() { v.Go(func() { _ = v.Sleep(bg, 1) }); main(v) })
				returned = true
			}()
			<-done
			require.False(t, returned)
		})
	}
}

func TestBlockingOutsideATaskPanics(t *testing.T) {
	v := NewVirtual(epoch)
	require.Panics(t, func() { _ = v.Sleep(bg, 1) })
	require.Panics(t, func() { _ = v.NewSignal().Wait(bg, 0) })
}

func TestLimit(t *testing.T) {
	turns := 0
	rounds := func(v *Virtual, n int) func() {
		return func() {
			for range n {
				turns++
				_ = v.Sleep(bg, time.Second)
			}
		}
	}
	v := NewVirtual(epoch)
	v.SetLimit(20)
	require.NoError(t, v.Run(rounds(v, 9)))
	require.NoError(t, v.Run(rounds(v, 9)), "each Run has its own")
	turns = 0
	require.ErrorIs(t, v.Run(rounds(v, 1000)), ErrRunaway)
	require.LessOrEqual(t, turns, 20)
	v.SetIdle(func() bool { v.AdvanceTo(v.Now().Add(time.Second)); return true })
	require.ErrorIs(t, v.Run(func() { _ = v.NewSignal().Wait(bg, 0) }), ErrRunaway, "a hook that helps for ever")
	v.SetLimit(0)
	require.NoError(t, v.Run(rounds(v, 1000)))
}
