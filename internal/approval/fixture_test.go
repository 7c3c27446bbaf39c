package approval_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/tool"
)

const tenant = "acme"

var (
	ana      = policy.Principal{ID: "user:ana", Groups: []string{"group:operators"}}
	ben      = policy.Principal{ID: "user:ben", Groups: []string{"group:operators"}}
	boss     = policy.Principal{ID: "user:boss", Groups: []string{"group:operators", "group:bosses"}}
	stranger = policy.Principal{ID: "user:eve", Groups: []string{"group:guests"}}
	errReset = errors.New("connection reset")
)

// fixture is a run that asks for refunds, the desk that decides them, and the runtime that carries them out.
type fixture struct {
	t             *testing.T
	ctx           context.Context
	table         *fault.Table
	ports         runtime.Ports
	def           *agent.Definition // as the run is pinned to it; a test may tamper with it
	refund        *refundTool
	replies       []agent.Reply
	resumedTokens []string
	run           string
	resumeErr     error
	starters      []string          // who starts the run
	subject       string            // whom it is about
	deployed      *agent.Definition // what the deployment says now of its agents; nil = nobody knows
}

const args = `{"amount":100,"to":"ana@example.com"}`

// withFixture runs a test in a synctest bubble.
func withFixture(t *testing.T, f func(t *testing.T, r *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newFixture(t)) })
}

// withParkedRun is withFixture with a run that is parked on its call c1, a refund with args.
func withParkedRun(t *testing.T, f func(t *testing.T, r *fixture)) {
	t.Helper()
	withFixture(t, func(t *testing.T, r *fixture) {
		r.startAndPark(args)
		f(t, r)
	})
}

// parked is withParkedRun as a subtest.
func parked(f func(t *testing.T, r *fixture)) func(*testing.T) {
	return func(t *testing.T) { withParkedRun(t, f) }
}

// errOf is the error of a call whose result does not matter.
func errOf[T any](_ T, err error) error { return err }

func newFixture(t *testing.T) *fixture {
	c := clock.System()
	r := &fixture{t: t, ctx: context.Background(), table: fault.NewTable(store.NewMemory()), refund: &refundTool{}}
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
		Table: r.table, Journal: store.NewJournal(r.table, 0), Blobs: store.NewMemoryBlobs(), Model: r, Tools: r,
		Valid: tool.Validate, Waiter: r, Clock: c, IDs: clock.SeededIDs(c, 1),
	}
	return r
}

func (r *fixture) startAndPark(args string, change ...func()) {
	r.t.Helper()
	r.startRun(args, change...)
	require.Equal(r.t, runtime.NextWait, r.driveRun(0).Next)
}

// refundReply is a reply that calls refund.
func refundReply(id, args string) agent.Reply {
	return agent.Reply{Calls: []agent.ReplyCall{{ID: id, Name: "refund", Input: json.RawMessage(args)}}}
}

// startRun starts the run without any step.
func (r *fixture) startRun(args string, change ...func()) {
	r.t.Helper()
	r.replies = []agent.Reply{refundReply("c1", args)}
	for _, f := range change {
		f()
	}
	require.NoError(r.t, errOf(r.beginNextRun("k")))
}

// beginNextRun starts another run without any step.
func (r *fixture) beginNextRun(key string) (run.AgentState, error) {
	s, err := (&runtime.Starter{Ports: r.ports}).Start(r.ctx, runtime.Start{
		Tenant: tenant, Agent: r.def, Key: key, Message: []run.UserBlock{{Block: run.Text{Text: "Pay Ana back."}}},
		By: r.starters, Subject: r.subject,
	})
	r.run = s.Run
	return s, err
}

// loadDefinition returns the current r.def, which a test may tamper with.
func (r *fixture) loadDefinition(ctx context.Context, tenant, digest string) (*agent.Definition, error) {
	pinned := func(context.Context, string, string) (*agent.Definition, error) { return r.def, nil }
	if r.deployed == nil {
		return r.def, nil
	}
	return runtime.WithCurrentPolicy(pinned, func(name string) (*agent.Definition, bool) { return r.deployed, name == r.deployed.Name })(ctx, tenant, digest)
}

