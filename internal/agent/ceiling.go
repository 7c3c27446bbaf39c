package agent

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Delegated is a child's definition as it is pinned for a run that an agent delegates: below the policy of that agent, and of those that
// delegated to it. What a definition says of its ceilings by itself does not count. Nothing is shared that is written later.
func Delegated(parent *Definition, child Definition) Definition {
	child.Ceilings = append(slices.Clone(parent.Ceilings), parent.Permission)
	child.Delegators = append(slices.Clone(parent.Delegators), parent.Name)
	return child
}

// within is what is left of a policy's own word on a call below the definition's ceilings: deny beats ask, and ask beats allow, whoever
// says it. Where several ask, a person must be an approver of each of them, and the shortest life counts. A call that nobody above asks
// about stays as it was.
func (d *Definition) within(own Decision, t ToolSpec, args json.RawMessage) Decision {
	if own = d.sinceThen(own, t, args); own.Verdict == VerdictDeny {
		return own
	}
	var above []Decision
	for _, p := range d.allAbove() {
		switch dec := p.asCeiling(t, args); dec.Verdict {
		case VerdictDeny:
			dec.Ceiling = true
			return dec
		case VerdictAsk:
			above = append(above, dec)
		}
	}
	if len(above) == 0 {
		return own
	}
	asks := own
	if own.Verdict != VerdictAsk || d.Permission.Mode == ModeAdvisory && !own.Ceiling { // nobody is asked by the policy itself
		asks = above[0]
	}
	notes := withNote(nil, asks.Note)
	for _, dec := range above {
		asks = asks.beside(dec)
		notes = withNote(notes, dec.Note)
	}
	asks.Note, asks.Ceiling = strings.Join(notes, "; "), true
	return asks
}

// withNote adds a rule's note, once.
func withNote(notes []string, note string) []string {
	if note == "" || slices.Contains(notes, note) {
		return notes
	}
	return append(notes, note)
}

// asCeiling is what a policy says of a call that a run below it makes. An advisory one asks nobody, there as here, and denies what it
// denies. The code that lists more tools for a policy knows its own agent's alone: a policy that has such code asks where its rules allow.
// What people or a backend have said in the run above is of that run's calls.
func (p Permission) asCeiling(t ToolSpec, args json.RawMessage) Decision {
	dec := Decide(p, t, args)
	if dec.Verdict == VerdictAllow && p.Policy != "" {
		dec.Verdict = VerdictAsk
	}
	if dec.Verdict == VerdictAsk && p.Mode == ModeAdvisory {
		dec.Verdict = VerdictAllow
	}
	return dec
}

// Granting is the definition's policy as people's grants hold under it: no longer than each delegating agent's policy lets them. A policy
// whose decisions are of calls lets a grant of a tool hold for one claim.
func (d *Definition) Granting() Permission {
	p := d.Permission
	for _, above := range d.Ceilings {
		switch {
		case above.Mode == ModeAdvisory:
		case above.Grants == GrantsOnce, p.Scope == ScopeTool && above.Scope != ScopeTool, p.Mode == ModeBlockAndRetry && len(above.Bounds.When) > 0:
			p.Grants = GrantsOnce
		case above.Grants != GrantsStanding && p.Grants == GrantsStanding:
			p.Grants = GrantsRun
		default:
			p.Bounds = p.Bounds.under(above)
		}
	}
	return p
}

// PolicyVersion is the PolicyVersion of the policy that a run of the definition is under, with those above it.
func (d *Definition) PolicyVersion() string { return d.policyVersion() }

// policyVersion is the PolicyVersion of the definition's policy; with ceilings, of those as well, the root's first.
func (d *Definition) policyVersion() string {
	if len(d.Ceilings) == 0 {
		return PolicyVersion(d.Permission)
	}
	above := make([]string, len(d.Ceilings))
	for i, p := range d.Ceilings {
		above[i] = PolicyVersion(p)
	}
	return hashCanonical(map[string]any{"policy": PolicyVersion(d.Permission), "ceilings": stringList(above)})
}

// policies checks the policy of a definition as it is written, which has none above it.
func (c *checker) policies(d *Definition) {
	c.permission("permission", d.Permission)
	c.approvalTool("permission.approvalTool", d)
	c.ceilings("ceilings", d.Ceilings)
}

// ceilings refuses what only the delegation of a run may set.
func (c *checker) ceilings(at string, above []Permission) {
	c.that(len(above) == 0, at, fmt.Sprintf("got %d, want none: they are the policies of the agents that delegate a run, and set when it starts", len(above)))
}

// May reports whether p may decide about the call: p is among its approvers, and among those of each policy above that asks.
func (d Decision) May(p Principal) bool { return MayDecideEach(p, d.Approvers, d.Above) }

// MayDecideEach reports whether p is among the approvers and among those of each set above. It fails closed: an empty set means nobody.
func MayDecideEach(p Principal, approvers []string, above [][]string) bool {
	return MayDecide(approvers, p) && !slices.ContainsFunc(above, func(set []string) bool { return !MayDecide(set, p) })
}
