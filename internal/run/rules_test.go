package run_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

func rawJSON(s string) json.RawMessage { return json.RawMessage(s) }

func testPermission(rules ...agent.Rule) agent.Permission {
	return agent.Permission{
		Mode: agent.ModeSuspendAndReplay, Default: agent.DefaultByEffect, Scope: agent.ScopeCall, Grants: agent.GrantsRun, Rules: rules,
		Approvers: []string{"group:operators"}, Expires: 24 * time.Hour,
	}
}

// A finding is what a condition says of arguments. One that cannot be made stops no rule that denies, and lets no rule allow.
type finding string

const (
	doesHold    finding = "holds"
	doesNotHold finding = "fails"
	cannotSay   finding = "cannotSay"
)

func compare(c run.Condition, args json.RawMessage) finding {
	under := func(v agent.Verdict, by agent.PermissionDefault) bool {
		p := agent.Permission{Default: by, Rules: []agent.Rule{{Tool: "*", Verdict: v, When: []run.Condition{c}}}}
		return policy.Decide(p, agent.ToolSpec{Name: "x"}, args).Rule == 0
	}
	switch allowed, denied := under(agent.VerdictAllow, agent.DefaultDeny), under(agent.VerdictDeny, agent.DefaultAllow); {
	case allowed && denied:
		return doesHold
	case denied:
		return cannotSay
	case allowed:
		return "allowed and not denied"
	default:
		return doesNotHold
	}
}

func ruleMatches(r agent.Rule, tool string, args json.RawMessage) bool {
	return policy.Decide(agent.Permission{Default: agent.DefaultAsk, Rules: []agent.Rule{r}}, agent.ToolSpec{Name: tool}, args).Rule == 0
}

func TestDecideDefaults(t *testing.T) {
	for _, tt := range []struct {
		def    agent.PermissionDefault
		effect run.Effect
		want   agent.Verdict
	}{
		{agent.DefaultByEffect, run.EffectRead, agent.VerdictAllow}, {agent.DefaultByEffect, run.EffectIdempotent, agent.VerdictAllow},
		{agent.DefaultByEffect, run.EffectNonIdempotent, agent.VerdictAsk}, {agent.DefaultByEffect, "", agent.VerdictAsk},
		{agent.DefaultAllow, run.EffectNonIdempotent, agent.VerdictAllow}, {agent.DefaultAsk, run.EffectRead, agent.VerdictAsk}, {agent.DefaultDeny, run.EffectRead, agent.VerdictDeny},
		{"", run.EffectRead, agent.VerdictAsk}, {"banana", run.EffectRead, agent.VerdictAsk},
	} {
		d := policy.Decide(agent.Permission{Default: tt.def}, agent.ToolSpec{Name: "x", Effect: tt.effect}, rawJSON(`{}`))
		require.Equal(t, tt.want, d.Verdict, "%s, %s", tt.def, tt.effect)
		require.Equal(t, -1, d.Rule)
		require.Empty(t, d.Approvers)
	}
}

