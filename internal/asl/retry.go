package asl

import (
	"math"
	"slices"
	"time"
)

// Bounds and defaults of the States Language, in seconds and attempts.
const (
	maxSeconds      = 99999999
	maxDelayLimit   = 31622400
	defaultInterval = 1
	defaultAttempts = 3
	defaultBackoff  = 2.0
)

// retrier is one entry of Retry.
type retrier struct {
	errors   []string
	interval int // seconds
	attempts int
	backoff  float64
	maxDelay int // seconds; 0 = none
	jitter   bool
}

// catcher is one entry of Catch.
type catcher struct {
	errors []string
	result selector
	next   string
}

func (r retrier) matches(f *Failure) bool { return slices.ContainsFunc(r.errors, f.matches) }

func (c catcher) matches(f *Failure) bool { return slices.ContainsFunc(c.errors, f.matches) }

// delay is how long to wait before retry n, counted from 0.
func (r retrier) delay(n int) time.Duration {
	seconds := float64(r.interval) * math.Pow(r.backoff, float64(n))
	limit := float64(maxSeconds)
	if r.maxDelay > 0 {
		limit = float64(r.maxDelay)
	}
	return time.Duration(min(seconds, limit) * float64(time.Second))
}

// retries counts the attempts of one visit to a state, for each retrier.
type retries struct {
	retriers []retrier
	used     []int
}

func newRetries(rs []retrier) *retries { return &retries{retriers: rs, used: make([]int, len(rs))} }

// next is the delay before the retry that f deserves. The first retrier that matches decides; when it is used up nobody
// else is asked.
func (r *retries) next(f *Failure, jitter func(time.Duration) time.Duration) (time.Duration, bool) {
	i := slices.IndexFunc(r.retriers, func(r retrier) bool { return r.matches(f) })
	if i < 0 || r.used[i] >= r.retriers[i].attempts {
		return 0, false
	}
	d := r.retriers[i].delay(r.used[i])
	r.used[i]++
	if r.retriers[i].jitter {
		d = jitter(d)
	}
	return d, true
}

// count is $$.State.RetryCount.
func (r *retries) count() int {
	n := 0
	for _, u := range r.used {
		n += u
	}
	return n
}
