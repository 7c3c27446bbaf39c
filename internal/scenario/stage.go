package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/asl"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/ids"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/store/memory"
)

// tenant is everybody's here.
const tenant = "default"

// maxInvocations is how many handlers a run may take before it is said not to end.
const maxInvocations = 2000

// maxSteps is how many turns of tasks and moves of time a run may take: a hundred times what the longest scenario takes.
const maxSteps = 50_000

// opening is when every scenario begins.
var opening = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// stage is one run of a scenario: the product, the world around it, and what was seen.
type stage struct {
	*part                     // of the run that is played
	parts    map[string]*part // by run, as they were needed
	crashing bool

	promisesOnly bool          // whatever the story is
	functions    local.Invoker // handlers, of no invocation yet
	toolProcess  local.Invoker // nil = functions share one

	clock    *clock.Virtual
	faults   *fault.Injector
	machine  *local.Machine
	record   *store.Journal // the observer's own view, behind no fault
	table    store.Table    // the same
	items    *memory.Table  // the same
	blobs    store.Blobs    // the same
	provider runtime.Model  // what would be asked in the script's place, behind what every provider's adapter is behind
	servers  *servers
	cast     *cast
	first    string // the one that it goes on with; empty = it began by itself
	at       int64  // the entry of that one behind which it branches off; -1 = its end
	before   int64  // inferences that the script was asked for until then

	open        bool         // the run is created and who acts at the start has acted
	gate        clock.Signal // handlers wait here until then
	curtain     clock.Signal // the scenario is over
	invocations int
	deployed    bool     // the agent is now.yaml's from here on
	unforeseen  []string // requests to people that only a crash made
	diverged    bool     // a request during which somebody said something was lost in a crash: what was said was heard at another time
	notified    []notified
	failures    []Failure

	acts       []Act
	acted      map[int]bool      // of acts, by place
	idleActs   int               // acts that found nothing to do
	gone       bool              // somebody did not come back for their answer
	cancelled  bool              // the run was called off by an act
	said       map[string]string // the runs of messages that acts had accepted, by the messages' ids
	told       []string          // requests about calls of which somebody beside the story was told that their decision counts
	repaired   int               // runs that a sweep repaired
	sweeps     int               // how often one was needed
	sent       []sent            // requests to models that were answered
	violations []Failure         // promises that were broken
	entered    []*entry          // of tools, in order
	drawn      *drawn
	plan       []fault.Point
	broke      []Failure                 // ways in which the run came to no end
	seenBefore func(print [16]byte) bool // nil = nobody asks
	boundaries []Boundary
	pruned     bool
}

// request is one request to a model, by position in the journal.
type request struct {
	inference int64
	notes     bool // asked for before the inference
	attempt   int
}

// Run runs the scenario once.
func (s *Scenario) Run(o Options) Result {
	st, err := newStage(s, o)
	if err != nil {
		return Result{Failures: []Failure{{Path: "machine", Got: err.Error(), Want: "a machine"}}}
	}
	if err := st.clock.Run(st.play); err != nil {
		st.broken(err)
	}
	// What came of the run.
	r := Result{Calls: st.faults.Calls(), Boundaries: st.boundaries, Idle: st.idleActs, Repaired: st.repaired, Sweeps: st.sweeps, Diverged: st.diverged}
	if st.pruned {
		r.Pruned = true
		r.Violations = st.violations
		return r
	}
	if len(st.failures) == 0 || st.disturbed() {
		st.promises()
	}
	if st.promisesOnly {
		// Those of all tools so far.
		var list []Effect
		for _, e := range st.entered {
			if !e.tookEffect() {
				continue
			}
			p := st.partOf(e.run)
			c, _ := p.calledIn(e.run, e.execution.call)
			list = append(list, Effect{Run: e.run, Call: e.execution.call, Tool: c.Tool, Args: string(e.args), Repeatable: p.repeatable(c.Tool)})
		}
		r.Effects, r.Runs = list, st.runs()
	}
	r.Violations = st.violations
	if st.diverged || st.otherStory() {
		r.Failures = st.broke
		return r
	}
	reviewed := st.review()
	r.Failures, r.Journal, r.Children, r.Seed = reviewed.Failures, reviewed.Journal, reviewed.Children, reviewed.Seed
	return r
}

