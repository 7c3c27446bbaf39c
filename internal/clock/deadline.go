package clock

import (
	"context"
	"slices"
	"sync"
	"time"
)

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
