package runtime

import (
	"context"
	"errors"
	"fmt"

	"github.com/countersign/countersign/pkg/agent"
	"github.com/countersign/countersign/pkg/agent/hook"
	"github.com/countersign/countersign/pkg/agent/store"
)

// Stepper does one step of a run: an inference, or whatever else is owed that is not a tool call. Safe for concurrent use.
type Stepper struct {
	Ports
	Definitions Definitions
}

// Step loads the run, drains its inbox (the resume gate), does what Next says and commits it. It returns where the run goes. An
// attempt that finds its work done returns that route without asking the model.
func (st *Stepper) Step(ctx context.Context, inv Invocation) (Route, error) {
	var tries reloads
	var paid *turn
	for {
		l, err := st.Journal.LoadAt(ctx, inv.Tenant, inv.Run, inv.At)
		if err == nil {
			var r Route
			if r, err = st.attempt(ctx, inv, l, &paid); err == nil {
				return r, nil
			}
		}
		if conflict(err) { // what the turn was planned on is gone
			paid = nil
		}
		if again, fatal := tries.again(ctx, err); !again {
			return Route{}, fmt.Errorf("step run %s: %w", inv.Run, fatal)
		}
	}
}

func (st *Stepper) attempt(ctx context.Context, inv Invocation, l store.Loaded, paid **turn) (Route, error) {
	now := st.Clock.Now()
	if r, away := turnedAway(inv, &l.State, now); away {
		if cleaner(inv, &l.State) {
			return r, st.settle(ctx, &l.State, st.Definitions)
		}
		st.answerLost(st.within(ctx, &l.State), inv, &l.State)
		return r, st.announce(ctx, inv, &l.State)
	}
	def, err := st.Definitions(ctx, inv.Tenant, l.State.Definition)
	if err != nil {
		return Route{}, err
	}
	if t := *paid; t != nil && t.draft.Entry.Seq == l.State.Entries {
		return st.commitTurn(ctx, inv, def, t)
	}
	if err := st.makeRoom(ctx, inv, l, def); err != nil {
		return Route{}, err
	}
	d, err := st.draft(ctx, inv, l)
	if err != nil {
		return Route{}, err
	}
	ctx = st.within(ctx, &d.State)
	if agent.EarlyOwed(&d.State) { // the batch has what it takes to judge them
		r := inv.route(NextTools)
		r.Woken = inv.Woken
		return r, nil
	}
	permits := authority{hooks: st.Hooks}
	if err := permits.prepare(ctx, def, d); err != nil {
		return Route{}, err
	}
	drained := len(d.Entry.Events)
	if err := expire(d); err != nil {
		return Route{}, err
	}
	r, err := st.act(ctx, inv, def, l, d, drained, paid)
	if fin, broken := brokenBy(err); broken {
		return st.breakOff(ctx, inv, def, l, d, fin)
	}
	return r, err
}

// act does what Next says of the drained state. A draft of more than the drained events must be committed even if a batch comes next.
func (st *Stepper) act(ctx context.Context, inv Invocation, def *agent.Definition, l store.Loaded, d *agent.Draft, drained int, paid **turn) (Route, error) {
	ph, err := st.phases(def)
	if err != nil {
		return Route{}, err
	}
	looks := l.State.Status == agent.RunWaiting && agent.Next(def, &d.State).Kind == agent.ActWait
	add, err := ph.prepare(ctx, d)
	if err != nil {
		return Route{}, err
	}
	a := agent.Next(def, &d.State)
	switch a.Kind {
	case agent.ActInfer:
		t, err := st.infer(ctx, ph, l, d, a, add)
		if err != nil {
			return Route{}, err
		}
		*paid = t
		return st.commitTurn(ctx, inv, def, t)
	case agent.ActTools:
		if len(d.Entry.Events) == drained { // the batch drains and resumes in the entry that claims
			r := inv.route(NextTools)
			r.Woken = inv.Woken
			return r, nil
		}
	case agent.ActWait:
		parks := ph.park
		if looks { // nothing has begun that could end
			parks = func(_ context.Context, d *agent.Draft) error { return park(d) }
		}
		if err := parks(ctx, d); err != nil {
			return Route{}, err
		}
	case agent.ActContinue:
		if err := d.Add(agent.HandedOver{Owner: ExecutionName(d.State.Run, d.State.Generation+1)}); err != nil {
			return Route{}, err
		}
	case agent.ActEnd:
		if err := ph.end(ctx, d, a.End); err != nil {
			return Route{}, err
		}
	default:
		return Route{}, fmt.Errorf("run %s owes %q while it is %s", inv.Run, a.Kind, d.State.Status)
	}
	if err := st.commit(ctx, l.State, d, def); err != nil {
		return Route{}, err
	}
	after := d.Committed()
	return routeAfter(inv, def, &after, st.Clock.Now()), st.announce(ctx, inv, &after)
}

