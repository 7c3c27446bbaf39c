package approval

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// Desk records decisions. All fields are required but CheckLinked, Log and those that begin with On. Safe for
// concurrent use.
//
// Decide takes a decision through five steps: authorize, validate, tally, commit, notify.
type Desk struct {
	Table        store.Table
	Journal      *store.Journal
	Clock        clock.Clock
	Definitions  func(ctx context.Context, tenant, digest string) (*agent.Definition, error)
	ValidateArgs agent.Validator
	// completes the parked run's task token, if it has one
	ResumeRun func(ctx context.Context, tenant, run string) error

	// CheckLinked refuses, with ErrNotLinked, decisions that this process could not carry out. Nil = every decision is
	// accepted, because another process carries it out.
	CheckLinked func(ctx context.Context, a Approval) error
	// OnDecided is called when a decision is committed, before the run is resumed. Nil = not called.
	OnDecided func(ctx context.Context, a Approval)
	// OnChange is called when people have changed a request, by a decision or a remark, and when a policy change has
	// voided it; after the decision that a run waits for, once the run was resumed. It may be slow. Nil = not called.
	OnChange func(ctx context.Context, a Approval)
	// Log receives refusals and revocations of standing grants. Nil = nothing is logged.
	Log *slog.Logger
}

// DecisionInput is one person's decision on a request. By and Via come from what authenticated the person, never from
// what the person sent.
type DecisionInput struct {
	Tenant, ID string
	Run, Call  string // without ID, what the decision is on: see PrepareDecision, and findRequest
	Action     Action
	Tool       string          // of KindTools: the tool to decide, by either name; "" = every undecided tool
	Args       json.RawMessage // Edit
	Result     json.RawMessage // Approve, of KindInput: the answer; nil and null mean true
	Content    string          // ReportResult and ReportError: what came of the call
	Note       string
	Digest     string // of the action that the person was shown; another one is a *StaleError; "" = see Decide
	By         policy.Principal
	Via        Via
	// Key is an idempotency key in the run's inbox; empty = none; reuse for another decision is store.ErrOtherInput. Of an
	// outcome without ID, the same key is the same answer to the same request.
	Key   string
	Grant *agent.GrantBounds // Approve and Edit: bounds of the standing grant; nil = the policy's own
	// Check, if not nil, has the decision authorized, validated and tallied only, as if it were confirmed: nothing is
	// recorded, and the Approval is none.
	Check Checked

	// Confirm checks what the policy wants besides: that the person has signed in, or the typed code, which it uses up.
	// Its error refuses the decision. It is called right before the decision is committed. Nil = there is nothing.
	Confirm func(ctx context.Context, by run.Confirm) error
}

// Checked holds requests, by id, as the decisions that were checked with it would leave them.
type Checked map[string]Approval

// DecisionStep makes a decision that was prepared, or checks it; see DecisionInput.Check.
type DecisionStep func(ctx context.Context, check Checked) error

// attempt is a decision on its way through the desk.
type attempt struct {
	*Desk
	DecisionInput
	checked run.Confirm // what Confirm was called for

	// read anew if somebody else writes the request meanwhile
	now      time.Time
	request  Approval
	record   Decision          // the decision, as the request will keep it
	approved bool              // of KindOutcome: the call was approved before it ran
	loaded   store.Loaded      // the request's run; zero = not loaded
	def      *agent.Definition // the run's; see loadCall
	call     run.Call          // that the request is about; zero = not loaded

	// made by tally
	decided Approval       // the request with the decision
	fact    *run.Decided   // for the run; nil = the quorum takes more people
	grants  decisionGrants // what the run says of the standing grants that the decision gives

	unsure bool // the write has failed, and may have happened
}

// maxRaces is how often a decision is retried because somebody else wrote the request meanwhile. It is far above the
// number of people of any quorum.
const maxRaces = 64

