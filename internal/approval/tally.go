package approval

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/prompt"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// CountedApprovals returns the approvals that count towards the quorum, in order. Of a call they are those since the
// last edit, and the edit counts itself. Of KindInput they are the newest answers of the people who gave the same
// answer most recently; of KindOutcome, the rerun orders. Of KindTools, see ApprovalsOf.
func (a Approval) CountedApprovals() []Decision {
	switch a.Kind {
	case KindInput:
		for _, d := range slices.Backward(a.Decisions) {
			if d.Action == Approve {
				return a.matchingAnswers(d.Args)
			}
		}
		return nil
	case KindOutcome:
		return firstPerPerson(a.Decisions, Rerun)
	default:
		return firstPerPerson(a.sinceEdit(), Approve, Edit)
	}
}

// lastEdit returns the index of the last edit among the decisions; -1 = there is none.
func (a Approval) lastEdit() int {
	for i, d := range slices.Backward(a.Decisions) {
		if d.Action == Edit {
			return i
		}
	}
	return -1
}

// sinceEdit returns the decisions from the last edit on; without one, all.
func (a Approval) sinceEdit() []Decision { return a.Decisions[max(0, a.lastEdit()):] }

// ApprovalsOf returns the approvals of what p grants, in order: of the tool, or of the call.
func (a Approval) ApprovalsOf(p Permission) []Decision {
	if a.Kind != KindTools {
		return a.CountedApprovals()
	}
	other := func(d Decision) bool { return !slices.Contains(d.Tools, p.Tool) }
	return firstPerPerson(slices.DeleteFunc(slices.Clone(a.Decisions), other), Approve)
}

// approvalsCountedWith returns the approvals that r would be counted with. An edit starts a new count.
func (a Approval) approvalsCountedWith(r DecisionInput) (all []Decision) {
	switch {
	case r.Action == Edit:
		return nil
	case a.Kind == KindTools:
		for _, i := range a.toolPlaces(r.Tool) {
			all = append(all, a.ApprovalsOf(a.Permissions[i])...)
		}
		return all
	case a.Kind == KindInput:
		answer, _ := policy.CompactAnswer(r.Result) // tallyAnswer refuses an answer that is not valid
		return a.matchingAnswers(answer)
	default:
		return a.CountedApprovals()
	}
}

func peopleOf(all []Decision) (people []string) {
	for _, d := range all {
		people = append(people, d.By)
	}
	return people
}

func firstPerPerson(all []Decision, actions ...Action) (first []Decision) {
	for _, d := range all {
		if slices.Contains(actions, d.Action) && !hasDecisionBy(first, d.By) {
			first = append(first, d)
		}
	}
	return first
}

func hasDecisionBy(all []Decision, person string) bool {
	return slices.ContainsFunc(all, func(d Decision) bool { return d.By == person })
}

// matchingAnswers returns the newest answer of each person if it equals answer.
func (a Approval) matchingAnswers(answer json.RawMessage) (newest []Decision) {
	for _, d := range a.Decisions {
		if d.Action == Approve {
			newest = slices.DeleteFunc(newest, func(have Decision) bool { return have.By == d.By })
			newest = append(newest, d)
		}
	}
	return slices.DeleteFunc(newest, func(d Decision) bool { return !bytes.Equal(d.Args, answer) })
}

// tallyDecision returns the request with the decision r, and the fact for the run. The fact is nil if the quorum takes
// more people.
func (d *Desk) tallyDecision(
	ctx context.Context, a Approval, r DecisionInput, now time.Time,
) (fact *run.Decided, decided Approval, err error) {
	switch {
	case now.UnixMilli() >= a.ExpiresAt.UnixMilli() && a.Kind != KindOutcome: // as the condition of DecideOp
		return nil, a, fmt.Errorf("decide approval %s: %w", a.ID, ErrExpired)
	case r.Digest != a.Digest:
		return nil, a, &StaleError{Approval: a}
	case a.hasOtherBounds(r):
		return nil, a, &GrantError{Problem: "grant: got other bounds than those with which you have approved already"}
	case r.Grant != nil && (!isApproving(r.Action) || a.Kind == KindInput):
		return nil, a, errNoStandingGrant(a)
	case a.Kind == KindTools:
		fact, decided, err = d.tallyTools(ctx, a, r, now)
	default:
		fact, decided, err = d.tallyCall(ctx, a, r, now)
	}
	if err == nil {
		err = d.validatePattern(ctx, decided, r)
	}
	return fact, decided, err
}

