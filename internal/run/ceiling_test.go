package run_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

// strength is what a gate comes to: 0 = the call runs, 1 = people are asked, 2 = it is denied.
func strength(g policy.Gate) int {
	switch {
	case g.Run:
		return 0
	case g.Suspend != nil || g.Block != nil:
		return 1
	default:
		return 2
	}
}

// gateOf is the gate of a new call of a tool under a definition.
func gateOf(d *agent.Definition, tool, args string) policy.Gate {
	c := run.Call{ID: "a", Tool: tool, Name: agent.ModelName(tool), Input: json.RawMessage(args), Status: run.StatusNew, Inference: 1}
	s := run.AgentState{Tenant: "default", Run: "r1", Agent: d.Name, Live: []run.Call{c}, Round: run.Round{Inference: 1}}
	return policy.GateHooked(d, &s, c, agent.PluginGate{}, worldValid, worldEpoch)
}

func drawPolicy(t *rapid.T, name string) agent.Permission {
	verdicts := rapid.SampledFrom([]agent.Verdict{agent.VerdictAllow, agent.VerdictAsk, agent.VerdictDeny})
	groups := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"group:a", "group:b", "user:ana"}), 0, 2, rapid.ID[string])
	return agent.Permission{
		Mode:      rapid.SampledFrom([]agent.PermissionMode{agent.ModeSuspendAndReplay, agent.ModeBlockAndRetry, agent.ModeAdvisory}).Draw(t, name+".mode"),
		Default:   rapid.SampledFrom([]agent.PermissionDefault{agent.DefaultAllow, agent.DefaultAsk, agent.DefaultDeny, agent.DefaultByEffect}).Draw(t, name+".default"),
		Approvers: groups.Draw(t, name+".approvers"), Expires: time.Duration(rapid.IntRange(1, 9).Draw(t, name+".hours")) * time.Hour,
		Scope:  rapid.SampledFrom([]agent.Scope{"", agent.ScopeCall, agent.ScopeTool}).Draw(t, name+".scope"),
		Grants: rapid.SampledFrom([]agent.Grants{"", agent.GrantsRun, agent.GrantsOnce, agent.GrantsStanding}).Draw(t, name+".grants"),
		Rules: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) agent.Rule {
			return agent.Rule{
				Tool: rapid.SampledFrom([]string{"*", "pay.*", "wire", "look"}).Draw(t, "tool"), Verdict: verdicts.Draw(t, "verdict"),
				When: rapid.SliceOfN(rapid.Just(run.Condition{Path: "/n", Gt: rawJSON(`5`)}), 0, 1).Draw(t, "when"), Approvers: groups.Draw(t, "approvers"),
			}
		}), 0, 4).Draw(t, name+".rules"),
	}
}

// A delegated run never may more than any of those that delegated it, in no mode, and another ceiling never lets more
// pass.
func TestCeilingsOnlyNarrow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		under := func(own agent.Permission, above ...agent.Permission) *agent.Definition {
			d := worldDefinition(func(d *agent.Definition) { d.Permission, d.Ceilings = own, above })
			return &d
		}
		own := drawPolicy(t, "own")
		above := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) agent.Permission { return drawPolicy(t, "above") }), 0, 3).Draw(t, "ceilings")
		tool := rapid.SampledFrom([]string{"look", "wire", "pay.now"}).Draw(t, "of")
		args := rapid.SampledFrom([]string{`{}`, `{"n":1}`, `{"n":9}`, `{"n":"9"}`}).Draw(t, "args")
		child := gateOf(under(own, above...), tool, args)

		require.GreaterOrEqual(t, strength(child), strength(gateOf(under(own), tool, args)), "its own policy")
		want := strength(gateOf(under(own), tool, args))
		for _, p := range above {
			alone := gateOf(under(p), tool, args)
			want = max(want, strength(alone))
			require.GreaterOrEqual(t, strength(child), strength(alone), "a policy above")
			if strength(child) == 1 && strength(alone) == 1 {
				require.LessOrEqual(t, child.Rule.Expires, alone.Rule.Expires)
				for _, who := range []policy.Principal{{ID: "user:ana"}, {ID: "user:ben", Groups: []string{"group:a"}}, {ID: "user:eve", Groups: []string{"group:a", "group:b"}}} {
					require.False(t, child.Rule.MayAfter(who, 0) && !alone.Rule.MayAfter(who, 0), "%s may not decide above", who)
				}
			}
		}
		require.Equal(t, want, strength(child), "the strictest, and no stricter")
		more := append(slices.Clone(above), drawPolicy(t, "more"))
		require.GreaterOrEqual(t, strength(gateOf(under(own, more...), tool, args)), strength(child))
	})
}

