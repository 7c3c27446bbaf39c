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
	Run, Call  string // without ID, what the decision is on: see PrepareDecision, and findOutcomeRequest
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
	// Check, if not nil, has the decision authorized and validated only: nothing is recorded, and the Approval is none.
	Check Checked

	// Confirm checks what the policy wants besides: that the person has signed in, or the typed code, which it uses up.
	// Its error refuses the decision. It is called right before the decision is committed. Nil = there is nothing.
	Confirm   func(ctx context.Context, by run.Confirm) error
	confirmed run.Confirm // what Confirm is or was called for
}

// Checked holds requests, by id, as the decisions that were checked with it would leave them.
type Checked map[string]Approval

// DecisionStep makes a decision that was prepared, or checks it; see DecisionInput.Check.
type DecisionStep func(ctx context.Context, check Checked) error

func (r DecisionInput) decision(now time.Time) Decision {
	return Decision{
		By: r.By.ID, Via: r.Via, Action: r.Action, At: now, Note: r.Note, Digest: r.Digest, Grant: r.Grant,
		Confirmed: r.confirmed,
	}
}

// reported returns the text of an outcome as a JSON string; nil = it has none.
func (r DecisionInput) reported() json.RawMessage {
	if r.Action != ReportResult && r.Action != ReportError {
		return nil
	}
	text, _ := jsonx.MarshalVerbatim(r.Content) // a string always marshals
	return text
}

// maxRaces is how often a decision is retried because somebody else wrote the request meanwhile. It is far above the
// number of people of any quorum.
const maxRaces = 64

// Decide records a decision once and resumes the run. An approval that does not complete the quorum is recorded alone:
// the request stays pending, and the run is not resumed. The same decision again returns the same result (see
// Approval.IsRepeated) and resumes the run again; a different decision is a *DecidedError. The outcome of a call may be
// reported without naming the request: see findOutcomeRequest.
//
// An error means that nothing was changed, with two exceptions. After an error of the table the outcome may be unknown;
// the caller may repeat Decide. After a *PolicyError the run requests approval again.
func (d *Desk) Decide(ctx context.Context, r DecisionInput) (_ Approval, err error) {
	defer func() { d.logRefusal(err, r.By, "tenant", r.Tenant, "approval", r.ID, "via", string(r.Via)) }()
	var checked run.Confirm
	var uncertain error // of a write that may have happened, or of a run that has ended: the request is read again
	for races := 0; ; races++ {
		a, ended, err := d.readRequest(ctx, &r)
		switch {
		case err != nil:
			return a, errors.Join(uncertain, err)
		case ended:
			return a, nil
		case a.hasRecorded(r):
			a.repeated = uncertain == nil
			return a, nil
		}
		if errors.Is(uncertain, ErrFinished) {
			open := []OpenRequest{{ID: a.ID, Since: a.RequestedAt}}
			uncertain = errors.Join(ErrFinished, CloseRequests(ctx, d.Table, a.Tenant, open))
		}
		if uncertain != nil {
			return Approval{}, fmt.Errorf("decide approval %s: %w", a.ID, uncertain)
		}
		if r.Digest == "" { // the decision is on the current arguments
			if r.Action == Approve && a.lastEdit() >= 0 {
				return Approval{}, &StaleError{Approval: a}
			}
			r.Digest = a.Digest
		}
		now := d.Clock.Now().UTC().Truncate(time.Millisecond)
		fact, decided, err := d.tallyDecision(ctx, a, r, now)
		if err == nil && r.Check != nil {
			r.Check[a.ID] = decided
			return Approval{}, nil
		}
		if err == nil && r.confirmed != checked {
			err = r.Confirm(ctx, r.confirmed)
			checked = r.confirmed
		}
		if err == nil {
			decided, err = d.commitDecision(ctx, a, decided, fact, r, now)
		}
		var write writeError
		switch {
		case err == nil:
			return decided, d.notifyDecision(ctx, decided, fact != nil)
		case errors.Is(err, ErrFinished), // perhaps another decision on this request ended the run
			errors.As(err, &write) && !lostRace(err):
			uncertain = err
		case !errors.As(err, &write):
			return Approval{}, err
		case races == maxRaces:
			return Approval{}, fmt.Errorf("decide approval %s: %w", a.ID, err)
		}
	}
}

// readRequest reads the request of a decision and checks the decision against it. It sets the decision's ID and
// confirmed. If ended is true, the same decision has already completed the request.
func (d *Desk) readRequest(ctx context.Context, r *DecisionInput) (a Approval, ended bool, err error) {
	if a, err = d.findRequestOf(ctx, *r); err != nil {
		return Approval{}, false, err
	}
	r.ID = a.ID
	if as, ok := r.Check[a.ID]; ok {
		a = as
	}
	if a.isUnchanged(*r) {
		r.Action, r.Args, r.Digest = Approve, nil, cmp.Or(r.Digest, a.Digest)
	}
	if a, err = d.addRunFacts(ctx, a, r.Action); err != nil {
		return Approval{}, false, err
	}
	if r.confirmed = ""; r.Confirm != nil && isApproving(r.Action) && a.needsApprover(*r) {
		r.confirmed = a.ChannelsOf(r.Tool).ConfirmationBy(r.Via)
	}
	if err = a.authorizeDecision(*r, d.Clock.Now()); err == nil {
		err = a.validateDecision(*r)
	}
	if err != nil {
		return Approval{}, false, err
	}
	ended, same := a.isDecided(*r)
	switch {
	case ended:
		a, err = d.answerDecided(ctx, a, same)
	case d.CheckLinked != nil:
		if err = d.CheckLinked(ctx, a); err != nil {
			a = Approval{}
		}
	}
	return a, ended, err
}

