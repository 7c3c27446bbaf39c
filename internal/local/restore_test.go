package local

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/asl"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/ids"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/store/memory"
	"github.com/countersign/countersign/internal/tool"
)

// tape is a table that remembers every write, so that a copy as of any of them can take its place.
type tape struct {
	mu    sync.Mutex
	table store.Table
	log   [][]store.Op
}

func (t *tape) now() store.Table {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.table
}

func (t *tape) Get(ctx context.Context, k store.Key) (store.Item, bool, error) {
	return t.now().Get(ctx, k)
}

func (t *tape) Query(ctx context.Context, r store.Range) (store.Page, error) {
	return t.now().Query(ctx, r)
}

func (t *tape) Write(ctx context.Context, ops ...store.Op) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	err := t.table.Write(ctx, ops...)
	if err == nil {
		t.log = append(t.log, ops)
	}
	return err
}

// restore puts the table back to what it was after n writes.
func (t *tape) restore(tb testing.TB, n int) {
	tb.Helper()
	t.mu.Lock()
	defer t.mu.Unlock()
	older := memory.New()
	for _, ops := range t.log[:n] {
		require.NoError(tb, older.Write(context.Background(), ops...))
	}
	t.table, t.log = older, t.log[:n]
}

// spender is a model that has three payments made: two that people are asked about, one beside a letter, and one that the agent's rules allow.
type spender struct{}

func (spender) Generate(_ context.Context, r agent.Request) (agent.Reply, error) {
	call := func(id, name string) agent.ReplyCall {
		return agent.ReplyCall{ID: id, Name: name, Input: json.RawMessage(`{}`)}
	}
	switch r.Inference {
	case 1:
		return agent.Reply{Model: "m", Calls: []agent.ReplyCall{call("c1", "wire")}}, nil
	case 2:
		return agent.Reply{Model: "m", Calls: []agent.ReplyCall{call("c2", "pay")}}, nil
	case 3:
		return agent.Reply{Model: "m", Calls: []agent.ReplyCall{call("c3", "pay"), call("c4", "wire")}}, nil
	default:
		return agent.Reply{Model: "m", Text: "Paid."}, nil
	}
}

// drill is a deployment whose table is restored. Its executions are in another service, which is not.
type drill struct {
	*Machine
	t      *testing.T
	table  *tape
	blobs  *memory.Blobs
	config Config
	run    string
	def    agent.Definition

	again    Invoker // a function, without the machine
	mu       sync.Mutex
	paid     map[string]int // how often each call was carried out
	payloads [][2]string    // function and payload of every invocation
}

func newDrill(t *testing.T) *drill {
	d := &drill{t: t, table: &tape{table: memory.New()}, blobs: memory.NewBlobs(), paid: map[string]int{}}
	works := func(name string) tool.Tool {
		return tool.Must(tool.New(name, "Pays.", agent.EffectNonIdempotent, func(_ context.Context, c tool.Call, _ struct{}) (agent.ToolResultData, error) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.paid[c.ID]++
			return tool.Text("paid"), nil
		}, nil))
	}
	pay, wire := works("pay"), works("wire")
	set, err := tool.NewSet(pay, wire)
	require.NoError(t, err)
	d.def, err = agent.PresetDefaults(agent.PresetCountersign)
	require.NoError(t, err)
	d.def.Name, d.def.System, d.def.Tools = "payer", "You pay.", []agent.ToolSpec{pay.Spec(), wire.Spec()}
	d.def.Model.Provider, d.def.Model.ID = "demo", "m"
	d.def.Permission.Rules = []agent.Rule{{Tool: "wire", Verdict: agent.VerdictAllow}}
	d.def.Guards.DuplicateCalls = false
	c := clock.System()
	d.config = Config{
		Table: d.table, Blobs: d.blobs, Model: spender{}, Tools: set, Agents: func(string) (*agent.Definition, bool) { return nil, false },
		Clock: c, IDs: ids.Seeded(c, 1), Executions: &asl.MemoryStore{}, Warm: 8,
		Wrap: func(next Invoker) Invoker {
			d.again = next
			return func(ctx context.Context, function string, payload []byte) ([]byte, error) {
				d.mu.Lock()
				d.payloads = append(d.payloads, [2]string{function, string(payload)})
				d.mu.Unlock()
				return next(ctx, function, payload)
			}
		},
	}
	d.Machine, err = New(d.config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Engine.Close()) })
	return d
}

