package clock

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSystem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, start := System(), System().Now()
		require.Equal(t, time.UTC, start.Location())
		since := func() time.Duration { return c.Now().Sub(start) }
		done, cancel := context.WithCancel(bg)
		cancel()

		require.NoError(t, c.Sleep(bg, time.Hour))
		require.Equal(t, time.Hour, since())
		require.NoError(t, c.Sleep(bg, -1))
		require.Equal(t, context.Canceled, c.Sleep(done, time.Hour))

		ctx, stop := c.WithTimeout(bg, time.Minute)
		defer stop()
		require.Equal(t, context.DeadlineExceeded, c.Sleep(ctx, time.Hour))
		require.Equal(t, time.Hour+time.Minute, since())

		s := c.NewSignal()
		s.Notify()
		s.Notify()
		require.NoError(t, s.Wait(done, 0), "a notification wins over a context that is done")
		require.Equal(t, ErrTimeout, s.Wait(bg, time.Minute))
		require.Equal(t, context.DeadlineExceeded, s.Wait(ctx, 0))
		c.Go(func() {
			_ = c.Sleep(bg, time.Second)
			s.Notify()
		})
		require.NoError(t, s.Wait(bg, 0))
		require.Equal(t, time.Hour+2*time.Minute+time.Second, since())
	})
}
