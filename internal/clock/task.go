package clock

import (
	"context"
	"iter"
	"runtime/debug"
)

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