func newStage(s *Scenario, o Options) (*stage, error) {
	v := clock.NewVirtual(opening)
	v.SetLimit(maxSteps)
	table := memory.New()
	st := &stage{
		parts: map[string]*part{}, crashing: o.PromisesOnly || len(o.Faults)+len(o.Acts) > 0, promisesOnly: o.PromisesOnly, clock: v, faults: fault.New(v, o.Faults...), table: table, items: table,
		record: store.NewJournal(table, 16), gate: v.NewSignal(), curtain: v.NewSignal(), acts: o.Acts, acted: map[int]bool{}, said: map[string]string{}, seenBefore: o.Seen,
		plan: o.Faults, drawn: newDrawn(ids.Seeded(v, 1)),
	}
	if len(o.Acts) > 0 {
		st.faults.Before(st.interrupt)
	}
	st.part = newPart(st, s, agent.RunID(tenant, s.agent.Name, s.start.key), "")
	st.servers = newServers(st)
	st.cast = newCast(st, s.people)
	v.SetIdle(st.cast.idle)
	st.blobs = memory.NewBlobs()
	blobs := st.faults.Blobs(st.blobs)
	st.provider = runtime.WithMedia(provider{}, blobs)
	config := local.Config{
		Table: store.Resend(st.faults.Table(table), v, st.drawn.Jitter), Blobs: blobs, Model: st.faults.Model(st), Tools: st.faults.Tools(world{st}), Hooks: s.hooks, Emit: st.faults.Emitter(world{st}),
		Remotes: st.away(), Functions: st.faults.Functions(world{st}),
		Agents: st.agents, Current: st.agents, Clock: st.faults.Clock(), IDs: st.drawn, Executions: &asl.MemoryStore{}, Wrap: st.invocation, Waiter: st.faults.Waiter,
		Notify: st.notifier(),
	}
	if o.Warm {
		config.Warm = warmRuns
	}
	var err error
	if st.machine, err = local.New(config); err == nil && o.Warm {
		err = st.apart(config)
	}
	return st, err
}

// warmRuns is how many runs a process keeps.
const warmRuns = 4

// apart gives the tool function a process of its own, with what it keeps of runs, over the same store and the same executions.
func (s *stage) apart(c local.Config) error {
	c.Executions = &asl.MemoryStore{} // none is ever started there
	c.Waiter = func(runtime.Waiter) runtime.Waiter { return s.machine.Ports.Waiter }
	c.Wrap = func(own local.Invoker) local.Invoker {
		s.toolProcess = own
		return own
	}
	_, err := local.New(c)
	return err
}

func (s *stage) agents(name string) (*agent.Definition, bool) {
	if d, ok := s.scenario.delegates[name]; ok {
		return &d.agent, true
	}
	if s.deployed && s.scenario.now != nil {
		return s.scenario.now, name == s.scenario.now.Name
	}
	return &s.scenario.agent, name == s.scenario.agent.Name
}

// invocation makes each handler one invocation that can crash. None begins before the run is open.
func (s *stage) invocation(next local.Invoker) local.Invoker {
	s.functions = next
	return func(ctx context.Context, function string, payload []byte) (out []byte, err error) {
		if !s.open {
			if err := s.gate.Wait(ctx, 0); err != nil {
				return nil, err
			}
			s.gate.Notify() // there may be another
		}
		if s.invocations++; s.invocations > maxInvocations {
			s.noEnd(Failure{Path: "run", Got: fmt.Sprintf("%d invocations", maxInvocations), Want: "an end or a wait"})
			s.curtain.Notify()
			return nil, fault.ErrExit
		}
		if s.stopHere(function, payload) {
			return nil, fault.ErrExit
		}
		handler := next
		if function == "tool" && s.toolProcess != nil {
			handler = s.toolProcess
		}
		if !s.faults.Run(ctx, function, func(ctx context.Context) {
			if out, err = handler(ctx, function, payload); err == nil {
				s.returned(ctx)
			}
			if run := local.RunOf(payload); errors.Is(err, runtime.ErrModelBusy) {
				s.partOf(run).model.GiveUp(run)
			}
		}) {
			return nil, fault.ErrExit
		}
		return out, err
	}
}

// play is the scenario from its start to its end.
func (s *stage) play() {
	if err := s.begin(); err != nil {
		s.fail(Failure{Path: inputFile, Got: err.Error(), Want: "a run"})
		return
	}
	s.act(moment{what: "start"})
	s.open = true
	s.gate.Notify()
	if err := s.curtain.Wait(context.Background(), 0); err != nil {
		s.fail(Failure{Path: "run", Got: err.Error(), Want: "an end or a wait"})
	}
}

// begin starts the run, as often as it takes: a client that loses the answer asks again.
func (s *stage) begin() error { return s.start(s.scenario.start, "") }

