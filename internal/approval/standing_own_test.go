package approval_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
)

// TestA10StandingGrantIsNoApprovalOfOnesOwnRun: a standing grant does not let the people who gave it have their own runs go on where that takes four eyes,
// be it that they gave it in their own name, as one of several, or that somebody gave it in theirs.
func TestA10StandingGrantIsNoApprovalOfOnesOwnRun(t *testing.T) {
	rule := agent.Rule{FourEyes: true, Quorum: 2}
	standing := func(r *room) {
		r.def.Permission.Grants = agent.GrantsStanding
		r.by = []string{"user:zoe"}
	}
	for _, scope := range []agent.Scope{agent.ScopeCall, agent.ScopeTool} {
		asking(t, rule, func(t *testing.T, r *room) {
			desk := r.desk()
			desk.Duties = func(_ context.Context, _ string, p agent.Principal, _ time.Time) ([]agent.Principal, error) {
				return map[string][]agent.Principal{"user:eve": {cem}}[p.ID], nil
			}
			for _, p := range []agent.Principal{ana, stranger} {
				_, err := desk.Decide(r.ctx, r.request(approval.Approve, p))
				require.NoError(t, err)
			}
			require.Len(t, r.standing(), 1)
			require.False(t, r.again("zoe"), "others are covered")
			for _, own := range []agent.Principal{ana, stranger, cem} {
				r.by = []string{own.ID}
				require.True(t, r.again("own "+own.ID), "%s: %s gave it", scope, own.ID)
				_, err := r.decide(approval.Approve, own)
				require.ErrorIs(t, err, approval.ErrForbidden)
			}
		}, standing, func(r *room) { r.def.Permission.Scope = scope })
	}
	asking(t, agent.Rule{Quorum: 2}, func(t *testing.T, r *room) {
		for _, p := range []agent.Principal{ana, ben} {
			_, err := r.decide(approval.Approve, p)
			require.NoError(t, err)
		}
		r.by = []string{"user:ana"}
		require.False(t, r.again("ana"), "nobody asked for four eyes")
	}, standing)
}