// addRunFacts adds what only the run says of a request: whether the call of an order to run it again was approved, and
// everybody who has started the run, or one above it, to the requesters of a four-eyes request. Whoever started one
// again under the same key, after the request was made, may not approve it either.
func (d *Desk) addRunFacts(ctx context.Context, a Approval, by Action) (Approval, error) {
	fourEyes := a.FourEyes && a.Status == Pending && isApproving(by)
	if !fourEyes && by != Rerun {
		return a, nil
	}
	l, err := d.Journal.Load(ctx, a.Tenant, a.Run)
	if err != nil {
		return a, err
	}
	if c, _ := l.State.Call(a.Call()); by == Rerun {
		a.approved = c.Grant != nil
	}
	if !fourEyes {
		return a, nil
	}
	starters, err := Starters(ctx, d.Journal, l)
	if err != nil {
		return a, err
	}
	a.Requesters = slices.Clone(a.Requesters)
	for _, id := range starters {
		if !slices.Contains(a.Requesters, id) {
			a.Requesters = append(a.Requesters, id)
		}
	}
	return a, nil
}

// Get reads a request as it may be decided now: everybody who has started its run since, or one above it, is among the
// requesters.
func (d *Desk) Get(ctx context.Context, tenant, id string) (Approval, error) {
	a, err := Get(ctx, d.Table, tenant, id)
	if err == nil {
		a, err = d.addRunFacts(ctx, a, Approve)
	}
	return a, err
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

// commitDecision writes the decided request in place of a, which was read. If fact is not nil, the same transaction
// adds fact to the run's inbox (rules 3 and 8), of an outcome as run.Answered, and writes the standing grants that the
// decision gives.
func (d *Desk) commitDecision(
	ctx context.Context, a, decided Approval, fact *run.Decided, r DecisionInput, now time.Time,
) (Approval, error) {
	op, err := DecideOp(decided, now)
	if err != nil {
		return Approval{}, err
	}
	if a.Kind == KindTools {
		for i, p := range a.Permissions {
			op.If = append(op.If, verdictCond(i, p.storedVerdict()))
		}
	}
	ops := []store.Op{op}
	decided.rev++
	if isApproving(r.Action) && (fact == nil || decided.Status == Pending) {
		if op, err = approvalRecordOp(decided, r.By); err != nil {
			return Approval{}, err
		}
		ops = append(ops, op)
	}
	most := maxDecidedBytes
	if fact == nil {
		most = maxPendingBytes
	}
	if n := len(ops[0].Item.Body); n > most {
		return Approval{}, fmt.Errorf("decide approval %s: with its arguments and notes the request would have %d bytes, "+
			"at most %d (a shorter note, or smaller arguments?): %w", a.ID, n, most, store.ErrTooLarge)
	}
	if fact == nil { // the request of a run that has ended may still be pending, and takes no more approvals
		h, err := d.Journal.Head(ctx, a.Tenant, a.Run)
		switch {
		case err != nil:
			return Approval{}, err
		case h.Status == run.RunDone:
			return Approval{}, ErrFinished
		}
		return decided, asWriteError(d.Table.Write(ctx, append(ops, h.SameStatusOp())...))
	}
	if fact.Action == run.ActionApprove && a.needsApprover(r) {
		if fact.ApprovedBy, err = d.loadApprovers(ctx, decided, r.By, fact.With); err != nil {
			return Approval{}, err
		}
	}
	grants, err := d.grantOps(ctx, decided, fact.ApprovedBy)
	if err != nil {
		return Approval{}, err
	}
	said, key := run.Event(*fact), r.Key
	if a.Kind == KindOutcome {
		said, key = run.Answered{
			Call: fact.Call, Approval: fact.Approval, Content: fact.Text, IsError: r.Action == ReportError,
			Rerun: r.Action == Rerun, By: fact.By, With: fact.With, ApprovedBy: fact.ApprovedBy,
		}, ""
	}
	got, err := d.Journal.Accept(ctx, a.Tenant, a.Run, key, said, append(ops, grants...)...)
	switch {
	case err != nil:
		return Approval{}, asWriteError(err)
	case got.Closed:
		return Approval{}, ErrFinished
	case fact.Action == run.ActionAskAgain:
		if err := d.resumeRun(ctx, decided); err != nil {
			return Approval{}, err // a retry of the decision resumes the run: see answerDecided
		}
		d.notifyChange(ctx, decided)
		return Approval{}, &PolicyError{Approval: decided}
	}
	return decided, nil
}

// writeError is an error of a write. The outcome may be unknown, so that the caller reads the request again.
type writeError struct{ error }

func (e writeError) Unwrap() error { return e.error }

func asWriteError(err error) error {
	if err == nil || errors.Is(err, store.ErrOtherInput) {
		return err
	}
	return writeError{err}
}

// notifyDecision calls the hooks for a committed decision. If the decision is complete, it resumes the run.
func (d *Desk) notifyDecision(ctx context.Context, a Approval, complete bool) (err error) {
	if complete {
		if d.OnDecided != nil {
			d.OnDecided(ctx, a)
		}
		err = d.resumeRun(ctx, a)
	}
	d.notifyChange(ctx, a)
	return err
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

// answerDecided answers a decision on a decided request: the same one is repeated. After a policy change has voided the
// request, the run is resumed first: the process that voided it may have crashed before it did.
func (d *Desk) answerDecided(ctx context.Context, a Approval, same bool) (Approval, error) {
	if same {
		a.repeated = true
		return a, d.resumeRun(ctx, a)
	}
	if a.Status == Voided {
		if err := d.resumeRun(ctx, a); err != nil {
			return Approval{}, err
		}
	}
	return Approval{}, &DecidedError{Approval: a}
}
