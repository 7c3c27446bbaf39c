package proof

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/asl"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
)

// each does f for 0 to n-1, by so many workers at once.
func each(t *testing.T, workers, n int, f func(i int) error) {
	t.Helper()
	next := make(chan int)
	errs := make(chan error, workers)
	for range workers {
		go func() {
			var all error
			for i := range next {
				all = errors.Join(all, f(i))
			}
			errs <- all
		}()
	}
	for i := range n {
		next <- i
	}
	close(next)
	for range workers {
		require.NoError(t, <-errs)
	}
}

// parkAll starts n runs at once and waits until each has parked on its approval and stored its token.
func parkAll(t *testing.T, l *lab, n int) {
	t.Helper()
	each(t, 32, n, func(i int) error {
		_, err := l.Starter.Start(t.Context(), StartWork(l.def, fmt.Sprint("crowd-", i)))
		return err
	})
	l.ended.until(t, func() bool { return len(l.ended.parked) >= n })
	l.ended.until(t, func() bool { return l.items.stored() >= n })
}

// pending lists every request that waits, by pages, and asserts that none comes twice.
func pending(t *testing.T, l *lab, page int) []string {
	t.Helper()
	var ids []string
	seen := map[string]bool{}
	for cursor := ""; ; {
		all, next, err := approval.List(t.Context(), l.table, local.Tenant, approval.Query{Status: approval.Pending, Limit: page, Cursor: cursor})
		require.NoError(t, err)
		for _, a := range all {
			require.False(t, seen[a.ID], "%s is listed twice", a.ID)
			seen[a.ID] = true
			ids = append(ids, a.ID)
		}
		if cursor = next; cursor == "" {
			return ids
		}
	}
}

// assertAll: so many runs have ended, each once and well, and so many calls were entered, each once.
func (y *tally) assertAll(t *testing.T, runs, entered int) {
	t.Helper()
	require.Len(t, y.done, runs)
	require.Empty(t, y.twice)
	for runID, why := range y.done {
		require.Equal(t, run.ReasonNaturalEnd, why, runID)
	}
	require.Len(t, y.entered, entered)
	for key, times := range y.entered {
		require.Equal(t, 1, times, key)
	}
	for name, x := range y.closed {
		require.Contains(t, []asl.Status{asl.Succeeded, asl.Aborted}, x.Status, name) // a sweep ahead of time may stop one whose run has just ended
	}
}

// ahead is a clock that is some time ahead of another.
type ahead struct {
	clock.Clock
	by time.Duration
}

func (a ahead) Now() time.Time { return a.Clock.Now().Add(a.by) }

func (a ahead) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := a.Clock.WithTimeout(ctx, d)
	return aheadContext{ctx, a.by}, cancel
}

// aheadContext has its deadline by that clock.
type aheadContext struct {
	context.Context
	by time.Duration
}

func (c aheadContext) Deadline() (time.Time, bool) {
	at, ok := c.Context.Deadline()
	return at.Add(c.by), ok
}

// listed are the engine's executions, as a sweep lists them.
type listed struct{ lab *lab }

func (x listed) Running(ctx context.Context, _ string) (page []runtime.Execution, next string, err error) {
	for _, d := range x.lab.Engine.List(ctx, asl.Running) {
		page = append(page, runtime.Execution{Name: d.Name, Started: d.StartDate})
	}
	return page, "", nil
}

func (x listed) Input(ctx context.Context, name string) ([]byte, bool, error) {
	for _, d := range x.lab.Engine.List(ctx, "") {
		if d.Name == name {
			return d.Input, true, nil
		}
	}
	return nil, false, nil
}

// sweep is one of the deployed sweeps, as of two hours ahead, and what it asked of the table.
func (l *lab) sweep(t *testing.T) (runtime.Report, fault.Counts) {
	t.Helper()
	ports, table := l.Ports, fault.NewTable(l.items)
	ports.Clock, ports.Table, ports.Journal = ahead{ports.Clock, 2 * time.Hour}, table, store.NewJournal(table, 0)
	tenants, ok := l.blobs.(runtime.Tenants)
	require.True(t, ok)
	s := runtime.Sweep{Sweeper: &runtime.Sweeper{Ports: ports, Definitions: l.Definitions, TrustWoken: true}, Tenants: tenants, Executions: listed{l}}
	report, err := s.Run(t.Context())
	require.NoError(t, err)
	require.Empty(t, report.Failed)
	return report, table.Counts()
}

