package approval

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// The errors of Decide and Settle beside a table's.
var (
	ErrForbidden = errors.New("not one of the approvers")
	ErrExpired   = errors.New("the request has expired")
	ErrFinished  = errors.New("the run has ended")
	ErrKind      = errors.New("the request cannot be decided like that")
	ErrNothing   = errors.New("the call waits for nobody")
	ErrNoCall    = errors.New("the run has no such call")
	ErrIgnored   = errors.New("the call has ended: the decision changes nothing")
	ErrNotLinked = errors.New("not part of this program; use the program that has it, or cancel the run")
	ErrKept      = errors.New("too many decisions are kept already")

	ErrRequester     = fmt.Errorf("the run acts for them, who may deny and not approve (four eyes): %w", ErrForbidden)
	ErrStale         = errors.New("the request is about another action since") // each *StaleError is one
	ErrPolicyChanged = errors.New("the policy that applies has changed since") // each *PolicyError is one
)

// StaleError says that the request is not about what the person was shown any more: somebody has changed the arguments meanwhile.
type StaleError struct{ Approval Approval }

// Is makes e an ErrStale.
func (e *StaleError) Is(target error) bool { return target == ErrStale }

func (e *StaleError) Error() string {
	for _, d := range slices.Backward(e.Approval.Decisions) {
		if d.Action == Edit {
			return fmt.Sprintf("approval %s is about other arguments than were shown: %s has changed them; look at it again", e.Approval.ID, d.By)
		}
	}
	if e.Approval.Kind == KindOutcome {
		return fmt.Sprintf("answer call %s: it was asked about before and has run again since; want approval: the id of the request you answer, which is %s now",
			e.Approval.Call(), e.Approval.ID)
	}
	return fmt.Sprintf("approval %s is about another action than was shown: look at it again", e.Approval.ID)
}

// PolicyError says that a request is void: the policy that applies to its call has changed since it was made, or the
// request does not show the arguments of the call. The call is asked about again, or denied.
type PolicyError struct{ Approval Approval }

// Is makes e an ErrPolicyChanged.
func (e *PolicyError) Is(target error) bool { return target == ErrPolicyChanged }

func (e *PolicyError) Error() string {
	return fmt.Sprintf("approval %s is void: the policy that applies to call %s has changed since, or the request does not show that call; it is asked about again",
		e.Approval.ID, e.Approval.Call())
}

// DecidedError says that somebody else's other decision came first (A12).
type DecidedError struct{ Approval Approval }

func (e *DecidedError) Error() string {
	if e.Approval.wasDecidedByPeople() {
		d := e.Approval.Decisions[len(e.Approval.Decisions)-1]
		return fmt.Sprintf("approval %s is %s: %s by %s", e.Approval.ID, e.Approval.Status, d.Action, d.By)
	}
	return fmt.Sprintf("approval %s is %s", e.Approval.ID, e.Approval.Status)
}

// EditError says why edited arguments are not taken; Problem is fit to be shown.
type EditError struct{ Problem string }

func (e *EditError) Error() string { return "edited arguments refused: " + e.Problem }

// Desk records decisions. All fields but Able, Decided, Noted, Woken, Said and Log are required. Safe for concurrent use.
type Desk struct {
	Table        store.Table
	Journal      *store.Journal
	Clock        clock.Clock
	Definitions  func(ctx context.Context, tenant, digest string) (*agent.Definition, error)
	ValidateArgs agent.Validator
	ResumeRun    func(ctx context.Context, tenant, run string) error // completes the parked run's task token, if it has one

	// Able refuses decisions that this process could not carry out, by an ErrNotLinked. Nil = it is not this process that does.
	CheckLinked func(ctx context.Context, a Approval) error
	// Decided is told of a decision once it is recorded, before the run is woken. Nil = nobody is.
	OnDecided func(ctx context.Context, a Approval)
	// Noted is told of an approval that is recorded and not the last one that it takes. The run hears nothing. Nil = nobody is.
	OnPartialApproval func(ctx context.Context, a Approval)
	// Woken is told of a decision once the run was woken, for what may take its time, and of a request that a change of policy has voided. Nil =
	// nobody is.
	OnResumed func(ctx context.Context, a Approval)
	// Said is told of a remark once it is recorded. Nil = nobody is.
	OnRemark func(ctx context.Context, a Approval)
	// Log is told who was refused, and who took standing grants back. Nil = nobody is.
	Log *slog.Logger
}