// tallyCall is tallyDecision for a request about one call. A report of what happened to an interrupted call needs no
// quorum. An order to run it again needs the quorum of the approval, if the call was approved. The model is told the
// report and, if the arguments were edited, the edited ones (A8).
func (d *Desk) tallyCall(
	ctx context.Context, a Approval, r DecisionInput, now time.Time,
) (*run.Decided, Approval, error) {
	decision := r.decision(now)
	fact := run.Decided{
		Call: a.Call(), Approval: a.ID, Action: run.ActionApprove, By: r.By.ID, Digest: a.Digest, Note: r.Note,
	}
	switch {
	case a.Kind == KindOutcome:
		def, _, c, err := d.loadCall(ctx, a)
		if err != nil {
			return nil, a, err
		}
		decision.Key, decision.Args = r.Key, r.reported()
		if r.Action != Rerun { // as a tool result of the agent is shortened; the request keeps all of it
			fact.Text = prompt.ShowResult(def, agent.ToolSpec{}, a.Call(), r.Content, false).Text
			if by := c.Editor(); by != "" {
				fact.Text = agent.TextEdited(by, string(c.Input)) + fact.Text
			}
		} else if a.needsApprover(r) {
			counted, decided := a.countQuorum(fact, decision, a.Quorum)
			return counted, decided, nil
		}
	case r.Action == Deny:
		fact.Action, fact.Text = run.ActionDeny, agent.TextDenied(r.By.ID, r.Note)
		if a.Scope == agent.ScopeTool && len(a.Permissions) == 1 {
			fact.Permit = a.Permissions[0].Digests[0]
		}
	case r.Action == Cancel:
		fact.Action, fact.Text = run.ActionCancel, agent.TextCallCancelled(r.By.ID, r.Note)
	case a.Kind == KindInput:
		return d.tallyAnswer(ctx, a, r, decision)
	default:
		return d.tallyApproval(ctx, a, r, decision, fact)
	}
	return &fact, a.applyDecision(fact, decision), nil
}

