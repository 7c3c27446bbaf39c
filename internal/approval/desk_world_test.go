package approval_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/ids"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/store/memory"
	"github.com/countersign/countersign/internal/tool"
	"github.com/countersign/countersign/internal/tools/schema"
)

const tenant = "acme"

var (
	ana      = policy.Principal{ID: "user:ana", Groups: []string{"group:operators"}}
	ben      = policy.Principal{ID: "user:ben", Groups: []string{"group:operators"}}
	boss     = policy.Principal{ID: "user:boss", Groups: []string{"group:operators", "group:bosses"}}
	stranger = policy.Principal{ID: "user:eve", Groups: []string{"group:guests"}}
	errBlown = errors.New("connection reset")
)

// room is a run that asks for refunds, the desk where people decide about them, and the runtime that carries them out.
type room struct {
	t       *testing.T
	ctx     context.Context
	table   *table
	ports   runtime.Ports
	def     *agent.Definition // as the run is pinned to it; a test may tamper with it
	refund  *refund
	replies []agent.Reply
	asked   []agent.Request
	woken   []string
	run     string
	wakeErr error
	by      []string          // who starts the run
	subject string            // whom it is about
	current *agent.Definition // what the deployment says now of its agents; nil = nobody knows
}

const args = `{"amount":100,"to":"ana@example.com"}`

// inBubble runs a test in a synctest bubble with a run that is parked on its call c1, a refund with args.
func inBubble(t *testing.T, f func(t *testing.T, r *room)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRoom(t)
		r.start(args)
		f(t, r)
	})
}

func newRoom(t *testing.T) *room {
	c := clock.System()
	r := &room{t: t, ctx: context.Background(), table: &table{Table: memory.New()}, refund: &refund{}}
	d, err := agent.PresetDefaults(agent.PresetCountersign)
	require.NoError(t, err)
	d.Name, d.System = "clerk", "You work."
	d.Model.Provider, d.Model.ID = "demo", "m"
	d.Tools = []agent.ToolSpec{{
		Name: "refund", Kind: agent.KindInternal, Description: "Pays back.", Effect: run.EffectNonIdempotent, Timeout: time.Minute,
		Schema: json.RawMessage(`{"type":"object","properties":{"amount":{"type":"number","minimum":0},"to":{"type":"string"}},"required":["amount","to"]}`),
	}}
	d.Permission.Rules = []agent.Rule{
		{Tool: "refund", Verdict: agent.VerdictDeny, When: []run.Condition{{Path: "/amount", Gt: json.RawMessage("10000")}}},
		{Tool: "refund", Verdict: agent.VerdictAsk, Approvers: []string{"group:bosses"}, When: []run.Condition{{Path: "/amount", Gt: json.RawMessage("1000")}}},
	}
	require.NoError(t, d.Check())
	r.def = &d
	r.ports = runtime.Ports{
		Table: r.table, Journal: store.NewJournal(r.table, 0), Blobs: memory.NewBlobs(), Model: r, Tools: r,
		Valid: schema.Validate, Waiter: r, Clock: c, IDs: ids.Seeded(c, 1),
	}
	return r
}

func (r *room) start(args string, change ...func()) {
	r.t.Helper()
	r.begin(args, change...)
	require.Equal(r.t, runtime.NextWait, r.drive(0).Next)
}

// begin starts the run and does none of its steps.
func (r *room) begin(args string, change ...func()) {
	r.t.Helper()
	r.replies = []agent.Reply{{Calls: []agent.ReplyCall{{ID: "c1", Name: "refund", Input: json.RawMessage(args)}}}}
	for _, f := range change {
		f()
	}
	s, err := (&runtime.Starter{Ports: r.ports}).Start(r.ctx, runtime.Start{
		Tenant: tenant, Agent: r.def, Key: "k", Message: []run.UserBlock{{Block: run.Text{Text: "Pay Ana back."}}},
		By: r.by, Subject: r.subject,
	})
	require.NoError(r.t, err)
	r.run = s.Run
}

