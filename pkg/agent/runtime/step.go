package runtime

import (
	"context"
	"errors"
	"fmt"

	"github.com/countersign/countersign/pkg/agent"
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
		st.answerLost(st.within(ctx, &l.State), inv, &l.State)
		return r, nil
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
	return st.act(ctx, inv, def, l, d, len(d.Entry.Events) > drained, paid)
}

// act does what Next says of the drained state. expired says that the draft must be committed even if a batch comes next.
func (st *Stepper) act(ctx context.Context, inv Invocation, def *agent.Definition, l store.Loaded, d *agent.Draft, expired bool, paid **turn) (Route, error) {
	a := agent.Next(def, &d.State)
	switch a.Kind {
	case agent.ActInfer:
		t, err := st.infer(ctx, def, l, d, a)
		if err != nil {
			return Route{}, err
		}
		*paid = t
		return st.commitTurn(ctx, inv, def, t)
	case agent.ActTools:
		if !expired { // the batch drains and resumes in the entry that claims
			r := inv.route(NextTools)
			r.Woken = inv.Woken
			return r, nil
		}
	case agent.ActWait:
		if err := park(d); err != nil {
			return Route{}, err
		}
	case agent.ActContinue:
		if err := d.Add(agent.HandedOver{Owner: ExecutionName(d.State.Run, d.State.Generation+1)}); err != nil {
			return Route{}, err
		}
	case agent.ActEnd:
		if err := st.end(ctx, def, d, a.End); err != nil {
			return Route{}, err
		}
	default:
		return Route{}, fmt.Errorf("run %s owes %q while it is %s", inv.Run, a.Kind, d.State.Status)
	}
	if err := st.commit(ctx, l.State, d, def); err != nil {
		return Route{}, err
	}
	after := d.Committed()
	return routeAfter(inv, def, &after, st.Clock.Now()), nil
}

// turn is a reply that is paid for, as the entry that commits it.
type turn struct {
	before agent.AgentState
	draft  *agent.Draft
	open   *agent.Draft // the same without the end, for when an input arrived meanwhile; nil where the turn ends nothing
}

// infer asks the model and plans the reply's entry. A model error that outlived its retries is the run's end, as data.
func (st *Stepper) infer(ctx context.Context, def *agent.Definition, l store.Loaded, d *agent.Draft, a agent.Action) (*turn, error) {
	fits, err := st.outputCheck(def)
	if err != nil {
		return &turn{before: l.State, draft: d}, st.end(ctx, def, d, agent.Fail(agent.CodeDefinition, err.Error()))
	}
	system, err := st.buildContext(ctx, def, d, a)
	var bad *badContext
	if errors.As(err, &bad) {
		return &turn{before: l.State, draft: d}, st.end(ctx, def, d, agent.Fail(agent.CodeDefinition, bad.Error()))
	}
	if err != nil {
		return nil, err
	}
	req, systemDigest := agent.BuildRequest(def, &d.State, a, system)
	if err := st.storeSystem(ctx, def, &d.State, systemDigest, system); err != nil {
		return nil, err
	}
	if req.Messages, err = st.withBodies(ctx, &d.State, req.Messages); err != nil {
		return nil, err
	}
	reply, requests, err := st.Model.Ask(ctx, req)
	var failed *agent.ModelError
	if errors.As(err, &failed) {
		fin := agent.Fail(agent.CodeModelFailed, failed.Error())
		fin.Requests = requests
		return &turn{before: l.State, draft: d}, st.end(ctx, def, d, fin)
	}
	if err != nil {
		return nil, fmt.Errorf("ask the model: %w", err)
	}
	planned := agent.KeepSystem(def, agent.PlanReply(def, &d.State, reply, requests, systemDigest), system)
	if err := d.Add(agent.Judge(def, planned, fits)); err != nil {
		return nil, err
	}
	d.Mark(agent.CheckpointAssistantTurn)
	t := &turn{before: l.State, draft: d}
	switch next := agent.Next(def, &d.State); next.Kind {
	case agent.ActEnd:
		t.open = d.Clone()
		return t, st.end(ctx, def, d, next.End)
	case agent.ActWait: // the last word while calls are open ends nothing
		return t, park(d)
	default:
		return t, nil
	}
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
	return routeAfter(inv, def, &after, st.Clock.Now()), nil
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
		return inv.route(NextFailed), nil
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
	return inv.route(NextFailed), st.commit(st.within(ctx, &d.State), l.State, d, def)
}
