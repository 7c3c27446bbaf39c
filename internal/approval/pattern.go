package approval

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// GrantError says why a grant is not given as somebody bounds it; Problem is fit to be shown.
type GrantError struct{ Problem string }

func (e *GrantError) Error() string { return "grant refused: " + e.Problem }

// MaxPatterns is how many grants of patterns of a tool an agent has at a time. All of them are read for a round that asks.
const MaxPatterns = 100

// maxPatternPages bounds what is read of a tool's grants of patterns, ended ones included. What lies behind covers nothing.
const maxPatternPages = 4

// usedAttr is the attribute that counts the claims under a standing grant.
const usedAttr = "used"

func (g StandingGrant) isExhausted() bool { return g.Uses > 0 && g.Used >= g.Uses }

// RemainingUses is how many claims the grant still covers; of one that is not counted, 0.
func (g StandingGrant) RemainingUses() int { return max(0, g.Uses-g.Used) }

// toRunGrant is the grant as a run reads it.
func (g StandingGrant) toRunGrant() run.StandingGrant {
	return run.StandingGrant{
		Tool: g.Tool, Approval: g.Approval, Digest: g.Digest, By: g.By, Note: g.Note, Expires: g.Expires, When: g.When,
		Uses: g.Uses, Used: g.Used, Run: g.Run,
	}
}

// setBounds adds to a cover and its permission how far a grant may go.
func (p *Permission) setBounds(def *agent.Definition, s *run.AgentState, c run.Call, dec policy.Decision, covers *Cover) {
	granting := policy.Granting(def)
	if covers.Call != "" && granting.Patterns() {
		t, _ := def.Tool(c.Tool)
		covers.Base = policy.StandingBase(def, s, t, dec)
	}
	if b := granting.Bounds.Grant(); !b.Zero() {
		p.Bounds = &b
	}
}

// patternBase is the digest of which those of patterns are made; "" = a grant may be of none.
func (c Cover) patternBase() string {
	if c.Call == "" {
		return c.Digest
	}
	return c.Base
}

// grantBounds is how far the grant of a tool goes: the narrowest of what the policy and everybody who approved said. Where somebody approved the
// very arguments, no pattern is what all of them said: it is of those. An edit is the word of who made it alone.
func (a Approval) grantBounds(p Permission) agent.GrantBounds {
	var out agent.GrantBounds
	if p.Bounds != nil {
		out = *p.Bounds
	}
	said, exact := a.CountedApprovals(), false
	if a.Kind == KindTools {
		said = a.approvalsOfTool(p.Tool)
	}
	for _, d := range said {
		var by agent.GrantBounds
		if d.Grant != nil {
			by = *d.Grant
		}
		exact = exact || len(by.When) == 0
		out = policy.NarrowGrant(out, by)
	}
	if of := slices.ContainsFunc(p.Standing, func(c Cover) bool { return c.Call != "" }); of && exact {
		out.When = nil
	}
	return out
}

// applyBounds makes the record of what a decided permission grants of a cover; false = it grants nothing that stands, as the policy's conditions do
// not hold for the call. Text is how arguments of a tool are read, with secrets masked.
func (g *StandingGrant) applyBounds(decided Approval, p Permission, c Cover, text func(tool string, args json.RawMessage) (string, error)) (bool, error) {
	b := decided.grantBounds(p)
	g.Uses, g.Expires = b.Uses, b.Expires(g.At)
	if p.Bounds != nil && !p.argsMatch(p.Bounds.When, c.Call) {
		return false, nil
	}
	args, of := p.coveredArgs(c)
	switch {
	case len(b.When) > 0:
		g.Digest, g.When = policy.PatternDigest(c.patternBase(), b.When), b.When
		return true, nil
	case of:
		shown, err := text(p.Tool, args)
		if err != nil {
			return false, err
		}
		g.ArgsHash, g.Args = policy.GrantedArgs(args), run.Bounded(shown)
	}
	if g.Uses > 0 {
		g.Digest = policy.CountedPrefix + c.Digest
	}
	return true, nil
}

// argsMatch reports whether the arguments of the call that asks fit all conditions; "" = those of every call that does.
func (p Permission) argsMatch(when []run.Condition, call string) bool {
	return !slices.ContainsFunc(p.Calls, func(b BlockedCall) bool { return (call == "" || b.Call == call) && !run.Fits(when, b.Args) })
}

