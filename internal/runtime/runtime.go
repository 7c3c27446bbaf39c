package runtime

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/hook"
	"github.com/countersign/countersign/internal/people/mask"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/tool"
)

// Ports is everything a use case needs of the world. Those of which nothing is said about nil are required.
type Ports struct {
	Table   store.Table
	Journal *store.Journal
	Blobs   store.Blobs
	Uploads store.Uploads // for the API's clients; nil = the API takes uploads itself, or not at all
	Model   Asker
	Count   TokenCounter // nil = requests are estimated
	Tools   ToolSource
	Agents  agent.Agents    // that others may ask; nil = none can be asked
	Remotes Remotes         // of tools that are somewhere else; nil = none can be called
	Valid   agent.Validator // of arguments, as schema.Validate; like Model and Tools, nil where no call is gated
	Schema  Schemas         // of outputs, as schema.Fits; nil where no model is asked
	Waiter  Waiter
	Clock   clock.Clock
	IDs     IDs
	// nil = there is no bus: services cannot be asked, and nobody hears that a run has ended
	Emit      Emitter
	Publish   Emitter                      // of what happens to runs and requests; nil = nobody is told
	Functions Functions                    // that tools are; nil = none can be invoked
	Callbacks Callbacks                    // nil = answers come by events and by the API alone
	Notify    Notify                       // is told of every run that waits; nil = nobody is
	Warn      func(what string, err error) // is told of what went wrong and hurts no run; nil = nobody is
	Sink      EventSink                    // nil = nobody listens
	Trace     Tracer                       // nil = runs are not traced
	Hooks     hook.Set                     // the code that agents name beside tools; the zero Set has what is built in
	// LeavesUnknown says that other processes carry the same runs on: what this one knows nothing of is left to them
	// (ErrElsewhere), in place of being failed.
	LeavesUnknown bool
	// Trusts is told that a run uses the tools of an MCP server that is not in mcp.lock, as only a laptop may. Nil =
	// all tools of such a server are disabled.
	Trusts func(agent, server string)
	// TenantBudget is what all runs of a tenant may use. The zero value is no limit.
	TenantBudget agent.PeriodBudget
	Index        *ToolIndex // for agents whose tools are compared by a model; nil = nobody embeds texts
}

func (p Ports) within(ctx context.Context, s *run.AgentState) context.Context {
	if p.Trace == nil {
		return ctx
	}
	return p.Trace.Within(ctx, s)
}

// ErrModelBusy says that every model of the chain failed in a way that may pass, as often as each may be asked. Nothing
// was committed.
var ErrModelBusy = errors.New("the model is busy")

// ErrContention says that an entry lost its sequence so often that this attempt gives up; a later one will not.
var ErrContention = errors.New("the run is written to by others")

// ErrElsewhere says that a run cannot be carried on here and can be where more is known: nothing of what it waits for
// was used up.
var ErrElsewhere = errors.New("another process has to carry the run on")

// maxReloads bounds how often one invocation plans anew after a conflict; maxUncertain, how often after an error that
// leaves open whether the write happened.
const (
	maxReloads   = 40
	maxUncertain = 3
)

// commit appends the draft, with the requests to people that it opens, closes and uses up, and whatever is beside it;
// and tells the sink. An end closes no request: that is owed behind it (closeRequests), however many there are.
func (p Ports) commit(ctx context.Context, d *run.Draft, def *agent.Definition, beside ...store.Op) error {
	guards, err := p.requestOps(ctx, d, def)
	if err != nil {
		return err
	}
	if beside, err = addOwedRequests(d, beside); err != nil {
		return err
	}
	guards = append(append(guards, beside...), p.spendOps(d, def)...)
	if err := d.Snap(); err != nil {
		return err
	}
	var unsent []store.Op
	for {
		if unsent, err = p.outbox(d, def); err != nil {
			return err
		}
		err = p.Journal.Append(ctx, d.Before, d, append(slices.Clip(guards), unsent...)...)
		if !errors.Is(err, store.ErrTooLarge) || d.Entry.Snapshot == nil {
			break
		}
		d.SetSnapshot(nil) // it can wait for a smaller entry
	}
	if err != nil {
		return err
	}
	if p.Sink != nil {
		after := d.Committed()
		notifySink(ctx, p.Sink, d.Entry, &after)
	}
	for _, op := range unsent { // the sweep sends those that fail here
		sending, cancel := p.Clock.WithTimeout(ctx, publishTime)
		if err := p.send(sending, op.Item); err != nil {
			p.warn("publish events", err)
		}
		cancel()
	}
	return nil
}

// errDrainedFirst says that an entry of its own has drained a full inbox or closed requests, so the run must be read
// again.
var errDrainedFirst = errors.New("what stands in an entry of its own was committed first")

