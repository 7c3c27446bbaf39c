package policy

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/run"
)

// StandingDigest returns the digest of a permission to call a tool in every run of an agent: tenant, agent, tool,
// policy and approvers. Run, version and call are not part of it. A changed tool, policy or list of approvers is
// therefore not covered. Arguments are part of it if grants are for arguments (Permission.GrantsExactArguments).
func StandingDigest(
	d *agent.Definition, s *run.AgentState, t agent.ToolSpec, args json.RawMessage, dec Decision,
) string {
	return agent.HashCanonical(bindArguments(GrantPolicy(d), args, standingDigestInput(d, s, t, dec)))
}

// standingDigestInput returns what a standing grant's digest is made of, without arguments.
func standingDigestInput(d *agent.Definition, s *run.AgentState, t agent.ToolSpec, dec Decision) map[string]any {
	return map[string]any{
		"standing": true, "tenant": s.Tenant, "agent": s.Agent, "tool": t.Name, "toolHash": agent.ToolHash(t),
		"policyVersion": VersionOfPolicy(d), "approverPolicy": dec.ApproverPolicy(),
	}
}

// GrantedArgs returns the digest of the arguments that a grant is for. The order of keys and the escapes of strings do
// not count; the digits of numbers do.
func GrantedArgs(args json.RawMessage) string {
	return agent.HashHex([]byte(jsonx.CanonicalText(args)))
}

// bindArguments adds the digest of the arguments to a grant's digest input if grants are for arguments. No other digest
// has that key, so that the two kinds cannot be mistaken for each other.
func bindArguments(p agent.Permission, args json.RawMessage, of map[string]any) map[string]any {
	if p.GrantsExactArguments() {
		of["argsHash"] = GrantedArgs(args)
	}
	return of
}

// StandingOf returns the StandingDigest that covers a call.
func StandingOf(d *agent.Definition, s *run.AgentState, c run.Call) string {
	t, _ := d.Tool(c.Tool)
	dec := DecideIn(d, s, t, c.Input)
	return StandingDigest(d, s, t, c.Input, dec)
}

// OwnStandingGrant is a standing grant that the run itself was given, and the StandingDigest of its record.
type OwnStandingGrant struct {
	run.PermitRef
	Digest string
}

// UsableStandingGrants returns the standing grants given in the run that cover calls which are not claimed yet.
func UsableStandingGrants(d *agent.Definition, s *run.AgentState) []OwnStandingGrant {
	var held []OwnStandingGrant
	for _, c := range s.Live {
		t, known := d.Tool(c.Tool)
		if !known || c.Status != run.StatusNew && c.Status != run.StatusResuming {
			continue
		}
		dec := DecideIn(d, s, t, c.Input)
		p, covered := findPermit(s, c.Tool, ToolDigest(d, s, t, c.Input, dec), dec)
		if !covered || !p.Standing {
			continue
		}
		h := OwnStandingGrant{run.PermitRef{Tool: p.Tool, Approval: p.Approval}, StandingOf(d, s, c)}
		if !slices.Contains(held, h) {
			held = append(held, h)
		}
	}
	return held
}

// NeededStandingGrants returns the standing grants that could cover the round's new calls that need a permission, each
// once, in call order: counted and uncounted ones, but not patterns. Only tool and digest are set.
func NeededStandingGrants(d *agent.Definition, s *run.AgentState) []run.StandingGrant {
	var asked []run.StandingGrant
	for _, c := range unpermitted(d, s) {
		digest := StandingOf(d, s, c)
		if g := (run.StandingGrant{Tool: c.Tool, Digest: digest}); !slices.ContainsFunc(asked, g.Same) {
			asked = append(asked, g, run.StandingGrant{Tool: c.Tool, Digest: CountedPrefix + digest})
		}
	}
	return asked
}

// The digest of a pattern grant begins with PatternPrefix. That of any other grant with counted uses begins with
// CountedPrefix. So grants of each kind have their own records.
const (
	PatternPrefix = "when-"
	CountedPrefix = "uses-"
)

// NarrowGrant returns bounds that both a and b allow: the conditions of both, the fewer uses, the earlier end.
func NarrowGrant(a, b agent.GrantBounds) agent.GrantBounds {
	out := agent.GrantBounds{When: slices.Clip(a.When), Uses: lowerLimit(a.Uses, b.Uses),
		Seconds: lowerLimit(a.Seconds, b.Seconds), Until: a.Until}
	have := agent.CanonicalWhen(a.When)
	for _, c := range b.When {
		if !slices.Contains(have, agent.CanonicalWhen([]run.Condition{c})[0]) {
			out.When = append(out.When, c)
		}
	}
	if out.Until.IsZero() || !b.Until.IsZero() && b.Until.Before(out.Until) {
		out.Until = b.Until
	}
	return out
}

