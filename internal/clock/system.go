package clock

import (
	"context"
	"time"
)

// System is the machine's clock. Its Go starts plain goroutines; inside a testing/synctest bubble its time is the
// bubble's.
func System() Clock { return system{} }

type system struct{}

func (system) Now() time.Time { return time.Now().UTC() }

func (system) Go(f func()) { go f() }

func (system) Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 || ctx.Err() != nil {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
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

func (s systemSignal) Wait(ctx context.Context, d time.Duration) error {
	select {
	case <-s: // a notification that is there wins over a context that is done
		return nil
	default:
	}
	var up <-chan time.Time
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		up = t.C
	}
	select {
	case <-s:
		return nil
	case <-up:
		return ErrTimeout
	case <-ctx.Done():
		return ctx.Err()
	}
}