// Decide records a decision once and resumes the run. An approval that does not complete the quorum is recorded alone:
// the request stays pending, and the run is not resumed. The same decision again returns the same result (see
// Approval.IsRepeated) and resumes the run again; a different decision is a *DecidedError. The outcome of a call may be
// reported without naming the request: see findRequest.
//
// An error means that nothing was changed, with two exceptions. After an error of the table the outcome may be unknown;
// the caller may repeat Decide. After a *PolicyError the run requests approval again.
func (d *Desk) Decide(ctx context.Context, r DecisionInput) (_ Approval, err error) {
	t := attempt{Desk: d, DecisionInput: r}
	defer func() { d.logRefusal(err, r.By, "tenant", r.Tenant, "approval", t.ID, "via", string(r.Via)) }()
	var uncertain error // of a write that may have happened, or of a run that has ended: the request is read again
	for races := 0; ; races++ {
		if err = t.read(ctx); err == nil {
			err = cmp.Or(t.authorize(), t.validate())
		}
		ended, same := t.findRepeated()
		switch {
		case err != nil:
		case ended:
			if same || t.request.Status == Voided { // the process that decided or voided it may have crashed before this
				err = d.resumeRun(ctx, t.request)
			}
			if !same {
				err = cmp.Or(err, error(&DecidedError{Approval: t.request}))
			}
		case d.CheckLinked != nil:
			err = d.CheckLinked(ctx, t.request)
		}
		switch {
		case err != nil:
			return Approval{}, errors.Join(uncertain, err)
		case same:
			t.request.repeated = ended || uncertain == nil
			return t.request, nil
		case errors.Is(uncertain, ErrFinished):
			open := []OpenRequest{{ID: t.ID, Since: t.request.RequestedAt}}
			uncertain = errors.Join(ErrFinished, CloseRequests(ctx, d.Table, t.Tenant, open))
		}
		if uncertain != nil {
			return Approval{}, fmt.Errorf("decide approval %s: %w", t.ID, uncertain)
		}
		if err = t.tally(ctx); err == nil && t.Check != nil {
			t.Check[t.ID] = t.decided
			return Approval{}, nil
		}
		if err == nil && t.record.Confirmed != t.checked {
			err, t.checked = t.Confirm(ctx, t.record.Confirmed), t.record.Confirmed
		}
		if err == nil {
			err = t.commit(ctx)
		}
		switch {
		case err == nil:
			return t.notify(ctx)
		case errors.Is(err, ErrFinished), t.unsure && !lostRace(err): // another decision may have ended the run
			uncertain = err
		case !t.unsure:
			return Approval{}, err
		case races == maxRaces:
			return Approval{}, fmt.Errorf("decide approval %s: %w", t.ID, err)
		}
	}
}

// read reads the request that the decision is on, and of its run what authorizes the decision. It makes the record of
// the decision. An edit to equal arguments is an approval.
func (t *attempt) read(ctx context.Context) (err error) {
	t.now, t.loaded, t.call = t.Clock.Now().UTC().Truncate(time.Millisecond), store.Loaded{}, run.Call{}
	if t.request, err = t.findRequest(ctx); err != nil {
		return err
	}
	t.ID, t.unsure = t.request.ID, false
	if as, ok := t.Check[t.ID]; ok {
		t.request = as
	}
	a := t.request
	t.record = Decision{
		By: t.By.ID, Via: t.Via, Action: t.Action, At: t.now, Note: t.Note, Digest: a.Digest, Grant: t.Grant,
	}
	switch last := a.lastEdit(); { // tally refuses JSON that is not valid
	case t.Action == Edit:
		t.record.Args, _ = jsonx.CompactJSON(t.Args, jsonx.JSONLimits{})
		isRepeated := last >= 0 && (a.Status != Pending || a.Decisions[last].By == t.By.ID)
		if a.Kind == KindCall && t.record.Args != nil && !isRepeated &&
			jsonx.CanonicalText(t.record.Args) == jsonx.CanonicalText(a.Args) {
			t.Action, t.Args, t.Digest = Approve, nil, cmp.Or(t.Digest, a.Digest)
			t.record.Action, t.record.Args = Approve, nil
		}
	case t.Action == Approve && a.Kind == KindInput:
		t.record.Args, _ = policy.CompactAnswer(t.Result)
	case a.Kind == KindOutcome:
		if t.record.Key = t.Key; t.Action != Rerun {
			t.record.Args, _ = jsonx.MarshalVerbatim(t.Content) // a string always marshals
		}
	}
	err = t.addRunFacts(ctx)
	if isApproving(t.Action) && t.needsApprover() && (t.Confirm != nil || t.Check != nil) {
		t.record.Confirmed = a.ChannelsOf(t.Tool).ConfirmationBy(t.Via)
	}
	return err
}

