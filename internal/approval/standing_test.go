package approval_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
)

// policy is how people are asked, and how far what they grant for good goes.
type policyOf struct {
	mode  agent.PermissionMode
	scope agent.Scope
}

func (p policyOf) String() string { return string(p.mode) + " " + string(p.scope) }

var (
	replaysTool = policyOf{agent.ModeSuspendAndReplay, agent.ScopeTool}
	replaysCall = policyOf{agent.ModeSuspendAndReplay, agent.ScopeCall}
	blocksTool  = policyOf{agent.ModeBlockAndRetry, agent.ScopeTool}
	blocksCall  = policyOf{agent.ModeBlockAndRetry, agent.ScopeCall}
	policies    = []policyOf{replaysTool, replaysCall, blocksTool, blocksCall}
)

// inRoomOfStandingGrants runs a test in a bubble after a run in which ana has granted refund for good: under scope call, with args.
func inRoomOfStandingGrants(t *testing.T, under policyOf, f func(t *testing.T, r *room)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRoom(t)
		p := &r.def.Permission
		p.Mode, p.Scope, p.Grants = under.mode, under.scope, agent.GrantsStanding
		require.NoError(t, r.def.Check())
		r.start(args)
		_, err := r.decide(approval.Approve, ana)
		require.NoError(t, err)
		f(t, r)
	})
}

// again starts another run that calls refund, and reports whether it waits for a person.
func (r *room) again(key string) bool {
	r.t.Helper()
	_, err := r.begun(key)
	require.NoError(r.t, err)
	return r.drive(0).Next == runtime.NextWait
}

// begun starts another run and does none of its steps.
func (r *room) begun(key string) (run.AgentState, error) {
	s, err := (&runtime.Starter{Ports: r.ports}).Start(r.ctx, runtime.Start{
		Tenant: tenant, Agent: r.def, Key: key, Message: []run.UserBlock{{Block: run.Text{Text: "Pay Ana back."}}}, By: r.by,
	})
	r.run = s.Run
	return s, err
}

// standing are the grants that hold.
func (r *room) standing() []approval.Standing {
	r.t.Helper()
	got, next, err := approval.ListStanding(r.ctx, r.table, tenant, approval.Grants{Agent: r.def.Name, Limit: 1000}, r.ports.Clock.Now())
	require.NoError(r.t, err)
	require.Empty(r.t, next)
	return got
}

func (r *room) revoke(by policy.Principal) error {
	return r.desk().Revoke(r.ctx, approval.Revocation{Tenant: tenant, Agent: r.def.Name, Tool: "refund", By: by})
}

// A later run calls the tool without asking, unless what was granted has gone or changed since.
func TestStandingGrant(t *testing.T) {
	for name, c := range map[string]struct {
		since func(t *testing.T, r *room)
		asks  bool
	}{
		"nothing has changed": {func(*testing.T, *room) {}, false},
		"revoked":             {func(t *testing.T, r *room) { require.NoError(t, r.revoke(ben)) }, true},
		"about to expire":     {func(*testing.T, *room) { time.Sleep(agent.StandingLife - time.Minute) }, false},
		"expired":             {func(*testing.T, *room) { time.Sleep(agent.StandingLife) }, true},
		"the tool changed":    {func(_ *testing.T, r *room) { r.def.Tools[0].Description = "Pays it all back." }, true},
		"the policy changed":  {func(_ *testing.T, r *room) { r.def.Permission.Expires += time.Hour }, true},
		"another agent":       {func(_ *testing.T, r *room) { r.def.Name = "other" }, true},
		"other approvers":     {func(_ *testing.T, r *room) { r.replies[0].Calls[0].Input = []byte(`{"amount":2000,"to":"a"}`) }, true},
		"not standing now":    {func(_ *testing.T, r *room) { r.def.Permission.Grants = agent.GrantsRun }, true},
	} {
		for _, under := range policies {
			t.Run(name+" "+under.String(), func(t *testing.T) {
				inRoomOfStandingGrants(t, under, func(t *testing.T, r *room) {
					c.since(t, r)
					before := len(r.refund.paid)
					require.Equal(t, c.asks, r.again("k2"))
					if c.asks {
						require.Equal(t, before, len(r.refund.paid))
					} else {
						require.Equal(t, before+1, len(r.refund.paid))
					}
				})
			})
		}
	}
}

