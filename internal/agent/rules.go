package agent

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Decision is what policy says of one call.
type Decision struct {
	Verdict   Verdict
	Rule      int           // index of the rule that matched; -1 = the default
	Approvers []string      // who may decide if the call has to wait; empty = nobody
	Expires   time.Duration // how long the request lives if the call has to wait
	Note      string        // the rule's, for the person who is asked
	Quorum    int           // so many different people approve if the call has to wait; 0 and 1 = one
	FourEyes  bool          // the people for whom the run acts may not approve
	Remind    time.Duration // how often people are reminded; 0 = never
	Escalate  *Escalation   // who may decide as well, and when; nil = nobody

	Ceiling bool       // a delegating agent's policy denies the call, or asks, be it beside the run's own
	Above   [][]string // the approvers of each such policy that asks, the root's first: who decides is among each, besides Approvers
	AboveTo [][]string // who is among each of Above as well once Escalate is due; shorter where no more are
}

// Decide applies a permission to a call of t with args, which CompactJSON has accepted. Deny rules are checked before all
// others; then the first rule that matches wins; then the default. What cannot be compared never widens a permission: a
// value that is missing or of another type than the rule compares it with makes deny and ask rules match and allow rules
// not, and so do conditions that CheckPermission would refuse.
//
// A call with an object of which two keys are equal but for case is never allowed.
func Decide(p Permission, t ToolSpec, args json.RawMessage) Decision {
	return p.decide(t, args).withCaseKeys(args)
}

// decide is Decide, whatever the keys are.
func (p Permission) decide(t ToolSpec, args json.RawMessage) Decision {
	for i, r := range p.Rules {
		if r.denies() && r.matches(t.Name, args) {
			return p.decision(VerdictDeny, i)
		}
	}
	for i, r := range p.Rules {
		if !r.denies() && r.matches(t.Name, args) {
			return p.decision(r.Verdict, i)
		}
	}
	return p.decision(p.defaultVerdict(t.Effect), -1)
}

func (p Permission) decision(v Verdict, rule int) Decision {
	d := Decision{Verdict: v, Rule: rule, Approvers: p.Approvers, Expires: p.Expires}
	if rule < 0 {
		return d
	}
	r := p.Rules[rule]
	d.Note = r.Note
	if len(r.Approvers) > 0 {
		d.Approvers = r.Approvers
	}
	if r.Expires > 0 {
		d.Expires = r.Expires
	}
	d.Quorum, d.FourEyes, d.Remind, d.Escalate = r.Quorum, r.FourEyes, r.Remind, r.Escalate
	return d
}

// defaultVerdict asks where the default is not one of the four.
func (p Permission) defaultVerdict(e Effect) Verdict {
	switch p.Default {
	case DefaultAllow:
		return VerdictAllow
	case DefaultDeny:
		return VerdictDeny
	case DefaultByEffect:
		if e == EffectRead || e == EffectIdempotent {
			return VerdictAllow
		}
	}
	return VerdictAsk
}

// denies is true for an unknown verdict, too.
func (r Rule) denies() bool { return r.Verdict != VerdictAllow && r.Verdict != VerdictAsk }

func (r Rule) matches(tool string, args json.RawMessage) bool {
	if !matchTool(r.Tool, tool) {
		return false
	}
	for _, c := range r.When {
		held := c.test(args)
		if held == incomparable && r.Verdict != VerdictAllow {
			continue
		}
		if held != holds {
			return false
		}
	}
	return true
}

// MatchTool reports whether pattern, in which '*' stands for any run of characters, matches all of a tool's name.
func MatchTool(pattern, name string) bool { return matchTool(pattern, name) }

// matchTool reports whether pattern, in which '*' stands for any run of characters, matches all of name.
func matchTool(pattern, name string) bool {
	parts := strings.Split(pattern, "*")
	last := len(parts) - 1
	if last == 0 {
		return pattern == name
	}
	name, ok := strings.CutPrefix(name, parts[0])
	for _, part := range parts[1:last] {
		var found bool
		_, name, found = strings.Cut(name, part)
		ok = ok && found
	}
	return ok && strings.HasSuffix(name, parts[last])
}

