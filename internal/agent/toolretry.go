package agent

import (
	"fmt"
	"math"
	"time"
)

// Again says how long to wait before a call of effect e is entered again that an error of infrastructure has ended for the n-th time, from
// 1; false where it is not: n attempts are all it has, or the call may not be repeated.
func (r ToolRetry) Again(e Effect, n int) (time.Duration, bool) {
	if n >= r.Attempts || e != EffectRead && e != EffectIdempotent {
		return 0, false
	}
	wait := r.Backoff
	for range n - 1 {
		if wait > math.MaxInt64/2 || r.MaxBackoff > 0 && wait >= r.MaxBackoff {
			break
		}
		wait *= 2
	}
	if r.MaxBackoff > 0 {
		wait = min(wait, r.MaxBackoff)
	}
	return wait, true
}

// TextAttempts stands behind the last error of a call that was entered n times, from 2.
func TextAttempts(n int) string { return fmt.Sprintf("\n[It was tried %d times.]", n) }
