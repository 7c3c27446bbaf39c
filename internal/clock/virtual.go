package clock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
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
	start     time.Time
	elapsed   atomic.Int64 // nanoseconds since start
	ready     []*task
	parked    []*task
	timers    []*timer          // that are set: the earliest first, and those of one instant in order of creation
	deadlines []*timeoutContext // contexts that may still end, in order of creation
	current   *task             // nil while the scheduler or the idle hook runs
	idle      func() bool
	asking    bool // the idle hook was called and has not returned
	limit     int  // steps of a Run; 0 = no limit
	steps     int  // of the Run so far
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
	if s := t.signal; s != nil {
		s.waiters = slices.DeleteFunc(s.waiters, func(w *task) bool { return w == t })
	}
	t.ctx, t.signal, t.why = nil, nil, why
	v.ready = append(v.ready, t)
}

// task is one function started by Go: a coroutine that yields whenever it blocks.
type task struct {
	run     func()
	resume  func() (struct{}, bool) // runs the task until it blocks (true) or is over (false); nil before its first turn
	yield   func(struct{}) bool
	timer   timer           // wakes the task out of Sleep or a limited Wait
	ctx     context.Context // of the block; nil when it can never be done
	signal  *virtualSignal  // waited for
	why     error           // why the block ended: nil, ErrTimeout, ErrStopped
	stopped bool            // was told once that the run is over
	over    bool
	failed  error // *PanicError; nil = it did not panic
}

func newTask(v *Virtual, f func()) *task {
	t := &task{run: f}
	t.timer.fire = func() { // Wake a task whose time is up.
		if t.signal != nil {
			v.wake(t, ErrTimeout)
			return
		}
		v.wake(t, nil)
	}
	return t
}

// body is the coroutine. A Goexit passes through it to whoever resumed the task.
func (t *task) body(yield func(struct{}) bool) {
	defer func() {
		t.over = true
		if p := recover(); p != nil {
			t.failed = &PanicError{Value: p, Stack: debug.Stack()}
		}
	}()
	t.yield = yield
	t.run()
}

// virtualSignal wakes its waiters in the order in which they came.
type virtualSignal struct {
	v        *Virtual
	notified bool
	waiters  []*task
}

// NewSignal makes a signal for tasks of this clock.
func (v *Virtual) NewSignal() Signal { return &virtualSignal{v: v} }

func (s *virtualSignal) Notify() {
	if len(s.waiters) == 0 {
		s.notified = true
		return
	}
	s.v.wake(s.waiters[0], nil)
}

func (s *virtualSignal) Wait(ctx context.Context, d time.Duration) error {
	if s.notified { // wins over a context that is done
		s.notified = false
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.v.park(ctx, s, d)
}

// timer is one instant of a Virtual at which something happens.
type timer struct {
	at   time.Time
	fire func()
}

func (v *Virtual) set(t *timer, at time.Time) {
	t.at = at
	i, _ := slices.BinarySearchFunc(v.timers, at, func(have *timer, at time.Time) int {
		return cmp.Or(have.at.Compare(at), -1) // behind those of the same instant
	})
	v.timers = slices.Insert(v.timers, i, t)
}

// unset disarms t, if it is armed.
func (v *Virtual) unset(t *timer) {
	v.timers = slices.DeleteFunc(v.timers, func(have *timer) bool { return have == t })
}

// deadline ends a context at an instant of a Virtual, with context.DeadlineExceeded. It is the parent of a plain cancel
// context, which asks it (AfterFunc, see package context) to be told of the end: calling that function is the one way
// to end a context with an error other than Canceled, and everything derived from it by package context ends with it,
// at once.
type deadline struct {
	context.Context // the parent
	at              time.Time
	timer           timer
	tell            func()
	once            sync.Once
	err             error
}

// never is the Done of a deadline: a channel of its own keeps package context from registering with the parent instead.
var never = make(chan struct{})

func (d *deadline) Done() <-chan struct{} { return never }

// Err is read while telling only.
func (d *deadline) Err() error { return d.err }

func (d *deadline) Deadline() (time.Time, bool) {
	if at, ok := d.Context.Deadline(); ok && at.Before(d.at) {
		return at, true
	}
	return d.at, true
}

func (d *deadline) AfterFunc(f func()) func() bool {
	d.tell = f
	return func() bool { return true }
}

// end ends the context, once.
func (d *deadline) end(err error) {
	d.once.Do(func() {
		d.err = err
		d.tell()
	})
}

// timeoutContext is a plain cancel context below a deadline. It looks at the deadline's parent whenever it is asked,
// since nobody calls when that one ends.
type timeoutContext struct {
	context.Context
	deadline *deadline
}

func (c *timeoutContext) Done() <-chan struct{} {
	c.observe()
	return c.Context.Done()
}

func (c *timeoutContext) Err() error {
	c.observe()
	return c.Context.Err()
}

func (c *timeoutContext) observe() {
	if err := c.deadline.Context.Err(); err != nil {
		c.deadline.end(err)
	}
}

// WithTimeout makes a context that ends after d of this clock; d <= 0 ends it at once. Contexts derived from it by
// package context end with it, at the latest when the running task blocks.
func (v *Virtual) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	limit := &deadline{Context: ctx, at: v.Now().Add(d)}
	inner, cancel := context.WithCancel(limit)
	limit.timer.fire = func() { limit.end(context.DeadlineExceeded) }
	c := &timeoutContext{Context: inner, deadline: limit}
	if d <= 0 {
		limit.end(context.DeadlineExceeded)
		return c, cancel
	}
	v.set(&limit.timer, limit.at)
	v.deadlines = append(v.deadlines, c)
	return c, cancel
}

