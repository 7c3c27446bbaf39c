package scenario

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/model/script"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/tool"
)

// scriptedRun is one run of a scenario with its scripted model and fake tools. Each run reads its script and results
// from the beginning. It logs the effects outside the product, as the simulation logs tool executions: events and
// invoked functions. No crash changes the logs.
type scriptedRun struct {
	sim         *simulation
	scenario    *Scenario // the archive's files of its agent
	run         string
	agentName   string // as the lines of people.jsonl name it; "" = the main run
	model       *script.Model
	requests    map[requestKey]int // to the model, numbered in the order of their first attempts
	inputDuring map[int]bool       // requests to the model during which a person acted
	replied     map[int]bool       // requests that the model has answered

	tools       map[string]*toolScript
	usedResults map[string]int       // by tool: how many results were given
	resultIndex map[executionKey]int // the index of an execution's result; a repetition gets the same result
	reruns      map[string]int       // by call: how often people had it run again
	fences      map[string]fence     // by run and call
	invokes     []recordedInvoke     // of functions that answer later, each key once
	events      []policy.Outgoing    // in the order of their first delivery, each id once
	published   []policy.Outgoing    // likewise
}

func newScriptedRun(sim *simulation, s *Scenario, run, name string) *scriptedRun {
	sr := &scriptedRun{
		sim: sim, scenario: s, run: run, agentName: name, model: script.New(s.script),
		requests: map[requestKey]int{}, inputDuring: map[int]bool{}, replied: map[int]bool{},
		tools: map[string]*toolScript{}, usedResults: map[string]int{}, resultIndex: map[executionKey]int{},
		reruns: map[string]int{}, fences: map[string]fence{},
	}
	for i := range s.tools {
		// The agent's own tools come before those of servers.
		if name := s.tools[i].spec.Name; sr.tools[name] == nil {
			sr.tools[name] = &s.tools[i]
		}
	}
	return sr
}

// scriptedRunOf returns the scripted run of a delegated run, and the main one for any other id.
func (s *simulation) scriptedRunOf(run string) *scriptedRun {
	if sr, ok := s.scriptedRuns[run]; ok {
		return sr
	}
	sr := s.scriptedRun
	if l, err := s.load(run); err == nil && l.State.Parent != nil {
		if of, ok := s.scenario.delegates[l.State.Agent]; ok {
			if own := of.calls[l.State.Parent.Call]; own != nil {
				of = own
			}
			sr = newScriptedRun(s, of, run, l.State.Agent)
		}
	}
	s.scriptedRuns[run] = sr
	return sr
}

// recordedRun is a run of the scenario as the journal has it.
type recordedRun struct {
	scripted *scriptedRun
	store.Loaded
}

// loadRunTree loads the main run and all runs that it delegated to, each after its parent.
func (s *simulation) loadRunTree() ([]recordedRun, error) {
	return s.loadRunsBelow(s.scriptedRun, s.run)
}

// loadAllRuns loads the run that the main run continues or undoes, if any, the main run, and all runs that they
// delegated to, each after its parent.
func (s *simulation) loadAllRuns() ([]recordedRun, error) {
	runs, err := s.loadRunTree()
	if err != nil || s.continues == "" {
		return runs, err
	}
	earlier, err := s.loadRunsBelow(s.scriptedRun, s.continues)
	return append(earlier, runs...), err
}

func (s *simulation) loadRunsBelow(sr *scriptedRun, run string) ([]recordedRun, error) {
	l, err := s.load(run)
	if err != nil {
		return nil, err
	}
	list := []recordedRun{{sr, l}}
	for _, child := range s.startedChildren(&l.State) {
		more, err := s.loadRunsBelow(s.scriptedRunOf(child.Child), child.Child)
		if err != nil {
			return nil, err
		}
		list = append(list, more...)
	}
	return list, nil
}

// startedChildren returns the calls whose runs have started: a call may be claimed and its run not yet there.
func (s *simulation) startedChildren(of *run.AgentState) []run.Call {
	return slices.DeleteFunc(of.Calls(), func(c run.Call) bool {
		_, err := s.head(c.Child)
		return c.Child == "" || err != nil
	})
}

