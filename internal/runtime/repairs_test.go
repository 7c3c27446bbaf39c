package runtime_test

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
)

// trouble is a disagreement that real code leaves behind when it is cut off, and what repairs it.
type trouble struct {
	make func(t *testing.T, w *world)
	want runtime.Repair
	ends func(t *testing.T, w *world) // what is so once it is repaired; nil = nothing more
}

// troubles are all of them, by what went wrong.
var troubles = map[string]trouble{
	"the start died before its execution began": {
		func(t *testing.T, w *world) {
			w.waiter.onStart = func(string) error { return errBlown }
			_, err := (&runtime.Starter{Ports: w.ports}).Start(w.ctx, w.request("Work."))
			require.ErrorIs(t, err, runtime.ErrUnstarted)
			w.waiter.onStart = nil
			w.run, w.owner = agent.RunID(tenant, w.def.Name, "k1"), runtime.ExecutionName(
				agent.RunID(tenant, w.def.Name, "k1"), 0,
			)
		}, runtime.RepairStarted, running(0),
	},
	"a hand-over died before the successor began": {
		func(t *testing.T, w *world) {
			w.start()
			w.waiter.ended(w.owner)
			w.waiter.onStart = func(string) error { return errBlown }
			require.Error(t, errOf(w.sweeper().Sweeper.Repair(w.ctx, tenant, w.run)))
			w.waiter.onStart = nil
			require.EqualValues(t, 1, w.state().Generation)
		}, runtime.RepairStarted, running(1),
	},
	"the execution died": {
		func(_ *testing.T, w *world) { w.start(); w.waiter.ended(w.owner) }, runtime.RepairTookOver, running(1),
	},
	"the execution died while the run waits": {
		func(_ *testing.T, w *world) { w.parked("k"); w.waiter.ended(w.owner) }, runtime.RepairTookOver, running(1),
	},
	"the claimant died": {
		func(t *testing.T, w *world) {
			w.startRound(calls("pay c1"))
			require.Error(t, errOf(w.batch().Run(w.ends(entry("call_claimed")), w.inv(0))))
			w.waiter.ended(w.owner)
		}, runtime.RepairTookOver, func(t *testing.T, w *world) {
			w.owner = w.state().Owner
			require.Equal(t, runtime.NextWait, w.drive(0).Next)
			require.Equal(t, run.ForOutcome, w.call("c1").Wait.For, "nobody pays again")
			require.Zero(t, w.tool("pay").times())
		},
	},
	"a decision woke nobody": {
		func(t *testing.T, w *world) {
			w.parked("k")
			d := w.desk()
			d.ResumeRun = func(context.Context, string, string) error { return errBlown }
			_, err := d.Decide(
				w.ctx, approval.DecisionInput{Tenant: tenant, ID: w.call("c1").Wait.Approval, Action: approval.Approve, By: ana},
			)
			require.ErrorIs(t, err, errBlown)
		}, runtime.RepairWoke, nil,
	},
	"a message woke nobody": {func(_ *testing.T, w *world) { w.parked("k"); w.unheard() }, runtime.RepairWoke, nil},
	"the token died with the wake-up": {
		func(_ *testing.T, w *world) {
			w.parked("k")
			w.unheard()
			w.waiter.settled["token of k"] = true
		}, runtime.RepairTookOver, running(1),
	},
	"a wait is over and nothing woke": {
		func(_ *testing.T, w *world) { w.parked("k"); w.sleep(25 * time.Hour) }, runtime.RepairExpired, nil,
	},
	"an execution runs on behind the end of its run": {
		func(_ *testing.T, w *world) { w.model.replies = nil; w.start(); w.drive(0) }, runtime.RepairStopped, nil,
	},
}

func running(generation int64) func(*testing.T, *world) {
	return func(t *testing.T, w *world) {
		name := runtime.ExecutionName(w.run, generation)
		require.Equal(t, name, w.state().Owner)
		require.Equal(t, runtime.ExecutionRunning, w.waiter.status[name])
	}
}

