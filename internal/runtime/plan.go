package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/tool"
)

// batchPlan is one entry of a batch as it would be committed now, and what may be launched after it.
type batchPlan struct {
	draft   *run.Draft
	launch  []run.Call
	taken   []*execution // finished executions whose results are in the draft, or are nobody's any more
	due     due
	settles bool // the draft settles calls, or suspends them
	full    bool // the draft writes as many requests as an entry may: what else is owed is for the next one
	// calls that a kept decision has met: what it lets run is claimed in a later entry, as its request is one item
	early map[string]bool
}

// due is when a plan's entry has to be committed.
type due int

const (
	dueLater  due = iota // with whatever else comes: what was drained is still in the inbox
	dueAtRest            // once nothing runs: a refusal waits for the results beside it
	// before anything is launched or awaited: a claim, a result, what people may decide about meanwhile
	dueFirst
)

func (p *batchPlan) raiseDue(d due) { p.due = max(p.due, d) }

func (p *batchPlan) settle(events ...run.Event) error {
	p.settles = true
	p.raiseDue(dueAtRest)
	return p.draft.Add(events...)
}

// suspend adds events that suspend a call. Under a streaming executor people may decide it while other calls run.
func (r *round) suspend(p *batchPlan, events ...run.Event) error {
	if r.def.Executor == agent.ExecutorParallelStreaming {
		p.raiseDue(dueFirst)
	}
	return p.settle(events...)
}

// mustCommit reports whether the draft must be committed before anything is launched or awaited.
func (r *round) mustCommit(p *batchPlan) bool {
	busy := len(p.launch) > 0 || r.inflight.count() > 0
	resumes := r.loaded.State.Status == run.RunWaiting && (busy || p.settles) // nothing runs before the wait is over
	if resumes || p.full || len(p.early) > 0 || p.draft.State.Permissions.Failed != "" {
		p.raiseDue(dueFirst)
	}
	return !p.draft.Empty() && (p.due == dueFirst || p.due == dueAtRest && !busy)
}

// plan drains, takes in what has finished, and gates what Next owes.
func (r *round) plan(ctx context.Context) (*batchPlan, error) {
	d, err := r.draft(ctx, r.inv, *r.loaded, r.def)
	if err != nil {
		return nil, err
	}
	ctx = r.within(ctx, &d.State)
	p := &batchPlan{draft: d, early: map[string]bool{}}
	if err := r.permits.prepare(ctx, r.def, d); err != nil {
		return nil, err
	}
	if err := r.dropAbandoned(ctx, p); err != nil {
		return nil, err
	}
	size := 0
	for _, f := range r.inflight.results() {
		if p.full = isFull(d); p.full {
			return p, nil
		}
		if size += f.size; size > maxResults && len(p.taken) > 0 {
			break // the next entry holds it
		}
		if err := r.addFinished(ctx, p, f); err != nil {
			return nil, err
		}
	}
	if r.pluginEnd != nil {
		r.stopRetries()
		if r.inflight.count() == 0 && len(p.taken) == len(r.inflight.results()) { // no result would be lost
			p.raiseDue(dueFirst)
			err = r.addEndAfterCleanup(ctx, r.def, d, *r.pluginEnd)
		}
		return p, err
	}
	if err := r.settleEarly(ctx, p); err != nil {
		return nil, err
	}
	if at, ok := ctx.Deadline(); ok && at.Sub(r.Clock.Now()) < launchMargin { // there is no time to start a call
		return p, nil
	}
	for {
		if p.full = isFull(d); p.full {
			return p, nil
		}
		progress, err := r.gateOwed(ctx, p)
		if fin, broken := pluginEndOf(err); broken { // nothing that this plan would start is started
			r.pluginEnd = &fin
			return r.plan(ctx)
		}
		if r.pluginEnd != nil { // behind a call that the draft settles: it is committed, and nothing is started after it
			p.raiseDue(dueFirst)
			return p, nil
		}
		if p.full = isFull(d); err != nil || !progress || p.full {
			return p, err
		}
		if err := r.settleEarly(ctx, p); err != nil {
			return nil, err
		}
	}
}

