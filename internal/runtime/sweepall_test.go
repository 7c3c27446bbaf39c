package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
)

// sweeper is the deployed sweep over the world's ports.
func (w *world) sweeper() *runtime.Sweep {
	return &runtime.Sweep{
		Sweeper: &runtime.Sweeper{
			Ports: w.ports, Definitions: w.pinned,
		}, Tenants: w.ports.Blobs.(*store.MemoryBlobs), Executions: w.waiter,
	}
}

func (w *world) sweepAll() runtime.Report {
	w.t.Helper()
	r, err := w.sweeper().Run(w.ctx)
	require.NoError(w.t, err)
	return r
}

// another starts a run of its own key, as the world's run, and gives its id.
func (w *world) another(key string) string {
	w.t.Helper()
	r := w.request("Work.")
	r.Key = key
	w.follow(w.starter().Start(w.ctx, r))
	return w.run
}

// neverStarted writes a run whose execution is never started.
func (w *world) neverStarted(tenant, key string) string {
	w.t.Helper()
	st := runtime.Starter{Ports: w.ports}
	r := w.request("Work.")
	r.Tenant, r.Key = tenant, key
	run := agent.RunID(tenant, w.def.Name, key)
	require.NoError(w.t, errOf(st.Create(w.ctx, r, run, runtime.ExecutionName(run, 0))))
	return run
}

// parked starts a run that waits for approval of one call, with a token stored.
func (w *world) parked(key string) string {
	w.t.Helper()
	w.model.replies = []agent.Reply{calls("refund c1")}
	run := w.another(key)
	r := w.drive(0)
	require.Equal(w.t, runtime.NextWait, r.Next)
	w.park(r.Woken, 0, "token of "+key)
	return run
}

// unheard puts a message into the current run's inbox and wakes nobody.
func (w *world) unheard() {
	w.t.Helper()
	_, err := w.ports.Journal.Accept(
		w.ctx, tenant, w.run, "input/m", run.InputReceived{ID: "m", By: "user:bob", Blocks: says("Hello?")},
	)
	require.NoError(w.t, err)
}

// TestSweepGoesOn: what the deadline does not allow for is done by the next sweep, from where the first one ended, and
// the gauges are of the whole round.
func TestSweepGoesOn(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.parked("waits")
		since := time.Now()
		w.parked("waits too")
		var names []string
		for i, tenant := range []string{"acme", "acme", "globex", "initech"} {
			names = append(names, runtime.ExecutionName(w.neverStarted(tenant, fmt.Sprint(i)), 0))
		}
		w.sleep(2 * time.Minute)
		w.waiter.onStart = func(string) error { // each start takes its time
			w.sleep(20 * time.Second)
			return nil
		}
		leftover := runtime.ExecutionName(agent.RunID(tenant, w.def.Name, "none"), 0)
		require.NoError(t, w.waiter.Start(w.ctx, tenant, agent.RunID(tenant, w.def.Name, "none"), leftover))

		short := func() runtime.Report {
			ctx, cancel := context.WithTimeout(w.ctx, 70*time.Second+30*time.Second)
			defer cancel()
			r, err := w.sweeper().Run(ctx)
			require.NoError(t, err)
			return r
		}
		var last runtime.Report
		rounds := 1
		for last = short(); !last.Complete; last = short() {
			require.Zero(t, last.Waiting)
			rounds++
			require.Less(t, rounds, 10)
		}
		require.Greater(t, rounds, 1)
		require.Equal(t, runtime.Waiting{Runs: 2, Since: since.UTC()}, last.Waiting)
		w.waiter.onStart = nil
		for _, name := range names {
			require.Equal(t, runtime.ExecutionRunning, w.waiter.status[name])
		}
		require.Empty(t, w.waiter.asked, "which executions have runs, only a round in one piece says")
		next := w.sweepAll()
		require.Equal(t, []string{leftover}, w.waiter.asked)
		require.True(t, next.Complete)
		require.EqualValues(t, 6, next.Checked, "the next round begins at the beginning")

		ctx, cancel := context.WithTimeout(w.ctx, 79*time.Second)
		defer cancel()
		require.ErrorIs(t, errOf(w.sweeper().Run(ctx)), runtime.ErrSweepTooShort)
	})
}