// A grant holds for what it was given for: under the same ceilings, and, where one of them asks, by its approvers. One
// that the run's own policy asked for covers nothing that a policy above asks about, though the same people decide.
func TestGrantsHoldUnderTheirCeilings(t *testing.T) {
	big := agent.Rule{Tool: "wire", Verdict: agent.VerdictAsk, When: []run.Condition{{Path: "/n", Gt: rawJSON(`5`)}}}
	above := agent.Permission{Mode: agent.ModeSuspendAndReplay, Default: agent.DefaultAllow, Approvers: []string{"user:ana"}, Expires: time.Hour, Scope: agent.ScopeTool, Rules: []agent.Rule{big}}
	def := func(own agent.Permission, above ...agent.Permission) *agent.Definition {
		d := worldDefinition(func(d *agent.Definition) { d.Permission, d.Ceilings = own, above })
		return &d
	}
	own := agent.Permission{Mode: agent.ModeSuspendAndReplay, Default: agent.DefaultAllow, Approvers: []string{"user:ana"}, Expires: time.Hour, Scope: agent.ScopeTool,
		Rules: []agent.Rule{{Tool: "wire", Verdict: agent.VerdictAsk}}}
	allows := own
	allows.Rules = nil
	stricter := above
	stricter.Rules = append(slices.Clone(above.Rules), agent.Rule{Tool: "drop", Verdict: agent.VerdictDeny})

	const small, large = `{"n":1}`, `{"n":9}`
	for name, c := range map[string]struct {
		given    *agent.Definition
		args     string // it was given on a call with these
		then     *agent.Definition
		with     string
		covered  bool
		consults bool // the ceiling asks about the later call
	}{
		"of the run's own policy":                  {def(own, above), small, def(own, above), `{"n":2}`, true, false},
		"of the run's own, asked above":            {def(own, above), small, def(own, above), large, false, true},
		"of both":                                  {def(own, above), large, def(own, above), `{"n":10}`, true, true},
		"of both, asked by the run's own":          {def(own, above), large, def(own, above), small, false, false},
		"of a policy above":                        {def(allows, above), large, def(allows, above), `{"n":10}`, true, true},
		"of a policy above, now of both":           {def(allows, above), large, def(own, above), `{"n":10}`, false, true},
		"without a ceiling, now below one":         {def(own), large, def(own, above), large, false, true},
		"below another ceiling":                    {def(own, stricter), large, def(own, above), large, false, true},
		"below one more ceiling":                   {def(own, above), large, def(own, above, stricter), large, false, true},
		"below a ceiling, now without":             {def(own, above), small, def(own), small, false, false},
		"ceilings in another order":                {def(own, above, stricter), small, def(own, stricter, above), small, false, false},
		"below a ceiling that now asks about less": {def(own, above), small, def(own, agent.Permission{Mode: agent.ModeAdvisory}), small, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := started(t)
			wire, _ := c.given.Tool("wire")
			asked := policy.DecideIn(c.given, &s, wire, json.RawMessage(c.args))
			require.Equal(t, agent.VerdictAsk, asked.Verdict)
			s.Permissions.Tools = []run.ToolPermit{{Tool: "wire", Approval: "a1", By: "user:ana",
				Digests: []string{policy.ToolDigest(c.given, &s, wire, json.RawMessage(c.args), asked)}}}
			call := run.Call{ID: "a", Tool: "wire", Name: "wire", Input: json.RawMessage(c.with), Status: run.StatusNew, Effect: run.EffectNonIdempotent}
			g := policy.GateHooked(c.then, &s, call, agent.PluginGate{}, worldValid, worldEpoch)
			require.Equal(t, c.covered, g.Run)
			require.Equal(t, c.covered, g.Claim != nil)
			require.Equal(t, c.consults, g.Rule.Ceiling)
		})
	}
}

// How long people's grants hold: no longer than any policy above lets its own.
func TestGranting(t *testing.T) {
	type held struct {
		scope  agent.Scope
		grants agent.Grants
	}
	call, tool := agent.ScopeCall, agent.ScopeTool
	for _, c := range []struct {
		own   held
		above []held
		mode  agent.PermissionMode
		want  agent.Grants
	}{
		{own: held{tool, agent.GrantsStanding}, want: agent.GrantsStanding},
		{own: held{tool, agent.GrantsStanding}, above: []held{{tool, agent.GrantsStanding}}, want: agent.GrantsStanding},
		{own: held{tool, agent.GrantsStanding}, above: []held{{tool, agent.GrantsStanding}, {tool, agent.GrantsRun}}, want: agent.GrantsRun},
		{own: held{tool, agent.GrantsStanding}, above: []held{{tool, ""}}, want: agent.GrantsRun},
		{own: held{tool, agent.GrantsRun}, above: []held{{tool, agent.GrantsStanding}}, want: agent.GrantsRun},
		{own: held{tool, agent.GrantsRun}, above: []held{{tool, agent.GrantsOnce}, {tool, agent.GrantsRun}}, want: agent.GrantsOnce},
		{own: held{tool, agent.GrantsRun}, above: []held{{call, agent.GrantsRun}}, want: agent.GrantsOnce},
		{own: held{tool, agent.GrantsStanding}, above: []held{{"", agent.GrantsStanding}}, want: agent.GrantsOnce},
		{own: held{call, agent.GrantsStanding}, above: []held{{call, agent.GrantsStanding}}, want: agent.GrantsStanding},
		{own: held{call, agent.GrantsStanding}, above: []held{{tool, agent.GrantsRun}}, want: agent.GrantsRun},
		{own: held{tool, agent.GrantsOnce}, above: []held{{tool, agent.GrantsStanding}}, want: agent.GrantsOnce},
		{own: held{tool, agent.GrantsStanding}, above: []held{{call, agent.GrantsOnce}}, mode: agent.ModeAdvisory, want: agent.GrantsStanding},
	} {
		d := agent.Definition{Permission: agent.Permission{Scope: c.own.scope, Grants: c.own.grants}}
		for _, h := range c.above {
			d.Ceilings = append(d.Ceilings, agent.Permission{Mode: c.mode, Scope: h.scope, Grants: h.grants})
		}
		got := policy.GrantPolicy(&d)
		require.Equal(t, c.want, got.Grants, "%+v", c)
		require.Equal(t, c.own.scope, got.Scope)
		require.Equal(t, c.own.grants, d.Permission.Grants)
	}
}
