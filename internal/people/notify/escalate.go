package notify

import (
	"slices"
	"time"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/policy"
)

// isEscalationDue reports whether the time has come, and nobody has said so.
func isEscalationDue(a approval.Approval, now time.Time) bool {
	return a.Status == approval.Pending && !a.EscalatesAt.IsZero() && a.EscalatedAt.IsZero() && !now.Before(a.EscalatesAt) && now.Before(a.ExpiresAt)
}

// escalatedApprovers are those who decide as well by now.
func escalatedApprovers(a approval.Approval) []string {
	if a.EscalatedAt.IsZero() {
		return nil
	}
	return a.EscalateTo
}

// mayDecide reports whether who is among those who decide.
func mayDecide(a approval.Approval, who policy.Principal, now time.Time) bool {
	return a.CanDecide(who, now)
}

// mayDecideCall is mayDecide of a call among those of a request about tools.
func mayDecideCall(a approval.Approval, c approval.BlockedCall, who policy.Principal, _ time.Time) bool {
	if a.EscalatedAt.IsZero() {
		return policy.MayDecideEach(who, c.Approvers, c.Above)
	}
	return policy.MayDecideEach(who, slices.Concat(c.Approvers, c.EscalateTo), policy.Widened(c.Above, c.AboveTo))
}