// A place that another version kept, that does not fit the table or that cannot be read begins the list again.
func TestSweepForgetsAnOddPlace(t *testing.T) {
	for _, body := range []string{`{"tenant":"acme","list":0,"cursor":"forged"}`, `{"list":-1}`, `odd`, ``} {
		inBubble(t, func(t *testing.T, w *world) {
			w.neverStarted(tenant, "never")
			w.sleep(2 * time.Minute)
			place := store.Item{
				Key: store.Key{PK: "SWEEP", SK: "LEASE"}, Attrs: map[string]store.Value{"until": store.Num(0)}, Body: []byte(body),
			}
			require.NoError(t, w.table.Write(w.ctx, store.Op{Kind: store.Put, Item: place}))
			if body == "" {
				w.table.Damage(place.Key)
			}
			r := w.sweepAll()
			require.True(t, r.Complete)
			require.EqualValues(t, 1, r.Repaired[runtime.RepairStarted])
		})
	}
}

// TestSweepDeletesWhatIsOld: runs that ended longer ago than the retention of their kind are deleted; one that another run began from
// goes after that one. Open runs, and those that ended later, stay, however long ago they started. A blob is deleted
// with the last run that has it.
func TestSweepDeletesWhatIsOld(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		const day = 24 * time.Hour
		own, shared := w.has("own"), w.has("shared")
		started := func(key string, blobs ...string) string {
			r := w.request("Work.")
			r.Key = key
			for _, digest := range blobs {
				r.Message = append(r.Message, run.UserBlock{Block: run.Media{MediaType: "text/plain", Blob: digest}})
			}
			w.follow(w.starter().Start(w.ctx, r))
			return w.run
		}
		end := func(run string) string {
			w.to(run)
			w.cancel()
			return run
		}
		open, slow := w.parked("open"), started("slow")
		old, origin := end(started("old", own, shared)), end(started("origin"))
		w.sleep(time.Second)
		fork, err := (&runtime.Starter{Ports: w.ports}).Fork(w.ctx, runtime.Fork{Tenant: tenant, Run: origin, Key: "fork"})
		require.NoError(t, err)
		w.sleep(20 * day)
		end(slow)
		recent := end(started("recent", shared))
		w.sleep(11 * day)

		s := w.sweeper()
		sweep := func() (deleted []string) {
			r, err := s.Run(w.ctx)
			require.NoError(t, err)
			require.Empty(t, r.Failed)
			for _, d := range r.Deleted {
				require.Equal(t, tenant, d.Tenant)
				deleted = append(deleted, fmt.Sprintf("%s: %d blobs, %d kept", d.Run, d.Blobs, d.Kept))
			}
			return deleted
		}
		require.Empty(t, sweep(), "there is no retention")
		failed := started("failed")
		w.to(failed)
		require.NoError(t, errOf(w.stepper().Fail(w.ctx, w.inv(0), "gave up")))
		w.sleep(2 * day)
		s.Retention = runtime.Retention{Ended: 400 * day, Failed: 3 * day}
		require.Empty(t, sweep())
		s.Retention.Failed = day
		require.Equal(t, []string{failed + ": 0 blobs, 0 kept"}, sweep())
		s.Retention = runtime.Retention{Ended: 30 * day, Failed: 400 * day}
		require.Equal(t, []string{old + ": 1 blobs, 1 kept"}, sweep())
		require.Empty(t, sweep())
		require.ErrorContains(t, errOf(w.ports.Journal.Load(w.ctx, tenant, old)), "was deleted by retention")
		for _, run := range []string{open, slow, origin, fork.Run, recent} {
			require.NoError(t, errOf(w.ports.Journal.Load(w.ctx, tenant, run)))
		}
		require.ErrorIs(t, errOf(w.ports.Blobs.Size(w.ctx, tenant, own)), store.ErrNoBlob)
		require.NoError(t, errOf(w.ports.Blobs.Size(w.ctx, tenant, shared)), "recent has it")

		end(fork.Run)
		w.sleep(31 * day)
		require.ElementsMatch(t, []string{
			slow + ": 0 blobs, 0 kept", fork.Run + ": 0 blobs, 0 kept", recent + ": 1 blobs, 0 kept",
		}, sweep())
		require.Equal(t, []string{origin + ": 0 blobs, 0 kept"}, sweep())
		require.Empty(t, sweep())
		require.ErrorIs(t, errOf(w.ports.Blobs.Size(w.ctx, tenant, shared)), store.ErrNoBlob)
		require.NoError(t, errOf(w.ports.Journal.Load(w.ctx, tenant, open)))
	})
}