// checkGrantBounds finds what is wrong with how r, which is a's newest decision, bounds what an approval of a call grants.
func (a Approval) checkGrantBounds(r DecisionInput, now time.Time) error {
	var fact run.Decided
	if len(a.Permissions) == 1 {
		a.addPermit(&fact)
	}
	switch {
	case fact.Standing:
		return a.checkGrant(a.Permissions[0], r.Grant, now)
	case r.Grant != nil:
		return errNoStandingGrant(a)
	default:
		return nil
	}
}

// dropRecordOnlyPermit takes from the fact of an approval of a call what holds by its record alone. That is nothing to the run: the approval is of the call,
// and the next one is covered by the record.
func (a Approval) dropRecordOnlyPermit(fact *run.Decided) {
	if fact.Standing && a.grantBounds(a.Permissions[0]).RecordAlone() {
		fact.Permit, fact.Standing = "", false
	}
}

// checkToolGrantBounds finds what is wrong with how r, which is a's newest decision, bounds what it grants of the tools at these places, and says in
// the fact for the run what holds by its record alone. Nil = the run is to hear nothing yet.
func (a Approval) checkToolGrantBounds(fact *run.Decided, r DecisionInput, open []int, now time.Time) error {
	if r.Action != Approve || a.Grants != agent.GrantsStanding {
		if r.Grant != nil {
			return errNoStandingGrant(a)
		}
		return nil
	}
	if r.Grant != nil && len(r.Grant.When) > 0 && len(open) > 1 {
		return &GrantError{Problem: "grant.when: got conditions for several tools, want one tool to be named"}
	}
	for _, i := range open {
		p := a.Permissions[i]
		if err := a.checkGrant(p, r.Grant, now); err != nil {
			return err
		}
		if p.Verdict == run.ToolGranted && a.grantBounds(p).RecordAlone() {
			fact.Once = true
		}
	}
	return nil
}

// hasOtherBounds reports whether the person has approved already, with other bounds than r gives. One that gives none says nothing new.
func (a Approval) hasOtherBounds(r DecisionInput) bool {
	return r.Grant != nil && slices.ContainsFunc(a.approvalsCountedWith(r), func(d Decision) bool { return d.By == r.By.ID && !equalBounds(d.Grant, r.Grant) })
}

func errNoStandingGrant(a Approval) error {
	return &GrantError{Problem: fmt.Sprintf("grant: got bounds of a standing grant, and this decision on approval %s gives none", a.ID)}
}

// validatePattern refuses a pattern over what is a secret in the request's arguments: patterns are kept as they are, for people to read.
func (d *Desk) validatePattern(ctx context.Context, a Approval, r DecisionInput) error {
	if r.Grant == nil || len(r.Grant.When) == 0 {
		return nil
	}
	masked := d.argsMasker(ctx, a)
	for _, p := range a.Permissions {
		if a.Kind == KindTools && r.Tool != "" && r.Tool != p.Tool && r.Tool != p.Name {
			continue
		}
		for _, b := range p.Calls {
			text, err := masked(p.Tool, b.Args)
			if err != nil {
				return err
			}
			for _, c := range r.Grant.When {
				is, _, _ := jsonx.Lookup(b.Args, c.Path) // read before, as it fits
				if seen, _, err := jsonx.Lookup(json.RawMessage(text), c.Path); err != nil || !bytes.Equal(is, seen) {
					return &GrantError{Problem: fmt.Sprintf("grant.when: got a condition on %s, which holds a secret", c.Path)}
				}
			}
		}
	}
	return nil
}

// checkGrant finds what is wrong with the bounds that a decision gives.
func (a Approval) checkGrant(p Permission, b *agent.GrantBounds, now time.Time) error {
	if b == nil {
		return nil
	}
	for _, of := range []agent.GrantBounds{*b, a.grantBounds(p)} {
		if err := agent.CheckGrant(of); err != nil {
			return &GrantError{Problem: err.Error()}
		}
	}
	if err := checkWithinPolicy(*b, p.Bounds, now); err != nil {
		return err
	}
	if len(b.When) == 0 {
		return nil
	}
	if slices.ContainsFunc(p.Standing, func(c Cover) bool { return c.patternBase() == "" }) {
		return &GrantError{Problem: "grant.when: got conditions, and the agent's policy grants calls with their very arguments alone (permission.standing.pattern)"}
	}
	for _, c := range b.When {
		if !p.argsMatch([]run.Condition{c}, "") {
			return &GrantError{Problem: fmt.Sprintf("grant.when: the arguments of the request itself do not fit %s", c.Words())}
		}
	}
	return nil
}