// tallyApproval is tallyCall for an approval or an edit. If decisions are about tools, an approval covers the call's
// tool, and an edit only its own arguments. If an approval grants the exact arguments, an edit grants the edited ones.
func (d *Desk) tallyApproval(
	ctx context.Context, a Approval, r DecisionInput, decision Decision, fact run.Decided,
) (*run.Decided, Approval, error) {
	def, s, c, err := d.loadCall(ctx, a)
	if errors.Is(err, store.ErrNoBlob) && r.Action != Edit { // the run cannot go on, whatever is decided
		err = nil
	}
	if err != nil {
		return nil, a, err
	}
	waits := c.Wait != nil && c.Wait.Approval == a.ID // else a journal entry that is being written has decided the call
	var now policy.Amended
	if waits {
		now = policy.ActionNow(def, s, c, a.Args)
		sameArgs := a.OriginalArgs != nil || bytes.Equal(a.Args, c.Input) // the digest alone binds edited arguments
		// The people were shown another action than would run: either the policy has changed (A17), or the request's
		// arguments are not the call's (A22).
		if !sameArgs || now.Digest != a.Digest || now.Rule.Verdict == agent.VerdictDeny {
			fact = run.Decided{Call: a.Call(), Approval: a.ID, Action: run.ActionAskAgain, By: "policy"}
			a.Status = Voided
			return &fact, a, nil
		}
	}
	if len(a.Permissions) > 0 { // the stored item is not trusted for what is granted besides the call
		a.Permissions = nil
		if waits {
			a.origin = requestOrigin{at: c.Wait.Since, requesters: s.RequestersAt(c.Wait.Contributors),
				edited: a.OriginalArgs != nil || c.Editor() != ""}
			shown := c
			shown.Input = a.Args
			current := NewCallRequest(def, s, shown)
			a.Scope, a.Grants, a.Permissions = current.Scope, current.Grants, current.Permissions
		}
	}
	policyMark := now.Policy
	if r.Action == Edit {
		if a, policyMark, err = d.applyEdit(a, r, def, s, c); err != nil {
			return nil, a, err
		}
		decision.Args, decision.Digest = a.Args, a.Digest
	}
	fact.Digest = a.Digest
	if a.OriginalArgs != nil {
		fact.Args, fact.Policy = a.Args, policyMark
	}
	if len(a.Permissions) == 1 {
		switch digest := a.Permissions[0].Digests[0]; {
		case a.Scope != agent.ScopeTool:
			fact.Permit, fact.Standing = digest, true
		case a.OriginalArgs == nil:
			fact.Permit, fact.Once = digest, a.Grants == agent.GrantsOnce
			fact.Standing = a.Grants == agent.GrantsStanding
		}
	}
	counted, decided := a.countQuorum(fact, decision, a.Quorum)
	switch {
	case fact.Standing:
		err = decided.checkGrant(decided.Permissions[0], r.Grant, decision.At)
	case r.Grant != nil:
		err = errNoStandingGrant(a)
	}
	if err != nil || counted == nil {
		return nil, decided, err
	}
	if editor := decided.CountedApprovals()[0].By; a.OriginalArgs != nil && editor != r.By.ID {
		counted.Editor = editor
	}
	if counted.Standing && decided.holdsByRecordAlone(decided.Permissions[0]) {
		counted.Permit, counted.Standing = "", false // else this run's like calls would be covered beside the record
	}
	return counted, decided, nil
}

// tallyAnswer is tallyCall for an answer to a question of the call's tool. It needs the quorum of an approval of the
// call, and all of its people must give the same answer. The newest answer of each person counts.
func (d *Desk) tallyAnswer(
	ctx context.Context, a Approval, r DecisionInput, decision Decision,
) (*run.Decided, Approval, error) {
	def, s, c, err := d.loadCall(ctx, a)
	if err != nil {
		return nil, a, err
	}
	if c.Wait == nil || c.Wait.Approval != a.ID { // a journal entry that is being written has decided the call
		return nil, a, fmt.Errorf("decide approval %s: call %s: %w", a.ID, a.Call(), ErrNothing)
	}
	fact, err := policy.ResumeInput(def, s, c, r.Result, r.By.ID, d.canDecideUnder(a, r), d.ValidateArgs)
	if err != nil {
		return nil, a, amendError(a, r, err)
	}
	quorum := a.Quorum
	if fact.Args != nil { // a new action, whose own rule applies as well (A8)
		both := a
		if rule := policy.ActionNow(def, s, c, fact.Args).Rule; rule.Verdict == agent.VerdictAsk {
			both = a.alsoRequiring(rule)
		}
		if err := both.authorizeApproval(r); err != nil {
			return nil, a, err
		}
		quorum = policy.FourEyesEdit(both.Quorum, both.FourEyes)
	}
	decision.Args, fact.Note = fact.Result, r.Note
	counted, decided := a.countQuorum(fact, decision, quorum)
	return counted, decided, nil
}

