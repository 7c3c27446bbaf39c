package agent

import (
	"cmp"
	"encoding/json"
	"slices"
)

// Current is what the deployment says now of a run's agent, and of those that delegated the run: policy that was tightened while the run was
// parked holds for it, too (A17). The stricter of pinned and current wins, so nothing in it ever widens what is pinned.
type Current struct {
	Permission Permission   // the agent's own
	Tools      []string     // original names of the tools that it has; one that it has no more is disabled
	Servers    []string     // names of the servers whose tools it has
	Above      []Permission // of the agents that delegated the run, the root's first
}

// CurrentOf is what a deployment says now of the agents of a pinned definition; find gives an agent's current definition by name. Where it has
// no such agent it is nil: what is pinned holds alone. That an agent is not there may be a deployment that is under way; one that is to do nothing any
// more stays, and denies.
func CurrentOf(pinned *Definition, find func(name string) (*Definition, bool)) *Current {
	now, ok := find(pinned.Name)
	if !ok {
		return nil
	}
	c := &Current{Permission: now.Permission}
	for _, t := range now.Tools {
		c.Tools = append(c.Tools, t.Name)
	}
	for _, m := range now.MCP {
		c.Servers = append(c.Servers, m.Name)
	}
	for _, name := range pinned.Delegators {
		if above, ok := find(name); ok {
			c.Above = append(c.Above, above.Permission)
		}
	}
	return c
}

// disables reports whether the current definition has a tool no more that the pinned one has.
func (n *Current) disables(pinned *Definition, t ToolSpec) bool {
	had := slices.ContainsFunc(pinned.Tools, func(p ToolSpec) bool { return p.Name == t.Name })
	if t.MCP != nil && slices.ContainsFunc(pinned.MCP, func(m MCPServer) bool { return m.Name == t.MCP.Server }) {
		return !slices.Contains(n.Servers, t.MCP.Server)
	}
	return had && !slices.Contains(n.Tools, t.Name)
}

// sinceThen is the pinned policy's word on a call, made as strict as the agent's current one: a call that either denies is denied, and one that
// either asks about is asked about, of people who are approvers of both. Where both ask for the same, nothing changes.
func (d *Definition) sinceThen(own Decision, t ToolSpec, args json.RawMessage) Decision {
	n := d.Now
	if n == nil || own.Verdict == VerdictDeny {
		return own
	}
	if n.disables(d, t) {
		return Decision{Verdict: VerdictDeny, Rule: -1}
	}
	dec := Decide(n.Permission, t, args)
	if dec.Verdict == VerdictAllow && n.Permission.Policy != "" && n.Permission.Policy != d.Permission.Policy {
		dec.Verdict = VerdictAsk // its code may list the tool, and knows the agent as it is now
	}
	switch {
	case dec.Verdict == VerdictDeny:
		return dec
	case dec.Verdict == VerdictAllow || n.Permission.Mode == ModeAdvisory:
		return own
	case own.Verdict != VerdictAsk || d.Permission.Mode == ModeAdvisory:
		dec.Ceiling = d.Permission.Mode == ModeAdvisory // which asks nobody of itself
		return dec
	case dec.sameSets(own):
		own.Quorum, own.FourEyes = max(own.Quorum, dec.Quorum), own.FourEyes || dec.FourEyes
		own.Expires = min(own.Expires, dec.Expires)
		return own
	default:
		return own.beside(dec)
	}
}

// sameSets reports whether both ask the same people, now and later.
func (d Decision) sameSets(o Decision) bool {
	d.Quorum, o.Quorum, d.FourEyes, o.FourEyes = 0, 0, false, false
	return d.ApproverPolicy() == o.ApproverPolicy()
}

// allAbove are the ceilings, and what has become of them since.
func (d *Definition) allAbove() []Permission {
	if d.Now == nil {
		return d.Ceilings
	}
	all := slices.Clone(d.Ceilings)
	for _, p := range d.Now.Above {
		version := PolicyVersion(p)
		if !slices.ContainsFunc(all, func(have Permission) bool { return PolicyVersion(have) == version }) {
			all = append(all, p)
		}
	}
	return all
}

// asPinned is the definition as the run is pinned to it, whatever has changed since.
func (d *Definition) asPinned() *Definition {
	pinned := *d
	pinned.Now = nil
	return &pinned
}

// PolicyMark is the ApproverPolicy of dec where the current definition makes it another than the pinned one's; else "". By it an action is known
// again whose policy, and nothing else, has changed since.
func PolicyMark(d *Definition, s *AgentState, t ToolSpec, args json.RawMessage, dec Decision) string {
	if d.Now == nil {
		return ""
	}
	policy := dec.ApproverPolicy()
	if policy == DecideIn(d.asPinned(), s, t, args).ApproverPolicy() {
		return ""
	}
	return policy
}

// movedOn reports whether a call is the very action that was approved, but for what the current definition says of it: then it is asked about
// again. Whatever else is another makes the approval void for good.
func (d *Definition) movedOn(s *AgentState, c Call, t ToolSpec) bool {
	if d.Now == nil {
		return false
	}
	was := DecideIn(d.asPinned(), s, t, c.Input)
	if c.Grant.Tool {
		return ToolDigest(d, s, t, c.Input, was) == c.Grant.Digest || StandingDigest(d, s, t, c.Input, was) == c.Grant.Digest
	}
	in := actionOf(d, s, c, t, was)
	in.ApproverPolicy = cmp.Or(c.Grant.Policy, in.ApproverPolicy)
	return in.ActionDigest() == c.Grant.Digest
}

// ActionNow is the call with these arguments as it would be approved now.
func ActionNow(d *Definition, s *AgentState, c Call, args json.RawMessage) Amended {
	t, _ := d.Tool(c.Tool)
	c.Input = args
	dec := DecideIn(d, s, t, args)
	return Amended{Digest: ActionDigest(d, s, c, t, dec), Policy: PolicyMark(d, s, t, args, dec), Rule: dec}
}

// ClaimedSubject is whom or what the run is for by the word of the API's caller, which nobody checked; "" where the
// caller named nobody, or a person who is known to have started the run.
func (s *AgentState) ClaimedSubject() string {
	if slices.Contains(s.By, s.Subject) {
		return ""
	}
	return s.Subject
}
