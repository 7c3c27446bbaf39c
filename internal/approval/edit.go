package approval

import (
	"errors"
	"fmt"
	"slices"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

// applyEdit replaces the call's arguments. They are checked against the schema and the deny rules as if the model had
// sent them, and get a digest of their own (A8). Editing resets all approvals. The quorum never gets smaller, and the
// approver must belong to the approvers of both actions.
//
// policyMark is that of agent.CallSuspended.
func (d *Desk) applyEdit(
	a Approval, r DecisionInput, def *agent.Definition, s *run.AgentState, c run.Call,
) (edited Approval, policyMark string, err error) {
	args, err := jsonx.CompactJSON(r.Args, jsonx.JSONLimits{})
	if err != nil {
		return a, "", &EditError{Problem: err.Error()}
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

// alsoRequiring returns the request with the requirements of a second policy decision added. No requirement gets
// weaker: two equal sets of approvers are different if they escalate to different people.
func (a Approval) alsoRequiring(dec policy.Decision) Approval {
	a.Quorum, a.FourEyes = max(a.Quorum, dec.People()), a.FourEyes || dec.FourEyes
	a.Channels = a.Channels.Narrow(dec.Channels)
	escalates, to := !a.EscalatesAt.IsZero(), []string(nil)
	if dec.Escalate != nil {
		to = dec.Escalate.To
		if at := a.RequestedAt.Add(dec.Escalate.After); escalates && at.After(a.EscalatesAt) {
			a.EscalatesAt = at
		}
	}
	// Each set of approvers, and at the same place who joins it at the escalation; there may be fewer of these.
	sets, joins := slices.Concat([][]string{a.Approvers}, a.Above), slices.Concat([][]string{a.EscalateTo}, a.AboveTo)
	more, moreJoins := slices.Concat([][]string{dec.Approvers}, dec.Above), slices.Concat([][]string{to}, dec.AboveTo)
	for i, set := range more {
		to := setAt(moreJoins, i)
		known := false
		for j, have := range sets {
			known = known || sameSet(have, set) && (!escalates || sameSet(setAt(joins, j), to))
		}
		if known {
			continue
		}
		sets = append(sets, set)
		if len(to) > 0 && escalates {
			joins = append(append(joins, make([][]string, len(sets)-1-len(joins))...), to)
		}
	}
	a.Above, a.AboveTo = sets[1:], joins[1:]
	return a
}

func sameSet(x, y []string) bool { return slices.Equal(sortedSet(x), sortedSet(y)) }

// setAt returns the set at a place; nil where there is none.
func setAt(sets [][]string, i int) []string {
	if i < len(sets) {
		return sets[i]
	}
	return nil
}

// amendError translates an error of package policy about changed arguments into the desk's.
func amendError(a Approval, r DecisionInput, err error) error {
	var refused *policy.AmendError
	switch {
	case errors.As(err, &refused):
		return &EditError{Problem: refused.Problem}
	case errors.Is(err, policy.ErrOtherApprovers):
		return fmt.Errorf("decide approval %s as %s: %w: %w", a.ID, r.By.ID, err, ErrForbidden)
	default:
		return err
	}
}
