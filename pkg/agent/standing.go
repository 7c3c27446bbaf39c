package agent

import (
	"slices"
	"time"
)

// StandingLife is how long a standing grant holds from the moment it is given. Every grant expires.
const StandingLife = 30 * 24 * time.Hour

// StandingGrant is a person's grant of a tool that outlives its run, as a later run of the agent has read it. The record itself decides:
// every claim under it is held to it.
type StandingGrant struct {
	Tool     string    `json:"tool"`     // original name
	Approval string    `json:"approval"` // the request it was given on, in another run
	Digests  []string  `json:"digests"`  // what was granted, by StandingDigest: one for each policy of approvers that agreed
	By       string    `json:"by"`
	Note     string    `json:"note,omitempty"`
	Expires  time.Time `json:"expires"`
}

// StandingDigest is the digest of a permission to call a tool in every run of an agent: who, under which policy and which approvers. Run,
// version, call and arguments are no part of it, so that a changed tool, policy or list of approvers is not covered, and all else is.
func StandingDigest(d *Definition, s *AgentState, t ToolSpec, approvers []string) string {
	return hashCanonical(map[string]any{
		"standing": true, "tenant": s.Tenant, "agent": s.Agent, "tool": t.Name, "toolHash": ToolHash(t),
		"policyVersion": PolicyVersion(d.Permission), "approverPolicy": ApproverPolicy(approvers, 1),
	})
}

// Standing reports whether people's grants outlive the run.
func (p Permission) Standing() bool {
	return p.Grants == GrantsStanding && p.Scope == ScopeTool && p.Mode != ModeAdvisory
}

// standing is the standing grant of the tool that was read for the round of that inference and holds for digest.
func (p *Permissions) standing(tool, digest string, inference int64) (StandingGrant, bool) {
	if p.Checked.Inference != inference {
		return StandingGrant{}, false
	}
	i := slices.IndexFunc(p.Checked.Standing, func(g StandingGrant) bool { return g.Tool == tool && slices.Contains(g.Digests, digest) })
	if i < 0 {
		return StandingGrant{}, false
	}
	return p.Checked.Standing[i], true
}

// StandingUnder is the standing grant that the claim of a call takes; false where it takes none.
func (s *AgentState) StandingUnder(c Call, e CallClaimed) (StandingGrant, bool) {
	g, ok := s.Permissions.standing(c.Tool, e.Digest, c.Inference)
	return g, ok && e.Under != "" && g.Approval == e.Under
}

// narrow takes away the standing grants that a second look has not found any more. It never adds one.
func (p *Permissions) narrow(e PermissionChecked) {
	var left []StandingGrant
	for _, g := range p.Checked.Standing {
		if slices.ContainsFunc(e.Standing, func(h StandingGrant) bool { return h.Tool == g.Tool && h.Approval == g.Approval }) {
			left = append(left, g)
		}
	}
	p.Checked.Standing = left
}
