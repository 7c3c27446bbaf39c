package agent

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// GrantBounds is how far a standing grant goes at most: for which arguments, how often, and how long. The zero value bounds nothing but what
// bounds every grant (StandingLife).
type GrantBounds struct {
	When    []Condition `json:"when,omitempty"`    // it is for arguments that fit all of these; empty = see Permission.OfArguments
	Uses    int         `json:"uses,omitempty"`    // claims that it covers; 0 = as many as there are
	Seconds int64       `json:"seconds,omitempty"` // from when it is given
	Until   time.Time   `json:"until,omitzero"`
}

// StandingBounds is what a policy says of the standing grants under it. Who grants may narrow it and never widen it.
type StandingBounds struct {
	Uses    int           `json:"uses,omitempty"`    // 0 = as many as there are
	Expires time.Duration `json:"expires,omitempty"` // 0 = StandingLife, which is the most
	When    []Condition   `json:"when,omitempty"`    // arguments that do not fit are granted for their own call at most
	Pattern bool          `json:"pattern,omitempty"` // under scope call: a grant may be of a pattern over the arguments, in place of the very arguments
}

// What one grant's pattern may be at most.
const (
	maxGrantConditions = 10
	maxGrantPattern    = 4096 // bytes of its canonical conditions
	maxGrantUses       = 1_000_000
)

// What begins the digest of a grant of a pattern, and of one that is counted and of no pattern. Others have neither, so that each kind stands
// beside the others.
const (
	PatternPrefix = "when-"
	CountedPrefix = "uses-"
)

// Zero reports whether nothing is bounded.
func (b GrantBounds) Zero() bool {
	return len(b.When) == 0 && b.Uses == 0 && b.Seconds == 0 && b.Until.IsZero()
}

// RecordAlone reports whether a grant with these bounds holds by its record alone, in the run in which it is given as in others: what it
// covers is counted, or depends on the arguments, and nothing but the record knows how much of it is left.
func (b GrantBounds) RecordAlone() bool { return len(b.When) > 0 || b.Uses > 0 }

// Same reports whether both say the same, as they are written.
func (b GrantBounds) Same(c GrantBounds) bool {
	return slices.Equal(canonicalWhen(b.When), canonicalWhen(c.When)) && b.Uses == c.Uses && b.Seconds == c.Seconds && b.Until.Equal(c.Until)
}

// Expires is when a grant that is given at that time ends.
func (b GrantBounds) Expires(at time.Time) time.Time {
	ends := at.Add(StandingLife)
	if b.Seconds > 0 && b.Seconds < int64(StandingLife/time.Second) {
		ends = at.Add(time.Duration(b.Seconds) * time.Second)
	}
	if !b.Until.IsZero() && b.Until.Before(ends) {
		ends = b.Until
	}
	return ends.UTC().Truncate(time.Millisecond)
}

// NarrowGrant is what both allow: all conditions of both, the fewer uses, the earlier end.
func NarrowGrant(a, b GrantBounds) GrantBounds {
	out := GrantBounds{When: slices.Clip(a.When), Uses: leastSet(a.Uses, b.Uses), Seconds: leastSet(a.Seconds, b.Seconds), Until: a.Until}
	have := canonicalWhen(a.When)
	for _, c := range b.When {
		if !slices.Contains(have, canonicalWhen([]Condition{c})[0]) {
			out.When = append(out.When, c)
		}
	}
	if out.Until.IsZero() || !b.Until.IsZero() && b.Until.Before(out.Until) {
		out.Until = b.Until
	}
	return out
}

