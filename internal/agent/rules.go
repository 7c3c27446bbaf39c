package agent

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/run"
)

// DefaultVerdict returns the verdict for a tool of effect e where no rule matches. It is ask if the default is unknown.
func (p Permission) DefaultVerdict(e run.Effect) Verdict {
	switch p.Default {
	case DefaultAllow:
		return VerdictAllow
	case DefaultDeny:
		return VerdictDeny
	case DefaultByEffect:
		if e == run.EffectRead || e == run.EffectIdempotent {
			return VerdictAllow
		}
	}
	return VerdictAsk
}

// Denies reports whether the rule denies. A rule with an unknown verdict does, too.
func (r Rule) Denies() bool { return r.Verdict != VerdictAllow && r.Verdict != VerdictAsk }

// Matches reports whether the rule applies to a call of the tool with these arguments. A condition that cannot be
// compared makes an allow rule fail and other rules match, so it never widens a permission.
func (r Rule) Matches(tool string, args json.RawMessage) bool {
	if !MatchTool(r.Tool, tool) {
		return false
	}
	for _, c := range r.When {
		held := c.Test(args)
		if held == jsonx.Incomparable && r.Verdict != VerdictAllow {
			continue
		}
		if held != jsonx.Holds {
			return false
		}
	}
	return true
}

// mayHave reports whether a pattern matches a tool of d, or one that a server may list.
func (d *Definition) mayHave(pattern string) bool {
	names := append(d.knownTools(), run.Map(d.EveryBuiltin(), func(t ToolSpec) string { return t.Name })...)
	return slices.ContainsFunc(names, func(name string) bool { return MatchTool(pattern, name) }) ||
		slices.ContainsFunc(d.MCP, func(m MCPServer) bool {
			head, _, isOpen := strings.Cut(pattern, "*")
			tool, named := strings.CutPrefix(head, m.Name+".")
			return m.Locked == nil && (named && (isOpen || m.Wants(tool)) || isOpen && strings.HasPrefix(m.Name+".", head))
		})
}

// knownTools returns the names of d's tools, and of those that mcp.lock pins.
func (d *Definition) knownTools() []string {
	names := run.Map(d.Tools, func(t ToolSpec) string { return t.Name })
	for _, m := range d.MCP {
		for _, own := range slices.Sorted(maps.Keys(m.Locked)) {
			names = append(names, m.Name+"."+own)
		}
	}
	return names
}

// describeUnmatched says that a pattern matches no tool, what follows, and which tools there are.
func (d *Definition) describeUnmatched(pattern, follows string) string {
	names := d.knownTools()
	text := fmt.Sprintf("%.64q matches no tool%s; the tools are %s", pattern, follows,
		cmp.Or(strings.Join(names, ", "), "none"))
	if like := Closest(pattern, names); len(like) > 0 {
		text += "; did you mean " + like[0] + "?"
	}
	return text
}

