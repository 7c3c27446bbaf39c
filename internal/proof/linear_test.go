package proof

// These tests, in the files named linear…, check that runs and their approval requests are linearizable. Many
// goroutines decide, cancel, send messages, read and let requests expire, on the real desk and runtime over each table.
// Each operation must have the effect of a sequential specification at one moment between its call and its return. An
// operation with an uncertain error may take effect at any later moment, or never (docs/reliability.md).
//
// A faulty table loses answers, applies writes late, throttles and delays. Mutants, which are deliberately wrong tables
// and desks, show that the check finds errors.
//
// COUNTERSIGN_LINEAR=N checks N histories of each kind over the memory table, and in proportion over the others; `make
// race` does.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
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
	"github.com/countersign/countersign/internal/tool"
)

const tenant = "acme"

// jumpClock is the system clock until expire makes it jump past the lifetime of requests. It is safe for concurrent
// use.
type jumpClock struct {
	clock.Clock
	ahead atomic.Int64
}

func (l *jumpClock) Now() time.Time { return l.Clock.Now().Add(time.Duration(l.ahead.Load())) }

func (l *jumpClock) isExpired() bool { return l.ahead.Load() > 0 }

func (l *jumpClock) expire() { l.ahead.Add(int64(requestLifetime + time.Minute)) }

// requestLifetime is the time until a request expires.
const requestLifetime = time.Hour

// world is one run with the real desk and runtime, and a fake state machine.
type world struct {
	t           *testing.T
	plain       store.Table // below the faults
	faulty      *faultyTable
	clock       *jumpClock
	ports       runtime.Ports
	desk        *approval.Desk
	def         *agent.Definition
	run         string
	wokenTokens chan string // completed task tokens
	fail        atomic.Int64

	zombies sync.WaitGroup

	mu      sync.Mutex
	rng     *rand.Rand
	refunds map[string][]string // the arguments of each effect, by call
}

// newWorld returns a world. wrap, if any, changes the table of its desk and runtime.
func newWorld(t *testing.T, plain store.Table, seed int64, def *agent.Definition, m *model, wrap func(store.Table) store.Table) *world {
	w := &world{
		t: t, plain: plain, def: def, clock: &jumpClock{Clock: clock.System()}, wokenTokens: make(chan string, 1000),
		rng: rand.New(rand.NewPCG(uint64(seed), 1)), refunds: map[string][]string{},
	}
	w.faulty = &faultyTable{Table: fault.NewTable(plain), rng: rand.New(rand.NewPCG(uint64(seed), 7))}
	w.faulty.Use(w.faulty.disturb)
	w.faulty.fine.Store(true)
	var table store.Table = w.faulty
	if wrap != nil {
		table = wrap(table)
	}
	draw := clock.SeededIDs(w.clock, uint64(seed))
	if seed%2 == 0 { // as in a deployment, the lowest layer retries throttled requests
		table = store.Resend(table, w.clock, func(limit time.Duration) time.Duration { return draw.Jitter(limit) / 25 })
	}
	w.ports = runtime.Ports{
		Table: table, Journal: store.NewJournal(table, 4), Blobs: store.NewMemoryBlobs(), Model: m, Tools: w, Valid: tool.Validate, Waiter: w, Clock: w.clock, IDs: draw,
	}
	waits := &runtime.Waits{Ports: w.ports}
	w.desk = &approval.Desk{
		Table: table, Journal: w.ports.Journal, Clock: w.clock, Definitions: w.definition, ValidateArgs: tool.Validate, ResumeRun: waits.Wake,
	}
	s, err := (&runtime.Starter{Ports: w.ports}).Start(t.Context(), runtime.Start{
		Tenant: tenant, Agent: def, Key: "k", Message: []run.UserBlock{{Block: run.Text{Text: "#first"}}},
	})
	require.NoError(t, err)
	w.run = s.Run
	return w
}

func (w *world) definition(context.Context, string, string) (*agent.Definition, error) {
	return w.def, nil
}

// refundAgent returns an agent whose refunds need quorum approvals. Its lookups need none.
func refundAgent(t *testing.T, quorum int) *agent.Definition {
	t.Helper()
	d, err := agent.PresetDefaults(agent.PresetCountersign)
	require.NoError(t, err)
	d.Name, d.System = "clerk", "You work."
	d.Model.Provider, d.Model.ID = "demo", "m"
	d.Tools = []agent.ToolSpec{
		{
			Name: "refund", Kind: agent.KindInternal, Description: "Pays back.", Effect: run.EffectNonIdempotent, Timeout: time.Minute,
			Schema: json.RawMessage(`{"type":"object","properties":{"amount":{"type":"number","minimum":0}},"required":["amount"]}`),
		},
		{
			Name: "look", Kind: agent.KindInternal, Description: "Looks.", Effect: run.EffectRead, Timeout: time.Minute,
			Schema: json.RawMessage(`{"type":"object","properties":{"at":{"type":"number"}}}`),
		},
	}
	d.Permission.Rules = []agent.Rule{
		{Tool: "refund", Verdict: agent.VerdictAsk, Quorum: quorum, Expires: requestLifetime}, {Tool: "look", Verdict: agent.VerdictAllow},
	}
	require.NoError(t, d.Check())
	return &d
}

// model returns the scripted replies, each at its inference, and then a final one.
type model struct{ replies []agent.Reply }

func (m *model) Ask(_ context.Context, q agent.Request) (agent.Reply, int, error) {
	if i := int(q.Inference) - 1; i < len(m.replies) {
		return m.replies[i], 1, nil
	}
	return agent.Reply{Model: "m", Text: "Done."}, 1, nil
}

// Lookup implements runtime.ToolSource. The tools record refunds.
func (w *world) Lookup(name string) (tool.Tool, bool) { return fakeTool{w, name}, true }