// turn is a reply that is paid for, as the entry that commits it.
type turn struct {
	before agent.AgentState
	draft  *agent.Draft
	open   *agent.Draft // the same without the end, for when an input arrived meanwhile; nil where the turn ends nothing
}

// infer asks the model, with what plugins add, and plans the reply's entry. A model error that outlived its retries is the run's end, as
// data.
func (st *Stepper) infer(ctx context.Context, ph phases, l store.Loaded, d *agent.Draft, a agent.Action, add hook.Additions) (*turn, error) {
	def := ph.def
	if err := st.judgeTools(ctx, def, d); err != nil {
		return nil, err
	}
	fits, err := st.outputCheck(def)
	if err != nil {
		return &turn{before: l.State, draft: d}, ph.end(ctx, d, agent.Fail(agent.CodeDefinition, err.Error()))
	}
	req, system, systemDigest, err := st.request(ctx, def, d, a, add)
	var bad *badContext
	if errors.As(err, &bad) {
		return &turn{before: l.State, draft: d}, ph.end(ctx, d, agent.Fail(agent.CodeDefinition, bad.Error()))
	}
	if err != nil {
		return nil, err
	}
	reply, requests, err := st.Model.Ask(ctx, req)
	var failed *agent.ModelError
	if errors.As(err, &failed) {
		fin := agent.ModelFailed(def, &d.State, failed, requests)
		if err := ph.afterInference(ctx, d, failed); err != nil {
			return nil, err
		}
		return &turn{before: l.State, draft: d}, ph.end(ctx, d, fin)
	}
	if err != nil {
		return nil, fmt.Errorf("ask the model: %w", err)
	}
	reply.At = st.Clock.Now()
	said := agent.KeepSystem(def, agent.PlanReply(def, &d.State, reply, requests, systemDigest), system)
	if !def.Unjudged(a) {
		said = agent.Judge(def, &d.State, said, fits)
	}
	if err := d.Add(said); err != nil {
		return nil, err
	}
	d.Mark(agent.CheckpointAssistantTurn)
	if err := ph.afterInference(ctx, d, nil); err != nil {
		return nil, err
	}
	t := &turn{before: l.State, draft: d}
	switch next := agent.Next(def, &d.State); next.Kind {
	case agent.ActEnd:
		t.open = d.Clone()
		return t, ph.end(ctx, d, next.End)
	case agent.ActWait: // the last word while calls are open ends nothing
		return t, ph.park(ctx, d)
	default:
		return t, nil
	}
}

// request is what the model is asked, bodies included, with what plugins add to this request alone; and the system text without that, with
// its digest where that is new. A *badContext ends the run.
func (st *Stepper) request(ctx context.Context, def *agent.Definition, d *agent.Draft, a agent.Action, add hook.Additions) (req agent.Request, system, digest string, err error) {
	if system, err = st.buildContext(ctx, def, d, a); err != nil {
		return req, "", "", err
	}
	req, digest = agent.BuildRequest(def, &d.State, a, system)
	if err = st.storeSystem(ctx, def, &d.State, digest, system); err != nil {
		return req, "", "", err
	}
	if req, err = add.To(req); err != nil {
		return req, "", "", err
	}
	req.Messages, err = st.withBodies(ctx, &d.State, req.Messages)
	return req, system, digest, err
}

