package approval_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/policy"
)

// TestA10StandingGrantIsNoApprovalOfOnesOwnRun: a standing grant does not let the people who gave it have their own
// runs go on where that takes four eyes.
func TestA10StandingGrantIsNoApprovalOfOnesOwnRun(t *testing.T) {
	rule := agent.Rule{FourEyes: true, Quorum: 2}
	standing := func(r *fixture) {
		r.def.Permission.Grants = agent.GrantsStanding
		r.starters = []string{"user:zoe"}
	}
	for _, scope := range []agent.Scope{agent.ScopeCall, agent.ScopeTool} {
		withRule(t, rule, func(t *testing.T, r *fixture) {
			for _, p := range []policy.Principal{ana, cem} {
				r.must(r.decide(approval.Approve, p))
			}
			require.Len(t, r.listStanding(), 1)
			require.False(t, r.startNextRun("zoe"), "others are covered")
			for _, own := range []policy.Principal{ana, cem} {
				r.starters = []string{own.ID}
				require.True(t, r.startNextRun("own "+own.ID), "%s: %s gave it", scope, own.ID)
				require.ErrorIs(t, errOf(r.decide(approval.Approve, own)), approval.ErrForbidden)
			}
		}, standing, func(r *fixture) { r.def.Permission.Scope = scope })
	}
	withRule(t, agent.Rule{Quorum: 2}, func(t *testing.T, r *fixture) {
		for _, p := range []policy.Principal{ana, ben} {
			r.must(r.decide(approval.Approve, p))
		}
		r.starters = []string{"user:ana"}
		require.False(t, r.startNextRun("ana"), "nobody asked for four eyes")
	}, standing)
}
