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

// startTime is when every scenario begins.
var startTime = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// simulation is one run of a scenario: the product, the world around it, and what was seen.
type simulation struct {
	*scriptedRun                         // of the run that is played
	scriptedRuns map[string]*scriptedRun // by run, as they were needed
	crashing     bool

	invariantsOnly bool          // whatever the story is
	handlers       local.Invoker // handlers, of no invocation yet
	toolProcess    local.Invoker // nil = functions share one

	clock             *clock.Virtual
	faults            *fault.Injector
	machine           *local.Machine
	journal           *store.Journal // the observer's own view, behind no fault
	table             store.Table    // the same
	items             *memory.Table  // the same
	blobs             store.Blobs    // the same
	provider          runtime.Model  // what would be asked in the script's place, behind what every provider's adapter is behind
	servers           *fakeServers
	people            *peopleQueue
	continues         string // the one that it goes on with; empty = it began by itself
	forkAt            int64  // the entry of that one behind which it branches off; -1 = its end
	earlierInferences int64  // inferences that the script was asked for until then

	started       bool         // the run is created and who acts at the start has acted
	startSignal   clock.Signal // handlers wait here until then
	endSignal     clock.Signal // the scenario is over
	invocations   int
	redeployed    bool     // the agent is now.yaml's from here on
	crashRequests []string // requests to people that only a crash made
	diverged      bool     // a request during which somebody said something was lost in a crash: what was said was heard at another time
	notifications []notification
	failures      []Failure

	interventions     []Intervention
	intervened        map[int]bool      // of acts, by place
	ineffective       int               // acts that found nothing to do
	callerLost        bool              // somebody did not come back for their answer
	cancelled         bool              // the run was called off by an act
	acceptedMessages  map[string]string // the runs of messages that acts had accepted, by the messages' ids
	acceptedDecisions []string          // requests about calls of which somebody beside the story was told that their decision counts
	repaired          int               // runs that a sweep repaired
	sweeps            int               // how often one was needed
	modelRequests     []modelRequest    // requests to models that were answered
	violations        []Failure         // promises that were broken
	toolExecutions    []*toolExecution  // of tools, in order
	randomIDs         *recordedIDs
	faultPoints       []fault.Point
	endFailures       []Failure                 // ways in which the run came to no end
	isKnownState      func(print [16]byte) bool // nil = nobody asks
	boundaries        []Boundary
	pruned            bool
}

// requestKey is one request to a model, by position in the journal.
type requestKey struct {
	inference int64
	forNotes  bool // asked for before the inference
	attempt   int
}

// Run runs the scenario once.
func (s *Scenario) Run(o Options) Result {
	sim, err := newSimulation(s, o)
	if err != nil {
		return Result{Failures: []Failure{{Path: "machine", Got: err.Error(), Want: "a machine"}}}
	}
	if err := sim.clock.Run(sim.execute); err != nil {
		sim.reportSchedulerError(err)
	}
	// What came of the run.
	r := Result{Calls: sim.faults.Calls(), Boundaries: sim.boundaries, Ineffective: sim.ineffective, Repaired: sim.repaired, Sweeps: sim.sweeps, Diverged: sim.diverged}
	if sim.pruned {
		r.Pruned = true
		r.Violations = sim.violations
		return r
	}
	if len(sim.failures) == 0 || sim.isDisturbed() {
		sim.checkInvariants()
	}
	if sim.invariantsOnly {
		// Those of all tools so far.
		var list []Effect
		for _, e := range sim.toolExecutions {
			if !e.tookEffect() {
				continue
			}
			sr := sim.scriptedRunOf(e.run)
			c, _ := sr.calledIn(e.run, e.key.call)
			list = append(list, Effect{Run: e.run, Call: e.key.call, Tool: c.Tool, Args: string(e.args), Repeatable: sr.isRepeatable(c.Tool)})
		}
		r.Effects, r.Runs = list, sim.exportRuns()
	}
	r.Violations = sim.violations
	if sim.diverged || sim.mayDiffer() {
		r.Failures = sim.endFailures
		return r
	}
	reviewed := sim.compareOutcome()
	r.Failures, r.Journal, r.Children, r.Seed = reviewed.Failures, reviewed.Journal, reviewed.Children, reviewed.Seed
	return r
}

