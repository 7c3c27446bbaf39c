package approval_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
)

// policyMode is the mode and scope of a permission policy.
type policyMode struct {
	mode  agent.PermissionMode
	scope agent.Scope
}

func (p policyMode) String() string { return string(p.mode) + " " + string(p.scope) }

var (
	replaysTool = policyMode{agent.ModeSuspendAndReplay, agent.ScopeTool}
	replaysCall = policyMode{agent.ModeSuspendAndReplay, agent.ScopeCall}
	blocksTool  = policyMode{agent.ModeBlockAndRetry, agent.ScopeTool}
	blocksCall  = policyMode{agent.ModeBlockAndRetry, agent.ScopeCall}
	policies    = []policyMode{replaysTool, replaysCall, blocksTool, blocksCall}
)

// withStandingGrant runs a test in a bubble after a run in which ana gave a standing grant of refund, under scope call
// for args.
func withStandingGrant(t *testing.T, under policyMode, f func(t *testing.T, r *fixture)) {
	t.Helper()
	withBoundedGrant(t, under, nil, f)
}

// startNextRun starts another run that calls refund, and reports whether it waits for a person.
func (r *fixture) startNextRun(key string) bool {
	r.t.Helper()
	require.NoError(r.t, errOf(r.beginNextRun(key)))
	return r.driveRun(0).Next == runtime.NextWait
}

// listStanding lists the live standing grants.
func (r *fixture) listStanding() []approval.StandingGrant {
	r.t.Helper()
	got, next, err := approval.ListStanding(r.ctx, r.table, tenant, approval.StandingQuery{Agent: r.def.Name, Limit: 1000}, r.ports.Clock.Now())
	require.NoError(r.t, err)
	require.Empty(r.t, next)
	return got
}

func (r *fixture) revoke(by policy.Principal) error {
	return r.desk().Revoke(r.ctx, approval.Revocation{Tenant: tenant, Agent: r.def.Name, Tool: "refund", By: by})
}

// A later run calls the tool without asking, unless what was granted has gone or changed since. Deny wins over every
// grant, whichever way it is said.
func TestStandingGrantInALaterRun(t *testing.T) {
	const covered, asks run.CallReason = "", "people are asked"
	above := func(change func(p *agent.Permission)) func(r *fixture) {
		return func(r *fixture) {
			p := r.def.Permission
			change(&p)
			r.def.Ceilings = []agent.Permission{p}
		}
	}
	denies := agent.Rule{Tool: "refund", Verdict: agent.VerdictDeny}
	rule := func(rule agent.Rule) func(p *agent.Permission) {
		return func(p *agent.Permission) { p.Rules = append(p.Rules[:len(p.Rules):len(p.Rules)], rule) }
	}
	policy := func(change func(p *agent.Permission)) func(r *fixture) {
		return func(r *fixture) { change(&r.def.Permission) }
	}
	for name, c := range map[string]struct {
		since func(r *fixture)
		want  run.CallReason
	}{
		"nothing has changed": {func(*fixture) {}, covered},
		"revoked":             {func(r *fixture) { require.NoError(r.t, r.revoke(ben)) }, asks},
		"about to expire":     {func(*fixture) { time.Sleep(agent.StandingLife - time.Minute) }, covered},
		"expired":             {func(*fixture) { time.Sleep(agent.StandingLife) }, asks},
		"another agent":       {func(r *fixture) { r.def.Name = "other" }, asks},
		"another tool":        {func(r *fixture) { r.def.Tools[0].Description = "Pays twice." }, asks},
		"a tool that is gone": {func(r *fixture) { r.def.Tools[0].Name = "repay" }, run.WhyUnknownTool},
		"another policy":      {policy(func(p *agent.Permission) { p.Expires += time.Hour }), asks},
		"fewer uses":          {policy(func(p *agent.Permission) { p.Bounds.Uses = 1 }), asks},
		"others decide":       {policy(func(p *agent.Permission) { p.Approvers = []string{"group:bosses"} }), asks},
		"nothing stands": {
			policy(func(p *agent.Permission) { p.Grants, p.Bounds = agent.GrantsRun, agent.StandingBounds{} }), asks,
		},
		"the default denies": {policy(func(p *agent.Permission) { p.Default = agent.DefaultDeny }), run.WhyDenied},
		"a rule denies":      {policy(rule(denies)), run.WhyDenied},
		"a rule of arguments": {
			policy(rule(agent.Rule{Tool: "refund", Verdict: agent.VerdictDeny, When: atMost("100")})), run.WhyDenied,
		},
		"an agent above denies": {above(rule(denies)), run.WhyDenied},
		"an agent above asks":   {above(func(p *agent.Permission) { p.Default = agent.DefaultAsk }), asks},
	} {
		for _, under := range policies {
			for _, b := range []*agent.GrantBounds{nil, {When: atMost("200"), Uses: 5}} {
				t.Run(fmt.Sprint(name, under, b != nil), func(t *testing.T) {
					withBoundedGrant(t, under, b, func(t *testing.T, r *fixture) {
						c.since(r)
						before := len(r.refund.paid)
						require.Equal(t, c.want == asks, r.startNextRun("k2"))
						if c.want == covered {
							before++
						} else if c.want != asks {
							require.Equal(t, c.want, r.call().Reason)
						}
						require.Len(t, r.refund.paid, before)
					})
				})
			}
		}
	}
}