// leastSet is the smaller of both, of which 0 bounds nothing.
func leastSet[N int | int64](a, b N) N {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// Grant is what the policy says as a grant says it.
func (b StandingBounds) Grant() GrantBounds {
	return GrantBounds{When: b.When, Uses: b.Uses, Seconds: int64(b.Expires / time.Second)}
}

func (b StandingBounds) zero() bool { return !b.Pattern && b.Grant().Zero() }

// under is what is left of p's bounds below the policy of an agent that delegates the run.
func (b StandingBounds) under(above Permission) StandingBounds {
	n := NarrowGrant(b.Grant(), above.Bounds.Grant())
	return StandingBounds{Uses: n.Uses, Expires: time.Duration(n.Seconds) * time.Second, When: n.When, Pattern: b.Pattern && above.patterned()}
}

func (p Permission) patterned() bool { return p.Scope == ScopeTool || p.Bounds.Pattern }

// Patterns reports whether a grant may be of a pattern: of a tool it always may, as that narrows it; of a call, where the policy's author
// says so, as that widens it.
func (p Permission) Patterns() bool { return p.Standing() && p.patterned() }

// Fits reports whether arguments that CompactJSON has accepted fit all conditions. A value that is missing, or of another type, fits none.
func Fits(when []Condition, args json.RawMessage) bool {
	return !slices.ContainsFunc(when, func(c Condition) bool { return c.test(args) != holds })
}

// CheckGrant finds what is wrong with the bounds that somebody gives a grant; a non-nil error is Problems.
func CheckGrant(b GrantBounds) error {
	var c checker
	c.when("grant.when", b.When)
	c.that(b.Uses >= 0 && b.Uses <= maxGrantUses, "grant.uses", fmt.Sprintf("got %d, want 0 to %d", b.Uses, maxGrantUses))
	c.that(b.Seconds >= 0, "grant.seconds", "got less than zero, want more")
	return c.err()
}

func (c *checker) when(at string, when []Condition) {
	c.that(len(when) <= maxGrantConditions, at, fmt.Sprintf("got %d conditions, want at most %d", len(when), maxGrantConditions))
	for i, cond := range when {
		c.condition(fmt.Sprintf("%s[%d]", at, i), cond)
	}
	size := len(strings.Join(canonicalWhen(when), ""))
	c.that(size <= maxGrantPattern, at, fmt.Sprintf("got %d bytes of conditions, want at most %d", size, maxGrantPattern))
}

// bounds finds what is wrong with what a policy says of standing grants.
func (c *checker) bounds(at string, p Permission) {
	b := p.Bounds
	if b.zero() {
		return
	}
	c.that(p.Grants == GrantsStanding, at, "got bounds of standing grants beside grants "+string(orRun(p.Grants))+", want grants: standing")
	c.that(!b.Pattern || p.Scope != ScopeTool, at+".pattern", "got true under scope tool, where every grant may be of a pattern; want none")
	c.that(b.Uses >= 0 && b.Uses <= maxGrantUses, at+".uses", fmt.Sprintf("got %d, want 0 to %d", b.Uses, maxGrantUses))
	c.that(b.Expires == 0 || b.Expires >= time.Second && b.Expires <= StandingLife, at+".expires", "got "+b.Expires.String()+", want 1s to 30d")
	c.when(at+".when", b.When)
	c.that(len(b.When) == 0 || p.Mode != ModeBlockAndRetry, at+".when", "got conditions under mode block_and_retry, where a call that does not fit them could never run; want none")
}

func orRun(g Grants) Grants {
	if g == "" {
		return GrantsRun
	}
	return g
}

// canonicalWhen are the conditions, each in its canonical form, in an order of their own.
func canonicalWhen(when []Condition) []string {
	out := make([]string, len(when))
	for i, c := range when {
		out[i] = string(appendCanonical(nil, canonicalCondition(c)))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// StandingBase is the StandingDigest of a tool whatever it is called with, of which the digests of patterns are made.
func StandingBase(d *Definition, s *AgentState, t ToolSpec, dec Decision) string {
	return hashCanonical(standingOf(d, s, t, dec))
}

// PatternDigest is the digest of a grant of a tool for arguments that fit the conditions, whose order does not count.
func PatternDigest(base string, when []Condition) string {
	return PatternPrefix + hashCanonical(map[string]any{"base": base, "when": stringList(canonicalWhen(when))})
}

// CoveringPatterns are those of the standing grants of patterns that cover a new call of the round which needs a permission, in their order,
// at most maxCovering of a tool.
func CoveringPatterns(d *Definition, s *AgentState, found []StandingGrant) []StandingGrant {
	var out []StandingGrant
	of := map[string]int{}
	for _, g := range found {
		t, known := d.Tool(g.Tool)
		covers := known && slices.ContainsFunc(s.Live, func(c Call) bool {
			return c.Status == StatusNew && c.Tool == g.Tool && g.covers(d, s, t, c, DecideIn(d, s, t, c.Input))
		})
		if covers && of[g.Tool] < maxCovering {
			out = append(out, g)
			of[g.Tool]++
		}
	}
	return out
}

// maxCovering is how many grants of patterns of a tool are looked at for one round, so that its entry stays small.
const maxCovering = 8

// covers reports whether a grant of a pattern is of that call under the policy as it is.
func (g StandingGrant) covers(d *Definition, s *AgentState, t ToolSpec, c Call, dec Decision) bool {
	return len(g.When) > 0 && g.Tool == t.Name && dec.Verdict == VerdictAsk && d.Granting().Patterns() && Fits(g.When, c.Input) &&
		g.Digest == PatternDigest(StandingBase(d, s, t, dec), g.When)
}

// left reports whether the grant covers another claim.
func (g StandingGrant) left() bool { return g.Uses == 0 || g.Used < g.Uses }

// givenBy reports whether one of these people gave the grant.
func (g StandingGrant) givenBy(people []string) bool {
	return slices.ContainsFunc(g.Voices, func(v Voice) bool { return slices.Contains(people, v.By) })
}

// standingFor is the standing grant that a new call may be claimed under: of its tool or its very arguments, or else the first that is counted
// or of a pattern. Where it takes four eyes, none is that the people gave for whom the run acts (A10).
func (s *AgentState) standingFor(d *Definition, t ToolSpec, c Call, dec Decision, now time.Time) (StandingGrant, bool) {
	if s.Permissions.Checked.Inference != c.Inference {
		return StandingGrant{}, false
	}
	holds := slices.DeleteFunc(slices.Clone(s.Permissions.Checked.Standing), func(g StandingGrant) bool {
		return g.Tool != c.Tool || !now.Before(g.Expires) || !g.left() || !g.counts(dec) ||
			dec.FourEyes && g.givenBy(s.Requesters())
	})
	digest := StandingDigest(d, s, t, c.Input, dec)
	i := slices.IndexFunc(holds, func(g StandingGrant) bool { return g.Digest == digest })
	if i < 0 {
		i = slices.IndexFunc(holds, func(g StandingGrant) bool { return g.Digest == CountedPrefix+digest || g.covers(d, s, t, c, dec) })
	}
	if i < 0 {
		return StandingGrant{}, false
	}
	return holds[i], true
}

// count takes one use of a counted standing grant.
func (p *Permissions) count(tool, digest string) {
	p.Checked.Standing = slices.Clone(p.Checked.Standing)
	for i := range p.Checked.Standing {
		if g := &p.Checked.Standing[i]; g.Tool == tool && g.Digest == digest && g.Uses > 0 {
			g.Used++
		}
	}
}

// holds reports whether a grant of a call's tool, which a claim has taken, is still of that call under the policy as it is.
func (g *Grant) holds(d *Definition, s *AgentState, t ToolSpec, c Call, dec Decision) bool {
	if len(g.When) > 0 {
		return Fits(g.When, c.Input) && g.Digest == PatternDigest(StandingBase(d, s, t, dec), g.When)
	}
	digest := StandingDigest(d, s, t, c.Input, dec)
	return g.Digest == digest || g.Digest == CountedPrefix+digest || g.Digest == ToolDigest(d, s, t, c.Input, dec)
}

// RecordOf is the digest of the record that a call which has a standing grant is held to when it is claimed again: the one its claim took, or
// the one that covers it where it was granted in the run.
func RecordOf(d *Definition, s *AgentState, c Call) string {
	if c.Grant != nil && (strings.HasPrefix(c.Grant.Digest, PatternPrefix) || strings.HasPrefix(c.Grant.Digest, CountedPrefix)) {
		return c.Grant.Digest
	}
	return StandingOf(d, s, c)
}

// ToolsOf are the tools of standing grants, each once.
func ToolsOf(grants []StandingGrant) []string {
	var tools []string
	for _, g := range grants {
		if !slices.Contains(tools, g.Tool) {
			tools = append(tools, g.Tool)
		}
	}
	return tools
}