// settleDeadlines passes on the end of parents and drops the timers of contexts that are over.
func (v *Virtual) settleDeadlines() {
	v.deadlines = slices.DeleteFunc(v.deadlines, func(c *timeoutContext) bool {
		if c.Err() == nil {
			return false
		}
		v.unset(&c.deadline.timer)
		return true
	})
}

// Run runs main as the first task and returns when main has returned. Tasks that are left are then ended, one after the
// other, first those able to run, then the parked ones in parking order: the block they are in returns ErrStopped, and
// a task that blocks again ends there as if by runtime.Goexit; those that had not begun never do. Run returns
// ErrDeadlock when nothing can move any more, ErrRunaway when it takes too long and a *PanicError when a task or the
// idle hook panics; then every task is ended like that, main too. A Goexit ends only its task, but that of main or of
// the hook ends Run's caller as well, so testing.T.FailNow works there. No goroutine is left behind in any case. The
// clock may be run again; it goes on at the time it shows.
func (v *Virtual) Run(main func()) error {
	var returned, exited bool // main has returned; main or the hook has ended by Goexit
	var ending, over bool
	var failed error
	first := newTask(v, func() { main(); returned = true })
	v.ready = append([]*task{first}, v.ready...)
	for !over {
		// A coroutine that ends by Goexit takes the goroutine that resumed it along. So this is not the caller's
		// goroutine, and another goes on where it stopped.
		done := make(chan struct{})
		go func() {
			defer close(done)
			if !ending {
				failed = v.schedule(first)
				ending, exited = true, failed == nil && !returned
			}
			for len(v.parked) > 0 || len(v.ready) > 0 { // end the tasks that are left
				if len(v.ready) == 0 {
					v.wake(v.parked[0], ErrStopped)
				}
				t := v.ready[0]
				v.ready = v.ready[1:]
				if t.resume == nil { // it has not begun
					continue
				}
				t.why = ErrStopped
				if err := v.give(t); err != nil {
					failed = errors.Join(failed, err)
				}
			}
			over = true
		}()
		<-done
	}
	if exited {
		runtime.Goexit()
	}
	return failed
}

// schedule gives turns until main is over. Time moves here.
func (v *Virtual) schedule(main *task) error {
	v.steps = 0
	for !main.over {
		if v.asking { // the hook ended by Goexit
			v.asking = false
			return nil
		}
		if v.steps++; v.limit > 0 && v.steps > v.limit {
			return fmt.Errorf("%w: %d, at %s", ErrRunaway, v.limit, v.Now().Format(time.RFC3339Nano))
		}
		if v.anyReady() {
			t := v.ready[0]
			v.ready[0], v.ready = nil, v.ready[1:]
			if err := v.give(t); err != nil {
				return err
			}
			continue
		}
		switch helped, err := v.askIdle(); {
		case err != nil:
			return err
		case helped:
		case len(v.timers) == 0:
			return fmt.Errorf("%w, at %s", ErrDeadlock, v.Now().Format(time.RFC3339Nano))
		default:
			v.AdvanceTo(v.timers[0].at)
		}
	}
	return nil
}

// give lets t run until it blocks or is over. It does not return if t ends by Goexit.
func (v *Virtual) give(t *task) error {
	v.current = t
	defer func() { v.current = nil }()
	if t.resume == nil {
		t.resume, _ = iter.Pull(t.body)
	}
	t.resume()
	return t.failed
}

// anyReady tells whether a task can run, after making those able to whose context is done.
func (v *Virtual) anyReady() bool {
	v.settleDeadlines()
	for i := 0; i < len(v.parked); {
		t := v.parked[i]
		if t.ctx != nil && t.ctx.Err() != nil {
			v.wake(t, t.ctx.Err()) // which takes it out of the list
			continue
		}
		i++
	}
	return len(v.ready) > 0
}

// askIdle asks the hook and tells whether it was of use.
func (v *Virtual) askIdle() (helped bool, err error) {
	if v.idle == nil {
		return false, nil
	}
	defer func() {
		if p := recover(); p != nil {
			v.asking = false
			err = &PanicError{Value: p, Stack: debug.Stack()}
		}
	}()
	before := v.elapsed.Load()
	v.asking = true
	helped = v.idle()
	v.asking = false
	return helped && (v.anyReady() || v.elapsed.Load() != before), nil
}
