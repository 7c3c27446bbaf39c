package agent

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func rawJSON(s string) json.RawMessage { return json.RawMessage(s) }

func testPermission(rules ...Rule) Permission {
	return Permission{
		Mode: ModeSuspendAndReplay, Default: DefaultByEffect, Scope: ScopeCall, Grants: GrantsRun, Rules: rules,
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

func compare(c Condition, args json.RawMessage) finding {
	under := func(v Verdict, by PermissionDefault) bool {
		p := Permission{Default: by, Rules: []Rule{{Tool: "*", Verdict: v, When: []Condition{c}}}}
		return Decide(p, ToolSpec{Name: "x"}, args).Rule == 0
	}
	switch allowed, denied := under(VerdictAllow, DefaultDeny), under(VerdictDeny, DefaultAllow); {
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

func ruleMatches(r Rule, tool string, args json.RawMessage) bool {
	return Decide(Permission{Default: DefaultAsk, Rules: []Rule{r}}, ToolSpec{Name: tool}, args).Rule == 0
}

func TestDecideOrder(t *testing.T) {
	p := testPermission(
		Rule{Tool: "refunds.*", When: []Condition{{Path: "/amount", Lte: rawJSON("100")}}, Verdict: VerdictAllow},
		Rule{Tool: "refunds.create", Verdict: VerdictAsk, Approvers: []string{"group:finance"}, Expires: time.Hour, Note: "check the order"},
		Rule{Tool: "*", Verdict: VerdictAsk},
		Rule{Tool: "*.drop", Verdict: VerdictDeny, Note: "never"},
	)
	operators := []string{"group:operators"}
	for _, tt := range []struct {
		tool, args string
		want       Decision
	}{
		{"refunds.create", `{"amount":100.0}`, Decision{Verdict: VerdictAllow, Rule: 0, Approvers: operators, Expires: 24 * time.Hour, Note: ""}},
		{"refunds.create", `{"amount":100.01}`, Decision{Verdict: VerdictAsk, Rule: 1, Approvers: []string{"group:finance"}, Expires: time.Hour, Note: "check the order"}},
		{"refunds.drop", `{"amount":1}`, Decision{Verdict: VerdictDeny, Rule: 3, Approvers: operators, Expires: 24 * time.Hour, Note: "never"}},
		{"orders.get", `{}`, Decision{Verdict: VerdictAsk, Rule: 2, Approvers: operators, Expires: 24 * time.Hour, Note: ""}},
	} {
		require.Equal(t, tt.want, Decide(p, ToolSpec{Name: tt.tool, Effect: EffectRead}, rawJSON(tt.args)))
	}
}

func TestDecideDefaults(t *testing.T) {
	for _, tt := range []struct {
		def    PermissionDefault
		effect Effect
		want   Verdict
	}{
		{DefaultByEffect, EffectRead, VerdictAllow}, {DefaultByEffect, EffectIdempotent, VerdictAllow},
		{DefaultByEffect, EffectNonIdempotent, VerdictAsk}, {DefaultByEffect, "", VerdictAsk},
		{DefaultAllow, EffectNonIdempotent, VerdictAllow}, {DefaultAsk, EffectRead, VerdictAsk}, {DefaultDeny, EffectRead, VerdictDeny},
		{"", EffectRead, VerdictAsk}, {"banana", EffectRead, VerdictAsk},
	} {
		d := Decide(Permission{Default: tt.def}, ToolSpec{Name: "x", Effect: tt.effect}, rawJSON(`{}`))
		require.Equal(t, tt.want, d.Verdict, "%s, %s", tt.def, tt.effect)
		require.Equal(t, -1, d.Rule)
		require.Empty(t, d.Approvers)
	}
}

func TestConditions(t *testing.T) {
	for _, tt := range []struct {
		cond Condition
		args string
		want finding
	}{
		{Condition{Path: "/a", Eq: rawJSON(`1`)}, `{"a":1.0}`, doesHold},
		{Condition{Path: "/a", Eq: rawJSON(`9007199254740993`)}, `{"a":9007199254740992}`, doesNotHold},
		{Condition{Path: "/a", Eq: rawJSON(`"A/"`)}, `{"a":"\u0041\/"}`, doesHold},
		{Condition{Path: "/a", Eq: rawJSON(`"a"`)}, `{"a":"A"}`, doesNotHold},
		{Condition{Path: "/a", Eq: rawJSON(`true`)}, `{"a":false}`, doesNotHold},
		{Condition{Path: "/a", Eq: rawJSON(`1`)}, `{"a":"1"}`, cannotSay},
		{Condition{Path: "/a", Eq: rawJSON(`1`)}, `{"a":null}`, cannotSay},
		{Condition{Path: "/a", Eq: rawJSON(`1`)}, `{"b":1}`, cannotSay},
		{Condition{Path: "/a", Eq: rawJSON(`1`)}, `{"a":[1]}`, cannotSay},
		{Condition{Path: "/a", Eq: rawJSON(`null`)}, `{"a":null}`, doesHold},
		{Condition{Path: "/a", Eq: rawJSON(`null`)}, `{"a":1}`, doesNotHold},
		{Condition{Path: "/a", Ne: rawJSON(`null`)}, `{"a":1}`, doesHold},
		{Condition{Path: "/a", Ne: rawJSON(`1`)}, `{"a":2}`, doesHold},
		{Condition{Path: "/a", Ne: rawJSON(`1`)}, `{"a":1e0}`, doesNotHold},
		{Condition{Path: "/a", Ne: rawJSON(`1`)}, `{"a":"2"}`, cannotSay},
		{Condition{Path: "/a", Gt: rawJSON(`100`)}, `{"a":100.00000000000000000001}`, doesHold},
		{Condition{Path: "/a", Gt: rawJSON(`100`)}, `{"a":1e2}`, doesNotHold},
		{Condition{Path: "/a", Gt: rawJSON(`100`)}, `{"a":1e999999999}`, doesHold},
		{Condition{Path: "/a", Gt: rawJSON(`100`)}, `{"a":"200"}`, cannotSay},
		{Condition{Path: "/a", Gt: rawJSON(`"b"`)}, `{"a":"c"}`, cannotSay},
		{Condition{Path: "/a", Gte: rawJSON(`100`)}, `{"a":100}`, doesHold},
		{Condition{Path: "/a", Lt: rawJSON(`0`)}, `{"a":-1e-999}`, doesHold},
		{Condition{Path: "/a", Lt: rawJSON(`0`)}, `{"a":-0}`, doesNotHold},
		{Condition{Path: "/a", Lte: rawJSON(`0`)}, `{"a":-0}`, doesHold},
		{Condition{Path: "/a/0/b", Lte: rawJSON(`0`)}, `{"a":[{"b":0}]}`, doesHold},
		{Condition{Path: "/a", In: []json.RawMessage{rawJSON(`"x"`), rawJSON(`7`)}}, `{"a":7.0}`, doesHold},
		{Condition{Path: "/a", In: []json.RawMessage{rawJSON(`"x"`), rawJSON(`7`)}}, `{"a":"y"}`, doesNotHold},
		{Condition{Path: "/a", In: []json.RawMessage{rawJSON(`"x"`), rawJSON(`7`)}}, `{"a":true}`, cannotSay},
		{Condition{Path: "/a", Matches: `b+`}, `{"a":"abbc"}`, doesHold},
		{Condition{Path: "/a", Matches: `^b`}, `{"a":"abbc"}`, doesNotHold},
		{Condition{Path: "/a", Matches: `1`}, `{"a":1}`, cannotSay},
		{Condition{Path: "/a", Matches: `(`}, `{"a":"("}`, cannotSay},
		{Condition{Path: "a", Eq: rawJSON(`1`)}, `{"a":1}`, cannotSay},
		{Condition{Path: "/a"}, `{"a":1}`, cannotSay},
		{Condition{Path: "/a", Eq: rawJSON(`1`), Ne: rawJSON(`2`)}, `{"a":1}`, cannotSay},
		{Condition{Path: "/a", Eq: rawJSON(`1`)}, `not json`, cannotSay},
		{Condition{Path: "/a", Eq: rawJSON(`1`)}, ``, cannotSay},
	} {
		require.Equal(t, tt.want, compare(tt.cond, rawJSON(tt.args)), "%+v on %s", tt.cond, tt.args)
	}
}

func TestMissingValueNeverWidens(t *testing.T) {
	missing := Condition{Path: "/no", Eq: rawJSON(`1`)}
	for _, tt := range []struct {
		name    string
		verdict Verdict
		when    []Condition
		want    bool
	}{
		{"deny", VerdictDeny, []Condition{missing}, true},
		{"ask", VerdictAsk, []Condition{missing}, true},
		{"allow", VerdictAllow, []Condition{missing}, false},
		{"unknown verdict", "perhaps", []Condition{missing}, true},
		{"deny, another fails", VerdictDeny, []Condition{missing, {Path: "/a", Eq: rawJSON(`2`)}}, false},
		{"deny, another holds", VerdictDeny, []Condition{{Path: "/a", Eq: rawJSON(`1`)}, missing}, true},
		{"allow, another holds", VerdictAllow, []Condition{{Path: "/a", Eq: rawJSON(`1`)}, missing}, false},
	} {
		r := Rule{Tool: "*", Verdict: tt.verdict, When: tt.when}
		require.Equal(t, tt.want, ruleMatches(r, "x", rawJSON(`{"a":1}`)), tt.name)
	}
	require.Equal(t, VerdictDeny, Decide(testPermission(Rule{Tool: "*", Verdict: "perhaps"}), ToolSpec{Name: "x", Effect: EffectRead}, rawJSON(`{}`)).Verdict)
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
		require.Equal(t, tt.want, ruleMatches(Rule{Tool: tt.pattern, Verdict: VerdictDeny}, tt.name, rawJSON(`{}`)), "%q, %q", tt.pattern, tt.name)
	}
}

func TestDenyAlwaysWins(t *testing.T) {
	verdicts := rapid.SampledFrom([]Verdict{VerdictAllow, VerdictAsk, VerdictDeny})
	rapid.Check(t, func(t *rapid.T) {
		rules := rapid.SliceOf(rapid.Custom(func(t *rapid.T) Rule {
			return Rule{
				Tool: rapid.SampledFrom([]string{"*", "a.*", "b.*", "a.b"}).Draw(t, "tool"), Verdict: verdicts.Draw(t, "verdict"),
				When: rapid.SliceOfN(rapid.Just(Condition{Path: "/n", Gt: rawJSON(`5`)}), 0, 1).Draw(t, "when"),
			}
		})).Draw(t, "rules")
		args := rawJSON(rapid.SampledFrom([]string{`{}`, `{"n":1}`, `{"n":9}`, `{"n":"9"}`}).Draw(t, "args"))
		d := Decide(testPermission(rules...), ToolSpec{Name: "a.b", Effect: EffectRead}, args)
		for i, r := range rules {
			if r.Verdict == VerdictDeny && ruleMatches(r, "a.b", args) {
				require.Equal(t, VerdictDeny, d.Verdict)
			}
			if d.Verdict != VerdictDeny && ruleMatches(r, "a.b", args) {
				require.LessOrEqual(t, d.Rule, i)
				require.GreaterOrEqual(t, d.Rule, 0)
			}
		}
	})
}

// What one key alone may hold is tried key by key where definitions are read (pkg/agent/agentfile); here is what takes several, or a parser.
func TestCheckPermission(t *testing.T) {
	good := testPermission(Rule{Tool: "a.*", Verdict: VerdictAsk, When: []Condition{{Path: "/x", In: []json.RawMessage{rawJSON(`null`), rawJSON(`"a"`)}}}})
	require.NoError(t, CheckPermission(good))

	cond := func(c Condition) func(*Permission) { return func(p *Permission) { p.Rules[0].When[0] = c } }
	for _, tt := range []struct {
		spoil func(*Permission)
		want  string
	}{
		{func(p *Permission) { p.Approvers = nil }, `permission.approvers: got nobody, want at least one principal`},
		{func(p *Permission) { p.Approvers = []string{"user:a", "ana"} }, `permission.approvers[1]: got something else, want user:NAME or group:NAME`},
		{func(p *Permission) { p.Rules[0].Tool = "a b" }, `permission.rules[0].tool: got something else, want a pattern over original tool names, such as refunds.*`},
		{func(p *Permission) { p.Rules[0].Approvers = []string{"group:"} }, `permission.rules[0].approvers[0]: got something else, want user:NAME or group:NAME`},
		{cond(Condition{Path: "x", Eq: rawJSON(`1`)}), `permission.rules[0].when[0].path: got something else, want a JSON Pointer such as /amount`},
		{cond(Condition{Path: "", Eq: rawJSON(`1`)}), `permission.rules[0].when[0].path: got nothing, want a JSON Pointer such as /amount`},
		{cond(Condition{Path: "/x"}), `permission.rules[0].when[0]: got 0 operators, want exactly one of eq, ne, gt, gte, lt, lte, in, matches`},
		{cond(Condition{Path: "/x", Gt: rawJSON(`1`), Lt: rawJSON(`2`)}), `permission.rules[0].when[0]: got 2 operators, want exactly one of eq, ne, gt, gte, lt, lte, in, matches`},
		{cond(Condition{Path: "/x", Gt: rawJSON(`"1"`)}), `permission.rules[0].when[0].gt: got a string, want a number`},
		{cond(Condition{Path: "/x", Lte: rawJSON(`null`)}), `permission.rules[0].when[0].lte: got null, want a number`},
		{cond(Condition{Path: "/x", Eq: rawJSON(`[1]`)}), `permission.rules[0].when[0].eq: got a list, want a string, number, boolean or null`},
		{cond(Condition{Path: "/x", In: []json.RawMessage{rawJSON(`{}`)}}), `permission.rules[0].when[0].in: got an object, want a string, number, boolean or null`},
		{cond(Condition{Path: "/x", Eq: rawJSON(`@`)}), `permission.rules[0].when[0].eq: got something else, want a string, number, boolean or null`},
		{cond(Condition{Path: "/x", Matches: `(`}), `permission.rules[0].when[0].matches: got something else, want an RE2 regular expression`},
		{func(p *Permission) { p.Grants, p.Mode = GrantsStanding, ModeAdvisory }, `permission.grants: got standing under mode advisory, where nobody grants anything; want run or once`},
		{func(p *Permission) { p.Grants, p.Scope, p.Backend = GrantsStanding, ScopeTool, "b" }, `permission.grants: got standing beside a backend, which keeps permissions of its own; want run or once, or no backend`},
		{func(p *Permission) { p.Backend = "a b" }, `permission.backend: got something else, want a name of letters, digits, _ and -`},
		{func(p *Permission) { p.Policy = "a b" }, `permission.policy: got something else, want a name of letters, digits, _ and -`},
	} {
		p := good
		p.Rules = []Rule{good.Rules[0]}
		p.Rules[0].When = []Condition{good.Rules[0].When[0]}
		tt.spoil(&p)
		require.ErrorContains(t, CheckPermission(p), tt.want)
	}
}