// TestSweepWithoutItsLease: a sweep that is held up for longer than its lease stops, and stores no place over that of the
// sweep that has taken the lease.
func TestSweepWithoutItsLease(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		for i := range 3 {
			w.neverStarted(tenant, fmt.Sprint(i))
		}
		w.sleep(2 * time.Minute)
		w.waiter.onStart = func(string) error {
			w.waiter.onStart = nil
			w.sleep(14 * time.Minute)
			require.True(t, w.sweepAll().Skipped)
			w.sleep(time.Minute)
			other := w.sweepAll()
			require.True(t, other.Complete)
			require.EqualValues(t, 3, other.Repaired[runtime.RepairStarted])
			return nil
		}
		r, err := w.sweeper().Run(w.ctx)
		require.Error(t, err)
		require.EqualValues(t, 1, r.Checked)
		require.Empty(t, r.Repaired)
		require.False(t, r.Complete)
		require.False(t, w.sweepAll().Skipped)
	})
}

// TestSweepLeaseWithFaults: whatever happens to one call of a sweep, another sweep works once the lease is over.
func TestSweepLeaseWithFaults(t *testing.T) {
	play := func(points ...fault.Point) (calls []fault.Call, skipped bool) {
		inBubble(t, func(t *testing.T, w *world) {
			w.neverStarted(tenant, "never")
			w.sleep(2 * time.Minute)
			in := fault.New(clock.System(), points...)
			s := w.sweeper()
			s.Sweeper.Table = in.Table(w.counts)
			s.Sweeper.Journal = store.NewJournal(s.Sweeper.Table, 0)
			s.Sweeper.Waiter = fault.NewWaiter(w.waiter, in.Do)
			in.Run(w.ctx, "sweep", func(ctx context.Context) { _, _ = s.Run(ctx) })
			calls = in.Calls()
			if skipped = w.sweepAll().Skipped; skipped {
				w.sleep(15 * time.Minute)
				require.False(t, w.sweepAll().Skipped)
			}
			require.Len(t, w.waiter.status, 1, "the execution is started")
		})
		return calls, skipped
	}
	calls, skipped := play()
	require.False(t, skipped)
	require.Greater(t, len(calls), 10)
	for _, c := range calls {
		for _, k := range []fault.Kind{fault.ErrorBefore, fault.ErrorAfter, fault.Twice} {
			_, skipped := play(fault.Point{Call: c.Number, Kind: k})
			require.False(t, skipped && c.Number < len(calls), "%s %v: the lease was not given back", k, c)
		}
		for _, k := range fault.Crashes() {
			play(fault.Point{Call: c.Number, Kind: k})
		}
		require.False(t, t.Failed(), "%v", c)
	}
}

