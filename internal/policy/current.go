package policy

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
)

// CurrentOf returns the deployment's current policy for the agents of a pinned definition; find finds an agent's
// current definition by name. It is nil if the deployment has no such agent, perhaps because a deployment is under way.
// Then only the pinned definition applies. To stop an agent for good, keep it and deny everything.
func CurrentOf(pinned *agent.Definition, find agent.Agents) *agent.Current {
	now, ok := find(pinned.Name)
	if !ok {
		return nil
	}
	c := &agent.Current{
		Permission: now.Permission,
		Tools:      now.Tools,
		Servers:    now.MCP,
	}
	for _, name := range pinned.Delegators {
		if above, ok := find(name); ok {
			c.Above = append(c.Above, above.Permission)
		}
	}
	return c
}

// withCurrentPolicy makes the pinned policy's decision on a call as strict as the agent's current policy. Deny beats
// ask, and ask beats allow, whichever policy says it. If both ask, people must be approvers of both. If both ask the
// same people, the stricter quorum, four eyes, expiry and channels apply.
func withCurrentPolicy(d *agent.Definition, own Decision, t agent.ToolSpec, args json.RawMessage) Decision {
	n := d.Now
	if n == nil || own.Verdict == agent.VerdictDeny {
		return own
	}
	t, there := n.Tool(d, t)
	if !there {
		return Decision{Verdict: agent.VerdictDeny, Rule: -1}
	}
	dec := Decide(n.Permission, t, args)
	if dec.Verdict == agent.VerdictAllow && n.Permission.Policy != d.Permission.Policy && n.Permission.MayList() {
		dec.Verdict = agent.VerdictAsk // the current policy function was not asked
	}
	switch {
	case dec.Verdict == agent.VerdictDeny:
		return dec
	case dec.Verdict == agent.VerdictAllow:
		return own
	case own.Verdict != agent.VerdictAsk:
		return dec
	case dec.asksSamePeople(own):
		own.Quorum, own.FourEyes = max(own.Quorum, dec.Quorum), own.FourEyes || dec.FourEyes
		own.Expires, own.Channels = min(own.Expires, dec.Expires), own.Channels.Narrow(dec.Channels)
		return own
	default:
		return own.combineWith(dec)
	}
}

func (d Decision) asksSamePeople(o Decision) bool {
	d.Quorum, o.Quorum, d.FourEyes, o.FourEyes = 0, 0, false, false
	d.Channels, o.Channels = agent.Channels{}, agent.Channels{}
	return d.ApproverPolicy() == o.ApproverPolicy()
}

// ceilingsAbove returns the policies of the agents above this one, as they are pinned and as they are now.
func ceilingsAbove(d *agent.Definition) []agent.Permission {
	if d.Now == nil {
		return d.Ceilings
	}
	all := slices.Clone(d.Ceilings)
	for _, p := range d.Now.Above {
		version := PolicyVersion(p)
		if !slices.ContainsFunc(all, func(have agent.Permission) bool { return PolicyVersion(have) == version }) {
			all = append(all, p)
		}
	}
	return all
}

// policyMark returns the ApproverPolicy of dec if the current definition makes it differ from the pinned one's, else
// "". onlyPolicyChanged compares it.
func policyMark(d *agent.Definition, s *run.AgentState, t agent.ToolSpec, args json.RawMessage, dec Decision) string {
	if d.Now == nil {
		return ""
	}
	policy := dec.ApproverPolicy()
	if policy == DecideIn(d.AsPinned(), s, t, args).ApproverPolicy() {
		return ""
	}
	return policy
}

// onlyPolicyChanged reports whether a call is the approved action except for the current definition's policy: people
// are then asked again. Any other difference voids the approval for good.
func onlyPolicyChanged(d *agent.Definition, s *run.AgentState, c run.Call, t agent.ToolSpec) bool {
	if d.Now == nil {
		return false
	}
	was := DecideIn(d.AsPinned(), s, t, c.Input)
	if c.Grant.Tool {
		return grantCovers(c.Grant, d, s, t, c, was)
	}
	in := actionOf(d, s, c, t, was)
	in.ApproverPolicy = cmp.Or(c.Grant.Policy, in.ApproverPolicy)
	return in.ActionDigest() == c.Grant.Digest
}