// A deny rule beats a standing grant, and so does nothing less: the call is refused, and nobody is asked.
func TestDenyBeatsStandingGrant(t *testing.T) {
	for _, under := range policies {
		inRoomOfStandingGrants(t, under, func(t *testing.T, r *room) {
			before := len(r.refund.paid)
			r.replies[0].Calls[0].Input = []byte(`{"amount":20000,"to":"a"}`)
			require.False(t, r.again("k2"))
			require.Equal(t, before, len(r.refund.paid))

			r.def.Permission.Rules = append(r.def.Permission.Rules, agent.Rule{Tool: "*", Verdict: agent.VerdictDeny})
			r.calling(1, 1)
			require.False(t, r.again("k3"), "what was granted is denied since")
			require.Equal(t, before, len(r.refund.paid))
			require.Equal(t, run.WhyDenied, r.call().Reason)
		})
	}
}

// revoker takes the grant back between the gate's look at it and the claim's transaction.
type revoker struct {
	store.Table
	now func()
}

func (v *revoker) Write(ctx context.Context, ops ...store.Op) error {
	for _, op := range ops {
		if op.Kind == store.Check && strings.HasPrefix(op.Item.SK, "refund#") && v.now != nil {
			revoke := v.now
			v.now = nil
			revoke()
		}
	}
	return v.Table.Write(ctx, ops...)
}

// A grant that is revoked before the claim is committed lets nothing run: a person is asked.
func TestStandingGrantRevokedBeforeTheClaim(t *testing.T) {
	for _, under := range policies {
		inRoomOfStandingGrants(t, under, func(t *testing.T, r *room) {
			before, done := len(r.refund.paid), false
			v := &revoker{Table: r.table, now: func() { require.NoError(t, r.revoke(ana)); done = true }}
			r.ports.Table, r.ports.Journal = v, store.NewJournal(v, 0)
			require.True(t, r.again("k2"))
			require.True(t, done)
			require.Equal(t, before, len(r.refund.paid))
		})
	}
}

// Only who may decide about the tool takes a grant back; then it is not listed, as it is not once it has expired.
func TestRevokeStandingGrant(t *testing.T) {
	inRoomOfStandingGrants(t, replaysTool, func(t *testing.T, r *room) {
		list := func() []approval.Standing {
			got, next, err := approval.ListStanding(r.ctx, r.table, tenant, approval.Grants{}, r.ports.Clock.Now())
			require.NoError(t, err)
			require.Empty(t, next)
			return got
		}
		require.Len(t, list(), 1)
		g := list()[0]
		require.Equal(t, []string{"clerk", "refund", "user:ana", r.run}, []string{g.Agent, g.Tool, g.By, g.Run})
		require.Equal(t, agent.StandingLife, g.Expires.Sub(g.At))
		require.ErrorIs(t, r.revoke(stranger), approval.ErrForbidden)
		require.ErrorIs(t, r.desk().Revoke(r.ctx, approval.Revocation{Tenant: "rival", Agent: "clerk", Tool: "refund", By: ana}), approval.ErrNoGrant)
		require.Len(t, r.standing(), 1)
		require.NoError(t, r.revoke(ben))
		require.NoError(t, r.revoke(ana), "it is revoked already")
		require.ErrorIs(t, r.revoke(stranger), approval.ErrForbidden)
		require.Empty(t, r.standing())
		require.Empty(t, list())

		require.NoError(t, r.grantAgain("k2"))
		require.Len(t, list(), 1)
		time.Sleep(agent.StandingLife)
		require.Empty(t, list())
		require.Empty(t, r.standing())
		require.ErrorIs(t, r.revoke(ana), approval.ErrNoGrant)
	})
}

// A denial, and a grant for the run alone, leave no record.
func TestNoStandingGrant(t *testing.T) {
	for _, under := range policies {
		for _, grants := range []agent.Grants{agent.GrantsRun, agent.GrantsOnce, agent.GrantsStanding} {
			synctest.Test(t, func(t *testing.T) {
				r := newRoom(t)
				p := &r.def.Permission
				p.Mode, p.Scope, p.Grants = under.mode, under.scope, grants
				r.start(args)
				action := approval.Approve
				if grants == agent.GrantsStanding {
					action = approval.Deny
				}
				_, err := r.decide(action, ana)
				require.NoError(t, err)
				require.Empty(t, r.standing())
			})
		}
	}
}
