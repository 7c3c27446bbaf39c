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

// part is what one run of a story is played with: its agent's script and tools, both read from their beginning, and what was seen of it.
type part struct {
	stage    *stage
	scenario *Scenario // of its agent
	run      string
	name     string // of its agent, as lines of people name it; "" = the run that the story is about
	model    *script.Model
	requests map[request]int // to the model, numbered as they first came
	heard    map[int]bool    // requests to the model during which somebody said something
	answered map[int]bool    // requests to which the model has given a reply
	ledger   *ledger
}

func newPart(st *stage, s *Scenario, run, name string) *part {
	p := &part{stage: st, scenario: s, run: run, name: name, model: script.New(s.script), requests: map[request]int{}, heard: map[int]bool{}, answered: map[int]bool{}}
	p.ledger = newLedger(p, s.tools)
	return p
}

// partOf is the part of a run: that of an agent of the story which another one asked, or else the one that the story is about.
func (s *stage) partOf(run string) *part {
	if p, ok := s.parts[run]; ok {
		return p
	}
	p := s.part
	if l, err := s.record.Load(context.Background(), tenant, run); err == nil && l.State.Parent != nil {
		if of, ok := s.scenario.delegates[l.State.Agent]; ok {
			p = newPart(s, of, run, l.State.Agent)
		}
	}
	s.parts[run] = p
	return p
}

// member is a run of the story as it is on record.
type member struct {
	part *part
	store.Loaded
}

// family are the run that the story is about and all that are carried out for it, each behind the one whose call it is.
func (s *stage) family() ([]member, error) {
	return s.below(s.part, s.run)
}

// story are all runs of the story: the family, behind that of the run which it goes on with.
func (s *stage) story() ([]member, error) {
	var before []member
	if s.first != "" {
		var err error
		if before, err = s.below(s.part, s.first); err != nil {
			return nil, err
		}
	}
	family, err := s.family()
	return append(before, family...), err
}

func (s *stage) below(p *part, run string) ([]member, error) {
	l, err := s.record.Load(context.Background(), tenant, run)
	if err != nil {
		return nil, err
	}
	list := []member{{p, l}}
	for _, c := range l.State.Calls() {
		if _, err := s.record.Head(context.Background(), tenant, c.Child); c.Child == "" || err != nil { // claimed, and not yet begun
			continue
		}
		more, err := s.below(s.partOf(c.Child), c.Child)
		if err != nil {
			return nil, err
		}
		list = append(list, more...)
	}
	return list, nil
}

// of is the member that a line is about: the first of its agent's runs that has not ended, else the last.
func of(family []member, name string) (member, bool) {
	var found []member
	for _, m := range family {
		if m.part.name == name {
			found = append(found, m)
		}
	}
	if i := slices.IndexFunc(found, func(m member) bool { return m.State.Status != run.RunDone }); i >= 0 {
		return found[i], true
	}
	if len(found) == 0 {
		return member{}, false
	}
	return found[len(found)-1], true
}

// partFor is the part of the run that a line is about.
func (s *stage) partFor(l line) (*part, error) {
	if l.agent == "" {
		return s.part, nil
	}
	family, err := s.family()
	if err != nil {
		return nil, err
	}
	m, ok := of(family, l.agent)
	if !ok {
		return nil, fmt.Errorf("agent %s has no run", l.agent)
	}
	return m.part, nil
}

// generate answers like the script, after those have acted who wait for that very request.
func (p *part) generate(ctx context.Context, r agent.Request) (agent.Reply, error) {
	s := p.stage
	if p == s.part {
		r.Inference += s.before
	}
	which := request{r.Inference, r.Lifecycle == run.LifecycleNotes, p.model.Attempt(r)}
	n, repeated := p.requests[which]
	if !repeated {
		n = len(p.requests) + 1
		p.requests[which] = n
	}
	s.diverged = s.diverged || repeated && p.heard[n]
	if p.answered[n] && !s.crashing { // nothing was lost: the reply was thrown away
		s.noEnd(Failure{Path: fmt.Sprintf("inference:%d", n), Got: "a second request for the same reply", Want: "that the reply is kept"})
	}
	before := p.heard[n]
	p.heard[n] = true // whoever asks again meanwhile has not waited for what is said
	p.heard[n] = s.act(moment{"inference", strconv.Itoa(n), p.name}) || before
	if _, err := s.provider.Generate(ctx, r); err != nil {
		return agent.Reply{}, err
	}
	reply, err := p.model.Generate(ctx, r)
	if err != nil && s.otherStory() { // nobody wrote what is said then
		reply, err = agent.Reply{Model: r.Model.ID, Text: "That is all.", StopReason: "stop"}, nil
	}
	if err == nil && s.disturbed() {
		reply = s.answered(r, reply)
	}
	p.answered[n] = p.answered[n] || err == nil
	return reply, err
}

// executions is which execution of a call its tool is being entered for, from 1, as the journal counts them.
func (p *part) executions(call string) (int, error) {
	l, err := p.stage.record.Load(context.Background(), tenant, p.run)
	if err != nil {
		return 0, err
	}
	c, _ := l.State.Call(call)
	return max(1, c.Executions), nil
}

// called is a call as it is on record; ok is false for "" and for one that is not.
func (p *part) called(id string) (run.Call, bool) {
	l, err := p.stage.record.Load(context.Background(), tenant, p.run)
	if err != nil || id == "" {
		return run.Call{}, false
	}
	return l.State.Call(id)
}

// world is what all parts of a stage have outside: each run its own tools, and one bus.
type world struct{ stage *stage }

var (
	_ runtime.ToolSource = world{}
	_ runtime.Emitter    = world{}
	_ runtime.Functions  = world{}
)

// Lookup implements runtime.ToolSource.
func (w world) Lookup(original string) (tool.Tool, bool) {
	list := []*Scenario{w.stage.scenario}
	for _, d := range w.stage.scenario.delegates {
		list = append(list, d)
	}
	for _, s := range list {
		if slices.ContainsFunc(s.tools, func(c canned) bool { return c.spec.Name == original }) {
			return worldTool{w.stage, original}, true
		}
	}
	return nil, false
}

// Emit implements runtime.Emitter.
func (w world) Emit(ctx context.Context, e policy.Outgoing) error {
	return w.stage.partOf(e.Run).ledger.Emit(ctx, e)
}

// Invoke implements runtime.Functions.
func (w world) Invoke(ctx context.Context, i runtime.Invoke) (runtime.Invoked, error) {
	var c policy.FunctionCall
	if err := json.Unmarshal(i.Payload, &c); err != nil {
		return runtime.Invoked{}, err
	}
	return w.stage.partOf(c.Run).ledger.invoke(i, c)
}

// worldTool is a tool of that name of whichever run calls it.
type worldTool struct {
	stage *stage
	name  string
}

var _ tool.Reconciler = worldTool{}

func (t worldTool) of(run string) *cannedTool {
	l := t.stage.partOf(run).ledger
	c, ok := l.tools[t.name]
	if !ok {
		c = &canned{spec: agent.ToolSpec{Name: t.name}}
	}
	return &cannedTool{l, c}
}

func (t worldTool) Spec() agent.ToolSpec { return t.of(t.stage.run).Spec() }

func (t worldTool) Call(ctx context.Context, c tool.Call) (agent.ToolResultData, error) {
	return t.of(c.Run).Call(ctx, c)
}

func (t worldTool) Reconcile(ctx context.Context, c tool.Call) (tool.Outcome, agent.ToolResultData, error) {
	return t.of(c.Run).Reconcile(ctx, c)
}
