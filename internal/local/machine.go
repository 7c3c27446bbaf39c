// Package local runs the deployed state machine and the deployed handlers in one process: the engine of a laptop, and
// of scenarios.
package local

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/countersign/countersign"
	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/asl"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/hook"
	"github.com/countersign/countersign/internal/lambdafn"
	"github.com/countersign/countersign/internal/model/modelretry"
	"github.com/countersign/countersign/internal/people"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/tool"
)

// IDs draws what is random.
type IDs interface {
	runtime.IDs
	Token() string
	Jitter(limit time.Duration) time.Duration
}

// Invoker calls a function of the state machine by its name: Step, Tool or Approve.
type Invoker func(ctx context.Context, function string, payload []byte) ([]byte, error)

// Config is what a Machine is made of. Fields that do not say what nil or zero means are required.
type Config struct {
	Table      store.Table
	Blobs      store.Blobs
	Model      runtime.Model
	Tools      runtime.ToolSource
	Hooks      hook.Set // the code that agents name beside tools
	Agents     agent.Agents
	Clock      clock.Clock
	IDs        IDs
	Executions asl.Store
	Sink       runtime.EventSink          // nil = nobody follows runs
	Watch      *lambdafn.Observer         // nil = nobody watches runs
	Warm       int                        // runs whose folded state is kept; 0 = none
	Wrap       func(next Invoker) Invoker // nil = handlers are called directly

	// Trouble is told of every function that failed, before the state machine tries again or gives up; nil = nobody
	// listens.
	Trouble func(function string, err error)
	// Busy is told that a run waits for its model, why, and after how long it asks again; nil = nobody listens.
	Busy func(run string, err error, again time.Duration)
	// Reaps says that a run goes on in the next execution as soon as one was throttled for too long; else a sweep does it.
	Reaps bool
	// Waiter stands between the use cases and the engine; nil = nothing does.
	Waiter func(engine runtime.Waiter) runtime.Waiter
	// Emit takes the events of services' calls and of runs' ends; nil = unheard: whoever looks at a run sees what it waits
	// for, and answers.
	Emit runtime.Emitter
	// Publish takes the events of what happens to runs and requests; nil = nobody is told.
	Publish runtime.Emitter
	// Remotes carry out the calls of tools that are somewhere else, and Functions those of functions that answer later;
	// nil = none can be called.
	Remotes   runtime.Remotes
	Functions runtime.Functions
	// Trusts is told that the tools of a server that is not in mcp.lock are trusted; nil = they are disabled.
	Trusts    func(agent, server string)
	Callbacks runtime.Callbacks // where calls are answered; nil = by the API alone
	Embedder  runtime.Embedder  // compares tools for the pre-filter; nil = nobody embeds texts here
	// SharesRuns leaves runs alone that need an agent which only another process knows (see asl.Engine.StallReason);
	// else their calls fail.
	SharesRuns bool

	People people.Directory // who the directory knows; nil = nobody
	// Current is what is deployed now of agents, whose policy holds beside what runs are pinned to (A17). Nil = what is
	// pinned holds alone: on a laptop a file may have a registered agent's name.
	Current agent.Agents
	// Notify tells people of requests, over this machine's table and clock, whatever it names itself; what is due later is
	// done at its time while the process runs. Nil = nobody is told, and nothing is due.
	Notify *people.Notifier
}

// noBus is a laptop's event bus, which drops all events.
type noBus struct{}

func (noBus) Emit(context.Context, policy.Outgoing) error { return nil }

// Machine is the whole product in one process: engine, handlers, and what people do to runs. Safe for concurrent use.
type Machine struct {
	*lambdafn.Deployment
	Engine  *asl.Engine
	Sweeper *runtime.Sweeper

	trouble func(what string, err error) // nil = nobody listens
	notices *notices                     // nil = nobody is told of requests
}

// The names under which the deployed definition knows its functions, as its placeholders are filled here.
const (
	stepFunction    = "step"
	toolFunction    = "tool"
	approveFunction = "approve"
	machineARN      = "arn:aws:states:local:000000000000:stateMachine:countersign"
	executionARN    = "arn:aws:states:local:000000000000:execution:countersign:"
)