// countQuorum returns the decided request, and the fact with everybody who has made the decision. If the quorum takes
// more people, it returns the request with the decision alone.
func (a Approval) countQuorum(fact run.Decided, decision Decision, quorum int) (*run.Decided, Approval) {
	decided := a.applyDecision(fact, decision)
	counted := decided.CountedApprovals()
	if len(counted) < quorum {
		a.Decisions = decided.Decisions
		return nil, a
	}
	fact.With = peopleOf(counted[:len(counted)-1])
	return &fact, decided
}

// canDecideUnder returns a function that reports whether r's person may decide a call under a policy decision.
func (d *Desk) canDecideUnder(a Approval, r DecisionInput) func(policy.Decision) bool {
	waited := d.Clock.Now().Sub(a.RequestedAt)
	return func(dec policy.Decision) bool { return dec.MayAfter(r.By, waited) }
}

func (d *Desk) loadCall(ctx context.Context, a Approval) (*agent.Definition, *run.AgentState, run.Call, error) {
	l, err := d.Journal.Load(ctx, a.Tenant, a.Run)
	if err != nil {
		return nil, nil, run.Call{}, err
	}
	def, err := d.Definitions(ctx, a.Tenant, l.State.Definition)
	if err != nil {
		return nil, nil, run.Call{}, fmt.Errorf("decide approval %s: %w", a.ID, err)
	}
	if l.State.Status == run.RunDone {
		return nil, nil, run.Call{}, ErrFinished
	}
	c, ok := l.State.Call(a.Call())
	if !ok {
		return nil, nil, run.Call{}, fmt.Errorf("decide approval %s: call %s: %w", a.ID, a.Call(), ErrNothing)
	}
	return def, &l.State, c, nil
}

// isDecided reports whether nothing is left to decide of what r decides, and whether r repeats what was decided. If
// several people approved, it may repeat any of their approvals.
func (a Approval) isDecided(r DecisionInput) (ended, same bool) {
	if a.Kind == KindTools {
		places := a.toolPlaces(r.Tool)
		return a.Status != Pending || len(a.undecidedPlaces(places)) == 0, a.hasSameVerdicts(r, places)
	}
	otherAction := a.Kind == KindCall && r.Action == Approve && r.Digest != "" && r.Digest != a.Digest
	if ended = a.Status != Pending; len(a.Decisions) == 0 || otherAction {
		return ended, false
	}
	decisions := a.Decisions[len(a.Decisions)-1:]
	switch {
	case a.Status == Approved && a.Kind != KindOutcome:
		decisions = a.CountedApprovals()
	case !a.wasDecidedByPeople(): // the approvals had no effect: only the same person repeats one
		decisions = slices.DeleteFunc(a.CountedApprovals(), func(d Decision) bool { return d.By != r.By.ID })
	}
	return ended, slices.ContainsFunc(decisions, func(d Decision) bool { return d.matches(a.Kind, r) })
}

// hasRecorded reports whether a pending request has recorded the same decision of the same person already.
func (a Approval) hasRecorded(r DecisionInput) bool {
	switch {
	case a.Kind == KindTools:
		return r.Action == Approve && !a.hasOtherBounds(r) &&
			!slices.ContainsFunc(a.undecidedPlaces(a.toolPlaces(r.Tool)), func(i int) bool {
				return !hasDecisionBy(a.ApprovalsOf(a.Permissions[i]), r.By.ID)
			})
	case r.Action == Edit: // the digest that the person was shown is no matter: their edit has replaced the action
		counted := a.CountedApprovals()
		return len(counted) > 0 && counted[0].By == r.By.ID && counted[0].matches(a.Kind, r)
	default:
		return (r.Digest == "" || r.Digest == a.Digest) && (r.Action == Approve || r.Action == Rerun) &&
			hasDecisionBy(a.approvalsCountedWith(r), r.By.ID) && !a.hasOtherBounds(r)
	}
}

