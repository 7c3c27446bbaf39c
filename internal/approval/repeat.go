package approval

import (
	"bytes"
	"slices"

	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/policy"
)

// isDecided reports whether nothing is left to decide of what r decides, and whether the outcome is the same as r's.
func (a Approval) isDecided(r DecisionInput) (ended, same bool) {
	if a.Kind != KindTools {
		return a.Status != Pending, isSameDecision(a, r)
	}
	places := a.toolPlaces(r)
	return a.Status != Pending || len(a.undecidedPlaces(places)) == 0, hasSameVerdicts(a, r, places)
}

// hasRecorded reports whether a pending request has recorded the same decision of the same person already.
func (a Approval) hasRecorded(r DecisionInput) bool {
	if a.Kind == KindTools {
		return r.Action == Approve && !a.hasOtherBounds(r) &&
			!slices.ContainsFunc(a.undecidedPlaces(a.toolPlaces(r)), func(i int) bool {
				return !hasDecisionBy(a.ToolApprovals(i), r.By.ID)
			})
	}
	switch {
	case r.Action == Edit: // the digest that the person was shown is no matter: their edit has replaced the action
		counted := a.CountedApprovals()
		return len(counted) > 0 && counted[0].By == r.By.ID && counted[0].matches(a.Kind, r)
	case r.Digest != "" && r.Digest != a.Digest:
		return false
	case r.Action == Approve || r.Action == Rerun:
		return hasDecisionBy(a.approvalsCountedWith(r), r.By.ID) && !a.hasOtherBounds(r)
	default:
		return false
	}
}

func hasDecisionBy(all []Decision, person string) bool {
	return slices.ContainsFunc(all, func(d Decision) bool { return d.By == person })
}

// isSameDecision reports whether r repeats the decision on the request. If several people approved, it may repeat any
// of their approvals.
func isSameDecision(a Approval, r DecisionInput) bool {
	otherAction := a.Kind == KindCall && r.Action == Approve && r.Digest != "" && r.Digest != a.Digest
	if len(a.Decisions) == 0 || otherAction {
		return false
	}
	decisions := a.Decisions[len(a.Decisions)-1:]
	switch {
	case a.Status == Approved && a.Kind != KindOutcome:
		decisions = a.CountedApprovals()
	case !a.wasDecidedByPeople(): // the approvals had no effect: only the same person repeats one
		decisions = slices.DeleteFunc(a.CountedApprovals(), func(d Decision) bool { return d.By != r.By.ID })
	}
	return slices.ContainsFunc(decisions, func(d Decision) bool { return d.matches(a.Kind, r) })
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
	case Pending:
		return a.Kind == KindTools
	default:
		return false
	}
}

func (d Decision) matches(k Kind, r DecisionInput) bool {
	if d.Action != r.Action || !equalBounds(d.Grant, r.Grant) {
		return false
	}
	switch {
	case r.Action == Approve && k == KindInput:
		answer, err := policy.CompactAnswer(r.Result)
		return err == nil && bytes.Equal(answer, d.Args)
	case k == KindOutcome:
		return bytes.Equal(r.reported(), d.Args)
	case r.Action != Edit:
		return true
	}
	args, err := jsonx.CompactJSON(r.Args, jsonx.JSONLimits{})
	return err == nil && bytes.Equal(args, d.Args)
}
