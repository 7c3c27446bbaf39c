package runtime

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/hook"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/prompt"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// Stepper does one step of a run: an inference, or anything else that is due and is not a tool call. Safe for
// concurrent use.
type Stepper struct {
	Ports
	Definitions Definitions
	// Shown is Definitions for cleaning up after a run, which does what it can without the code that is missing. Nil =
	// Definitions.
	Shown Definitions
	// Family notifies the parent and children of a failed run if no later function does. It is (Ports).NotifyFamily in a
	// process with all ports; nil = the repair of badly ended executions does it.
	Family func(ctx context.Context, s *run.AgentState) error
}

// attempt is one try of a step, on the run as it was read.
type attempt struct {
	*Stepper
	inv     Invocation
	before  store.Loaded
	def     *agent.Definition
	draft   *run.Draft // the planned entry
	drained int        // number of events from the inbox and about permissions
	phases  phases
	paid    *turn // the planned entry of a reply that this or an earlier try has paid for; nil = none
}

// turn is the planned entry of a paid reply, or of anything else that a step does.
type turn struct {
	draft *run.Draft
	// the same entry without the run's end, if an input arrives meanwhile; nil if the entry does not end the run
	open *run.Draft
}

// Step loads the run, drains its inbox (the resume gate), does what policy.Next returns, and commits it. It returns the
// run's route. An attempt whose work is already done returns that route without calling the model.
func (st *Stepper) Step(ctx context.Context, inv Invocation) (Route, error) {
	a := &attempt{Stepper: st, inv: inv}
	r, err := withReloads(ctx, func() (r Route, err error) {
		a.before, err = st.Journal.LoadAt(ctx, inv.Tenant, inv.Run, inv.At)
		if err == nil {
			r, err = a.prepareDraft(ctx)
		}
		if err == nil && r.Next == "" {
			within := a.within(ctx, &a.draft.State)
			r, err = a.act(within)
			if fin, broken := pluginEndOf(err); broken {
				r, err = a.endBroken(within, fin)
			}
		}
		if isConflict(err) && a.paid != nil { // the state on which the reply was planned is outdated
			if lost := a.countLost(ctx); lost != nil { // the run does not depend on it
				st.warn("count a lost reply of run "+inv.Run, lost)
			}
			a.paid = nil
		}
		return r, err
	})
	if err != nil {
		return Route{}, fmt.Errorf("step run %s: %w", inv.Run, err)
	}
	return r, nil
}

