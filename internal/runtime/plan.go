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
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/tool"
)

// batchPlan is one planned entry of a batch, and the calls to launch after it.
type batchPlan struct {
	draft   *run.Draft
	launch  []run.Call
	taken   []*execution // finished executions whose results are in the draft or not needed any more
	due     due
	settles bool // the draft settles or suspends calls
	full    bool // the draft writes as much as an entry may; the rest waits for the next entry
	asked   int  // bytes of the requests of suspended calls, which its transaction writes beside the entry
	// calls that kept decisions have settled. They are claimed in a later entry, because one entry can write a request
	// only once
	early map[string]bool
	// calls whose precondition was not read for want of room: they do not run, even if there is room a moment later
	unread map[string]bool
}

// due says when a plan's entry has to be committed.
type due int

const (
	dueLater  due = iota // with any later entry: drained facts are still in the inbox
	dueAtRest            // once nothing runs: a refusal waits for the results of other calls
	// before anything is launched or awaited: a claim, a result, a request that people may decide meanwhile
	dueFirst
)

func (p *batchPlan) raiseDue(d due) { p.due = max(p.due, d) }

func (p *batchPlan) settle(events ...run.Event) error {
	p.settles = true
	p.raiseDue(dueAtRest)
	return p.draft.Add(events...)
}

// isFull reports whether the entry or what is written beside it leaves no room for more: see isFull.
func (p *batchPlan) isFull() bool { return p.asked > maxFacts || isFull(p.draft) }