// TestSweepCarriesOn: a run that cannot be checked stops no other, and is named; where nothing works, the sweep gives
// up, but for broken records, which stop nothing, however many there are.
func TestSweepCarriesOn(t *testing.T) {
	for name, c := range map[string]struct {
		runs     int
		fails    func(n int) error // the n-th start
		failed   int
		repaired int64
		stops    bool
	}{
		"one of two":               {2, func(n int) error { return map[int]error{1: errBlown}[n] }, 1, 1, false},
		"all":                      {30, func(int) error { return errBlown }, 20, 0, true},
		"many, and not in a row":   {60, func(n int) error { return map[int]error{0: errBlown}[n%2] }, 30, 30, false},
		"all, with broken records": {150, func(int) error { return store.ErrInvalid }, 150, 0, false},
	} {
		subtest(t, name, func(t *testing.T, w *world) {
			for i := range c.runs {
				w.neverStarted(tenant, fmt.Sprint(i))
			}
			w.sleep(2 * time.Minute)
			n, bad := 0, ""
			w.waiter.onStart = func(name string) error {
				n++
				err := c.fails(n)
				if err != nil && bad == "" {
					bad = name
				}
				return err
			}
			r, err := w.sweeper().Run(w.ctx)
			require.Equal(t, c.stops, errors.Is(err, runtime.ErrSweepStopped))
			require.Equal(t, !c.stops, r.Complete)
			require.Len(t, r.Failed, c.failed)
			require.Equal(t, []string{tenant, bad}, []string{r.Failed[0].Tenant, runtime.ExecutionName(r.Failed[0].Run, 0)})
			require.Equal(t, c.repaired, r.Repaired[runtime.RepairStarted])
			w.waiter.onStart = nil
			left := int64(c.runs) - c.repaired
			for range 2 { // one that gave up goes on behind the pages that failed
				left -= w.sweepAll().Repaired[runtime.RepairStarted]
			}
			require.Zero(t, left)
		})
	}
	inBubble(t, func(t *testing.T, w *world) {
		s := w.sweeper()
		s.Tenants = tenantsFunc(func(context.Context) ([]string, error) { return nil, errBlown })
		require.ErrorIs(t, errOf(s.Run(w.ctx)), errBlown)
	})
}

type tenantsFunc func(context.Context) ([]string, error)

func (f tenantsFunc) Tenants(ctx context.Context) ([]string, error) { return f(ctx) }

// A leftover is stopped when its run does not need it and had the time: a former owner, of any generation, too.
func TestSweepStopsLeftovers(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		run := w.another("k")
		for i := range int64(2) {
			w.waiter.ended(runtime.ExecutionName(run, i))
			require.Equal(t, runtime.RepairTookOver, w.sweep())
		}
		first, second, third := runtime.ExecutionName(run, 0), runtime.ExecutionName(run, 1), runtime.ExecutionName(run, 2)
		w.waiter.stopped = nil
		w.waiter.status[first], w.waiter.status[second] = runtime.ExecutionRunning, runtime.ExecutionRunning
		byEvent := "an-event"
		w.waiter.status[byEvent] = runtime.ExecutionRunning
		w.waiter.began[byEvent] = runtime.Execution{Name: byEvent, Started: time.Now()}
		w.waiter.inputs[byEvent] = `{"agent":"clerk","tenant":"acme","key":"k","message":"Work."}`
		unknown := "unknown"
		w.waiter.status[unknown] = runtime.ExecutionRunning
		w.waiter.began[unknown] = runtime.Execution{Name: unknown, Started: time.Now()}
		w.waiter.inputs[unknown] = `{"agent":"clerk","message":"Of a run that is not written yet."}`
		require.Empty(t, w.sweepAll().Repaired, "they had no time yet")
		require.Empty(t, w.waiter.asked)
		w.sleep(2 * time.Minute)
		require.EqualValues(t, 3, w.sweepAll().Repaired[runtime.RepairStopped])
		require.ElementsMatch(t, []string{byEvent, first, second}, w.waiter.stopped)
		require.Equal(t, runtime.ExecutionRunning, w.waiter.status[third], "the owner")
		require.Empty(t, w.sweepAll().Repaired)
	})
}