// start starts the run, as often as a client does.
func (d *drill) start() {
	d.t.Helper()
	s, err := d.Starter.Start(d.t.Context(), runtime.Start{
		Tenant: Tenant, Agent: &d.def, Key: "k", Message: []agent.UserBlock{{Block: agent.Text{Text: "Pay."}}},
	})
	require.NoError(d.t, err)
	d.run = s.Run
}

// approve has people approve what they are asked, until the run rests; times bounds how often.
func (d *drill) approve(times int) {
	d.t.Helper()
	for range times {
		synctest.Wait()
		asked, _, err := approval.List(d.t.Context(), d.table, Tenant, approval.Pending, 10, "")
		require.NoError(d.t, err)
		for _, a := range asked {
			if a.Kind == approval.KindOutcome { // the bank says that it was
				_, err = d.Desk.Settle(d.t.Context(), approval.Outcome{Tenant: Tenant, Run: a.Run, Call: a.Call(), Content: "paid", By: operator})
			} else {
				_, err = d.Desk.Decide(d.t.Context(), approval.Request{Tenant: Tenant, ID: a.ID, Action: approval.Approve, By: operator})
			}
			require.NoError(d.t, err)
		}
	}
	synctest.Wait()
}

// loseExecutions goes on with a state machine that has none.
func (d *drill) loseExecutions() {
	d.t.Helper()
	require.NoError(d.t, d.Engine.Close())
	d.config.Executions = &asl.MemoryStore{}
	var err error
	d.Machine, err = New(d.config)
	require.NoError(d.t, err)
}

func (d *drill) sweeper() *runtime.Sweeper {
	return &runtime.Sweeper{Ports: d.Ports, Definitions: d.Definitions}
}

// mark is what the operator types, where executions may prove something or are not to be relied on.
func (d *drill) mark(copied time.Time, kept bool) runtime.Mark {
	d.t.Helper()
	r := runtime.Restore{Sweeper: d.sweeper(), Tenants: d.blobs}
	if kept {
		r.Tokens = tokens{d}
	}
	m, err := r.Mark(d.t.Context(), copied, "user:op")
	require.NoError(d.t, err)
	require.True(d.t, m.Complete)
	return m
}

// tokens are those of executions that were not restored.
type tokens struct{ *drill }

