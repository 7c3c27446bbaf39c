package fault

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/countersign/countersign/internal/store"
)

// Hook stands before a call of a port: call makes it. The caller gets what Hook returns. Injector.Do is a hook.
type Hook func(ctx context.Context, c Call, call func() error) error

// Result makes a call that returns a value, with a hook before it.
func Result[T any](ctx context.Context, h Hook, c Call, call func() (T, error)) (v T, err error) {
	err = h(ctx, c, func() (err error) {
		v, err = call()
		return err
	})
	return v, err
}

// Before returns a hook that calls f before the call. If f fails, the call is not made and fails with that error.
func Before(f func() error) Hook {
	return func(_ context.Context, _ Call, call func() error) error {
		if err := f(); err != nil {
			return err
		}
		return call()
	}
}

// After returns a hook that calls f after a call that succeeded. If f fails, the call fails with that error.
func After(f func() error) Hook {
	return func(_ context.Context, _ Call, call func() error) error {
		if err := call(); err != nil {
			return err
		}
		return f()
	}
}

// Fail returns a hook whose calls are not made and fail.
func Fail(err error) Hook { return Before(func() error { return err }) }

// Lose returns a hook whose calls are made and fail: the answer is lost.
func Lose(err error) Hook { return After(func() error { return err }) }

// OnlyIf returns a hook for the calls that match. Other calls are made as they are.
func OnlyIf(matches func(Call) bool, h Hook) Hook {
	return func(ctx context.Context, c Call, call func() error) error {
		if !matches(c) {
			return call()
		}
		return h(ctx, c, call)
	}
}

// Nth returns a hook for the n-th call from now on, from 1.
func Nth(n int, h Hook) Hook {
	var calls atomic.Int64
	return OnlyIf(func(Call) bool { return calls.Add(1) == int64(n) }, h)
}

// Any matches every call.
func Any(Call) bool { return true }

// IsWrite matches writes of a table.
func IsWrite(c Call) bool { return c.Port == TableWrite }

// IsIndexQuery matches queries of a table's index.
func IsIndexQuery(c Call) bool { return c.Port == TableQuery && c.MayLag }

// WriteOf matches writes of a table with such operations.
func WriteOf(fits func(ops []store.Op) bool) func(Call) bool {
	return func(c Call) bool { return c.Port == TableWrite && fits(c.Ops) }
}

// WritesTo matches writes with an operation on a sort key that begins with prefix.
func WritesTo(prefix string) func(Call) bool {
	return WriteOf(func(ops []store.Op) bool {
		return slices.ContainsFunc(ops, func(op store.Op) bool { return strings.HasPrefix(op.Item.SK, prefix) })
	})
}