// comparison is what a comparison came to.
type comparison int

const (
	fails comparison = iota
	holds
	incomparable // the value is missing, or of a type the operator does not compare
)

func comparisonOf(held bool) comparison {
	if held {
		return holds
	}
	return fails
}

// operator is one of a condition's comparisons.
type operator struct {
	name     string
	operands []json.RawMessage
	test     func(value json.RawMessage, operands []json.RawMessage) comparison
}

const operatorNames = "eq, ne, gt, gte, lt, lte, in, matches"

// operators are those that are set; there should be exactly one.
func (c Condition) operators() []operator {
	all := []operator{
		{"eq", single(c.Eq), isIn},
		{"ne", single(c.Ne), isNotIn},
		{"gt", single(c.Gt), ordered(func(c int) bool { return c > 0 })},
		{"gte", single(c.Gte), ordered(func(c int) bool { return c >= 0 })},
		{"lt", single(c.Lt), ordered(func(c int) bool { return c < 0 })},
		{"lte", single(c.Lte), ordered(func(c int) bool { return c <= 0 })},
		{"in", c.In, isIn},
		{"matches", c.pattern(), c.matchesPattern},
	}
	return slices.DeleteFunc(all, func(o operator) bool { return len(o.operands) == 0 })
}

func single(v json.RawMessage) []json.RawMessage {
	if len(v) == 0 {
		return nil
	}
	return []json.RawMessage{v}
}

func (c Condition) pattern() []json.RawMessage {
	if c.Matches == "" {
		return nil
	}
	return []json.RawMessage{appendCanonicalString(nil, c.Matches)}
}

func (c Condition) test(args json.RawMessage) comparison {
	value, ok, err := Lookup(args, c.Path)
	ops := c.operators()
	if !ok || err != nil || len(ops) != 1 {
		return incomparable
	}
	return ops[0].test(value, ops[0].operands)
}

func (c Condition) matchesPattern(value json.RawMessage, _ []json.RawMessage) comparison {
	re, err := regexp.Compile(c.Matches)
	s, ok := jsonString(value)
	if err != nil || !ok {
		return incomparable
	}
	return comparisonOf(re.MatchString(s))
}

// isIn holds if value equals an operand, and is incomparable if it has the type of none.
func isIn(value json.RawMessage, operands []json.RawMessage) comparison {
	best := incomparable
	for _, operand := range operands {
		switch equalScalars(value, operand) {
		case holds:
			return holds
		case fails:
			best = fails
		}
	}
	return best
}

func isNotIn(value json.RawMessage, operands []json.RawMessage) comparison {
	switch isIn(value, operands) {
	case holds:
		return fails
	case fails:
		return holds
	}
	return incomparable
}

// equalScalars compares values of one type; a null in the rule compares with every type.
func equalScalars(value, operand json.RawMessage) comparison {
	kind, want := jsonKind(value), jsonKind(operand)
	if want == 'n' {
		return comparisonOf(kind == 'n')
	}
	if kind != want {
		return incomparable
	}
	switch kind {
	case '0':
		c, err := CompareNumbers(string(value), string(operand))
		if err != nil {
			return incomparable
		}
		return comparisonOf(c == 0)
	case '"':
		a, ok := jsonString(value)
		b, ok2 := jsonString(operand)
		if !ok || !ok2 {
			return incomparable
		}
		return comparisonOf(a == b)
	case 'b':
		return comparisonOf(string(value) == string(operand))
	}
	return incomparable
}

func ordered(accept func(c int) bool) func(json.RawMessage, []json.RawMessage) comparison {
	return func(value json.RawMessage, operands []json.RawMessage) comparison {
		c, err := CompareNumbers(string(value), string(operands[0]))
		if err != nil {
			return incomparable
		}
		return comparisonOf(accept(c))
	}
}

func jsonString(raw json.RawMessage) (string, bool) {
	var s string
	if jsonKind(raw) != '"' || json.Unmarshal(raw, &s) != nil {
		return "", false
	}
	return s, true
}