// logRefusal logs who was refused what: names and values of ids.
func (d *Desk) logRefusal(err error, by policy.Principal, what ...any) {
	if d.Log == nil {
		return
	}
	switch {
	case errors.Is(err, ErrForbidden):
		d.Log.Warn("refused: not one of the approvers", append(what, "by", by.ID)...)
	case errors.Is(err, ErrExpired):
		d.Log.Warn("refused: the request had expired", append(what, "by", by.ID)...)
	}
}

// DecisionInput is one person's decision as it reaches the choke point. By comes from what authenticated the person, never from
// what they sent.
type DecisionInput struct {
	Tenant, ID string
	Action     Action
	Tool       string          // of a request about tools: the one it decides, by either name; "" = all that nobody has decided about
	Args       json.RawMessage // Edit
	Result     json.RawMessage // Approve, of KindInput: the answer; nil and null are true
	Note       string
	Digest     string // of the action that the person was shown: another one is a *StaleError; "" = the one that people were asked about
	By         policy.Principal
	Via        Via                // for the record
	Key        string             // under which the run's inbox takes it once, on whatever request; empty = none. Another use is store.ErrOtherInput
	Grant      *agent.GrantBounds // Approve and Edit, where what is granted stands: how far it goes; nil = as far as the policy lets it
}

// maxRaces is how often a decision is tried again because somebody else wrote the request meanwhile. More people than a quorum have seldom
// anything to say that does not decide it.
const maxRaces = 64

// Decide records a decision once and wakes the run; where it takes several people, an approval that is not the last is recorded alone, the
// request stays pending, and the run hears nothing. The same decision again gives the same answer and wakes again; another one is
// a *DecidedError. Nothing is changed by any error but an uncertain one of the table, after which Decide may be repeated, and by *PolicyError,
// which has the run ask again.
func (d *Desk) Decide(ctx context.Context, r DecisionInput) (_ Approval, err error) {
	defer func() { d.logRefusal(err, r.By, "tenant", r.Tenant, "approval", r.ID, "via", string(r.Via)) }()
	lost := Approval{rev: -1} // what stood where a condition failed
	for races := 0; ; races++ {
		a, err := Get(ctx, d.Table, r.Tenant, r.ID)
		if err != nil {
			return Approval{}, err
		}
		if a.Status == Pending && lost.rev >= 0 && a.isUnchangedSince(lost) { // nobody was first: it was the time
			return Approval{}, fmt.Errorf("decide approval %s: %w", a.ID, ErrExpired)
		}
		if a, err = d.addRunStarters(ctx, a, r.Action); err != nil {
			return Approval{}, err
		}
		if err = authorizeDecision(a, r, d.Clock.Now()); err != nil {
			return Approval{}, err
		}
		ended, same := a.isDecided(r)
		switch {
		case ended && same:
			return a, d.resumeRun(ctx, a)
		case ended:
			return Approval{}, d.rejectDecided(ctx, a)
		}
		if d.CheckLinked != nil {
			if err := d.CheckLinked(ctx, a); err != nil {
				return Approval{}, err
			}
		}
		if r.Digest, err = a.decisionDigest(r); err != nil {
			return Approval{}, err
		}
		if a.hasRecorded(r) {
			return a, nil
		}
		decided, hears, err := d.commitDecision(ctx, a, r)
		var write writeError
		switch {
		case err == nil:
			return decided, d.notifyDecision(ctx, decided, hears)
		case errors.Is(err, ErrFinished): // by what somebody else said of the request, maybe
			return d.resolveUncertainWrite(ctx, r, err)
		case !errors.As(err, &write):
			return Approval{}, err
		case !lostRace(err):
			return d.resolveUncertainWrite(ctx, r, err)
		case races == maxRaces:
			return Approval{}, fmt.Errorf("decide approval %s: %w", a.ID, err)
		}
		if lost = a; errors.Is(err, store.ErrConflict) {
			lost.rev = -1
		}
	}
}

