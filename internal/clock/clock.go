// Package clock is the only place that reads time, draws what is random or starts concurrent work. Everything that
// waits, waits here, so that a run can be driven in virtual time by one deterministic scheduler (docs/scenarios.md) or
// under testing/synctest.
package clock

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// ErrTimeout is what Signal.Wait returns when its time is up before anyone notified.
var ErrTimeout = errors.New("timed out waiting")

// Clock is time and waiting. All methods are safe for concurrent use.
type Clock interface {
	// Now is the current time, UTC.
	Now() time.Time
	// Sleep returns nil after d, or the context's error as soon as ctx is done. d <= 0 returns at once with ctx.Err().
	Sleep(ctx context.Context, d time.Duration) error
	// WithTimeout is context.WithTimeout on this clock: the context ends with context.DeadlineExceeded after d of this
	// clock.
	WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc)
	// Go runs f concurrently. A virtual clock runs one such function at a time, in the order they became able to run.
	Go(f func())
	// NewSignal makes a signal on this clock.
	NewSignal() Signal
}

// Signal wakes one waiter. It is sticky: a Notify with nobody waiting lets the next Wait through; several Notifies
// count once.
type Signal interface {
	Notify()
	// Wait returns nil when notified, ErrTimeout after d (d <= 0: no limit), ctx.Err() when ctx is done first.
	Wait(ctx context.Context, d time.Duration) error
}

// System is the machine's clock. Its Go starts plain goroutines; inside a testing/synctest bubble its time is the
// bubble's.
func System() Clock { return system{} }

type system struct{}

func (system) Now() time.Time { return time.Now().UTC() }

func (system) Go(f func()) { go f() }

func (c system) Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 || ctx.Err() != nil {
		return ctx.Err()
	}
	if err := c.NewSignal().Wait(ctx, d); !errors.Is(err, ErrTimeout) {
		return err
	}
	return nil
}

func (system) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, d)
}

func (system) NewSignal() Signal { return systemSignal(make(chan struct{}, 1)) }

// systemSignal holds one token while notified.
type systemSignal chan struct{}

func (s systemSignal) Notify() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// maxTimer is how long Wait waits before it looks at the time of day again. Timers stand still while a laptop sleeps.
const maxTimer = time.Minute

func (s systemSignal) Wait(ctx context.Context, d time.Duration) error {
	select {
	case <-s: // a notification that is there wins over a context that is done
		return nil
	default:
	}
	until := System().Now().Add(d)
	var up <-chan time.Time
	for left := d; ; left = until.Sub(System().Now()) {
		if d > 0 {
			up = time.After(min(left, maxTimer))
		}
		select {
		case <-s:
			return nil
		case <-up:
			if left <= maxTimer {
				return ErrTimeout
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Retry calls try until it says that there is no other try, and waits in between. Try is told its number, from 1, and
// keeps its own result and error. Retry's error is that of ctx, if it ended during a wait.
func Retry(ctx context.Context, c Clock, try func(n int) (wait time.Duration, again bool)) error {
	for n := 1; ; n++ {
		wait, again := try(n)
		if !again {
			return nil
		}
		if err := cmp.Or(c.Sleep(ctx, wait), ctx.Err()); err != nil {
			return err
		}
	}
}

// Parallel calls do with each number below n, up to atOnce of them at once; without a clock, one after the other. It
// returns when all have returned.
func Parallel(c Clock, n, atOnce int, do func(i int)) {
	if atOnce = min(n, atOnce); c == nil || atOnce < 2 {
		for i := range n {
			do(i)
		}
		return
	}
	var left atomic.Int64
	left.Store(int64(atOnce))
	all := c.NewSignal()
	for first := range atOnce {
		c.Go(func() {
			defer func() {
				if left.Add(-1) == 0 {
					all.Notify()
				}
			}()
			for i := first; i < n; i += atOnce {
				do(i)
			}
		})
	}
	_ = all.Wait(context.Background(), 0) // it cannot end otherwise
}