// MatchTool reports whether pattern matches all of name. '*' in the pattern matches any run of characters.
func MatchTool(pattern, name string) bool {
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

const operatorNames = "eq, ne, gt, gte, lt, lte, in, matches"

func (c *checker) permission(at string, p Permission) {
	c.enum(at+".mode", p.Mode)
	c.enumOrNone(at+".scope", p.Scope)
	c.enumOrNone(at+".grants", p.Grants)
	switch {
	case p.Grants != GrantsStanding:
	case p.Mode == ModeAdvisory:
		c.add(at+".grants", "got standing under mode advisory, where nobody grants anything; want run or once")
	case p.Backend != "":
		c.add(at+".grants",
			"got standing beside a backend, which keeps permissions of its own; want run or once, or no backend")
	}
	c.bounds(at+".standing", p)
	c.form(p.Backend == "" || ValidWord(p.Backend), at+".backend", p.Backend, "a name of letters, digits, _ and -")
	c.form(p.Policy == "" || ValidWord(p.Policy), at+".policy", p.Policy, "a name of letters, digits, _ and -")
	c.enum(at+".default", p.Default)
	c.that(len(p.Approvers) > 0, at+".approvers", "got nobody, want at least one principal")
	c.principals(at+".approvers", p.Approvers)
	c.that(p.Expires > 0, at+".expires", "got nothing, want more than zero")
	for i, r := range p.Rules {
		c.rule(fmt.Sprintf("%s.rules[%d]", at, i), r, cmp.Or(r.Expires, p.Expires))
		c.approvable(fmt.Sprintf("%s.rules[%d]", at, i), p, r)
	}
}

// approvable refuses a rule whose requests nobody could ever approve. The size of a group is not known here.
func (c *checker) approvable(at string, p Permission, r Rule) {
	if r.Verdict != VerdictAsk || p.Mode == ModeAdvisory {
		return
	}
	// A request for more budget is about one call in every mode.
	byTool := p.Mode == ModeBlockAndRetry && !strings.HasPrefix(r.Tool, "budget.")
	c.that(!byTool || !slices.Equal(r.Via, []run.Via{ViaSlack}), at+".via",
		"got slack alone under mode block_and_retry, whose requests have no buttons there; want another channel as well")
	asked := slices.Clone(r.Approvers)
	if len(asked) == 0 {
		asked = slices.Clone(p.Approvers)
	}
	if r.Escalate != nil {
		asked = append(asked, r.Escalate.To...)
	}
	slices.Sort(asked)
	people := len(slices.Compact(asked))
	c.that(r.Quorum <= people || slices.ContainsFunc(asked[:people], isGroup), at+".quorum",
		"got %d, want as many people among the approvers, or a group: they are %d", r.Quorum, people)
}

func isGroup(principal string) bool { return strings.HasPrefix(principal, "group:") }

// rule adds the problems of a rule whose requests live for expires.
func (c *checker) rule(at string, r Rule, expires time.Duration) {
	c.form(toolPattern.MatchString(r.Tool), at+".tool", r.Tool, "a pattern over original tool names, such as refunds.*")
	c.enum(at+".verdict", r.Verdict)
	c.principals(at+".approvers", r.Approvers)
	c.that(r.Expires >= 0, at+".expires", "got less than zero, want more")
	for i, cond := range r.When {
		c.condition(fmt.Sprintf("%s.when[%d]", at, i), cond)
	}
	c.that(r.Quorum >= 0 && r.Quorum <= MaxQuorum, at+".quorum", "got %d, want 1 to %d people", r.Quorum, MaxQuorum)
	c.duration(at+".remind", r.Remind)
	c.that(r.Remind == 0 || r.Remind < expires, at+".remind",
		"got as long as the request lives, or longer; want less than %s", expires)
	if r.Verdict == VerdictAllow || r.Verdict == VerdictDeny {
		for _, option := range []struct {
			key string
			is  bool
		}{{"quorum", r.Quorum != 0}, {"fourEyes", r.FourEyes}, {"remind", r.Remind != 0}, {"escalate", r.Escalate != nil},
			{"via", len(r.Via) > 0}, {"confirm", r.Confirm != ""}} {
			c.that(!option.is, at+"."+option.key, "got a value, want none: the rule asks nobody (verdict: %s)", r.Verdict)
		}
		return
	}
	for i, via := range r.Via {
		c.enum(fmt.Sprintf("%s.via[%d]", at, i), via)
		c.that(slices.Index(r.Via, via) == i, fmt.Sprintf("%s.via[%d]", at, i), "got a channel a second time, want it once")
	}
	c.enumOrNone(at+".confirm", r.Confirm)
	c.that(r.Confirm == "" || r.Channels().Allow(ViaPage), at+".confirm",
		"got %s, want none: via has no page, and other channels take none", r.Confirm)
	if r.Escalate == nil {
		return
	}
	c.that(r.Escalate.After > 0, at+".escalate.after", "got nothing, want a duration of more than zero")
	c.that(r.Escalate.After < expires, at+".escalate.after",
		"got as long as the request lives, or longer; want less than %s", expires)
	c.that(len(r.Escalate.To) > 0, at+".escalate.to", "got nobody, want at least one principal")
	c.principals(at+".escalate.to", r.Escalate.To)
}

func (c *checker) condition(at string, cond run.Condition) {
	_, err := jsonx.ParsePointer(cond.Path)
	c.form(err == nil && cond.Path != "", at+".path", cond.Path, "a JSON Pointer such as /amount")
	ops := cond.Operators()
	c.that(len(ops) == 1, at, "got %d operators, want exactly one of %s", len(ops), operatorNames)
	for _, op := range ops {
		want, accepted := "a string, number, boolean or null", `"0bn`
		if op.Name[0] == 'g' || op.Name[0] == 'l' {
			want, accepted = "a number", "0"
		}
		for _, v := range op.Operands {
			kind := jsonx.JSONKind(v)
			_, err := jsonx.CompactJSON(v, jsonx.JSONLimits{})
			c.that(err == nil && strings.ContainsRune(accepted, rune(kind)), at+"."+op.Name, "got %s, want %s",
				cmp.Or(kindNames[kind], "something else"), want)
		}
	}
	_, err = regexp.Compile(cond.Matches)
	c.that(err == nil, at+".matches", "got something else, want an RE2 regular expression")
}

// kindNames names the kinds of JSON values, by jsonx.JSONKind.
var kindNames = map[byte]string{
	'n': "null", 'b': "a boolean", '0': "a number", '"': "a string", '[': "a list", '{': "an object",
}

func (c *checker) principals(at string, ps []string) {
	for i, p := range ps {
		c.form(ValidPrincipal(p), fmt.Sprintf("%s[%d]", at, i), p, "user:NAME or group:NAME")
	}
}

// FlagsTools reports whether the definition may flag tools: its policy is advisory and names a tool that gets
// approvals.
func (d *Definition) FlagsTools() bool {
	return d.Permission.Mode == ModeAdvisory && d.Permission.ApprovalTool != ""
}

// UnseenApprovals returns the calls of the approval tool whose answers the model has not seen yet, in order. These
// answers count from the model's next inference on.
func (d *Definition) UnseenApprovals(s *run.AgentState) []run.Call {
	if !d.FlagsTools() {
		return nil
	}
	var calls []run.Call
	all := s.Messages.All()
	for i := len(all) - 1; i >= 0 && all[i].Seen(s.Inferences) == 0; i-- {
		r, ok := all[i].Block.(run.ToolResult)
		if !ok || r.IsError {
			continue
		}
		if c, ok := s.Call(r.ID); ok && c.Tool == d.Permission.ApprovalTool && c.Status == run.StatusSucceeded {
			calls = append(calls, c)
		}
	}
	slices.Reverse(calls)
	return calls
}

// ConditionWords returns conditions as a text, joined by "and"; "" = there are none.
func ConditionWords(when []run.Condition) string {
	return strings.Join(run.Map(when, run.Condition.Words), " and ")
}

// ParseCondition parses the text that Condition.Words returns.
func ParseCondition(words string) (run.Condition, error) {
	var c run.Condition
	path, rest, ok := strings.Cut(strings.TrimSpace(words), " ")
	if strings.HasPrefix(words, `"`) {
		d := json.NewDecoder(strings.NewReader(words))
		if d.Decode(&path) != nil {
			return c, fmt.Errorf("got %q, want a path, one of %s, and a JSON value, such as /amount lte 50", words,
				operatorNames)
		}
		rest = words[d.InputOffset():]
	}
	op, value, ok2 := strings.Cut(strings.TrimSpace(rest), " ")
	value = strings.TrimSpace(value)
	c.Path = path
	if !ok || !ok2 || !json.Valid([]byte(value)) || !c.Set(op, json.RawMessage(value)) {
		return c, fmt.Errorf("got %q, want a path, one of %s, and a JSON value, such as /amount lte 50 or /to eq \"ana\"",
			words, operatorNames)
	}
	var problems checker
	problems.condition("condition", c)
	return c, problems.err()
}

// Current is the deployment's present policy for a run's agent and for the agents that delegated the run. Policy that
// was tightened while the run was parked applies to it, too. The stricter of pinned and current policy wins, so Current
// never widens anything (A17).
type Current struct {
	Permission Permission   // the agent's own
	Tools      []ToolSpec   // its own; a pinned tool that is missing here is disabled
	Servers    []MCPServer  // a pinned tool of a server that these deny, or do not lock, is disabled as well
	Above      []Permission // policies of the agents that delegated the run, the root's first
}

// Tool returns a tool of the pinned definition with the effect that the current one gives it. It returns false if the
// current definition has the tool no longer.
func (n *Current) Tool(pinned *Definition, t ToolSpec) (ToolSpec, bool) {
	if t.MCP != nil {
		named := func(m MCPServer) bool { return m.Name == t.MCP.Server }
		if was, ok := run.First(pinned.MCP, named); ok {
			now, ok := run.First(n.Servers, named)
			t.Effect = now.Spec(ServerTool{Name: t.MCP.Tool}).Effect
			return t, ok && now.Wants(t.MCP.Tool) && (was.Locked == nil || now.Locked[t.MCP.Tool] == t.MCP.Digest)
		}
	}
	named := func(p ToolSpec) bool { return p.Name == t.Name }
	if now, ok := run.First(n.Tools, named); ok {
		t.Effect = now.Effect
		return t, true
	}
	return t, !slices.ContainsFunc(pinned.Tools, named)
}

// AsPinned returns the definition as it was pinned, without the deployment's current policy.
func (d *Definition) AsPinned() *Definition {
	pinned := *d
	pinned.Now = nil
	return &pinned
}

// Validator checks arguments against a tool's schema. The model may see the text of its error.
type Validator func(t ToolSpec, args json.RawMessage) error

// Once reports whether one claim uses up a grant of a tool. Under scope call, a grant stands for the one call that the
// model repeats, unless the grant is standing.
func (p Permission) Once() bool {
	return p.Grants == GrantsOnce || p.Scope != ScopeTool && p.Grants != GrantsStanding
}

// Precondition is a call of a reading tool whose result another call depends on. The result is shown to approvers and
// read again right before the call runs. If it has changed, people are asked again.
type Precondition struct {
	Tool string `json:"tool"` // original name, of the same agent, of effect read
	// an object, in which {"args": "/pointer"} stands for that value of the call's arguments
	Args json.RawMessage `json:"args,omitempty"`
	// JSON Pointers of the values of the result that are compared and shown; none = all of it
	Compare []string `json:"compare,omitempty"`
	// marks values of a JSON result that match one of these, for approvers; it has no other effect
	Warn []run.Condition `json:"warn,omitempty"`
}

// preconditions checks that each precondition is read by a suitable tool of the agent.
func (c *checker) preconditions(d *Definition) {
	for i, t := range d.Tools {
		if t.Precondition == nil {
			continue
		}
		at := fmt.Sprintf("tools[%d].precondition", i)
		reader, ok := c.toolName(at+".tool", d, t.Precondition.Tool, " that reads")
		switch {
		case !ok:
		case reader.Effect != run.EffectRead:
			c.add(at+".tool", "got a tool of effect %s, want one of effect read", reader.Effect)
		case reader.AnsweredLater():
			c.add(at+".tool", "got a tool that is answered later, want one that reads at once")
		}
		if t.Precondition.Args != nil {
			c.noError(at+".args", checkUndoArgs(t.Precondition.Args, false))
		}
		for j, p := range t.Precondition.Compare {
			if _, err := jsonx.ParsePointer(p); err != nil || p == "" || slices.Index(t.Precondition.Compare, p) != j {
				c.add(fmt.Sprintf("%s.compare[%d]", at, j), "got %.100q, want a JSON Pointer such as /status, once", p)
			}
		}
		for j, w := range t.Precondition.Warn {
			c.condition(fmt.Sprintf("%s.warn[%d]", at, j), w)
		}
	}
}

// MaxQuorum is the highest number of approvals that a rule may require.
const MaxQuorum = 20

// StandingLife is the longest lifetime of a standing grant. Every grant expires.
const StandingLife = 30 * 24 * time.Hour

// Standing reports whether grants outlive the run.
func (p Permission) Standing() bool { return p.Grants == GrantsStanding && p.Mode != ModeAdvisory }

// MayList reports whether the policy has a function that lists more tools to ask about. An advisory policy asks nobody.
func (p Permission) MayList() bool { return p.Policy != "" && p.Mode != ModeAdvisory }

// GrantsExactArguments reports whether a standing grant covers the tool with exactly the granted arguments (scope
// call). Otherwise a standing grant covers the tool with any arguments.
func (p Permission) GrantsExactArguments() bool { return p.Standing() && p.Scope != ScopeTool }

// GrantBounds limits a standing grant: for which arguments, how often, and how long. The zero value means StandingLife
// alone.
type GrantBounds struct {
	// conditions that the arguments have to match; empty = see Permission.GrantsExactArguments
	When    []run.Condition `json:"when,omitempty"`
	Uses    int             `json:"uses,omitempty"`    // number of claims that the grant covers; 0 = no limit
	Seconds int64           `json:"seconds,omitempty"` // lifetime from the moment of the grant; 0 = no limit
	Until   time.Time       `json:"until,omitzero"`
}

// StandingBounds is the policy's limit for standing grants. A person who grants may narrow it, but never widen it.
type StandingBounds struct {
	Uses    int             `json:"uses,omitempty"`    // 0 = no limit
	Expires time.Duration   `json:"expires,omitempty"` // 0 = StandingLife, the longest
	When    []run.Condition `json:"when,omitempty"`    // other arguments are granted for their own call only
	// under scope call: a grant may cover a pattern of arguments instead of the exact arguments
	Pattern bool `json:"pattern,omitempty"`
}

// Limits of the pattern of one grant.
const (
	maxGrantConditions = 10
	maxGrantPattern    = 4096 // bytes of the canonical conditions
	maxGrantUses       = 1_000_000
)

// Zero reports whether the bounds limit nothing.
func (b GrantBounds) Zero() bool {
	return len(b.When) == 0 && b.Uses == 0 && b.Seconds == 0 && b.Until.IsZero()
}

// RecordAlone reports whether a grant with these bounds exists only as a record, also in the run in which it is given.
// Such a grant counts its uses or depends on the arguments, and only the record knows what is left of it.
func (b GrantBounds) RecordAlone() bool { return len(b.When) > 0 || b.Uses > 0 }

// Same reports whether both have the same bounds as written.
func (b GrantBounds) Same(c GrantBounds) bool {
	return slices.Equal(CanonicalWhen(b.When), CanonicalWhen(c.When)) && b.Uses == c.Uses && b.Seconds == c.Seconds &&
		b.Until.Equal(c.Until)
}

// Expires returns when a grant that is given at that time expires.
func (b GrantBounds) Expires(at time.Time) time.Time {
	expires := at.Add(StandingLife)
	if b.Seconds > 0 && b.Seconds < int64(StandingLife/time.Second) {
		expires = at.Add(time.Duration(b.Seconds) * time.Second)
	}
	if !b.Until.IsZero() && b.Until.Before(expires) {
		expires = b.Until
	}
	return expires.UTC().Truncate(time.Millisecond)
}

// Grant returns the policy's limits as bounds of a grant.
func (b StandingBounds) Grant() GrantBounds {
	return GrantBounds{When: b.When, Uses: b.Uses, Seconds: int64(b.Expires / time.Second)}
}

// Zero reports whether the bounds allow nothing beyond a plain grant.
func (b StandingBounds) Zero() bool { return !b.Pattern && b.Grant().Zero() }

// Patterned reports whether one grant under p may cover several sets of arguments.
func (p Permission) Patterned() bool { return p.Scope == ScopeTool || p.Bounds.Pattern }

// Patterns reports whether a standing grant may have a pattern. Under scope tool it always may, since a pattern narrows
// it. Under scope call the policy has to allow patterns, since they widen a grant.
func (p Permission) Patterns() bool { return p.Standing() && p.Patterned() }

// CheckGrant returns the problems of the bounds that a person gives a grant. A non-nil error is Problems.
func CheckGrant(b GrantBounds) error {
	var c checker
	c.when("grant.when", b.When)
	c.that(b.Uses >= 0 && b.Uses <= maxGrantUses, "grant.uses", "got %d, want 0 to %d", b.Uses, maxGrantUses)
	c.that(b.Seconds >= 0, "grant.seconds", "got less than zero, want more")
	return c.err()
}

func (c *checker) when(at string, when []run.Condition) {
	c.that(len(when) <= maxGrantConditions, at, "got %d conditions, want at most %d", len(when), maxGrantConditions)
	for i, cond := range when {
		c.condition(fmt.Sprintf("%s[%d]", at, i), cond)
	}
	size := len(strings.Join(CanonicalWhen(when), ""))
	c.that(size <= maxGrantPattern, at, "got %d bytes of conditions, want at most %d", size, maxGrantPattern)
}

// bounds checks the policy's limits for standing grants.
func (c *checker) bounds(at string, p Permission) {
	b := p.Bounds
	if b.Zero() {
		return
	}
	c.that(p.Grants == GrantsStanding, at,
		"got bounds of standing grants beside grants %s, want grants: standing", cmp.Or(p.Grants, GrantsRun))
	c.that(!b.Pattern || p.Scope != ScopeTool, at+".pattern",
		"got true under scope tool, where every grant may be of a pattern; want none")
	c.that(b.Uses >= 0 && b.Uses <= maxGrantUses, at+".uses", "got %d, want 0 to %d", b.Uses, maxGrantUses)
	c.that(b.Expires == 0 || b.Expires >= time.Second && b.Expires <= StandingLife, at+".expires",
		"got %s, want 1s to 30d", b.Expires)
	c.when(at+".when", b.When)
	c.that(len(b.When) == 0 || p.Mode != ModeBlockAndRetry, at+".when",
		"got conditions under mode block_and_retry, where a call that does not fit them could never run; want none")
}