func TestConditions(t *testing.T) {
	for _, tt := range []struct {
		cond run.Condition
		args string
		want finding
	}{
		{run.Condition{Path: "/a", Eq: rawJSON(`1`)}, `{"a":1.0}`, doesHold},
		{run.Condition{Path: "/a", Eq: rawJSON(`9007199254740993`)}, `{"a":9007199254740992}`, doesNotHold},
		{run.Condition{Path: "/a", Eq: rawJSON(`"A/"`)}, `{"a":"\u0041\/"}`, doesHold},
		{run.Condition{Path: "/a", Eq: rawJSON(`"a"`)}, `{"a":"A"}`, doesNotHold},
		{run.Condition{Path: "/a", Eq: rawJSON(`true`)}, `{"a":false}`, doesNotHold},
		{run.Condition{Path: "/a", Eq: rawJSON(`1`)}, `{"a":"1"}`, cannotSay},
		{run.Condition{Path: "/a", Eq: rawJSON(`1`)}, `{"a":null}`, cannotSay},
		{run.Condition{Path: "/a", Eq: rawJSON(`1`)}, `{"b":1}`, cannotSay},
		{run.Condition{Path: "/a", Eq: rawJSON(`1`)}, `{"a":[1]}`, cannotSay},
		{run.Condition{Path: "/a", Eq: rawJSON(`null`)}, `{"a":null}`, doesHold},
		{run.Condition{Path: "/a", Eq: rawJSON(`null`)}, `{"a":1}`, doesNotHold},
		{run.Condition{Path: "/a", Ne: rawJSON(`null`)}, `{"a":1}`, doesHold},
		{run.Condition{Path: "/a", Ne: rawJSON(`1`)}, `{"a":2}`, doesHold},
		{run.Condition{Path: "/a", Ne: rawJSON(`1`)}, `{"a":1e0}`, doesNotHold},
		{run.Condition{Path: "/a", Ne: rawJSON(`1`)}, `{"a":"2"}`, cannotSay},
		{run.Condition{Path: "/a", Gt: rawJSON(`100`)}, `{"a":100.00000000000000000001}`, doesHold},
		{run.Condition{Path: "/a", Gt: rawJSON(`100`)}, `{"a":1e2}`, doesNotHold},
		{run.Condition{Path: "/a", Gt: rawJSON(`100`)}, `{"a":1e999999999}`, doesHold},
		{run.Condition{Path: "/a", Gt: rawJSON(`100`)}, `{"a":"200"}`, cannotSay},
		{run.Condition{Path: "/a", Gt: rawJSON(`"b"`)}, `{"a":"c"}`, cannotSay},
		{run.Condition{Path: "/a", Gte: rawJSON(`100`)}, `{"a":100}`, doesHold},
		{run.Condition{Path: "/a", Lt: rawJSON(`0`)}, `{"a":-1e-999}`, doesHold},
		{run.Condition{Path: "/a", Lt: rawJSON(`0`)}, `{"a":-0}`, doesNotHold},
		{run.Condition{Path: "/a", Lte: rawJSON(`0`)}, `{"a":-0}`, doesHold},
		{run.Condition{Path: "/a/0/b", Lte: rawJSON(`0`)}, `{"a":[{"b":0}]}`, doesHold},
		{run.Condition{Path: "/a", In: []json.RawMessage{rawJSON(`"x"`), rawJSON(`7`)}}, `{"a":7.0}`, doesHold},
		{run.Condition{Path: "/a", In: []json.RawMessage{rawJSON(`"x"`), rawJSON(`7`)}}, `{"a":"y"}`, doesNotHold},
		{run.Condition{Path: "/a", In: []json.RawMessage{rawJSON(`"x"`), rawJSON(`7`)}}, `{"a":true}`, cannotSay},
		{run.Condition{Path: "/a", Matches: `b+`}, `{"a":"abbc"}`, doesHold},
		{run.Condition{Path: "/a", Matches: `^b`}, `{"a":"abbc"}`, doesNotHold},
		{run.Condition{Path: "/a", Matches: `1`}, `{"a":1}`, cannotSay},
		{run.Condition{Path: "/a", Matches: `(`}, `{"a":"("}`, cannotSay},
		{run.Condition{Path: "a", Eq: rawJSON(`1`)}, `{"a":1}`, cannotSay},
		{run.Condition{Path: "/a"}, `{"a":1}`, cannotSay},
		{run.Condition{Path: "/a", Eq: rawJSON(`1`), Ne: rawJSON(`2`)}, `{"a":1}`, cannotSay},
		{run.Condition{Path: "/a", Eq: rawJSON(`1`)}, `not json`, cannotSay},
		{run.Condition{Path: "/a", Eq: rawJSON(`1`)}, ``, cannotSay},
	} {
		require.Equal(t, tt.want, compare(tt.cond, rawJSON(tt.args)), "%+v on %s", tt.cond, tt.args)
	}
}

