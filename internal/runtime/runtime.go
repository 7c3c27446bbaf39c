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

// Ports is everything that use cases need from outside. Ports without a remark about nil are required.
type Ports struct {
	Table   store.Table
	Journal *store.Journal
	Blobs   store.Blobs
	Uploads store.Uploads // for the API's clients; nil = the API accepts uploads itself, or not at all
	Model   Asker
	Count   TokenCounter // nil = requests are estimated
	Tools   ToolSource
	Agents  agent.Agents // agents to which others may delegate; nil = none
	Remotes Remotes      // for remote tools; nil = none can be called
	// checks arguments, as schema.Validate does; like Model and Tools, may be nil where no call is gated
	Valid  agent.Validator
	Schema Schemas // checks outputs, as schema.Fits does; may be nil where no model is called
	Waiter Waiter
	Clock  clock.Clock
	IDs    IDs
	// nil = there is no bus: services cannot be called, and no end of a run is announced
	Emit      Emitter
	Publish   Emitter                      // for events about runs and requests; nil = none are published
	Functions Functions                    // functions behind tools; nil = none can be invoked
	Callbacks Callbacks                    // nil = answers arrive only by events and through the API
	Notify    Notify                       // called for every run that waits; nil = nobody is notified
	Warn      func(what string, err error) // called for errors that affect no run; nil = dropped
	Sink      EventSink                    // nil = none
	Trace     Tracer                       // nil = runs are not traced
	// the code that agents name besides tools; the zero Set contains the built-in code
	Hooks hook.Set
	// SharesRuns says that other processes carry on the same runs. Calls that need code this process lacks are then
	// left to them (ErrOtherProcess) instead of failing.
	SharesRuns bool
	// Trusts is called when a run uses the tools of an MCP server that is not in mcp.lock, which only a laptop allows. If
	// it is nil, all tools of such a server are disabled.
	Trusts func(agent, server string)
	// TenantBudget is what all runs of a tenant may use together. The zero value is no limit.
	TenantBudget agent.PeriodBudget
	Index        *ToolIndex // for agents that compare tools by embeddings; nil = no texts are embedded
}

func (p Ports) within(ctx context.Context, s *run.AgentState) context.Context {
	if p.Trace == nil {
		return ctx
	}
	return p.Trace.Within(ctx, s)
}

// ErrModelBusy says that every model of the chain failed after all its retries, in a way that may pass. Nothing was
// committed.
var ErrModelBusy = errors.New("the model is busy")

// ErrContention says that this attempt gives up because its entry lost its sequence too often. A later one may succeed.
var ErrContention = errors.New("the run is written to by others")

// ErrOtherProcess says that this process cannot carry on a run, but another one with more code can. Nothing that the
// run waits for was used up.
var ErrOtherProcess = errors.New("another process has to carry the run on")

// maxReloads limits how often one invocation plans again after a conflict. maxUncertain limits how often it does so
// after an error that leaves open whether the write happened.
const (
	maxReloads   = 40
	maxUncertain = 3
)

// commit appends the draft in one transaction with the requests to people that it opens, closes and uses up, and the
// operations in beside. Then it calls the sink. The end of a run does not close its requests: closeRequests does so
// afterwards, since there can be too many for one transaction.
func (p Ports) commit(ctx context.Context, d *run.Draft, def *agent.Definition, beside ...store.Op) error {
	guards, err := p.requestOps(ctx, d, def)
	if err != nil {
		return err
	}
	if beside, err = addOpenRequests(d, beside); err != nil {
		return err
	}
	spent, err := p.spendOps(ctx, d, def)
	if err != nil {
		return err
	}
	guards = append(append(guards, beside...), spent...)
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
		d.SetSnapshot(nil) // the snapshot can wait for a smaller entry
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

// errDrainedFirst says that a separate entry has drained a full inbox or closed requests. The run has to be read again.
var errDrainedFirst = errors.New("a separate entry was committed first")

// commitAlone commits a draft that has no room for more, or has to be committed before anything else. After a
// successful commit it returns errDrainedFirst.
func (p Ports) commitAlone(ctx context.Context, d *run.Draft, def *agent.Definition) error {
	if err := p.commit(ctx, d, def); err != nil {
		return err
	}
	return errDrainedFirst
}

// withReloads calls once until it succeeds. After a conflict, and after an error that leaves open whether the write
// happened, once has to read the run again and plan anew (rule 2).
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
		errCleanupCode, ErrCleanupFailed, ErrOtherProcess, ErrModelBusy, approval.ErrNotLinked}
	return errors.As(err, &forbidden) || slices.ContainsFunc(final, func(e error) bool { return errors.Is(err, e) })
}

