package approval

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

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

func peopleOf(all []Decision) []string { return run.Map(all, func(d Decision) string { return d.By }) }

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

// countedWith returns the approvals that the decision would be counted with: those of the call, or of each undecided
// tool that it decides. An edit starts a new count.
func (t *attempt) countedWith() (each [][]Decision) {
	switch a := t.request; {
	case t.Action == Edit:
		return nil
	case a.Kind == KindInput:
		return [][]Decision{a.matchingAnswers(t.record.Args)}
	case a.Kind != KindTools:
		return [][]Decision{a.CountedApprovals()}
	default:
		for _, p := range a.undecided(t.Tool) {
			each = append(each, a.ApprovalsOf(p))
		}
		return each
	}
}

// hasOtherBounds reports whether the person has approved already, with other bounds than the decision sets. A decision
// without bounds sets no others.
func (t *attempt) hasOtherBounds() bool {
	isOther := func(d Decision) bool { return d.By == t.By.ID && !equalBounds(d.Grant, t.Grant) }
	return t.Grant != nil && slices.ContainsFunc(slices.Concat(t.countedWith()...), isOther)
}

// findRepeated reports whether nothing is left to decide of what the decision decides, and whether it is on record
// already. It may repeat any of several people's approvals of a decided request, and those of its own person of one
// that waits.
func (t *attempt) findRepeated() (ended, same bool) {
	a, n := t.request, t.record
	isShown := t.Digest == "" || t.Digest == a.Digest
	switch counted := a.CountedApprovals(); {
	case a.Kind == KindTools && (a.Status != Pending || len(a.undecided(t.Tool)) == 0):
		return true, a.hasSameVerdicts(n, t.Tool)
	case a.Status == Pending && t.Action == Edit: // their edit has replaced what they were shown
		return false, len(counted) > 0 && counted[0].By == n.By && counted[0].equals(n)
	case a.Status == Pending:
		isNew := func(approvals []Decision) bool { return !hasDecisionBy(approvals, n.By) }
		return false, isShown && (t.Action == Approve || t.Action == Rerun) && !t.hasOtherBounds() &&
			!slices.ContainsFunc(t.countedWith(), isNew)
	case len(a.Decisions) == 0 || a.Kind == KindCall && t.Action == Approve && !isShown:
		return true, false
	case a.Status == Approved && a.Kind != KindOutcome:
		return true, slices.ContainsFunc(counted, n.equals)
	case a.wasDecidedByPeople():
		return true, a.Decisions[len(a.Decisions)-1].equals(n)
	default: // the approvals had no effect: only the same person repeats one
		return true, slices.ContainsFunc(counted, func(d Decision) bool { return d.By == n.By && d.equals(n) })
	}
}

// wasDecidedByPeople reports whether people decided the request as a whole. It is false for a request that is pending,
// has expired, was cancelled with its run or voided, even if some of several people had approved it by then.
func (a Approval) wasDecidedByPeople() bool {
	if len(a.Decisions) == 0 {
		return false
	}
	last := a.Decisions[len(a.Decisions)-1].Action
	return a.Status == Approved || a.Status == Denied || a.Status == Cancelled && (last == Cancel || last == Fail)
}

// equals reports whether n is the same decision, whoever made it.
func (d Decision) equals(n Decision) bool {
	return d.Action == n.Action && equalBounds(d.Grant, n.Grant) && bytes.Equal(d.Args, n.Args)
}

// tally adds the decision to the request, and makes the fact for the run. There is no fact if the quorum takes more
// people. A denial or cancellation needs no quorum.
func (t *attempt) tally(ctx context.Context) (err error) {
	a := t.request
	switch {
	case t.now.UnixMilli() >= a.ExpiresAt.UnixMilli() && a.Kind != KindOutcome: // as the condition of DecideOp
		return fmt.Errorf("decide approval %s: %w", a.ID, ErrExpired)
	case cmp.Or(t.Digest, a.Digest) != a.Digest, t.Digest == "" && t.Action == Approve && a.lastEdit() >= 0:
		return &StaleError{Approval: a}
	case t.hasOtherBounds():
		return &GrantError{Problem: "grant: got other bounds than those with which you have approved already"}
	}
	t.Digest = a.Digest // a decision without one is on the arguments as they are now
	t.decided, t.grants = a, decisionGrants{}
	t.fact = &run.Decided{
		Call: a.Call(), Approval: a.ID, Action: run.ActionApprove, By: t.By.ID, Digest: a.Digest, Note: t.Note,
	}
	switch {
	case a.Kind == KindTools:
		err = t.tallyTools(ctx)
	case a.Kind == KindOutcome:
		err = t.tallyOutcome(ctx)
	case t.Action == Deny:
		t.fact.Action, t.fact.Text = run.ActionDeny, agent.TextDenied(t.By.ID, t.Note)
		if a.Scope == agent.ScopeTool && len(a.Permissions) == 1 {
			t.fact.Permit = a.Permissions[0].Digests[0]
		}
		t.count(0)
	case t.Action == Cancel:
		t.fact.Action, t.fact.Text = run.ActionCancel, agent.TextCallCancelled(t.By.ID, t.Note)
		t.count(0)
	case a.Kind == KindInput:
		err = t.tallyAnswer(ctx)
	default:
		err = t.tallyApproval(ctx)
	}
	if errors.Is(err, policy.ErrOtherApprovers) {
		err = fmt.Errorf("decide approval %s as %s: %w: %w", a.ID, t.By.ID, err, ErrForbidden)
	}
	if err != nil || t.decided.Status == Voided {
		return err
	}
	return t.tallyGrants()
}