// findRequest returns the request that a decision is on. One that reports an outcome names it, its call, or both. Of a
// call alone it is the request that was answered under the same key, else the newest one if the call has no earlier
// one. A repeated answer about an earlier attempt is never taken for a later attempt: if there were several requests,
// it is a *StaleError. A call that waits for no outcome is ErrNothing.
func (t *attempt) findRequest(ctx context.Context) (Approval, error) {
	asks := func(a Approval) bool { return a.Kind == KindOutcome && a.Run == t.Run && a.Call() == t.Call }
	if t.ID != "" || t.Call == "" {
		a, err := Get(ctx, t.Table, t.Tenant, t.ID)
		switch outcome := slices.Contains(kinds[KindOutcome].actions, t.Action); {
		case outcome && errors.Is(err, ErrNotFound):
			err = fmt.Errorf("answer call %s: %w", t.Call, ErrNothing)
		case outcome && err == nil && (a.Kind != KindOutcome || t.Call != "" && !asks(a)):
			err = fmt.Errorf("answer call %s: approval %s: %w", t.Call, t.ID, ErrNothing)
		}
		return a, err
	}
	l, err := t.Journal.Load(ctx, t.Tenant, t.Run)
	if err != nil {
		return Approval{}, err
	}
	c, _ := l.State.Call(t.Call)
	var found []Approval // the newest first
	for ask := c.Asks; ask > 0; ask-- {
		a, err := Get(ctx, t.Table, t.Tenant, run.ApprovalID(t.Run, c.ID, ask))
		switch {
		case err != nil && (ask == c.Asks || !errors.Is(err, ErrNotFound)):
			return Approval{}, err
		case err != nil || !asks(a):
		case t.Key != "" && slices.ContainsFunc(a.Decisions, func(d Decision) bool { return d.Key == t.Key }):
			return a, nil
		default:
			found = append(found, a)
		}
	}
	switch {
	case len(found) == 0 || found[0].ID != run.ApprovalID(t.Run, c.ID, c.Asks):
		return Approval{}, fmt.Errorf("answer call %s: %w", t.Call, ErrNothing)
	case len(found) > 1 && found[0].Status == Pending:
		return Approval{}, &StaleError{Approval: found[0]}
	}
	return found[0], nil
}

// addRunFacts adds what only the run says of a request: whether the call of an order to run it again was approved, and
// everybody who has started the run, or one above it, to the requesters of a four-eyes request. Whoever started one
// again under the same key, after the request was made, may not approve it either.
func (t *attempt) addRunFacts(ctx context.Context) error {
	a := &t.request
	fourEyes := a.FourEyes && a.Status == Pending && isApproving(t.Action)
	if !fourEyes && t.Action != Rerun {
		return nil
	}
	l, err := t.Journal.Load(ctx, t.Tenant, a.Run)
	if err != nil {
		return err
	}
	c, _ := l.State.Call(a.Call())
	if t.loaded, t.approved = l, c.Grant != nil; !fourEyes {
		return nil
	}
	starters, err := Starters(ctx, t.Journal, l)
	others := slices.DeleteFunc(sortedSet(starters), func(id string) bool { return slices.Contains(a.Requesters, id) })
	a.Requesters = slices.Concat(a.Requesters, others)
	return err
}

// Get reads a request as it may be decided now: everybody who has started its run since, or one above it, is among the
// requesters.
func (d *Desk) Get(ctx context.Context, tenant, id string) (Approval, error) {
	a, err := Get(ctx, d.Table, tenant, id)
	t := attempt{Desk: d, DecisionInput: DecisionInput{Tenant: tenant, Action: Approve}, request: a}
	if err == nil {
		err = t.addRunFacts(ctx)
	}
	return t.request, err
}

// Starters returns everybody who has started a run or one above it, also again under the same key.
func Starters(ctx context.Context, j *store.Journal, l store.Loaded) (starters []string, err error) {
	for {
		starters = slices.Concat(starters, l.State.By, l.State.Again)
		for _, fact := range l.Inbox {
			if e, ok := fact.(run.InputReceived); ok && e.Starts {
				starters = append(starters, e.By)
			}
		}
		above := l.State.Parent
		if above == nil {
			return starters, nil
		}
		if l, err = j.Load(ctx, l.State.Tenant, above.Run); err != nil {
			return nil, err
		}
	}
}