// TestApprovalStorm: requests by the thousand in one tenant, and fifty people who all decide all of them at once, half
// of them the other way, while the list is paged and a sweep goes over it. Each request is decided once, and what it
// decided is what happens.
func TestApprovalStorm(t *testing.T) {
	n, people := sized(120, 10_000), sized(20, 50)
	l := newLab(t, setup{table: stores["memory"](t), model: WorkModel{N: 1, Tool: "work_pay"}})
	parkAll(t, l, n)
	ids := pending(t, l, 37)
	require.Len(t, ids, n, "the list is complete")
	report, spent := l.sweep(t)
	require.True(t, report.Complete)
	require.EqualValues(t, n, report.Waiting.Runs)
	require.Empty(t, report.Repaired)
	require.LessOrEqual(t, spent.Gets, int64(n+2), "a sweep reads the next slot of each run that waits, its own place, and whether the table was restored")
	require.LessOrEqual(t, spent.Queries, int64(2*n/50+10+2*7), "and pages, of open runs by shard")
	require.LessOrEqual(t, spent.Writes+spent.Transactions, int64(3), "its lease")

	storm := &storm{lab: l, ids: ids, said: make([]map[approval.Action]int, n)}
	var others sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	for _, do := range []func(){func() { pending(t, l, 50) }, func() { l.sweep(t) }} {
		others.Go(func() { // until the end, and leaves the others room between
			for on := true; on; on = l.Ports.Clock.Sleep(ctx, 50*time.Millisecond) == nil {
				do()
			}
		})
	}
	each(t, people, people, storm.decideAll)
	l.ended.untilEnded(t, n, 0)
	stop()
	others.Wait()
	l.ended.untilEnded(t, n, n)
	approved := storm.assertDecided(t)
	l.ended.assertAll(t, n, approved)
	require.NoError(t, l.Close())
}

// storm is many people who decide at once.
type storm struct {
	lab *lab
	ids []string

	mu   sync.Mutex
	said []map[approval.Action]int // who was told that this is what was decided
}

// decideAll is one person, who decides everything: an odd one denies. One word in ten is said twice.
func (s *storm) decideAll(p int) error {
	by := policy.Principal{ID: fmt.Sprint("user:", p), Groups: []string{"group:operators"}}
	action := approval.Approve
	if p%2 == 1 {
		action = approval.Deny
	}
	for _, i := range rand.New(rand.NewPCG(1, uint64(p))).Perm(len(s.ids)) { //nolint:gosec // an order, not a secret
		for range 1 + (i+p)%10/9 {
			_, err := s.lab.Desk.Decide(context.Background(), approval.DecisionInput{Tenant: local.Tenant, ID: s.ids[i], Action: action, By: by})
			var first *approval.DecidedError
			if err != nil && !errors.As(err, &first) {
				return fmt.Errorf("%s: %w", s.ids[i], err)
			}
			if err == nil {
				s.hear(i, action)
			}
		}
	}
	return nil
}

func (s *storm) hear(i int, action approval.Action) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.said[i] == nil {
		s.said[i] = map[approval.Action]int{}
	}
	s.said[i][action]++
}

// assertDecided: of every request one decision is on record, nobody was told of another, and no page has it twice. It counts the approved.
func (s *storm) assertDecided(t *testing.T) (approved int) {
	t.Helper()
	for i, id := range s.ids {
		a, err := approval.Get(t.Context(), s.lab.table, local.Tenant, id)
		require.NoError(t, err)
		require.Len(t, a.Decisions, 1, id)
		require.Len(t, s.said[i], 1, "%s: two people were told that they decided it, each their way", id)
		for action := range s.said[i] {
			require.Equal(t, map[approval.Action]approval.Status{approval.Approve: approval.Approved, approval.Deny: approval.Denied}[action], a.Status, id)
		}
		if a.Status == approval.Approved {
			approved++
		}
	}
	require.Empty(t, pending(t, s.lab, 50))
	return approved
}
