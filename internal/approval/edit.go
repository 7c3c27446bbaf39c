package approval

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/policy"
)

// applyEdit replaces the call's arguments. They are checked against the schema and the deny rules as if the model had
// sent them, and get a digest of their own (A8). Editing resets all approvals. The quorum never gets smaller, and the
// approver must belong to the approvers of both actions.
func (d *Desk) applyEdit(
	a Approval, r DecisionInput, on pendingAction,
) (edited Approval, args json.RawMessage, policyName string, err error) {
	if args, err = jsonx.CompactJSON(r.Args, jsonx.JSONLimits{}); err != nil {
		return a, nil, "", &EditError{Problem: err.Error()}
	}
	amended, err := policy.Amend(on.def, on.s, on.c, args, d.canDecideUnder(a, r), d.ValidateArgs)
	if err != nil {
		return a, nil, "", amendError(a, r, err)
	}
	a = a.withArgs(args)
	a.Digest = amended.Digest
	asks := amended.Rule.Verdict == agent.VerdictAsk
	if asks {
		a = a.alsoRequiring(amended.Rule)
	}
	a.Quorum = policy.FourEyesEdit(a.Quorum, a.FourEyes)
	if err := a.authorizeApproval(r); err != nil {
		return a, nil, "", err
	}
	if a.Scope == agent.ScopeTool || len(a.Permissions) == 0 {
		return a, args, amended.Policy, nil
	}
	a.Permissions = nil
	if asks { // else these arguments need no approval, and so nobody grants them
		on.c.Input = args
		a.Permissions = []Permission{callPermission(on.def, on.s, on.c)}
	}
	return a, args, amended.Policy, nil
}

// alsoRequiring returns the request with the requirements of a second policy decision added. No requirement gets
// weaker: two equal sets of approvers are different if they escalate to different people.
func (a Approval) alsoRequiring(dec policy.Decision) Approval {
	a.Quorum, a.FourEyes = max(a.Quorum, dec.People()), a.FourEyes || dec.FourEyes
	a.Channels = a.Channels.Narrow(dec.Channels)
	a.Above, a.AboveTo = slices.Clone(a.Above), slices.Clone(a.AboveTo)
	sameSet := func(x, y []string) bool { return slices.Equal(sortedSet(x), sortedSet(y)) }
	require := func(approvers, to []string) {
		same := func(have, later []string) bool {
			return sameSet(have, approvers) && (a.EscalatesAt.IsZero() || sameSet(later, to))
		}
		if same(a.Approvers, a.EscalateTo) {
			return
		}
		for i, have := range a.Above {
			var later []string
			if i < len(a.AboveTo) {
				later = a.AboveTo[i]
			}
			if same(have, later) {
				return
			}
		}
		a.Above = append(a.Above, approvers)
		if len(to) > 0 && !a.EscalatesAt.IsZero() {
			a.AboveTo = append(append(a.AboveTo, make([][]string, len(a.Above)-1-len(a.AboveTo))...), to)
		}
	}
	var to []string
	if dec.Escalate != nil {
		to = dec.Escalate.To
		if at := a.RequestedAt.Add(dec.Escalate.After); !a.EscalatesAt.IsZero() && at.After(a.EscalatesAt) {
			a.EscalatesAt = at
		}
	}
	require(dec.Approvers, to)
	for i, approvers := range dec.Above {
		to = nil
		if i < len(dec.AboveTo) {
			to = dec.AboveTo[i]
		}
		require(approvers, to)
	}
	return a
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
