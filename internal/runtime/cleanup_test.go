package runtime_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/hook"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
)

// endCode is the code that an agent names for the end of its runs: a permission backend and a plugin. It is also the bus, so that it knows
// what came first.
type endCode struct {
	hook.PermissionBackend // asked for nothing but cleaning up

	mu    sync.Mutex
	heard []string // "run_end", "cleanup", "told", in order
	ids   []string // of what was told
	seen  []run.AgentState
	away  error // of cleaning up
	plug  error // of the plugin
	bus   error

	subject string // of the run
}

func (c *endCode) hear(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard = append(c.heard, what)
}

func (c *endCode) count(what string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, h := range c.heard {
		if h == what {
			n++
		}
	}
	return n
}

func (c *endCode) Cleanup(_ context.Context, at hook.PermissionContext) error {
	c.hear("cleanup")
	if at.Tenant != tenant || at.Run == "" || at.Subject != c.subject {
		return fmt.Errorf("asked for %+v", at)
	}
	return c.away
}

func (c *endCode) Emit(_ context.Context, e policy.Outgoing) error {
	if c.bus != nil {
		return c.bus
	}
	c.hear("told")
	c.ids = append(c.ids, e.ID)
	return nil
}

func (c *endCode) set() hook.Set {
	return hook.Set{
		Backends: map[string]hook.PermissionBackend{"book": c},
		Plugins: map[string]hook.Factory{"p": func(json.RawMessage) (hook.Plugin, error) {
			return hook.Plugin{RunEnd: func(_ context.Context, m *hook.Moment) error {
				c.hear("run_end")
				c.mu.Lock()
				defer c.mu.Unlock()
				c.seen = append(c.seen, *m.Run())
				m.Patch("/ended", true)
				return c.plug
			}}, nil
		}},
	}
}

// coded gives the agent code for the end of its runs, and a run of it that somebody waits for. The world's ports are a function's that has
// none of that code.
func (w *world) coded() *endCode { return w.codedFor("order 3") }

func (w *world) codedFor(subject string) *endCode {
	c := &endCode{subject: subject}
	w.def.Permission.Backend, w.def.Plugins = "book", []agent.PluginSpec{{Name: "p"}}
	w.ports.Emit = c
	w.startFor(subject)
	return c
}

// linked is a step function with the code.
func (w *world) linked(c *endCode, p runtime.Ports) *runtime.Stepper {
	p.Hooks = c.set()
	return &runtime.Stepper{Ports: p, Definitions: runtime.PinnedDefinitions(p.Blobs)}
}

// cleanUp is an invocation by the n-th execution that cleans up.
func (w *world) cleanUp(c *endCode, n int64) (runtime.Route, error) {
	inv := w.inv(0)
	inv.Execution = runtime.CleanupName(w.run, n)
	return w.linked(c, w.ports).Step(w.ctx, inv)
}

// cleanedUp is one that does.
func (w *world) cleanedUp(c *endCode, n int64) {
	w.t.Helper()
	require.NoError(w.t, errOf(w.cleanUp(c, n)))
}

// owed reports whether anything is owed behind the run's end.
func (w *world) owed() bool {
	w.t.Helper()
	p, err := w.counts.Query(w.ctx, store.Range{PK: "T#" + tenant + "#ENDS", Index: true})
	require.NoError(w.t, err)
	return len(p.Items) > 0
}