// lowerLimit returns the lower of two limits; 0 is no limit.
func lowerLimit[N ~int | ~int64](a, b N) N {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// StandingBase returns the StandingDigest of a tool without arguments, which the digests of patterns are made of.
func StandingBase(d *agent.Definition, s *run.AgentState, t agent.ToolSpec, dec Decision) string {
	return agent.HashCanonical(standingDigestInput(d, s, t, dec))
}

// PatternDigest returns the digest of a grant of a tool for arguments that fit the conditions. Their order does not
// count.
func PatternDigest(base string, when []run.Condition) string {
	return PatternPrefix + agent.HashCanonical(map[string]any{"base": base, "when": stringList(agent.CanonicalWhen(when))})
}

// CoveringPatterns returns the pattern grants of found that cover a new call of the round that needs a permission, in
// order, at most maxCovering a tool.
func CoveringPatterns(d *agent.Definition, s *run.AgentState, found []run.StandingGrant) []run.StandingGrant {
	var out []run.StandingGrant
	of, calls := map[string]int{}, unpermitted(d, s)
	for _, g := range found {
		t, _ := d.Tool(g.Tool)
		covers := slices.ContainsFunc(calls, func(c run.Call) bool {
			return c.Tool == g.Tool && coversCall(g.Digest, g.When, d, s, t, c, DecideIn(d, s, t, c.Input))
		})
		if covers && of[g.Tool] < maxCovering {
			out = append(out, g)
			of[g.Tool]++
		}
	}
	return out
}

// maxCovering is how many pattern grants of a tool are used for one round, so that its entry stays small.
const maxCovering = 8

// coversCall reports whether a standing grant with this digest and these conditions covers the call under the decision.
// The arguments must match the conditions.
func coversCall(
	digest string, when []run.Condition, d *agent.Definition, s *run.AgentState, t agent.ToolSpec, c run.Call,
	dec Decision,
) bool {
	if len(when) > 0 {
		return jsonx.Fits(when, c.Input) && digest == PatternDigest(StandingBase(d, s, t, dec), when)
	}
	return strings.TrimPrefix(digest, CountedPrefix) == StandingDigest(d, s, t, c.Input, dec)
}

// findStandingGrant returns the standing grant that a new call may be claimed under: one for its tool or its exact
// arguments, else the first that is counted or has conditions. Under four eyes, a grant from the people whom the run
// acts for does not count (A10).
func findStandingGrant(
	d *agent.Definition, s *run.AgentState, t agent.ToolSpec, c run.Call, dec Decision, now time.Time,
) (run.StandingGrant, bool) {
	if s.Permissions.Checked.Inference != c.Inference {
		return run.StandingGrant{}, false
	}
	requesters := s.Requesters()
	given := func(v run.Approver) bool { return slices.Contains(requesters, v.By) }
	usable := slices.Clone(s.Permissions.Checked.Standing)
	usable = slices.DeleteFunc(usable, func(g run.StandingGrant) bool {
		return g.Tool != c.Tool || !now.Before(g.Expires) || !g.Left() ||
			!dec.isApprovedBy(g.ApprovedBy, dec.ApproversNeeded(g.Edited), g.Asked, g.Requesters) ||
			dec.FourEyes && slices.ContainsFunc(g.ApprovedBy, given) || len(g.When) > 0 && !GrantPolicy(d).Patterns() ||
			!coversCall(g.Digest, g.When, d, s, t, c, dec)
	})
	if len(usable) == 0 {
		return run.StandingGrant{}, false
	}
	plain := slices.IndexFunc(usable, func(g run.StandingGrant) bool {
		return len(g.When) == 0 && !strings.HasPrefix(g.Digest, CountedPrefix)
	})
	return usable[max(plain, 0)], true
}

// grantCovers reports whether the grant that a call was claimed under covers that call under the decision.
func grantCovers(
	g *run.Grant, d *agent.Definition, s *run.AgentState, t agent.ToolSpec, c run.Call, dec Decision,
) bool {
	return coversCall(g.Digest, g.When, d, s, t, c, dec) ||
		len(g.When) == 0 && g.Digest == ToolDigest(d, s, t, c.Input, dec)
}

// StandingRecord returns the digest of the stored grant that a call with a standing grant is checked against when it is
// claimed again: the one that its claim used, or the one that covers it if it was granted in the run.
func StandingRecord(d *agent.Definition, s *run.AgentState, c run.Call) string {
	if c.Grant != nil &&
		(strings.HasPrefix(c.Grant.Digest, PatternPrefix) || strings.HasPrefix(c.Grant.Digest, CountedPrefix)) {
		return c.Grant.Digest
	}
	return StandingOf(d, s, c)
}

// ToolsOf returns the tools of standing grants, each once.
func ToolsOf(grants []run.StandingGrant) []string {
	return uniqueTools(grants, func(g run.StandingGrant) string { return g.Tool })
}
