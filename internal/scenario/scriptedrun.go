package scenario

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/model/script"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/tool"
)

// scriptedRun is one run of a scenario with its scripted model and fake tools. Each run reads its script and results
// from the beginning.
type scriptedRun struct {
	sim         *simulation
	scenario    *Scenario // the archive's files of its agent
	run         string
	agentName   string // as the lines of people.jsonl name it; "" = the main run
	model       *script.Model
	requests    map[requestKey]int // to the model, numbered in the order of their first attempts
	inputDuring map[int]bool       // requests to the model during which a person acted
	replied     map[int]bool       // requests that the model has answered
	effects     *effectLog
}

func newScriptedRun(sim *simulation, s *Scenario, run, name string) *scriptedRun {
	sr := &scriptedRun{
		sim: sim, scenario: s, run: run, agentName: name, model: script.New(s.script),
		requests: map[requestKey]int{}, inputDuring: map[int]bool{}, replied: map[int]bool{},
	}
	sr.effects = &effectLog{
		scriptedRun: sr, tools: map[string]*toolScript{}, usedResults: map[string]int{},
		resultIndex: map[executionKey]int{}, executions: map[string][]*toolExecution{},
		newestEffects: map[string]*toolExecution{}, reruns: map[string]int{}, fences: map[string]fence{},
	}
	for i := range s.tools {
		// The agent's own tools come before those of servers.
		if name := s.tools[i].spec.Name; sr.effects.tools[name] == nil {
			sr.effects.tools[name] = &s.tools[i]
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
	if l, err := s.journal.Load(context.Background(), tenant, run); err == nil && l.State.Parent != nil {
		if of, ok := s.scenario.delegates[l.State.Agent]; ok {
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

func (s *simulation) loadRunsBelow(sr *scriptedRun, run string) ([]recordedRun, error) {
	l, err := s.journal.Load(context.Background(), tenant, run)
	if err != nil {
		return nil, err
	}
	list := []recordedRun{{sr, l}}
	for _, c := range l.State.Calls() {
		if _, err := s.journal.Head(context.Background(), tenant, c.Child); c.Child == "" || err != nil { // claimed and not yet started
			continue
		}
		more, err := s.loadRunsBelow(s.scriptedRunOf(c.Child), c.Child)
		if err != nil {
			return nil, err
		}
		list = append(list, more...)
	}
	return list, nil
}

// findRunOfAgent returns the agent's first run that has not ended, or else its last one.
func findRunOfAgent(runs []recordedRun, name string) (recordedRun, bool) {
	var found []recordedRun
	for _, rec := range runs {
		if rec.scripted.agentName == name {
			found = append(found, rec)
		}
	}
	if i := slices.IndexFunc(found, func(rec recordedRun) bool { return rec.State.Status != run.RunDone }); i >= 0 {
		return found[i], true
	}
	if len(found) == 0 {
		return recordedRun{}, false
	}
	return found[len(found)-1], true
}

// scriptedRunForLine returns the run that a line of people.jsonl is about.
func (s *simulation) scriptedRunForLine(l line) (*scriptedRun, error) {
	if l.agent == "" {
		return s.scriptedRun, nil
	}
	runs, err := s.loadRunTree()
	if err != nil {
		return nil, err
	}
	rec, ok := findRunOfAgent(runs, l.agent)
	if !ok {
		return nil, fmt.Errorf("agent %s has no run", l.agent)
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
	s.diverged = s.diverged || repeated && sr.inputDuring[n]
	if sr.replied[n] && !s.isDisturbed() { // no crash lost the reply: the product dropped it
		s.addEndFailure(Failure{Path: fmt.Sprintf("inference:%d", n), Got: "a second request for the same reply", Want: "that the reply is kept"})
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
	l, err := sr.sim.journal.Load(context.Background(), tenant, sr.run)
	if err != nil {
		return 0, err
	}
	c, _ := l.State.Call(call)
	return max(1, c.Executions), nil
}

// loadCall returns a call as the journal has it.
func (s *simulation) loadCall(runID, id string) (run.Call, bool) {
	l, err := s.journal.Load(context.Background(), tenant, runID)
	if err != nil || id == "" {
		return run.Call{}, false
	}
	return l.State.Call(id)
}

// fakePorts passes tool calls, events and function invocations on to the effect log of the run that makes them.
type fakePorts struct{ sim *simulation }

var (
	_ runtime.ToolSource = fakePorts{}
	_ runtime.Emitter    = fakePorts{}
	_ runtime.Functions  = fakePorts{}
)

// Lookup implements runtime.ToolSource.
func (f fakePorts) Lookup(original string) (tool.Tool, bool) {
	list := []*Scenario{f.sim.scenario}
	for _, d := range f.sim.scenario.delegates {
		list = append(list, d)
	}
	for _, s := range list {
		if slices.ContainsFunc(s.tools, func(c toolScript) bool { return c.spec.Name == original }) {
			return toolByRun{f.sim, original}, true
		}
	}
	return nil, false
}

// Emit implements runtime.Emitter.
func (f fakePorts) Emit(ctx context.Context, e policy.Outgoing) error {
	return f.sim.scriptedRunOf(e.Run).effects.Emit(ctx, e)
}

// Invoke implements runtime.Functions: it records the invocation of a function that answers later through people.jsonl.
// A repeated key must have the same payload.
func (f fakePorts) Invoke(ctx context.Context, i runtime.Invoke) (runtime.Invoked, error) {
	var c policy.FunctionCall
	if err := json.Unmarshal(i.Payload, &c); err != nil {
		return runtime.Invoked{}, err
	}
	l := f.sim.scriptedRunOf(c.Run).effects
	for _, seen := range l.invokes {
		if seen.key != c.Key {
			continue
		}
		if !bytes.Equal(seen.payload, i.Payload) {
			got := fmt.Sprintf("%s again, and not the same", c.Key)
			l.sim.addFailure(Failure{Path: "invoked", Got: got, Want: "one payload for each key"})
		}
		return runtime.Invoked{}, nil
	}
	l.invokes = append(l.invokes, recordedInvoke{key: c.Key, call: c.Call, Function: i.Function, payload: i.Payload})
	l.sim.actAt(trigger{"executing", c.Call, l.agentName})
	return runtime.Invoked{}, nil
}

// toolByRun is the tool of that name in the calling run.
type toolByRun struct {
	sim  *simulation
	name string
}

var _ tool.Reconciler = toolByRun{}

func (t toolByRun) forRun(run string) *fakeTool {
	l := t.sim.scriptedRunOf(run).effects
	c, ok := l.tools[t.name]
	if !ok {
		c = &toolScript{spec: agent.ToolSpec{Name: t.name}}
	}
	return &fakeTool{l, c}
}

func (t toolByRun) Spec() agent.ToolSpec { return t.forRun(t.sim.run).Spec() }

func (t toolByRun) Call(ctx context.Context, c tool.Call) (agent.ToolResultData, error) {
	return t.forRun(c.Run).Call(ctx, c)
}

func (t toolByRun) Reconcile(ctx context.Context, c tool.Call) (tool.Outcome, agent.ToolResultData, error) {
	return t.forRun(c.Run).Reconcile(ctx, c)
}

// fakeRemote is the fake of Lambda functions and HTTP servers. tools.yaml has their results.
type fakeRemote struct{ tools runtime.ToolSource }

// Open implements runtime.Remote.
func (r fakeRemote) Open(string, *agent.Definition) runtime.Session { return r }

// Tool implements runtime.Session.
func (r fakeRemote) Tool(t agent.ToolSpec) tool.Tool {
	found, _ := r.tools.Lookup(t.Name) // loadTools checks that every such tool has results
	return found
}

// Close implements runtime.Session.
func (fakeRemote) Close() {}