// settleEarly settles the kept decisions that have met a suspended call, and lets the permission backend hear of them.
func (r *round) settleEarly(ctx context.Context, p *batchPlan) error {
	for _, fact := range policy.Early(r.def, &p.draft.State, r.Valid, p.draft.Entry.Time) {
		if isFull(p.draft) {
			break
		}
		add := p.draft.Add
		switch fact := fact.(type) {
		case run.Decided:
			p.early[fact.Call] = true
			if fact.Action != run.ActionApprove {
				add = p.settle
			}
		case run.DecisionDropped:
			p.early[fact.Call] = true
		}
		if err := add(fact); err != nil {
			return err
		}
	}
	if len(p.early) == 0 || p.draft.State.Permissions.Failed != "" {
		return nil
	}
	return r.permits.notifyBackend(ctx, r.def, p.draft)
}

// settlesEarly reports whether the draft settles the request by a decision that was kept.
func (p *batchPlan) settlesEarly(request string) bool {
	return slices.ContainsFunc(p.draft.Entry.Events, func(e run.Event) bool {
		said, ok := e.(run.Decided)
		return ok && said.Early != "" && said.Approval == request
	})
}

// gateOwed handles the calls that Next owes and reports whether that may have changed what it owes: a sequential
// executor goes on behind a refused call.
func (r *round) gateOwed(ctx context.Context, p *batchPlan) (bool, error) {
	a := policy.Next(r.def, &p.draft.State)
	if a.Kind != policy.ActTools {
		return false, nil
	}
	before := len(p.draft.Entry.Events)
	if err := r.permits.check(ctx, r.def, p.draft, r.recheckApprovals); err != nil {
		return false, err
	}
	if err := r.blockCalls(ctx, p); err != nil {
		return false, err
	}
	if p.draft.State.Permissions.Failed != "" {
		return false, nil
	}
	progress := len(p.draft.Entry.Events) > before
	for _, id := range a.Calls {
		c, _ := p.draft.State.Call(id)
		unsent := slices.ContainsFunc(r.unsent, func(x *execution) bool { return x.call.ID == id })
		if !c.Open() || unsent || r.inflight.has(id) || p.launches(id) || p.early[id] {
			continue
		}
		if isFull(p.draft) {
			return progress, nil
		}
		before := len(p.draft.Entry.Events)
		if err := r.gate(ctx, p, c); err != nil {
			return false, err
		}
		progress = progress || len(p.draft.Entry.Events) > before
	}
	return progress, nil
}

func (p *batchPlan) launches(id string) bool {
	return slices.ContainsFunc(p.launch, func(c run.Call) bool { return c.ID == id })
}

// gate decides about one call that is owed: run, ask, refuse, or find out what became of it.
func (r *round) gate(ctx context.Context, p *batchPlan, c run.Call) error {
	if r.isUnlinked(c) {
		return nil
	}
	if c.Status == run.StatusRunning && c.Claim != r.inv.Writer {
		return r.findOutcome(ctx, p, c, true)
	}
	if c.Status == run.StatusRunning { // our own claim, whose answer was lost
		p.launch = append(p.launch, c)
		return nil
	}
	if skip, ok := policy.Skip(r.def, &p.draft.State, c); ok {
		return p.settle(skip)
	}
	g, err := r.verdict(ctx, p, c)
	if err != nil {
		return err
	}
	switch {
	case g.Claim != nil && p.settlesEarly(g.Claim.Under):
		p.early[c.ID] = true
		return nil
	case g.Block != nil: // alone, as what its batch asked for was used up by another call
		return fmt.Errorf("gate call %s: it is to be blocked, and its round has been", c.ID)
	case g.Give != nil:
		var e run.CallFinished
		if e, err = r.resultEvent(ctx, c, *g.Give); err == nil {
			e.Ran = false // the tool did not
			err = p.settle(e)
		}
	case g.Ask:
		err = r.suspend(p, r.unknownOutcome(p, c))
	case g.Suspend != nil:
		err = r.suspend(p, *g.Suspend)
	case g.Refuse != nil:
		err = p.settle(*g.Refuse)
	case c.Budget: // people have approved to raise it: that uses their approval up, and is no tool's
		p.raiseDue(dueFirst)
		err = p.settle(run.CallClaimed{Call: c.ID}, run.CallFinished{Call: c.ID, Content: "The budget is raised."})
	case r.isAway(c):
		return nil
	default:
		child, refused := policy.Delegation(r.def, &p.draft.State, c, r.Agents)
		if refused == nil {
			return r.start(p, c, g.Claim, child)
		}
		err = p.settle(*refused)
	}
	if err != nil {
		return err
	}
	return r.afterTool(ctx, p, c.ID)
}

