package agent

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// strength is what a gate comes to: 0 = the call runs, 1 = people are asked, 2 = it is denied.
func strength(g Gate) int {
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
func gateOf(d *Definition, tool, args string) Gate {
	c := Call{ID: "a", Tool: tool, Name: ModelName(tool), Input: json.RawMessage(args), Status: StatusNew, Inference: 1}
	s := AgentState{Tenant: "default", Run: "r1", Agent: d.Name, Live: []Call{c}, Round: Round{Inference: 1}}
	return GateCall(d, &s, c, worldValid, worldEpoch)
}

func drawPolicy(t *rapid.T, name string) Permission {
	verdicts := rapid.SampledFrom([]Verdict{VerdictAllow, VerdictAsk, VerdictDeny})
	groups := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"group:a", "group:b", "user:ana"}), 0, 2, rapid.ID[string])
	return Permission{
		Mode:      rapid.SampledFrom([]PermissionMode{ModeSuspendAndReplay, ModeBlockAndRetry, ModeAdvisory}).Draw(t, name+".mode"),
		Default:   rapid.SampledFrom([]PermissionDefault{DefaultAllow, DefaultAsk, DefaultDeny, DefaultByEffect}).Draw(t, name+".default"),
		Approvers: groups.Draw(t, name+".approvers"), Expires: time.Duration(rapid.IntRange(1, 9).Draw(t, name+".hours")) * time.Hour,
		Scope:  rapid.SampledFrom([]Scope{"", ScopeCall, ScopeTool}).Draw(t, name+".scope"),
		Grants: rapid.SampledFrom([]Grants{"", GrantsRun, GrantsOnce, GrantsStanding}).Draw(t, name+".grants"),
		Rules: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Rule {
			return Rule{
				Tool: rapid.SampledFrom([]string{"*", "pay.*", "wire", "look"}).Draw(t, "tool"), Verdict: verdicts.Draw(t, "verdict"),
				When: rapid.SliceOfN(rapid.Just(Condition{Path: "/n", Gt: rawJSON(`5`)}), 0, 1).Draw(t, "when"), Approvers: groups.Draw(t, "approvers"),
			}
		}), 0, 4).Draw(t, name+".rules"),
	}
}

// A delegated run never may more than any of those that delegated it, in no mode, and another ceiling never lets more pass.
func TestCeilingsOnlyNarrow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		under := func(own Permission, above ...Permission) *Definition {
			d := worldDefinition(func(d *Definition) { d.Permission, d.Ceilings = own, above })
			return &d
		}
		own := drawPolicy(t, "own")
		above := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Permission { return drawPolicy(t, "above") }), 0, 3).Draw(t, "ceilings")
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
				for _, who := range []Principal{{ID: "user:ana"}, {ID: "user:ben", Groups: []string{"group:a"}}, {ID: "user:eve", Groups: []string{"group:a", "group:b"}}} {
					require.False(t, child.Rule.May(who) && !alone.Rule.May(who), "%s may not decide above", who)
				}
			}
		}
		require.Equal(t, want, strength(child), "the strictest, and no stricter")
		more := append(slices.Clone(above), drawPolicy(t, "more"))
		require.GreaterOrEqual(t, strength(gateOf(under(own, more...), tool, args)), strength(child))
	})
}