func (r *fixture) invocation(woken int64) runtime.Invocation {
	return runtime.Invocation{Tenant: tenant, Run: r.run, Execution: runtime.ExecutionName(r.run, 0), Woken: woken, Writer: r.ports.IDs.Writer()}
}

// driveRun follows routes until the run waits or has ended.
func (r *fixture) driveRun(woken int64) runtime.Route {
	r.t.Helper()
	route, err := r.try(woken)
	require.NoError(r.t, err)
	return route
}

func (r *fixture) try(woken int64) (route runtime.Route, err error) {
	route.Next, route.Woken = runtime.NextStep, woken
	for err == nil {
		switch route.Next {
		case runtime.NextStep:
			route, err = (&runtime.Stepper{Ports: r.ports, Definitions: r.loadDefinition}).Step(r.ctx, r.invocation(route.Woken))
		case runtime.NextTools:
			route, err = r.batch(route.Woken)
		default:
			return route, nil
		}
	}
	return route, err
}

func (r *fixture) batch(woken int64) (runtime.Route, error) {
	return (&runtime.Batch{Ports: r.ports, Definitions: r.loadDefinition}).Run(r.ctx, r.invocation(woken))
}

func (r *fixture) waits() *runtime.Waits { return &runtime.Waits{Ports: r.ports} }

// resume continues the run as the resumed attempt does.
func (r *fixture) resume() {
	r.t.Helper()
	r.driveRun(r.state().WaitSeq)
}

// park stores a task token, as the waiter does.
func (r *fixture) park() {
	r.t.Helper()
	require.NoError(r.t, r.waits().Park(r.ctx, store.TokenClaim{
		Tenant: tenant, Run: r.run, Execution: runtime.ExecutionName(r.run, 0), WaitSeq: r.state().WaitSeq, Token: "t1",
	}))
}

func (r *fixture) desk() *approval.Desk {
	return &approval.Desk{
		Table: r.table, Journal: r.ports.Journal, Clock: r.ports.Clock, Definitions: r.loadDefinition, ValidateArgs: tool.Validate, ResumeRun: r.waits().Wake,
	}
}

func (r *fixture) request(a approval.Action, by policy.Principal) approval.DecisionInput {
	return approval.DecisionInput{Tenant: tenant, ID: run.ApprovalID(r.run, "c1", 1), Action: a, By: by}
}

func (r *fixture) decide(a approval.Action, by policy.Principal) (approval.Approval, error) {
	return r.desk().Decide(r.ctx, r.request(a, by))
}

// must returns the request of a decision that has to be taken.
func (r *fixture) must(a approval.Approval, err error) approval.Approval {
	r.t.Helper()
	require.NoError(r.t, err)
	return a
}

// approveShown approves the request's current action.
func (r *fixture) approveShown(by policy.Principal) (approval.Approval, error) {
	q := r.request(approval.Approve, by)
	q.Digest = r.approval().Digest
	return r.desk().Decide(r.ctx, q)
}

func (r *fixture) edit(args string, by policy.Principal) (approval.Approval, error) {
	q := r.request(approval.Edit, by)
	q.Args = json.RawMessage(args)
	return r.desk().Decide(r.ctx, q)
}

func (r *fixture) approval() approval.Approval {
	r.t.Helper()
	a, err := approval.Get(r.ctx, r.table, tenant, run.ApprovalID(r.run, "c1", 1))
	require.NoError(r.t, err)
	return a
}

func (r *fixture) item() store.Item {
	r.t.Helper()
	it, found, err := r.table.Table.Get(r.ctx, r.key())
	require.NoError(r.t, err)
	require.True(r.t, found)
	return it
}

func (r *fixture) key() store.Key {
	return store.Key{PK: "T#" + tenant + "#APPROVAL#" + run.ApprovalID(r.run, "c1", 1), SK: "A"}
}

