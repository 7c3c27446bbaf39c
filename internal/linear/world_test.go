package linear

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
	"github.com/countersign/countersign/internal/ids"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/store/memory"
	"github.com/countersign/countersign/internal/tool"
	"github.com/countersign/countersign/internal/tools/schema"
)

const tenant = "acme"

// leap is the machine's clock until it is told that the requests' time is up. Safe for concurrent use.
type leap struct {
	clock.Clock
	ahead atomic.Int64
}

func (l *leap) Now() time.Time { return l.Clock.Now().Add(time.Duration(l.ahead.Load())) }

func (l *leap) late() bool { return l.ahead.Load() > 0 }

func (l *leap) jump() { l.ahead.Add(int64(life + time.Minute)) }

// life is how long a request to people stands.
const life = time.Hour

// world is one run, the real code over it, and what stands in for the state machine.
type world struct {
	t      *testing.T
	plain  store.Table // below the faults
	faulty *faulty
	clock  *leap
	ports  runtime.Ports
	desk   *approval.Desk
	def    *agent.Definition
	model  *model
	run    string
	woken  chan string // tokens that were completed
	fail   atomic.Int64

	zombies sync.WaitGroup

	mu   sync.Mutex
	rng  *rand.Rand
	paid map[string][]string // arguments with which a call's effect happened, by call
}

// newWorld makes a world whose desk and runtime have the table that wrap makes of the plain one.
func newWorld(t *testing.T, plain store.Table, seed int64, def *agent.Definition, m *model, wrap func(store.Table) store.Table) *world {
	w := &world{
		t: t, plain: plain, def: def, model: m, clock: &leap{Clock: clock.System()}, woken: make(chan string, 1000),
		rng: rand.New(rand.NewPCG(uint64(seed), 1)), paid: map[string][]string{},
	}
	w.faulty = newFaulty(plain, seed)
	w.faulty.fine.Store(true)
	var table store.Table = w.faulty
	if wrap != nil {
		table = wrap(table)
	}
	draw := ids.Seeded(w.clock, uint64(seed))
	if seed%2 == 0 { // as in a deployment: what was throttled is sent again below everything else
		table = store.Resend(table, w.clock, func(limit time.Duration) time.Duration { return draw.Jitter(limit) / 25 })
	}
	w.ports = runtime.Ports{
		Table: table, Journal: store.NewJournal(table, 4), Blobs: memory.NewBlobs(), Model: m, Tools: w, Valid: schema.Validate, Waiter: w, Clock: w.clock, IDs: draw,
	}
	waits := &runtime.Waits{Ports: w.ports}
	w.desk = &approval.Desk{
		Table: table, Journal: w.ports.Journal, Clock: w.clock, Definitions: w.definition, ValidateArgs: schema.Validate, ResumeRun: waits.Wake,
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

// clerk is an agent whose refunds take so many people, and who looks things up without asking.
func clerk(t *testing.T, quorum int) *agent.Definition {
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
		{Tool: "refund", Verdict: agent.VerdictAsk, Quorum: quorum, Expires: life}, {Tool: "look", Verdict: agent.VerdictAllow},
	}
	require.NoError(t, d.Check())
	return &d
}

// model gives the scripted replies, each at its inference, and then says good-bye.
type model struct{ replies []agent.Reply }

func (m *model) Ask(_ context.Context, q agent.Request) (agent.Reply, int, error) {
	if i := int(q.Inference) - 1; i < len(m.replies) {
		return m.replies[i], 1, nil
	}
	return agent.Reply{Model: "m", Text: "Done."}, 1, nil
}

// Lookup finds the tools; what is paid is noted.
func (w *world) Lookup(name string) (tool.Tool, bool) { return effect{w, name}, true }

type effect struct {
	w    *world
	name string
}

func (e effect) Spec() agent.ToolSpec { return agent.ToolSpec{Name: e.name} }

func (e effect) Call(_ context.Context, c tool.Call) (agent.ToolResultData, error) {
	if e.name == "refund" {
		e.w.mu.Lock()
		defer e.w.mu.Unlock()
		e.w.paid[c.ID] = append(e.w.paid[c.ID], string(c.Args))
	}
	return agent.ToolResultData{Content: "done"}, nil
}

// calm ends the bad day and whatever it has left behind.
func (w *world) calm() {
	w.zombies.Wait()
	w.faulty.calm()
}

// chance draws a number from 0 to n-1.
func (w *world) chance(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rng.IntN(n)
}

var errAnswer = errors.New("the state machine's answer was lost")

// Success completes a task token, and is sometimes unheard.
func (w *world) Success(_ context.Context, token string) error {
	w.woken <- token
	if !w.faulty.fine.Load() && w.chance(20) == 0 {
		return errAnswer
	}
	return nil
}

func (w *world) Start(context.Context, string, string, string) error { return nil }

func (w *world) Stop(context.Context, string, string) error { return nil }

func (w *world) Status(context.Context, string) (runtime.ExecutionStatus, error) {
	return runtime.ExecutionRunning, nil
}

// machine is the state machine: it follows routes, lets attempts that failed be made again, and now and then lets two overlap. Each attempt
// is told to around before it is made.
type machine struct {
	*world
	around func(attempt func() (runtime.Route, error)) (runtime.Route, error)
}

// follow carries the run on until it waits for something that has not come, or is over. It reports whether it is over.
func (m *machine) follow(ctx context.Context, r runtime.Route, patience time.Duration) (last runtime.Route, over bool) {
	for ctx.Err() == nil {
		switch r.Next {
		case runtime.NextStep, runtime.NextTools:
			r = m.attempts(ctx, r)
		case runtime.NextWait:
			if !m.wait(ctx, r, patience) {
				return r, false
			}
			r.Next = runtime.NextStep
		default:
			return r, true
		}
	}
	return r, false
}

// attempts makes one state's attempts until one answers.
func (m *machine) attempts(ctx context.Context, r runtime.Route) runtime.Route {
	during := ctx
	ctx = context.WithoutCancel(ctx)
	for {
		if m.chance(4) == 0 { // a zombie, whose answer nobody reads
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

func (m *machine) attempt(ctx context.Context, r runtime.Route) (runtime.Route, error) {
	inv := runtime.Invocation{Tenant: tenant, Run: m.run, Execution: runtime.ExecutionName(m.run, 0), Woken: r.Woken, At: r.At, Writer: m.ports.IDs.Writer()}
	if r.Next == runtime.NextTools {
		return (&runtime.Batch{Ports: m.ports, Definitions: m.definition, Waits: &runtime.Waits{Ports: m.ports}}).Run(ctx, inv)
	}
	return (&runtime.Stepper{Ports: m.ports, Definitions: m.definition}).Step(ctx, inv)
}

// wait stores a token and waits until that is completed, or the time of the wait is up.
func (m *machine) wait(ctx context.Context, r runtime.Route, patience time.Duration) bool {
	token := fmt.Sprintf("%d-%s", r.Woken, m.ports.IDs.Writer())
	for attempt := int64(1); ctx.Err() == nil; attempt++ {
		err := (&runtime.Waits{Ports: m.ports}).Park(ctx, runtime.Ticket{
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
		case got := <-m.woken:
			if got == token {
				return true
			}
		case <-tick.C:
			if m.clock.late() {
				return true
			}
		case <-left:
			return false
		case <-ctx.Done():
			return false
		}
	}
}
