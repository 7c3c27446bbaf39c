package long

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	goruntime "runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/asl"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/people/notify"
	"github.com/countersign/countersign/internal/people/person"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/workload"
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
		_, err := l.Starter.Start(t.Context(), workload.Start(l.def, fmt.Sprint("crowd-", i)))
		return err
	})
	l.ended.untilParked(t, n)
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

type usage struct {
	heap       uint64 // bytes in use after a collection, stacks included
	goroutines int
}

func used() usage {
	goruntime.GC()
	goruntime.GC()
	var m goruntime.MemStats
	goruntime.ReadMemStats(&m)
	return usage{m.HeapAlloc + m.StackInuse, goruntime.NumGoroutine()}
}

// TestCrowd: many runs in one process start, park, are approved by many people at once, and end; none is lost, and no call is made twice.
func TestCrowd(t *testing.T) {
	for _, c := range []struct {
		store        string
		small, large int
	}{{"memory", 200, 10_000}, {"bolt", 0, 1000}} {
		t.Run(c.store, func(t *testing.T) {
			n := sized(c.small, c.large)
			if n == 0 {
				onlyWhole(t)
			}
			began := time.Now()
			l := newLab(t, setup{table: stores[c.store](t), model: workload.Model{N: 1, Tool: "work_pay"}})
			before := used()
			parkAll(t, l, n)
			after := used()
			ids := pending(t, l, 50)
			require.Len(t, ids, n)
			each(t, 50, n, func(i int) error {
				_, err := l.Desk.Decide(t.Context(), approval.DecisionInput{Tenant: local.Tenant, ID: ids[i], Action: approval.Approve, By: ana})
				return err
			})
			l.ended.untilDone(t, n)
			l.ended.untilClosed(t, n)
			took := time.Since(began)
			require.NoError(t, l.Engine.Close())
			l.ended.assertAll(t, n, n)
			require.Empty(t, pending(t, l, 50))
			require.LessOrEqual(t, after.goroutines-before.goroutines, n+50, "one goroutine a parked run at most, in the engine of a laptop")
			t.Logf("%d runs: parked, each holds %d B of memory with its records in the table (%d goroutines); %.0f runs a second",
				n, int(after.heap-before.heap)/n, after.goroutines-before.goroutines, float64(n)/took.Seconds())
		})
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

// crew is the channel that reaches one of the people who may decide.
type crew struct {
	mu  sync.Mutex
	got map[string]int // by occasion and request
}

func (*crew) Name() string               { return "pager" }
func (*crew) Reaches(person.Person) bool { return true }

func (c *crew) Send(_ context.Context, m notify.Message) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.got[string(m.Occasion)+" "+m.Approval.ID]++
	return m.Approval.ID, nil
}

func (c *crew) Update(_ context.Context, _ string, m notify.Message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.got["updated "+m.Approval.ID]++
	return nil
}

// heard is for how many requests there was a message of that kind, and the most for any of them.
func (c *crew) heard(kind string, ids []string) (requests, most int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		if n := c.got[kind+" "+id]; n > 0 {
			requests++
			most = max(most, n)
		}
	}
	return requests, most
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

// sweep is one of the deployed sweeps, as of a while ahead, and what it asked of the table.
func (l *lab) sweep(t *testing.T, n runtime.Notices, by time.Duration) (runtime.Report, fault.Counts) {
	t.Helper()
	ports, table := l.Ports, fault.NewTable(l.items)
	ports.Clock, ports.Table, ports.Journal = ahead{ports.Clock, by}, table, store.NewJournal(table, 0)
	tenants, ok := l.blobs.(runtime.Tenants)
	require.True(t, ok)
	s := runtime.Sweep{Sweeper: &runtime.Sweeper{Ports: ports, Definitions: l.Definitions, LeaveWoken: true}, Tenants: tenants, Executions: listed{l}, Notices: n}
	report, err := s.Run(t.Context())
	require.NoError(t, err)
	require.Empty(t, report.Failed)
	return report, table.Counts()
}

// TestApprovalStorm: requests by the thousand in one tenant, and fifty people who all decide all of them at once, half of them the other way,
// while the list is paged, reminders are due and a sweep goes over it. Each request is decided once, and what it decided is what happens.
func TestApprovalStorm(t *testing.T) {
	n, people := sized(120, 10_000), sized(20, 50)
	people = min(people, 50)
	pager := &crew{got: map[string]int{}}
	reached := person.NewBook(local.Tenant, person.Person{ID: ana.ID, Groups: ana.Groups})
	own := &notify.Notifier{Directory: reached, Channels: []notify.Channel{pager}}
	l := newLab(t, setup{table: stores["memory"](t), model: workload.Model{N: 1, Tool: "work_pay"}, notify: own, define: func(d *agent.Definition) {
		d.Permission.Rules = []agent.Rule{{Tool: "work.pay", Verdict: agent.VerdictAsk, Remind: time.Hour}}
	}})
	parkAll(t, l, n)
	ids := pending(t, l, 37)
	require.Len(t, ids, n, "the list is complete")
	told, most := pager.heard("asked", ids)
	for ; told < n; told, most = pager.heard("asked", ids) { // the waiters are at it
		require.NoError(t, l.Ports.Clock.Sleep(t.Context(), 10*time.Millisecond))
	}
	require.Equal(t, []int{n, 1}, []int{told, most}, "everybody was told of every request, once")

	due := &notify.Notifier{Table: l.table, Journal: l.Ports.Journal, Clock: ahead{l.Ports.Clock, 2 * time.Hour},
		Directory: reached, Channels: own.Channels}
	report, spent := l.sweep(t, nil, 2*time.Hour)
	require.True(t, report.Complete)
	require.EqualValues(t, n, report.Waiting.Runs)
	require.Empty(t, report.Repaired)
	require.LessOrEqual(t, spent.Gets, int64(n+2), "a sweep reads the next slot of each run that waits, its own place, and whether the table was restored")
	require.LessOrEqual(t, spent.Queries, int64(2*n/50+10+2*7), "and pages, of open runs by shard")
	require.LessOrEqual(t, spent.Writes+spent.Transactions, int64(3), "its lease")
	t.Logf("a sweep over %d runs that wait: %d gets, %d queries, %d writes, %.0f RCU", n, spent.Gets, spent.Queries, spent.Writes, spent.RCU)

	storm := &storm{lab: l, ids: ids, said: make([]map[approval.Action]int, n)}
	var others sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	end := sync.OnceFunc(func() {
		stop()
		others.Wait()
	})
	defer end()
	repeat := func(do func()) { // until the end, and leaves the others room between
		others.Go(func() {
			for on := true; on; on = l.Ports.Clock.Sleep(ctx, 50*time.Millisecond) == nil {
				do()
			}
		})
	}
	repeat(func() { pending(t, l, 50) })
	repeat(func() {
		if _, err := due.ProcessDue(context.Background(), 100); err != nil {
			t.Error(err)
		}
	})
	repeat(func() { l.sweep(t, due, 2*time.Hour) })
	each(t, people, people, storm.decideAll)
	l.ended.untilDone(t, n)
	end()
	l.ended.untilClosed(t, n)
	approved := storm.assertDecided(t)
	l.ended.assertAll(t, n, approved)
	for range 20 { // what is left to be told is due
		did, err := due.ProcessDue(t.Context(), 1000)
		require.NoError(t, err)
		if len(did) == 0 {
			break
		}
	}
	updated, twice := pager.heard("updated", ids)
	require.Equal(t, n, updated, "whoever was told of a request is told that it is decided")
	reminded, again := pager.heard("reminder", ids)
	require.NoError(t, l.Close())
	t.Logf("%d requests, %d people at once: %d approved, %d denied, each person said a word on every request; %d reminded (at most %d times), %d updated (at most %d times)",
		n, people, approved, n-approved, reminded, again, updated, twice)
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
