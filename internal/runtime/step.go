package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/hook"
	"github.com/countersign/countersign/internal/plan"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/prompt"
	"github.com/countersign/countersign/internal/run"
)

// Step loads the run, drains its inbox (the resume gate), does what Next says and commits it. It returns where the run
// goes. An attempt that finds its work done returns that route without asking the model.
func (st *Stepper) Step(ctx context.Context, inv Invocation) (Route, error) {
	a := &attempt{Stepper: st, inv: inv}
	r, err := withReloads(ctx, func() (r Route, err error) {
		a.before, err = st.Journal.LoadAt(ctx, inv.Tenant, inv.Run, inv.At)
		for i := 0; i < len(exits) && err == nil && r.Next == ""; i++ {
			r, err = exits[i](a, ctx)
		}
		if err == nil && r.Next == "" {
			within := a.within(ctx, &a.draft.State)
			r, err = a.act(within)
			if fin, broken := pluginEndOf(err); broken {
				r, err = a.endBroken(within, fin)
			}
		}
		if isConflict(err) { // what the reply was planned on is gone
			a.paid = nil
		}
		return r, err
	})
	if err != nil {
		return Route{}, fmt.Errorf("step run %s: %w", inv.Run, err)
	}
	return r, nil
}

// exits are the conditions under which a step does nothing but send the run on, in the order in which they are looked
// at. Each gives the route of a run that it holds of, and none of any other.
var exits = []func(*attempt, context.Context) (Route, error){
	(*attempt).mayNotTouch, // another execution owns the run, it has ended, or it waits and was not woken
	(*attempt).listsTools,  // the batch lists the agent's tools before anything looks at them
	(*attempt).hasReply,    // a try before this one has paid for the reply
	(*attempt).isOrphan,    // the run that asked for this one does not wait for it
	(*attempt).owesBatch,   // what was decided early, and children that nobody waits for, are the batch's
	(*attempt).isFull,      // what expires fills the entry
}

// routeToTools sends the run to the batch, with the wait that woke this invocation.
func (a *attempt) routeToTools() Route {
	r := a.inv.route(NextTools)
	r.Woken = a.inv.Woken
	return r
}

func (a *attempt) mayNotTouch(ctx context.Context) (Route, error) {
	s := &a.before.State
	r, away := routeAway(a.inv, s, a.Clock.Now())
	if !away {
		return Route{}, nil
	}
	if isCleaner(a.inv, s) {
		return r, a.settleEnd(ctx, s, a.Definitions)
	}
	a.notifyLostAnswer(a.within(ctx, s), a.inv, s)
	return a.route(ctx, a.inv, s, r)
}

// listsTools reads the definition.
func (a *attempt) listsTools(ctx context.Context) (r Route, err error) {
	a.def, err = a.Definitions(ctx, a.inv.Tenant, a.before.State.Definition)
	if err != nil || policy.Next(a.def, &a.before.State).Kind != policy.ActList { // this function connects to nobody
		return Route{}, err
	}
	return a.routeToTools(), nil
}

func (a *attempt) hasReply(ctx context.Context) (Route, error) {
	if a.paid == nil || a.paid.draft.Entry.Seq != a.before.State.Entries {
		return Route{}, nil
	}
	return a.commitTurn(ctx, a.paid)
}

// isOrphan drains the inbox into the draft. It ends a run that nobody waits for.
func (a *attempt) isOrphan(ctx context.Context) (Route, error) {
	err := a.makeRoom(ctx, a.inv, a.before, a.def)
	if err != nil {
		return Route{}, err
	}
	if a.draft, err = a.Ports.draft(a.inv, a.before); err != nil {
		return Route{}, err
	}
	ctx = a.within(ctx, &a.draft.State)
	orphan, err := a.isOrphaned(ctx, &a.before.State)
	if err != nil || !orphan {
		return Route{}, err
	}
	by := "run:" + a.before.State.Parent.Run
	return a.endBroken(ctx, policy.Interrupt(&a.draft.State, by, "it has ended, or does not wait any more"))
}

func (a *attempt) owesBatch(context.Context) (Route, error) {
	s := &a.draft.State
	if len(policy.Abandoned(s)) > 0 || policy.EarlyOwed(s) && !a.beginsFirst() { // the batch has what it takes
		return a.routeToTools(), nil
	}
	return Route{}, nil
}

// beginsFirst reports whether plugins are to begin this attempt before the batch judges what was decided early. What is
// wrong with the plugins is for who runs them to say.
func (a *attempt) beginsFirst() bool {
	if a.draft.State.Begun || len(a.def.Plugins) == 0 {
		return false
	}
	ph, err := a.Ports.phases(a.def)
	return err != nil || ph.chain.BeginsRuns()
}

