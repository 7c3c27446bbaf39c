package approval

import (
	"bytes"
	"slices"

	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/policy"
)

// isEdited reports whether the request is about another action than it was made for. Who approves it then has to say
// that this is what they have seen.
func (a Approval) isEdited() bool {
	return slices.ContainsFunc(a.Decisions, func(d Decision) bool { return d.Action == Edit })
}

// isDecided reports whether there is nothing left to decide of what r decides, and whether that has come out as r says.
func (a Approval) isDecided(r DecisionInput) (ended, same bool) {
	if a.Kind != KindTools {
		return a.Status != Pending, isSameDecision(a, r)
	}
	places := a.toolPlaces(r)
	return a.Status != Pending || len(a.undecidedPlaces(places)) == 0, hasSameVerdicts(a, r, places)
}

// hasRecorded reports whether the person has said that already, of a request that goes on.
func (a Approval) hasRecorded(r DecisionInput) bool {
	if a.Kind == KindTools {
		return r.Action == Approve && !a.hasOtherBounds(r) && !slices.ContainsFunc(a.undecidedPlaces(a.toolPlaces(r)), func(i int) bool { return !hasDecisionBy(a.ToolApprovals(i), r) })
	}
	switch {
	case r.Action == Edit: // whatever they were shown: the request is about what they say since
		of := a.CountedApprovals()
		return len(of) > 0 && of[0].By == r.By.ID && of[0].matches(a.Kind, r)
	case r.Digest != "" && r.Digest != a.Digest:
		return false
	case r.Action == Approve:
		return hasDecisionBy(a.approvalsCountedWith(r), r) && !a.hasOtherBounds(r)
	default:
		return false
	}
}

func hasDecisionBy(all []Decision, r DecisionInput) bool {
	return slices.ContainsFunc(all, func(d Decision) bool { return d.By == r.By.ID })
}

// isSameDecision reports whether r says what was said of the request: of an approval of several people, what any of them
// said.
func isSameDecision(a Approval, r DecisionInput) bool {
	shown := a.Kind != KindCall || r.Action != Approve || r.Digest == "" || r.Digest == a.Digest // whoever approves something else says something else
	if len(a.Decisions) == 0 || !shown {
		return false
	}
	of := a.Decisions[len(a.Decisions)-1:]
	switch {
	case a.Status == Approved:
		of = a.CountedApprovals()
	case !a.wasDecidedByPeople(): // what some have said came to nothing: nobody else has said the same
		of = slices.DeleteFunc(a.CountedApprovals(), func(d Decision) bool { return d.By != r.By.ID })
	}
	return slices.ContainsFunc(of, func(d Decision) bool { return d.matches(a.Kind, r) })
}

// wasDecidedByPeople reports whether it was people who have settled the request, or of one about tools, some of them. Else it is
// pending, has expired, was called off with its run or overtaken, whatever some of several people had said by then.
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
	case r.Action != Edit:
		return true
	}
	args, err := jsonx.CompactJSON(r.Args, jsonx.JSONLimits{})
	return err == nil && bytes.Equal(args, d.Args)
}
