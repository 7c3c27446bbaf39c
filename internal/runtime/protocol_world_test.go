package runtime_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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
	errBlown = errors.New("connection reset")
)

// world is one run's surroundings: the use cases over honest fakes, and a table that goes wrong on demand.
type world struct {
	t      *testing.T
	ctx    context.Context
	counts *fault.Table
	table  *fault.Table
	model  *scripted
	tools  tools
	waiter *executions
	ids    *clock.IDs
	def    *agent.Definition
	ports  runtime.Ports
	pinned runtime.Definitions
	run    string
	owner  string // of generation 0
}

// errOf is the error of a call whose result does not matter.
func errOf[T any](_ T, err error) error { return err }

// inBubble runs a test on the system's clock in a synctest bubble: time is virtual, goroutines are real.
func inBubble(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newWorld(t, clock.System(), 0)) })
}

// subtest is inBubble as a subtest.
func subtest(t *testing.T, name string, f func(t *testing.T, w *world)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { inBubble(t, f) })
}

func newWorld(t *testing.T, c clock.Clock, warm int) *world {
	counts := fault.NewTable(store.NewMemory())
	table := fault.NewTable(counts)
	table.KeepWrites()
	blobs := store.NewMemoryBlobs()
	w := &world{
		t: t, ctx: context.Background(), counts: counts, table: table, ids: clock.SeededIDs(c, 1), model: &scripted{}, tools: tools{},
		waiter: &executions{
			status: map[string]runtime.ExecutionStatus{}, settled: map[string]bool{}, began: map[string]runtime.Execution{}, inputs: map[string]string{},
		},
		pinned: runtime.PinnedDefinitions(blobs),
	}
	w.ports = runtime.Ports{
		Table: table, Journal: store.NewJournal(table, warm), Blobs: blobs, Model: w.model, Tools: w.tools, Valid: tool.Validate,
		Waiter: w.waiter, Clock: c, IDs: w.ids,
	}
	w.def = definition(t)
	for _, s := range w.def.Tools {
		w.tools[s.Name] = &fake{spec: s}
	}
	return w
}

// definition has a tool of each kind: look is read, note is idempotent, pay may not be repeated, refund besides asks a
// person.
func definition(t *testing.T) *agent.Definition {
	d, err := agent.PresetDefaults(agent.PresetCountersign)
	require.NoError(t, err)
	d.Name, d.System = "clerk", "You work."
	d.Model.Provider, d.Model.ID = "demo", "m"
	d.Guards.DuplicateCalls = false // its models do one thing over and over
	d.Permission.Rules = []agent.Rule{{Tool: "pay", Verdict: agent.VerdictAllow}}
	for name, effect := range map[string]run.Effect{
		"look": run.EffectRead, "note": run.EffectIdempotent, "pay": run.EffectNonIdempotent, "refund": run.EffectNonIdempotent,
	} {
		d.Tools = append(d.Tools, agent.ToolSpec{
			Name: name, Kind: agent.KindInternal, Description: "Works.", Effect: effect,
			Schema: json.RawMessage(`{"type":"object"}`),
		})
	}
	slices.SortFunc(d.Tools, func(a, b agent.ToolSpec) int { return strings.Compare(a.Name, b.Name) })
	require.NoError(t, d.Check())
	return &d
}

func (w *world) starter() *runtime.Starter { return &runtime.Starter{Ports: w.ports} }

// follow makes s the run that the world acts on.
func (w *world) follow(s run.AgentState, err error) {
	w.t.Helper()
	require.NoError(w.t, err)
	w.run, w.owner = s.Run, s.Owner
}

// start starts the run by API.
func (w *world) start() {
	w.t.Helper()
	w.follow(w.starter().Start(w.ctx, w.request("Work.")))
}

// startWith starts a run whose model replies so.
func (w *world) startWith(replies ...agent.Reply) {
	w.t.Helper()
	w.model.replies = replies
	w.start()
}

// startRound starts one whose model has replied: its tools are next.
func (w *world) startRound(replies ...agent.Reply) {
	w.t.Helper()
	w.startWith(replies...)
	w.step(0)
}

// startFor starts one that somebody waits for, or nobody.
func (w *world) startFor(subject string) {
	w.t.Helper()
	r := w.request("Work.")
	r.Subject = subject
	w.follow(w.starter().Start(w.ctx, r))
}