// Waits implements runtime.Tokens.
func (d tokens) Waits(ctx context.Context, token string) (bool, error) {
	err := d.Engine.SendTaskHeartbeat(ctx, token)
	if refused(err, asl.TaskTimedOut) || refused(err, asl.TaskDoesNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Running implements runtime.Executions.
func (d *drill) Running(ctx context.Context, _ string) (page []runtime.Execution, next string, err error) {
	for _, x := range d.Engine.List(ctx, asl.Running) {
		page = append(page, runtime.Execution{Name: x.Name, Started: x.StartDate})
	}
	return page, "", nil
}

// Input implements runtime.Executions.
func (d *drill) Input(ctx context.Context, name string) ([]byte, bool, error) {
	x, err := d.Engine.Describe(ctx, executionARN+name)
	if refused(err, asl.ExecutionDoesNotExist) {
		return nil, false, nil
	}
	return x.Input, err == nil, err
}

// sweep sweeps for some days.
func (d *drill) sweep(days int) (repaired map[runtime.Repair]int64) {
	d.t.Helper()
	repaired = map[runtime.Repair]int64{}
	s := runtime.Sweep{Sweeper: d.sweeper(), Tenants: d.blobs, Executions: d, Tokens: tokens{d}}
	for range days * 10 {
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		r, err := s.Run(d.t.Context())
		require.NoError(d.t, err)
		require.Empty(d.t, r.Failed)
		for kind, n := range r.Repaired {
			repaired[kind] += n
		}
	}
	synctest.Wait()
	return repaired
}

// redeliver hands every invocation that there was to its function once more. What they answer is for executions that do not wait for it.
func (d *drill) redeliver(payloads [][2]string) {
	d.t.Helper()
	for _, p := range payloads {
		_, _ = d.again(d.t.Context(), p[0], []byte(p[1]))
	}
	synctest.Wait()
}

func (d *drill) state() agent.AgentState {
	d.t.Helper()
	l, err := store.NewJournal(d.table, 0).Load(d.t.Context(), Tenant, d.run)
	require.NoError(d.t, err)
	return l.State
}

// unread reports whether the run waits although something has come for it.
func (d *drill) unread() bool {
	d.t.Helper()
	l, err := store.NewJournal(d.table, 0).Load(d.t.Context(), Tenant, d.run)
	require.NoError(d.t, err)
	return l.State.Status == agent.RunWaiting && len(l.Inbox) > 0
}

func (d *drill) ledger() map[string]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := map[string]int{}
	for id, n := range d.paid {
		out[id] = n
	}
	return out
}

// operator may approve calls of the agent.
var operator = agent.Principal{ID: "user:op", Groups: []string{"group:operators"}}

var once = map[string]int{"c1": 1, "c2": 1, "c3": 1, "c4": 1}

// whole plays the run to its end and gives how many writes that took, and how many until the run was there.
func (d *drill) whole() (writes int) {
	d.start()
	d.approve(6)
	require.Equal(d.t, agent.RunDone, d.state().Status)
	require.Equal(d.t, once, d.ledger())
	return len(d.table.log)
}

// everyCopy plays a run to its end, and the drill for a copy of every moment of it.
func everyCopy(t *testing.T, f func(t *testing.T, d *drill, copied time.Time)) {
	t.Helper()
	writes := 0
	synctest.Test(t, func(t *testing.T) { writes = newDrill(t).whole() })
	require.Greater(t, writes, 12)
	for n := 1; n < writes; n++ {
		t.Run(fmt.Sprintf("copy %d of %d", n, writes), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDrill(t)
				d.start()
				copied := time.Now()
				d.approve(6)
				require.Equal(t, writes, len(d.table.log))
				time.Sleep(time.Hour)
				d.table.restore(t, n)
				f(t, d, copied)
			})
		})
	}
}

// TestRestoreMarked is the drill of docs/deploy.md: whatever moment the copy is of, and whether the executions are there or not, no payment
// is made a second time by sweeps, by executions that go on, by clients who start the run again, or by any invocation that comes once more.
func TestRestoreMarked(t *testing.T) {
	for _, kept := range []bool{true, false} {
		t.Run(fmt.Sprintf("executions kept %t", kept), func(t *testing.T) {
			everyCopy(t, func(t *testing.T, d *drill, copied time.Time) {
				before := d.ledger()
				payloads := slices.Clone(d.payloads)
				if !kept {
					d.loseExecutions()
				}
				m := d.mark(copied, kept)
				require.EqualValues(t, 1, m.Quarantined)
				d.start()
				d.redeliver(payloads)
				require.Empty(t, d.sweep(1)[runtime.RepairTookOver])
				require.Equal(t, before, d.ledger(), "nothing by itself")
				s := d.state()
				require.Equal(t, agent.RunWaiting, s.Status)
				require.NotNil(t, s.Quarantine)
				require.Equal(t, agent.QuarantineMarked, s.Quarantine.Why)
				require.True(t, copied.Equal(s.Quarantine.Copied))
				again := d.mark(copied, kept)
				require.Equal(t, m, again, "the same word again does nothing")

				d.approve(3)
				require.Equal(t, before, d.ledger(), "decisions alone do not let it go on")
				r := &runtime.Releaser{Ports: d.Ports, Waits: d.Waits, Definitions: d.Definitions}
				require.ErrorIs(t, r.Release(t.Context(), Tenant, d.run, agent.Principal{ID: "user:bob"}, ""), runtime.ErrMayNotRelease)
				require.NoError(t, r.Release(t.Context(), Tenant, d.run, operator, "the bank has none of it"))
				d.approve(6)
				require.ErrorIs(t, r.Release(t.Context(), Tenant, d.run, operator, ""), runtime.ErrNotQuarantined)
				require.Equal(t, agent.RunDone, d.state().Status, "a person has it go on")
				require.Empty(t, d.sweep(1))
			})
		})
	}
}