// wasDecidedByPeople reports whether people decided the request, or some of the tools of one about tools. It is false
// for a request that is pending, has expired, was cancelled with its run or voided, even if some of several people had
// approved it by then.
func (a Approval) wasDecidedByPeople() bool {
	if len(a.Decisions) == 0 {
		return false
	}
	switch last := a.Decisions[len(a.Decisions)-1]; a.Status {
	case Approved, Denied:
		return true
	case Cancelled:
		return last.Action == Cancel || last.Action == Fail
	default:
		return a.Status == Pending && a.Kind == KindTools
	}
}

// matches reports whether r is the same decision, whoever made it.
func (d Decision) matches(k Kind, r DecisionInput) bool {
	if d.Action != r.Action || !equalBounds(d.Grant, r.Grant) {
		return false
	}
	wanted := d.Args
	var err error
	switch {
	case r.Action == Edit:
		wanted, err = jsonx.CompactJSON(r.Args, jsonx.JSONLimits{})
	case r.Action == Approve && k == KindInput:
		wanted, err = policy.CompactAnswer(r.Result)
	case k == KindOutcome:
		wanted = r.reported()
	}
	return err == nil && bytes.Equal(wanted, d.Args)
}

// applyEdit replaces the call's arguments. They are checked against the schema and the deny rules as if the model had
// sent them, and get a digest of their own (A8). Editing resets all approvals. The quorum never gets smaller, and the
// approver must belong to the approvers of both actions.
// policyMark is the Policy of run.CallSuspended.
func (d *Desk) applyEdit(
	a Approval, r DecisionInput, def *agent.Definition, s *run.AgentState, c run.Call,
) (edited Approval, policyMark string, err error) {
	args, err := jsonx.CompactJSON(r.Args, jsonx.JSONLimits{})
	if err != nil {
		return a, "", &policy.EditError{Problem: err.Error()}
	}
	amended, err := policy.Amend(def, s, c, args, d.canDecideUnder(a, r), d.ValidateArgs)
	if err != nil {
		return a, "", amendError(a, r, err)
	}
	a = a.withArgs(args)
	a.Digest = amended.Digest
	asks := amended.Rule.Verdict == agent.VerdictAsk
	if asks {
		a = a.alsoRequiring(amended.Rule)
	}
	a.Quorum = policy.FourEyesEdit(a.Quorum, a.FourEyes)
	if err := a.authorizeApproval(r); err != nil {
		return a, "", err
	}
	if a.Scope == agent.ScopeTool || len(a.Permissions) == 0 {
		return a, amended.Policy, nil
	}
	a.Permissions = nil
	if asks { // else these arguments need no approval, and so nobody grants them
		c.Input = args
		a.Permissions = []Permission{callPermission(def, s, c)}
	}
	return a, amended.Policy, nil
}

// isUnchanged reports whether r is an edit to equal arguments, which is an approval, and does not repeat an edit.
func (a Approval) isUnchanged(r DecisionInput) bool {
	if last := a.lastEdit(); a.Kind != KindCall || r.Action != Edit ||
		last >= 0 && (a.Status != Pending || a.Decisions[last].By == r.By.ID) {
		return false
	}
	_, err := jsonx.CompactJSON(r.Args, jsonx.JSONLimits{})
	return err == nil && jsonx.CanonicalText(r.Args) == jsonx.CanonicalText(a.Args)
}

// CheckEdit returns the error with which Decide would refuse the edited arguments of a decision; nil = it takes them.
func (d *Desk) CheckEdit(ctx context.Context, a Approval, r DecisionInput) error {
	def, s, c, err := d.loadCall(ctx, a)
	if err == nil {
		r.confirmed = a.ChannelsOf("").ConfirmationBy(r.Via)
		_, _, err = d.applyEdit(a, r, def, s, c)
	}
	return err
}

// amendError names the person whose decision was refused, if the changed call has other approvers.
func amendError(a Approval, r DecisionInput, err error) error {
	if errors.Is(err, policy.ErrOtherApprovers) {
		err = fmt.Errorf("decide approval %s as %s: %w: %w", a.ID, r.By.ID, err, ErrForbidden)
	}
	return err
}