// isFull adds what the permission backend and the time have to say to the draft. Where that fills it, it is committed,
// and the others close in an entry of their own.
func (a *attempt) isFull(ctx context.Context) (Route, error) {
	permits := permissions{hooks: a.Hooks}
	if err := permits.prepare(a.within(ctx, &a.draft.State), a.def, a.draft); err != nil {
		return Route{}, err
	}
	a.drained = len(a.draft.Entry.Events)
	if err := addExpiries(a.draft); err != nil || !isFull(a.draft) {
		return Route{}, err
	}
	return Route{}, a.commitAlone(a.within(ctx, &a.draft.State), a.before, a.draft, a.def)
}

// act does what Next says of the drained state. A draft of more than the drained events must be committed even if a
// batch comes next.
func (a *attempt) act(ctx context.Context) (Route, error) {
	var err error
	if a.phases, err = a.Ports.phases(a.def); err != nil {
		return Route{}, err
	}
	d := a.draft
	if policy.EarlyOwed(&d.State) && d.State.Permissions.Failed == "" { // the batch may let a call run behind run_start
		if err := a.phases.startRun(ctx, d); err != nil {
			return Route{}, err
		}
		return a.inv.route(NextTools), a.commit(ctx, a.before.State, d, a.def)
	}
	if err := a.recordFirst(ctx); err != nil {
		return Route{}, err
	}
	looks := a.before.State.Status == run.RunWaiting && policy.Next(a.def, &d.State).Kind == policy.ActWait
	add, err := a.phases.prepare(ctx, d)
	if err != nil {
		return Route{}, err
	}
	next := policy.Next(a.def, &d.State)
	switch next.Kind {
	case policy.ActInfer:
		t, err := a.infer(ctx, next, add)
		if err != nil {
			return Route{}, err
		}
		a.paid = t
		return a.commitTurn(ctx, t)
	case policy.ActTools:
		if len(d.Entry.Events) == a.drained { // the batch drains and resumes in the entry that claims
			return a.routeToTools(), nil
		}
	case policy.ActWait:
		if looks { // nothing has begun that could end
			err = addPark(d)
		} else {
			err = a.phases.park(ctx, d)
		}
	case policy.ActBudget:
		err = d.Add(next.Ask)
	case policy.ActContinue:
		err = d.Add(run.HandedOver{Owner: ExecutionName(d.State.Run, d.State.Generation+1)})
	case policy.ActEnd:
		err = a.phases.end(ctx, d, next.End)
	default:
		err = fmt.Errorf("run %s owes %q while it is %s", a.inv.Run, next.Kind, d.State.Status)
	}
	if err != nil {
		return Route{}, err
	}
	return a.commitTurn(ctx, a.turn())
}

// recordFirst commits the draft before a model is asked, where it closes requests to people: what a tool's denial or an
// expiry has settled is on record at once. Somebody could decide such a request while the model thinks, and the reply,
// whose entry would close it, would be lost.
func (a *attempt) recordFirst(ctx context.Context) error {
	if policy.Next(a.def, &a.draft.State).Kind != policy.ActInfer {
		return nil
	}
	closes, err := a.requestOps(ctx, &a.before.State, a.draft, a.def)
	if err != nil || len(closes) == 0 {
		return err
	}
	return a.commitAlone(ctx, a.before, a.draft, a.def)
}

// infer asks a model, with what plugins add: for the run's plan, or in the loop, which takes over from a plan that
// cannot go on. It plans the reply's entry. A model error that outlived its retries is the run's end, as data, or
// ErrModelBusy.
func (a *attempt) infer(ctx context.Context, next policy.Action, add hook.Additions) (*turn, error) {
	def, d := a.def, a.draft
	if next.Lifecycle.ForPlan() {
		return a.inferPlan(ctx, next, add)
	}
	if left, ok := plan.LeavesPlan(&d.State, next); ok {
		if err := d.Add(left); err != nil {
			return nil, err
		}
	}
	if err := a.narrow(ctx, def, &d.State, &next); err != nil {
		return nil, err
	}
	if err := a.recordAdvice(ctx); err != nil {
		return nil, err
	}
	fits := func(json.RawMessage) error { return nil }
	if def.Output.Schema != nil {
		var err error
		if fits, err = a.Schema(def.Output.Schema); err != nil {
			return a.endTurn(ctx, policy.Fail(run.CodeDefinition, "the schema of the output is broken: "+err.Error()))
		}
	}
	system, err := a.buildContext(ctx, next)
	var bad *badContext
	if errors.As(err, &bad) {
		return a.endTurn(ctx, policy.Fail(run.CodeDefinition, bad.Error()))
	}
	if err != nil {
		return nil, err
	}
	whole := d.Clone() // what leaves the conversation leaves with the reply, or not at all
	q := &requestPlan{action: next, system: system, add: add}
	if err := a.fitRequest(ctx, q); err != nil {
		return nil, err
	}
	switch q.action.Kind {
	case policy.ActInfer:
	case policy.ActWait: // there is no room for another round, not even after that, and the run is not to be summed up
		return a.turn(), a.phases.park(ctx, d)
	default:
		return a.endTurn(ctx, q.action.End)
	}
	req, systemDigest, err := a.request(ctx, q)
	if err != nil {
		return a.dropEvictions(ctx, whole, err)
	}
	reply, requests, err := a.Model.Ask(ctx, req)
	var failed *agent.ModelError
	if errors.As(err, &failed) {
		requests += noteRequests(whole, d)
		*d = *whole
		return a.modelFailed(ctx, failed, requests)
	}
	if errors.Is(err, context.DeadlineExceeded) { // the function's time is over, and the model's answer had not come
		return nil, fmt.Errorf("%w: %w", ErrModelBusy, err)
	}
	if err != nil {
		return nil, fmt.Errorf("ask the model: %w", err)
	}
	reply.At = a.Clock.Now()
	planned := policy.PlanReply(def, &d.State, reply, requests, systemDigest)
	said := plan.Narrowed(q.action, def, prompt.KeepSystem(def, planned, system))
	said.Room = q.left.Room(def)
	if !q.action.Exhausted || def.Limits.Validators != agent.ValidatorsNotExhausted {
		if said, err = a.checkOutput(ctx, said, fits); err != nil {
			return nil, errors.Join(d.Add(said), err) // the reply stays
		}
	}
	return a.replyTurn(ctx, nil, said)
}