// CheckPermission finds what is wrong with a resolved permission; a non-nil error is Problems.
func CheckPermission(p Permission) error {
	var c checker
	c.permission("permission", p)
	return c.err()
}

func (c *checker) permission(at string, p Permission) {
	oneOf(c, at+".mode", p.Mode, ModeSuspendAndReplay, ModeBlockAndRetry, ModeAdvisory)
	oneOf(c, at+".scope", cmp.Or(p.Scope, ScopeCall), ScopeCall, ScopeTool)
	oneOf(c, at+".grants", cmp.Or(p.Grants, GrantsRun), GrantsRun, GrantsOnce, GrantsStanding)
	if p.Grants == GrantsStanding {
		c.standing(at+".grants", p)
	}
	c.bounds(at+".standing", p)
	c.form(p.Backend == "" || validWord(p.Backend), at+".backend", p.Backend, "a name of letters, digits, _ and -")
	c.form(p.Policy == "" || validWord(p.Policy), at+".policy", p.Policy, "a name of letters, digits, _ and -")
	oneOf(c, at+".default", p.Default, DefaultByEffect, DefaultAllow, DefaultAsk, DefaultDeny)
	c.that(len(p.Approvers) > 0, at+".approvers", "got nobody, want at least one principal")
	c.principals(at+".approvers", p.Approvers)
	c.that(p.Expires > 0, at+".expires", "got nothing, want more than zero")
	for i, r := range p.Rules {
		path := fmt.Sprintf("%s.rules[%d]", at, i)
		c.rule(path, r)
		c.asking(path, r, cmp.Or(r.Expires, p.Expires))
	}
}

// standing finds what standing grants do not go with.
func (c *checker) standing(at string, p Permission) {
	switch {
	case p.Mode == ModeAdvisory:
		c.add(at, "got standing under mode advisory, where nobody grants anything; want run or once")
	case p.Backend != "":
		c.add(at, "got standing beside a backend, which keeps permissions of its own; want run or once, or no backend")
	}
}

func (c *checker) rule(at string, r Rule) {
	c.form(validToolPattern(r.Tool), at+".tool", r.Tool, "a pattern over original tool names, such as refunds.*")
	oneOf(c, at+".verdict", r.Verdict, VerdictAllow, VerdictAsk, VerdictDeny)
	c.principals(at+".approvers", r.Approvers)
	c.that(r.Expires >= 0, at+".expires", "got less than zero, want more")
	for i, cond := range r.When {
		c.condition(fmt.Sprintf("%s.when[%d]", at, i), cond)
	}
}

func (c *checker) condition(at string, cond Condition) {
	_, err := parsePointer(cond.Path)
	c.form(err == nil && cond.Path != "", at+".path", cond.Path, "a JSON Pointer such as /amount")
	ops := cond.operators()
	c.that(len(ops) == 1, at, fmt.Sprintf("got %d operators, want exactly one of %s", len(ops), operatorNames))
	for _, op := range ops {
		c.operands(at+"."+op.name, op)
	}
	if _, err := regexp.Compile(cond.Matches); err != nil {
		c.add(at+".matches", "got something else, want an RE2 regular expression")
	}
}

func (c *checker) operands(at string, op operator) {
	want := "a string, number, boolean or null"
	accepted := `"0bn`
	if op.name[0] == 'g' || op.name[0] == 'l' {
		want, accepted = "a number", "0"
	}
	for _, v := range op.operands {
		if _, err := CompactJSON(v, JSONLimits{}); err != nil || !strings.ContainsRune(accepted, rune(jsonKind(v))) {
			c.add(at, fmt.Sprintf("got %s, want %s", jsonKindName(v), want))
		}
	}
}

func jsonKindName(v json.RawMessage) string {
	name, ok := map[byte]string{
		'n': "null", 'b': "a boolean", '0': "a number", '"': "a string", '[': "a list", '{': "an object",
	}[jsonKind(v)]
	if !ok {
		return "something else"
	}
	return name
}

func (c *checker) principals(at string, ps []string) {
	for i, p := range ps {
		c.form(ValidPrincipal(p), fmt.Sprintf("%s[%d]", at, i), p, "user:NAME or group:NAME")
	}
}