// verdict is the gate's, as plugins, the approval on record where that was in doubt, and what the call depends on let
// it be.
func (r *round) verdict(ctx context.Context, p *batchPlan, c run.Call) (policy.Gate, error) {
	plugins, err := r.beforeTool(ctx, p, c)
	if err != nil {
		return policy.Gate{}, err
	}
	g := policy.GateHooked(r.def, &p.draft.State, c, plugins, r.Valid, p.draft.Entry.Time)
	if name := r.def.Output.Check; name != "" && c.Breaks && g.Give != nil && !g.Give.IsError {
		wrong, err := r.Hooks.Checked(ctx, name, &p.draft.State, json.RawMessage(g.Give.Content))
		if err != nil {
			return policy.Gate{}, err
		}
		if wrong != "" {
			g = policy.LastWordRefused(r.def, c, policy.WrongOutput(wrong))
		}
	}
	if g.Run && r.recheckApprovals {
		live, err := r.isLive(ctx, p, c, g)
		if err != nil {
			return policy.Gate{}, err
		}
		if !live {
			g = policy.Gate{Refuse: policy.Voided(r.def, c)}
		}
	}
	return r.checkPrecondition(ctx, p, c, g)
}

// isLive reports whether the approval or grant for a claim still holds on record.
func (r *round) isLive(ctx context.Context, p *batchPlan, c run.Call, g policy.Gate) (bool, error) {
	if g.Claim != nil {
		if _, standing := p.draft.State.StandingUnder(c, *g.Claim); standing {
			return true, nil // this plan has looked (check); the transaction looks again
		}
		for _, t := range p.draft.State.Permissions.Tools {
			if t.Tool == c.Tool && t.Approval == g.Claim.Under && !t.Denied {
				return approval.IsPermitLive(ctx, r.Table, r.inv.Tenant, t)
			}
		}
		return false, nil
	}
	if c.Grant != nil && c.Grant.Standing {
		grant, _ := standingGrantOf(r.def, &p.draft.State, c, run.CallClaimed{Call: c.ID})
		return approval.IsStandingLive(ctx, r.Table, r.inv.Tenant, p.draft.State.Agent, grant, p.draft.Entry.Time)
	}
	if c.Grant == nil || c.Grant.Consumed {
		return true, nil
	}
	return approval.IsGrantLive(ctx, r.Table, r.inv.Tenant, *c.Grant, p.draft.Entry.Time)
}

// start puts a call on the launch list, under a claim where it needs one (rule 9). Claim is the one it takes where its
// tool was granted; child, the run that carries it out where another agent does. A call for which there is no room
// stays as it is, unclaimed: it is gated again when another has ended, here or in a later invocation.
func (r *round) start(p *batchPlan, c run.Call, claim *run.CallClaimed, child *run.Child) error {
	if !policy.Launches(r.def, r.runningTools(p), c.Tool) {
		return nil
	}
	if claim != nil || child != nil || c.NeedsClaim() || c.Status == run.StatusResuming {
		with := run.CallClaimed{Call: c.ID}
		if claim != nil {
			with = *claim
		}
		if child != nil {
			with.Child = child
		}
		p.raiseDue(dueFirst)
		if err := p.draft.Add(with); err != nil {
			return err
		}
		c, _ = p.draft.State.Call(c.ID)
	}
	p.launch = append(p.launch, c)
	return nil
}