// TestEachTroubleIsRepairedOnce: by a sweep, by four sweeps at once, and by the end of the execution; each is counted
// once, has one record, and leaves nothing to repair.
func TestEachTroubleIsRepairedOnce(t *testing.T) {
	for name, c := range troubles {
		for how, sweep := range map[string]func(w *world) int64{
			"one sweep": func(w *world) int64 { return w.sweepAll().Repaired[c.want] },
			"four at once": func(w *world) int64 {
				var mu sync.Mutex
				var wg sync.WaitGroup
				n := int64(0)
				for range 4 {
					wg.Go(func() {
						r, err := w.sweeper().Run(w.ctx)
						mu.Lock()
						defer mu.Unlock()
						if err == nil {
							n += r.Repaired[c.want]
						}
					})
				}
				if c.want == runtime.RepairWoke || c.want == runtime.RepairExpired { // the execution that is woken acts
					time.Sleep(10 * time.Second)
					w.drive(w.head().WaitSeq)
				}
				wg.Wait()
				return n
			},
			"the reaper": func(w *world) int64 {
				if r, err := w.sweeper().Sweeper.Repair(w.ctx, tenant, w.run); err == nil && r == c.want {
					return 1
				}
				return 0
			},
		} {
			subtest(t, name+"/"+how, func(t *testing.T, w *world) {
				w.model.replies = []agent.Reply{calls("refund c1")}
				c.make(t, w)
				w.sleep(2 * time.Minute)
				require.EqualValues(t, 1, sweep(w))
				list, _, err := runtime.ListRepaired(w.ctx, w.table, tenant, 0, "")
				require.NoError(t, err)
				list = slices.DeleteFunc(list, func(r runtime.Repaired) bool { return r.Kind != c.want })
				require.Len(t, list, 1)
				require.Equal(t, []any{w.run, c.want}, []any{list[0].Run, list[0].Kind})
				require.False(t, list[0].At.IsZero())
				if c.want == runtime.RepairWoke || c.want == runtime.RepairExpired { // the execution goes on
					if w.head().WaitSeq == list[0].Seq {
						w.drive(list[0].Seq)
					}
					w.waiter.ended(w.owner)
					if s := w.state(); s.Status != run.RunDone {
						w.waiter.status[w.owner] = runtime.ExecutionRunning
					}
				}
				if c.ends != nil {
					c.ends(t, w)
				}
				w.sleep(2 * time.Minute)
				require.Empty(t, w.sweepAll().Repaired, "nothing is left")
			})
		}
	}
	covered := map[runtime.Repair]bool{
		runtime.RepairFailed: true, runtime.RepairCleaning: true, // in their own tests
		runtime.RepairAnnounced: true, runtime.RepairClosed: true,
	}
	for _, c := range troubles {
		covered[c.want] = true
	}
	require.ElementsMatch(t, runtime.Repairs(), slices.Collect(maps.Keys(covered)))
}

// TestAnUpdateEndsNoRun: while an older version of the step fails with what only the newer one reads, the sweep starts
// the next execution, and ends the run only because of executions that ended otherwise. Who hears of the end of such an
// execution right behind its start leaves it to the schedule.
func TestAnUpdateEndsNoRun(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.start()
		repair := func(ended runtime.ExecutionStatus) runtime.Repair {
			w.waiter.status[w.state().Owner] = ended
			r, err := w.sweeper().Sweeper.Repair(w.ctx, tenant, w.run)
			require.NoError(t, err)
			return r
		}
		for range 120 {
			w.sleep(time.Minute)
			require.Equal(t, runtime.RepairTookOver, repair(runtime.ExecutionOutdated))
			require.Equal(t, runtime.RepairNone, repair(runtime.ExecutionOutdated), "at once")
		}
		require.NotEqual(t, run.RunDone, w.state().Status)
		require.Equal(t, runtime.RepairFailed, repair(runtime.ExecutionEnded))
	})
}

// TestAnOwedWordBetweenRunsIsSaid: a child is called off and whoever did that dies before the run whose call it was
// hears of it: a sweep tells that one, once, and it goes on; sweeps at once count one repair.
func TestAnOwedWordBetweenRunsIsSaid(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.delegating(1)
		w.startWith(calls(`ask c1 {"message":"Help."}`))
		root, owner := w.run, w.owner
		r := w.drive(0)
		require.Equal(t, runtime.NextWait, r.Next)
		w.park(r.Woken, 0, "token of the root")
		child := w.child()
		for range 4 { // as often as it tries
			w.table.Once(failed(func(ops []store.Op) bool { return ops[0].Item.SK == "I#answer/c1" }))
		}
		_, err := (&runtime.Canceller{Ports: w.ports, Definitions: w.pinned}).Cancel(
			w.ctx, tenant, child, "user:bob", "not needed",
		)
		require.ErrorIs(t, err, errBlown)
		w.to(child)
		require.Equal(t, run.ReasonCancelled, w.state().Reason)
		w.waiter.ended(w.owner)
		w.sleep(2 * time.Minute)
		before := len(w.waiter.woken)
		require.Equal(t, map[runtime.Repair]int64{runtime.RepairAnnounced: 1}, w.sweepAll().Repaired)
		require.Equal(t, []string{"token of the root"}, w.waiter.woken[before:])
		w.run, w.owner = root, owner
		require.Equal(t, runtime.NextDone, w.drive(r.Woken).Next)
		require.Equal(t, run.StatusFailed, w.call("c1").Status)
		require.Len(t, w.model.asked, 2)
		w.waiter.ended(w.owner)
		w.sleep(2 * time.Minute)
		require.Empty(t, w.sweepAll().Repaired)
		list, _, err := runtime.ListRepaired(w.ctx, w.table, tenant, 0, "")
		require.NoError(t, err)
		require.Len(t, list, 1)
		require.Equal(t, child, list[0].Run)
	})
}
