package run_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

// What a grant covers in its run and beyond: under scope call with grants: standing the very arguments count, otherwise
// none do.
func TestGrantDigests(t *testing.T) {
	const args = `{"amount":5,"to":"ana"}`
	base := func(change ...func(*agent.Definition)) agent.Definition {
		return worldDefinition(append([]func(*agent.Definition){func(d *agent.Definition) { d.Permission.Grants = agent.GrantsStanding }}, change...)...)
	}
	scope := func(s agent.Scope) func(*agent.Definition) {
		return func(d *agent.Definition) { d.Permission.Scope = s }
	}
	digests := func(d agent.Definition, s run.AgentState, args string, approvers ...string) [2]string {
		wire, ok := d.Tool("wire")
		require.True(t, ok)
		raw := json.RawMessage(args)
		return [2]string{policy.ToolDigest(&d, &s, wire, raw, policy.Decision{Approvers: approvers}), policy.StandingDigest(&d, &s, wire, raw, policy.Decision{Approvers: approvers})}
	}
	first := run.AgentState{Tenant: "default", Run: "r1", Agent: "small", Version: "1"}
	later := run.AgentState{Tenant: "default", Run: "r2", Agent: "small", Version: "2"}
	other := later
	other.Agent = "large"
	rival := later
	rival.Tenant = "rival"
	for name, c := range map[string]struct {
		def       agent.Definition
		state     run.AgentState
		args      string
		approvers []string
		same      bool
	}{
		"the same":                 {base(), later, args, []string{"user:ana"}, true},
		"keys in another order":    {base(), later, `{"to":"ana","amount":5}`, []string{"user:ana"}, true},
		"escaped otherwise":        {base(), later, `{"amount":5,"to":"\u0061na"}`, []string{"user:ana"}, true},
		"scope call by name":       {base(scope(agent.ScopeCall)), later, args, []string{"user:ana"}, false}, // another policy
		"another amount":           {base(), later, `{"amount":6,"to":"ana"}`, []string{"user:ana"}, false},
		"a number spelled anew":    {base(), later, `{"amount":5.0,"to":"ana"}`, []string{"user:ana"}, false},
		"a number as text":         {base(), later, `{"amount":"5","to":"ana"}`, []string{"user:ana"}, false},
		"one key more":             {base(), later, `{"amount":5,"to":"ana","x":null}`, []string{"user:ana"}, false},
		"no arguments":             {base(), later, `{}`, []string{"user:ana"}, false},
		"other approvers":          {base(), later, args, []string{"user:ben"}, false},
		"another agent":            {base(), other, args, []string{"user:ana"}, false},
		"another tenant":           {base(), rival, args, []string{"user:ana"}, false},
		"another tool of the name": {base(func(d *agent.Definition) { d.Tools[3].Description = "Something else." }), later, args, []string{"user:ana"}, false},
		"another policy":           {base(func(d *agent.Definition) { d.Permission.Default = agent.DefaultAsk }), later, args, []string{"user:ana"}, false},
		"scope tool":               {base(scope(agent.ScopeTool)), later, args, []string{"user:ana"}, false},
	} {
		want, got := digests(base(), first, args, "user:ana"), digests(c.def, c.state, c.args, c.approvers...)
		require.Equal(t, c.same, want[1] == got[1], name)
		require.NotEqual(t, got[0], got[1], name)
		require.NotEqual(t, want[0], got[0], "%s, in another run", name)
		inRun := c.state
		inRun.Run, inRun.Version = first.Run, first.Version
		require.Equal(t, c.same, want[0] == digests(c.def, inRun, c.args, c.approvers...)[0], "%s, in the run", name)
	}
	for _, grants := range []agent.Grants{"", agent.GrantsRun, agent.GrantsOnce, agent.GrantsStanding} {
		for _, s := range []agent.Scope{"", agent.ScopeCall, agent.ScopeTool} {
			d := base(scope(s), func(d *agent.Definition) { d.Permission.Grants = grants })
			bound := grants == agent.GrantsStanding && s != agent.ScopeTool
			require.Equal(t, bound, d.Permission.GrantsExactArguments())
			require.Equal(t, !bound, digests(d, first, args) == digests(d, first, `{}`), "%s %s", grants, s)
		}
	}
}

// Bounds that a policy cannot have are refused by name.
func TestA11PolicyOfStandingBounds(t *testing.T) {
	small := []run.Condition{{Path: "/amount", Lte: json.RawMessage("5")}}
	for problem, p := range map[string]agent.Permission{
		"": {Grants: agent.GrantsStanding, Bounds: agent.StandingBounds{Uses: 5, Expires: agent.StandingLife, When: small, Pattern: true}},
		"permission.standing: got bounds of standing grants beside grants run":  {Bounds: agent.StandingBounds{Uses: 5}},
		"permission.standing: got bounds of standing grants beside grants once": {Grants: agent.GrantsOnce, Bounds: agent.StandingBounds{Uses: 5}},
		"permission.standing.pattern: got true under scope tool":                {Grants: agent.GrantsStanding, Scope: agent.ScopeTool, Bounds: agent.StandingBounds{Pattern: true}},
		"permission.standing.uses: got -1":                                      {Grants: agent.GrantsStanding, Bounds: agent.StandingBounds{Uses: -1}},
		"permission.standing.expires: got 721h0m0s, want 1s to 30d":             {Grants: agent.GrantsStanding, Bounds: agent.StandingBounds{Expires: agent.StandingLife + time.Hour}},
		"permission.standing.when: got 11 conditions":                           {Grants: agent.GrantsStanding, Bounds: agent.StandingBounds{When: make([]run.Condition, 11)}},
		"permission.standing.when: got conditions under mode block_and_retry":   {Grants: agent.GrantsStanding, Mode: agent.ModeBlockAndRetry, Bounds: agent.StandingBounds{When: small}},
	} {
		if p.Mode == "" {
			p.Mode = agent.ModeSuspendAndReplay
		}
		p.Default, p.Approvers, p.Expires = agent.DefaultAsk, []string{"user:ana"}, time.Hour
		d := validDefinition(t)
		d.Permission = p
		err := d.Check()
		if problem == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, problem)
	}
}