// addRunStarters is a request that four eyes are about, with all who have started its run by now: who starts it a
// second time under its key, after the call has asked, wants what comes of it like the first.
func (d *Desk) addRunStarters(ctx context.Context, a Approval, by Action) (Approval, error) {
	if !a.FourEyes || a.Status != Pending || !isApproving(by) {
		return a, nil
	}
	l, err := d.Journal.Load(ctx, a.Tenant, a.Run)
	if err != nil {
		return a, err
	}
	who := slices.Concat(l.State.By, l.State.Again)
	for _, fact := range l.Inbox {
		if e, ok := fact.(run.InputReceived); ok && e.Starts {
			who = append(who, e.By)
		}
	}
	a.Requesters = slices.Clone(a.Requesters)
	for _, id := range who {
		if !slices.Contains(a.Requesters, id) {
			a.Requesters = append(a.Requesters, id)
		}
	}
	return a, nil
}

// decisionDigest is the digest of the arguments that a decision is about: what stands now, for whoever names none. Nobody approves unseen what another has
// put in its place meanwhile.
func (a Approval) decisionDigest(r DecisionInput) (string, error) {
	switch {
	case r.Digest != "":
		return r.Digest, nil
	case r.Action == Approve && a.isEdited() && !a.hasRecorded(r):
		return "", &StaleError{Approval: a}
	default:
		return a.Digest, nil
	}
}

// isUnchangedSince reports whether nobody has written the request since it was as before, nor used up what it grants, which writes no revision.
func (a Approval) isUnchangedSince(before Approval) bool {
	return a.rev == before.rev &&
		slices.EqualFunc(a.Permissions, before.Permissions, func(p, q Permission) bool { return p.storedVerdict() == q.storedVerdict() })
}

// notifyDecision tells of what was recorded, and wakes the run where it hears of that.
func (d *Desk) notifyDecision(ctx context.Context, a Approval, hears bool) error {
	if !hears {
		if d.OnPartialApproval != nil {
			d.OnPartialApproval(ctx, a)
		}
		return nil
	}
	if d.OnDecided != nil {
		d.OnDecided(ctx, a)
	}
	err := d.resumeRun(ctx, a)
	d.notifyResumed(ctx, a)
	return err
}

func (d *Desk) notifyResumed(ctx context.Context, a Approval) {
	if d.OnResumed != nil {
		d.OnResumed(ctx, a)
	}
}

// resolveUncertainWrite looks what became of a write of which nobody knows whether it was done.
func (d *Desk) resolveUncertainWrite(ctx context.Context, r DecisionInput, cause error) (Approval, error) {
	a, err := Get(ctx, d.Table, r.Tenant, r.ID)
	if err != nil {
		return Approval{}, errors.Join(cause, err)
	}
	ended, same := a.isDecided(r)
	switch {
	case ended && same:
		return a, d.resumeRun(ctx, a)
	case ended:
		return Approval{}, d.rejectDecided(ctx, a)
	case a.hasRecorded(r):
		return a, nil
	case errors.Is(cause, ErrFinished):
		return Approval{}, d.closeFinished(ctx, a)
	default:
		return Approval{}, fmt.Errorf("decide approval %s: %w", a.ID, cause)
	}
}

// closeFinished refuses a decision about a run that has ended, and closes the request: whoever ended the run has not come
// to that yet.
func (d *Desk) closeFinished(ctx context.Context, a Approval) error {
	err := fmt.Errorf("decide approval %s: %w", a.ID, ErrFinished)
	return errors.Join(err, CloseRequests(ctx, d.Table, a.Tenant, []OpenRequest{{ID: a.ID, Since: a.RequestedAt}}))
}

