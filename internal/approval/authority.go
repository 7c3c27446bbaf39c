package approval

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/countersign/countersign/internal/policy"
)

// ApproversAt are those among whom a person who decides has to be at that time: the approvers, and each set above. Of KindTools, see Permissions.
func (a Approval) ApproversAt(now time.Time) (approvers []string, above [][]string) {
	if !a.hasEscalated(now) {
		return a.Approvers, a.Above
	}
	return slices.Concat(a.Approvers, a.EscalateTo), policy.Widened(a.Above, a.AboveTo)
}

// hasEscalated is a matter of time alone: nobody has to have noticed.
func (a Approval) hasEscalated(now time.Time) bool {
	return !a.EscalatesAt.IsZero() && !now.Before(a.EscalatesAt)
}

// CanDecide reports whether p is among the approvers at that time. Whom four eyes or a former decision keep from
// approving is not looked at. Empty sets mean nobody.
func (a Approval) CanDecide(p policy.Principal, now time.Time) bool {
	approvers, above := a.ApproversAt(now)
	return policy.MayDecideEach(p, approvers, above)
}

// canDecideCall is MayDecide of a call among those of a request about tools.
func (a Approval) canDecideCall(p policy.Principal, b BlockedCall, now time.Time) bool {
	if !a.hasEscalated(now) {
		return policy.MayDecideEach(p, b.Approvers, b.Above)
	}
	return policy.MayDecideEach(p, slices.Concat(b.Approvers, b.EscalateTo), policy.Widened(b.Above, b.AboveTo))
}

// CountedApprovals are the approvals that count towards the quorum, in order: those behind the last edit, which is one itself. Of what a tool asks they are
// the newest answers of those who have answered alike most recently; of a rerun, the orders to do it. Of KindTools, see Granting.
func (a Approval) CountedApprovals() []Decision {
	switch a.Kind {
	case KindInput:
		return a.matchingAnswers(a.lastAnswer())
	case KindOutcome:
		return firstPerPerson(filterByAction(a.Decisions, actionRerun))
	default:
		from := 0
		for i, d := range a.Decisions {
			if d.Action == Edit {
				from = i
			}
		}
		return firstPerPerson(filterByAction(a.Decisions[from:], Approve, Edit))
	}
}

// ToolApprovals are the approvals of the tool at a place of a request about tools, in order.
func (a Approval) ToolApprovals(place int) []Decision {
	return a.approvalsOfTool(a.Permissions[place].Tool)
}

func (a Approval) approvalsOfTool(tool string) []Decision {
	return firstPerPerson(slices.DeleteFunc(filterByAction(a.Decisions, Approve), func(d Decision) bool { return !slices.Contains(d.Tools, tool) }))
}

func filterByAction(all []Decision, actions ...Action) []Decision {
	var counted []Decision
	for _, d := range all {
		if slices.Contains(actions, d.Action) {
			counted = append(counted, d)
		}
	}
	return counted
}

// firstPerPerson are the first decisions of each person.
func firstPerPerson(all []Decision) []Decision {
	var first []Decision
	for _, d := range all {
		if !slices.ContainsFunc(first, func(have Decision) bool { return have.By == d.By }) {
			first = append(first, d)
		}
	}
	return first
}

// lastAnswer is the newest answer to what a tool asks; nil where there is none.
func (a Approval) lastAnswer() json.RawMessage {
	for _, d := range slices.Backward(a.Decisions) {
		if d.Action == Approve {
			return d.Args
		}
	}
	return nil
}

// matchingAnswers are the newest answers of people that are this one.
func (a Approval) matchingAnswers(answer json.RawMessage) []Decision {
	var newest []Decision
	for _, d := range filterByAction(a.Decisions, Approve) {
		newest = slices.DeleteFunc(newest, func(have Decision) bool { return have.By == d.By })
		newest = append(newest, d)
	}
	return slices.DeleteFunc(newest, func(d Decision) bool { return !bytes.Equal(d.Args, answer) })
}

// isApproving reports whether an action is one that four eyes keep from the people for whom the run acts.
func isApproving(a Action) bool { return a == Approve || a == Edit || a == actionRerun }

// authorizePerson refuses a person who may not make such a decision. among reports whether somebody is an approver of
// all that is decided.
func (a Approval) authorizePerson(r DecisionInput, among func(policy.Principal) bool) error {
	switch {
	case !policy.MayDecide([]string{r.By.ID}, r.By): // nobody
		return fmt.Errorf("decide approval %s as %q: %w", a.ID, r.By.ID, ErrForbidden)
	case isApproving(r.Action) && a.FourEyes && slices.Contains(a.Requesters, r.By.ID):
		return fmt.Errorf("decide approval %s as %s: %w", a.ID, r.By.ID, ErrRequester)
	case !among(r.By):
		return fmt.Errorf("decide approval %s as %s: %w", a.ID, r.By.ID, ErrForbidden)
	}
	return nil
}
