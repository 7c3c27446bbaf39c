package clock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

type key struct{}

func TestTimeoutReachesDerivedContexts(t *testing.T) {
	withValue := func(ctx context.Context) context.Context { return context.WithValue(ctx, key{}, 1) }
	withCancel := func(ctx context.Context) context.Context {
		c, cancel := context.WithCancel(ctx)
		t.Cleanup(cancel)
		return c
	}
	for name, f := range map[string]func(ctx context.Context) context.Context{
		"itself":                   func(ctx context.Context) context.Context { return ctx },
		"with value":               withValue,
		"with cancel":              withCancel,
		"with cancel under values": func(ctx context.Context) context.Context { return withCancel(withValue(withValue(ctx))) },
	} {
		t.Run(name, func(t *testing.T) {
			tr := newTrace()
			tr.run(t, func() {
				ctx, cancel := tr.v.WithTimeout(bg, time.Second)
				defer cancel()
				child := f(ctx)
				at, ok := child.Deadline()
				require.True(t, ok)
				require.Equal(t, epoch.Add(time.Second), at)
				tr.add("%v", child.Err())
				tr.add("%v", tr.v.Sleep(child, time.Hour))
				tr.add("%v", tr.v.NewSignal().Wait(child, 0))
				require.ErrorIs(t, child.Err(), context.DeadlineExceeded)
				require.ErrorIs(t, context.Cause(child), context.DeadlineExceeded)
				<-child.Done()
			}, "0 <nil>", "1 context deadline exceeded", "1 context deadline exceeded")
		})
	}
}

func TestTimeoutEndsWithItsParent(t *testing.T) {
	because := errors.New("because")
	for name, wrap := range map[string]func(v *Virtual, ctx context.Context) (context.Context, context.CancelFunc){
		"once": func(_ *Virtual, ctx context.Context) (context.Context, context.CancelFunc) { return ctx, func() {} },
		"twice": func(v *Virtual, ctx context.Context) (context.Context, context.CancelFunc) {
			return v.WithTimeout(ctx, time.Hour)
		},
		"with between": func(_ *Virtual, ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithCancel(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			tr := newTrace()
			parent, cancel := context.WithCancelCause(bg)
			tr.run(t, func() {
				above, stop := wrap(tr.v, parent)
				defer stop()
				ctx, stop := tr.v.WithTimeout(above, time.Minute)
				defer stop()
				child, stop := context.WithCancel(ctx)
				defer stop()
				tr.sleeper(child, "child", time.Hour)
				_ = tr.v.Sleep(bg, time.Second)
				cancel(because)
				require.Equal(t, context.Canceled, ctx.Err())
				require.Equal(t, because, context.Cause(ctx))
				<-ctx.Done()
				_ = tr.v.Sleep(bg, time.Second)
			}, "1 child context canceled")
		})
	}
}

func TestNestedTimeoutsEndTogether(t *testing.T) {
	tr := newTrace()
	tr.run(t, func() {
		outer, stop := tr.v.WithTimeout(bg, time.Second)
		defer stop()
		inner, stop := tr.v.WithTimeout(outer, time.Hour)
		defer stop()
		at, _ := inner.Deadline()
		require.Equal(t, epoch.Add(time.Second), at)
		tr.add("%v", tr.v.Sleep(inner, time.Minute))
	}, "1 context deadline exceeded")
}

func TestCancelledTimeoutLeavesNoTimer(t *testing.T) {
	tr := newTrace()
	require.ErrorIs(t, tr.v.Run(func() {
		ctx, cancel := tr.v.WithTimeout(bg, time.Hour)
		cancel()
		require.Equal(t, context.Canceled, ctx.Err())
		_ = tr.v.NewSignal().Wait(bg, 0)
	}), ErrDeadlock)
	require.Equal(t, epoch, tr.v.Now())
}

func TestContextsAreSafeOffTheScheduler(t *testing.T) {
	v := NewVirtual(epoch)
	require.NoError(t, v.Run(func() {
		parent, stop := context.WithCancel(bg)
		ctx, cancel := v.WithTimeout(parent, time.Second)
		started, seen := make(chan struct{}), make(chan error)
		go func() {
			close(started)
			for ctx.Err() == nil {
				_ = v.Now()
			}
			cancel()
			seen <- ctx.Err()
		}()
		<-started
		_ = v.Sleep(bg, time.Millisecond)
		stop()
		require.Equal(t, context.Canceled, <-seen)
		_ = v.Sleep(bg, time.Minute)
	}))
}