// rejectDecided says who was first. A request that nobody has decided was voided by somebody who decided under a policy that had changed: they may have
// had no answer, and nobody else wakes the run for what they put into its inbox.
func (d *Desk) rejectDecided(ctx context.Context, a Approval) error {
	if a.Status == Voided {
		if err := d.resumeRun(ctx, a); err != nil {
			return err
		}
	}
	return &DecidedError{Approval: a}
}

// authorizeDecision is the one place that says who may decide what (A9).
func authorizeDecision(a Approval, r DecisionInput, now time.Time) error {
	if !r.Action.Valid() {
		return fmt.Errorf("decide approval %s: action %q: %w", a.ID, r.Action, ErrKind)
	}
	if err := a.authorizePerson(r, a.approverOfAll(r, now)); err != nil {
		return err
	}
	return a.validateDecision(r)
}

// approverOfAll says whether somebody is an approver of all that r decides. To fail a request is to decide all that is open of it.
func (a Approval) approverOfAll(r DecisionInput, now time.Time) func(policy.Principal) bool {
	if r.Action == Fail {
		r.Tool = ""
	}
	return func(p policy.Principal) bool {
		if !a.CanDecide(p, now) {
			return false
		}
		for _, i := range a.toolPlaces(r) {
			if slices.ContainsFunc(a.Permissions[i].Calls, func(b BlockedCall) bool { return !a.canDecideCall(p, b, now) }) {
				return false
			}
		}
		return true
	}
}

// approvalsCountedWith are the approvals beside which r is to count. An edit is the first of its own.
func (a Approval) approvalsCountedWith(r DecisionInput) []Decision {
	switch {
	case r.Action == Edit:
		return nil
	case a.Kind == KindTools:
		var all []Decision
		for _, i := range a.toolPlaces(r) {
			all = append(all, a.ToolApprovals(i)...)
		}
		return all
	case a.Kind == KindInput:
		answer, _ := policy.CompactAnswer(r.Result) // an answer that is none is refused later
		return a.matchingAnswers(answer)
	default:
		return a.CountedApprovals()
	}
}

// validateDecision refuses a decision that the kind of request does not take.
func (a Approval) validateDecision(r DecisionInput) error {
	if a.Kind == KindOutcome {
		return fmt.Errorf("decide approval %s: it asks what became of call %s; answer it with a result, an error or a rerun: %w", a.ID, a.Call(), ErrKind)
	}
	if a.Kind == KindInput && r.Action == Edit {
		return fmt.Errorf("decide approval %s: it asks for input, which is no edit: approve it with a result: %w", a.ID, ErrKind)
	}
	if r.Result != nil && (r.Action != Approve || a.Kind != KindInput && string(r.Result) != "true") {
		return fmt.Errorf("decide approval %s: a result answers what a tool asks and goes with nothing else: %w", a.ID, ErrKind)
	}
	if a.Kind != KindTools && (r.Action == Fail || r.Tool != "") {
		return fmt.Errorf("decide approval %s: it is about call %s, not about tools: %w", a.ID, a.Call(), ErrKind)
	}
	if (r.Action == Edit) != (r.Args != nil) {
		return fmt.Errorf("decide approval %s: arguments go with an edit and with nothing else: %w", a.ID, ErrKind)
	}
	if a.Kind == KindTools && r.Action == Edit {
		return fmt.Errorf("decide approval %s: it is about tools, so no arguments can be edited: %w", a.ID, ErrKind)
	}
	if a.Kind == KindTools && r.Tool != "" && len(a.toolPlaces(r)) == 0 {
		return fmt.Errorf("decide approval %s: it does not ask about tool %q: %w", a.ID, r.Tool, ErrKind)
	}
	return nil
}