// What a call of a delegated run comes to, and who decides about it.
func TestCeilings(t *testing.T) {
	policy := func(change ...func(*Permission)) Permission {
		p := Permission{Mode: ModeSuspendAndReplay, Default: DefaultAllow, Approvers: []string{"group:top"}, Expires: time.Hour}
		for _, f := range change {
			f(&p)
		}
		return p
	}
	says := func(v Verdict, approvers ...string) func(*Permission) {
		return func(p *Permission) {
			p.Rules = append(p.Rules, Rule{Tool: "wire", Verdict: v, Approvers: approvers, Note: string(v) + " above"})
		}
	}
	mode := func(m PermissionMode) func(*Permission) { return func(p *Permission) { p.Mode = m } }
	own := func(v Verdict, m PermissionMode) Permission {
		return Permission{
			Mode: m, Default: DefaultAllow, Approvers: []string{"group:own"}, Expires: 2 * time.Hour, Rules: []Rule{{Tool: "wire", Verdict: v, Note: "own"}},
		}
	}
	top, both := Principal{ID: "user:t", Groups: []string{"group:top"}}, Principal{ID: "user:b", Groups: []string{"group:top", "group:own"}}
	onlyOwn := Principal{ID: "user:o", Groups: []string{"group:own"}}
	for name, c := range map[string]struct {
		own   Permission
		above []Permission
		want  int
		block bool
		may   []Principal // with want 1
		not   []Principal
		note  string
	}{
		"nobody above":                     {own: own(VerdictAllow, ModeSuspendAndReplay), want: 0},
		"allowed by all":                   {own: own(VerdictAllow, ModeSuspendAndReplay), above: []Permission{policy(), policy()}, want: 0},
		"allowed, asked above":             {own(VerdictAllow, ModeSuspendAndReplay), []Permission{policy(says(VerdictAsk))}, 1, false, []Principal{top, both}, []Principal{onlyOwn}, "ask above"},
		"asked, allowed above":             {own(VerdictAsk, ModeSuspendAndReplay), []Permission{policy()}, 1, false, []Principal{onlyOwn, both}, []Principal{top}, "own"},
		"asked by both":                    {own(VerdictAsk, ModeSuspendAndReplay), []Permission{policy(says(VerdictAsk))}, 1, false, []Principal{both}, []Principal{top, onlyOwn}, "own; ask above"},
		"asked twice above":                {own(VerdictAllow, ModeSuspendAndReplay), []Permission{policy(says(VerdictAsk, "group:own")), policy(says(VerdictAsk))}, 1, false, []Principal{both}, []Principal{top, onlyOwn}, "ask above"},
		"nobody approves above":            {own(VerdictAsk, ModeSuspendAndReplay), []Permission{policy(says(VerdictAsk), func(p *Permission) { p.Approvers = nil })}, 1, false, nil, []Principal{top, onlyOwn, both}, "own; ask above"},
		"denied above":                     {own: own(VerdictAllow, ModeSuspendAndReplay), above: []Permission{policy(says(VerdictDeny))}, want: 2},
		"denied at the root":               {own: own(VerdictAsk, ModeSuspendAndReplay), above: []Permission{policy(says(VerdictDeny)), policy(says(VerdictAsk))}, want: 2},
		"denied by the last":               {own: own(VerdictAllow, ModeSuspendAndReplay), above: []Permission{policy(says(VerdictAsk)), policy(says(VerdictDeny))}, want: 2},
		"blocked for a policy above":       {own(VerdictAllow, ModeBlockAndRetry), []Permission{policy(says(VerdictAsk))}, 1, true, []Principal{top}, []Principal{onlyOwn}, "ask above"},
		"advisory, asked above":            {own(VerdictAsk, ModeAdvisory), []Permission{policy(says(VerdictAsk))}, 1, false, []Principal{top}, []Principal{onlyOwn}, "ask above"},
		"advisory, allowed above":          {own: own(VerdictAsk, ModeAdvisory), above: []Permission{policy()}, want: 0},
		"advisory, denied above":           {own: own(VerdictAllow, ModeAdvisory), above: []Permission{policy(says(VerdictDeny))}, want: 2},
		"asked by an advisory one above":   {own: own(VerdictAllow, ModeSuspendAndReplay), above: []Permission{policy(says(VerdictAsk), mode(ModeAdvisory))}, want: 0},
		"denied by an advisory one above":  {own: own(VerdictAllow, ModeSuspendAndReplay), above: []Permission{policy(says(VerdictDeny), mode(ModeAdvisory))}, want: 2},
		"asked by a blocking one above":    {own(VerdictAllow, ModeSuspendAndReplay), []Permission{policy(says(VerdictAsk), mode(ModeBlockAndRetry))}, 1, false, []Principal{top}, []Principal{onlyOwn}, "ask above"},
		"code above that lists more tools": {own(VerdictAllow, ModeSuspendAndReplay), []Permission{policy(func(p *Permission) { p.Policy = "lists" })}, 1, false, []Principal{top}, []Principal{onlyOwn}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := worldDefinition(func(d *Definition) { d.Permission, d.Ceilings = c.own, c.above })
			g := gateOf(&d, "wire", `{}`)
			require.Equal(t, c.want, strength(g))
			if c.want == 2 {
				require.Equal(t, WhyDenied, g.Refuse.Reason)
				require.Equal(t, "The policy of the agent that delegated this task denies calling wire like this. "+
					`Do not repeat the call; say in your answer what you could not do. Note: "deny above"`, g.Refuse.Content)
				return
			}
			require.Equal(t, c.block, g.Block != nil)
			for _, p := range c.may {
				require.True(t, g.Rule.May(p), p)
			}
			for _, p := range c.not {
				require.False(t, g.Rule.May(p), p)
			}
			if c.want == 1 {
				require.Equal(t, c.note, g.Rule.Note)
			}
		})
	}
}