// cleaners are the executions that were started to clean up.
func (x *executions) cleaners() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	var names []string
	for _, name := range x.started {
		if strings.Contains(name, "-cleanup-") && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// endings are the ways in which a run is ended by somebody who has none of its code.
var endings = map[string]struct {
	before func(w *world)
	end    func(ctx context.Context, w *world, p runtime.Ports) error
}{
	"cancelled while it runs": {func(*world) {}, cancelBy},
	"cancelled while it waits": {func(w *world) {
		w.model.replies = []agent.Reply{calls("refund c1")}
		backends := map[string]hook.PermissionBackend{"book": unknowing{}}
		w.ports.Hooks = hook.Set{Backends: backends, Plugins: map[string]hook.Factory{"p": idle}}
		w.park(w.drive(0).Woken, 0, "token")
		w.ports.Hooks = hook.Set{}
	}, cancelBy},
	"given up": {func(w *world) {
		var events []run.Event
		for n := int64(1); n <= 100; n++ {
			events = append(events, run.HandedOver{Owner: runtime.ExecutionName(w.run, n)})
		}
		w.commit("w", events...)
		w.waiter.ended(w.owner)
		w.waiter.ended(w.state().Owner)
	}, func(ctx context.Context, w *world, p runtime.Ports) error {
		_, err := (&runtime.Sweeper{Ports: p, Definitions: runtime.PinnedDefinitions(p.Blobs)}).Repair(ctx, tenant, w.run)
		return err
	}},
}

// unknowing is a backend that knows nothing.
type unknowing struct{ hook.PermissionBackend }

func (unknowing) Get(context.Context, hook.PermissionContext, []hook.PermissionTool) (map[string]agent.Verdict, error) {
	return nil, nil
}

func idle(json.RawMessage) (hook.Plugin, error) { return hook.Plugin{}, nil }

func cancelBy(ctx context.Context, w *world, p runtime.Ports) error {
	_, err := (&runtime.Canceller{Ports: p, Definitions: runtime.PinnedDefinitions(p.Blobs)}).Cancel(ctx, tenant, w.run, "user:bob", "")
	return err
}

// A run that is ended from outside is cleaned up after, and its end is told after that, wherever whoever has a part in it dies; the run
// itself is not touched any more.
func TestEndsFromOutsideAreCleanedUp(t *testing.T) {
	for name, e := range endings {
		t.Run(name, func(t *testing.T) {
			play := func(p ...fault.Point) (calls []fault.Call) {
				inBubble(t, func(t *testing.T, w *world) {
					c := w.coded()
					e.before(w)
					calls = w.endedAndRepaired(c, e.end, p...)
				})
				return calls
			}
			calls := play()
			require.Greater(t, len(calls), 10)
			for _, c := range calls {
				for _, k := range fault.Crashes() {
					play(fault.Point{Call: c.Number, Kind: k})
					require.False(t, t.Failed(), "%s %v", k, c)
				}
			}
		})
	}
}

// endedAndRepaired ends the run with one fault at most, plays the state machine, and sweeps. Who ended the run comes back only if it has not
// ended.
func (w *world) endedAndRepaired(c *endCode, end func(context.Context, *world, runtime.Ports) error, points ...fault.Point) []fault.Call {
	t := w.t
	in := fault.New(clock.System(), points...)
	p := w.ports
	p.Table, p.Blobs = in.Table(w.counts), fault.NewBlobs(w.ports.Blobs, in.Do)
	p.Waiter, p.Emit = fault.NewWaiter(w.waiter, in.Do), fault.NewEmitter(c, in.Do)
	p.Journal = store.NewJournal(p.Table, 0)
	for w.state().Status != run.RunDone {
		in.Run(w.ctx, "end", func(ctx context.Context) { require.NoError(t, end(ctx, w, p)) })
	}
	ended := w.state()
	ran := map[string]bool{}
	for range 6 {
		for _, name := range w.waiter.cleaners() {
			if ran[name] {
				continue
			}
			ran[name] = true
			for tries, lived := 0, false; !lived && tries < 2; tries++ {
				lived = in.Run(w.ctx, "step", func(ctx context.Context) {
					r, err := w.linked(c, p).Step(ctx, runtime.Invocation{Tenant: tenant, Run: w.run, Execution: name, Writer: w.ids.Writer()})
					require.NoError(t, err)
					require.Equal(t, runtime.NextDone, r.Next)
				})
			}
			w.waiter.ended(name)
		}
		w.sleep(15 * time.Minute) // until the lease of a sweep that died is over
		in.Run(w.ctx, "sweep", func(ctx context.Context) {
			_, err := (&runtime.Sweep{
				Sweeper: &runtime.Sweeper{Ports: p, Definitions: w.pinned}, Tenants: w.ports.Blobs.(*store.MemoryBlobs), Executions: w.waiter,
			}).Run(ctx)
			require.NoError(t, err)
		})
	}
	require.False(t, w.owed())
	require.Equal(t, ended, w.state(), "the run is as it ended")
	require.Equal(t, []string{"run_end", "cleanup"}, c.heard[:2], "it is told behind that")
	require.NotEmpty(t, c.ids)
	require.Subset(t, []string{w.run + "#end"}, c.ids)
	for _, s := range c.seen {
		require.Equal(t, run.RunDone, s.Status)
	}
	require.LessOrEqual(t, len(w.waiter.cleaners()), 1)
	if len(points) == 0 {
		require.Len(t, c.heard, 3)
	}
	return in.Calls()
}

// Nobody but an execution of that name cleans up, and that one nothing but what is on record: it has no part in a run that is open, has ended
// by itself, or is cleaned up after; and neither a batch nor a failure is any business of it.
func TestOnlyCleanersCleanUp(t *testing.T) {
	idleWrites := func(t *testing.T, w *world, c *endCode, execution string) {
		t.Helper()
		before, heard := w.counts.Counts(), len(c.heard)
		p := w.ports
		p.Hooks = c.set()
		inv := w.inv(0)
		inv.Execution = execution
		r, err := w.linked(c, w.ports).Step(w.ctx, inv)
		require.NoError(t, err)
		require.Equal(t, runtime.NextDone, r.Next)
		r, err = (&runtime.Batch{Ports: p, Definitions: w.pinned}).Run(w.ctx, inv)
		require.NoError(t, err)
		require.Equal(t, runtime.NextDone, r.Next)
		r, err = w.linked(c, w.ports).Fail(w.ctx, inv, "gave up")
		require.NoError(t, err)
		require.Equal(t, runtime.NextFailed, r.Next)
		cost := w.counts.Counts().Sub(before)
		require.Zero(t, cost.Writes+cost.Transactions)
		require.Len(t, c.heard, heard)
	}
	inBubble(t, func(t *testing.T, w *world) {
		c := w.coded()
		idleWrites(t, w, c, runtime.CleanupName(w.run, 0))
		w.cancel()
		for _, name := range []string{
			"stranger", runtime.ExecutionName(w.run, 1), w.run + "-cleanup-", w.run + "-cleanup-x", w.run + "-cleanup--1", w.run + "-cleanup",
			runtime.CleanupName(w.run+"0", 0), "x" + runtime.CleanupName(w.run, 0),
		} {
			idleWrites(t, w, c, name)
			require.True(t, w.owed())
		}
		w.cleanedUp(c, 0)
		require.Equal(t, []string{"run_end", "cleanup", "told"}, c.heard)
		require.False(t, w.owed())
		idleWrites(t, w, c, runtime.CleanupName(w.run, 0))
		idleWrites(t, w, c, runtime.CleanupName(w.run, 1))
	})
	inBubble(t, func(t *testing.T, w *world) {
		c := w.coded()
		require.NoError(t, errOf(w.linked(c, w.ports).Step(w.ctx, w.inv(0))))
		require.Equal(t, []string{"run_end", "cleanup", "told"}, c.heard, "it ended by itself")
		require.JSONEq(t, `{"ended":true}`, string(w.state().Shared), "where the journal is open, what a plugin says is kept")
		require.False(t, w.owed())
		idleWrites(t, w, c, runtime.CleanupName(w.run, 0))
		w.cancel()
		require.Empty(t, w.waiter.cleaners())
	})
}

// The run's owner is the owner whatever it is called.
func TestOwnerCalledLikeACleaner(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		b := w.services()
		runID := agent.RunID(tenant, w.def.Name, "k1")
		r := w.request("Work.")
		r.Subject = "order 3"
		_, err := (&runtime.Starter{Ports: w.ports}).Create(w.ctx, r, runID, runtime.CleanupName(runID, 0))
		require.NoError(t, err)
		w.run, w.owner = runID, runtime.CleanupName(runID, 0)
		require.Equal(t, runtime.NextDone, w.drive(0).Next)
		require.Equal(t, run.ReasonNaturalEnd, w.state().Reason)
		require.Equal(t, runtime.NextDone, w.step(0).Next)
		require.Equal(t, []string{"#end", "#end"}, b.ids(), "who finds its run done says so")
	})
}

