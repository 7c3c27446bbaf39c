package long

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/asl"
	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/workload"
)

// disturbed is a table whose n-th request something happens at.
type disturbed struct {
	*fault.Table
	at   int // 0 = nothing happens
	what disturbance

	mu   sync.Mutex
	n    int
	dead bool
	kill func()
	also func() // before that request
}

// disturbance is what happens at a request.
type disturbance string

const (
	crashBefore disturbance = "crash before"
	crashAfter  disturbance = "crash after"
	refused     disturbance = "refused"
	lost        disturbance = "executed, answer lost"
	beside      disturbance = "somebody acts"
)

var errDisturbed = errors.New("the table did not answer")

// over puts what happens before the requests of a table.
func (d *disturbed) over(t store.Table) {
	d.Table = fault.NewTable(t)
	d.Use(d.around)
}

// around makes one request.
func (d *disturbed) around(_ context.Context, _ fault.Call, do func() error) error {
	d.mu.Lock()
	d.n++
	hit := d.n == d.at
	dead := d.dead
	if hit && (d.what == crashBefore || d.what == crashAfter) {
		d.dead = true
	}
	d.mu.Unlock()
	if dead {
		return errDisturbed
	}
	if !hit {
		return do()
	}
	switch d.what {
	case crashBefore:
		d.kill()
		return errDisturbed
	case crashAfter:
		err := do()
		d.kill()
		return errors.Join(err, errDisturbed)
	case refused:
		return errDisturbed
	case lost:
		return errors.Join(do(), errDisturbed)
	default:
		d.also()
		return do()
	}
}

func tableOf(t *testing.T, items []store.Item) *store.Memory {
	t.Helper()
	table := store.NewMemory()
	for _, it := range items {
		require.NoError(t, table.Write(t.Context(), store.Op{Kind: store.Put, Item: it}))
	}
	return table
}

// eve is a run that is about to hand over: its process has died a few entries before.
type eve struct {
	items []store.Item
	blobs *store.MemoryBlobs
	run   string
	tool  string
	n     int // iterations of the whole run
}

// limit is how many entries an execution owns before it hands over, and left how many of them are left.
const (
	limit = 750
	left  = 5
)

// eves are the runs that were made, by tool: tests continue copies of them.
var eves = map[string]eve{}

func newEve(t *testing.T, toolName string) eve {
	t.Helper()
	if e, ok := eves[toolName]; ok {
		return e
	}
	const perIteration = 2
	table := store.NewMemory()
	e := eve{blobs: store.NewMemoryBlobs(), tool: toolName, n: limit/perIteration + 4}
	var l *lab
	var once sync.Once
	stopped := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	worked := make(chan error, 1)
	m := workload.Model{N: e.n, Tool: toolName, Seen: func(r agent.Request) {
		if l.state(t, r.Run).Entries < int64(limit-left-perIteration) { // not by inferences: a wake-up that comes late adds an entry
			return
		}
		once.Do(func() {
			cancel()
			if err := <-worked; err != nil { // a decision on a run whose engine is dead would begin the next execution
				t.Logf("the end of the process met a decision: %v", err)
			}
			l.Engine.Kill()
			close(stopped)
		})
	}}
	o := newOperator(approval.Deny)
	l = newLab(t, setup{table: table, blobs: e.blobs, model: m, define: small, warm: 1, sink: o})
	go func() { worked <- o.work(ctx, l) }()
	e.run = l.start(t, "eve").Run
	<-stopped
	_ = l.Engine.Close()
	e.items = table.All()
	require.EqualValues(t, 0, l.state(t, e.run).Generation)
	require.Greater(t, l.state(t, e.run).Entries, int64(limit-4*left))
	eves[toolName] = e
	return e
}

// day goes on with the run while something happens at one request, and again in another process where this one dies. It returns how many
// requests the first process made.
func (e eve) day(t *testing.T, d *disturbed, act func(t *testing.T, l *lab)) (requests int, l *lab) {
	t.Helper()
	table := tableOf(t, e.items)
	d.over(table)
	l = e.process(t, d)
	d.kill = l.Engine.Kill
	acted := make(chan struct{})
	d.also = func() { // until they are through, or wait for whoever makes this request
		go func() {
			defer close(acted)
			act(t, l)
		}()
		require.NoError(t, l.Ports.Clock.Sleep(t.Context(), time.Millisecond))
	}
	e.finish(t, l, d)
	if d.what == beside {
		<-acted
	}
	d.calm()
	if d.hasDied() {
		l = e.process(t, table)
		e.finish(t, l, &disturbed{Table: fault.NewTable(table)})
	}
	return d.n, l
}

