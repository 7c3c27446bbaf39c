package clock

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"
)

// Run runs main as the first task and returns when main has returned. Tasks that are left are then ended, one after the
// other, first those able to run, then the parked ones in parking order: the block they are in returns ErrStopped, and
// a task that blocks again ends there as if by runtime.Goexit; those that had not begun never do. Run returns
// ErrDeadlock when nothing can move any more, ErrRunaway when it takes too long and a *PanicError when a task or the
// idle hook panics; then every task is ended like that, main too. A Goexit ends only its task, but that of main or of
// the hook ends Run's caller as well, so testing.T.FailNow works there. No goroutine is left behind in any case. The
// clock may be run again; it goes on at the time it shows.
func (v *Virtual) Run(main func()) error {
	r := &run{v: v}
	r.main = newTask(v, func() { main(); r.returned = true })
	v.ready = append([]*task{r.main}, v.ready...)
	for !r.over {
		r.drive()
	}
	if r.exited {
		runtime.Goexit()
	}
	return r.failed
}

// run is one call of Run.
type run struct {
	v        *Virtual
	main     *task
	ending   bool
	over     bool
	returned bool // main has returned
	exited   bool // main or the hook has ended by Goexit
	failed   error
}

// drive does the run away from the caller's goroutine, because a coroutine that ends by Goexit takes the goroutine that
// resumed it along; then drive is called again to go on where that one stopped.
func (r *run) drive() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if !r.ending {
			r.failed = r.v.schedule(r.main)
			r.ending, r.exited = true, r.failed == nil && !r.returned
		}
		for len(r.v.parked) > 0 || len(r.v.ready) > 0 {
			if err := r.v.endOne(); err != nil {
				r.failed = errors.Join(r.failed, err)
			}
		}
		r.over = true
	}()
	<-done
}

// schedule gives turns until main is over.
func (v *Virtual) schedule(main *task) error {
	v.steps = 0
	for !main.over {
		if v.asking { // the hook ended by Goexit
			v.asking = false
			return nil
		}
		t, err := v.pick()
		if err != nil {
			return err
		}
		if err := v.give(t); err != nil {
			return err
		}
	}
	return nil
}

// endOne ends one of the tasks that are left.
func (v *Virtual) endOne() error {
	if len(v.ready) == 0 {
		v.wake(v.parked[0], ErrStopped)
	}
	t := v.ready[0]
	v.ready = v.ready[1:]
	if t.resume == nil { // it has not begun
		return nil
	}
	t.why = ErrStopped
	return v.give(t)
}

// give gives t a turn. It does not return if t ends by Goexit.
func (v *Virtual) give(t *task) error {
	v.current = t
	defer func() { v.current = nil }()
	t.turn()
	if t.failed != nil {
		return t.failed
	}
	return nil
}

// pick is the next task to run; time moves here.
func (v *Virtual) pick() (*task, error) {
	for {
		if v.steps++; v.limit > 0 && v.steps > v.limit {
			return nil, fmt.Errorf("%w: %d, at %s", ErrRunaway, v.limit, v.Now().Format(time.RFC3339Nano))
		}
		if v.anyReady() {
			t := v.ready[0]
			v.ready[0], v.ready = nil, v.ready[1:]
			return t, nil
		}
		helped, err := v.askIdle()
		if err != nil {
			return nil, err
		}
		if helped {
			continue
		}
		if len(v.timers) == 0 {
			return nil, fmt.Errorf("%w, at %s", ErrDeadlock, v.Now().Format(time.RFC3339Nano))
		}
		v.AdvanceTo(v.timers[0].at)
	}
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