// pinned gives the definition as it is now, which is how somebody who tampers with the stored one would have it.
func (r *room) pinned(ctx context.Context, tenant, digest string) (*agent.Definition, error) {
	pinned := func(context.Context, string, string) (*agent.Definition, error) { return r.def, nil }
	if r.current == nil {
		return r.def, nil
	}
	return runtime.Tightened(pinned, func(name string) (*agent.Definition, bool) { return r.current, name == r.current.Name })(ctx, tenant, digest)
}

func (r *room) inv(woken int64) runtime.Invocation {
	return runtime.Invocation{Tenant: tenant, Run: r.run, Execution: runtime.ExecutionName(r.run, 0), Woken: woken, Writer: r.ports.IDs.Writer()}
}

// drive follows routes until the run waits or is over.
func (r *room) drive(woken int64) runtime.Route {
	r.t.Helper()
	route, err := r.try(woken)
	require.NoError(r.t, err)
	return route
}

func (r *room) try(woken int64) (route runtime.Route, err error) {
	route.Next, route.Woken = runtime.NextStep, woken
	for err == nil {
		switch route.Next {
		case runtime.NextStep:
			route, err = (&runtime.Stepper{Ports: r.ports, Definitions: r.pinned}).Step(r.ctx, r.inv(route.Woken))
		case runtime.NextTools:
			route, err = r.batch(route.Woken)
		default:
			return route, nil
		}
	}
	return route, err
}

func (r *room) batch(woken int64) (runtime.Route, error) {
	return (&runtime.Batch{Ports: r.ports, Definitions: r.pinned, Waits: r.waits()}).Run(r.ctx, r.inv(woken))
}

func (r *room) waits() *runtime.Waits { return &runtime.Waits{Ports: r.ports} }

// resume goes on as the woken attempt.
func (r *room) resume() {
	r.t.Helper()
	r.drive(r.state().WaitSeq)
}

// park stores a task token, as the waiter does.
func (r *room) park() {
	r.t.Helper()
	require.NoError(r.t, r.waits().Park(r.ctx, runtime.Ticket{
		Tenant: tenant, Run: r.run, Execution: runtime.ExecutionName(r.run, 0), WaitSeq: r.state().WaitSeq, Token: "t1",
	}))
}

func (r *room) desk() *approval.Desk {
	return &approval.Desk{
		Table: r.table, Journal: r.ports.Journal, Clock: r.ports.Clock, Definitions: r.pinned, Valid: schema.Validate, Wake: r.waits().Wake,
	}
}

func (r *room) request(a approval.Action, by policy.Principal) approval.Request {
	return approval.Request{Tenant: tenant, ID: run.ApprovalID(r.run, "c1", 1), Action: a, By: by}
}

func (r *room) decide(a approval.Action, by policy.Principal) (approval.Approval, error) {
	return r.desk().Decide(r.ctx, r.request(a, by))
}

// approveShown approves the action that the request is about now.
func (r *room) approveShown(by policy.Principal) (approval.Approval, error) {
	q := r.request(approval.Approve, by)
	q.Digest = r.approval().Digest
	return r.desk().Decide(r.ctx, q)
}

func (r *room) edit(args string, by policy.Principal) (approval.Approval, error) {
	q := r.request(approval.Edit, by)
	q.Args = json.RawMessage(args)
	return r.desk().Decide(r.ctx, q)
}

func (r *room) approval() approval.Approval {
	r.t.Helper()
	a, err := approval.Get(r.ctx, r.table, tenant, run.ApprovalID(r.run, "c1", 1))
	require.NoError(r.t, err)
	return a
}

func (r *room) item() store.Item {
	r.t.Helper()
	it, found, err := r.table.Table.Get(r.ctx, r.key())
	require.NoError(r.t, err)
	require.True(r.t, found)
	return it
}

func (r *room) key() store.Key {
	return store.Key{PK: "T#" + tenant + "#APPROVAL#" + run.ApprovalID(r.run, "c1", 1), SK: "A"}
}

