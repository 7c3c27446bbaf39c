package approval

import (
	"fmt"
	"slices"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
)

// ApproversAt returns the approvers at that time, and the sets that an approver must belong to as well. After the
// escalation they include the escalation's people. Of KindTools, see Permissions.
func (a Approval) ApproversAt(now time.Time) (approvers []string, above [][]string) {
	if !a.hasEscalated(now) {
		return a.Approvers, a.Above
	}
	return slices.Concat(a.Approvers, a.EscalateTo), policy.Widened(a.Above, a.AboveTo)
}

// hasEscalated depends on the time alone. No process has to have recorded the escalation.
func (a Approval) hasEscalated(now time.Time) bool {
	return !a.EscalatesAt.IsZero() && !now.Before(a.EscalatesAt)
}

// CanDecide reports whether p is among the approvers at that time. It ignores four eyes and earlier decisions of p. An
// empty set of approvers means nobody.
func (a Approval) CanDecide(p policy.Principal, now time.Time) bool {
	approvers, above := a.ApproversAt(now)
	return policy.MayDecideEach(p, approvers, above)
}

// canDecideCall is CanDecide for one of the calls of a request about tools.
func (a Approval) canDecideCall(p policy.Principal, b BlockedCall, now time.Time) bool {
	if !a.hasEscalated(now) {
		return policy.MayDecideEach(p, b.Approvers, b.Above)
	}
	return policy.MayDecideEach(p, slices.Concat(b.Approvers, b.EscalateTo), policy.Widened(b.Above, b.AboveTo))
}

// canDecideAll reports whether p is an approver of everything that r decides. A Fail decides every open tool.
func (a Approval) canDecideAll(p policy.Principal, r DecisionInput, now time.Time) bool {
	if r.Action == Fail {
		r.Tool = ""
	}
	return a.CanDecide(p, now) && !slices.ContainsFunc(a.toolPlaces(r), func(i int) bool {
		return slices.ContainsFunc(a.Permissions[i].Calls, func(b BlockedCall) bool { return !a.canDecideCall(p, b, now) })
	})
}

// isApproving reports whether the action lets something run: four eyes forbid it to the people for whom the run acts,
// and it counts by the channels of the rule alone. Denials and cancellations are safe.
func isApproving(a Action) bool { return a == Approve || a == Edit || a == actionRerun }

// authorizeDecision is the only place that decides who may make a decision (A9), whichever channel it came by.
func (a Approval) authorizeDecision(r DecisionInput, now time.Time) error {
	if !r.Action.Valid() {
		return fmt.Errorf("decide approval %s: action %q: %w", a.ID, r.Action, ErrKind)
	}
	return a.authorizePerson(r, a.canDecideAll(r.By, r, now))
}

// authorizePerson refuses a person who may not make the decision. isApprover says whether the person is an approver of
// everything that is decided.
func (a Approval) authorizePerson(r DecisionInput, isApprover bool) error {
	switch {
	case !policy.MayDecide([]string{r.By.ID}, r.By): // nobody
		return fmt.Errorf("decide approval %s as %q: %w", a.ID, r.By.ID, ErrForbidden)
	case isApproving(r.Action) && a.FourEyes && slices.Contains(a.Requesters, r.By.ID):
		return fmt.Errorf("decide approval %s as %s: %w", a.ID, r.By.ID, ErrRequester)
	case !isApprover:
		return fmt.Errorf("decide approval %s as %s: %w", a.ID, r.By.ID, ErrForbidden)
	}
	return a.authorizeChannel(r)
}

// ChannelsOf returns the channels by which what r decides is approved.
func (a Approval) ChannelsOf(r DecisionInput) agent.Channels {
	c := a.Channels
	for _, i := range a.toolPlaces(r) {
		for _, b := range a.Permissions[i].Calls {
			c = c.Narrow(b.Channels)
		}
	}
	return c
}

// authorizeChannel refuses an approval by a channel that does not count.
func (a Approval) authorizeChannel(r DecisionInput) error {
	if c := a.ChannelsOf(r); isApproving(r.Action) && !c.Count(r.Via, r.confirmed) {
		return &ChannelError{ID: a.ID, Via: r.Via, Allowed: c}
	}
	return nil
}

// needsCode reports whether the decision counts with a code alone.
func (a Approval) needsCode(r DecisionInput) bool {
	return isApproving(r.Action) && a.ChannelsOf(r).TakeCode(r.Via)
}

// validateDecision refuses a decision that does not go with the kind of request.
func (a Approval) validateDecision(r DecisionInput) error {
	var problem string
	switch {
	case a.Kind == KindOutcome:
		problem = fmt.Sprintf("it asks what became of call %s; answer it with a result, an error or a rerun", a.Call())
	case a.Kind == KindInput && r.Action == Edit:
		problem = "it asks for input, which is no edit: approve it with a result"
	case r.Result != nil && (r.Action != Approve || a.Kind != KindInput && string(r.Result) != "true"):
		problem = "a result answers what a tool asks and goes with nothing else"
	case a.Kind != KindTools && (r.Action == Fail || r.Tool != ""):
		problem = fmt.Sprintf("it is about call %s, not about tools", a.Call())
	case (r.Action == Edit) != (r.Args != nil):
		problem = "arguments go with an edit and with nothing else"
	case a.Kind == KindTools && r.Action == Edit:
		problem = "it is about tools, so no arguments can be edited"
	case a.Kind == KindTools && r.Tool != "" && len(a.toolPlaces(r)) == 0:
		problem = fmt.Sprintf("it does not ask about tool %q", r.Tool)
	default:
		return nil
	}
	return fmt.Errorf("decide approval %s: %s: %w", a.ID, problem, ErrKind)
}
