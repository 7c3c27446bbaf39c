package clock

import (
	"container/heap"
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

// task is one function started by Go: a coroutine that yields whenever it blocks.
type task struct {
	v       *Virtual
	run     func()
	resume  func() (struct{}, bool) // runs the task until it blocks (true) or is over (false); nil before its first turn
	yield   func(struct{}) bool
	timer   timer           // wakes the task out of Sleep or a limited Wait
	ctx     context.Context // of the block; nil when it can never be done
	signal  *virtualSignal  // waited for
	why     error           // why the block ended: nil, ErrTimeout, ErrStopped
	stopped bool            // was told once that the run is over
	over    bool
	failed  *PanicError
}

func newTask(v *Virtual, f func()) *task {
	t := &task{v: v, run: f}
	t.timer.index = -1
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
	defer t.end()
	t.yield = yield
	t.run()
}

func (t *task) end() {
	t.over = true
	if p := recover(); p != nil {
		t.failed = &PanicError{Value: p, Stack: debug.Stack()}
	}
}

// turn lets the task run until it blocks or is over.
func (t *task) turn() {
	if t.resume == nil {
		t.resume, _ = iter.Pull(t.body)
	}
	t.resume()
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

func (s *virtualSignal) forget(t *task) {
	s.waiters = slices.DeleteFunc(s.waiters, func(w *task) bool { return w == t })
}

// timer is one instant of a Virtual at which something happens. Timers due at the same instant fire in order of
// creation.
type timer struct {
	at    time.Time
	order int
	fire  func() // called without the clock's lock
	index int    // place in the heap, -1 when not in it
}

// timers is a heap, the earliest first.
type timers []*timer

func (h timers) Len() int { return len(h) }

func (h timers) Less(i, j int) bool {
	if c := h[i].at.Compare(h[j].at); c != 0 {
		return c < 0
	}
	return h[i].order < h[j].order
}

func (h timers) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *timers) Push(x any) {
	t := x.(*timer)
	t.index = len(*h)
	*h = append(*h, t)
}

func (h *timers) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	t.index = -1
	return t
}

// set arms t to fire at an instant.
func (v *Virtual) set(t *timer, at time.Time) {
	v.timerOrder++
	t.at, t.order = at, v.timerOrder
	heap.Push(&v.timers, t)
}

// unset disarms t, if it is armed.
func (v *Virtual) unset(t *timer) {
	if t.index >= 0 {
		heap.Remove(&v.timers, t.index)
	}
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
	limit.timer.index = -1
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