func newSimulation(s *Scenario, o Options) (*simulation, error) {
	v := clock.NewVirtual(startTime)
	v.SetLimit(maxSteps)
	table := memory.New()
	sim := &simulation{
		scriptedRuns: map[string]*scriptedRun{}, crashing: o.InvariantsOnly || len(o.Faults)+len(o.Interventions) > 0, invariantsOnly: o.InvariantsOnly, clock: v, faults: fault.New(v, o.Faults...), table: table, items: table,
		journal: store.NewJournal(table, 16), startSignal: v.NewSignal(), endSignal: v.NewSignal(), interventions: o.Interventions, intervened: map[int]bool{}, acceptedMessages: map[string]string{}, isKnownState: o.IsKnownState,
		faultPoints: o.Faults, randomIDs: newRecordedIDs(ids.Seeded(v, 1)),
	}
	if len(o.Interventions) > 0 {
		sim.faults.Before(sim.interveneBefore)
	}
	sim.scriptedRun = newScriptedRun(sim, s, agent.RunID(tenant, s.agent.Name, s.start.key), "")
	sim.servers = newFakeServers(sim)
	sim.people = newPeopleQueue(sim, s.people)
	v.SetIdle(sim.people.onIdle)
	sim.blobs = memory.NewBlobs()
	blobs := sim.faults.Blobs(sim.blobs)
	sim.provider = runtime.WithMedia(stubProvider{}, blobs)
	config := local.Config{
		Table: store.Resend(sim.faults.Table(table), v, sim.randomIDs.Jitter), Blobs: blobs, Model: sim.faults.Model(sim), Tools: sim.faults.Tools(fakePorts{sim}), Hooks: s.hooks, Emit: sim.faults.Emitter(fakePorts{sim}),
		Remotes: sim.away(), Functions: sim.faults.Functions(fakePorts{sim}),
		Agents: sim.findAgent, Current: sim.findAgent, Clock: sim.faults.Clock(), IDs: sim.randomIDs, Executions: &asl.MemoryStore{}, Wrap: sim.wrapInvoker, Waiter: sim.faults.Waiter,
		Notify: sim.newNotifier(),
	}
	if o.Warm {
		config.Warm = maxWarmRuns
	}
	var err error
	if sim.machine, err = local.New(config); err == nil && o.Warm {
		err = sim.startToolProcess(config)
	}
	return sim, err
}

// maxWarmRuns is how many runs a process keeps.
const maxWarmRuns = 4

// startToolProcess gives the tool function a process of its own, with what it keeps of runs, over the same store and the same executions.
func (s *simulation) startToolProcess(c local.Config) error {
	c.Executions = &asl.MemoryStore{} // none is ever started there
	c.Waiter = func(runtime.Waiter) runtime.Waiter { return s.machine.Ports.Waiter }
	c.Wrap = func(own local.Invoker) local.Invoker {
		s.toolProcess = own
		return own
	}
	_, err := local.New(c)
	return err
}

func (s *simulation) findAgent(name string) (*agent.Definition, bool) {
	if d, ok := s.scenario.delegates[name]; ok {
		return &d.agent, true
	}
	if s.redeployed && s.scenario.redeployed != nil {
		return s.scenario.redeployed, name == s.scenario.redeployed.Name
	}
	return &s.scenario.agent, name == s.scenario.agent.Name
}

// wrapInvoker makes each handler one invocation that can crash. None begins before the run is open.
func (s *simulation) wrapInvoker(next local.Invoker) local.Invoker {
	s.handlers = next
	return func(ctx context.Context, function string, payload []byte) (out []byte, err error) {
		if !s.started {
			if err := s.startSignal.Wait(ctx, 0); err != nil {
				return nil, err
			}
			s.startSignal.Notify() // there may be another
		}
		if s.invocations++; s.invocations > maxInvocations {
			s.addEndFailure(Failure{Path: "run", Got: fmt.Sprintf("%d invocations", maxInvocations), Want: "an end or a wait"})
			s.endSignal.Notify()
			return nil, fault.ErrExit
		}
		if s.recordBoundary(function, payload) {
			return nil, fault.ErrExit
		}
		handler := next
		if function == "tool" && s.toolProcess != nil {
			handler = s.toolProcess
		}
		if !s.faults.Run(ctx, function, func(ctx context.Context) {
			if out, err = handler(ctx, function, payload); err == nil {
				s.recordReturned(ctx)
			}
			if run := local.RunOf(payload); errors.Is(err, runtime.ErrModelBusy) {
				s.scriptedRunOf(run).model.GiveUp(run)
			}
		}) {
			return nil, fault.ErrExit
		}
		return out, err
	}
}

// execute is the scenario from its start to its end.
func (s *simulation) execute() {
	if err := s.begin(); err != nil {
		s.addFailure(Failure{Path: inputFile, Got: err.Error(), Want: "a run"})
		return
	}
	s.actAt(trigger{event: "start"})
	s.started = true
	s.startSignal.Notify()
	if err := s.endSignal.Wait(context.Background(), 0); err != nil {
		s.addFailure(Failure{Path: "run", Got: err.Error(), Want: "an end or a wait"})
	}
}

