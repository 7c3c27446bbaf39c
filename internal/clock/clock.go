// Package clock is the only place that reads time or starts concurrent work. Everything that waits, waits here, so that
// a run can be driven in virtual time by one deterministic scheduler (docs/scenarios.md) or under
// testing/synctest.
package clock

import (
	"context"
	"errors"
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
