package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
)

const tenant = "default"

// maxInvocations is the number of handler invocations after which a run counts as endless.
const maxInvocations = 2000

// maxSteps limits the task switches and clock moves of a run: a hundred times what the longest scenario takes.
const maxSteps = 50_000

// startTime is the virtual time at which every scenario begins.
var startTime = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// simulation is one run of a scenario: the product, the fakes around it, and a record of what they saw.
type simulation struct {
	Options
	Result                               // Failures are complete at the end; Calls are the injector's
	*scriptedRun                         // of the main run
	scriptedRuns map[string]*scriptedRun // by run id, created on first use

	handlers    local.Invoker // the handlers without fault injection
	toolProcess local.Invoker // the tool function's own process; nil = all functions share one

	clock             *clock.Virtual
	injector          *fault.Injector
	machine           *local.Machine
	journal           *store.Journal // no faults are injected into the simulation's own access
	table             *store.Memory  // likewise
	blobs             store.Blobs    // likewise
	provider          runtime.Model  // the stub provider behind the media resolution that real providers have
	people            peopleQueue
	continues         string // the run that the main run continues or undoes; empty = none
	forkAt            int64  // the entry of that run behind which the main run branches off; -1 = its end
	earlierInferences int64  // inferences of that run

	started       bool         // the run exists and all lines with "at": "start" are done
	startSignal   clock.Signal // handlers wait for it
	endSignal     clock.Signal // the scenario is over
	invocations   int
	redeployed    bool     // the agent is now.yaml's from here on
	crashRequests []string // approval requests that exist only because of a crash
	notifications []notification
	failures      []Failure

	intervened        map[int]bool          // interventions that were made, by index
	callerLost        bool                  // a caller did not retry after a lost answer
	cancelled         bool                  // an intervention cancelled the run
	acceptedMessages  map[string]string     // run ids of the messages accepted from interventions, by message id
	acceptedDecisions []string              // requests about calls for which an intervention's decision was accepted
	modelRequests     []map[run.Source]bool // the messages of each answered request to a model
	violations        []Failure             // broken invariants
	toolExecutions    []*toolExecution      // of all runs, in order
	randomIDs         *recordedIDs
	endFailures       []Failure // reasons why the run did not end; reported even when nothing is compared
}

type requestKey struct {
	inference int64
	forNotes  bool // the request for notes that precedes the inference
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
	sim.Calls = sim.injector.Calls()
	if sim.Pruned {
		sim.Result.Failures = sim.violations
		return sim.Result
	}
	if len(sim.failures) == 0 || sim.isDisturbed() {
		sim.checkInvariants()
	}
	if sim.InvariantsOnly {
		for _, e := range sim.toolExecutions {
			if e.tookEffect() && !e.repeatable {
				sim.Effects = append(sim.Effects, fmt.Sprintf("%s %s %s %s", e.run, e.key.call, e.tool, e.args))
			}
		}
		slices.Sort(sim.Effects)
		runs, err := sim.loadAllRuns()
		if err != nil { // a run that cannot be read breaks an invariant already
			runs = nil
		}
		for _, rec := range runs {
			if rec.State.From != nil && rec.State.Run != sim.run { // its seed is unknown
				continue
			}
			if r, err := sim.exportRun(rec); err == nil {
				sim.Runs = append(sim.Runs, r)
			}
		}
	}
	if sim.Diverged || sim.mayDiffer() {
		sim.failures = sim.endFailures
	} else {
		sim.Runs = sim.compareOutcome()
	}
	sim.Result.Failures = slices.Concat(sim.violations, sim.failures)
	return sim.Result
}