func (r *room) state() run.AgentState {
	r.t.Helper()
	l, err := r.ports.Journal.Load(r.ctx, tenant, r.run)
	require.NoError(r.t, err)
	return l.State
}

func (r *room) call() run.Call {
	r.t.Helper()
	s := r.state()
	c, ok := s.Call("c1")
	require.True(r.t, ok)
	return c
}

func (r *room) inbox() []run.Event {
	r.t.Helper()
	l, err := r.ports.Journal.Load(r.ctx, tenant, r.run)
	require.NoError(r.t, err)
	return l.Inbox
}

// untilExpiry lets the time pass until so long before the request expires.
func (r *room) untilExpiry(before time.Duration) {
	r.t.Helper()
	left := r.approval().ExpiresAt.Add(-before).Sub(r.ports.Clock.Now())
	require.NoError(r.t, r.ports.Clock.Sleep(r.ctx, left))
}

// Ask is the model: the scripted replies, then a farewell.
func (r *room) Ask(_ context.Context, q agent.Request) (agent.Reply, int, error) {
	r.asked = append(r.asked, q)
	if i := int(q.Inference) - 1; i < len(r.replies) {
		return r.replies[i], 1, nil
	}
	return agent.Reply{Model: "m", Text: "Done."}, 1, nil
}

func (r *room) Lookup(name string) (tool.Tool, bool) { return r.refund, name == "refund" }

func (r *room) Success(_ context.Context, token string) error {
	if r.wakeErr != nil {
		return r.wakeErr
	}
	r.woken = append(r.woken, token)
	return nil
}

func (r *room) Start(context.Context, string, string, string) error { return nil }

func (r *room) Stop(context.Context, string, string) error { return nil }

func (r *room) Status(context.Context, string) (runtime.ExecutionStatus, error) {
	return runtime.ExecutionRunning, nil
}

// refund records what it was called with. Hanging, it pays and does not answer.
type refund struct {
	mu      sync.Mutex
	paid    []string
	hanging bool
	tickets []run.Ticket // what it asks for, one an entering, before it pays
	resumes []string     // the answers it was entered with
	entered func()       // is told of each entering; nil = nobody is
}

// hang sets whether it hangs and says how often it has paid. An attempt that nobody waits for any more may still be under way.
func (f *refund) hang(yes bool) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hanging = yes
	return len(f.paid)
}

func (*refund) Spec() agent.ToolSpec { return agent.ToolSpec{Name: "refund"} }

func (f *refund) Call(ctx context.Context, c tool.Call) (agent.ToolResultData, error) {
	f.mu.Lock()
	f.resumes = append(f.resumes, string(c.Resume))
	if len(f.tickets) > 0 {
		t := f.tickets[0]
		f.tickets = f.tickets[1:]
		f.mu.Unlock()
		return agent.ToolResultData{Suspend: &t}, nil
	}
	f.paid = append(f.paid, string(c.Args))
	hanging, entered := f.hanging, f.entered
	f.mu.Unlock()
	if entered != nil {
		entered()
	}
	if hanging {
		<-ctx.Done()
		return agent.ToolResultData{}, ctx.Err()
	}
	return agent.ToolResultData{Content: "paid"}, nil
}

// table lets somebody act right before or after the next write that touches a key with that prefix.
type table struct {
	store.Table
	mu     sync.Mutex
	prefix string
	before func() error
	after  func() error
}

func (f *table) on(prefix string, before, after func() error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.prefix, f.before, f.after = prefix, before, after
}

func (f *table) Write(ctx context.Context, ops ...store.Op) error {
	before, after := f.snap(ops)
	if before != nil {
		if err := before(); err != nil {
			return err
		}
	}
	err := f.Table.Write(ctx, ops...)
	if err == nil && after != nil {
		return after()
	}
	return err
}

func (f *table) snap(ops []store.Op) (before, after func() error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, op := range ops {
		if f.prefix != "" && strings.HasPrefix(op.Item.SK, f.prefix) {
			before, after = f.before, f.after
			f.prefix = ""
			return before, after
		}
	}
	return nil, nil
}