// TestSweepOfManySuspects: when Step Functions has lost the wake-ups of many runs, a sweep takes over as many as it
// has time for, and ends in time to keep its place and to say so; the next ones do the rest.
func TestSweepOfManySuspects(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		const many = 12
		for i := range many {
			key := fmt.Sprint("lost ", i)
			w.parked(key)
			w.unheard()
			w.waiter.settled["token of "+key] = true
		}
		w.sleep(2 * time.Minute)
		w.waiter.onStart = func(string) error { // each takes its time
			w.sleep(4 * time.Second)
			return nil
		}
		sweep := func() runtime.Report {
			ctx, cancel := context.WithTimeout(w.ctx, 100*time.Second)
			defer cancel()
			r, err := w.sweeper().Run(ctx)
			require.NoError(t, err)
			require.NoError(t, ctx.Err(), "in time")
			return r
		}
		first := sweep()
		require.Positive(t, first.Left)
		require.Empty(t, first.Failed)
		taken := first.Repaired[runtime.RepairTookOver]
		require.Positive(t, taken)
		for range many {
			w.sleep(2 * time.Minute)
			taken += sweep().Repaired[runtime.RepairTookOver]
		}
		require.EqualValues(t, many, taken)
	})
}

// What a sweep of many runs that wait and are well costs: a read of one key for each, 16 at once, and a query for a
// hundred in each list. Runs are listed by eight shards, and read once.
func TestSweepOfManyParkedRuns(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		const many = 1000
		for i := range many {
			w.parked(fmt.Sprint(i))
		}
		w.sleep(2 * time.Minute)
		var mu sync.Mutex
		now, most := 0, 0
		count := func(n int) {
			mu.Lock()
			defer mu.Unlock()
			now += n
			most = max(most, now)
		}
		w.table.Use(fault.OnlyIf(func(c fault.Call) bool { return c.Port == fault.TableGet },
			func(_ context.Context, _ fault.Call, call func() error) error {
				count(1)
				defer count(-1)
				w.sleep(time.Millisecond)
				return call()
			}))
		before := w.counts.Counts()
		r := w.sweepAll()
		require.Equal(t, 16, most, "reads at once")
		require.EqualValues(t, many, r.Checked)
		require.EqualValues(t, many, r.Waiting.Runs)
		cost := w.counts.Counts().Sub(before)
		require.EqualValues(t, 1+many, cost.Gets, "the place, and the next inbox slot of each")
		require.EqualValues(
			t, 8+8*2+many/100+1+1, cost.Queries, "running runs, waiting runs, requests to people, ends that are owed, deletions",
		)
		require.EqualValues(t, 1+many+many, cost.ItemsRead, "the place, runs, and requests; no inbox has anything")
		require.InDelta(t, 1178, cost.RCU, 2)
		require.EqualValues(t, 3, cost.Writes, "the lease: there is none to take over, it is made, and it is given back")
		require.Zero(t, cost.Transactions)
	})
}

// A sweep whose time ends while it voids requests has not failed with those that it did not come to, and counts what waits
// once.
func TestSweepRunsOutOfTimeAmongRequests(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.parked("waits")
		for i := range 30 {
			op, err := approval.CreateOp(approval.Approval{Tenant: tenant, ID: fmt.Sprintf("a%02d", i), Run: w.run, Kind: approval.KindOutcome, Calls: []string{"c1"},
				Tools: []string{run.ToolAgentBudget}, Status: approval.Pending, RequestedAt: time.Now(), ExpiresAt: time.Now().Add(time.Hour)})
			require.NoError(t, err)
			require.NoError(t, w.table.Write(w.ctx, op))
		}
		s := w.sweeper()
		s.Sweeper.Void = func(ctx context.Context, _ approval.Approval) error { return w.ports.Clock.Sleep(ctx, time.Minute) }
		ctx, cancel := context.WithTimeout(w.ctx, 70*time.Second+30*time.Second)
		defer cancel()
		r, err := s.Run(ctx)
		require.NoError(t, err)
		require.Empty(t, r.Failed)
		require.False(t, r.Complete)
		s.Sweeper.Void = func(context.Context, approval.Approval) error { return nil }
		r, err = s.Run(w.ctx)
		require.NoError(t, err)
		require.True(t, r.Complete)
		require.EqualValues(t, 30, r.Waiting.OutcomesUnknown)
	})
}