// begin starts the run, as often as it takes: a client that loses the answer asks again.
func (s *simulation) begin() error { return s.startRun(s.scenario.start, "") }

// startRequest is what starting the run asks for.
func (s *simulation) startRequest(in startInput, continues string) runtime.Start {
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

func (s *simulation) startRun(in startInput, continues string) error {
	r := s.startRequest(in, continues)
	return s.retry("start", func(ctx context.Context) error {
		_, err := s.machine.Starter.Start(ctx, r)
		return err
	})
}

// startThenRun begins the run that goes on with the one that has ended. The script is read on behind what that one asked for.
func (s *simulation) startThenRun() {
	for r := range s.requests {
		s.earlierInferences = max(s.earlierInferences, r.inference)
	}
	s.continues, s.run = s.run, agent.RunID(tenant, s.scenario.agent.Name, s.scenario.then.key)
	if err := s.startThen(*s.scenario.then); err != nil {
		s.continues, s.run = "", s.continues
		s.addFailure(Failure{Path: thenFile, Got: err.Error(), Want: "a run"})
		s.endSignal.Notify()
	}
}

// startThen begins the run of then.json.
func (s *simulation) startThen(in startInput) error {
	s.forkAt = -1
	if in.fork == "" {
		return s.startRun(in, s.continues)
	}
	entries, err := s.journal.Entries(context.Background(), tenant, s.continues, 0, 0)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(entries, func(e run.Entry) bool {
		return slices.ContainsFunc(e.Events, func(ev run.Event) bool { return run.EventType(ev) == in.fork })
	})
	if at < 0 {
		return fmt.Errorf("the run has no event %s to fork at", in.fork)
	}
	s.forkAt = int64(at)
	return s.retry("fork", func(ctx context.Context) error {
		_, err := s.machine.Starter.Fork(ctx, runtime.Fork{Tenant: tenant, Run: s.continues, At: s.forkAt, Key: in.key})
		return err
	})
}

// maxTries is how often somebody who has no answer asks again.
const maxTries = 10

// retry does something as an invocation of its own, and again if that crashes, or ends in an error that is no considered no, as a client
// does.
func (s *simulation) retry(name string, do func(ctx context.Context) error) error {
	for tries := 1; ; tries++ {
		var err error
		lived := s.faults.Run(context.Background(), name, func(ctx context.Context) { err = do(ctx) })
		if lived && (err == nil || !s.isDisturbed() || isRefusal(err) || tries == maxTries) {
			return err
		}
	}
}

// Generate answers like the script of the run that asks.
func (s *simulation) Generate(ctx context.Context, r agent.Request) (agent.Reply, error) {
	return s.scriptedRunOf(r.Run).generateReply(ctx, r)
}

// stubProvider is a provider's adapter that says nothing. Like every one it refuses media which nobody has read from their blob.
type stubProvider struct{}

func (stubProvider) Generate(_ context.Context, r agent.Request) (agent.Reply, error) {
	for i, m := range r.Messages {
		if b, ok := m.Block.(run.Media); ok && b.Data == "" {
			return agent.Reply{}, &agent.ModelError{Class: agent.ModelInvalid, Model: r.Model.ID, Message: fmt.Sprintf("message %d was not resolved", i)}
		}
	}
	return agent.Reply{}, nil
}

func (s *simulation) addFailure(f Failure) { s.failures = append(s.failures, f) }

// addEndFailure says that the run came to no end, whatever its story is.
func (s *simulation) addEndFailure(f Failure) {
	s.endFailures = append(s.endFailures, f)
	s.addFailure(f)
}

// reportSchedulerError says how the scheduler stopped.
func (s *simulation) reportSchedulerError(err error) {
	var p *clock.PanicError
	switch {
	case errors.Is(err, clock.ErrDeadlock):
		s.addEndFailure(Failure{Path: "run", Got: s.describeRun() + ", and nothing that could move it", Want: "an end or a wait"})
	case errors.Is(err, clock.ErrRunaway):
		s.addEndFailure(Failure{Path: "run", Got: fmt.Sprintf("%d steps and no end: %s", maxSteps, s.describeRun()), Want: "an end or a wait"})
	case errors.As(err, &p):
		s.addEndFailure(Failure{Path: "run", Got: p.Error(), Want: "no panic"})
	default:
		s.addEndFailure(Failure{Path: "run", Got: err.Error(), Want: "an end or a wait"})
	}
}

// describeRun is where the run stands while nothing can move it.
func (s *simulation) describeRun() string {
	l, err := s.journal.Load(context.Background(), tenant, s.run)
	if err != nil {
		return "no run: " + err.Error()
	}
	return fmt.Sprintf("a run that is %s after entry %d", l.State.Status, l.State.Seq())
}