// beforeClaim returns a table that calls f between the gate's read of the grant and the claim's transaction.
func (r *fixture) beforeClaim(f func()) *fault.Table {
	v := fault.NewTable(r.table)
	v.Once(fault.WriteOf(func(ops []store.Op) bool {
		return slices.ContainsFunc(ops, func(op store.Op) bool { return op.Kind == store.Check && strings.HasPrefix(op.Item.SK, "refund#") })
	}), fault.Before(func() error { f(); return nil }))
	return v
}

// Only who may decide about the tool takes a grant back; then it is not listed, as it is not once it has expired.
func TestRevokeStandingGrant(t *testing.T) {
	withStandingGrant(t, replaysTool, func(t *testing.T, r *fixture) {
		require.Len(t, r.listStanding(), 1)
		g := r.listStanding()[0]
		require.Equal(t, []string{"clerk", "refund", "user:ana", r.run}, []string{g.Agent, g.Tool, g.By, g.Run})
		require.Equal(t, agent.StandingLife, g.Expires.Sub(g.At))
		require.ErrorIs(t, r.revoke(stranger), approval.ErrForbidden)
		rival := approval.Revocation{Tenant: "rival", Agent: "clerk", Tool: "refund", By: ana}
		require.ErrorIs(t, r.desk().Revoke(r.ctx, rival), approval.ErrNoGrant)
		require.Len(t, r.listStanding(), 1)
		require.NoError(t, r.revoke(ben))
		require.NoError(t, r.revoke(ana), "it is revoked already")
		require.ErrorIs(t, r.revoke(stranger), approval.ErrForbidden)
		require.Empty(t, r.listStanding())

		require.NoError(t, r.grantInNewRun("k2"))
		require.Len(t, r.listStanding(), 1)
		time.Sleep(agent.StandingLife)
		require.Empty(t, r.listStanding())
		require.ErrorIs(t, r.revoke(ana), approval.ErrNoGrant)
	})
}

// A denial, and a grant for the run alone, leave no record.
func TestNoStandingGrant(t *testing.T) {
	for _, under := range policies {
		for _, grants := range []agent.Grants{agent.GrantsRun, agent.GrantsOnce, agent.GrantsStanding} {
			withFixture(t, func(t *testing.T, r *fixture) {
				p := &r.def.Permission
				p.Mode, p.Scope, p.Grants = under.mode, under.scope, grants
				r.startAndPark(args)
				action := approval.Approve
				if grants == agent.GrantsStanding {
					action = approval.Deny
				}
				r.must(r.decide(action, ana))
				require.Empty(t, r.listStanding())
			})
		}
	}
}

// TestA10StandingGrantIsNoApprovalOfOnesOwnRun: a standing grant does not let the people who gave it have their own
// runs go on where that takes four eyes.
func TestA10StandingGrantIsNoApprovalOfOnesOwnRun(t *testing.T) {
	for _, scope := range []agent.Scope{agent.ScopeCall, agent.ScopeTool} {
		for _, fourEyes := range []bool{true, false} {
			withRule(t, agent.Rule{FourEyes: fourEyes, Quorum: 2}, func(t *testing.T, r *fixture) {
				for _, p := range []policy.Principal{ana, cem} {
					r.must(r.decide(approval.Approve, p))
				}
				require.Len(t, r.listStanding(), 1)
				require.False(t, r.startNextRun("zoe"), "others are covered")
				for _, own := range []policy.Principal{ana, cem} {
					r.starters = []string{own.ID}
					require.Equal(t, fourEyes, r.startNextRun("own "+own.ID), "%s: %s gave it", scope, own.ID)
					if fourEyes {
						require.ErrorIs(t, errOf(r.decide(approval.Approve, own)), approval.ErrForbidden)
					}
				}
			}, func(r *fixture) {
				r.def.Permission.Scope, r.def.Permission.Grants = scope, agent.GrantsStanding
				r.starters = []string{"user:zoe"}
			})
		}
	}
}

// An item holds the arguments of its call once, whatever an approval grants besides.
func TestLongArgumentsOfAGrantedTool(t *testing.T) {
	withFixture(t, func(t *testing.T, r *fixture) {
		r.def.Permission.Scope = agent.ScopeTool
		long := `{"amount":40,"to":"` + strings.Repeat("x", 250<<10) + `"}`
		r.startAndPark(long)
		require.Equal(t, long, string(r.approval().Permissions[0].Calls[0].Args))
	})
}