func (w *world) request(text string) runtime.Start {
	return runtime.Start{Tenant: tenant, Agent: w.def, Key: "k1", Message: says(text)}
}

func says(text string) []run.UserBlock {
	return []run.UserBlock{{Block: run.Text{Text: text}}}
}

// inv is a fresh invocation by the first owner.
func (w *world) inv(woken int64) runtime.Invocation {
	return runtime.Invocation{Tenant: tenant, Run: w.run, Execution: w.owner, Woken: woken, Writer: w.ids.Writer()}
}

func (w *world) stepper() *runtime.Stepper {
	return &runtime.Stepper{Ports: w.ports, Definitions: w.pinned}
}

func (w *world) batch() *runtime.Batch {
	return &runtime.Batch{Ports: w.ports, Definitions: w.pinned}
}

func (w *world) waits() *runtime.Waits { return &runtime.Waits{Ports: w.ports} }

func (w *world) step(woken int64) runtime.Route {
	w.t.Helper()
	r, err := w.stepper().Step(w.ctx, w.inv(woken))
	require.NoError(w.t, err)
	return r
}

func (w *world) batchRun(woken int64) runtime.Route {
	w.t.Helper()
	r, err := w.batch().Run(w.ctx, w.inv(woken))
	require.NoError(w.t, err)
	return r
}

// drive follows routes as the state machine does, until the run waits, hands over or is over.
func (w *world) drive(woken int64) runtime.Route {
	w.t.Helper()
	r := w.step(woken)
	for {
		switch r.Next {
		case runtime.NextStep:
			r = w.step(r.Woken)
		case runtime.NextTools:
			r = w.batchRun(r.Woken)
		default:
			return r
		}
	}
}

func (w *world) park(waitSeq, attempt int64, token string) {
	w.t.Helper()
	require.NoError(w.t, w.waits().Park(w.ctx, w.ticket(waitSeq, attempt, token)))
}

func (w *world) ticket(waitSeq, attempt int64, token string) store.TokenClaim {
	return store.TokenClaim{Tenant: tenant, Run: w.run, Execution: w.owner, WaitSeq: waitSeq, Attempt: attempt, Token: token}
}

func (w *world) send(id, text string) error {
	in := &runtime.Inputs{Ports: w.ports, Definitions: w.pinned}
	return in.Send(w.ctx, tenant, w.run, id, "user:bob", says(text))
}

func (w *world) cancel() run.AgentState {
	w.t.Helper()
	c := &runtime.Canceller{Ports: w.ports, Definitions: w.pinned}
	s, err := c.Cancel(w.ctx, tenant, w.run, "user:bob", "stop")
	require.NoError(w.t, err)
	return s
}

func (w *world) sweep() runtime.Repair {
	w.t.Helper()
	r, err := (&runtime.Sweeper{Ports: w.ports, Definitions: w.pinned}).Repair(w.ctx, tenant, w.run)
	require.NoError(w.t, err)
	return r
}

func (w *world) desk() *approval.Desk {
	return &approval.Desk{
		Table: w.table, Journal: w.ports.Journal, Clock: w.ports.Clock, Definitions: w.pinned, ValidateArgs: tool.Validate, ResumeRun: w.waits().Wake,
	}
}

// decide approves what a call waits for.
func (w *world) decide(call string) {
	w.t.Helper()
	w.decided(approval.DecisionInput{ID: w.call(call).Wait.Approval, Action: approval.Approve})
}

// decided has ana decide: about call c1, where no request is named.
func (w *world) decided(in approval.DecisionInput) {
	w.t.Helper()
	in.Tenant, in.By = tenant, ana
	if in.ID == "" {
		in.Run, in.Call = w.run, "c1"
	}
	require.NoError(w.t, errOf(w.desk().Decide(w.ctx, in)))
}

// approval is a request to people.
func (w *world) approval(id string) approval.Approval {
	w.t.Helper()
	a, err := approval.Get(w.ctx, w.table, tenant, id)
	require.NoError(w.t, err)
	return a
}

// commit writes an entry of these facts, past the use cases.
func (w *world) commit(writer string, events ...run.Event) {
	w.t.Helper()
	s := w.state()
	d := run.NewDraft(s, writer, w.ports.Clock.Now())
	require.NoError(w.t, d.Add(events...))
	require.NoError(w.t, w.ports.Journal.Append(w.ctx, s, d))
}

