package store_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/store/storetest"
)

var resendStart = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func whole(limit time.Duration) time.Duration { return limit }

func none(time.Duration) time.Duration { return 0 }

// reluctant answers with errors, one for each call, and then lets calls through. It keeps when calls
// came.
type reluctant struct {
	*fault.Table
	at []time.Duration
}

// resending runs body with a Table that first answers with errs, each wrapped as adapters do.
func resending(t *testing.T, jitter func(time.Duration) time.Duration, errs []error, body func(store.Table, *reluctant, *clock.Virtual)) {
	t.Helper()
	c := clock.NewVirtual(resendStart)
	r := &reluctant{Table: fault.NewTable(store.NewMemory())}
	r.Use(func(_ context.Context, _ fault.Call, call func() error) error {
		r.at = append(r.at, c.Now().Sub(resendStart))
		if n := len(r.at); n <= len(errs) {
			return fmt.Errorf("write: %w", errs[n-1])
		}
		return call()
	})
	require.NoError(t, c.Run(func() { body(store.Resend(r, c, jitter), r, c) }))
}

func times(n int, err error) (errs []error) {
	for range n {
		errs = append(errs, err)
	}
	return errs
}

var resent = store.Op{Kind: store.Put, Item: store.Item{Key: store.Key{PK: "P", SK: "S"}, Body: []byte("b")}, If: []store.Cond{{Op: store.ItemAbsent}}}

// instant is a clock whose pauses take no time.
type instant struct{ clock.Clock }

func (instant) Sleep(context.Context, time.Duration) error { return nil }

// Whatever is asked of a Table that throttles every other call, or has conflicts, comes to the same as without.
func TestResendConformance(t *testing.T) {
	storetest.Table(t, func(*testing.T) store.Table {
		table := fault.NewTable(store.NewMemory())
		var calls atomic.Int64
		table.Use(func(_ context.Context, _ fault.Call, call func() error) error {
			if n := calls.Add(1); n%2 == 1 {
				return fmt.Errorf("write: %w", []error{store.ErrThrottled, store.ErrConflict}[n/2%2])
			}
			return call()
		})
		return store.Resend(table, instant{clock.System()}, none)
	})
}

// The pauses are exact at either end of the jitter, and they end.
func TestResendPausesAndGivesUp(t *testing.T) {
	ms := func(at ...float64) (out []time.Duration) {
		for _, a := range at {
			out = append(out, time.Duration(a*float64(time.Millisecond)))
		}
		return out
	}
	for _, c := range []struct {
		jitter func(time.Duration) time.Duration
		at     []time.Duration
	}{
		{whole, ms(0, 25, 75, 175, 375, 775, 1575, 2575)},
		{none, ms(0, 12.5, 37.5, 87.5, 187.5, 387.5, 787.5, 1287.5)},
	} {
		resending(t, c.jitter, times(9, store.ErrThrottled), func(tb store.Table, r *reluctant, _ *clock.Virtual) {
			require.ErrorIs(t, tb.Write(t.Context(), resent), store.ErrThrottled)
			require.Equal(t, c.at, r.at)
		})
	}
}

// What may have been written, or was refused, is the caller's to look at: it is sent once.
func TestResendNothingElse(t *testing.T) {
	for _, err := range []error{
		errors.New("connection reset"), context.DeadlineExceeded, store.ErrTooLarge, store.ErrInvalid, &store.ConditionError{Failed: []int{0}},
	} {
		resending(t, whole, []error{err}, func(tb store.Table, r *reluctant, _ *clock.Virtual) {
			require.ErrorIs(t, tb.Write(t.Context(), resent), err)
			require.Equal(t, []time.Duration{0}, r.at)
		})
	}
}

func TestResendEndsWithItsContext(t *testing.T) {
	resending(t, whole, times(9, store.ErrConflict), func(tb store.Table, r *reluctant, c *clock.Virtual) {
		ctx, cancel := c.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		err := tb.Write(ctx, resent)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, store.ErrConflict, "and nothing was written")
		require.Equal(t, 100*time.Millisecond, c.Now().Sub(resendStart))
		require.Len(t, r.at, 3)
	})
}