// loadCall loads the run, its definition, and the call that the request is about.
func (t *attempt) loadCall(ctx context.Context) (err error) {
	if t.loaded.State.Run == "" {
		if t.loaded, err = t.Journal.Load(ctx, t.Tenant, t.request.Run); err != nil {
			return err
		}
	}
	if t.def, err = t.Definitions(ctx, t.Tenant, t.loaded.State.Definition); err != nil {
		return fmt.Errorf("decide approval %s: %w", t.ID, err)
	}
	if t.loaded.State.Status == run.RunDone {
		return ErrFinished
	}
	var known bool
	if t.call, known = t.loaded.State.Call(t.request.Call()); !known {
		return fmt.Errorf("decide approval %s: call %s: %w", t.ID, t.request.Call(), ErrNothing)
	}
	return nil
}

// commit writes the decided request in place of the one that was read. With a fact, the same transaction adds it to the
// run's inbox (rules 3 and 8), of an outcome as run.Answered, and writes the standing grants that the decision gives.
func (t *attempt) commit(ctx context.Context) error {
	a, fact, most := t.decided, t.fact, maxDecidedBytes
	op, err := DecideOp(a, t.now)
	if err != nil {
		return err
	}
	for i, p := range t.request.Permissions {
		if a.Kind == KindTools {
			op.If = append(op.If, verdictCond(i, p.storedVerdict()))
		}
	}
	ops := []store.Op{op}
	t.decided.rev++
	if isApproving(t.Action) && a.Status == Pending {
		if op, err = t.approvalRecordOp(); err != nil {
			return err
		}
		ops = append(ops, op)
	}
	if fact == nil {
		most = maxPendingBytes
	}
	if n := len(ops[0].Item.Body); n > most {
		return fmt.Errorf("decide approval %s: with its arguments and notes the request would have %d bytes, "+
			"at most %d (a shorter note, or smaller arguments?): %w", a.ID, n, most, store.ErrTooLarge)
	}
	if fact == nil { // the request of a run that has ended may still be pending, and takes no more approvals
		h, err := t.Journal.Head(ctx, a.Tenant, a.Run)
		switch {
		case err != nil:
			return err
		case h.Status == run.RunDone:
			return ErrFinished
		}
		err = t.Table.Write(ctx, append(ops, h.SameStatusOp())...)
		t.unsure = err != nil
		return err
	}
	if fact.Action == run.ActionApprove && t.needsApprover() {
		if fact.ApprovedBy, err = t.loadApprovers(ctx); err != nil {
			return err
		}
	}
	grants, err := t.grantOps(ctx)
	if err != nil {
		return err
	}
	said, key := run.Event(*fact), t.Key
	if a.Kind == KindOutcome {
		said, key = run.Answered{
			Call: fact.Call, Approval: fact.Approval, Content: fact.Text, IsError: t.Action == ReportError,
			Rerun: t.Action == Rerun, By: fact.By, With: fact.With, ApprovedBy: fact.ApprovedBy,
		}, ""
	}
	got, err := t.Journal.Accept(ctx, a.Tenant, a.Run, key, said, append(ops, grants...)...)
	if t.unsure = err != nil && !errors.Is(err, store.ErrOtherInput); err == nil && got.Closed {
		err = ErrFinished
	}
	return err
}

// notify calls the hooks for a committed decision. If the decision is complete, it resumes the run.
func (t *attempt) notify(ctx context.Context) (Approval, error) {
	a, isVoid := t.decided, t.decided.Status == Voided
	var err error
	if t.fact != nil {
		if t.OnDecided != nil && !isVoid {
			t.OnDecided(ctx, a)
		}
		err = t.resumeRun(ctx, a)
	}
	t.notifyChange(ctx, a)
	if isVoid {
		return Approval{}, cmp.Or(err, error(&PolicyError{Approval: a}))
	}
	return a, err
}

func (d *Desk) notifyChange(ctx context.Context, a Approval) {
	if d.OnChange != nil {
		d.OnChange(ctx, a)
	}
}

func (d *Desk) resumeRun(ctx context.Context, a Approval) error {
	if err := d.ResumeRun(ctx, a.Tenant, a.Run); err != nil {
		return fmt.Errorf("wake run %s: %w", a.Run, err)
	}
	return nil
}
