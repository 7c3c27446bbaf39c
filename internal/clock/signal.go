package clock

import (
	"context"
	"slices"
	"time"
)

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