// state is a cold fold of the journal, past every cache.
func (w *world) state() run.AgentState {
	w.t.Helper()
	l, err := store.NewJournal(w.counts, 0).Load(w.ctx, tenant, w.run)
	require.NoError(w.t, err)
	return l.State
}

func (w *world) call(id string) run.Call {
	w.t.Helper()
	s := w.state()
	c, ok := s.Call(id)
	require.True(w.t, ok, "call %s", id)
	return c
}

func (w *world) head() store.Head {
	w.t.Helper()
	h, err := store.NewJournal(w.counts, 0).Head(w.ctx, tenant, w.run)
	require.NoError(w.t, err)
	return h
}

func (w *world) entries() []run.Entry {
	w.t.Helper()
	es, err := store.NewJournal(w.counts, 0).Entries(w.ctx, tenant, w.run, 0, 0)
	require.NoError(w.t, err)
	return es
}

// written counts events of one stored name in the journal.
func (w *world) written(event string) int {
	n := 0
	for _, e := range w.entries() {
		for _, ev := range e.Events {
			if run.EventType(ev) == event {
				n++
			}
		}
	}
	return n
}

// heard is what the user side of the conversation says, in order.
func (w *world) heard() []string {
	var out []string
	s := w.state()
	for _, m := range s.Messages.All() {
		if t, ok := m.Block.(run.Text); ok && m.Role == run.RoleUser {
			out = append(out, t.Text)
		}
	}
	return out
}

func (w *world) tool(name string) *fake { return w.tools[name].(*fake) }

// scripted is a model that answers inference n with its n-th reply, as often as it is asked.
type scripted struct {
	mu      sync.Mutex
	replies []agent.Reply
	asked   []agent.Request
	during  func(r agent.Request) error // runs while the model thinks; nil = nothing does
}

func (m *scripted) Ask(_ context.Context, r agent.Request) (agent.Reply, int, error) {
	m.mu.Lock()
	m.asked = append(m.asked, r)
	during := m.during
	reply := agent.Reply{Text: "Done."}
	if i := int(r.Inference) - 1; i < len(m.replies) {
		reply = m.replies[i]
	}
	m.mu.Unlock()
	reply.Model = "m"
	if during != nil {
		if err := during(r); err != nil {
			return agent.Reply{}, 1, err
		}
	}
	return reply, 1, nil
}

// calls is a reply that asks for tools: each is "tool id" or "tool id arguments".
func calls(specs ...string) agent.Reply {
	var r agent.Reply
	for _, s := range specs {
		parts := append(strings.SplitN(s, " ", 3), "{}")
		r.Calls = append(r.Calls, agent.ReplyCall{Name: parts[0], ID: parts[1], Input: json.RawMessage(parts[2])})
	}
	return r
}

// fake is a tool that counts how often each call entered it.
type fake struct {
	spec      agent.ToolSpec
	mu        sync.Mutex
	entered   []tool.Call
	work      func(ctx context.Context, c tool.Call) (agent.ToolResultData, error) // nil = ok at once
	reconcile func(c tool.Call) (tool.Outcome, agent.ToolResultData, error)        // nil = cannot tell
}

func (f *fake) Spec() agent.ToolSpec { return f.spec }

func (f *fake) Call(ctx context.Context, c tool.Call) (agent.ToolResultData, error) {
	f.mu.Lock()
	f.entered = append(f.entered, c)
	work := f.work
	f.mu.Unlock()
	if work == nil {
		return agent.ToolResultData{Content: "ok " + c.ID}, nil
	}
	return work(ctx, c)
}

func (f *fake) Reconcile(_ context.Context, c tool.Call) (tool.Outcome, agent.ToolResultData, error) {
	if f.reconcile == nil {
		return tool.OutcomeUnknown, agent.ToolResultData{}, nil
	}
	return f.reconcile(c)
}

func (f *fake) times() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.entered)
}

