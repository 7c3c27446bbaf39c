package approval_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

// TestA11QuorumNarrowsGrants: what several people grant together stands as far as the narrowest of them let it, whoever came first, and the
// request keeps what each of them said.
func TestA11QuorumNarrowsGrants(t *testing.T) {
	few := &agent.GrantBounds{When: atMost("150"), Uses: 5, Seconds: 3600}
	wide := &agent.GrantBounds{When: atMost("200"), Uses: 2, Seconds: 7200}
	for _, under := range policies {
		for _, order := range [][]*agent.GrantBounds{{few, wide}, {wide, few}} {
			t.Run(under.String(), underRule(agent.Rule{Quorum: 2}, func(t *testing.T, r *fixture) {
				a := r.must(r.grant(order[0], ana))
				require.Equal(t, approval.Pending, a.Status)
				require.Equal(t, order[0], a.Decisions[0].Grant)
				require.Empty(t, r.listStanding(), "nothing stands before the last of them")
				require.Empty(t, r.inbox())

				a = r.must(r.grant(order[1], ben))
				require.Equal(t, approval.Approved, a.Status)
				require.Equal(t, order, []*agent.GrantBounds{a.Decisions[0].Grant, a.Decisions[1].Grant})
				g := r.listStanding()
				require.Len(t, g, 1)
				require.Equal(t, 2, g[0].Uses)
				require.Equal(t, time.Hour, g[0].Expires.Sub(g[0].At))
				require.ElementsMatch(t, append(atMost("150"), atMost("200")...), g[0].When)
				for i, by := range []policy.Principal{ana, ben} { // whoever says the same again has said it (A12)
					r.must(r.grant(order[i], by))
					for _, other := range []*agent.GrantBounds{nil, {Uses: 2}, {When: atMost("200"), Uses: 3}} {
						require.ErrorAs(t, errOf(r.grant(other, by)), new(*approval.DecidedError))
					}
					require.Equal(t, g, r.listStanding())
				}
				r.resume()
				require.True(t, r.startRunWithArgs("k2", `{"amount":151,"to":"x"}`), "one of them has not granted this")
				require.False(t, r.startRunWithArgs("k3", `{"amount":150,"to":"x"}`))
				require.False(t, r.startRunWithArgs("k4", `{"amount":149,"to":"x"}`))
				require.True(t, r.startRunWithArgs("k5", `{"amount":148,"to":"x"}`), "it is used up")
			}, func(r *fixture) { r.allowStandingGrants(under) }))
		}
	}
}

// TestA11QuorumOfOneExact: where one of several approves the very arguments, no pattern is what all of them granted.
func TestA11QuorumOfOneExact(t *testing.T) {
	for _, order := range [][]*agent.GrantBounds{{{When: atMost("200")}, nil}, {nil, {When: atMost("200")}}} {
		withRule(t, agent.Rule{Quorum: 2}, func(t *testing.T, r *fixture) {
			for i, by := range []policy.Principal{ana, ben} {
				r.must(r.grant(order[i], by))
			}
			require.Len(t, r.listStanding(), 1)
			require.Empty(t, r.listStanding()[0].When)
			r.resume()
			require.False(t, r.startRunWithArgs("k2", args))
			require.True(t, r.startRunWithArgs("k3", `{"amount":49,"to":"x"}`))
		}, func(r *fixture) { r.allowStandingGrants(policyMode{agent.ModeSuspendAndReplay, agent.ScopeCall}) })
	}
}

// TestA11QuorumOneWordEach: who has approved does not bound that otherwise while others are waited for, and what is refused is no approval.
func TestA11QuorumOneWordEach(t *testing.T) {
	for _, under := range policies {
		t.Run(under.String(), underRule(agent.Rule{Quorum: 2}, func(t *testing.T, r *fixture) {
			var refused *approval.GrantError
			require.ErrorAs(t, errOf(r.grant(&agent.GrantBounds{When: atMost("1")}, ana)), &refused)
			require.Empty(t, r.approval().Decisions)
			r.must(r.grant(&agent.GrantBounds{Uses: 3}, ana))
			for _, again := range []*agent.GrantBounds{{Uses: 3}, nil} {
				a := r.must(r.grant(again, ana))
				require.Len(t, a.Decisions, 1)
			}
			require.ErrorAs(t, errOf(r.grant(&agent.GrantBounds{Uses: 2}, ana)), &refused)
			require.Equal(t, &agent.GrantBounds{Uses: 3}, r.approval().Decisions[0].Grant)
			r.must(r.grant(nil, ben))
			require.Equal(t, 3, r.listStanding()[0].Uses)
		}, func(r *fixture) { r.allowStandingGrants(under) }))
	}
}

// TestA11QuorumEditResetsGrants: an edit is another action, and nothing that was granted of the first holds for it.
func TestA11QuorumEditResetsGrants(t *testing.T) {
	withRule(t, agent.Rule{Quorum: 2}, func(t *testing.T, r *fixture) {
		r.must(r.grant(&agent.GrantBounds{Uses: 1}, ana))
		q := r.request(approval.Edit, ben)
		q.Args, q.Grant = json.RawMessage(`{"amount":40,"to":"x"}`), &agent.GrantBounds{When: atMost("45")}
		r.must(r.desk().Decide(r.ctx, q))
		q = r.request(approval.Approve, ana)
		q.Grant, q.Digest = &agent.GrantBounds{When: atMost("100"), Uses: 7}, r.approval().Digest
		r.must(r.desk().Decide(r.ctx, q))
		g := r.listStanding()
		require.Len(t, g, 1)
		require.Equal(t, 7, g[0].Uses)
		require.ElementsMatch(t, append(atMost("45"), atMost("100")...), g[0].When)
		r.resume()
		require.False(t, r.startRunWithArgs("k2", `{"amount":45,"to":"y"}`))
		require.True(t, r.startRunWithArgs("k3", `{"amount":46,"to":"y"}`))
	}, func(r *fixture) { r.allowStandingGrants(policyMode{agent.ModeSuspendAndReplay, agent.ScopeCall}) })
}

// TestA11NoPatternOfSecrets: what people must not read is in no pattern, which is kept for them to read.
func TestA11NoPatternOfSecrets(t *testing.T) {
	for _, under := range policies {
		withRule(t, agent.Rule{}, func(t *testing.T, r *fixture) {
			_, err := r.grant(&agent.GrantBounds{When: []run.Condition{{Path: "/to", Eq: json.RawMessage(`"ana@example.com"`)}}}, ana)
			require.ErrorAs(t, err, new(*approval.GrantError))
			require.NotContains(t, err.Error(), "ana@example.com")
			require.Contains(t, err.Error(), "/to, which holds a secret")
			require.Equal(t, approval.Pending, r.approval().Status)
			require.Empty(t, r.listStanding())
			r.must(r.grant(&agent.GrantBounds{When: atMost("200")}, ana))
		}, func(r *fixture) {
			r.allowStandingGrants(under)
			r.def.Tools[0].Schema = json.RawMessage(strings.Replace(string(r.def.Tools[0].Schema), `"to":{"type":"string"}`, `"to":{"type":"string","writeOnly":true}`, 1))
			require.Contains(t, string(r.def.Tools[0].Schema), "writeOnly")
		})
	}
}