func (e eve) process(t *testing.T, table store.Table) *lab {
	t.Helper()
	return newLab(t, setup{table: table, blobs: e.blobs, model: workload.Model{N: e.n, Tool: e.tool}, define: small, warm: 1})
}

// hasDied reports whether the process has died.
func (d *disturbed) hasDied() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.dead
}

// calm lets nothing happen any more.
func (d *disturbed) calm() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.at = 0
}

// finish is a process: it resumes what there is, somebody denies whatever is asked, and a sweep comes by every minute, until the run has ended
// and no execution is left, or until the process dies.
func (e eve) finish(t *testing.T, l *lab, d *disturbed) {
	t.Helper()
	for !d.hasDied() { // a process that cannot take up what there is ends, and is started again
		err := l.Resume(t.Context(), local.Tenant)
		if err == nil {
			break
		}
		requireExcused(t, err)
	}
	for range 200 {
		synctest.Wait()
		if d.hasDied() {
			break
		}
		if e.ended(t, d.Table.Table) && len(l.Engine.List(t.Context(), asl.Running)) == 0 {
			require.NoError(t, l.Engine.Close())
			return
		}
		if !e.deny(t, l) {
			require.NoError(t, l.Ports.Clock.Sleep(t.Context(), time.Minute))
			if _, err := l.Sweeper.Repair(t.Context(), local.Tenant, e.run); err != nil {
				requireExcused(t, err)
			}
		}
	}
	require.True(t, d.hasDied(), "the run stands still")
	_ = l.Engine.Close()
}

// requireExcused: what somebody met is what happened to the process, or that the run was cancelled meanwhile.
func requireExcused(t *testing.T, err error) {
	t.Helper()
	_, ok := errors.AsType[*approval.DecidedError](err)
	for _, excuse := range []error{errDisturbed, asl.ErrClosed, approval.ErrFinished} {
		ok = ok || errors.Is(err, excuse)
	}
	require.True(t, ok, "%v", err)
}

// ended reports whether the run has, as whom nothing happens to sees it.
func (e eve) ended(t *testing.T, table store.Table) bool {
	t.Helper()
	h, err := store.NewJournal(table, 0).Head(t.Context(), local.Tenant, e.run)
	require.NoError(t, err)
	return h.Status == run.RunDone
}

// deny denies what is asked, and says whether anything was.
func (e eve) deny(t *testing.T, l *lab) bool {
	t.Helper()
	asked, _, err := approval.List(t.Context(), l.table, local.Tenant, approval.Query{Status: approval.Pending})
	if err != nil {
		requireExcused(t, err)
		return false
	}
	for _, a := range asked {
		if _, err := l.Desk.Decide(t.Context(), approval.DecisionInput{Tenant: local.Tenant, ID: a.ID, Action: approval.Deny, By: ana}); err != nil {
			requireExcused(t, err)
			return false
		}
	}
	return len(asked) > 0
}

// assertContinued: the run has ended as it should, one execution for each owner, and none that runs on.
func (e eve) assertContinued(t *testing.T, l *lab) run.AgentState {
	t.Helper()
	s := l.state(t, e.run)
	require.Equal(t, run.RunDone, s.Status)
	require.GreaterOrEqual(t, s.Generation, int64(1))
	require.LessOrEqual(t, s.Generation, int64(2), "a crash costs a take-over at most")
	require.Len(t, l.Engine.List(t.Context(), ""), int(s.Generation)+1)
	for g := range s.Generation + 1 {
		require.True(t, hasExecution(l, fmt.Sprintf("%s-%d", e.run, g)))
	}
	entries, err := l.Ports.Journal.Entries(t.Context(), local.Tenant, e.run, 0, 0)
	require.NoError(t, err)
	handed, inferences := 0, 0
	for i, entry := range entries {
		require.EqualValues(t, i, entry.Seq)
		for _, fact := range entry.Events {
			switch fact := fact.(type) {
			case run.HandedOver:
				handed++
				require.Equal(t, runtime.ExecutionName(e.run, int64(handed)), fact.Owner)
			case run.Replied:
				inferences++
			}
		}
	}
	require.EqualValues(t, s.Generation, handed)
	require.EqualValues(t, s.Inferences, inferences)
	require.LessOrEqual(t, s.OwnedSince, int64(limit+left), "it handed over in time, the first time")
	return s
}

