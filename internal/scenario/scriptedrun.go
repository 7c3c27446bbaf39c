package scenario

import (
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

// scriptedRun is what one run of a story is played with: its agent's script and tools, both read from their beginning, and what was seen of it.
type scriptedRun struct {
	sim         *simulation
	scenario    *Scenario // of its agent
	run         string
	agentName   string // of its agent, as lines of people name it; "" = the run that the story is about
	model       *script.Model
	requests    map[requestKey]int // to the model, numbered as they first came
	inputDuring map[int]bool       // requests to the model during which somebody said something
	replied     map[int]bool       // requests to which the model has given a reply
	effects     *effectLog
}

func newScriptedRun(sim *simulation, s *Scenario, run, name string) *scriptedRun {
	sr := &scriptedRun{sim: sim, scenario: s, run: run, agentName: name, model: script.New(s.script), requests: map[requestKey]int{}, inputDuring: map[int]bool{}, replied: map[int]bool{}}
	sr.effects = newEffectLog(sr, s.tools)
	return sr
}

// scriptedRunOf is the part of a run: that of an agent of the story which another one asked, or else the one that the story is about.
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

// recordedRun is a run of the story as it is on record.
type recordedRun struct {
	scripted *scriptedRun
	store.Loaded
}

// loadRunTree are the run that the story is about and all that are carried out for it, each behind the one whose call it is.
func (s *simulation) loadRunTree() ([]recordedRun, error) {
	return s.loadRunsBelow(s.scriptedRun, s.run)
}

// loadAllRuns are all runs of the story: the family, behind that of the run which it goes on with.
func (s *simulation) loadAllRuns() ([]recordedRun, error) {
	var before []recordedRun
	if s.continues != "" {
		var err error
		if before, err = s.loadRunsBelow(s.scriptedRun, s.continues); err != nil {
			return nil, err
		}
	}
	runs, err := s.loadRunTree()
	return append(before, runs...), err
}

func (s *simulation) loadRunsBelow(sr *scriptedRun, run string) ([]recordedRun, error) {
	l, err := s.journal.Load(context.Background(), tenant, run)
	if err != nil {
		return nil, err
	}
	list := []recordedRun{{sr, l}}
	for _, c := range l.State.Calls() {
		if _, err := s.journal.Head(context.Background(), tenant, c.Child); c.Child == "" || err != nil { // claimed, and not yet begun
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

// findRunOfAgent is the member that a line is about: the first of its agent's runs that has not ended, else the last.
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

// scriptedRunForLine is the part of the run that a line is about.
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

// generateReply answers like the script, after those have acted who wait for that very request.
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
	if sr.replied[n] && !s.crashing { // nothing was lost: the reply was thrown away
		s.addEndFailure(Failure{Path: fmt.Sprintf("inference:%d", n), Got: "a second request for the same reply", Want: "that the reply is kept"})
	}
	before := sr.inputDuring[n]
	sr.inputDuring[n] = true // whoever asks again meanwhile has not waited for what is said
	sr.inputDuring[n] = s.actAt(trigger{"inference", strconv.Itoa(n), sr.agentName}) || before
	if _, err := s.provider.Generate(ctx, r); err != nil {
		return agent.Reply{}, err
	}
	reply, err := sr.model.Generate(ctx, r)
	if err != nil && s.mayDiffer() { // nobody wrote what is said then
		reply, err = agent.Reply{Model: r.Model.ID, Text: "That is all.", StopReason: "stop"}, nil
	}
	if err == nil && s.isDisturbed() {
		reply = s.recordReply(r, reply)
	}
	sr.replied[n] = sr.replied[n] || err == nil
	return reply, err
}

// executionNumber is which execution of a call its tool is being entered for, from 1, as the journal counts them.
func (sr *scriptedRun) executionNumber(call string) (int, error) {
	l, err := sr.sim.journal.Load(context.Background(), tenant, sr.run)
	if err != nil {
		return 0, err
	}
	c, _ := l.State.Call(call)
	return max(1, c.Executions), nil
}

// loadCall is a call as it is on record; ok is false for "" and for one that is not.
func (sr *scriptedRun) loadCall(id string) (run.Call, bool) {
	l, err := sr.sim.journal.Load(context.Background(), tenant, sr.run)
	if err != nil || id == "" {
		return run.Call{}, false
	}
	return l.State.Call(id)
}

// fakePorts is what all parts of a stage have outside: each run its own tools, and one bus.
type fakePorts struct{ stage *simulation }

var (
	_ runtime.ToolSource = fakePorts{}
	_ runtime.Emitter    = fakePorts{}
	_ runtime.Functions  = fakePorts{}
)

// Lookup implements runtime.ToolSource.
func (f fakePorts) Lookup(original string) (tool.Tool, bool) {
	list := []*Scenario{f.stage.scenario}
	for _, d := range f.stage.scenario.delegates {
		list = append(list, d)
	}
	for _, s := range list {
		if slices.ContainsFunc(s.tools, func(c toolScript) bool { return c.spec.Name == original }) {
			return toolByRun{f.stage, original}, true
		}
	}
	return nil, false
}

// Emit implements runtime.Emitter.
func (f fakePorts) Emit(ctx context.Context, e policy.Outgoing) error {
	return f.stage.scriptedRunOf(e.Run).effects.Emit(ctx, e)
}

// Invoke implements runtime.Functions.
func (f fakePorts) Invoke(ctx context.Context, i runtime.Invoke) (runtime.Invoked, error) {
	var c policy.FunctionCall
	if err := json.Unmarshal(i.Payload, &c); err != nil {
		return runtime.Invoked{}, err
	}
	return f.stage.scriptedRunOf(c.Run).effects.recordInvoke(i, c)
}

// toolByRun is a tool of that name of whichever run calls it.
type toolByRun struct {
	stage *simulation
	name  string
}

var _ tool.Reconciler = toolByRun{}

func (t toolByRun) forRun(run string) *fakeTool {
	l := t.stage.scriptedRunOf(run).effects
	c, ok := l.tools[t.name]
	if !ok {
		c = &toolScript{spec: agent.ToolSpec{Name: t.name}}
	}
	return &fakeTool{l, c}
}

func (t toolByRun) Spec() agent.ToolSpec { return t.forRun(t.stage.run).Spec() }

func (t toolByRun) Call(ctx context.Context, c tool.Call) (agent.ToolResultData, error) {
	return t.forRun(c.Run).Call(ctx, c)
}

func (t toolByRun) Reconcile(ctx context.Context, c tool.Call) (tool.Outcome, agent.ToolResultData, error) {
	return t.forRun(c.Run).Reconcile(ctx, c)
}