// Every bound is part of the policy's version, so that a grant under another policy is none under this.
func TestA11BoundsAreOfThePolicyVersion(t *testing.T) {
	seen := map[string]bool{}
	for _, b := range []agent.StandingBounds{{}, {Uses: 1}, {Uses: 2}, {Expires: time.Hour}, {Pattern: true}, {When: []run.Condition{{Path: "/a", Lte: json.RawMessage("5")}}}} {
		v := policy.PolicyVersion(agent.Permission{Bounds: b})
		require.False(t, seen[v], b)
		seen[v] = true
	}
}

// Below an agent that delegates the run, grants go no further than both policies let them.
func TestA11BoundsUnderCeilings(t *testing.T) {
	small, smaller := run.Condition{Path: "/amount", Lte: json.RawMessage("5")}, run.Condition{Path: "/amount", Lt: json.RawMessage("3")}
	own := agent.Permission{Grants: agent.GrantsStanding, Bounds: agent.StandingBounds{Pattern: true, Uses: 5, When: []run.Condition{small}}}
	for name, c := range map[string]struct {
		own, above agent.Permission
		want       agent.StandingBounds
		grants     agent.Grants
	}{
		"bounds nothing": {own, agent.Permission{Grants: agent.GrantsStanding, Bounds: agent.StandingBounds{Pattern: true}}, own.Bounds, agent.GrantsStanding},
		"no patterns":    {own, agent.Permission{Grants: agent.GrantsStanding}, agent.StandingBounds{Uses: 5, When: []run.Condition{small}}, agent.GrantsStanding},
		"of tools":       {own, agent.Permission{Grants: agent.GrantsStanding, Scope: agent.ScopeTool}, own.Bounds, agent.GrantsStanding},
		"narrower": {
			own, agent.Permission{Grants: agent.GrantsStanding, Bounds: agent.StandingBounds{Pattern: true, Uses: 2, Expires: time.Hour, When: []run.Condition{smaller}}},
			agent.StandingBounds{Pattern: true, Uses: 2, Expires: time.Hour, When: []run.Condition{small, smaller}}, agent.GrantsStanding,
		},
		"conditions above a policy that blocks": {
			agent.Permission{Mode: agent.ModeBlockAndRetry, Grants: agent.GrantsStanding}, agent.Permission{Grants: agent.GrantsStanding, Bounds: agent.StandingBounds{When: []run.Condition{small}}}, agent.StandingBounds{}, agent.GrantsOnce,
		},
	} {
		d := agent.Definition{Permission: c.own, Ceilings: []agent.Permission{c.above}}
		require.Equal(t, c.want, policy.GrantPolicy(&d).Bounds, name)
		require.Equal(t, c.grants, policy.GrantPolicy(&d).Grants, name)
	}
}

// A claim outside of the pattern, or of a grant that is used up, is no fact of any run.
func TestA11ClaimsOutsideAreRefused(t *testing.T) {
	for name, change := range map[string]func(g *run.StandingGrant){
		"within":      func(*run.StandingGrant) {},
		"outside":     func(g *run.StandingGrant) { g.When[0].Eq = json.RawMessage("2") },
		"used up":     func(g *run.StandingGrant) { g.Used = g.Uses },
		"another one": func(g *run.StandingGrant) { g.Digest = "when-e" },
	} {
		one := json.RawMessage("1")
		grant := run.StandingGrant{
			Tool: "wire", Approval: "a-wire", Digest: "when-d", By: "user:ana", Expires: later, Uses: 3, Used: 1,
			When: []run.Condition{
				{Path: "/n", Eq: one}, {Path: "/n", Ne: rawJSON("2")}, {Path: "/n", Gt: rawJSON("0.5")}, {Path: "/n", Gte: one},
				{Path: "/n", Lt: rawJSON("1.5")}, {Path: "/n", Lte: one}, {Path: "/n", In: []json.RawMessage{one}},
				{Path: "/to", Matches: "^a"},
			},
		}
		change(&grant)
		reply := called(1, "c1")
		reply.Calls[0].Tool, reply.Calls[0].Input = "wire", json.RawMessage(`{"n":1,"to":"ana"}`)
		s := started(t, reply, run.PermissionChecked{Inference: 1, Standing: []run.StandingGrant{grant}})
		_, err := run.Apply(s, run.CallClaimed{Call: "c1", Under: "a-wire", Digest: "when-d"})
		require.Equal(t, name == "within", err == nil, name)
	}
}