// Who delegates puts its own policy below those that hold for it, and shares no list with the child.
func TestDelegated(t *testing.T) {
	name := func(n string) Permission { return Permission{Backend: n} }
	parent := worldDefinition(func(d *Definition) {
		d.Permission, d.Ceilings = name("parent"), append(make([]Permission, 0, 8), name("root"))
	})
	child := worldDefinition(func(d *Definition) { d.Permission, d.Ceilings = name("child"), []Permission{name("its own idea")} })
	one, two := Delegated(&parent, child), Delegated(&parent, child)
	require.Equal(t, []Permission{name("root"), name("parent")}, one.Ceilings)
	two.Ceilings[1] = name("other")
	require.Equal(t, name("parent"), one.Ceilings[1])
	require.Equal(t, name("child"), one.Permission)
	require.Equal(t, []Permission{name("root")}, parent.Ceilings)
	require.Equal(t, []Permission{name("root"), name("parent"), name("child")}, Delegated(&one, child).Ceilings)
}

// Only the delegation of a run sets ceilings: no definition that somebody writes has them.
func TestCheckRefusesCeilings(t *testing.T) {
	d := worldDefinition(func(d *Definition) { d.Ceilings = []Permission{{}} })
	require.ErrorContains(t, d.Check(), "ceilings: got 1, want none: they are the policies of the agents that delegate a run, and set when it starts")
	d.Ceilings = nil
	bare := d.Check()
	if bare != nil {
		require.NotContains(t, bare.Error(), "ceilings")
	}
}

// A grant holds for what it was given for: under the same ceilings, and, where one of them asks, by its approvers. One that the run's own
// policy asked for covers nothing that a policy above asks about, though the same people decide.
func TestGrantsHoldUnderTheirCeilings(t *testing.T) {
	big := Rule{Tool: "wire", Verdict: VerdictAsk, When: []Condition{{Path: "/n", Gt: rawJSON(`5`)}}}
	above := Permission{Mode: ModeSuspendAndReplay, Default: DefaultAllow, Approvers: []string{"user:ana"}, Expires: time.Hour, Scope: ScopeTool, Rules: []Rule{big}}
	def := func(own Permission, above ...Permission) *Definition {
		d := worldDefinition(func(d *Definition) { d.Permission, d.Ceilings = own, above })
		return &d
	}
	own := Permission{Mode: ModeSuspendAndReplay, Default: DefaultAllow, Approvers: []string{"user:ana"}, Expires: time.Hour, Scope: ScopeTool,
		Rules: []Rule{{Tool: "wire", Verdict: VerdictAsk}}}
	allows := own
	allows.Rules = nil
	stricter := above
	stricter.Rules = append(slices.Clone(above.Rules), Rule{Tool: "drop", Verdict: VerdictDeny})

	const small, large = `{"n":1}`, `{"n":9}`
	for name, c := range map[string]struct {
		given    *Definition
		args     string // it was given on a call with these
		then     *Definition
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
		"below a ceiling that now asks about less": {def(own, above), small, def(own, Permission{Mode: ModeAdvisory}), small, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := started(t)
			wire, _ := c.given.Tool("wire")
			asked := DecideIn(c.given, &s, wire, json.RawMessage(c.args))
			require.Equal(t, VerdictAsk, asked.Verdict)
			s.Permissions.Tools = []ToolPermit{{Tool: "wire", Approval: "a1", By: "user:ana",
				Digests: []string{ToolDigest(c.given, &s, wire, json.RawMessage(c.args), asked)}}}
			call := Call{ID: "a", Tool: "wire", Name: "wire", Input: json.RawMessage(c.with), Status: StatusNew, Effect: EffectNonIdempotent}
			g := GateCall(c.then, &s, call, worldValid, worldEpoch)
			require.Equal(t, c.covered, g.Run)
			require.Equal(t, c.covered, g.Claim != nil)
			require.Equal(t, c.consults, g.Rule.Ceiling)
		})
	}
}