// ActionNow returns the call with these arguments as it would be approved now.
func ActionNow(d *agent.Definition, s *run.AgentState, c run.Call, args json.RawMessage) Amended {
	t, _ := d.Tool(c.Tool)
	c.Input = args
	dec := DecideIn(d, s, t, args)
	return Amended{Digest: ActionDigest(d, s, c, t, dec), Policy: policyMark(d, s, t, args, dec), Rule: dec}
}

// PinDelegated returns the child's definition as it is pinned for a delegated run: under the policy of the parent and
// of the agents that delegated to the parent. It ignores ceilings that the definition itself claims. The result shares
// nothing with its arguments that is written later.
func PinDelegated(parent *agent.Definition, child agent.Definition) agent.Definition {
	child.Ceilings = append(slices.Clone(parent.Ceilings), parent.Permission)
	child.Delegators = append(slices.Clone(parent.Delegators), parent.Name)
	return child
}

// withCeilings combines a policy's own decision on a call with the definition's ceilings: deny beats ask, and ask beats
// allow, whichever policy says it. If several ask, a person must be an approver of each of them, and the shortest
// expiry counts. If no policy above asks, the decision stays as it was.
func withCeilings(d *agent.Definition, own Decision, t agent.ToolSpec, args json.RawMessage) Decision {
	if own = withCurrentPolicy(d, own, t, args); own.Verdict == agent.VerdictDeny {
		return own
	}
	var above []Decision
	for _, p := range ceilingsAbove(d) {
		dec := Decide(p, t, args)
		// A policy function knows only its own agent's tools, so a policy that has one asks where its rules allow. Grants
		// and a backend's answers in the run above are about that run's calls.
		if dec.Verdict == agent.VerdictAllow && p.MayList() {
			dec.Verdict = agent.VerdictAsk
		}
		switch dec.Verdict {
		case agent.VerdictDeny:
			dec.Ceiling = true
			return dec
		case agent.VerdictAsk:
			above = append(above, dec)
		}
	}
	if len(above) == 0 {
		return own
	}
	asks := own
	if own.Verdict != agent.VerdictAsk {
		asks = above[0]
	}
	notes := []string{asks.Note}
	for _, dec := range above {
		asks = asks.combineWith(dec)
		if !slices.Contains(notes, dec.Note) {
			notes = append(notes, dec.Note)
		}
	}
	notes = slices.DeleteFunc(notes, func(note string) bool { return note == "" })
	asks.Note, asks.Ceiling = strings.Join(notes, "; "), true
	return asks
}

// GrantPolicy returns the definition's policy with grants no wider than the policy of each delegating agent allows. A
// grant holds for one claim if a delegating policy decides per call, or if only a standing grant's record would keep it
// within the bounds.
func GrantPolicy(d *agent.Definition) agent.Permission {
	p := d.Permission
	for _, above := range d.Ceilings {
		switch {
		case above.Mode == agent.ModeAdvisory:
		case above.Grants == agent.GrantsOnce, p.Scope == agent.ScopeTool && above.Scope != agent.ScopeTool,
			p.Grants != agent.GrantsStanding && above.Bounds.Grant().RecordAlone(),
			p.Mode == agent.ModeBlockAndRetry && len(above.Bounds.When) > 0:
			p.Grants = agent.GrantsOnce
		case above.Grants != agent.GrantsStanding && p.Grants == agent.GrantsStanding:
			if p.Grants = agent.GrantsRun; p.Bounds.Grant().RecordAlone() {
				p.Grants = agent.GrantsOnce
			}
		default:
			n := NarrowGrant(p.Bounds.Grant(), above.Bounds.Grant())
			p.Bounds = agent.StandingBounds{Uses: n.Uses, Expires: time.Duration(n.Seconds) * time.Second, When: n.When,
				Pattern: p.Bounds.Pattern && above.Patterned()}
		}
	}
	return p
}

// VersionOfPolicy returns the PolicyVersion of the policy of a run, combined with the versions of its ceilings, the
// root's first.
func VersionOfPolicy(d *agent.Definition) string {
	if len(d.Ceilings) == 0 {
		return PolicyVersion(d.Permission)
	}
	above := stringList(run.Map(d.Ceilings, PolicyVersion))
	return agent.HashCanonical(map[string]any{"policy": PolicyVersion(d.Permission), "ceilings": above})
}

// MayDecideEach reports whether p is one of the approvers and one of each set above. An empty set means nobody.
func MayDecideEach(p Principal, approvers []string, above [][]string) bool {
	return MayDecide(approvers, p) && !slices.ContainsFunc(above, func(set []string) bool { return !MayDecide(set, p) })
}