// findOutcome handles a call that another invocation has claimed, or that timed out here and may still happen. It is
// never simply run: the tool may know the outcome; where it says that the call was not made, the call is run again if
// it may be; otherwise a person says (rule 10, R5).
func (r *round) findOutcome(ctx context.Context, p *batchPlan, c run.Call, mayRun bool) error {
	p.raiseDue(dueFirst)
	found, word, err := r.reconcile(ctx, p, c)
	switch {
	case err != nil:
		return err
	case found == tool.OutcomeDone:
		switch word := word.(type) {
		case run.CallSuspended: // it had asked for input, and waits for that
			if err = p.settle(run.Answered{Call: c.ID, Rerun: true, By: "reconcile"}); err == nil {
				err = r.suspend(p, r.inputRequest(p, c, word))
			}
		case run.CallFinished:
			err = p.settle(run.Answered{Call: c.ID, Content: word.Content, Blob: word.Blob, IsError: word.IsError,
				Media: word.Media, Patch: word.Patch, Whole: word.Whole, By: "reconcile"})
		default:
			err = fmt.Errorf("reconcile call %s: %T is no word on it", c.ID, word)
		}
		if err != nil {
			return err
		}
		return r.afterTool(ctx, p, c.ID)
	case found == tool.OutcomeNotDone && mayRun:
		err := p.draft.Add(run.Answered{Call: c.ID, Rerun: true, NotRun: true, By: "reconcile"})
		if err != nil || p.draft.State.Broken != nil { // nothing is started any more
			return err
		}
		again, _ := p.draft.State.Call(c.ID)
		return r.gate(ctx, p, again)
	default:
		return r.suspend(p, r.unknownOutcome(p, c))
	}
}

func (r *round) unknownOutcome(p *batchPlan, c run.Call) run.CallUnknown {
	return run.CallUnknown{
		Call: c.ID, Approval: run.ApprovalID(p.draft.State.Run, c.ID, c.Asks+1),
		Expires: p.draft.Entry.Time.Add(agent.OutcomeExpiry), Claim: c.Claim,
	}
}

// reconcile asks the tool what became of a call whose claimant died. The report on one that is done is a CallFinished,
// or a CallSuspended where it had asked for input.
func (r *round) reconcile(ctx context.Context, p *batchPlan, c run.Call) (tool.Outcome, run.Event, error) {
	if c.Service || c.Effect != run.EffectNonIdempotent { // an event that goes out again has the id it had
		return tool.OutcomeNotDone, nil, nil
	}
	t, known := r.tool(c, &p.draft.State)
	rec, ok := t.(tool.Reconciler)
	if !known || !ok {
		return tool.OutcomeUnknown, nil, nil
	}
	out, res, err := rec.Reconcile(ctx, r.toolCall(c, &p.draft.State))
	switch {
	case err == nil && out == tool.OutcomeDone:
	case ctx.Err() != nil:
		return "", nil, ctx.Err()
	case err == nil && out == tool.OutcomeNotDone:
		return out, nil, nil
	default:
		return tool.OutcomeUnknown, nil, nil
	}
	word, err := r.toolEvent(ctx, t, c, withCheckedPatch(c, p.draft.State.SharedState(), res))
	return out, word, err
}