// prepareDraft drafts the entry of a step with the facts from the inbox, about permissions and expiries. If the step
// has nothing to do itself, prepareDraft returns the run's route instead; otherwise the route is empty.
func (a *attempt) prepareDraft(ctx context.Context) (Route, error) {
	s := &a.before.State
	// another execution owns the run, or it has ended, or it waits and was not woken
	if r, away := routeAway(a.inv, s, a.Clock.Now()); away {
		if s.Status == run.RunDone && s.Owner != a.inv.Execution && s.FormerOwner != a.inv.Execution &&
			isCleanup(s.Run, a.inv.Execution) {
			definitions := a.Shown
			if definitions == nil {
				definitions = a.Definitions
			}
			return r, a.cleanUpEnd(ctx, s, definitions)
		}
		within := a.within(ctx, s)
		if a.Sink != nil && s.LastWriter() == a.inv.Writer { // the entry was committed although the response was lost
			entries, err := a.Journal.Entries(within, a.inv.Tenant, a.inv.Run, s.Seq(), 1)
			if err == nil && len(entries) > 0 { // a sink may miss entries
				notifySink(within, a.Sink, entries[0], s)
			}
		}
		return a.route(ctx, a.inv, s, r)
	}
	var err error
	if a.def, err = a.Definitions(ctx, a.inv.Tenant, s.Definition); err != nil {
		return Route{}, err
	}
	// the batch lists the agent's tools first, since this function opens no connections
	if policy.Next(a.def, s).Kind == policy.ActList {
		return a.routeToTools(), nil
	}
	if a.paid != nil && a.paid.draft.Entry.Seq == s.Entries { // an earlier try has paid for the reply
		return a.commitTurn(ctx, a.paid)
	}
	a.paid = nil // after an error that left open whether the entry was written, and it was
	if a.draft, err = a.Ports.draft(ctx, a.inv, a.before, a.def); err != nil {
		return Route{}, err
	}
	d := a.draft
	ctx = a.within(ctx, &d.State)
	orphan, err := a.isOrphaned(ctx, s)
	if err != nil {
		return Route{}, err
	}
	if orphan {
		fin := policy.InterruptRun(&d.State, "run:"+s.Parent.Run, "it has ended, or does not wait any more")
		return a.endBroken(ctx, fin)
	}
	early := policy.HasEarlyDecisions(&d.State)
	if early && !d.State.Begun && len(a.def.Plugins) > 0 { // run_start plugins run before the batch judges early decisions
		ph, err := a.Ports.phases(a.def) // an error is reported where the plugins run
		early = err == nil && !ph.chain.BeginsRuns()
	}
	// the batch handles early decisions and abandoned children
	if early || len(policy.AbandonedChildren(&d.State)) > 0 {
		return a.routeToTools(), nil
	}
	permits := permissions{hooks: a.Hooks, notified: map[string]bool{}}
	if err := permits.prepare(ctx, a.def, d); err != nil {
		return Route{}, err
	}
	a.drained = len(d.Entry.Events)
	if err := addExpiries(d); err != nil || !isFull(d) && len(policy.AbandonedChildren(&d.State)) == 0 {
		return Route{}, err
	}
	// the rest closes in another entry; what a child has used counts before the model is asked
	return Route{}, a.commitAlone(ctx, d, a.def)
}

// routeToTools returns the route to the batch, with the wait that woke this invocation.
func (a *attempt) routeToTools() Route {
	r := a.inv.route(NextTools)
	r.Woken = a.inv.Woken
	return r
}