// checkWithinPolicy refuses what goes further than the policy, or is over already.
func checkWithinPolicy(b agent.GrantBounds, policy *agent.GrantBounds, now time.Time) error {
	most := agent.GrantBounds{}
	if policy != nil {
		most = *policy
	}
	ends := most.Expires(now)
	switch {
	case most.Uses > 0 && b.Uses > most.Uses:
		return &GrantError{Problem: fmt.Sprintf("grant.uses: got %d, want at most %d", b.Uses, most.Uses)}
	case b.Seconds > int64(ends.Sub(now)/time.Second):
		return &GrantError{Problem: fmt.Sprintf("grant.seconds: got %d, want at most %d", b.Seconds, int64(ends.Sub(now)/time.Second))}
	case b.Until.After(ends):
		return &GrantError{Problem: fmt.Sprintf("grant.until: got %s, want %s or before", b.Until.Format(time.RFC3339), ends.Format(time.RFC3339))}
	case !b.Until.IsZero() && !b.Until.After(now):
		return &GrantError{Problem: fmt.Sprintf("grant.until: got %s, which is over", b.Until.Format(time.RFC3339))}
	}
	return nil
}

// equalBounds reports whether both bound a grant alike.
func equalBounds(a, b *agent.GrantBounds) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Same(*b)
}

// decidedWithSameBounds reports whether somebody has decided so about each of the tools at these places, with the bounds that r gives.
func (a Approval) decidedWithSameBounds(r DecisionInput, places []int) bool {
	return !slices.ContainsFunc(places, func(i int) bool {
		return !slices.ContainsFunc(a.Decisions, func(d Decision) bool {
			return d.Action == r.Action && slices.Contains(d.Tools, a.Permissions[i].Tool) && equalBounds(d.Grant, r.Grant)
		})
	})
}

// prepareGrantOps are the records of the standing grants that the newest decision gives, for which there is room.
func (d *Desk) prepareGrantOps(ctx context.Context, decided Approval, voices []run.Voice) ([]store.Op, error) {
	ops, err := d.standingGrantOps(ctx, decided)
	if err != nil || len(ops) == 0 {
		return nil, err
	}
	given, err := traceOp(decided, voices, ops)
	if err != nil {
		return nil, err
	}
	for _, op := range ops {
		tool, digest, _ := strings.Cut(op.Item.SK, "#")
		if !strings.HasPrefix(digest, policy.PatternPrefix) {
			continue
		}
		have, err := readPatterns(ctx, d.Table, decided.Tenant, decided.Agent, tool)
		if err != nil {
			return nil, err
		}
		now := d.Clock.Now()
		have = slices.DeleteFunc(have, func(g StandingGrant) bool { return !g.isLive(now) || g.Digest == digest })
		if len(have) >= MaxPatterns {
			return nil, &GrantError{Problem: fmt.Sprintf("grant.when: %s has %d grants of patterns for %s, want some to be revoked first", decided.Agent, len(have), tool)}
		}
	}
	return append(ops, given), nil
}

// LivePatterns reads the standing grants of patterns of these tools consistently: those that are neither revoked nor expired nor used up.
func LivePatterns(ctx context.Context, t store.Table, tenant, agentName string, tools []string, now time.Time) ([]run.StandingGrant, error) {
	var live []run.StandingGrant
	for _, tool := range tools {
		all, err := readPatterns(ctx, t, tenant, agentName, tool)
		if err != nil {
			return nil, err
		}
		for _, g := range all {
			if g.isLive(now) {
				live = append(live, g.toRunGrant())
			}
		}
	}
	return live, nil
}

// readPatterns are the records of grants of patterns of a tool, live or not.
func readPatterns(ctx context.Context, t store.Table, tenant, agentName, tool string) ([]StandingGrant, error) {
	from := tool + "#" + policy.PatternPrefix
	return readStandingRange(ctx, t, tenant, agentName, tool, store.Range{From: from, To: from + "~"}, maxPatternPages)
}