func TestMissingValueNeverWidens(t *testing.T) {
	missing := run.Condition{Path: "/no", Eq: rawJSON(`1`)}
	for _, tt := range []struct {
		name    string
		verdict agent.Verdict
		when    []run.Condition
		want    bool
	}{
		{"deny", agent.VerdictDeny, []run.Condition{missing}, true},
		{"ask", agent.VerdictAsk, []run.Condition{missing}, true},
		{"allow", agent.VerdictAllow, []run.Condition{missing}, false},
		{"unknown verdict", "perhaps", []run.Condition{missing}, true},
		{"deny, another fails", agent.VerdictDeny, []run.Condition{missing, {Path: "/a", Eq: rawJSON(`2`)}}, false},
		{"deny, another holds", agent.VerdictDeny, []run.Condition{{Path: "/a", Eq: rawJSON(`1`)}, missing}, true},
		{"allow, another holds", agent.VerdictAllow, []run.Condition{{Path: "/a", Eq: rawJSON(`1`)}, missing}, false},
	} {
		r := agent.Rule{Tool: "*", Verdict: tt.verdict, When: tt.when}
		require.Equal(t, tt.want, ruleMatches(r, "x", rawJSON(`{"a":1}`)), tt.name)
	}
	require.Equal(t, agent.VerdictDeny, policy.Decide(testPermission(agent.Rule{Tool: "*", Verdict: "perhaps"}), agent.ToolSpec{Name: "x", Effect: run.EffectRead}, rawJSON(`{}`)).Verdict)
}

func TestMatchTool(t *testing.T) {
	for _, tt := range []struct {
		pattern, name string
		want          bool
	}{
		{"a.b", "a.b", true}, {"a.b", "a.bc", false}, {"a.b", "a_b", false}, {"*", "", true}, {"*", "a.b.c", true}, {"a.*", "a.", true},
		{"a.*", "a.b.c", true}, {"a.*", "ab", false}, {"*.b", "a.b", true}, {"*.b", "a.bb", false}, {"a*a", "a", false}, {"a*a", "aa", true},
		{"a*b*c", "a1b2c", true}, {"a*b*c", "acb", false}, {"**", "x", true}, {"*ab*ab*", "ab", false}, {"*ab*ab*", "xababx", true}, {"", "a", false}, {"A", "a", false},
	} {
		require.Equal(t, tt.want, ruleMatches(agent.Rule{Tool: tt.pattern, Verdict: agent.VerdictDeny}, tt.name, rawJSON(`{}`)), "%q, %q", tt.pattern, tt.name)
	}
}

func TestDenyAlwaysWins(t *testing.T) {
	verdicts := rapid.SampledFrom([]agent.Verdict{agent.VerdictAllow, agent.VerdictAsk, agent.VerdictDeny})
	rapid.Check(t, func(t *rapid.T) {
		rules := rapid.SliceOf(rapid.Custom(func(t *rapid.T) agent.Rule {
			return agent.Rule{
				Tool: rapid.SampledFrom([]string{"*", "a.*", "b.*", "a.b"}).Draw(t, "tool"), Verdict: verdicts.Draw(t, "verdict"),
				When: rapid.SliceOfN(rapid.Just(run.Condition{Path: "/n", Gt: rawJSON(`5`)}), 0, 1).Draw(t, "when"),
			}
		})).Draw(t, "rules")
		args := rawJSON(rapid.SampledFrom([]string{`{}`, `{"n":1}`, `{"n":9}`, `{"n":"9"}`}).Draw(t, "args"))
		d := policy.Decide(testPermission(rules...), agent.ToolSpec{Name: "a.b", Effect: run.EffectRead}, args)
		for i, r := range rules {
			if r.Verdict == agent.VerdictDeny && ruleMatches(r, "a.b", args) {
				require.Equal(t, agent.VerdictDeny, d.Verdict)
			}
			if d.Verdict != agent.VerdictDeny && ruleMatches(r, "a.b", args) {
				require.LessOrEqual(t, d.Rule, i)
				require.GreaterOrEqual(t, d.Rule, 0)
			}
		}
	})
}