// commitAlone commits a draft that has no room for anything else, or has to be on record before anything else. Its
// error is errDrainedFirst where that went well.
func (p Ports) commitAlone(ctx context.Context, d *run.Draft, def *agent.Definition) error {
	if err := p.commit(ctx, d, def); err != nil {
		return err
	}
	return errDrainedFirst
}

// withReloads calls once until it succeeds. After a conflict, and after an error that leaves open whether the write
// happened, the run is to be read again and planned anew (rule 2).
func withReloads[T any](ctx context.Context, once func() (T, error)) (T, error) {
	for conflicts, uncertain := 0, 0; ; {
		v, err := once()
		switch {
		case err == nil:
			return v, nil
		case errors.Is(err, errDrainedFirst):
		case isConflict(err):
			if conflicts++; conflicts > maxReloads {
				return *new(T), fmt.Errorf("%w: %w", ErrContention, err)
			}
		default:
			if uncertain++; uncertain > maxUncertain || ctx.Err() != nil || isFinal(err) {
				return *new(T), err
			}
		}
	}
}

// isConflict reports whether a condition of an entry failed: nothing was written, and the plan is void.
func isConflict(err error) bool {
	return errors.Is(err, store.ErrSequenceTaken) || errors.Is(err, store.ErrInboxMoved) ||
		errors.Is(err, store.ErrGuardFailed)
}

// isFinal reports whether the same attempt would fail the same way again.
func isFinal(err error) bool {
	var forbidden *run.ApplyError
	final := []error{store.ErrTooLarge, store.ErrInvalid, store.ErrNoRun, store.ErrNoBlob, store.ErrDamaged,
		errCleanupCode, ErrCleanupFailed, ErrElsewhere, ErrModelBusy, approval.ErrNotLinked}
	return errors.As(err, &forbidden) || slices.ContainsFunc(final, func(e error) bool { return errors.Is(err, e) })
}

// maxRequestWrites is how many requests one entry writes. A transaction has at most store.MaxOps operations, some of
// which are the entry's own, the view's, the inbox's and those of records beside it.
const maxRequestWrites = store.MaxOps - 20

// isFull reports whether an entry writes as many requests as one may, by what requestOps writes at most. What else is
// due is for the entry behind it.
func isFull(d *run.Draft) bool {
	n := 0
	for _, e := range d.Entry.Events {
		switch e := e.(type) {
		case run.CallSuspended:
			if e.For != run.ForAnswer {
				n++
			}
			if e.Why != "" { // the approval that is void
				n++
			}
		case run.LateSuspended: // and the request that asked what became of the call
			n += 2
		case run.CallUnknown, run.CallClaimed, run.CallCancelled, run.CallPermitted, run.LateResult, run.PermissionRequested,
			run.PermissionAnswered:
			n++
		case run.Answered:
			if e.Used != nil {
				n++
			}
		case run.Decided:
			if e.Early != "" {
				n++
			}
		}
	}
	return n >= maxRequestWrites
}

// addWhileRoom adds facts that close requests, each by itself, as far as the entry has room for them. The next entry
// finds those that are left.
func addWhileRoom(d *run.Draft, facts ...run.Event) error {
	for _, e := range facts {
		if isFull(d) {
			return nil
		}
		if err := d.Add(e); err != nil {
			return err
		}
	}
	return nil
}

// requestOps are the writes to requests that belong into the draft's transaction: a new one for every call it suspends
// (A19), an end for every one it overtakes, and the use of every approval it claims under (A6).
func (p Ports) requestOps(ctx context.Context, d *run.Draft, def *agent.Definition) ([]store.Op, error) {
	var ops []store.Op
	for _, c := range askedCalls(d) {
		op, err := approval.CreateOp(p.newCallRequest(def, &d.State, c))
		if err != nil {
			return nil, err
		}
		ops = append(ops, op)
	}
	early, err := p.earlyDecisionOps(ctx, d, def)
	if err != nil {
		return nil, err
	}
	void, err := p.voidOps(ctx, d)
	if err != nil {
		return nil, err
	}
	ops = append(append(ops, early...), void...)
	for _, c := range d.Before.Waits() {
		if c.Wait.For == run.ForAnswer { // nobody was asked by a request of its own
			continue
		}
		if as, ended := overtakenStatus(c, d.Entry.Events); ended {
			ops = append(ops, approval.CloseOp(d.Before.Tenant, *c.Wait, as))
		}
	}
	about, err := p.toolRequestOps(d, def)
	if err != nil {
		return nil, err
	}
	return mergeOps(slices.Concat(ops, about, claimOps(def, d))), nil
}