// findRunOfAgent returns the agent's first run that has not ended, or else its last one.
func findRunOfAgent(runs []recordedRun, name string) (found recordedRun, ok bool) {
	for _, rec := range runs {
		if rec.scripted.agentName != name {
			continue
		}
		if found, ok = rec, true; rec.State.Status != run.RunDone {
			break
		}
	}
	return found, ok
}

// scriptedRunForLine returns the run that a line of people.jsonl is about: one that has the call, if any has.
func (s *simulation) scriptedRunForLine(l line) (*scriptedRun, error) {
	if l.Agent == "" {
		return s.scriptedRun, nil
	}
	runs, err := s.loadRunTree()
	if err != nil {
		return nil, err
	}
	rec, ok := findRunOfAgent(slices.DeleteFunc(slices.Clone(runs), func(rec recordedRun) bool {
		_, has := rec.State.Call(l.Call)
		return !has
	}), l.Agent)
	if !ok {
		rec, ok = findRunOfAgent(runs, l.Agent)
	}
	if !ok {
		return nil, fmt.Errorf("agent %s has no run", l.Agent)
	}
	return rec.scripted, nil
}

// generateReply returns the next scripted reply. The people whose trigger is this request act first.
func (sr *scriptedRun) generateReply(ctx context.Context, r agent.Request) (agent.Reply, error) {
	s := sr.sim
	if sr == s.scriptedRun {
		r.Inference += s.earlierInferences
	}
	which := requestKey{r.Inference, r.Lifecycle == run.LifecycleNotes, sr.model.Attempt(r)}
	n, repeated := sr.requests[which]
	if !repeated {
		n = len(sr.requests) + 1
		sr.requests[which] = n
	}
	s.Diverged = s.Diverged || repeated && sr.inputDuring[n]
	if sr.replied[n] && !s.isDisturbed() { // no crash lost the reply: the product dropped it
		s.addEndFailure(fmt.Sprintf("inference:%d", n), "a second request for the same reply", "that the reply is kept")
	}
	before := sr.inputDuring[n]
	sr.inputDuring[n] = true // a retry that arrives while people act diverges, too
	sr.inputDuring[n] = s.actAt(trigger{"inference", strconv.Itoa(n), sr.agentName}) || before
	if _, err := s.provider.Generate(ctx, r); err != nil {
		return agent.Reply{}, err
	}
	reply, err := sr.model.Generate(ctx, r)
	if err != nil && s.mayDiffer() { // the script has no reply for this course
		reply, err = agent.Reply{Model: r.Model.ID, Text: "That is all.", StopReason: "stop"}, nil
	}
	if err == nil && s.isDisturbed() {
		reply = s.recordReply(r, reply)
	}
	sr.replied[n] = sr.replied[n] || err == nil
	return reply, err
}

// executionNumber returns the journal's number of the call's current execution, from 1.
func (sr *scriptedRun) executionNumber(call string) (int, error) {
	l, err := sr.sim.load(sr.run)
	c, _ := l.State.Call(call)
	return max(1, c.Executions), err
}

func (s *simulation) loadCall(runID, id string) (run.Call, bool) {
	l, err := s.load(runID)
	c, ok := l.State.Call(id)
	return c, ok && err == nil && id != ""
}

// fakePorts passes tool calls, events and function invocations on to the run that makes them. It is the source of all
// tools whose results tools.yaml has: those in the program (runtime.ToolSource), and Lambda functions and HTTP servers
// (runtime.Remote and Session). It is the bus (runtime.Emitter), too, and what invokes functions (runtime.Functions).
type fakePorts struct{ sim *simulation }

func (f fakePorts) Lookup(original string) (tool.Tool, bool) {
	for _, s := range append(slices.Collect(maps.Values(f.sim.scenario.delegates)), f.sim.scenario) {
		if slices.ContainsFunc(s.tools, func(c toolScript) bool { return c.spec.Name == original }) {
			return fakeTool{f.sim, original}, true
		}
	}
	return nil, false
}