// commitDecision writes the decision into the request, and, where that decides it, into the run's inbox at once (rules 3 and 8). Hears is
// false where the run is to hear nothing yet.
func (d *Desk) commitDecision(ctx context.Context, a Approval, r DecisionInput) (decided Approval, hears bool, err error) {
	now := d.Clock.Now().UTC().Truncate(time.Millisecond)
	if !now.Before(a.ExpiresAt) {
		return Approval{}, false, fmt.Errorf("decide approval %s: %w", a.ID, ErrExpired)
	}
	if r.Digest != a.Digest {
		return Approval{}, false, &StaleError{Approval: a}
	}
	fact, decided, err := d.tallyDecision(ctx, a, r, now)
	if err != nil {
		return Approval{}, false, err
	}
	if err := d.validatePattern(ctx, decided, r); err != nil {
		return Approval{}, false, err
	}
	op, err := DecideOp(decided, now)
	if err != nil {
		return Approval{}, false, err
	}
	if a.Kind == KindTools {
		for i, p := range a.Permissions {
			op.If = append(op.If, verdictCond(i, p.storedVerdict()))
		}
	}
	ops := []store.Op{op}
	decided.rev = max(0, decided.rev) + 1
	if isApproving(r.Action) && (fact == nil || decided.Status == Pending) {
		if op, err = approvalRecordOp(decided, r.By); err != nil {
			return Approval{}, false, err
		}
		ops = append(ops, op)
	}
	if fact == nil {
		return decided, false, d.commitPartialApproval(ctx, decided, ops)
	}
	if fact.Action == run.ActionApprove {
		if fact.Voices, err = d.loadVoices(ctx, decided, r.By, fact.With); err != nil {
			return Approval{}, false, err
		}
	}
	grants, err := d.prepareGrantOps(ctx, decided, fact.Voices)
	if err != nil {
		return Approval{}, false, err
	}
	got, err := d.Journal.Accept(ctx, a.Tenant, a.Run, r.Key, *fact, append(ops, grants...)...)
	if err != nil {
		return Approval{}, false, asWriteError(err)
	}
	if got.Closed {
		return Approval{}, false, ErrFinished
	}
	if fact.Action == run.ActionAskAgain {
		if err := d.resumeRun(ctx, decided); err != nil {
			return Approval{}, false, err // who hears no word of the policy comes again, and has the run woken: see first
		}
		d.notifyResumed(ctx, decided)
		return Approval{}, false, &PolicyError{Approval: decided}
	}
	return decided, true, nil
}

// commitPartialApproval writes an approval of which the run is to hear nothing yet, as long as the run goes on: behind its end a request may still
// be open, and takes no more approvals.
func (d *Desk) commitPartialApproval(ctx context.Context, a Approval, ops []store.Op) error {
	for range maxHeadRaces {
		h, err := d.Journal.Head(ctx, a.Tenant, a.Run)
		if err != nil {
			return err
		}
		if h.Status == run.RunDone {
			return ErrFinished
		}
		err = d.Table.Write(ctx, append(slices.Clip(ops), h.StillOp())...)
		if moved := store.FailedOp(err, len(ops)) && !store.FailedOp(err, 0); !moved {
			return asWriteError(err)
		}
	}
	return asWriteError(fmt.Errorf("decide approval %s: run %s does not come to rest", a.ID, a.Run))
}

// maxHeadRaces is how often the run may go on or come to rest while an approval is written.
const maxHeadRaces = 10

// writeError is an error of a write, after which what is on record is to be looked at.
type writeError struct{ error }

func (e writeError) Unwrap() error { return e.error }

func asWriteError(err error) error {
	if err == nil || errors.Is(err, store.ErrOtherInput) {
		return err
	}
	return writeError{err}
}

// decision is the decision as it is kept.
func (r DecisionInput) decision(now time.Time) Decision {
	return Decision{By: r.By.ID, Via: r.Via, Action: r.Action, At: now, Note: r.Note, Grant: r.Grant}
}
