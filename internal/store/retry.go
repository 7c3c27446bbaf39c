package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/countersign/countersign/internal/clock"
)

// The budget of Resend: so many attempts in all, with pauses that double between these bounds. At worst it waits 2.6 s.
const (
	resendAttempts = 8
	resendFirst    = 25 * time.Millisecond
	resendLast     = time.Second
)

// Resend makes a Table that sends a request again, unchanged, when t answers ErrThrottled or ErrConflict: nothing was
// written then, and nothing else may be resent (protocol.md rule 2). It makes up to 8 attempts; before each but the
// first it sleeps on c at least half and at most all of a pause that grows from 25 ms to 1 s. jitter draws a duration
// from 0 to its argument, inclusive. After the last attempt its error is returned; when ctx ends during a pause, that
// error and the context's. Safe for concurrent use if jitter is.
func Resend(t Table, c clock.Clock, jitter func(limit time.Duration) time.Duration) Table {
	return &resender{table: t, clock: c, jitter: jitter}
}

type resender struct {
	table  Table
	clock  clock.Clock
	jitter func(time.Duration) time.Duration
}

func (r *resender) Get(ctx context.Context, k Key) (it Item, found bool, err error) {
	err = r.resend(ctx, func() error {
		it, found, err = r.table.Get(ctx, k)
		return err
	})
	return it, found, err
}

func (r *resender) Query(ctx context.Context, q Range) (p Page, err error) {
	err = r.resend(ctx, func() error {
		p, err = r.table.Query(ctx, q)
		return err
	})
	return p, err
}

func (r *resender) Write(ctx context.Context, ops ...Op) error {
	return r.resend(ctx, func() error { return r.table.Write(ctx, ops...) })
}

func (r *resender) resend(ctx context.Context, send func() error) (err error) {
	ended := clock.Retry(ctx, r.clock, func(n int) (time.Duration, bool) {
		err = send()
		if n == resendAttempts || !errors.Is(err, ErrThrottled) && !errors.Is(err, ErrConflict) {
			return 0, false
		}
		pause := min(resendFirst<<(n-1), resendLast)
		return pause/2 + r.jitter(pause/2), true
	})
	if ended != nil {
		return fmt.Errorf("%w, and before it was resent: %w", err, ended)
	}
	return err
}
