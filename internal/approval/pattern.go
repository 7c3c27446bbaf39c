package approval

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// GrantError says why a standing grant with these bounds is refused. Problem can be shown to the person.
type GrantError struct{ Problem string }

func (e *GrantError) Error() string { return "grant refused: " + e.Problem }

// MaxPatterns is how many pattern grants of a tool an agent can have at a time. A round that asks reads all of them.
const MaxPatterns = 100

// maxPatternPages bounds how much is read of a tool's pattern grants, ended ones included. Grants after that cover
// nothing.
const maxPatternPages = 4

// usedAttr is the attribute that counts the claims under a standing grant.
const usedAttr = "used"

func (g StandingGrant) toRunGrant() run.StandingGrant {
	return run.StandingGrant{
		Tool: g.Tool, Approval: g.Approval, Digest: g.Digest, By: g.By, Note: g.Note, Expires: g.Expires, When: g.When,
		Uses: g.Uses, Used: g.Used, Run: g.Run,
	}
}

// patternBase returns what the digests of patterns are derived from; "" = patterns are not allowed.
func (c Cover) patternBase() string {
	if c.Call == "" {
		return c.Digest
	}
	return c.Base
}

// grantBounds returns the bounds of the grant of a tool: the narrowest of what the policy and every approver said. If
// one of them approved the exact arguments, the grant has no pattern. An edit counts as its editor's decision alone.
func (a Approval) grantBounds(p Permission) agent.GrantBounds {
	out, exact := boundsOrNone(p.Bounds), false
	for _, d := range a.ApprovalsOf(p) {
		by := boundsOrNone(d.Grant)
		exact = exact || len(by.When) == 0
		out = policy.NarrowGrant(out, by)
	}
	if exact && slices.ContainsFunc(p.Standing, func(c Cover) bool { return c.Call != "" }) {
		out.When = nil
	}
	return out
}

// holdsByRecordAlone reports whether later calls are covered by the stored record of the grant alone, if there is one:
// the policy's conditions may rule it out.
func (a Approval) holdsByRecordAlone(p Permission) bool {
	return a.grantBounds(p).RecordAlone() || !p.argsMatch(boundsOrNone(p.Bounds).When, "")
}

func boundsOrNone(b *agent.GrantBounds) agent.GrantBounds {
	if b == nil {
		return agent.GrantBounds{}
	}
	return *b
}

// argsMatch reports whether the arguments of the call match all conditions; call "" = those of every call that asks.
func (p Permission) argsMatch(when []run.Condition, call string) bool {
	return !slices.ContainsFunc(p.Calls, func(b BlockedCall) bool {
		return (call == "" || b.Call == call) && !jsonx.Fits(when, b.Args)
	})
}

// tallyGrants checks the bounds that the decision sets on the standing grants that it gives. A grant that holds by its
// stored record alone permits nothing further in this run.
func (t *attempt) tallyGrants() error {
	of := t.permitted()
	switch {
	case t.Grant != nil && len(of) == 0:
		return &GrantError{Problem: fmt.Sprintf(
			"grant: got bounds of a standing grant, and this decision on approval %s gives none", t.ID)}
	case t.Grant != nil && len(t.Grant.When) > 0 && len(of) > 1:
		return &GrantError{Problem: "grant.when: got conditions for several tools, want one tool to be named"}
	}
	for _, p := range of {
		if err := t.checkGrant(p); err != nil {
			return err
		}
		switch {
		case p.Verdict != run.ToolGranted || !t.decided.holdsByRecordAlone(p):
		case t.decided.Kind == KindTools:
			t.fact.Once = true
		default: // else this run's like calls would be covered beside the record
			t.fact.Permit, t.fact.Standing = "", false
		}
	}
	return nil
}

// permitted returns the tools of which the decision gives a standing grant, the call's of a request about a call. They
// have no verdict as long as the quorum takes more people.
func (t *attempt) permitted() []Permission {
	a := t.decided
	if !isApproving(t.Action) || a.Grants != agent.GrantsStanding {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(a.Permissions), func(p Permission) bool {
		if a.Kind == KindTools {
			return !slices.Contains(t.record.Tools, p.Tool)
		}
		return a.Scope == agent.ScopeTool && a.OriginalArgs != nil
	})
}

// checkGrant validates the bounds that the decision sets for one permission. It refuses those that go beyond the
// policy's, or have expired already, and a pattern over a secret in the request's arguments, because patterns are
// stored and shown unmasked.
func (t *attempt) checkGrant(p Permission) error {
	b := t.Grant
	if b == nil {
		return nil
	}
	refuse := func(format string, args ...any) error { return &GrantError{Problem: fmt.Sprintf(format, args...)} }
	for _, of := range []agent.GrantBounds{*b, t.decided.grantBounds(p)} {
		if err := agent.CheckGrant(of); err != nil {
			return &GrantError{Problem: err.Error()}
		}
	}
	most := boundsOrNone(p.Bounds)
	ends := most.Expires(t.now)
	left := int64(ends.Sub(t.now) / time.Second)
	switch {
	case most.Uses > 0 && b.Uses > most.Uses:
		return refuse("grant.uses: got %d, want at most %d", b.Uses, most.Uses)
	case b.Seconds > left:
		return refuse("grant.seconds: got %d, want at most %d", b.Seconds, left)
	case b.Until.After(ends):
		return refuse("grant.until: got %s, want %s or before", b.Until.Format(time.RFC3339), ends.Format(time.RFC3339))
	case !b.Until.IsZero() && !b.Until.After(t.now):
		return refuse("grant.until: got %s, which is over", b.Until.Format(time.RFC3339))
	case len(b.When) > 0 && slices.ContainsFunc(p.Standing, func(c Cover) bool { return c.patternBase() == "" }):
		return refuse("grant.when: got conditions, and the agent's policy grants calls with their very arguments " +
			"alone (permission.standing.pattern)")
	}
	for _, c := range b.When {
		if !p.argsMatch([]run.Condition{c}, "") {
			return refuse("grant.when: the arguments of the request itself do not fit %s", c.Words())
		}
		for _, call := range p.Calls {
			is, _, _ := jsonx.Lookup(call.Args, c.Path) // no error: argsMatch has read it
			shown, _, err := jsonx.Lookup(json.RawMessage(t.mask(p.Tool, call.Args)), c.Path)
			if err != nil || !bytes.Equal(is, shown) {
				return refuse("grant.when: got a condition on %s, which holds a secret", c.Path)
			}
		}
	}
	return nil
}

func equalBounds(a, b *agent.GrantBounds) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Same(*b)
}

// LivePatterns reads consistently the live pattern grants of these tools: not revoked, not expired, not used up.
func LivePatterns(
	ctx context.Context, t store.Table, tenant, agentName string, tools []string, now time.Time,
) ([]run.StandingGrant, error) {
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

// readPatterns reads the pattern grants of a tool, live or not.
func readPatterns(ctx context.Context, t store.Table, tenant, agentName, tool string) ([]StandingGrant, error) {
	from := tool + "#" + policy.PatternPrefix
	return readStandingRange(ctx, t, tenant, agentName, tool, store.Range{From: from, To: from + "~"}, maxPatternPages)
}