// suspend adds an event that suspends a call. Under a streaming executor people may decide it while other calls run.
func (r *round) suspend(p *batchPlan, call string, event run.Event) error {
	if r.def.Executor == agent.ExecutorParallelStreaming {
		p.raiseDue(dueFirst)
	}
	if err := p.settle(event); err != nil {
		return err
	}
	c, _ := p.draft.State.Call(call)
	op, err := approval.CreateOp(approval.NewCallRequest(r.def, &p.draft.State, c))
	p.asked += len(op.Item.Body)
	return err
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

// plan plans the next entry: it drains the inbox, adds finished results, and gates the calls that policy.Next returns.
func (r *round) plan(ctx context.Context) (*batchPlan, error) {
	d, err := r.draft(ctx, r.inv, *r.loaded, r.def)
	if err != nil {
		return nil, err
	}
	ctx = r.within(ctx, &d.State)
	p := &batchPlan{draft: d, early: map[string]bool{}, unread: map[string]bool{}}
	if err := r.permits.prepare(ctx, r.def, d); err != nil {
		return nil, err
	}
	if err := r.dropAbandoned(ctx, p); err != nil {
		return nil, err
	}
	size := 0
	for _, f := range r.inflight.results() {
		if p.full = p.isFull(); p.full {
			return p, nil
		}
		if size += f.size; size > maxResults && len(p.taken) > 0 {
			break // left to the next entry
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
	if err := r.applyEarlyDecisions(ctx, p); err != nil {
		return nil, err
	}
	if at, ok := ctx.Deadline(); ok && at.Sub(r.Clock.Now()) < launchMargin { // there is no time to start a call
		return p, nil
	}
	for {
		if p.full = p.isFull(); p.full {
			return p, nil
		}
		progress, err := r.gateCalls(ctx, p)
		if fin, broken := pluginEndOf(err); broken { // this plan starts nothing
			r.pluginEnd = &fin
			return r.plan(ctx)
		}
		if r.pluginEnd != nil { // plugins failed after a call: commit its result and start nothing more
			p.raiseDue(dueFirst)
			return p, nil
		}
		if p.full = p.isFull(); err != nil || !progress || p.full {
			return p, err
		}
		if err := r.applyEarlyDecisions(ctx, p); err != nil {
			return nil, err
		}
	}
}

// applyEarlyDecisions applies the kept decisions whose call is now suspended, and notifies the permission backend.
func (r *round) applyEarlyDecisions(ctx context.Context, p *batchPlan) error {
	s := &p.draft.State
	var starters []string // of the runs above, too
	if policy.HasEarlyDecisions(s) {
		var err error
		if starters, err = approval.Starters(ctx, r.Journal, store.Loaded{State: *s}); err != nil {
			return err
		}
	}
	for _, fact := range policy.ApplyEarlyDecisions(r.def, s, starters, r.Valid, p.draft.Entry.Time) {
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

// hasEarlyDecision reports whether the draft has a kept decision on the request.
func (p *batchPlan) hasEarlyDecision(request string) bool {
	return slices.ContainsFunc(p.draft.Entry.Events, func(e run.Event) bool {
		decided, ok := e.(run.Decided)
		return ok && decided.Early != "" && decided.Approval == request
	})
}

// gateCalls gates the calls that policy.Next returns. It reports whether Next may now return other calls: a sequential
// executor continues after a refused call.
func (r *round) gateCalls(ctx context.Context, p *batchPlan) (bool, error) {
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
		if p.isFull() {
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

// gate decides about one call: run it, ask people, refuse it, or find out its outcome.
func (r *round) gate(ctx context.Context, p *batchPlan, c run.Call) error {
	if r.isUnlinked(c) {
		return nil
	}
	if c.Status == run.StatusRunning && c.Claim != r.inv.Writer {
		return r.findOutcome(ctx, p, c)
	}
	if c.Status == run.StatusRunning { // our own claim, whose response was lost
		p.launch = append(p.launch, c)
		return nil
	}
	if skip, ok := policy.SkipCall(r.def, &p.draft.State, c); ok {
		return p.settle(skip)
	}
	g, err := r.verdict(ctx, p, c)
	if err != nil {
		return err
	}
	switch {
	case g.Claim != nil && p.hasEarlyDecision(g.Claim.Under):
		p.early[c.ID] = true
		return nil
	case g.Block != nil: // only this call, since blockCalls has run and another call has used up the permission
		return fmt.Errorf("gate call %s: it lacks a permission, and its round was blocked already", c.ID)
	case g.Give != nil:
		var e run.CallFinished
		given := withCheckedPatch(c, p.draft.State.SharedState(), *g.Give) // a plugin's may have one
		if e, err = r.resultEvent(ctx, c, given); err == nil {
			e.Ran = false // the tool did not run
			err = p.settle(e)
		}
	case g.Ask:
		err = r.suspend(p, c.ID, p.unknownOutcome(c))
	case g.Suspend != nil:
		err = r.suspend(p, c.ID, *g.Suspend)
	case g.Refuse != nil:
		err = p.settle(*g.Refuse)
	case c.Budget: // people approved the raise: that uses up the approval without a tool
		p.raiseDue(dueFirst)
		_, needed, failed := r.readBudgetOf(ctx, &p.draft.State, r.def, c.Tool, p.draft.Entry.Time)
		switch {
		case failed != nil:
			return failed
		case needed:
			err = p.settle(run.CallClaimed{Call: c.ID}, run.CallFinished{Call: c.ID, Content: "The budget is raised."})
		default: // others have raised it meanwhile, or its next period has begun
			err = p.settle(*policy.RefuseVoided(r.def, c))
		}
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

// verdict returns the gate's verdict, after the plugins, the approval's record if it was in doubt, and the
// precondition.
func (r *round) verdict(ctx context.Context, p *batchPlan, c run.Call) (policy.Gate, error) {
	plugins, err := r.beforeTool(ctx, p, c)
	if err != nil {
		return policy.Gate{}, err
	}
	g := policy.GateHooked(r.def, &p.draft.State, c, plugins, r.Valid, p.draft.Entry.Time)
	if name := r.def.Output.Check; name != "" && c.Breaks && g.Give != nil && !g.Give.IsError {
		problem, err := r.Hooks.Checked(ctx, name, &p.draft.State, json.RawMessage(g.Give.Content))
		if err != nil {
			return policy.Gate{}, err
		}
		if problem != "" {
			g = policy.RefuseArguments(r.def, c, policy.WrongOutput(problem), policy.Decision{})
		}
	}
	if g.Run && r.recheckApprovals {
		live, err := r.isLive(ctx, p, c, g)
		if err != nil {
			return policy.Gate{}, err
		}
		if !live {
			g = policy.Gate{Refuse: policy.RefuseVoided(r.def, c)}
		}
	}
	return r.checkPrecondition(ctx, p, c, g)
}

// isLive reports whether the recorded approval or grant for a claim still holds.
func (r *round) isLive(ctx context.Context, p *batchPlan, c run.Call, g policy.Gate) (bool, error) {
	if g.Claim != nil {
		if _, standing := p.draft.State.StandingUnder(c, *g.Claim); standing {
			return true, nil // this plan has checked it (permissions.check), and the transaction checks again
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

// start adds a call to the launch list, with a claim if it needs one (rule 9). claim is the claim under a grant of the
// tool, child the delegated run; both may be nil. A call for which there is no room stays unclaimed. It is gated again
// when another call has ended, here or in a later invocation.
func (r *round) start(p *batchPlan, c run.Call, claim *run.CallClaimed, child *run.Child) error {
	if p.unread[c.ID] || !policy.MayLaunch(r.def, r.runningTools(p), c.Tool) {
		return nil
	}
	if claim != nil || child != nil || c.NeedsClaim() || c.Status == run.StatusResuming {
		taken := run.CallClaimed{Call: c.ID}
		if claim != nil {
			taken = *claim
		}
		if child != nil {
			taken.Child = child
		}
		p.raiseDue(dueFirst)
		if err := p.draft.Add(taken); err != nil {
			return err
		}
		c, _ = p.draft.State.Call(c.ID)
	}
	p.launch = append(p.launch, c)
	return nil
}

// findOutcome handles a call that another invocation has claimed, or that timed out here and may still happen. Such a
// call is never simply run. If the tool knows the outcome, that is used. If the tool says that the call did not happen,
// another invocation's call runs again. Otherwise a person decides (rule 10, R5).
func (r *round) findOutcome(ctx context.Context, p *batchPlan, c run.Call) error {
	p.raiseDue(dueFirst)
	outcome, report, err := r.reconcile(ctx, p, c)
	switch {
	case err != nil:
		return err
	case outcome == tool.OutcomeDone:
		switch report := report.(type) {
		case run.CallSuspended: // the tool had asked for input
			if err = p.settle(run.Answered{Call: c.ID, Rerun: true, By: "reconcile"}); err == nil {
				err = r.suspend(p, c.ID, r.inputRequest(p, c, report))
			}
		case run.CallFinished:
			err = p.settle(run.Answered{Call: c.ID, Content: report.Content, Blob: report.Blob, IsError: report.IsError,
				Media: report.Media, Patch: report.Patch, Whole: report.Whole, By: "reconcile"})
		default:
			err = fmt.Errorf("reconcile call %s: got a %T, want a result or a question", c.ID, report)
		}
		if err != nil {
			return err
		}
		return r.afterTool(ctx, p, c.ID)
	case outcome == tool.OutcomeNotDone && c.Claim != r.inv.Writer:
		err := p.draft.Add(run.Answered{Call: c.ID, Rerun: true, NotRun: true, By: "reconcile"})
		if err != nil || p.draft.State.Broken != nil { // nothing is started any more
			return err
		}
		renewed, _ := p.draft.State.Call(c.ID)
		return r.gate(ctx, p, renewed)
	default:
		return r.suspend(p, c.ID, p.unknownOutcome(c))
	}
}

func (p *batchPlan) unknownOutcome(c run.Call) run.CallUnknown {
	return run.CallUnknown{
		Call: c.ID, Approval: run.ApprovalID(p.draft.State.Run, c.ID, c.Asks+1),
		Expires: p.draft.Entry.Time.Add(agent.OutcomeExpiry), Claim: c.Claim,
	}
}

// reconcile asks the tool about the outcome of a call whose claimant died. The report on a call that happened is a
// CallFinished, or a CallSuspended if the tool had asked for input.
func (r *round) reconcile(ctx context.Context, p *batchPlan, c run.Call) (tool.Outcome, run.Event, error) {
	if c.Service || c.Effect != run.EffectNonIdempotent { // an event that is sent again has the same id
		return tool.OutcomeNotDone, nil, nil
	}
	t, known := r.tool(c, &p.draft.State)
	rec, ok := t.(tool.Reconciler)
	if !known || !ok {
		return tool.OutcomeUnknown, nil, nil
	}
	limited, cancel := r.Clock.WithTimeout(ctx, r.timeout(ctx, c))
	defer cancel()
	asked := r.toolCall(c, &p.draft.State)
	answer, err := callWithDeadline(limited, r.Clock, func() (a reconciled, err error) {
		a.outcome, a.result, err = rec.Reconcile(limited, asked)
		return a, err
	})
	switch {
	case err == nil && answer.outcome == tool.OutcomeDone:
	case ctx.Err() != nil:
		return "", nil, ctx.Err()
	case err == nil && answer.outcome == tool.OutcomeNotDone:
		return answer.outcome, nil, nil
	default:
		return tool.OutcomeUnknown, nil, nil
	}
	patched := withCheckedPatch(c, p.draft.State.SharedState(), answer.result)
	report, err := r.toolEvent(ctx, t, c, patched)
	return answer.outcome, report, err
}

// reconciled is what a tool says of a call.
type reconciled struct {
	outcome tool.Outcome
	result  agent.ToolResultData
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
	case nil: // the call may still happen: only its tool's report can settle it, and it never runs again
		return r.findOutcome(ctx, p, c)
	case run.CallSuspended:
		switch {
		case e.For == run.ForAnswer:
			return p.settle(e)
		case policy.TooManyOpen(r.def, &p.draft.State):
			notAsked := policy.RefuseTooManyOpen(r.def, c)
			notAsked.Ran, notAsked.Entered = e.Ran, e.Entered
			err = p.settle(*notAsked)
		default:
			err = r.suspend(p, c.ID, r.inputRequest(p, c, e))
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

// inputRequest returns the suspension of a call whose tool asked for input, with a request that people can see.
func (r *round) inputRequest(p *batchPlan, c run.Call, e run.CallSuspended) run.CallSuspended {
	asked := policy.AskInput(r.def, &p.draft.State, c, *e.Ticket, e.Ran, p.draft.Entry.Time)
	asked.Entered = e.Entered
	return asked
}

// checkPrecondition reads a call's precondition before people are asked, and again before an approved call runs. A
// value to show is read once per invocation. A value that lets a call run is read for each entry that would claim it.
func (r *round) checkPrecondition(ctx context.Context, p *batchPlan, c run.Call, g policy.Gate) (policy.Gate, error) {
	reading, needed, err := policy.RequiredReading(r.def, &p.draft.State, c, g)
	if !needed {
		return g, nil
	}
	if g.Run && !policy.MayLaunch(r.def, r.runningTools(p), c.Tool) {
		p.unread[c.ID] = true
		return g, nil
	}
	once := fmt.Sprintf("%s %d", c.ID, c.Asks)
	k := r.preconditions[once]
	if k == nil || g.Run {
		if err == nil {
			k, err = r.readPrecondition(ctx, p, c, reading)
		}
		if ended := ctx.Err(); ended != nil { // the invocation's time is up; the next one reads
			return g, ended
		}
		if err != nil {
			return policy.Gate{Refuse: policy.RefuseUnreadable(r.def, c, err), Rule: g.Rule}, nil
		}
	}
	g = policy.GateChecked(r.def, &p.draft.State, c, g, k, p.draft.Entry.Time)
	if g.Suspend != nil {
		r.preconditions[once] = k
	}
	return g, nil
}

// readPrecondition calls the tool of a precondition, with that tool's retries. The model did not make this call, so the
// journal contains only what people are shown.
func (r *round) readPrecondition(
	ctx context.Context, p *batchPlan, c run.Call, reading policy.Reading,
) (*run.Checked, error) {
	reader := run.Call{ID: c.ID, Tool: reading.Tool.Name, Name: reading.Tool.ModelName(), Input: reading.Args,
		Effect: reading.Tool.Effect}
	t, known := r.tool(reader, &p.draft.State)
	if !known {
		return nil, fmt.Errorf("the tool %s is not part of this deployment", reader.Tool)
	}
	entered := r.toolCall(reader, &p.draft.State)
	nth := fmt.Sprintf("precondition-%d", c.Asks) // unique per request to people
	entered.ID, entered.Key = c.ID+"-"+nth, entered.Key+"/"+nth
	a := r.callWithRetries(ctx, t, reader, entered)
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