// inside makes the tool run f at its first entering, before what it does anyway.
func (f *fake) inside(during func()) {
	var entered atomic.Bool
	work := f.work
	f.work = func(ctx context.Context, c tool.Call) (agent.ToolResultData, error) {
		if entered.CompareAndSwap(false, true) {
			during()
		}
		if work != nil {
			return work(ctx, c)
		}
		return agent.ToolResultData{Content: "ok " + c.ID}, nil
	}
}

type tools map[string]tool.Tool

func (s tools) Lookup(name string) (tool.Tool, bool) {
	t, ok := s[name]
	return t, ok
}

// executions is a Waiter that records what it was told.
type executions struct {
	mu      sync.Mutex
	woken   []string
	settled map[string]bool // tokens whose wait is over
	started []string
	stopped []string
	status  map[string]runtime.ExecutionStatus
	began   map[string]runtime.Execution // by name, as started
	inputs  map[string]string
	asked   []string // whose input was asked for
	onStart func(name string) error
	onStop  func(name string) error

	onSettled func() // runs once, right after somebody was told that a token's wait is over
}

func (x *executions) Success(_ context.Context, token string) error {
	x.mu.Lock()
	x.woken = append(x.woken, token)
	settled, after := x.settled[token], x.onSettled
	x.settled[token] = true
	if settled {
		x.onSettled = nil
	}
	x.mu.Unlock()
	if !settled {
		return nil
	}
	if after != nil {
		after()
	}
	return runtime.ErrTokenUsed
}

func (x *executions) Start(_ context.Context, tenant, run, name string) error {
	if x.onStart != nil {
		if err := x.onStart(name); err != nil {
			return err
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.started = append(x.started, name)
	if x.status[name] == "" {
		x.status[name] = runtime.ExecutionRunning
		x.began[name] = runtime.Execution{Name: name, Started: time.Now()}
		x.inputs[name] = fmt.Sprintf(`{"tenant":%q,"run":%q}`, tenant, run)
	}
	return nil
}

// Running lists those that run, two on a page.
func (x *executions) Running(_ context.Context, cursor string) (page []runtime.Execution, next string, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	var names []string
	for name, s := range x.status {
		if s == runtime.ExecutionRunning && name > cursor {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names[:min(2, len(names))] {
		page = append(page, x.began[name])
	}
	if len(names) > 2 {
		next = names[1]
	}
	return page, next, nil
}

func (x *executions) Input(_ context.Context, name string) ([]byte, bool, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.asked = append(x.asked, name)
	in, ok := x.inputs[name]
	return []byte(in), ok, nil
}

func (x *executions) Stop(_ context.Context, name, _ string) error {
	if x.onStop != nil {
		if err := x.onStop(name); err != nil {
			return err
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.stopped = append(x.stopped, name)
	if x.status[name] == runtime.ExecutionRunning {
		x.status[name] = runtime.ExecutionEnded
	}
	return nil
}

func (x *executions) Status(_ context.Context, name string) (runtime.ExecutionStatus, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if s, ok := x.status[name]; ok {
		return s, nil
	}
	return runtime.ExecutionNone, nil
}

// ended says that the execution ended by itself.
func (x *executions) ended(name string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.status[name] = runtime.ExecutionEnded
}

// lost matches a write that is executed, then an error; failed, one that is an error instead.
func lost(fits func([]store.Op) bool) (func(fault.Call) bool, fault.Hook) {
	return fault.WriteOf(fits), fault.Lose(errBlown)
}

func failed(fits func([]store.Op) bool) (func(fault.Call) bool, fault.Hook) {
	return fault.WriteOf(fits), fault.Fail(errBlown)
}

// meanwhile lets somebody act right before the write.
func meanwhile(fits func([]store.Op) bool, f func()) (func(fault.Call) bool, fault.Hook) {
	return fault.WriteOf(fits), fault.Before(func() error { f(); return nil })
}

// entry fits writes of a journal entry that holds an event of that name.
func entry(event string) func([]store.Op) bool {
	return func(ops []store.Op) bool {
		return strings.HasPrefix(ops[0].Item.SK, "J#") && strings.Contains(string(ops[0].Item.Body), `{"`+event+`":`)
	}
}

// touches fits writes of an item whose sort key begins like that.
func touches(prefix string) func([]store.Op) bool {
	return func(ops []store.Op) bool {
		return slices.ContainsFunc(ops, func(op store.Op) bool { return strings.HasPrefix(op.Item.SK, prefix) })
	}
}
