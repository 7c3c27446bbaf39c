package clock

import (
	"cmp"
	"context"
	"time"
)

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