func askedCalls(d *run.Draft) []run.Call {
	return slices.DeleteFunc(d.State.Waits(), func(c run.Call) bool {
		was, _ := d.Before.Call(c.ID)
		return c.Wait.For == run.ForAnswer || was.Wait != nil && was.Wait.Approval == c.Wait.Approval
	})
}

// newCallRequest is the request of a suspended call, with the tool's sentence about it.
func (p Ports) newCallRequest(def *agent.Definition, s *run.AgentState, c run.Call) approval.Approval {
	a := approval.NewCallRequest(def, s, c)
	a.Described = p.describeCall(def, c.Tool, a.Args)
	return a
}

// describeCall returns what the tool says in one sentence of a call, with secrets masked; "" if it says nothing. The
// sentence is stored with the request: who shows it need not have the tool's code.
func (p Ports) describeCall(def *agent.Definition, name string, args json.RawMessage) string {
	t, _ := def.Tool(name)
	args = json.RawMessage(mask.JSON(args, t.Schema))
	if t.Describe != "" {
		text, err := t.DescribeCall(args)
		if err != nil { // an argument is missing: people are shown the call
			return ""
		}
		return agent.Bounded(strings.TrimSpace(text))
	}
	if t.Kind != agent.KindInternal || p.Tools == nil {
		return ""
	}
	if linked, ok := p.Tools.Lookup(name); ok {
		return tool.Describe(linked, args)
	}
	return ""
}

// earlyDecisionOps write the requests that kept decisions settle in this draft. A request that exists is decided unless
// somebody was first; one that the draft creates is written as decided.
func (p Ports) earlyDecisionOps(ctx context.Context, d *run.Draft, def *agent.Definition) ([]store.Op, error) {
	var ops []store.Op
	for _, e := range d.Entry.Events {
		fact, ok := e.(run.Decided)
		if !ok || fact.Early == "" {
			continue
		}
		c, ok := d.Before.Call(fact.Call)
		if !ok {
			return nil, fmt.Errorf("settle approval %s: call %s is of this very entry", fact.Approval, fact.Call)
		}
		var op store.Op
		var err error
		if c.Wait == nil || c.Wait.Approval != fact.Approval {
			op, err = approval.CreateOp(p.newCallRequest(def, &d.State, suspendedCall(d, c)).WithDecision(fact, d.Entry.Time))
		} else {
			var asked approval.Approval
			if asked, err = approval.Get(ctx, p.Table, d.Before.Tenant, fact.Approval); err == nil {
				op, err = approval.DecideOp(asked.WithDecision(fact, d.Entry.Time), d.Entry.Time)
			}
		}
		if err != nil {
			return nil, err
		}
		ops = append(ops, op)
	}
	return ops, nil
}

// voidOps void the approvals of calls that are asked about again because the policy (A17) or a precondition has
// changed: those on which they were approved before the draft or in it. Approvals that a claim has used stay.
func (p Ports) voidOps(ctx context.Context, d *run.Draft) ([]store.Op, error) {
	var ops []store.Op
	for _, e := range d.Entry.Events {
		again, ok := e.(run.CallSuspended)
		if !ok || again.Why == "" {
			continue
		}
		was, _ := d.Before.Call(again.Call)
		id := ""
		if g := was.Grant; g != nil && !g.Tool && !g.Consumed {
			id = g.Approval
		}
		for _, e := range d.Entry.Events { // of a decision that was kept, the request is being written already
			said, ok := e.(run.Decided)
			if ok && said.Call == again.Call && said.Action == run.ActionApprove && said.Early == "" {
				id = said.Approval
				break
			}
		}
		if id == "" {
			continue
		}
		a, err := approval.Get(ctx, p.Table, d.Before.Tenant, id)
		if err != nil {
			return nil, err
		}
		op, err := approval.VoidOp(a)
		if err != nil {
			return nil, err
		}
		ops = append(ops, op)
	}
	return ops, nil
}

func suspendedCall(d *run.Draft, c run.Call) run.Call {
	for _, e := range d.Entry.Events {
		if late, ok := e.(run.LateSuspended); ok && late.Call == c.ID {
			late.For, late.Approval = run.ForInput, run.ApprovalID(d.State.Run, c.ID, c.Asks+1)
			e = late.CallSuspended
		}
		if e, ok := e.(run.CallSuspended); ok && e.Call == c.ID {
			c.Ticket = e.Ticket
			c.Wait = &run.Wait{For: cmp.Or(e.For, run.ForApproval), Approval: e.Approval, Digest: e.Digest, Since: d.Entry.Time,
				Expires: e.Expires, Policy: e.Policy}
		}
	}
	return c
}

