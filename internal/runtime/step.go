package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/hook"
	"github.com/countersign/countersign/internal/plan"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/prompt"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// Stepper does one step of a run: an inference, or whatever else is owed that is not a tool call. Safe for concurrent use.
type Stepper struct {
	Ports
	Definitions Definitions
	// Family tells the runs around one that has failed where no function behind this one will: (Ports).TellFamily in a process that has
	// everything; nil = the repair of executions that ended badly does.
	Family func(ctx context.Context, s *run.AgentState) error
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
			if r, err = st.carryOn(ctx, inv, l, &paid); err == nil {
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

// toTools is the route to the batch, which hears what this invocation heard.
func (i Invocation) toTools() Route {
	r := i.route(NextTools)
	r.Woken = i.Woken
	return r
}

// carryOn is one try, on the run as it was read.
func (st *Stepper) carryOn(ctx context.Context, inv Invocation, l store.Loaded, paid **turn) (Route, error) {
	now := st.Clock.Now()
	if r, away := turnedAway(inv, &l.State, now); away {
		if cleaner(inv, &l.State) {
			return r, st.settle(ctx, &l.State, st.Definitions)
		}
		st.answerLost(st.within(ctx, &l.State), inv, &l.State)
		return st.leave(ctx, inv, &l.State, r)
	}
	def, err := st.Definitions(ctx, inv.Tenant, l.State.Definition)
	if err != nil {
		return Route{}, err
	}
	if policy.Next(def, &l.State).Kind == run.ActList { // before anything looks at the agent's tools; this function connects to nobody
		return inv.toTools(), nil
	}
	if t := *paid; t != nil && t.draft.Entry.Seq == l.State.Entries {
		return st.commitTurn(ctx, inv, def, t)
	}
	if err := st.makeRoom(ctx, inv, l, def); err != nil {
		return Route{}, err
	}
	d, err := st.draft(inv, l)
	if err != nil {
		return Route{}, err
	}
	ctx = st.within(ctx, &d.State)
	if orphaned, err := st.orphaned(ctx, &l.State); err != nil || orphaned {
		return st.endOrphan(ctx, inv, def, l, d, err)
	}
	if early := policy.EarlyOwed(&d.State) && !st.beginsFirst(def, d); early || len(policy.Abandoned(&d.State)) > 0 { // the batch has what it takes
		return inv.toTools(), nil
	}
	permits := authority{hooks: st.Hooks}
	if err := permits.prepare(ctx, def, d); err != nil {
		return Route{}, err
	}
	drained := len(d.Entry.Events)
	if err := expire(d); err != nil {
		return Route{}, err
	}
	if crowded(d) { // the others close in an entry of their own
		return Route{}, st.commitAlone(ctx, l, d, def)
	}
	var r Route
	if policy.EarlyOwed(&d.State) && d.State.Permissions.Failed == "" {
		r, err = st.beginEarly(ctx, inv, def, l, d)
	} else {
		r, err = st.act(ctx, inv, def, l, d, drained, paid)
	}
	if fin, broken := brokenBy(err); broken {
		return st.breakOff(ctx, inv, def, l, d, fin)
	}
	return r, err
}

// beginsFirst reports whether plugins are to begin this attempt before the batch judges what was decided early. What is wrong with the
// plugins is for who runs them to say.
func (st *Stepper) beginsFirst(def *agent.Definition, d *run.Draft) bool {
	if d.State.Begun || len(def.Plugins) == 0 {
		return false
	}
	ph, err := st.phases(def)
	return err != nil || ph.chain.BeginsRuns()
}

// beginEarly commits run_start and leads to the batch, where a decision that was kept may let a call run.
func (st *Stepper) beginEarly(ctx context.Context, inv Invocation, def *agent.Definition, l store.Loaded, d *run.Draft) (Route, error) {
	ph, err := st.phases(def)
	if err != nil {
		return Route{}, err
	}
	if err := ph.enter(ctx, d); err != nil {
		return Route{}, err
	}
	if err := st.commit(ctx, l.State, d, def); err != nil {
		return Route{}, err
	}
	r := inv.route(NextTools)
	r.Woken = 0 // the run is not parked any more
	return r, nil
}

// act does what Next says of the drained state. A draft of more than the drained events must be committed even if a batch comes next.
func (st *Stepper) act(ctx context.Context, inv Invocation, def *agent.Definition, l store.Loaded, d *run.Draft, drained int, paid **turn) (Route, error) {
	ph, err := st.phases(def)
	if err != nil {
		return Route{}, err
	}
	if err := st.recordFirst(ctx, def, l, d); err != nil {
		return Route{}, err
	}
	looks := l.State.Status == run.RunWaiting && policy.Next(def, &d.State).Kind == run.ActWait
	add, err := ph.prepare(ctx, d)
	if err != nil {
		return Route{}, err
	}
	a := policy.Next(def, &d.State)
	switch a.Kind {
	case run.ActInfer:
		t, err := st.ask(ctx, ph, l, d, a, add)
		if err != nil {
			return Route{}, err
		}
		*paid = t
		return st.commitTurn(ctx, inv, def, t)
	case run.ActTools:
		if len(d.Entry.Events) == drained { // the batch drains and resumes in the entry that claims
			r := inv.route(NextTools)
			r.Woken = inv.Woken
			return r, nil
		}
	case run.ActWait:
		parks := ph.park
		if looks { // nothing has begun that could end
			parks = func(_ context.Context, d *run.Draft) error { return park(d) }
		}
		if err := parks(ctx, d); err != nil {
			return Route{}, err
		}
	case run.ActContinue:
		if err := d.Add(run.HandedOver{Owner: ExecutionName(d.State.Run, d.State.Generation+1)}); err != nil {
			return Route{}, err
		}
	case run.ActEnd:
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
	return st.leave(ctx, inv, &after, routeAfter(inv, def, &after, st.Clock.Now()))
}

// recordFirst commits the draft before a model is asked, where it closes requests to people: what a tool's denial or an expiry has settled is
// on record at once. Somebody could decide such a request while the model thinks, and the reply, whose entry would close it, would be lost.
func (st *Stepper) recordFirst(ctx context.Context, def *agent.Definition, l store.Loaded, d *run.Draft) error {
	if policy.Next(def, &d.State).Kind != run.ActInfer {
		return nil
	}
	closes, err := st.requestOps(ctx, &l.State, d, def)
	if err != nil || len(closes) == 0 {
		return err
	}
	return st.commitAlone(ctx, l, d, def)
}

// turn is a reply that is paid for, as the entry that commits it.
type turn struct {
	before run.AgentState
	draft  *run.Draft
	open   *run.Draft // the same without the end, for when an input arrived meanwhile; nil where the turn ends nothing
}

// ask asks a model: for the run's plan, or in the loop. The loop takes over from a plan that cannot go on.
func (st *Stepper) ask(ctx context.Context, ph phases, l store.Loaded, d *run.Draft, a run.Action, add hook.Additions) (*turn, error) {
	if a.Lifecycle.ForPlan() {
		return st.forPlan(ctx, ph, l, d, a, add)
	}
	if left, ok := plan.LeavesPlan(&d.State, a); ok {
		if err := d.Add(left); err != nil {
			return nil, err
		}
	}
	if err := st.narrow(ctx, ph.def, &d.State, &a); err != nil {
		return nil, err
	}
	return st.infer(ctx, ph, l, d, a, add)
}

// infer asks the model, with what plugins add, and plans the reply's entry. A model error that outlived its retries is the run's end, as
// data, or ErrModelBusy.
func (st *Stepper) infer(ctx context.Context, ph phases, l store.Loaded, d *run.Draft, a run.Action, add hook.Additions) (*turn, error) {
	def := ph.def
	if err := st.judgeTools(ctx, def, d); err != nil {
		return nil, err
	}
	fits, err := st.outputCheck(def)
	if err != nil {
		return &turn{before: l.State, draft: d}, ph.end(ctx, d, policy.Fail(run.CodeDefinition, err.Error()))
	}
	system, err := st.buildContext(ctx, def, d, a)
	var bad *badContext
	if errors.As(err, &bad) {
		return &turn{before: l.State, draft: d}, ph.end(ctx, d, policy.Fail(run.CodeDefinition, bad.Error()))
	}
	if err != nil {
		return nil, err
	}
	crowded := d.Clone() // what leaves the conversation leaves with the reply, or not at all
	q := &asking{action: a, system: system, add: add}
	if err := st.fit(ctx, def, d, q); err != nil {
		return nil, err
	}
	if q.action.Kind != run.ActInfer { // not even after that
		return st.full(ctx, ph, l, d, q.action)
	}
	req, systemDigest, err := st.request(ctx, def, d, *q)
	if err != nil {
		return st.unasked(ctx, ph, l, d, crowded, err)
	}
	reply, requests, err := st.Model.Ask(ctx, req)
	var failed *agent.ModelError
	if errors.As(err, &failed) {
		requests += noted(crowded, d)
		*d = *crowded
		return st.modelFailed(ctx, ph, l, d, failed, requests)
	}
	if errors.Is(err, context.DeadlineExceeded) { // the function's time is over, and the model's answer had not come
		return nil, fmt.Errorf("%w: %w", ErrModelBusy, err)
	}
	if err != nil {
		return nil, fmt.Errorf("ask the model: %w", err)
	}
	reply.At = st.Clock.Now()
	said := plan.Narrowed(q.action, def, prompt.KeepSystem(def, policy.PlanReply(def, &d.State, reply, requests, systemDigest), system))
	said.Room = q.left.Room(def)
	if !def.Unjudged(q.action) {
		said = policy.Judge(def, &d.State, said, fits)
	}
	return st.replied(ctx, ph, l, d, said)
}

// unasked takes back what was to leave the conversation for a request that cannot be made. A context that cannot be built ends the run.
func (st *Stepper) unasked(ctx context.Context, ph phases, l store.Loaded, d, crowded *run.Draft, err error) (*turn, error) {
	asked := noted(crowded, d)
	*d = *crowded
	var bad *badContext
	if !errors.As(err, &bad) {
		return nil, err
	}
	fin := policy.Fail(run.CodeDefinition, bad.Error())
	fin.Requests = asked
	return &turn{before: l.State, draft: d}, ph.end(ctx, d, fin)
}

// modelFailed ends the run behind a model error that outlived its retries, after so many requests; ErrModelBusy where the run waits instead.
func (st *Stepper) modelFailed(ctx context.Context, ph phases, l store.Loaded, d *run.Draft, failed *agent.ModelError, requests int) (*turn, error) {
	fin := policy.ModelFailed(ph.def, &d.State, failed, requests)
	if policy.WaitsForModel(ph.def, &d.State, failed) {
		stopped, late := policy.WaitedTooLong(ph.def, &d.State, requests, st.Clock.Now())
		if !late {
			return nil, fmt.Errorf("%w: %w", ErrModelBusy, failed)
		}
		fin = stopped
	}
	if err := ph.afterInference(ctx, d, failed); err != nil {
		return nil, err
	}
	return &turn{before: l.State, draft: d}, ph.end(ctx, d, fin)
}

// replied adds a planned reply to the draft, and what comes of it at once.
func (st *Stepper) replied(ctx context.Context, ph phases, l store.Loaded, d *run.Draft, said run.Replied) (*turn, error) {
	if err := d.Add(said); err != nil {
		return nil, err
	}
	d.Mark(run.CheckpointAssistantTurn)
	if err := ph.afterInference(ctx, d, nil); err != nil {
		return nil, err
	}
	return st.turn(ctx, ph, l, d)
}

// withStop is a run's end behind a reply: where the model refused or its words were filtered, it says so.
func withStop(d *run.Draft, end run.Finished) run.Finished {
	for _, ev := range slices.Backward(d.Entry.Events) {
		if said, ok := ev.(run.Replied); ok && end.Detail == "" && end.Reason == run.ReasonNaturalEnd && policy.Withheld(said.Stop) {
			end.Detail = said.Stop
		}
	}
	return end
}

// turn is a draft that is paid for, behind facts that are added, with what it leads to: the run's end, or that it parks.
func (st *Stepper) turn(ctx context.Context, ph phases, l store.Loaded, d *run.Draft, facts ...run.Event) (*turn, error) {
	if err := d.Add(facts...); err != nil {
		return nil, err
	}
	t := &turn{before: l.State, draft: d}
	switch next := policy.Next(ph.def, &d.State); next.Kind {
	case run.ActEnd:
		t.open = d.Clone()
		return t, ph.end(ctx, d, withStop(d, next.End))
	case run.ActWait: // the last word while calls are open ends nothing
		return t, ph.park(ctx, d)
	default:
		return t, nil
	}
}

// full ends or parks a run that has no room for another round and is not to be summed up.
func (st *Stepper) full(ctx context.Context, ph phases, l store.Loaded, d *run.Draft, a run.Action) (*turn, error) {
	t := &turn{before: l.State, draft: d}
	if a.Kind == run.ActWait {
		return t, ph.park(ctx, d)
	}
	return t, ph.end(ctx, d, a.End)
}

// noted is how many requests for notes of what was to leave the draft holds, beyond those before it.
func noted(before, d *run.Draft) int { return int(d.State.ModelCalls - before.State.ModelCalls) }

// request is what the model is asked, and its system text's digest where that is new; then the text is where the reply's fact will point.
func (st *Stepper) request(ctx context.Context, def *agent.Definition, d *run.Draft, q asking) (agent.Request, string, error) {
	req, digest, err := st.built(ctx, def, &d.State, q)
	if err != nil {
		return req, "", err
	}
	if req, err = st.withPrompt(ctx, def, d, q.action, req); err != nil {
		return req, "", err
	}
	return req, digest, st.storeSystem(ctx, def, &d.State, digest, q.system)
}

// end adds the run's end to the draft, after those have cleaned up who know of it.
func (p Ports) end(ctx context.Context, def *agent.Definition, d *run.Draft, fin run.Finished) error {
	fin, err := p.cleaned(ctx, def, &d.State, fin)
	if err != nil {
		return err
	}
	return end(d, fin)
}

// end adds the run's end to the draft.
func end(d *run.Draft, fin run.Finished) error {
	d.Mark(run.CheckpointRunFinished)
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
	return st.leave(ctx, inv, &after, routeAfter(inv, def, &after, st.Clock.Now()))
}

// withBodies are the messages of a request to s's model with the bodies that blobs hold, as far as they are not known.
func (p Ports) withBodies(ctx context.Context, s *run.AgentState, messages []run.Message, known bodies) ([]run.Message, error) {
	known, err := p.bodies(ctx, s, messages, known)
	if err != nil || len(known) == 0 {
		return messages, err
	}
	out := append([]run.Message(nil), messages...)
	for i, m := range out {
		if r, ok := m.Block.(run.ToolResult); ok && r.Blob != "" {
			r.Content, r.Blob = string(known[r.Blob]), ""
			out[i].Block = r
		}
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
	if l.State.Owner != inv.Execution || l.State.Status == run.RunDone {
		return inv.route(NextFailed), st.fallen(ctx, inv, &l.State)
	}
	def, err := st.Definitions(ctx, inv.Tenant, l.State.Definition)
	if err != nil {
		return Route{}, err
	}
	if err := st.makeRoom(ctx, inv, l, def); err != nil {
		return Route{}, err
	}
	d, err := st.draft(inv, l)
	if err != nil {
		return Route{}, err
	}
	if err := st.end(ctx, def, d, policy.Fail(run.CodeInternal, message)); err != nil {
		return Route{}, err
	}
	if err := st.commit(st.within(ctx, &d.State), l.State, d, def); err != nil {
		return Route{}, err
	}
	after := d.Committed()
	return inv.route(NextFailed), st.fallen(ctx, inv, &after)
}
