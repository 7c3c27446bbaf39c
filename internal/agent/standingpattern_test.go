package agent

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Bounds that a policy cannot have are refused by name.
func TestA11PolicyOfStandingBounds(t *testing.T) {
	small := []Condition{{Path: "/amount", Lte: json.RawMessage("5")}}
	for problem, p := range map[string]Permission{
		"": {Grants: GrantsStanding, Bounds: StandingBounds{Uses: 5, Expires: StandingLife, When: small, Pattern: true}},
		"permission.standing: got bounds of standing grants beside grants run":  {Bounds: StandingBounds{Uses: 5}},
		"permission.standing: got bounds of standing grants beside grants once": {Grants: GrantsOnce, Bounds: StandingBounds{Uses: 5}},
		"permission.standing.pattern: got true under scope tool":                {Grants: GrantsStanding, Scope: ScopeTool, Bounds: StandingBounds{Pattern: true}},
		"permission.standing.uses: got -1":                                      {Grants: GrantsStanding, Bounds: StandingBounds{Uses: -1}},
		"permission.standing.expires: got 721h0m0s, want 1s to 30d":             {Grants: GrantsStanding, Bounds: StandingBounds{Expires: StandingLife + time.Hour}},
		"permission.standing.when[0]: got 0 operators":                          {Grants: GrantsStanding, Bounds: StandingBounds{When: []Condition{{Path: "/a"}}}},
		"permission.standing.when: got conditions under mode block_and_retry":   {Grants: GrantsStanding, Mode: ModeBlockAndRetry, Bounds: StandingBounds{When: small}},
		"permission.standing.when: got 11 conditions":                           {Grants: GrantsStanding, Bounds: StandingBounds{When: make([]Condition, 11)}},
	} {
		if p.Mode == "" {
			p.Mode = ModeSuspendAndReplay
		}
		p.Default, p.Approvers, p.Expires = DefaultAsk, []string{"user:ana"}, time.Hour
		err := CheckPermission(p)
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
	for _, b := range []StandingBounds{{}, {Uses: 1}, {Uses: 2}, {Expires: time.Hour}, {Pattern: true}, {When: []Condition{{Path: "/a", Lte: json.RawMessage("5")}}}} {
		v := PolicyVersion(Permission{Bounds: b})
		require.False(t, seen[v], b)
		seen[v] = true
	}
}

// Below an agent that delegates the run, grants go no further than both policies let them.
func TestA11BoundsUnderCeilings(t *testing.T) {
	small, smaller := Condition{Path: "/amount", Lte: json.RawMessage("5")}, Condition{Path: "/amount", Lt: json.RawMessage("3")}
	own := Permission{Grants: GrantsStanding, Bounds: StandingBounds{Pattern: true, Uses: 5, When: []Condition{small}}}
	for name, c := range map[string]struct {
		own, above Permission
		want       StandingBounds
		grants     Grants
	}{
		"bounds nothing": {own, Permission{Grants: GrantsStanding, Bounds: StandingBounds{Pattern: true}}, own.Bounds, GrantsStanding},
		"no patterns":    {own, Permission{Grants: GrantsStanding}, StandingBounds{Uses: 5, When: []Condition{small}}, GrantsStanding},
		"of tools":       {own, Permission{Grants: GrantsStanding, Scope: ScopeTool}, own.Bounds, GrantsStanding},
		"narrower": {
			own, Permission{Grants: GrantsStanding, Bounds: StandingBounds{Pattern: true, Uses: 2, Expires: time.Hour, When: []Condition{smaller}}},
			StandingBounds{Pattern: true, Uses: 2, Expires: time.Hour, When: []Condition{small, smaller}}, GrantsStanding,
		},
		"conditions above a policy that blocks": {
			Permission{Mode: ModeBlockAndRetry, Grants: GrantsStanding}, Permission{Grants: GrantsStanding, Bounds: StandingBounds{When: []Condition{small}}}, StandingBounds{}, GrantsOnce,
		},
	} {
		d := Definition{Permission: c.own, Ceilings: []Permission{c.above}}
		require.Equal(t, c.want, d.Granting().Bounds, name)
		require.Equal(t, c.grants, d.Granting().Grants, name)
	}
}

// A claim outside of the pattern, or of a grant that is used up, is no fact of any run.
func TestA11ClaimsOutsideAreRefused(t *testing.T) {
	for name, change := range map[string]func(g *StandingGrant){
		"within":      func(*StandingGrant) {},
		"outside":     func(g *StandingGrant) { g.When[0].Eq = json.RawMessage("2") },
		"used up":     func(g *StandingGrant) { g.Used = g.Uses },
		"another one": func(g *StandingGrant) { g.Digest = "when-e" },
	} {
		facts := patternsRun()
		s := AgentState{}
		d := NewDraft(s, "w1", worldEpoch)
		require.NoError(t, d.Add(facts[0]...))
		require.NoError(t, d.Add(facts[1]...))
		checked := facts[2][0].(PermissionChecked)
		change(&checked.Standing[0])
		require.NoError(t, d.Add(checked))
		err := d.Add(facts[2][2])
		require.Equal(t, name == "within", err == nil, name)
	}
}

// patternsRun has calls under counted standing grants of patterns with every operator, with a snapshot while one of them runs.
func patternsRun() [][]Event {
	one := json.RawMessage("1")
	when := []Condition{
		{Path: "/n", Eq: one}, {Path: "/n", Ne: json.RawMessage("2")}, {Path: "/n", Gt: json.RawMessage("0.5")}, {Path: "/n", Gte: one},
		{Path: "/n", Lt: json.RawMessage("1.5")}, {Path: "/n", Lte: one}, {Path: "/n", In: []json.RawMessage{one}}, {Path: "/to", Matches: "^a"},
	}
	grant := func(used int) StandingGrant {
		return StandingGrant{
			Tool: "wire", Approval: "a-wire", Digest: "when-d", By: "user:ana", Note: "small ones", Expires: worldEpoch.Add(worldExpiry),
			When: when, Uses: 3, Used: used,
		}
	}
	checked := func(n int64, used int) PermissionChecked {
		return PermissionChecked{Inference: n, Tools: map[string]PermissionStatus{}, Standing: []StandingGrant{grant(used)}}
	}
	reply := func(n int64, id string) Replied {
		return Replied{Inference: n, Model: "m", Requests: 1, Calls: []RepliedCall{
			{ID: id, Name: "wire", Tool: "wire", Effect: EffectNonIdempotent, Input: json.RawMessage(`{"n":1,"to":"ana"}`)},
		}}
	}
	return [][]Event{
		{RunStarted{Tenant: "default", Run: "r9", Agent: "desk", Definition: "d1", Owner: "r9-0", MaxInteractions: 9, Messages: []UserBlock{{Text{"Settle this."}}}}},
		{reply(1, "c1")},
		{checked(1, 0), checked(1, 1), CallClaimed{Call: "c1", Under: "a-wire", Digest: "when-d"}, CallFinished{Call: "c1", Content: "wired"}},
		{Evicted{Total: 1, Summary: "Wired."}, reply(2, "c2"), checked(2, 2), CallClaimed{Call: "c2", Under: "a-wire", Digest: "when-d"}},
		{CallFinished{Call: "c2", Content: "wired"}, Finished{Reason: ReasonCancelled, By: "user:ana", OpenText: "Not done."}},
	}
}