// body is what starting the run asks for.
func (s *stage) body(in start, continues string) runtime.Start {
	var by []string // whom the story names started the run: nobody lies in a story
	if strings.HasPrefix(in.subject, "user:") {
		by = []string{in.subject}
	}
	return runtime.Start{
		Tenant: tenant, Agent: &s.scenario.agent, Key: in.key, Message: in.message, Input: in.input, Subject: in.subject, By: by,
		AccessControl: in.accessControl,
		Continues:     continues,
	}
}

func (s *stage) start(in start, continues string) error {
	r := s.body(in, continues)
	return s.insist("start", func(ctx context.Context) error {
		_, err := s.machine.Starter.Start(ctx, r)
		return err
	})
}

// goOn begins the run that goes on with the one that has ended. The script is read on behind what that one asked for.
func (s *stage) goOn() {
	for r := range s.requests {
		s.before = max(s.before, r.inference)
	}
	s.first, s.run = s.run, agent.RunID(tenant, s.scenario.agent.Name, s.scenario.then.key)
	if err := s.startThen(*s.scenario.then); err != nil {
		s.first, s.run = "", s.first
		s.fail(Failure{Path: thenFile, Got: err.Error(), Want: "a run"})
		s.curtain.Notify()
	}
}

// startThen begins the run of then.json.
func (s *stage) startThen(in start) error {
	s.at = -1
	if in.fork == "" {
		return s.start(in, s.first)
	}
	entries, err := s.record.Entries(context.Background(), tenant, s.first, 0, 0)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(entries, func(e run.Entry) bool {
		return slices.ContainsFunc(e.Events, func(ev run.Event) bool { return run.EventType(ev) == in.fork })
	})
	if at < 0 {
		return fmt.Errorf("the run has no event %s to fork at", in.fork)
	}
	s.at = int64(at)
	return s.insist("fork", func(ctx context.Context) error {
		_, err := s.machine.Starter.Fork(ctx, runtime.Fork{Tenant: tenant, Run: s.first, At: s.at, Key: in.key})
		return err
	})
}

// patience is how often somebody who has no answer asks again.
const patience = 10

// insist does something as an invocation of its own, and again if that crashes, or ends in an error that is no considered no, as a client
// does.
func (s *stage) insist(name string, do func(ctx context.Context) error) error {
	for tries := 1; ; tries++ {
		var err error
		lived := s.faults.Run(context.Background(), name, func(ctx context.Context) { err = do(ctx) })
		if lived && (err == nil || !s.disturbed() || refusal(err) || tries == patience) {
			return err
		}
	}
}

// Generate answers like the script of the run that asks.
func (s *stage) Generate(ctx context.Context, r agent.Request) (agent.Reply, error) {
	return s.partOf(r.Run).generate(ctx, r)
}

// provider is a provider's adapter that says nothing. Like every one it refuses media which nobody has read from their blob.
type provider struct{}

func (provider) Generate(_ context.Context, r agent.Request) (agent.Reply, error) {
	for i, m := range r.Messages {
		if b, ok := m.Block.(run.Media); ok && b.Data == "" {
			return agent.Reply{}, &agent.ModelError{Class: agent.ModelInvalid, Model: r.Model.ID, Message: fmt.Sprintf("message %d was not resolved", i)}
		}
	}
	return agent.Reply{}, nil
}

func (s *stage) fail(f Failure) { s.failures = append(s.failures, f) }

// noEnd says that the run came to no end, whatever its story is.
func (s *stage) noEnd(f Failure) {
	s.broke = append(s.broke, f)
	s.fail(f)
}

// broken says how the scheduler stopped.
func (s *stage) broken(err error) {
	var p *clock.PanicError
	switch {
	case errors.Is(err, clock.ErrDeadlock):
		s.noEnd(Failure{Path: "run", Got: s.standing() + ", and nothing that could move it", Want: "an end or a wait"})
	case errors.Is(err, clock.ErrRunaway):
		s.noEnd(Failure{Path: "run", Got: fmt.Sprintf("%d steps and no end: %s", maxSteps, s.standing()), Want: "an end or a wait"})
	case errors.As(err, &p):
		s.noEnd(Failure{Path: "run", Got: p.Error(), Want: "no panic"})
	default:
		s.noEnd(Failure{Path: "run", Got: err.Error(), Want: "an end or a wait"})
	}
}

// standing is where the run stands while nothing can move it.
func (s *stage) standing() string {
	l, err := s.record.Load(context.Background(), tenant, s.run)
	if err != nil {
		return "no run: " + err.Error()
	}
	return fmt.Sprintf("a run that is %s after entry %d", l.State.Status, l.State.Seq())
}