// addFinished adds a finished call's result to the draft if this invocation still owns the call. Otherwise the result
// goes through the inbox, or is dropped (rule 10).
func (r *round) addFinished(ctx context.Context, p *batchPlan, f *execution) error {
	c, ok := p.draft.State.Call(f.call.ID)
	ours := ok && c.Status == run.StatusRunning && c.Claim == r.inv.Writer
	if f.err != nil && ours {
		r.inflight.remove([]*execution{f})
		r.unsent = append(r.unsent, f)
		return nil
	}
	if unclaimed := ok && c.Status == run.StatusNew && f.call.Claim == ""; !ours && !unclaimed {
		if !ok || !c.Status.Terminal() {
			if err := r.deliverLate(ctx, f); err != nil {
				return err
			}
		}
		r.inflight.remove([]*execution{f})
		return nil
	}
	p.taken = append(p.taken, f)
	p.raiseDue(dueFirst)
	var err error
	switch e := f.event.(type) {
	case nil: // it may still happen, so its tool's report can settle it and it is never run again
		return r.findOutcome(ctx, p, c, false)
	case run.CallSuspended:
		switch {
		case e.For == run.ForAnswer:
			return p.settle(e)
		case policy.TooManyOpen(r.def, &p.draft.State):
			notAsked := policy.NotAsked(r.def, c)
			notAsked.Ran, notAsked.Entered = e.Ran, e.Entered
			err = p.settle(*notAsked)
		default:
			err = r.suspend(p, r.inputRequest(p, c, e))
		}
	default:
		err = p.settle(e)
	}
	if spec, _ := r.def.Tool(c.Tool); err == nil && f.changed != nil && !policy.Disabled(&p.draft.State, spec) {
		err = p.draft.Add(*f.changed)
	}
	if err != nil {
		return err
	}
	return r.afterTool(ctx, p, c.ID)
}

// inputRequest is the suspension of a call whose tool asked for input, as a request that people can see.
func (r *round) inputRequest(p *batchPlan, c run.Call, e run.CallSuspended) run.CallSuspended {
	asked := policy.AskInput(r.def, &p.draft.State, c, *e.Ticket, e.Ran, p.draft.Entry.Time)
	asked.Entered = e.Entered
	return asked
}

// checkPrecondition reads what a call depends on before people are asked about it, and again before an approved call
// runs. What is shown is read once in an invocation; what lets a call run is read for each entry that would claim it.
func (r *round) checkPrecondition(ctx context.Context, p *batchPlan, c run.Call, g policy.Gate) (policy.Gate, error) {
	reading, owed, err := policy.MustRead(r.def, &p.draft.State, c, g)
	if !owed {
		return g, nil
	}
	once := fmt.Sprintf("%s %d", c.ID, c.Asks)
	k := r.preconditions[once]
	if k == nil || g.Run {
		if err == nil {
			k, err = r.readPrecondition(ctx, p, c, reading)
		}
		if ended := ctx.Err(); ended != nil { // the invocation's time is up: the next one reads
			return g, ended
		}
		if err != nil {
			return policy.Gate{Refuse: policy.Unread(r.def, c, err), Rule: g.Rule}, nil
		}
	}
	g = policy.GateChecked(r.def, &p.draft.State, c, g, k, p.draft.Entry.Time)
	if g.Suspend != nil {
		r.preconditions[once] = k
	}
	return g, nil
}

// readPrecondition calls the tool of a precondition, with the retries of its own policy. It is not a call of the model:
// the journal has only what people are shown.
func (r *round) readPrecondition(
	ctx context.Context, p *batchPlan, c run.Call, reading policy.Reading,
) (*run.Checked, error) {
	of := run.Call{ID: c.ID, Tool: reading.Tool.Name, Name: reading.Tool.ModelName(), Input: reading.Args,
		Effect: reading.Tool.Effect}
	t, known := r.tool(of, &p.draft.State)
	if !known {
		return nil, fmt.Errorf("the tool %s is not part of this deployment", of.Tool)
	}
	entered := r.toolCall(of, &p.draft.State)
	nth := fmt.Sprintf("precondition-%d", c.Asks) // the next one of the call is read when people have been asked once more
	entered.ID, entered.Key = c.ID+"-"+nth, entered.Key+"/"+nth
	a := r.enterUntilDone(ctx, t, of, entered)
	var changed *tool.ChangedError
	switch {
	case a.timedOut:
		return nil, errors.New("it did not answer in time")
	case errors.As(a.err, &changed):
		return nil, errors.New("its server has changed the tool")
	case a.err != nil:
		return nil, a.err
	case a.result.Suspend != nil:
		return nil, errors.New("it asks for input itself")
	}
	return reading.Checked(a.result, p.draft.Entry.Time)
}
