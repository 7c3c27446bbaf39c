package clock

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"time"
)

var (
	// ErrDeadlock is what Run returns, wrapped, when every task waits, the idle hook declines and no timer is left.
	ErrDeadlock = errors.New("deadlock: every task waits and no timer is left")
	// ErrStopped is what a task's Sleep or Wait returns when Run is over before the task is. It is a context.Canceled.
	ErrStopped = fmt.Errorf("virtual clock stopped: %w", context.Canceled)
	// ErrRunaway is what Run returns, wrapped, when it has taken more steps than SetLimit allows.
	ErrRunaway = errors.New("runaway: too many steps")
)

// PanicError is what Run returns when a task or the idle hook panicked.
type PanicError struct {
	Value any    // what was passed to panic
	Stack []byte // of the task that panicked, as runtime/debug prints it
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic in task: %v\n\n%s", e.Value, e.Stack) }

// Virtual is a deterministic clock and scheduler. Functions started by Go are tasks; exactly one runs at a time and
// goes on until it blocks in Sleep or Signal.Wait or returns. Tasks run in the order in which they became able to run,
// so the same program makes the same trace every time. Time moves only when no task can run, or by AdvanceTo.
//
// Now, and the contexts made by WithTimeout with their CancelFuncs, may be used from any goroutine. Sleep and Wait may
// be called by the running task only. Everything else may be called by the running task, by the idle hook, and by
// anyone while Run is not running; a goroutine that is no task must not, and a task must not wait for one that does.
type Virtual struct {
	start      time.Time
	elapsed    atomic.Int64 // nanoseconds since start
	ready      []*task
	parked     []*task
	timers     timers
	timerOrder int
	deadlines  []*timeoutContext // contexts that may still end, in order of creation
	current    *task             // nil while the scheduler or the idle hook runs
	idle       func() bool
	asking     bool // the idle hook was called and has not returned
	limit      int  // steps of a Run; 0 = no limit
	steps      int  // of the Run so far
}

var _ Clock = (*Virtual)(nil)

// NewVirtual makes a clock that stands at start.
func NewVirtual(start time.Time) *Virtual { return &Virtual{start: start.UTC()} }

// SetIdle sets the hook that is asked when no task can run, before time moves. True says that it made a task able to
// run (by Go, Notify, a cancel) or moved the clock (AdvanceTo); it is asked again once nothing can run. False, or true
// when nothing of the kind happened, lets time move to the next timer. The hook must not block. Nil is a hook that
// declines.
func (v *Virtual) SetIdle(hook func() bool) { v.idle = hook }

// SetLimit bounds each Run: after that many steps, turns of tasks and moves of time, it ends with ErrRunaway. 0 is no
// limit. A task that loops without blocking takes no steps.
func (v *Virtual) SetLimit(steps int) { v.limit = steps }

// Now is the virtual time, UTC.
func (v *Virtual) Now() time.Time { return v.start.Add(time.Duration(v.elapsed.Load())) }

// Timers is how many timers are set: sleeps, waits with a limit and contexts that will end.
func (v *Virtual) Timers() int { return len(v.timers) }

// Go makes f a task, behind those that can already run. Before Run, it waits for Run. A task started while Run is
// ending never runs.
func (v *Virtual) Go(f func()) { v.ready = append(v.ready, newTask(v, f)) }

// AdvanceTo moves the clock to an instant and fires the timers due until then, each at its own time. What they wake
// runs when the caller blocks, and sees the later time. An instant in the past changes nothing.
func (v *Virtual) AdvanceTo(at time.Time) {
	v.settleDeadlines()
	for len(v.timers) > 0 && !v.timers[0].at.After(at) {
		t := v.timers[0]
		v.moveTo(t.at)
		v.unset(t)
		t.fire()
	}
	v.moveTo(at)
}

func (v *Virtual) moveTo(at time.Time) {
	if d := at.Sub(v.start); d > time.Duration(v.elapsed.Load()) {
		v.elapsed.Store(int64(d))
	}
}

// Sleep suspends the running task: see Clock. It panics outside a task.
func (v *Virtual) Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 || ctx.Err() != nil {
		return ctx.Err()
	}
	return v.park(ctx, nil, d)
}

// park blocks the running task on a signal (or none) for at most d (d <= 0: no limit).
func (v *Virtual) park(ctx context.Context, s *virtualSignal, d time.Duration) error {
	t := v.current
	if t == nil {
		panic("clock: blocking outside a task of this Virtual")
	}
	if t.stopped {
		runtime.Goexit()
	}
	if ctx.Done() != nil {
		t.ctx = ctx
	}
	if s != nil {
		t.signal = s
		s.waiters = append(s.waiters, t)
	}
	if d > 0 {
		v.set(&t.timer, v.Now().Add(d))
	}
	v.parked = append(v.parked, t)
	// Give the baton back until the scheduler makes t ready, and return why it did.
	t.yield(struct{}{})
	if errors.Is(t.why, ErrStopped) {
		t.stopped = true
	}
	return t.why
}

// wake makes a parked task able to run; its block will return why.
func (v *Virtual) wake(t *task, why error) {
	v.parked = slices.DeleteFunc(v.parked, func(p *task) bool { return p == t })
	v.unset(&t.timer)
	if t.signal != nil {
		t.signal.forget(t)
	}
	t.ctx, t.signal, t.why = nil, nil, why
	v.ready = append(v.ready, t)
}
