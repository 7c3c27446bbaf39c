package agent

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/run"
)

// StandingLife is how long a standing grant holds from the moment it is given. Every grant expires.
const StandingLife = 30 * 24 * time.Hour

// Standing reports whether people's grants outlive the run.
func (p Permission) Standing() bool { return p.Grants == GrantsStanding && p.Mode != ModeAdvisory }

// OfArguments reports whether a grant that outlives the run is of a tool with the very arguments that were granted, as
// decisions are of calls; else it is of the tool, whatever it is called with.
func (p Permission) OfArguments() bool { return p.Standing() && p.Scope != ScopeTool }

// GrantBounds is how far a standing grant goes at most: for which arguments, how often, and how long. The zero value
// bounds nothing but what bounds every grant (StandingLife).
type GrantBounds struct {
	// it is for arguments that fit all of these; empty = see Permission.OfArguments
	When    []run.Condition `json:"when,omitempty"`
	Uses    int             `json:"uses,omitempty"`    // claims that it covers; 0 = as many as there are
	Seconds int64           `json:"seconds,omitempty"` // from when it is given
	Until   time.Time       `json:"until,omitzero"`
}

// StandingBounds is what a policy says of the standing grants under it. Who grants may narrow it and never widen it.
type StandingBounds struct {
	Uses    int             `json:"uses,omitempty"`    // 0 = as many as there are
	Expires time.Duration   `json:"expires,omitempty"` // 0 = StandingLife, which is the most
	When    []run.Condition `json:"when,omitempty"`    // arguments that do not fit are granted for their own call at most
	// under scope call: a grant may be of a pattern over the arguments, in place of the very arguments
	Pattern bool `json:"pattern,omitempty"`
}

// What one grant's pattern may be at most.
const (
	maxGrantConditions = 10
	maxGrantPattern    = 4096 // bytes of its canonical conditions
	maxGrantUses       = 1_000_000
)

// Zero reports whether nothing is bounded.
func (b GrantBounds) Zero() bool {
	return len(b.When) == 0 && b.Uses == 0 && b.Seconds == 0 && b.Until.IsZero()
}

// RecordAlone reports whether a grant with these bounds holds by its record alone, in the run in which it is given as
// in others: what it covers is counted, or depends on the arguments, and nothing but the record knows how much of it is
// left.
func (b GrantBounds) RecordAlone() bool { return len(b.When) > 0 || b.Uses > 0 }

// Same reports whether both say the same, as they are written.
func (b GrantBounds) Same(c GrantBounds) bool {
	return slices.Equal(CanonicalWhen(b.When), CanonicalWhen(c.When)) && b.Uses == c.Uses && b.Seconds == c.Seconds &&
		b.Until.Equal(c.Until)
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

// Grant is what the policy says as a grant says it.
func (b StandingBounds) Grant() GrantBounds {
	return GrantBounds{When: b.When, Uses: b.Uses, Seconds: int64(b.Expires / time.Second)}
}

// Zero reports whether the bounds allow nothing beyond a plain grant.
func (b StandingBounds) Zero() bool { return !b.Pattern && b.Grant().Zero() }

// Patterned reports whether grants under p may cover more than one set of arguments.
func (p Permission) Patterned() bool { return p.Scope == ScopeTool || p.Bounds.Pattern }

// Patterns reports whether a grant may be of a pattern: of a tool it always may, as that narrows it; of a call, where
// the policy's author says so, as that widens it.
func (p Permission) Patterns() bool { return p.Standing() && p.Patterned() }

// CheckGrant finds what is wrong with the bounds that somebody gives a grant; a non-nil error is Problems.
func CheckGrant(b GrantBounds) error {
	var c checker
	c.when("grant.when", b.When)
	c.that(b.Uses >= 0 && b.Uses <= maxGrantUses, "grant.uses", fmt.Sprintf("got %d, want 0 to %d", b.Uses, maxGrantUses))
	c.that(b.Seconds >= 0, "grant.seconds", "got less than zero, want more")
	return c.err()
}

func (c *checker) when(at string, when []run.Condition) {
	c.that(len(when) <= maxGrantConditions, at, fmt.Sprintf("got %d conditions, want at most %d", len(when),
		maxGrantConditions))
	for i, cond := range when {
		c.condition(fmt.Sprintf("%s[%d]", at, i), cond)
	}
	size := len(strings.Join(CanonicalWhen(when), ""))
	c.that(size <= maxGrantPattern, at, fmt.Sprintf("got %d bytes of conditions, want at most %d", size, maxGrantPattern))
}

// bounds finds what is wrong with what a policy says of standing grants.
func (c *checker) bounds(at string, p Permission) {
	b := p.Bounds
	if b.Zero() {
		return
	}
	c.that(p.Grants == GrantsStanding, at,
		"got bounds of standing grants beside grants "+string(cmp.Or(p.Grants, GrantsRun))+", want grants: standing")
	c.that(!b.Pattern || p.Scope != ScopeTool, at+".pattern",
		"got true under scope tool, where every grant may be of a pattern; want none")
	c.that(b.Uses >= 0 && b.Uses <= maxGrantUses, at+".uses", fmt.Sprintf("got %d, want 0 to %d", b.Uses, maxGrantUses))
	c.that(b.Expires == 0 || b.Expires >= time.Second && b.Expires <= StandingLife, at+".expires",
		"got "+b.Expires.String()+", want 1s to 30d")
	c.when(at+".when", b.When)
	c.that(len(b.When) == 0 || p.Mode != ModeBlockAndRetry, at+".when",
		"got conditions under mode block_and_retry, where a call that does not fit them could never run; want none")
}
