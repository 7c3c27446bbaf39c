package fault

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/runtime"
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

// The ports, as Call.Port has them. Fakes of other ports name their own.
const (
	TableGet      = "table.Get"
	TableQuery    = "table.Query"
	TableWrite    = "table.Write"
	BlobsPut      = "blobs.Put"
	BlobsGet      = "blobs.Get"
	WaiterStart   = "waiter.Start"
	ModelGenerate = "model.Generate"
	ToolCall      = "tool.Call"
	Functions     = "functions.Invoke"
)

// NewBlobs puts a hook before blobs.
func NewBlobs(next store.Blobs, h Hook) store.Blobs { return &blobs{next, h} }

type blobs struct {
	next store.Blobs
	hook Hook
}

func (b *blobs) Put(ctx context.Context, tenant, digest string, data []byte) error {
	c := Call{Port: BlobsPut, Target: digest}
	return b.hook(ctx, c, func() error { return b.next.Put(ctx, tenant, digest, data) })
}

func (b *blobs) Get(ctx context.Context, tenant, digest string) ([]byte, error) {
	c := Call{Port: BlobsGet, Target: digest}
	return Result(ctx, b.hook, c, func() ([]byte, error) { return b.next.Get(ctx, tenant, digest) })
}

func (b *blobs) Size(ctx context.Context, tenant, digest string) (int64, error) {
	c := Call{Port: "blobs.Size", Target: digest}
	return Result(ctx, b.hook, c, func() (int64, error) { return b.next.Size(ctx, tenant, digest) })
}

func (b *blobs) Delete(ctx context.Context, tenant, digest string) error {
	c := Call{Port: "blobs.Delete", Target: digest}
	return b.hook(ctx, c, func() error { return b.next.Delete(ctx, tenant, digest) })
}

// NewWaiter puts a hook before a waiter.
func NewWaiter(next runtime.Waiter, h Hook) runtime.Waiter { return &waiter{next, h} }

type waiter struct {
	next runtime.Waiter
	hook Hook
}

func (w *waiter) Success(ctx context.Context, token string) error {
	return w.hook(ctx, Call{Port: "waiter.Success"}, func() error { return w.next.Success(ctx, token) })
}

func (w *waiter) Start(ctx context.Context, tenant, run, name string) error {
	return w.hook(ctx, Call{Port: WaiterStart, Target: name}, func() error { return w.next.Start(ctx, tenant, run, name) })
}

func (w *waiter) Stop(ctx context.Context, name, cause string) error {
	return w.hook(ctx, Call{Port: "waiter.Stop", Target: name}, func() error { return w.next.Stop(ctx, name, cause) })
}

func (w *waiter) Status(ctx context.Context, name string) (runtime.ExecutionStatus, error) {
	c := Call{Port: "waiter.Status", Target: name, MayLag: true}
	return Result(ctx, w.hook, c, func() (runtime.ExecutionStatus, error) {
		s, err := w.next.Status(ctx, name)
		if i := invocationOf(ctx); i == nil || i.lagWrites == 0 {
			return s, err
		}
		if s == runtime.ExecutionNone || s == runtime.ExecutionRunning { // the status that the execution had before
			return runtime.ExecutionNone, err
		}
		return runtime.ExecutionRunning, err
	})
}

// NewEmitter puts a hook before a bus.
func NewEmitter(next runtime.Emitter, h Hook) runtime.Emitter { return &emitter{next, h} }

type emitter struct {
	next runtime.Emitter
	hook Hook
}

func (e *emitter) Emit(ctx context.Context, o policy.Outgoing) error {
	return e.hook(ctx, Call{Port: "bus.Emit", Target: o.ID}, func() error { return e.next.Emit(ctx, o) })
}