// A backend knows its own agent's permissions: where a policy above asks, people are asked all the same, and their word counts beside it.
func TestBackendsDoNotLiftCeilings(t *testing.T) {
	above := Permission{Mode: ModeSuspendAndReplay, Default: DefaultAsk, Approvers: []string{"group:top"}, Expires: time.Hour, Scope: ScopeTool}
	own := Permission{Mode: ModeBlockAndRetry, Scope: ScopeTool, Default: DefaultAsk, Approvers: []string{"group:own"}, Expires: time.Hour, Backend: "b"}
	for _, c := range []struct {
		name   string
		said   PermissionStatus
		above  []Permission
		permit bool
		want   int
	}{
		{"approves", PermissionApproved, nil, false, 0},
		{"approves below a ceiling", PermissionApproved, []Permission{above}, false, 1},
		{"approves what people granted", PermissionApproved, []Permission{above}, true, 0},
		{"would ask about what people granted", PermissionRequestable, []Permission{above}, true, 1},
		{"denies what people granted", PermissionDenied, []Permission{above}, true, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := worldDefinition(func(d *Definition) { d.Permission, d.Ceilings = own, c.above })
			s := started(t)
			s.Permissions.Checked = PermissionChecked{Inference: 1, Tools: map[string]PermissionStatus{"wire": c.said}}
			call := Call{ID: "a", Tool: "wire", Name: "wire", Input: json.RawMessage(`{}`), Status: StatusNew, Inference: 1}
			if c.permit {
				wire, _ := d.Tool("wire")
				dec := DecideIn(&d, &s, wire, call.Input)
				s.Permissions.Tools = []ToolPermit{{Tool: "wire", Approval: "a1", Digests: []string{ToolDigest(&d, &s, wire, call.Input, dec)}}}
			}
			require.Equal(t, c.want, strength(GateCall(&d, &s, call, worldValid, worldEpoch)))
		})
	}
}