func (f fakePorts) Open(string, *agent.Definition) runtime.Session { return f }

// Tool is asked only for tools that have results: loadTools has checked that.
func (f fakePorts) Tool(t agent.ToolSpec) tool.Tool { return fakeTool{f.sim, t.Name} }

func (fakePorts) Close() {}

// Emit records an event. A repeated id must have the same one.
func (f fakePorts) Emit(_ context.Context, e policy.Outgoing) error {
	sr := f.sim.scriptedRunOf(e.Run)
	if i := slices.IndexFunc(sr.events, func(seen policy.Outgoing) bool { return seen.ID == e.ID }); i >= 0 {
		if !reflect.DeepEqual(sr.events[i], e) {
			f.sim.addFailure("emitted", e.ID+" again, and not the same", "one event for each id")
		}
		return nil
	}
	sr.events = append(sr.events, e)
	if e.Call != "" {
		f.sim.actAt(trigger{"executing", e.Call, sr.agentName})
	}
	return nil
}

// Invoke records the invocation of a function that answers later through people.jsonl. A repeated key must have the
// same payload.
func (f fakePorts) Invoke(ctx context.Context, i runtime.Invoke) (runtime.Invoked, error) {
	c := fault.Call{Port: fault.Functions, Target: i.Function, NotRepeatable: i.Once}
	return runtime.Invoked{}, f.sim.injector.Do(ctx, c, func() error {
		var c policy.FunctionCall
		if err := json.Unmarshal(i.Payload, &c); err != nil {
			return err
		}
		sr := f.sim.scriptedRunOf(c.Run)
		if at := slices.IndexFunc(sr.invokes, func(seen recordedInvoke) bool { return seen.key == c.Key }); at >= 0 {
			if !bytes.Equal(sr.invokes[at].payload, i.Payload) {
				f.sim.addFailure("invoked", c.Key+" again, and not the same", "one payload for each key")
			}
			return nil
		}
		sr.invokes = append(sr.invokes, recordedInvoke{key: c.Key, call: c.Call, Function: i.Function, payload: i.Payload})
		f.sim.actAt(trigger{"executing", c.Call, sr.agentName})
		return nil
	})
}

// fakeTool is the tool of that name in the calling run.
type fakeTool struct {
	sim  *simulation
	name string
}

var _ tool.Reconciler = fakeTool{}

func (t fakeTool) script(sr *scriptedRun) *toolScript {
	if c, ok := sr.tools[t.name]; ok {
		return c
	}
	return &toolScript{spec: agent.ToolSpec{Name: t.name}}
}

func (t fakeTool) Spec() agent.ToolSpec { return t.script(t.sim.scriptedRunOf(t.sim.run)).spec }

func (t fakeTool) Call(ctx context.Context, c tool.Call) (agent.ToolResultData, error) {
	sr := t.sim.scriptedRunOf(c.Run)
	return t.sim.callTool(ctx, t.Spec(), c,
		func() (agent.ToolResultData, error) { return sr.executeTool(ctx, t.script(sr), c) })
}

// callTool makes a call of a tool at which a fault can be injected.
func (s *simulation) callTool(
	ctx context.Context, t agent.ToolSpec, c tool.Call, call func() (agent.ToolResultData, error),
) (agent.ToolResultData, error) {
	once := t.Effect == run.EffectNonIdempotent || t.Effect == ""
	return fault.Result(ctx, s.injector.Do, fault.Call{Port: fault.ToolCall, Target: c.ID, NotRepeatable: once}, call)
}

func (t fakeTool) Reconcile(ctx context.Context, c tool.Call) (o tool.Outcome, r agent.ToolResultData, err error) {
	err = t.sim.injector.Do(ctx, fault.Call{Port: "tool.Reconcile", Target: c.ID}, func() (err error) {
		sr := t.sim.scriptedRunOf(c.Run)
		o, r, err = sr.reconcileTool(ctx, t.script(sr), c)
		return err
	})
	return o, r, err
}