// definition is the deployed state machine. Machines share it: nothing changes it.
var definition = sync.OnceValues(func() (*asl.Definition, error) {
	return asl.Parse(countersign.StateMachine, map[string]string{
		"StepFunctionArn": stepFunction, "ToolFunctionArn": toolFunction, "ApproveFunctionArn": approveFunction,
		"Partition": "aws",
	})
})

// New makes a machine. It starts nothing: see Resume.
func New(c Config) (*Machine, error) {
	def, err := definition()
	if err != nil {
		return nil, fmt.Errorf("load the state machine: %w", err)
	}
	watch := cmp.Or(c.Watch, &lambdafn.Observer{Clock: c.Clock})
	m := &Machine{
		Deployment: &lambdafn.Deployment{
			Definitions: runtime.WithCurrentPolicy(runtime.PinnedDefinitions(c.Blobs), c.Current),
			People:      c.People, Agents: c.Agents, Invoked: watch.Invoked, Trace: watch.Trace,
		},
		trouble: c.Trouble,
	}
	sinks := runtime.Sinks{raises{m}}
	if c.Sink != nil {
		sinks = append(sinks, c.Sink)
	}
	m.Ports = watch.Ports(runtime.Ports{
		Table: c.Table, Journal: store.NewJournal(c.Table, c.Warm), Blobs: c.Blobs, Tools: c.Tools, Agents: c.Agents,
		Valid: tool.Validator(c.Tools), Schema: tool.Fits, Clock: c.Clock, IDs: c.IDs, Sink: sinks, Hooks: c.Hooks,
		Emit: cmp.Or[runtime.Emitter](c.Emit, noBus{}), Publish: c.Publish, Trusts: c.Trusts,
		Model: modelretry.New(watch.Model(c.Model), c.Clock, c.IDs.Jitter), Remotes: watch.Remotes(c.Remotes),
		Functions: c.Functions, Callbacks: c.Callbacks, SharesRuns: c.SharesRuns,
	})
	if c.Embedder != nil {
		m.Ports.Index = runtime.NewToolIndex(c.Embedder)
	}
	m.Ports.Count, _ = c.Model.(runtime.TokenCounter) // one that cannot count leaves tokens to be estimated
	m.withNotices(c)
	invoke := m.notices.interceptAlarm(m.Invoke)
	if c.Wrap != nil {
		invoke = c.Wrap(invoke)
	}
	if m.notices != nil {
		m.notices.invoke = invoke
	}
	m.Engine, err = asl.New(asl.Config{
		Definition: def, ARN: machineARN, Clock: c.Clock, Store: c.Executions, IDs: c.IDs.Token, Jitter: c.IDs.Jitter,
		Invoke: func(ctx context.Context, function string, payload []byte) ([]byte, error) {
			out, err := invoke(ctx, function, payload)
			if err != nil && ctx.Err() == nil && !errors.Is(err, runtime.ErrModelBusy) {
				m.report(function, err)
			}
			if errors.Is(err, runtime.ErrOtherProcess) || errors.Is(err, approval.ErrNotLinked) {
				err = fmt.Errorf("%w: %w", asl.ErrStalled, err)
			}
			return out, err
		},
		Retrying: func(d asl.Description, f *asl.Error, wait time.Duration) { // a run may wait for its model
			if c.Busy == nil || !errors.Is(f, runtime.ErrModelBusy) {
				return
			}
			why := f.Unwrap()
			if failed, ok := errors.AsType[*agent.ModelError](f); ok {
				why = failed
			}
			_, run, _ := runtime.StartedRun(d.Name, d.Input)
			c.Busy(run, why, wait)
		},
		Ended: m.reaper(c.Reaps),
		Halted: func(_ asl.Description, err error) {
			m.report("an execution (the next start of this program goes on)", err)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("make the engine: %w", err)
	}
	m.Ports.Waiter = waiter{m.Engine}
	if c.Waiter != nil {
		m.Ports.Waiter = c.Waiter(m.Ports.Waiter)
	}
	m.Family, m.CleansUp = m.Ports.NotifyFamily, true
	if c.SharesRuns {
		m.Shown, m.CheckLinked = m.Definitions, m.canCarryOut
		m.Definitions = runtime.WithLinkedCode(m.Shown, c.Hooks)
	}
	m.Compose()
	m.Sweeper = &runtime.Sweeper{Ports: m.Ports, Definitions: m.Definitions, TrustWoken: true, Void: m.Desk.Void}
	return m, nil
}

// reaper goes on with the runs of executions that were throttled for too long, as functions/sweep does when it hears of
// such an end.
func (m *Machine) reaper(on bool) func(context.Context, asl.Description) {
	if !on {
		return nil
	}
	return func(ctx context.Context, d asl.Description) {
		tenant, run, ok := runtime.StartedRun(d.Name, d.Input)
		if !ok || d.Error != runtime.ThrottledError {
			return
		}
		if _, err := m.Sweeper.Repair(ctx, tenant, run); err != nil && ctx.Err() == nil {
			m.report("repair", err)
		}
	}
}

// ActiveRuns returns the runs that this process works on, sorted.
func (m *Machine) ActiveRuns() []string {
	var runs []string
	for _, x := range m.Engine.UnderWay() {
		var of struct{ Run string }
		if json.Unmarshal(x.Input, &of) == nil && of.Run != "" {
			runs = append(runs, of.Run)
		}
	}
	slices.Sort(runs)
	return slices.Compact(runs)
}

// Resume goes on with the executions on record, repairs every open run of the tenant that disagrees with its execution,
// stops the executions of those that were cancelled and has them cleaned up after where the process that cancelled them
// did not come to it, and has people told what is overdue. With a run it leaves alone all that is not of its family:
// the runs below the same root.
func (m *Machine) Resume(ctx context.Context, tenant, of string) error {
	root := func(run string) string {
		if h, err := m.Ports.Journal.Head(ctx, tenant, run); err == nil && h.Parent != nil {
			return h.Parent.Root
		}
		return run
	}
	if _, err := m.Ports.Journal.Head(ctx, tenant, of); of != "" && errors.Is(err, store.ErrNoRun) {
		return nil
	}
	top := root(of)
	isOf := func(run string) bool { return of == "" || root(run) == top }
	err := m.Engine.Resume(ctx, func(r asl.Record) bool {
		_, run, _ := runtime.StartedRun(r.Name, r.Input)
		return isOf(run)
	})
	if err = m.reportUnreadable(err); err != nil {
		return err
	}
	for _, status := range []run.RunStatus{run.RunRunning, run.RunWaiting} {
		for cursor := ""; ; {
			heads, next, err := m.Ports.Journal.List(ctx, tenant, status, 0, cursor)
			if err = m.reportUnreadable(err); err != nil {
				return err
			}
			for _, h := range heads {
				if !isOf(h.Run) {
					continue
				}
				if _, err := m.Sweeper.Repair(ctx, tenant, h.Run); m.reportUnreadable(err) != nil {
					return err
				}
			}
			if cursor = next; cursor == "" {
				break
			}
		}
	}
	err = errors.Join(m.finishCancels(ctx, tenant), m.Sweeper.RepairEnds(ctx, tenant, isOf))
	if of == "" { // any run may have raised a budget
		err = errors.Join(err, m.reportUnreadable(m.Sweeper.VoidBudgetRequests(ctx, tenant)))
	}
	return errors.Join(err, m.notices.catchUp(ctx, tenant))
}

// raises lets the other runs go on that wait for more of a budget, when people have raised it for one of them.
type raises struct{ *Machine }

// Committed is runtime.EventSink's.
func (r raises) Committed(ctx context.Context, e run.Entry, s *run.AgentState) {
	raised := slices.ContainsFunc(e.Events, func(e run.Event) bool {
		f, ok := e.(run.CallFinished)
		c, _ := s.Call(f.Call)
		return ok && !f.IsError && run.IsSharedBudgetTool(c.Tool)
	})
	if !raised {
		return
	}
	if err := r.Sweeper.VoidBudgetRequests(ctx, s.Tenant); err != nil {
		r.report("let runs go on whose budget was raised", err)
	}
}

// finishCancels does what follows a cancel for each cancelled run whose execution still waits.
func (m *Machine) finishCancels(ctx context.Context, tenant string) error {
	for _, x := range m.Engine.List(ctx, asl.Running) {
		var of struct{ Tenant, Run string }
		// started by hand, for whatever run
		if err := json.Unmarshal(x.Input, &of); err != nil || of.Tenant != tenant || of.Run == "" {
			continue
		}
		l, err := m.Ports.Journal.Load(ctx, tenant, of.Run)
		switch {
		case errors.Is(err, store.ErrNoRun), errors.Is(err, store.ErrDamaged):
			// it was told of, or is told of by whoever goes on with it
			continue
		case err != nil:
			return err
		case l.State.Status != run.RunDone || l.State.Reason != run.ReasonCancelled || l.State.Owner != x.Name:
			continue
		}
		if _, err := m.Canceller.Cancel(ctx, tenant, of.Run, "", ""); m.reportUnreadable(err) != nil {
			return err
		}
	}
	return nil
}

// reportUnreadable reports an item that cannot be read, or a run whose code is not linked, so that the other runs go
// on. It returns any other error.
func (m *Machine) reportUnreadable(err error) error {
	if errors.Is(err, store.ErrDamaged) || errors.Is(err, approval.ErrNotLinked) {
		m.report("resume", err)
		return nil
	}
	return err
}

func (m *Machine) report(what string, err error) {
	if m.trouble != nil {
		m.trouble(what, err)
	}
}

// waiter drives the engine for package runtime.
type waiter struct{ engine *asl.Engine }

func (w waiter) Success(ctx context.Context, token string) error {
	err := w.engine.SendTaskSuccess(ctx, token, []byte("{}"))
	if isRefused(err, asl.TaskTimedOut) || isRefused(err, asl.TaskDoesNotExist) {
		return runtime.ErrTokenUsed
	}
	return err
}

func (w waiter) Start(ctx context.Context, tenant, run, name string) error {
	input, err := json.Marshal(map[string]string{"tenant": tenant, "run": run})
	if err != nil {
		return err
	}
	if _, err = w.engine.Start(ctx, name, input); isRefused(err, asl.ExecutionAlreadyExists) {
		return nil
	}
	return err
}

func (w waiter) Stop(ctx context.Context, name, cause string) error {
	err := w.engine.Stop(ctx, executionARN+name, "Cancelled", cause)
	if isRefused(err, asl.ExecutionDoesNotExist) {
		return nil
	}
	return err
}

func (w waiter) Status(ctx context.Context, name string) (runtime.ExecutionStatus, error) {
	d, err := w.engine.Describe(ctx, executionARN+name)
	switch {
	case isRefused(err, asl.ExecutionDoesNotExist):
		return runtime.ExecutionNone, nil
	case err != nil:
		return "", err
	case d.Status.Terminal():
		return runtime.EndedBy(d.Error), nil
	default:
		return runtime.ExecutionRunning, nil
	}
}

func isRefused(err error, name string) bool {
	var e *asl.Error
	return errors.As(err, &e) && e.Name == name
}

// canCarryOut refuses a decision about a call whose tool this process does not have: nobody here could carry it out. A
// definition that cannot be read says nothing about tools; the step that follows the decision reports it. It is
// approval.Desk's Able.
func (m *Machine) canCarryOut(ctx context.Context, a approval.Approval) error {
	l, err := m.Ports.Journal.Load(ctx, a.Tenant, a.Run)
	if err != nil {
		return err
	}
	def, err := m.Definitions(ctx, a.Tenant, l.State.Definition)
	if errors.Is(err, approval.ErrNotLinked) {
		return fmt.Errorf("approval %s of run %s is left pending: %w", a.ID, a.Run, err)
	}
	if err != nil {
		return nil
	}
	for _, name := range a.Tools {
		if missing := m.Ports.Missing(def, name); missing != "" {
			return fmt.Errorf("approval %s of run %s is left pending: tool %s: %w", a.ID, a.Run, missing, approval.ErrNotLinked)
		}
	}
	return nil
}