// checkOutput adds to a reply what is wrong with it as an output, by its schema and by the agent's own check.
func (a *attempt) checkOutput(
	ctx context.Context, said run.Replied, fits func(json.RawMessage) error,
) (run.Replied, error) {
	var failed error
	judged := policy.Judge(a.def, &a.draft.State, said, func(value json.RawMessage) error {
		if err := fits(value); err != nil || a.def.Output.Check == "" {
			return err
		}
		var wrong string
		if wrong, failed = a.Hooks.Checked(ctx, a.def.Output.Check, &a.draft.State, value); wrong != "" {
			return policy.WrongOutput(wrong)
		}
		return nil
	})
	if failed != nil {
		return said, failed
	}
	return judged, nil
}

// dropEvictions drops the evictions for a request that cannot be made. A context that cannot be built ends the run.
func (a *attempt) dropEvictions(ctx context.Context, whole *run.Draft, err error) (*turn, error) {
	asked := noteRequests(whole, a.draft)
	*a.draft = *whole
	var bad *badContext
	if !errors.As(err, &bad) {
		return nil, err
	}
	fin := policy.Fail(run.CodeDefinition, bad.Error())
	fin.Requests = asked
	return a.endTurn(ctx, fin)
}

// modelFailed ends the run behind a model error that outlived its retries, after so many requests; ErrModelBusy where
// the run waits instead.
func (a *attempt) modelFailed(ctx context.Context, failed *agent.ModelError, requests int) (*turn, error) {
	fin, ends := policy.ModelFailed(a.def, &a.draft.State, failed, requests, a.Clock.Now())
	if !ends {
		return nil, fmt.Errorf("%w: %w", ErrModelBusy, failed)
	}
	if err := a.phases.afterInference(ctx, a.draft, failed); err != nil {
		return nil, err
	}
	return a.endTurn(ctx, fin)
}

// noteRequests is how many requests for summaries the draft holds beyond those before it.
func noteRequests(before, d *run.Draft) int { return int(d.State.ModelCalls - before.State.ModelCalls) }

// request is what the model is asked, and its system text's digest where that is new; then the text is where the
// reply's fact will point.
func (a *attempt) request(ctx context.Context, q *requestPlan) (agent.Request, string, error) {
	req, digest, err := a.buildRequest(ctx, q)
	if err != nil {
		return req, "", err
	}
	if req, err = a.withPrompt(ctx, q.action, req); err != nil {
		return req, "", err
	}
	return req, digest, a.storeSystem(ctx, a.def, &a.draft.State, digest, q.system)
}

// Fail ends a run as failed because its execution gave up on a step (R8). A run that is done or owned by another
// execution is left alone.
func (st *Stepper) Fail(ctx context.Context, inv Invocation, message string) (Route, error) {
	r, err := withReloads(ctx, func() (Route, error) { return st.failOnce(ctx, inv, message) })
	if err != nil {
		return Route{}, fmt.Errorf("record failure of run %s: %w", inv.Run, err)
	}
	return r, nil
}

func (st *Stepper) failOnce(ctx context.Context, inv Invocation, message string) (Route, error) {
	l, err := st.Journal.Load(ctx, inv.Tenant, inv.Run)
	if err != nil {
		return Route{}, err
	}
	if l.State.Owner != inv.Execution || l.State.Status == run.RunDone {
		return inv.route(NextFailed), st.notifyFailedFamily(ctx, inv, &l.State)
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
	if err := st.addEndAfterCleanup(ctx, def, d, policy.Fail(run.CodeInternal, message)); err != nil {
		return Route{}, err
	}
	if err := st.commit(st.within(ctx, &d.State), l.State, d, def); err != nil {
		return Route{}, err
	}
	after := d.Committed()
	return inv.route(NextFailed), st.notifyFailedFamily(ctx, inv, &after)
}