// An execution that dies in the code itself has told nobody of the end: the sweep does, before it starts another.
func TestCleanersThatDieDoNotHoldBackTheEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.coded()
		w.cancel()
		w.waiter.ended(runtime.CleanupName(w.run, 0))
		w.sleep(2 * time.Minute)
		c.bus = errBlown
		require.ErrorIs(t, w.sweepAll().Failed[0].Err, errBlown)
		require.Len(t, w.waiter.cleaners(), 1)
		c.bus = nil
		require.Equal(t, map[runtime.Repair]int64{runtime.RepairCleaning: 1}, w.sweepAll().Repaired)
		require.Equal(t, []string{"told"}, c.heard)
		w.cleanedUp(c, 1)
		require.Equal(t, []string{"told", "run_end", "cleanup"}, c.heard)
		require.False(t, w.owed())
	})
}

// All code is tried, whichever fails; an end that could not be told is owed on.
func TestCleaningUpTriesAll(t *testing.T) {
	for want, fail := range map[string]func(c *endCode) *error{
		"plugin p failed in run_end: connection reset": func(c *endCode) *error { return &c.plug },
		"connection reset": func(c *endCode) *error { return &c.bus },
	} {
		inBubble(t, func(t *testing.T, w *world) {
			c := w.coded()
			w.cancel()
			*fail(c) = errBlown
			require.ErrorContains(t, errOf(w.cleanUp(c, 0)), want)
			require.Equal(t, []string{"run_end", "cleanup"}, c.heard[:2])
			require.True(t, w.owed())
			*fail(c) = nil
			w.cleanedUp(c, 0)
			require.False(t, w.owed())
			require.Equal(t, 1, c.count("told"))
			require.Empty(t, w.state().Shared, "what a plugin says behind the end is dropped")
		})
	}
	subtest(t, "a plugin that is gone is missed, a backend is not", func(t *testing.T, w *world) {
		c := w.coded()
		w.cancel()
		inv := w.inv(0)
		inv.Execution = runtime.CleanupName(w.run, 0)
		p := w.ports
		step := func() error {
			linked := runtime.WithLinkedCode(w.pinned, p.Hooks)
			return errOf((&runtime.Stepper{Ports: p, Definitions: linked, Shown: w.pinned}).Step(w.ctx, inv))
		}
		p.Hooks = hook.Set{Backends: c.set().Backends}
		require.ErrorContains(t, step(), `clean up after the run: there is no plugin "p"`)
		require.Equal(t, []string{"cleanup", "told"}, c.heard)
		p.Hooks = hook.Set{Plugins: c.set().Plugins}
		require.NoError(t, step())
		require.False(t, w.owed())
	})
}