// TestRestoreUnmarked: where nobody says that the table was restored, executions do, as far as they are there: the one that owns the run has ended
// well, or knows of entries that are not in the journal, or is one that no entry names.
func TestRestoreUnmarked(t *testing.T) {
	everyCopy(t, func(t *testing.T, d *drill, _ time.Time) {
		before := d.ledger()
		d.start()
		repaired := d.sweep(2)
		require.Equal(t, before, d.ledger(), "nothing by itself")
		require.NotNil(t, d.state().Quarantine)
		require.Equal(t, map[runtime.Repair]int64{runtime.RepairQuarantined: 1}, repaired)
		require.Empty(t, d.sweep(1), "once")
		s, err := d.Canceller.Cancel(t.Context(), Tenant, d.run, operator.ID, "it was paid before the restore")
		require.NoError(t, err)
		require.Equal(t, agent.ReasonCancelled, s.Reason)
		d.sweep(1)
		require.Equal(t, before, d.ledger(), "a person ends it")
		require.Nil(t, d.state().Error)
	})
}

// TestRestoreUnderWay: the table is restored while the run waits for its second decision. Whatever its execution does next, it knows of more than the
// copy has; one that has not moved since the copy goes on as if nothing had been.
func TestRestoreUnderWay(t *testing.T) {
	for _, marked := range []bool{true, false} {
		writes := 0
		synctest.Test(t, func(t *testing.T) {
			d := newDrill(t)
			d.start()
			d.approve(1)
			writes = len(d.table.log)
		})
		for n := 1; n <= writes; n++ {
			t.Run(fmt.Sprintf("marked %t copy %d of %d", marked, n, writes), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					d := newDrill(t)
					d.start()
					d.approve(1)
					waits := d.state()
					require.Equal(t, agent.RunWaiting, waits.Status)
					before := d.ledger()
					require.Equal(t, map[string]int{"c1": 1, "c2": 1, "c4": 1}, before)
					time.Sleep(time.Hour)
					d.table.restore(t, n)
					if marked {
						m := d.mark(time.Now().Add(-time.Hour), true)
						require.Equal(t, n == writes, m.Untouched == 1, "the token of the very wait is stored in the last write")
					}
					if n == writes {
						require.Nil(t, d.state().Quarantine, "nothing was lost")
						d.approve(4)
						require.Equal(t, once, d.ledger())
						require.Equal(t, agent.RunDone, d.state().Status)
						return
					}
					copied := d.state()
					unread, behind := d.unread(), copied.Seq() < waits.Seq()
					d.sweep(3)
					if unread && !marked { // it looks like a run whose wake-up was lost: only the operator's word can tell the two apart
						require.NotEqual(t, before, d.ledger())
						return
					}
					require.Equal(t, before, d.ledger(), "nothing by itself")
					if behind || marked {
						require.NotNil(t, d.state().Quarantine)
					}
				})
			})
		}
	}
}