func (r *fixture) state() run.AgentState {
	r.t.Helper()
	l, err := r.ports.Journal.Load(r.ctx, tenant, r.run)
	require.NoError(r.t, err)
	return l.State
}

func (r *fixture) call() run.Call {
	r.t.Helper()
	s := r.state()
	c, ok := s.Call("c1")
	require.True(r.t, ok)
	return c
}

func (r *fixture) inbox() []run.Event {
	r.t.Helper()
	l, err := r.ports.Journal.Load(r.ctx, tenant, r.run)
	require.NoError(r.t, err)
	return l.Inbox
}

// untilExpiry sleeps until so long before the request expires.
func (r *fixture) untilExpiry(before time.Duration) {
	r.t.Helper()
	left := r.approval().ExpiresAt.Add(-before).Sub(r.ports.Clock.Now())
	require.NoError(r.t, r.ports.Clock.Sleep(r.ctx, left))
}

// Ask is the model: the scripted replies, then a last text.
func (r *fixture) Ask(_ context.Context, q agent.Request) (agent.Reply, int, error) {
	if i := int(q.Inference) - 1; i < len(r.replies) {
		return r.replies[i], 1, nil
	}
	return agent.Reply{Model: "m", Text: "Done."}, 1, nil
}

func (r *fixture) Lookup(name string) (tool.Tool, bool) { return r.refund, name == "refund" }

func (r *fixture) Success(_ context.Context, token string) error {
	if r.resumeErr != nil {
		return r.resumeErr
	}
	r.resumedTokens = append(r.resumedTokens, token)
	return nil
}

func (r *fixture) Start(context.Context, string, string, string) error { return nil }

func (r *fixture) Stop(context.Context, string, string) error { return nil }

func (r *fixture) Status(context.Context, string) (runtime.ExecutionStatus, error) {
	return runtime.ExecutionRunning, nil
}

// refundTool records its arguments. If hanging, it pays and does not return.
type refundTool struct {
	mu      sync.Mutex
	paid    []string
	hanging bool
	tickets []run.Ticket // what it asks for, one an entering, before it pays
	resumes []string     // the answers it was entered with
	onCall  func()       // is told of each entering; nil = nobody is
}

// setHanging sets whether the tool hangs and returns how often it has paid. An abandoned attempt may still be running.
func (f *refundTool) setHanging(yes bool) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hanging = yes
	return len(f.paid)
}

func (*refundTool) Spec() agent.ToolSpec { return agent.ToolSpec{Name: "refund"} }

func (f *refundTool) Call(ctx context.Context, c tool.Call) (agent.ToolResultData, error) {
	f.mu.Lock()
	f.resumes = append(f.resumes, string(c.Resume))
	if len(f.tickets) > 0 {
		t := f.tickets[0]
		f.tickets = f.tickets[1:]
		f.mu.Unlock()
		return agent.ToolResultData{Suspend: &t}, nil
	}
	f.paid = append(f.paid, string(c.Args))
	hanging, entered := f.hanging, f.onCall
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

// hookWrite calls before or after around the next write that touches a key with a prefix.
func hookWrite(t *fault.Table, prefix string, before, after func() error) {
	hook := fault.Before(before)
	if before == nil {
		hook = fault.After(after)
	}
	t.Use(fault.OnlyIf(fault.WritesTo(prefix), fault.Nth(1, hook)))
}

// interrupted parks the run on the unknown outcome of its refund, which ana approved where it takes an approval.
func (r *fixture) interrupted() {
	r.t.Helper()
	r.refund.setHanging(true)
	r.startAndPark(args)
	if r.call().Wait.For == run.ForApproval {
		r.must(r.decide(approval.Approve, ana))
		r.resume()
	}
	require.Equal(r.t, run.ForOutcome, r.call().Wait.For)
	require.Equal(r.t, 1, r.refund.setHanging(false))
}