// count adds the decision of a call to the request. If the quorum takes more people, there is no fact, and the request
// gets the decision alone. Else the fact names everybody who has made the decision. Quorum 0 counts nobody.
func (t *attempt) count(quorum int) {
	a := t.decided
	t.decided = a.applyDecision(*t.fact, t.record)
	if quorum == 0 {
		return
	}
	counted := t.decided.CountedApprovals()
	if len(counted) < quorum {
		a.Decisions = t.decided.Decisions
		t.decided, t.fact = a, nil
		return
	}
	t.fact.With = peopleOf(counted[:len(counted)-1])
	if editor := counted[0].By; a.OriginalArgs != nil && editor != t.By.ID {
		t.fact.Editor = editor
	}
}

// tallyOutcome counts a report of what happened to an interrupted call, which needs no quorum, or an order to run it
// again, which needs that of the approval, if the call was approved. The model is told the report and, if the arguments
// were edited, the edited ones (A8).
func (t *attempt) tallyOutcome(ctx context.Context) error {
	if err := t.loadCall(ctx); err != nil {
		return err
	}
	quorum := 0
	if t.Action != Rerun { // as a tool result of the agent is shortened; the request keeps all of it
		t.fact.Text = prompt.ShowResult(t.def, agent.ToolSpec{}, t.call.ID, t.Content, false).Text
		if by := t.call.Editor(); by != "" {
			t.fact.Text = agent.TextEdited(by, string(t.call.Input)) + t.fact.Text
		}
	} else if t.needsApprover() {
		quorum = t.request.Quorum
	}
	t.count(quorum)
	return nil
}

// tallyApproval counts an approval or an edit of a call. If decisions are about tools, an approval covers the call's
// tool, and an edit only its own arguments. If an approval grants the exact arguments, an edit grants the edited ones.
func (t *attempt) tallyApproval(ctx context.Context) error {
	err := t.loadCall(ctx)
	if err != nil && (t.Action == Edit || !errors.Is(err, store.ErrNoBlob)) { // without a blob it cannot go on anyway
		return err
	}
	a, fact := t.request, t.fact
	var is policy.Amended // the action that the decision allows
	if t.isWaiting() {
		is = policy.ActionNow(t.def, &t.loaded.State, t.call, a.Args)
		sameArgs := a.OriginalArgs != nil || bytes.Equal(a.Args, t.call.Input) // the digest alone binds edited arguments
		// The people were shown another action than would run: either the policy has changed (A17), or the request's
		// arguments are not the call's (A22).
		if !sameArgs || is.Digest != a.Digest || is.Rule.Verdict == agent.VerdictDeny {
			t.fact = &run.Decided{Call: a.Call(), Approval: a.ID, Action: run.ActionAskAgain, By: "policy"}
			t.decided.Status = Voided
			return nil
		}
	}
	if t.Action == Edit {
		// The arguments are checked against the schema and the deny rules as if the model had sent them, and get a digest of
		// their own (A8). Editing resets all approvals. The approver must belong to the approvers of both actions.
		if _, err = jsonx.CompactJSON(t.Args, jsonx.JSONLimits{}); err != nil {
			return &policy.EditError{Problem: err.Error()}
		}
		is, err = policy.Amend(t.def, &t.loaded.State, t.call, t.record.Args, t.mayDecide, t.ValidateArgs)
		if err != nil {
			return err
		}
		a = a.withArgs(t.record.Args).underEdit(is.Rule)
		if err := t.authorizeApproval(a); err != nil {
			return err
		}
		a.Digest, t.record.Digest = is.Digest, is.Digest
		if a.Scope != agent.ScopeTool && is.Rule.Verdict != agent.VerdictAsk { // nobody grants what needs no approval
			a.Permissions = nil
		}
	}
	if fact.Digest = a.Digest; a.OriginalArgs != nil {
		fact.Args, fact.Policy = a.Args, is.Policy
	}
	if t.decided = a; len(a.Permissions) > 0 {
		t.readGrants()
		a = t.decided
	}
	if len(a.Permissions) == 1 && (a.Scope != agent.ScopeTool || a.OriginalArgs == nil) {
		fact.Permit = a.Permissions[0].Digests[0]
		fact.Once, fact.Standing = a.Grants == agent.GrantsOnce, a.Grants == agent.GrantsStanding
	}
	t.count(a.Quorum)
	return nil
}

// tallyAnswer counts an answer to a question of the call's tool. It needs the quorum of an approval of the call, and
// all of its people must give the same answer. The newest answer of each person counts.
func (t *attempt) tallyAnswer(ctx context.Context) error {
	if err := t.loadCall(ctx); err != nil {
		return err
	}
	a, s := t.request, &t.loaded.State
	if !t.isWaiting() {
		return fmt.Errorf("decide approval %s: call %s: %w", a.ID, a.Call(), ErrNothing)
	}
	fact, err := policy.ResumeInput(t.def, s, t.call, t.Result, t.By.ID, t.mayDecide, t.ValidateArgs)
	if err != nil {
		return err
	}
	if fact.Args != nil { // a new action, whose own rule applies as well (A8)
		a = a.underEdit(policy.ActionNow(t.def, s, t.call, fact.Args).Rule)
		if err := t.authorizeApproval(a); err != nil {
			return err
		}
	}
	fact.Note, t.fact = t.Note, &fact
	t.count(a.Quorum)
	return nil
}

// isWaiting reports whether the call waits for the request. Else a journal entry that is being written has decided the
// call.
func (t *attempt) isWaiting() bool { return t.call.Wait != nil && t.call.Wait.Approval == t.ID }

// mayDecide reports whether the person may decide a call under a policy decision.
func (t *attempt) mayDecide(dec policy.Decision) bool {
	return dec.MayAfter(t.By, t.now.Sub(t.request.RequestedAt))
}
