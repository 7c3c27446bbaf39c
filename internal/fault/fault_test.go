package fault_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/store"
)

var opening = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

var key = store.Key{PK: "P", SK: "S"}

func put() store.Op { return store.Op{Kind: store.Put, Item: store.Item{Key: key}} }

// play runs main under a virtual clock.
func play(t *testing.T, p *fault.Point, main func(in *fault.Injector, v *clock.Virtual)) {
	t.Helper()
	v := clock.NewVirtual(opening)
	var points []fault.Point
	if p != nil {
		points = append(points, *p)
	}
	in := fault.New(v, points...)
	require.NoError(t, v.Run(func() { main(in, v) }))
}

func stored(t *testing.T, table store.Table) bool {
	t.Helper()
	_, found, err := table.Get(context.Background(), key)
	require.NoError(t, err)
	return found
}

func TestCrash(t *testing.T) {
	for _, c := range []struct {
		point  *fault.Point
		lived  bool
		stored bool
	}{
		{nil, true, true},
		{&fault.Point{Call: 1, Kind: fault.CrashBefore}, false, false},
		{&fault.Point{Call: 1, Kind: fault.CrashAfter}, false, true},
		{&fault.Point{Call: 2, Kind: fault.CrashBefore}, true, true},
	} {
		play(t, c.point, func(in *fault.Injector, _ *clock.Virtual) {
			inner := store.NewMemory()
			table := in.Table(inner)
			seen := false
			lived := in.Run(context.Background(), "one", func(ctx context.Context) {
				require.NoError(t, table.Write(ctx, put()))
				seen = true
			})
			require.Equal(t, c.lived, lived)
			require.Equal(t, c.lived, seen, "what crashed sees no answer")
			require.Equal(t, c.stored, stored(t, inner))
			require.Equal(t, []fault.Call{{Number: 1, Port: "table.Write", Target: "S", Invocation: "one", InvocationNumber: 1, IsFirst: true}}, in.Calls())
			require.Zero(t, in.LiveInvocations())
		})
	}
}

// TestCrashTakesTheWholeInvocation: what it has started besides does not come to its next call.
func TestCrashTakesTheWholeInvocation(t *testing.T) {
	play(t, &fault.Point{Call: 1, Kind: fault.CrashAfter}, func(in *fault.Injector, v *clock.Virtual) {
		inner := store.NewMemory()
		table := in.Table(inner)
		var woke error
		dead := false
		lived := in.Run(context.Background(), "one", func(ctx context.Context) {
			v.Go(func() {
				woke = v.Sleep(ctx, time.Hour)
				dead = fault.HasCrashed(ctx)
				_ = table.Write(context.WithoutCancel(ctx), put()) // it does not return
				t.Error("it went on after its invocation had crashed")
			})
			require.NoError(t, v.Sleep(ctx, time.Minute))
			_, _, _ = table.Get(ctx, key)
			t.Error("it went on after it had crashed")
		})
		require.False(t, lived)
		require.NoError(t, v.Sleep(context.Background(), 2*time.Hour))
		require.ErrorIs(t, woke, context.Canceled)
		require.True(t, dead)
		require.False(t, stored(t, inner))
		require.Len(t, in.Calls(), 1, "calls of the dead are not counted")
	})
}

// TestCrashBesideTheHandler: the invocation is over at once, wherever in it the crash was.
func TestCrashBesideTheHandler(t *testing.T) {
	play(t, &fault.Point{Call: 1, Kind: fault.CrashBefore}, func(in *fault.Injector, v *clock.Virtual) {
		table := in.Table(store.NewMemory())
		lived := in.Run(context.Background(), "one", func(ctx context.Context) {
			v.Go(func() { _, _, _ = table.Get(ctx, key) })
			_ = v.Sleep(context.WithoutCancel(ctx), time.Hour)
		})
		require.False(t, lived)
		require.Equal(t, opening, v.Now())
	})
}
