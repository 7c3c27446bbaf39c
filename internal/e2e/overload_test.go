package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/standins"
	"github.com/countersign/countersign/internal/web"
)

// envOverload is how long TestOverload loads the deployment, as 2m; make overload sets it.
const envOverload = "COUNTERSIGN_OVERLOAD"

// Runs are started at twice the rate that the concurrency of functions/step carries, while processes are frozen,
// between events and in the midst of them, and the table refuses requests. Every run comes to its natural end, none
// pays twice, and people decide all the while. All refund the same order, which each approval depends on: most are
// asked again.
func TestOverload(t *testing.T) {
	const steps, thinks = 2, 600 * time.Millisecond
	lasts, quick := 5*time.Second, true
	if v := os.Getenv(envOverload); v != "" {
		var err error
		lasts, err = time.ParseDuration(v)
		require.NoError(t, err, envOverload)
		quick = false
	}
	model := newModel(t, func(r standins.BedrockRequest) standins.Turn {
		time.Sleep(thinks)
		return refundReply(r)
	})
	d := deploy(t, model, func(d *deployment) {
		d.concurrency = map[string]int{"step": steps, "tool": 2, "approve": 2, "http": 4, "sweep": 1}
		d.freezes = true
		if !quick {
			d.hurry = 1
		}
	})
	var refused atomic.Int64 // invocations
	d.mu.Lock()
	d.deliver = func(function string, payload []byte) ([]byte, error) {
		out, err := d.functions[function].Invoke(t.Context(), payload)
		if failed, ok := errors.AsType[*standins.LambdaError](err); ok && failed.Type == "Lambda.TooManyRequestsException" {
			refused.Add(1)
		}
		return out, err
	}
	d.mu.Unlock()

	began := d.clock.Now()
	loaded := func() bool { return d.clock.Now().Sub(began) < lasts }
	var throttled, asked atomic.Int64 // requests of the table
	d.relay.setThrottle(func() bool {
		if d.clock.Now().Sub(began)%(4*time.Second) >= time.Second || !loaded() || asked.Add(1)%2 == 0 {
			return false
		}
		throttled.Add(1)
		return true
	})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	schedule := sample(t, "sweep", "schedule.json")
	var beside sync.WaitGroup
	beside.Go(func() { // a machine that stands still for a second
		for i := 0; d.clock.Sleep(ctx, 3*time.Second) == nil && loaded(); i++ {
			f := d.functions[functions[i%len(functions)]]
			f.Signal(syscall.SIGSTOP)
			_ = d.clock.Sleep(ctx, time.Second)
			f.Signal(syscall.SIGCONT)
		}
	})
	beside.Go(func() { // the schedule's
		for d.clock.Sleep(ctx, 15*time.Second) == nil {
			_, _ = d.functions["sweep"].Invoke(ctx, schedule) // it may be refused, too
		}
	})

	people := &deciders{d: d, ana: d.anaClient(), tries: map[string]int{}}
	beside.Go(func() { people.work(ctx) })
	var starts sync.WaitGroup
	var mu sync.Mutex
	var started []string
	for n := 0; loaded(); n++ {
		starts.Go(func() {
			a, err := answered(ctx, d, func() (web.Accepted, error) { return people.ana.Start(ctx, refundStart(fmt.Sprint("run-", n))) })
			if err != nil {
				t.Errorf("start run %d: %v", n, err)
				return
			}
			mu.Lock()
			started = append(started, a.ID)
			mu.Unlock()
		})
		require.NoError(t, d.clock.Sleep(ctx, 3*thinks/(2*steps))) // three inferences a run, twice the rate
	}
	starts.Wait()
	waiting := slices.Clone(started)
	require.Eventually(t, func() bool {
		waiting = slices.DeleteFunc(waiting, func(id string) bool {
			l, err := d.ports.Journal.Load(ctx, acme, id)
			return err == nil && isDone(&l.State)
		})
		return len(waiting) == 0
	}, max(20*lasts, 4*time.Minute), 250*time.Millisecond, "every run ends")
	drained := d.clock.Now().Sub(began) - lasts
	stop()
	beside.Wait()
	unpaid := 0
	for _, id := range started {
		l, err := d.ports.Journal.Load(t.Context(), acme, id)
		require.NoError(t, err)
		require.Equal(t, run.ReasonNaturalEnd, l.State.Reason, "%s: %+v", id, l.State.Error)
		paid, ok := l.State.Call("t2")
		require.True(t, ok, id)
		want := 1
		if paid.Status != run.StatusSucceeded { // other refunds changed the order each time that it was approved (limits.asks)
			require.Equal(t, run.WhyVoided, paid.Reason, "%s: %s", id, paid.Status)
			want = 0
			unpaid++
		}
		require.Equal(t, want, d.refunds(id), "%s: paid once", id)
	}
	require.Empty(t, people.wrong)
	require.LessOrEqual(t, people.most(), 10, "people can decide all the while")
	require.Positive(t, refused.Load(), "functions were invoked beyond their concurrency")
	require.Positive(t, throttled.Load(), "the table refused requests")
	t.Logf("%d runs in %v, done %v after that, %d without a refund; %d invocations refused, %d requests of the table throttled; "+
		"%d decisions, at most %d tries for one", len(started), lasts, drained.Round(time.Second), unpaid, refused.Load(),
		throttled.Load(), len(people.tries), people.most())
}

// deciders approve what the list of requests shows, as people do who look at it again and again.
type deciders struct {
	d     *deployment
	ana   *web.Client
	tries map[string]int // by request, until it was decided
	wrong []error
}

func (p *deciders) work(ctx context.Context) {
	for ctx.Err() == nil {
		page, err := answered(ctx, p.d, func() (web.Page[approval.Approval], error) { return p.ana.Approvals(ctx, "pending", "", 0) })
		for _, a := range page.Items {
			_, failed := answered(ctx, p.d, func() (approval.Approval, error) {
				p.tries[a.ID]++
				return p.ana.Decide(ctx, a.ID, web.Verdict{Action: approval.Approve})
			})
			err = errors.Join(err, failed)
		}
		if err != nil && ctx.Err() == nil {
			p.wrong = append(p.wrong, err)
		}
		_ = p.d.clock.Sleep(ctx, 100*time.Millisecond)
	}
}

// most is the most tries that a decision took.
func (p *deciders) most() (n int) {
	for _, tries := range p.tries {
		n = max(n, tries)
	}
	return n
}

// isBusy reports whether a client is to ask again.
func isBusy(err error) bool {
	var refused *web.Problem
	return err != nil && (!errors.As(err, &refused) || refused.Status >= http.StatusInternalServerError ||
		refused.Status == http.StatusTooManyRequests)
}

// answered repeats a request while the deployment is busy, as clients do after 5xx.
func answered[T any](ctx context.Context, d *deployment, f func() (T, error)) (out T, err error) {
	for {
		if out, err = f(); !isBusy(err) {
			return out, err
		}
		if stopped := d.clock.Sleep(ctx, 50*time.Millisecond); stopped != nil {
			return out, errors.Join(err, stopped)
		}
	}
}