// overtakenStatus is how the request of a suspended call ends if the events settle the call otherwise than by a
// decision on it.
func overtakenStatus(c run.Call, events []run.Event) (approval.Status, bool) {
	// also behind a late word: the request says so already
	if slices.ContainsFunc(events, func(e run.Event) bool { return isDecisionOn(e, c) }) {
		return "", false
	}
	for _, e := range events {
		voided := false
		switch e := e.(type) {
		case run.Answered: // the run that the call is has ended: nobody is asked about it any more
			voided = e.Call == c.ID && e.Used != nil
		case run.LateResult:
			voided = e.Call == c.ID && c.Wait.For == run.ForOutcome
		case run.LateSuspended:
			voided = e.Call == c.ID && c.Wait.For == run.ForOutcome && c.Wait.Claim == e.Writer
		case run.CallCancelled:
			if e.Call == c.ID && e.Reason != run.WhyDenied {
				return approval.Expired, true
			}
			voided = e.Call == c.ID // it is denied on its tool
		case run.CallPermitted:
			voided = e.Call == c.ID
		}
		if voided {
			return approval.Voided, true
		}
	}
	return "", false
}

// isDecisionOn reports whether the event is a person's decision on the request that c waits for.
func isDecisionOn(e run.Event, c run.Call) bool {
	switch e := e.(type) {
	case run.Decided:
		return e.Call == c.ID && e.Approval == c.Wait.Approval
	case run.Answered:
		return e.Call == c.ID && e.Used == nil && (e.Approval == "" || e.Approval == c.Wait.Approval)
	default:
		return false
	}
}

// addExpiries cancels the suspended calls and closes the tool requests that have expired, as far as the entry has room.
// An expiry never approves (A14).
func addExpiries(d *run.Draft) error {
	if err := addWhileRoom(d, policy.Overdue(&d.State, d.Entry.Time)...); err != nil {
		return err
	}
	for _, c := range d.State.Waits() {
		if d.Entry.Time.Before(c.Wait.Expires) {
			continue
		}
		e := run.CallCancelled{Call: c.ID, Reason: run.WhyExpired, Content: agent.TextExpired}
		switch c.Wait.For {
		case run.ForOutcome:
			e.Reason, e.Content = run.WhyOutcomeUnknown, agent.TextOutcomeExpired
		case run.ForInput:
			e.Content = agent.TextInputExpired
		case run.ForAnswer:
			e.Content = agent.TextAnswerExpired
		}
		if err := addWhileRoom(d, e); err != nil {
			return err
		}
	}
	return nil
}

// draft starts the entry of one attempt: it resumes a parked run and drains exactly the inputs that were read (rule
// 16). An inbox that is too large for the entry that this attempt is about is committed first, alone.
func (p Ports) draft(
	ctx context.Context, i Invocation, l store.Loaded, def *agent.Definition,
) (*run.Draft, error) {
	d := run.NewDraft(l.State, i.Writer, p.Clock.Now())
	if s := &l.State; s.Status == run.RunWaiting { // the entry that parked it is its newest
		resumed := run.Resumed{Waited: max(0, d.Entry.Time.Sub(s.UpdatedAt).Milliseconds())}
		if err := d.Add(resumed); err != nil {
			return nil, err
		}
	}
	for _, fact := range l.Inbox {
		if err := d.Add(fact); err != nil {
			return nil, err
		}
		if in, said := fact.(run.InputReceived); said && !in.Starts {
			d.Mark(run.CheckpointUserMessage)
		}
	}
	if l.Full {
		return nil, p.commitAlone(ctx, d, def)
	}
	return d, nil
}

// addPark ends the draft as a wait. A parked run is a finished attempt.
func addPark(d *run.Draft) error {
	if err := d.Add(run.Parked{Expires: d.State.EarliestExpiry()}); err != nil {
		return err
	}
	d.Mark(run.CheckpointRunFinished)
	return nil
}

// addEndAfterCleanup adds the run's end to the draft after the permission backend has cleaned up. A run that would have
// ended well fails if the cleanup does.
func (p Ports) addEndAfterCleanup(ctx context.Context, def *agent.Definition, d *run.Draft, fin run.Finished) error {
	if backend, ok := p.Hooks.Backends[def.Permission.Backend]; ok && def.Permission.Backend != "" {
		if err := backend.Cleanup(ctx, contextOf(&d.State)); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			why := "clean up by permission backend " + def.Permission.Backend + ": " + agent.Bounded(err.Error())
			if fin.Error != nil {
				fin.Error = &run.RunError{Code: fin.Error.Code, Message: fin.Error.Message + "; " + why}
			} else {
				requests := fin.Requests
				fin = policy.Fail(run.CodePermissionFailed, why)
				fin.Requests = requests
			}
		}
	}
	return addEnd(d, fin)
}

func addEnd(d *run.Draft, fin run.Finished) error {
	d.Mark(run.CheckpointRunFinished)
	return d.Add(fin)
}