// Whoever cancels and could not start the execution is told, and may cancel again; cancelling again is harmless. An agent without such code
// costs no execution.
func TestCancelStartsTheCleaner(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.coded()
		w.waiter.onStart = func(string) error { return errBlown }
		require.ErrorIs(t, cancelBy(w.ctx, w, w.ports), errBlown)
		require.Contains(t, w.waiter.stopped, w.owner)
		w.waiter.onStart = nil
		w.cancel()
		require.Equal(t, []string{runtime.CleanupName(w.run, 0)}, w.waiter.cleaners())
		w.cancel()
		require.Len(t, w.waiter.cleaners(), 1)
		require.Empty(t, c.heard, "it is told when it is cleaned up after")
		w.cleanedUp(c, 0)
	})
	for _, here := range []bool{false, true} {
		inBubble(t, func(t *testing.T, w *world) {
			b := w.services()
			w.startFor("order 3")
			_, err := (&runtime.Canceller{Ports: w.ports, Definitions: w.pinned, CleansUp: here}).Cancel(w.ctx, tenant, w.run, "user:bob", "")
			require.NoError(t, err)
			require.Equal(t, []string{"#end"}, b.ids())
			require.Empty(t, w.waiter.cleaners())
			require.False(t, w.owed())
		})
	}
}

// What nobody waits for, and what there is no bus for, is cleaned up after like anything else.
func TestCleaningUpWhereNobodyWaits(t *testing.T) {
	for subject, bus := range map[string]bool{"": true, "order 3": false} {
		inBubble(t, func(t *testing.T, w *world) {
			c := w.codedFor(subject)
			if !bus {
				w.ports.Emit = nil
			}
			w.cancel()
			require.True(t, w.owed())
			w.cleanedUp(c, 0)
			require.Equal(t, []string{"run_end", "cleanup"}, c.heard)
			require.False(t, w.owed())
		})
	}
}

// The sweep leaves an execution that cleans up alone while it runs, and starts no second one beside that of somebody who
// repairs at the same time.
func TestSweepsAndCleaners(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.coded()
		w.cancel()
		w.sleep(time.Hour)
		require.Empty(t, w.sweepAll().Repaired)
		require.NotContains(t, w.waiter.stopped, runtime.CleanupName(w.run, 0))
		require.Equal(t, runtime.RepairNone, w.sweep())
		require.Empty(t, c.heard, "it is told when it is cleaned up after")
		w.waiter.ended(runtime.CleanupName(w.run, 0))
		counted := func(ops []store.Op) bool { _, ok := ops[0].Item.Attrs["tries"]; return ok }
		w.table.Once(meanwhile(counted, func() {
			require.NoError(t, w.sweeper().Sweeper.RepairEnds(w.ctx, tenant, nil))
			require.Len(t, w.waiter.cleaners(), 2)
		}))
		r := w.sweepAll()
		require.Empty(t, r.Repaired)
		require.Empty(t, r.Failed)
		require.Len(t, w.waiter.cleaners(), 2)

		w.waiter.ended(runtime.CleanupName(w.run, 1))
		w.sleep(time.Hour)
		w.table.Once(meanwhile(counted, func() {
			w.cleanedUp(c, 1) // started by hand
		}))
		require.Empty(t, w.sweepAll().Failed)
		require.Len(t, w.waiter.cleaners(), 2, "it is done")
		require.False(t, w.owed())
	})
}