// maxRequestWrites is how many requests one entry may write. The rest of the store.MaxOps operations in a transaction
// is for the entry itself, the view, the inbox and other records.
const maxRequestWrites = store.MaxOps - 20

// maxFacts is how many bytes of facts leave an entry room for the largest one more.
const maxFacts = 128 << 10

// isFull reports whether an entry writes as many requests as it may, counting the most that requestOps may write, or
// has more than maxFacts. Anything else has to wait for the next entry.
func isFull(d *run.Draft) bool {
	if d.Size() > maxFacts {
		return true
	}
	n := 0
	for _, e := range d.Entry.Events {
		switch e := e.(type) {
		case run.CallSuspended:
			if e.For != run.ForAnswer {
				n++
			}
			if e.Why != "" { // the approval that becomes void
				n++
			}
		case run.LateSuspended: // and the request about the call's outcome
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

// addWhileRoom adds facts that close requests until the entry is full. The next entry finds the remaining facts again.
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

// requestOps returns the writes to requests that belong to the draft's transaction: a new request for every call it
// suspends (A19), an end for every overtaken one, and the use of every approval it claims under (A6).
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
		if c.Wait.For == run.ForAnswer { // no request to people exists for this wait
			continue
		}
		if as, ended := overtakenStatus(c, d.Entry.Events); ended {
			ops = append(ops, approval.CloseOp(d.Before.Tenant, *c.Wait, as))
		}
	}
	tools, err := p.toolRequestOps(d, def)
	if err != nil {
		return nil, err
	}
	return mergeOps(slices.Concat(ops, tools, claimOps(def, d))), nil
}

func askedCalls(d *run.Draft) []run.Call {
	return slices.DeleteFunc(d.State.Waits(), func(c run.Call) bool {
		was, _ := d.Before.Call(c.ID)
		return c.Wait.For == run.ForAnswer || was.Wait != nil && was.Wait.Approval == c.Wait.Approval
	})
}

// newCallRequest returns the request of a suspended call, with the tool's description of the call.
func (p Ports) newCallRequest(def *agent.Definition, s *run.AgentState, c run.Call) approval.Approval {
	a := approval.NewCallRequest(def, s, c)
	a.Described = p.describeCall(def, c.Tool, a.Args)
	return a
}

// describeCall returns the tool's one-sentence description of a call, with secrets masked; "" = none. The sentence is
// stored with the request, so that showing the request needs no code of the tool.
func (p Ports) describeCall(def *agent.Definition, name string, args json.RawMessage) string {
	t, _ := def.Tool(name)
	args = json.RawMessage(mask.JSON(args, t.Schema))
	if t.Describe != "" {
		text, err := t.DescribeCall(args)
		if err != nil { // an argument is missing, so people are shown the call itself
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

// earlyDecisionOps returns the writes of requests that kept decisions settle in this draft. An existing request is
// decided unless somebody was first. A request that the draft creates is written as decided.
func (p Ports) earlyDecisionOps(ctx context.Context, d *run.Draft, def *agent.Definition) ([]store.Op, error) {
	var ops []store.Op
	for _, e := range d.Entry.Events {
		fact, ok := e.(run.Decided)
		if !ok || fact.Early == "" {
			continue
		}
		c, ok := d.Before.Call(fact.Call)
		if !ok {
			return nil, fmt.Errorf("decide approval %s early: the same entry adds call %s", fact.Approval, fact.Call)
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

// voidOps returns the writes that void approvals of calls about which people are asked again, because the policy (A17)
// or a precondition has changed, or too few people have approved. It covers approvals from before the draft and from
// the draft itself. Approvals that a claim has used stay.
func (p Ports) voidOps(ctx context.Context, d *run.Draft) ([]store.Op, error) {
	var ops []store.Op
	for _, e := range d.Entry.Events {
		suspended, ok := e.(run.CallSuspended)
		if !ok || suspended.Why == "" {
			continue
		}
		was, _ := d.Before.Call(suspended.Call)
		id := ""
		if g := was.Grant; g != nil && !g.Tool && !g.Consumed {
			id = g.Approval
		}
		for _, e := range d.Entry.Events { // the request of a kept decision is written already
			decided, ok := e.(run.Decided)
			if ok && decided.Call == suspended.Call && decided.Action == run.ActionApprove && decided.Early == "" {
				id = decided.Approval
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

// overtakenStatus returns how the request of a suspended call ends if the events settle the call by anything but a
// decision on it.
func overtakenStatus(c run.Call, events []run.Event) (approval.Status, bool) {
	// the request records the decision already, even if a late fact comes first
	if slices.ContainsFunc(events, func(e run.Event) bool { return isDecisionOn(e, c) }) {
		return "", false
	}
	for _, e := range events {
		voided := false
		switch e := e.(type) {
		case run.Answered: // by a service or a delegated run, so the request is not needed any more
			voided = e.Call == c.ID && e.Approval == ""
		case run.LateResult:
			voided = e.Call == c.ID && c.TakesLateResult()
		case run.LateSuspended:
			voided = e.Call == c.ID && c.Wait.For == run.ForOutcome && c.Wait.Claim == e.Writer
		case run.CallCancelled:
			if e.Call == c.ID && e.Reason != run.WhyDenied {
				return approval.Expired, true
			}
			voided = e.Call == c.ID // the call's tool was denied
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
		return e.Call == c.ID && e.Approval == c.Wait.Approval
	default:
		return false
	}
}

// addExpiries cancels suspended calls and closes tool requests that have expired, until the entry is full. An expiry
// never approves (A14).
func addExpiries(d *run.Draft) error {
	if err := addWhileRoom(d, policy.ExpireRequests(&d.State, d.Entry.Time)...); err != nil {
		return err
	}
	for _, c := range d.State.Waits() {
		if d.Entry.Time.Before(c.Wait.Expires) {
			continue
		}
		e := run.CallCancelled{Call: c.ID, Reason: run.WhyExpired, Content: agent.TextExpired}
		switch c.Wait.For {
		case run.ForOutcome:
			e.Reason, e.Content = run.WhyOutcomeUnknown, withEditNote(c, agent.TextOutcomeExpired)
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

// draft starts the entry of one attempt. It resumes a parked run and drains exactly the inputs that were read (rule
// 16). An inbox that is too large to leave room for the attempt is committed first, in an entry of its own.
func (p Ports) draft(
	ctx context.Context, i Invocation, l store.Loaded, def *agent.Definition,
) (*run.Draft, error) {
	d := run.NewDraft(l.State, i.Writer, p.Clock.Now())
	if s := &l.State; s.Status == run.RunWaiting { // the newest entry is the one that parked it
		resumed := run.Resumed{Waited: max(0, d.Entry.Time.Sub(s.UpdatedAt).Milliseconds())}
		if err := d.Add(resumed); err != nil {
			return nil, err
		}
	}
	for _, fact := range l.Inbox {
		if err := d.Add(fact); err != nil {
			return nil, err
		}
		if in, isInput := fact.(run.InputReceived); isInput && !in.Starts {
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

// addEndAfterCleanup lets the permission backend clean up and then adds the run's end to the draft. If the cleanup
// fails, a run that would have ended well fails.
func (p Ports) addEndAfterCleanup(ctx context.Context, def *agent.Definition, d *run.Draft, fin run.Finished) error {
	if backend, ok := p.Hooks.Backends[def.Permission.Backend]; ok && def.Permission.Backend != "" {
		if err := hook.CallSafely(func() error { return backend.Cleanup(ctx, contextOf(&d.State)) }); err != nil {
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