// end adds the run's end to the draft, after those have cleaned up who know of it.
func (p Ports) end(ctx context.Context, def *agent.Definition, d *agent.Draft, fin agent.Finished) error {
	fin, err := p.cleaned(ctx, def, &d.State, fin)
	if err != nil {
		return err
	}
	return end(d, fin)
}

// end adds the run's end to the draft.
func end(d *agent.Draft, fin agent.Finished) error {
	d.Mark(agent.CheckpointRunFinished)
	return d.Add(fin)
}

// commitTurn commits a paid reply. If it would end the run but an input arrived first, it is committed without the end and
// the run goes on (rule 4).
func (st *Stepper) commitTurn(ctx context.Context, inv Invocation, def *agent.Definition, t *turn) (Route, error) {
	err := st.commit(ctx, t.before, t.draft, def)
	if errors.Is(err, store.ErrInboxMoved) && t.open != nil {
		t.draft, t.open = t.open, nil
		err = st.commit(ctx, t.before, t.draft, def)
	}
	if err != nil {
		return Route{}, err
	}
	after := t.draft.Committed()
	return routeAfter(inv, def, &after, st.Clock.Now()), st.announce(ctx, inv, &after)
}

// withBodies are the messages of a request to s's model with the bodies that blobs hold.
func (p Ports) withBodies(ctx context.Context, s *agent.AgentState, messages []agent.Message) ([]agent.Message, error) {
	if s.BlobMessages == 0 {
		return messages, nil
	}
	out := append([]agent.Message(nil), messages...)
	for i, m := range out {
		r, ok := m.Block.(agent.ToolResult)
		if !ok || r.Blob == "" {
			continue
		}
		body, err := p.Blobs.Get(ctx, s.Tenant, r.Blob)
		if err != nil {
			return nil, fmt.Errorf("read result of call %s: %w", r.ID, err)
		}
		r.Content, r.Blob = string(body), ""
		out[i].Block = r
	}
	return out, nil
}

// Fail ends a run as failed because its execution gave up on a step (R8). A run that is done or owned by another execution is
// left alone.
func (st *Stepper) Fail(ctx context.Context, inv Invocation, message string) (Route, error) {
	var tries reloads
	for {
		r, err := st.failOnce(ctx, inv, message)
		if err == nil {
			return r, nil
		}
		if again, fatal := tries.again(ctx, err); !again {
			return Route{}, fmt.Errorf("record failure of run %s: %w", inv.Run, fatal)
		}
	}
}

func (st *Stepper) failOnce(ctx context.Context, inv Invocation, message string) (Route, error) {
	l, err := st.Journal.Load(ctx, inv.Tenant, inv.Run)
	if err != nil {
		return Route{}, err
	}
	if l.State.Owner != inv.Execution || l.State.Status == agent.RunDone {
		return inv.route(NextFailed), st.announce(ctx, inv, &l.State)
	}
	def, err := st.Definitions(ctx, inv.Tenant, l.State.Definition)
	if err != nil {
		return Route{}, err
	}
	if err := st.makeRoom(ctx, inv, l, def); err != nil {
		return Route{}, err
	}
	d, err := st.draft(ctx, inv, l)
	if err != nil {
		return Route{}, err
	}
	if err := st.end(ctx, def, d, agent.Fail(agent.CodeInternal, message)); err != nil {
		return Route{}, err
	}
	if err := st.commit(st.within(ctx, &d.State), l.State, d, def); err != nil {
		return Route{}, err
	}
	after := d.Committed()
	return inv.route(NextFailed), st.announce(ctx, inv, &after)
}