// How long people's grants hold: no longer than any policy above lets its own.
func TestGranting(t *testing.T) {
	type held struct {
		scope  Scope
		grants Grants
	}
	call, tool := ScopeCall, ScopeTool
	for _, c := range []struct {
		own   held
		above []held
		mode  PermissionMode
		want  Grants
	}{
		{own: held{tool, GrantsStanding}, want: GrantsStanding},
		{own: held{tool, GrantsStanding}, above: []held{{tool, GrantsStanding}}, want: GrantsStanding},
		{own: held{tool, GrantsStanding}, above: []held{{tool, GrantsStanding}, {tool, GrantsRun}}, want: GrantsRun},
		{own: held{tool, GrantsStanding}, above: []held{{tool, ""}}, want: GrantsRun},
		{own: held{tool, GrantsRun}, above: []held{{tool, GrantsStanding}}, want: GrantsRun},
		{own: held{tool, GrantsRun}, above: []held{{tool, GrantsOnce}, {tool, GrantsRun}}, want: GrantsOnce},
		{own: held{tool, GrantsRun}, above: []held{{call, GrantsRun}}, want: GrantsOnce},
		{own: held{tool, GrantsStanding}, above: []held{{"", GrantsStanding}}, want: GrantsOnce},
		{own: held{call, GrantsStanding}, above: []held{{call, GrantsStanding}}, want: GrantsStanding},
		{own: held{call, GrantsStanding}, above: []held{{tool, GrantsRun}}, want: GrantsRun},
		{own: held{tool, GrantsOnce}, above: []held{{tool, GrantsStanding}}, want: GrantsOnce},
		{own: held{tool, GrantsStanding}, above: []held{{call, GrantsOnce}}, mode: ModeAdvisory, want: GrantsStanding},
	} {
		d := Definition{Permission: Permission{Scope: c.own.scope, Grants: c.own.grants}}
		for _, h := range c.above {
			d.Ceilings = append(d.Ceilings, Permission{Mode: c.mode, Scope: h.scope, Grants: h.grants})
		}
		got := d.Granting()
		require.Equal(t, c.want, got.Grants, "%+v", c)
		require.Equal(t, c.own.scope, got.Scope)
		require.Equal(t, c.own.grants, d.Permission.Grants)
	}
}

// An edit of a delegated call is held to the policies above as the call itself is.
func TestEditsStayBelowCeilings(t *testing.T) {
	above := Permission{Mode: ModeSuspendAndReplay, Default: DefaultAllow, Approvers: []string{"group:top"}, Expires: time.Hour, Rules: []Rule{
		{Tool: "wire", Verdict: VerdictDeny, When: []Condition{{Path: "/n", Gt: rawJSON(`100`)}}},
		{Tool: "wire", Verdict: VerdictAsk, When: []Condition{{Path: "/n", Gt: rawJSON(`5`)}}},
	}}
	d := worldDefinition(func(d *Definition) { d.Ceilings = []Permission{above} })
	s := started(t)
	c := Call{ID: "a", Tool: "wire", Name: "wire", Input: json.RawMessage(`{"n":1}`)}
	ana, topAna := Principal{ID: "user:ana"}, Principal{ID: "user:ana", Groups: []string{"group:top"}}
	amend := func(args string, by Principal) error {
		_, err := Amend(&d, &s, c, json.RawMessage(args), by.mayDecide, worldValid)
		return err
	}
	require.NoError(t, amend(`{"n":2}`, ana))
	require.ErrorIs(t, amend(`{"n":9}`, ana), ErrOtherApprovers)
	require.NoError(t, amend(`{"n":9}`, topAna))
	require.ErrorContains(t, amend(`{"n":101}`, topAna), "the policy of an agent that delegated the run denies them")
}

// An early decision on a call that turns out to be for others to approve, too, comes to nothing.
func TestEarlyDecisionsStayBelowCeilings(t *testing.T) {
	above := Permission{Mode: ModeSuspendAndReplay, Default: DefaultAsk, Approvers: []string{"group:top"}, Expires: time.Hour}
	d := worldDefinition(func(d *Definition) { d.Early, d.Ceilings = EarlyKeep, []Permission{above} })
	s := started(t, Replied{Inference: 1, Calls: []RepliedCall{{ID: "a", Name: "wire", Effect: EffectNonIdempotent, Input: json.RawMessage(`{}`)}}})
	c, _ := s.Call("a")
	s = commit(t, s, "w1", *GateCall(&d, &s, c, worldValid, worldEpoch).Suspend)
	kept := func(groups ...string) []Event {
		s.Kept = []DecisionKept{{Slot: 1, Target: "a", Action: ActionApprove, By: "user:ana", Groups: groups}}
		return Early(&d, &s, worldValid, worldEpoch)
	}
	require.Equal(t, []Event{DecisionDropped{Target: "a", Call: "a", Why: dropNotApprover}}, kept())
	require.IsType(t, Decided{}, kept("group:top")[0])
}