// A process that has the code cleans up itself, by the same record; where that fails, an execution does. One that begins finds what was
// left.
func TestCleaningUpInTheSameProcess(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.coded()
		p := w.ports
		p.Hooks = c.set()
		here := &runtime.Canceller{Ports: p, Definitions: w.pinned, CleansUp: true}
		for range 2 {
			require.NoError(t, errOf(here.Cancel(w.ctx, tenant, w.run, "user:bob", "")))
			require.Empty(t, w.waiter.cleaners())
			require.False(t, w.owed())
		}
		require.Equal(t, 1, c.count("cleanup"))
		require.Equal(t, []string{"run_end", "cleanup", "told"}, c.heard[:3])
	})
	inBubble(t, func(t *testing.T, w *world) {
		c := w.coded()
		c.away = errors.New("away")
		var warned []string
		p := w.ports
		p.Hooks, p.Warn = c.set(), func(what string, err error) { warned = append(warned, what+": "+err.Error()) }
		_, err := (&runtime.Canceller{Ports: p, Definitions: w.pinned, CleansUp: true}).Cancel(w.ctx, tenant, w.run, "user:bob", "")
		require.NoError(t, err)
		require.Len(t, warned, 1)
		require.Contains(t, warned[0], "away")
		require.Equal(t, []string{runtime.CleanupName(w.run, 0)}, w.waiter.cleaners())
		c.away = nil
		w.waiter.ended(runtime.CleanupName(w.run, 0))
		require.NoError(t, (&runtime.Sweeper{Ports: p, Definitions: w.pinned}).RepairEnds(w.ctx, tenant, nil))
		require.Equal(t, runtime.CleanupName(w.run, 1), w.waiter.started[len(w.waiter.started)-1])
		w.cleanedUp(c, 1)
		require.False(t, w.owed())
	})
}

// TestRequestsOfAnEndedRunAreClosed: whoever ends a run may die before its requests are closed. The sweep closes
// them, and so does whoever decides one, who is told that the run has ended.
func TestRequestsOfAnEndedRunAreClosed(t *testing.T) {
	ended := func(t *testing.T, w *world) (request string) {
		t.Helper()
		w.parked("k")
		request = w.call("c1").Wait.Approval
		c := &runtime.Canceller{Ports: w.ports, Definitions: w.pinned}
		_, err := c.Cancel(w.ends(entry("finished")), tenant, w.run, "user:ana", "")
		require.Error(t, err, "it died behind the end")
		require.Equal(t, run.RunDone, w.state().Status)
		require.Equal(t, approval.Pending, w.approval(request).Status)
		return request
	}
	subtest(t, "by the sweep", func(t *testing.T, w *world) {
		request := ended(t, w)
		w.sleep(2 * time.Minute)
		require.EqualValues(t, 1, w.sweepAll().Repaired[runtime.RepairClosed])
		require.Equal(t, approval.Cancelled, w.approval(request).Status)
		w.sleep(2 * time.Minute)
		require.Empty(t, w.sweepAll().Repaired, "nothing is left")
	})
	subtest(t, "by a second cancel", func(t *testing.T, w *world) {
		request := ended(t, w)
		require.NoError(t, cancelBy(w.ctx, w, w.ports))
		require.Equal(t, approval.Cancelled, w.approval(request).Status)
		w.sleep(2 * time.Minute)
		require.Zero(t, w.sweepAll().Repaired[runtime.RepairClosed])
	})
	subtest(t, "by a decision", func(t *testing.T, w *world) {
		request := ended(t, w)
		for _, a := range []approval.Action{approval.Approve, approval.Deny} {
			_, err := w.desk().Decide(w.ctx, approval.DecisionInput{Tenant: tenant, ID: request, Action: a, By: ana})
			require.Error(t, err)
			if a == approval.Approve {
				require.ErrorIs(t, err, approval.ErrFinished)
			}
			require.Equal(t, approval.Cancelled, w.approval(request).Status)
		}
	})
}