// TestHandOverUnderFaults: whatever happens to one request around a hand-over, the run goes on in its successor, started once.
func TestHandOverUnderFaults(t *testing.T) {
	for _, tool := range []string{"work_read", "work_pay"} {
		t.Run(tool, func(t *testing.T) {
			e := newEve(t, tool)
			points := 0
			synctest.Test(t, func(t *testing.T) {
				n, l := e.day(t, &disturbed{}, nil)
				points = n
				s := e.assertContinued(t, l)
				require.Equal(t, run.ReasonNaturalEnd, s.Reason)
				require.EqualValues(t, 1, s.Generation)
			})
			runs := 0
			for _, what := range []disturbance{crashBefore, crashAfter, refused, lost} {
				for at := 1; at <= points; at += sized(101, 1) {
					runs++
					synctest.Test(t, func(t *testing.T) {
						_, l := e.day(t, &disturbed{what: what, at: at}, nil)
						s := e.assertContinued(t, l)
						require.Equal(t, run.ReasonNaturalEnd, s.Reason, "%s at %d", what, at)
						require.EqualValues(t, e.n+1, s.Inferences, "%s at %d", what, at)
					})
				}
			}
			t.Logf("%d requests around the hand-over, %d runs with a fault at one of them", points, runs)
		})
	}
}

// TestHandOverMeetsOthers: a zombie of the former owner, a message and a cancel at every request around a hand-over.
func TestHandOverMeetsOthers(t *testing.T) {
	said := []run.UserBlock{{Block: run.Text{Text: "By the way."}}}
	for name, c := range map[string]struct {
		act    func(t *testing.T, l *lab, run string)
		assert func(t *testing.T, s run.AgentState, l *lab)
	}{
		"zombie": {
			func(t *testing.T, l *lab, run string) {
				step := runtime.Stepper{Ports: l.Ports, Definitions: l.Definitions}
				_, _ = step.Step(t.Context(), runtime.Invocation{Tenant: local.Tenant, Run: run, Execution: runtime.ExecutionName(run, 0), Writer: l.Ports.IDs.Writer()})
			},
			func(t *testing.T, s run.AgentState, _ *lab) { require.Equal(t, run.ReasonNaturalEnd, s.Reason) },
		},
		"message": {
			func(t *testing.T, l *lab, run string) {
				err := l.Inputs.Send(t.Context(), local.Tenant, run, "m-1", "user:ana", said)
				if !errors.Is(err, runtime.ErrRunFinished) {
					require.NoError(t, err)
					require.NoError(t, l.Inputs.Send(t.Context(), local.Tenant, run, "m-1", "user:ana", said), "the same again")
				}
			},
			func(t *testing.T, s run.AgentState, l *lab) {
				require.Equal(t, run.ReasonNaturalEnd, s.Reason)
				require.LessOrEqual(t, l.heard(t, s.Run, "By the way."), 1)
				require.EqualValues(t, l.heard(t, s.Run, "By the way."), l.accepted(t, s.Run, "m-1"), "accepted is applied, once")
			},
		},
		"cancel": {
			func(t *testing.T, l *lab, run string) {
				_, err := l.Canceller.Cancel(t.Context(), local.Tenant, run, "user:ana", "enough")
				require.NoError(t, err)
			},
			func(t *testing.T, s run.AgentState, _ *lab) {
				require.Contains(t, []run.Reason{run.ReasonCancelled, run.ReasonNaturalEnd}, s.Reason)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, tool := range []string{"work_read", "work_pay"} {
				e := newEve(t, tool)
				points := 0
				synctest.Test(t, func(t *testing.T) { points, _ = e.day(t, &disturbed{}, nil) })
				for at := 1; at <= points; at += sized(193, 3) {
					synctest.Test(t, func(t *testing.T) {
						_, l := e.day(t, &disturbed{what: beside, at: at}, func(t *testing.T, l *lab) { c.act(t, l, e.run) })
						s := l.state(t, e.run)
						if s.Reason != run.ReasonCancelled {
							s = e.assertContinued(t, l)
						}
						c.assert(t, s, l)
						require.Empty(t, l.Engine.List(t.Context(), asl.Running))
					})
				}
				t.Logf("%s: %s at each of %d requests", tool, name, points)
			}
		})
	}
}

// heard is how often a user's text came into the run.
func (l *lab) heard(t *testing.T, runID, text string) int {
	t.Helper()
	n := 0
	entries, err := l.Ports.Journal.Entries(t.Context(), local.Tenant, runID, 0, 0)
	require.NoError(t, err)
	for _, e := range entries {
		for _, fact := range e.Events {
			if in, ok := fact.(run.InputReceived); ok && in.Blocks[0].Block == (run.Text{Text: text}) {
				n++
			}
		}
	}
	return n
}

// accepted is whether the inbox has taken an input of that id.
func (l *lab) accepted(t *testing.T, run, id string) int {
	t.Helper()
	p, err := l.table.Query(t.Context(), store.Range{PK: "T#" + local.Tenant + "#RUN#" + run, From: "I#", To: "I#\uffff"})
	require.NoError(t, err)
	n := 0
	for _, it := range p.Items {
		if strings.HasSuffix(it.SK, id) {
			n++
		}
	}
	return n
}