// act carries out policy.Next of the drained state. A draft with more than the drained events has to be committed even
// if a batch comes next.
func (a *attempt) act(ctx context.Context) (Route, error) {
	var err error
	if a.phases, err = a.Ports.phases(a.def); err != nil {
		return Route{}, err
	}
	d := a.draft
	if policy.HasEarlyDecisions(&d.State) && d.State.Permissions.Failed == "" { // run_start precedes every call
		if err := a.phases.runStatePhase(ctx, d, run.PhaseRunStart); err != nil {
			return Route{}, err
		}
		return a.inv.route(NextTools), a.commit(ctx, d, a.def)
	}
	// Calls that the denial of a tool or an expiry has settled are committed before a model is called. Otherwise somebody
	// could decide such a request while the model works, and the reply would be lost, since its entry closes the request;
	// or a service would be told that its answer counts.
	if policy.Next(a.def, &d.State).Kind == policy.ActInfer {
		closes, err := a.requestOps(ctx, d, a.def)
		if err == nil && (len(closes) > 0 || slices.ContainsFunc(d.Before.Waits(), func(c run.Call) bool {
			_, ended := overtakenStatus(c, d.Entry.Events)
			return ended
		})) {
			err = a.commitAlone(ctx, d, a.def)
		}
		if err != nil {
			return Route{}, err
		}
	}
	onlyParks := a.before.State.Status == run.RunWaiting && policy.Next(a.def, &d.State).Kind == policy.ActWait
	add, err := a.phases.prepare(ctx, d)
	if err != nil {
		return Route{}, err
	}
	next := policy.Next(a.def, &d.State)
	switch next.Kind {
	case policy.ActInfer:
		met, err := a.applySharedBudgets(ctx)
		if err != nil {
			return Route{}, err
		}
		if met {
			break
		}
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
		if onlyParks { // no attempt has begun that could end
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
	return a.commitTurn(ctx, &turn{draft: d})
}

// infer calls a model, with the additions of plugins, and plans the entry of its reply. It serves the run's plan or the
// loop, which takes over a plan that cannot continue. A model error that remains after all retries ends the run as a
// fact, or is ErrModelBusy.
func (a *attempt) infer(ctx context.Context, next policy.Action, add hook.Additions) (*turn, error) {
	def, d := a.def, a.draft
	if next.Lifecycle.ForPlan() {
		return a.inferPlan(ctx, next, add)
	}
	if left, ok := prompt.LeavesPlan(&d.State, next); ok {
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
	if err != nil {
		return a.endBadContext(ctx, err)
	}
	whole := d.Clone()
	q := &requestPlan{action: next, system: system, add: add}
	if err := a.fitRequest(ctx, q); err != nil {
		return nil, err
	}
	switch q.action.Kind {
	case policy.ActInfer:
		if d.State.Usage == whole.State.Usage {
			break
		}
		if met, err := a.applySharedBudgets(ctx); met || err != nil { // the request for the summary has used one up
			return &turn{draft: d}, err
		}
	case policy.ActWait: // no room for another round even then, and the run must not write a summary
		return &turn{draft: d}, a.phases.park(ctx, d)
	case policy.ActBudget: // the request for the summary has used it up
		return &turn{draft: d}, d.Add(q.action.Ask)
	default:
		return a.endTurn(ctx, q.action.End)
	}
	if def.SystemPrompt == agent.SystemEveryInference && q.action.Lifecycle != next.Lifecycle { // it is the summary now
		if q.system, err = a.buildContext(ctx, q.action); err != nil {
			return a.endBadContext(ctx, err)
		}
	}
	req, digest, err := a.buildRequest(ctx, q)
	if err == nil {
		req, err = a.withPrompt(ctx, q.action, req)
	}
	if err == nil {
		err = a.storeSystem(ctx, def, &d.State, digest, q.system)
	}
	var reply agent.Reply
	var requests int
	if err == nil {
		reply, requests, err = a.ask(ctx, req)
	}
	if err != nil {
		return a.requestFailed(ctx, err, requests, whole)
	}
	planned := policy.PlanReply(def, &d.State, reply, requests, digest)
	replied := prompt.Narrowed(q.action, def, prompt.KeepSystem(def, planned, q.system))
	replied.Room = q.left.Room(def)
	if !q.action.Exhausted || def.Limits.Validators != agent.ValidatorsNotExhausted {
		if replied, err = a.checkOutput(ctx, replied, fits); err != nil {
			return nil, errors.Join(d.Add(replied), err) // keep the reply
		}
	}
	return a.replyTurn(ctx, nil, replied)
}

// requestFailed plans the end of a run whose request failed. It returns ErrModelBusy if the run waits for its models. A
// failed request evicts nothing, so the draft becomes whole again, unless a model was paid for notes. These are
// committed even if the model is busy, so that they are counted and not paid again.
func (a *attempt) requestFailed(ctx context.Context, err error, requests int, whole *run.Draft) (*turn, error) {
	paid := a.draft.State.Usage != whole.State.Usage
	if !paid {
		requests += int(a.draft.State.ModelCalls - whole.State.ModelCalls)
		*a.draft = *whole
	}
	if failed, ok := errors.AsType[*agent.ModelError](err); ok {
		fin, ends := policy.ModelFailed(a.def, &a.draft.State, failed, requests, a.Clock.Now())
		if ends {
			if err := a.phases.afterInference(ctx, a.draft, failed); err != nil {
				return nil, err
			}
			return a.endTurn(ctx, fin)
		}
		err = fmt.Errorf("%w: %w", ErrModelBusy, failed)
	}
	if paid && errors.Is(err, ErrModelBusy) {
		err = cmp.Or(a.commit(ctx, a.draft, a.def), err)
	}
	return a.endBadContext(ctx, err)
}

// lastReply is how long a run that has no time left waits for the reply after which it is stopped.
const lastReply = time.Minute

var errNoUsage = errors.New("the model does not say how many tokens it used, so the run's budgets hold nothing back")

// ask asks a model for as long as the run (stop.timeout, but at least lastReply) and the invocation have time. It
// returns a model error if the run's time is over, and ErrModelBusy if only the invocation's is.
func (a *attempt) ask(ctx context.Context, req agent.Request) (agent.Reply, int, error) {
	s := &a.draft.State
	limit := max(policy.TimeLeft(a.def, s, a.Clock.Now()), lastReply)
	asking, cancel := a.Clock.WithTimeout(ctx, a.withinInvocation(ctx, limit))
	defer cancel()
	reply, requests, err := a.Model.Ask(asking, req)
	reply.At = a.Clock.Now()
	budget := a.def.Limits.Tokens > 0 || a.def.Limits.USD > 0 || len(a.sharedBudgets(s, a.def)) > 0
	if err == nil && budget && reply.Usage == (run.Usage{}) {
		a.warn("count the tokens of run "+s.Run, errNoUsage)
	}
	switch {
	case err == nil:
		err = a.fitReply(&reply)
	case errors.As(err, new(*agent.ModelError)):
	case !errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("ask the model: %w", err)
	case policy.TimeLeft(a.def, s, reply.At) <= 0:
		err = &agent.ModelError{Class: agent.ModelTimeout, Model: req.Model.ID, Message: "the run's time is over"}
	default:
		err = fmt.Errorf("%w: %w", ErrModelBusy, err)
	}
	return reply, requests, err
}

// maxEntry is the most bytes of an entry with a reply. The rest of its item is for what follows from the reply.
const maxEntry = store.MaxItem - 16<<10

// fitReply returns a model error if the draft's entry has no room for a reply. The reply's reasoning is left out if
// only that is too large. A text that continues pieces needs room for all of them, since it is the run's output.
func (a *attempt) fitReply(r *agent.Reply) error {
	stored, err := a.draft.Stored()
	if err != nil {
		return fmt.Errorf("store the reply: %w", err)
	}
	room := maxEntry - len(stored)
	size := jsonx.StoredLen(policy.JoinPieces(&a.draft.State, r.Text)) + len(r.StopReason)
	for _, c := range r.Calls {
		size += 256 + 2*jsonx.StoredLen(c.Name) + len(policy.PlannedCall(a.def, c.ID, c).Input)
	}
	if size > room {
		return &agent.ModelError{Class: agent.ModelInvalid, Model: r.Model,
			Message: fmt.Sprintf("the reply has %d bytes, at most %d can be stored", size, room)}
	}
	for _, thought := range r.Reasoning {
		size += jsonx.StoredLen(thought.Text) + jsonx.StoredLen(thought.Signature) + 2*len(thought.Redacted)
	}
	if size > room {
		r.Reasoning = nil
	}
	return nil
}

// checkOutput adds to a reply what is wrong with it as an output, by its schema and by the agent's own check.
func (a *attempt) checkOutput(
	ctx context.Context, reply run.Replied, fits func(json.RawMessage) error,
) (run.Replied, error) {
	var failed error
	judged := policy.Judge(a.def, &a.draft.State, reply, func(value json.RawMessage) error {
		if err := fits(value); err != nil || a.def.Output.Check == "" {
			return err
		}
		var problem string
		if problem, failed = a.Hooks.Checked(ctx, a.def.Output.Check, &a.draft.State, value); problem != "" {
			return policy.WrongOutput(problem)
		}
		return nil
	})
	if failed != nil {
		return reply, failed
	}
	return judged, nil
}

// endBadContext ends the run if err is a *badDefinition. It returns any other error.
func (a *attempt) endBadContext(ctx context.Context, err error) (*turn, error) {
	var bad *badDefinition
	if !errors.As(err, &bad) {
		return nil, err
	}
	return a.endTurn(ctx, policy.Fail(run.CodeDefinition, bad.Error()))
}

func (a *attempt) endTurn(ctx context.Context, fin run.Finished) (*turn, error) {
	return &turn{draft: a.draft}, a.phases.end(ctx, a.draft, fin)
}

// replyTurn plans the entry of a model's reply, or of its failure in a plan, and what follows: an end or a wait.
func (a *attempt) replyTurn(ctx context.Context, failed *agent.ModelError, facts ...run.Event) (*turn, error) {
	if err := a.draft.Add(facts...); err != nil {
		return nil, err
	}
	if failed == nil {
		a.draft.Mark(run.CheckpointAssistantTurn)
	}
	if err := a.phases.afterInference(ctx, a.draft, failed); err != nil {
		return nil, err
	}
	return a.nextTurn(ctx)
}

// nextTurn plans an entry with what policy.Next returns: the run's end or a wait.
func (a *attempt) nextTurn(ctx context.Context) (*turn, error) {
	t := &turn{draft: a.draft}
	switch next := policy.Next(a.def, &a.draft.State); next.Kind {
	case policy.ActEnd:
		t.open = a.draft.Clone()
		end := next.End
		for _, ev := range slices.Backward(a.draft.Entry.Events) {
			replied, ok := ev.(run.Replied)
			if ok && end.Detail == "" && end.Reason == run.ReasonNaturalEnd && policy.IsCutShort(replied.Stop) {
				end.Detail = replied.Stop
			}
		}
		return t, a.phases.end(ctx, a.draft, end)
	case policy.ActWait: // a final answer while calls are open does not end the run
		return t, a.phases.park(ctx, a.draft)
	default:
		return t, nil
	}
}

// commitTurn commits a planned entry. If the entry would end the run but an input arrived first, it is committed
// without the end, and the run continues (rule 4). If it is too large with the run's output, the next step ends
// the run.
func (a *attempt) commitTurn(ctx context.Context, t *turn) (Route, error) {
	err := a.commit(ctx, t.draft, a.def)
	if t.open != nil && (errors.Is(err, store.ErrInboxMoved) || errors.Is(err, store.ErrTooLarge)) {
		t.draft, t.open = t.open, nil
		err = a.commit(ctx, t.draft, a.def)
	}
	if err != nil {
		return Route{}, err
	}
	after := t.draft.Committed()
	return a.route(ctx, a.inv, &after, routeAfter(a.inv, a.def, &after, a.Clock.Now()))
}

// endBroken ends the run because its plugins failed. A reply in the draft is kept. If the entry loses its race, the
// model is called again, because the plugins decide what follows from a reply.
func (a *attempt) endBroken(ctx context.Context, fin run.Finished) (Route, error) {
	if err := a.addEndAfterCleanup(ctx, a.def, a.draft, fin); err != nil {
		return Route{}, err
	}
	return a.commitTurn(ctx, &turn{draft: a.draft})
}

// route returns where a run goes from its present state. Step starts, stops and wakes nothing. The batch does what the
// end of a run means for other runs and calls, and then sets Woken to the sequence of the end, which is never that of a
// wait.
func (st *Stepper) route(ctx context.Context, inv Invocation, s *run.AgentState, r Route) (Route, error) {
	ended := s.Status == run.RunDone && hasFamily(s) && inv.Woken != s.Seq()
	abandoned := s.Status == run.RunWaiting && len(policy.AbandonedChildren(s)) > 0 && r.Next == NextWait &&
		inv.Woken != cancelledMark(s)
	if s.Owner == inv.Execution && (ended || abandoned) {
		r.Next, r.Woken = NextTools, 0
		return r, nil
	}
	return r, st.announce(ctx, inv, s)
}

// Fail ends a run as failed because its execution gave up on a step (R8). It changes nothing if the run is done or
// another execution owns it.
func (st *Stepper) Fail(ctx context.Context, inv Invocation, message string) (Route, error) {
	r, err := withReloads(ctx, func() (Route, error) {
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
		d, err := st.draft(ctx, inv, l, def)
		if err != nil {
			return Route{}, err
		}
		if err := st.addEndAfterCleanup(ctx, def, d, policy.Fail(run.CodeInternal, message)); err != nil {
			return Route{}, err
		}
		if err := st.commit(st.within(ctx, &d.State), d, def); err != nil {
			return Route{}, err
		}
		after := d.Committed()
		return inv.route(NextFailed), st.notifyFailedFamily(ctx, inv, &after)
	})
	if err != nil {
		return Route{}, fmt.Errorf("record failure of run %s: %w", inv.Run, err)
	}
	return r, nil
}
