package approval_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// An edited approval stands for the edited arguments, and for none where these need nobody.
func TestEditedApprovalStandsForItsArguments(t *testing.T) {
	for to, stands := range map[string]int{`{"amount":50,"to":"ana@example.com"}`: 1, `{"amount":1,"to":"x"}`: 0} {
		withFixture(t, func(t *testing.T, r *fixture) {
			p := &r.def.Permission
			p.Grants = agent.GrantsStanding
			small := []run.Condition{{Path: "/amount", Lte: json.RawMessage("1")}}
			p.Rules = append(p.Rules, agent.Rule{Tool: "refund", Verdict: agent.VerdictAllow, When: small})
			r.startAndPark(args)
			r.must(r.edit(to, ana))
			require.Len(t, r.listStanding(), stands)
			require.True(t, r.startNextRun("k2"), "what was edited is not granted")
			require.False(t, r.startRunWithArgs("k3", to))
		})
	}
}

// Word on what became of a call, also that it is to run again, makes no grant; nor does a decision that was made before anything was shown.
func TestWhatMakesNoStandingGrantOfACall(t *testing.T) {
	withFixture(t, func(t *testing.T, r *fixture) {
		r.def.Permission.Grants = agent.GrantsStanding
		r.def.Permission.Rules = append(r.def.Permission.Rules, agent.Rule{Tool: "refund", Verdict: agent.VerdictAllow})
		r.interrupted()
		r.must(r.desk().Decide(r.ctx, approval.DecisionInput{Tenant: tenant, Run: r.run, Call: "c1", Action: approval.Rerun, By: ana}))
		r.resume()
		require.Equal(t, run.StatusSucceeded, r.call().Status)
		require.Empty(t, r.listStanding())
	})
	withEarlyDecisions(t, func(t *testing.T, r *fixture) {
		r.def.Permission.Grants = agent.GrantsStanding
		require.NoError(t, r.decideCall(r.callDecision("c1", approval.Approve, ana)))
		r.driveRun(0)
		require.Equal(t, run.StatusSucceeded, r.call().Status)
		require.Empty(t, r.listStanding())
	})
}

// One grant of several is revoked by its digest, by an approver of that one.
func TestRevokeOneStandingGrant(t *testing.T) {
	withStandingGrant(t, replaysCall, func(t *testing.T, r *fixture) {
		small := r.onRecord()
		r.replies[0].Calls[0].Input = []byte(`{"amount":2000,"to":"a"}`)
		require.True(t, r.startNextRun("k2"))
		r.must(r.decide(approval.Approve, boss))
		one := approval.Revocation{Tenant: tenant, Agent: r.def.Name, Tool: "refund", Digest: small.Digest, By: ana}
		for _, wrong := range []string{"x", policy.GrantedArgs([]byte(args))} {
			other := one
			other.Digest = wrong
			require.ErrorIs(t, r.desk().Revoke(r.ctx, other), approval.ErrNoGrant)
		}
		require.ErrorIs(t, r.revoke(ana), approval.ErrForbidden, "not of both")
		require.NoError(t, r.desk().Revoke(r.ctx, one))
		require.NoError(t, r.desk().Revoke(r.ctx, one), "it is revoked already")
		require.Len(t, r.listStanding(), 1)
		require.NotEqual(t, small.Digest, r.listStanding()[0].Digest)
		require.False(t, r.startNextRun("k3"), "the other still holds")
		r.scriptCalls(1, 1)
		require.True(t, r.startNextRun("k4"))
	})
}

// More grants than fit into one write are revoked as well; where that breaks off, to say it again revokes the rest.
func TestRevokeManyStandingGrants(t *testing.T) {
	withStandingGrant(t, replaysCall, func(t *testing.T, r *fixture) {
		of := r.onRecord()
		for i := range 2 * store.MaxOps {
			of.Digest = fmt.Sprintf("%064x", i)
			body, err := json.Marshal(of)
			require.NoError(t, err)
			require.NoError(t, r.table.Write(r.ctx, store.Op{Kind: store.Put, Item: store.Item{
				Key: store.Key{PK: "T#" + tenant + "#GRANT#clerk", SK: "refund#" + of.Digest}, Body: body,
				Index: "T#" + tenant + "#GRANTS", IndexSort: "clerk#refund#" + of.Digest,
				Attrs: map[string]store.Value{"approval": store.Str(of.Approval), "expires": store.Num(of.Expires.UnixMilli()), "revoked": store.Num(0), "used": store.Num(0)},
			}}))
		}
		require.Len(t, r.listStanding(), 2*store.MaxOps+1)
		hookWrite(r.table, "refund#", nil, func() error { return errReset })
		require.ErrorIs(t, r.revoke(ana), errReset)
		require.Len(t, r.listStanding(), 2*store.MaxOps+1-store.MaxOps/2, "each takes two writes")
		require.NoError(t, r.revoke(ana))
		require.Empty(t, r.listStanding())
	})
}

// What a standing grant on record says of its arguments has no secret in it, by name or by the schema of the tool; what it holds for has.
func TestB4StandingGrantsShowNoSecret(t *testing.T) {
	withFixture(t, func(t *testing.T, r *fixture) {
		p := &r.def.Permission
		p.Mode, p.Scope, p.Grants = replaysCall.mode, replaysCall.scope, agent.GrantsStanding
		r.def.Tools[0].Schema = json.RawMessage(strings.Replace(string(r.def.Tools[0].Schema), `"to":{"type":"string"}`, `"to":{"type":"string","writeOnly":true}`, 1))
		require.Contains(t, string(r.def.Tools[0].Schema), "writeOnly")
		secret := `{"amount":7,"to":"the account","password":"hunter2"}`
		r.startAndPark(secret)
		r.must(r.decide(approval.Approve, ana))
		require.Len(t, r.listStanding(), 1)
		require.Equal(t, `{"amount":7,"to":"[masked, 11 characters]","password":"[masked, 7 characters]"}`, r.listStanding()[0].Args)
		require.Equal(t, policy.GrantedArgs([]byte(secret)), r.listStanding()[0].ArgsHash)
	})
}