type fakeTool struct {
	w    *world
	name string
}

func (e fakeTool) Spec() agent.ToolSpec { return agent.ToolSpec{Name: e.name} }

func (e fakeTool) Call(_ context.Context, c tool.Call) (agent.ToolResultData, error) {
	if e.name == "refund" {
		e.w.mu.Lock()
		defer e.w.mu.Unlock()
		e.w.refunds[c.ID] = append(e.w.refunds[c.ID], string(c.Args))
	}
	return agent.ToolResultData{Content: "done"}, nil
}

// waitZombies waits for all zombies, and stops the faults.
func (w *world) waitZombies() {
	w.zombies.Wait()
	w.faulty.fine.Store(true)
	w.faulty.later.Wait()
}

// drawN draws a number from 0 to n-1.
func (w *world) drawN(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rng.IntN(n)
}

var errAnswer = errors.New("the state machine's answer was lost")

// Success completes a task token. Its answer is sometimes lost.
func (w *world) Success(_ context.Context, token string) error {
	w.wokenTokens <- token
	if !w.faulty.fine.Load() && w.drawN(20) == 0 {
		return errAnswer
	}
	return nil
}

func (w *world) Start(context.Context, string, string, string) error { return nil }

func (w *world) Stop(context.Context, string, string) error { return nil }

func (w *world) Status(context.Context, string) (runtime.ExecutionStatus, error) {
	return runtime.ExecutionRunning, nil
}

// fakeMachine is the state machine: it follows routes, repeats failed attempts, and sometimes lets two attempts
// overlap. It makes every attempt through around.
type fakeMachine struct {
	*world
	around func(attempt func() (runtime.Route, error)) (runtime.Route, error)
}

// start lets things go wrong and runs the run from a route on. halt ends both, and returns where the run was.
func (m *fakeMachine) start(from runtime.Route) (halt func() runtime.Route) {
	m.faulty.fine.Store(false)
	ctx, stop := context.WithCancel(m.t.Context())
	last := make(chan runtime.Route, 1)
	go func() {
		r, _ := m.follow(ctx, from, time.Minute)
		last <- r
	}()
	return func() runtime.Route {
		stop()
		defer m.waitZombies()
		return <-last
	}
}

// finish runs the run from a route on to its end, and expires what it waits for.
func (m *fakeMachine) finish(last runtime.Route) {
	if last.Next != runtime.NextWait { // somebody was in the middle of something
		last = runtime.Route{Next: runtime.NextStep, Woken: last.Woken}
	}
	over := false
	for range 6 { // what was approved too late is asked again
		if last, over = m.follow(m.t.Context(), last, 20*time.Millisecond); over {
			break
		}
		m.clock.expire()
	}
	m.waitZombies()
	require.True(m.t, over, "the run has not come to its end: %+v", last)
}

// follow runs the run until it waits longer than patience or is over, and reports whether it is over.
func (m *fakeMachine) follow(ctx context.Context, r runtime.Route, patience time.Duration) (last runtime.Route, over bool) {
	for ctx.Err() == nil {
		switch r.Next {
		case runtime.NextStep, runtime.NextTools:
			r = m.retryAttempt(ctx, r)
		case runtime.NextWait:
			if !m.waitForToken(ctx, r, patience) {
				return r, false
			}
			r.Next = runtime.NextStep
		default:
			return r, true
		}
	}
	return r, false
}

// retryAttempt repeats the attempts of one state until one succeeds.
func (m *fakeMachine) retryAttempt(ctx context.Context, r runtime.Route) runtime.Route {
	during := ctx
	ctx = context.WithoutCancel(ctx)
	for {
		if m.drawN(4) == 0 { // a zombie, whose answer is ignored
			m.zombies.Go(func() { _, _ = m.around(func() (runtime.Route, error) { return m.attempt(ctx, r) }) })
		}
		if next, err := m.around(func() (runtime.Route, error) { return m.attempt(ctx, r) }); err == nil {
			return next
		}
		if during.Err() != nil {
			return r
		}
		if m.fail.Add(1) > 1000 {
			m.t.Error("the run does not go on")
			return runtime.Route{Next: runtime.NextFailed}
		}
	}
}

func (m *fakeMachine) attempt(ctx context.Context, r runtime.Route) (runtime.Route, error) {
	inv := runtime.Invocation{Tenant: tenant, Run: m.run, Execution: runtime.ExecutionName(m.run, 0), Woken: r.Woken, At: r.At, Writer: m.ports.IDs.Writer()}
	if r.Next == runtime.NextTools {
		return (&runtime.Batch{Ports: m.ports, Definitions: m.definition}).Run(ctx, inv)
	}
	return (&runtime.Stepper{Ports: m.ports, Definitions: m.definition}).Step(ctx, inv)
}

// waitForToken stores a token, and waits until it is completed or the requests expire. It reports false after patience.
func (m *fakeMachine) waitForToken(ctx context.Context, r runtime.Route, patience time.Duration) bool {
	token := fmt.Sprintf("%d-%s", r.Woken, m.ports.IDs.Writer())
	for attempt := int64(1); ctx.Err() == nil; attempt++ {
		err := (&runtime.Waits{Ports: m.ports}).Park(ctx, store.TokenClaim{
			Tenant: tenant, Run: m.run, Execution: runtime.ExecutionName(m.run, 0), WaitSeq: r.Woken, Attempt: attempt, Token: token,
		})
		if err == nil {
			break
		}
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	left := time.After(patience)
	for {
		select {
		case got := <-m.wokenTokens:
			if got == token {
				return true
			}
		case <-tick.C:
			if m.clock.isExpired() {
				return true
			}
		case <-left:
			return false
		case <-ctx.Done():
			return false
		}
	}
}