func newSimulation(s *Scenario, o Options) (*simulation, error) {
	v := clock.NewVirtual(startTime)
	v.SetLimit(maxSteps)
	table := store.NewMemory()
	sim := &simulation{
		Options: o, scriptedRuns: map[string]*scriptedRun{}, clock: v, injector: fault.New(v, o.Faults...),
		table: table, journal: store.NewJournal(table, 16), blobs: store.NewMemoryBlobs(), startSignal: v.NewSignal(),
		endSignal: v.NewSignal(), intervened: map[int]bool{}, acceptedMessages: map[string]string{},
		randomIDs: &recordedIDs{clock.SeededIDs(v, 1), map[string]bool{}},
	}
	sim.injector.Before(sim.interveneBefore)
	sim.scriptedRun = newScriptedRun(sim, s, agent.RunID(tenant, s.agent.Name, s.start.Key), "")
	for _, l := range s.people {
		if l.trigger == (trigger{}) {
			sim.people.queued = append(sim.people.queued, l)
		} else {
			sim.people.triggered = append(sim.people.triggered, l)
		}
	}
	v.SetIdle(sim.onIdle)
	blobs := fault.NewBlobs(sim.blobs, sim.injector.Do)
	sim.provider = runtime.WithMedia(stubProvider{}, blobs)
	ports, servers := fakePorts{sim}, fakeServers{}
	for _, m := range s.servers {
		servers[m.Name] = &fakeServer{server: m, sim: sim, served: map[string]bool{}}
	}
	remotes := runtime.Remotes{agent.KindLambda: ports, agent.KindHTTP: ports, agent.KindMCP: servers}
	config := local.Config{
		Table: store.Resend(sim.injector.Table(table), v, sim.randomIDs.Jitter), Blobs: blobs, Model: sim,
		Tools: ports, Hooks: s.options.Hooks, Emit: fault.NewEmitter(ports, sim.injector.Do), Remotes: remotes,
		Functions: ports, Agents: sim.findAgent, Current: sim.findAgent, Clock: sim.injector.Clock(), IDs: sim.randomIDs,
		Executions: local.NewExecutions(store.NewMemory()), Wrap: sim.wrapInvoker, Notify: sim.newNotifier(),
		Waiter: func(w runtime.Waiter) runtime.Waiter { return fault.NewWaiter(w, sim.injector.Do) },
	}
	if s.publishes() {
		config.Publish = fault.NewEmitter(publishedEvents{sim}, sim.injector.Do)
	}
	if o.Warm {
		config.Warm = 4 // runs that a process caches
	}
	var err error
	if sim.machine, err = local.New(config); err == nil && o.Warm {
		// The tool function gets a process with its own cache of runs, over the same store and the same executions.
		config.Executions = local.NewExecutions(store.NewMemory()) // none is ever started there
		config.Waiter = func(runtime.Waiter) runtime.Waiter { return sim.machine.Ports.Waiter }
		config.Wrap = func(own local.Invoker) local.Invoker {
			sim.toolProcess = own
			return own
		}
		_, err = local.New(config)
	}
	return sim, err
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

// wrapInvoker makes each handler call an invocation that can crash. No invocation begins before the simulation has
// started.
func (s *simulation) wrapInvoker(next local.Invoker) local.Invoker {
	s.handlers = next
	return func(ctx context.Context, function string, payload []byte) (out []byte, err error) {
		if !s.started {
			if err := s.startSignal.Wait(ctx, 0); err != nil {
				return nil, err
			}
			s.startSignal.Notify() // another handler may wait
		}
		if s.invocations++; s.invocations > maxInvocations {
			s.addEndFailure("run", fmt.Sprintf("%d invocations", maxInvocations), "an end or a wait")
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
		if !s.injector.Run(ctx, function, func(ctx context.Context) {
			if out, err = handler(ctx, function, payload); err == nil {
				s.recordReturned(ctx)
			}
			if run := local.RunOf(payload); errors.Is(err, runtime.ErrModelBusy) {
				s.scriptedRunOf(run).model.GiveUp(run, run)
			}
		}) {
			return nil, fault.ErrExit
		}
		return out, err
	}
}

func (s *simulation) execute() {
	if err := s.startRun(s.scenario.start, ""); err != nil {
		s.addFailure(inputFile, err.Error(), "a run")
		return
	}
	s.actAt(trigger{event: "start"})
	s.started = true
	s.startSignal.Notify()
	if err := s.endSignal.Wait(context.Background(), 0); err != nil {
		s.addFailure("run", err.Error(), "an end or a wait")
	}
}

func (s *simulation) startRequest(in startInput, continues string) runtime.Start {
	var by []string // the subject counts as authenticated
	if strings.HasPrefix(in.Subject, "user:") {
		by = []string{in.Subject}
	}
	return runtime.Start{
		Tenant: tenant, Agent: &s.scenario.agent, Key: in.Key, Message: in.blocks, Input: in.Input, Subject: in.Subject,
		By: by, AccessControl: in.AccessControl, Continues: continues,
	}
}

func (s *simulation) startRun(in startInput, continues string) error {
	r := s.startRequest(in, continues)
	return s.retry("start", func(ctx context.Context) error {
		_, err := s.machine.Starter.Start(ctx, r)
		return err
	})
}

// startThenRun starts the run of then.json, which continues the run that has ended, or forks it at the first event of a
// type. The script continues where that run stopped.
func (s *simulation) startThenRun() {
	answered := int64(0)
	for r, n := range s.requests {
		s.earlierInferences = max(s.earlierInferences, r.inference)
		if !r.forNotes && s.replied[n] {
			answered = max(answered, r.inference)
		}
	}
	then := *s.scenario.then
	s.continues, s.run, s.forkAt = s.run, agent.RunID(tenant, s.scenario.agent.Name, then.Key), -1
	if answered < s.earlierInferences { // its model failed
		s.earlierInferences = answered
		s.model.GiveUp(s.continues, s.run)
	}
	var err error
	if then.Fork == "" {
		err = s.startRun(then, s.continues)
	} else {
		err = s.forkRun(then)
	}
	if err != nil {
		s.continues, s.run = "", s.continues
		s.addFailure(thenFile, err.Error(), "a run")
		s.endSignal.Notify()
	}
}

func (s *simulation) forkRun(in startInput) error {
	entries, err := s.entries(s.continues)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(entries, func(e run.Entry) bool {
		return slices.ContainsFunc(e.Events, func(ev run.Event) bool { return run.EventType(ev) == in.Fork })
	})
	if at < 0 {
		return fmt.Errorf("the run has no event %s to fork at", in.Fork)
	}
	s.forkAt = int64(at)
	past, err := run.Fold(run.AgentState{}, entries[:at+1])
	if err != nil {
		return err
	}
	s.scriptedRun.forgetExecutions(&past)
	return s.retry("fork", func(ctx context.Context) error {
		_, err := s.machine.Starter.Fork(ctx, runtime.Fork{Tenant: tenant, Run: s.continues, At: s.forkAt, Key: in.Key})
		return err
	})
}

// maxTries is how often a caller repeats a request that had no answer.
const maxTries = 10

// retry runs do as an invocation, and again after a crash or an error that is not a refusal, as a client does.
func (s *simulation) retry(name string, do func(ctx context.Context) error) error {
	for tries := 1; ; tries++ {
		var err error
		lived := s.injector.Run(context.Background(), name, func(ctx context.Context) { err = do(ctx) })
		if lived && (err == nil || !s.isDisturbed() || isRefusal(err) || tries == maxTries) {
			return err
		}
	}
}

// Generate returns the next scripted reply of the run that the request is for.
func (s *simulation) Generate(ctx context.Context, r agent.Request) (agent.Reply, error) {
	c := fault.Call{Port: fault.ModelGenerate, Target: r.Model.ID}
	return fault.Result(ctx, s.injector.Do, c, func() (agent.Reply, error) {
		return s.scriptedRunOf(r.Run).generateReply(ctx, r)
	})
}

// stubProvider is a provider that returns nothing. Like every provider it refuses media that were not read from their
// blob.
type stubProvider struct{}

func (stubProvider) Generate(_ context.Context, r agent.Request) (agent.Reply, error) {
	for i, m := range r.Messages {
		if b, ok := m.Block.(run.Media); ok && b.Data == "" {
			return agent.Reply{}, &agent.ModelError{Class: agent.ModelInvalid, Model: r.Model.ID,
				Message: fmt.Sprintf("message %d was not resolved", i)}
		}
	}
	return agent.Reply{}, nil
}

func (s *simulation) addFailure(path, got, want string) {
	s.failures = append(s.failures, Failure{Path: path, Got: got, Want: want})
}

// addEndFailure records that the run did not end. This failure is reported even when nothing is compared.
func (s *simulation) addEndFailure(path, got, want string) {
	s.endFailures = append(s.endFailures, Failure{Path: path, Got: got, Want: want})
	s.addFailure(path, got, want)
}

func (s *simulation) reportSchedulerError(err error) {
	got, want := err.Error(), "an end or a wait"
	switch {
	case errors.Is(err, clock.ErrDeadlock):
		got = s.describeRun() + ", and nothing that could move it"
	case errors.Is(err, clock.ErrRunaway):
		got = fmt.Sprintf("%d steps and no end: %s", maxSteps, s.describeRun())
	case hasType[*clock.PanicError](err):
		want = "no panic"
	}
	s.addEndFailure("run", got, want)
}

func (s *simulation) load(run string) (store.Loaded, error) {
	return s.journal.Load(context.Background(), tenant, run)
}

func (s *simulation) head(run string) (store.Head, error) {
	return s.journal.Head(context.Background(), tenant, run)
}

func (s *simulation) entries(of string) ([]run.Entry, error) {
	return s.journal.Entries(context.Background(), tenant, of, 0, 0)
}

func (s *simulation) request(id string) (approval.Approval, error) {
	return approval.Get(context.Background(), s.table, tenant, id)
}

// describeRun returns the status of the main run and its last entry, for messages.
func (s *simulation) describeRun() string {
	l, err := s.load(s.run)
	if err != nil {
		return "no run: " + err.Error()
	}
	return fmt.Sprintf("a run that is %s after entry %d", l.State.Status, l.State.Seq())
}
