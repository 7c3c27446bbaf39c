package modelretry

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/clock"
)

// flaky fails as its list says, then answers. It notes when it was asked, and as which attempt.
type flaky struct {
	clock    clock.Clock
	failures []error
	asked    []time.Time
	attempts []int
	during   func() // while the request is out; may be nil
}

func (f *flaky) Generate(_ context.Context, r agent.Request) (agent.Reply, error) {
	f.asked, f.attempts = append(f.asked, f.clock.Now()), append(f.attempts, r.Attempt)
	if f.during != nil {
		f.during()
	}
	if n := len(f.asked); n <= len(f.failures) {
		return agent.Reply{}, f.failures[n-1]
	}
	return agent.Reply{Text: "done"}, nil
}

// waits are the times between requests.
func (f *flaky) waits() []time.Duration {
	var waits []time.Duration
	for i := 1; i < len(f.asked); i++ {
		waits = append(waits, f.asked[i].Sub(f.asked[i-1]))
	}
	return waits
}

// busy is a server that said when to come back.
type busy time.Duration

func (b busy) Error() string             { return "busy" }
func (b busy) RetryAfter() time.Duration { return time.Duration(b) }

func fail(class agent.ModelErrorClass) error { return &agent.ModelError{Class: class, Model: "m"} }

func throttled(after time.Duration) error {
	return &agent.ModelError{Class: agent.ModelThrottled, Model: "m", Cause: fmt.Errorf("status 429: %w", busy(after))}
}

func request(attempts int) agent.Request {
	retry := agent.Retry{Attempts: attempts, Backoff: 250 * time.Millisecond, MaxBackoff: 2 * time.Second, Jitter: 20}
	return agent.Request{Model: agent.ModelSpec{ID: "m", Retry: retry}}
}

func TestAsk(t *testing.T) {
	const ms = time.Millisecond
	server, auth := fail(agent.ModelServer), fail(agent.ModelAuth)
	tests := []struct {
		name     string
		attempts int
		failures []error
		err      error
		waits    []time.Duration
	}{
		{"no failure", 3, nil, nil, nil},
		{"one failure", 3, []error{server}, nil, []time.Duration{250 * ms}},
		{"attempts used up", 3, []error{server, server, auth}, auth, []time.Duration{250 * ms, 500 * ms}},
		{"every class that is retried", 6, []error{fail(agent.ModelThrottled), fail(agent.ModelTimeout), fail(agent.ModelConnection),
			fail(agent.ModelUnavailable), server}, nil, []time.Duration{250 * ms, 500 * ms, 1000 * ms, 2000 * ms, 2000 * ms}},
		{"one attempt", 1, []error{server}, server, nil},
		{"zero is one", 0, []error{server}, server, nil},
		{"auth", 3, []error{auth}, auth, nil},
		{"invalid", 3, []error{fail(agent.ModelInvalid)}, fail(agent.ModelInvalid), nil},
		{"context overflow", 3, []error{fail(agent.ModelContextOverflow)}, fail(agent.ModelContextOverflow), nil},
		{"no model error", 3, []error{errors.New("boom")}, errors.New("boom"), nil},
		{"retry after", 3, []error{throttled(7 * time.Second)}, nil, []time.Duration{7 * time.Second}},
		{"retry after is a minimum", 3, []error{throttled(ms)}, nil, []time.Duration{250 * ms}},
		{"retry after at the limit", 3, []error{throttled(MaxRetryAfter)}, nil, []time.Duration{time.Minute}},
		{"retry after too long", 3, []error{throttled(MaxRetryAfter + 1)}, throttled(MaxRetryAfter + 1), nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &flaky{clock: clock.System(), failures: tt.failures}
				reply, requests, err := New(f, f.clock, nil).Ask(context.Background(), request(tt.attempts))
				require.Equal(t, tt.err, err)
				require.Equal(t, err == nil, reply.Text == "done")
				require.Equal(t, len(f.asked), requests)
				require.Equal(t, tt.waits, f.waits())
			})
		})
	}
}

func TestAttemptsGoOnFromTheRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &flaky{clock: clock.System(), failures: []error{fail(agent.ModelServer), fail(agent.ModelServer)}}
		r := request(3)
		r.Attempt = 4
		reply, _, err := New(f, f.clock, nil).Ask(context.Background(), r)
		require.NoError(t, err)
		require.Equal(t, "done", reply.Text)
		require.Equal(t, []int{4, 5, 6}, f.attempts)
		require.Equal(t, 4, r.Attempt)
	})
}

func TestContext(t *testing.T) {
	tests := []struct {
		name     string
		timeout  time.Duration // of the context; 0 = it is cancelled at once
		during   time.Duration // how long a request is out
		attempts int
		failures []error
		requests int
		after    time.Duration // when Ask returns
		err      error
	}{
		{"done before", 0, 0, 3, nil, 0, 0, context.Canceled},
		{"deadline before the next", 700 * time.Millisecond, 0, 3, []error{fail(agent.ModelServer), fail(agent.ModelServer)}, 2,
			250 * time.Millisecond, context.DeadlineExceeded},
		{"done when the last fails", time.Second, 2 * time.Second, 1, []error{fail(agent.ModelTimeout)}, 1, 2 * time.Second, context.DeadlineExceeded},
		{"done when it answers", time.Second, 2 * time.Second, 1, nil, 1, 2 * time.Second, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := clock.System()
				f := &flaky{clock: c, failures: tt.failures, during: func() { require.NoError(t, c.Sleep(context.Background(), tt.during)) }}
				ctx, cancel := context.WithCancel(context.Background())
				if tt.timeout > 0 {
					ctx, cancel = c.WithTimeout(ctx, tt.timeout)
				} else {
					cancel()
				}
				defer cancel()
				start := c.Now()
				_, requests, err := New(f, c, nil).Ask(ctx, request(tt.attempts))
				require.ErrorIs(t, err, tt.err)
				require.Equal(t, tt.requests, requests)
				require.Equal(t, tt.after, c.Now().Sub(start))
				require.NotErrorAs(t, err, new(*agent.ModelError), "the failure is not the model's")
			})
		})
	}
}

func TestCancelWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &flaky{clock: clock.System(), failures: []error{fail(agent.ModelServer)}}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error)
		go func() {
			_, _, err := New(f, f.clock, nil).Ask(ctx, request(3))
			ended <- err
		}()
		synctest.Wait() // it sleeps
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
		require.Len(t, f.asked, 1)
	})
}

// A wait never shrinks from one request to the next, never passes the cap and never overflows.
func TestPropertyBackoff(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		retry := agent.Retry{
			Backoff:    time.Duration(rapid.Int64Range(0, math.MaxInt64).Draw(t, "backoff")),
			MaxBackoff: time.Duration(rapid.Int64Range(0, math.MaxInt64).Draw(t, "cap")),
		}
		former := time.Duration(0)
		for n := 1; n < 70; n++ {
			d := agent.Backoff(retry.Backoff, retry.MaxBackoff, n)
			require.GreaterOrEqual(t, d, former)
			require.GreaterOrEqual(t, d+d/5, d)
			if retry.MaxBackoff > 0 {
				require.LessOrEqual(t, d, retry.MaxBackoff)
			}
			former = d
		}
	})
}

func TestClip(t *testing.T) {
	require.Equal(t, "stop", Clip("stop"))
	require.Equal(t, strings.Repeat("x", 128), Clip(strings.Repeat("x", 500)))
	require.Equal(t, strings.Repeat("é", 63), Clip("x" + strings.Repeat("é", 100))[1:])
}
