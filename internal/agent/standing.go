package agent

import (
	"encoding/json"
	"slices"
	"time"
)

// StandingLife is how long a standing grant holds from the moment it is given. Every grant expires.
const StandingLife = 30 * 24 * time.Hour

// StandingGrant is a person's grant of a tool, or of a tool with its very arguments, that outlives its run, as a later run of the agent has read it. The record itself decides:
// every claim under it is held to it.
type StandingGrant struct {
	Tool     string    `json:"tool"`     // original name
	Approval string    `json:"approval"` // the request it was given on, in another run
	Digest   string    `json:"digest"`   // what was granted, by StandingDigest
	By       string    `json:"by"`
	Note     string    `json:"note,omitempty"`
	Expires  time.Time `json:"expires"`

	When []Condition `json:"when,omitempty"` // it is of a pattern: of arguments that fit all of these; Digest is PatternDigest's then
	Uses int         `json:"uses,omitempty"` // claims that it covers in all; 0 = they are not counted
	Used int         `json:"used,omitempty"` // of them, those that are made, as it was read, and by this run since

	// What stands beside the run in which it was given, for the claim to count again.
	Run        string    `json:"run,omitempty"`        // that run
	Voices     []Voice   `json:"voices,omitempty"`     // whose approvals it takes; none = it covers nothing
	Asked      time.Time `json:"asked,omitzero"`       // when they were asked
	Requesters []string  `json:"requesters,omitempty"` // whom the call that asked came from
	Edited     bool      `json:"edited,omitempty"`     // it is of arguments that a person changed
}

// same reports whether both are the one record.
func (g StandingGrant) same(h StandingGrant) bool {
	return g.Tool == h.Tool && g.Approval == h.Approval && g.Digest == h.Digest
}

// SameStanding reports whether both lists have the same records, in order, as much used.
func SameStanding(a, b []StandingGrant) bool {
	return slices.EqualFunc(a, b, func(g, h StandingGrant) bool { return g.same(h) && g.Used == h.Used })
}

// PermitRef names a grant of a tool that a run has by a decision of its own.
type PermitRef struct {
	Tool     string `json:"tool"` // original name
	Approval string `json:"approval"`
}

// StandingDigest is the digest of a permission to call a tool in every run of an agent: who, under which policy and which approvers. Run,
// version and call are no part of it, so that a changed tool, policy or list of approvers is not covered, and all else is. Arguments are one
// where grants are of them (Permission.OfArguments).
func StandingDigest(d *Definition, s *AgentState, t ToolSpec, args json.RawMessage, dec Decision) string {
	return hashCanonical(d.Granting().bound(args, standingOf(d, s, t, dec)))
}

// standingOf is what the digests of standing grants of a tool are made of, beside arguments.
func standingOf(d *Definition, s *AgentState, t ToolSpec, dec Decision) map[string]any {
	return map[string]any{
		"standing": true, "tenant": s.Tenant, "agent": s.Agent, "tool": t.Name, "toolHash": ToolHash(t),
		"policyVersion": d.policyVersion(), "approverPolicy": dec.ApproverPolicy(),
	}
}

// GrantedArgs is the digest of the arguments that a grant is of. How their keys are ordered and their strings are escaped does not count;
// the digits of numbers do.
func GrantedArgs(args json.RawMessage) string { return ArgsHash(json.RawMessage(canonicalText(args))) }

// bound adds the arguments to what a digest of a grant is made of, where grants are of them: under a key that other grants do not have, so
// that neither can be taken for the other.
func (p Permission) bound(args json.RawMessage, of map[string]any) map[string]any {
	if p.OfArguments() {
		of["argsHash"] = GrantedArgs(args)
	}
	return of
}

// StandingOf is the StandingDigest that covers a call.
func StandingOf(d *Definition, s *AgentState, c Call) string {
	t, _ := d.Tool(c.Tool)
	dec := DecideIn(d, s, t, c.Input)
	return StandingDigest(d, s, t, c.Input, dec)
}

// Held is a standing grant that was given in the run itself, and the StandingDigest under which it is on record.
type Held struct {
	PermitRef
	Digest string
}

// HeldStanding are the standing grants given in the run that cover calls which have yet to be claimed.
func HeldStanding(d *Definition, s *AgentState) []Held {
	var held []Held
	for _, c := range s.Live {
		t, known := d.Tool(c.Tool)
		if !known || c.Status != StatusNew && c.Status != StatusResuming {
			continue
		}
		dec := DecideIn(d, s, t, c.Input)
		p, covered := s.covering(c.Tool, ToolDigest(d, s, t, c.Input, dec), dec)
		if !covered || !p.Standing {
			continue
		}
		h := Held{PermitRef{Tool: p.Tool, Approval: p.Approval}, StandingOf(d, s, c)}
		if !slices.Contains(held, h) {
			held = append(held, h)
		}
	}
	return held
}

// Standing reports whether people's grants outlive the run.
func (p Permission) Standing() bool {
	return p.Grants == GrantsStanding && p.Mode != ModeAdvisory
}

// OfArguments reports whether a grant that outlives the run is of a tool with the very arguments that were granted, as decisions are of
// calls; else it is of the tool, whatever it is called with.
func (p Permission) OfArguments() bool { return p.Standing() && p.Scope != ScopeTool }

// AskedStanding are the standing grants that would cover the round's new calls which need a permission, in call order, each once: those that
// are not counted and those that are, but none of a pattern. Only tool and digest are set.
func AskedStanding(d *Definition, s *AgentState) []StandingGrant {
	var asked []StandingGrant
	for _, c := range s.Live {
		t, known := d.Tool(c.Tool)
		if c.Status != StatusNew || !known || DecideIn(d, s, t, c.Input).Verdict != VerdictAsk {
			continue
		}
		digest := StandingOf(d, s, c)
		if g := (StandingGrant{Tool: c.Tool, Digest: digest}); !slices.ContainsFunc(asked, g.same) {
			asked = append(asked, g, StandingGrant{Tool: c.Tool, Digest: CountedPrefix + digest})
		}
	}
	return asked
}

// standing is the standing grant of the tool that was read for the round of that inference and holds for digest.
func (p *Permissions) standing(tool, digest string, inference int64) (StandingGrant, bool) {
	if p.Checked.Inference != inference {
		return StandingGrant{}, false
	}
	i := slices.IndexFunc(p.Checked.Standing, func(g StandingGrant) bool { return g.Tool == tool && g.Digest == digest })
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

// narrow takes away the standing grants that a second look has not found any more, and takes over how much the others are used. It never
// adds one.
func (p *Permissions) narrow(e PermissionChecked) {
	var left []StandingGrant
	for _, g := range p.Checked.Standing {
		if i := slices.IndexFunc(e.Standing, g.same); i >= 0 {
			g.Used = e.Standing[i].Used
			left = append(left, g)
		}
	}
	p.Checked.Standing = left
}

// revoke takes away what people granted in this run and have taken back since. A denial stays.
func (p *Permissions) revoke(refs []PermitRef) {
	if len(refs) == 0 {
		return
	}
	p.Tools = slices.DeleteFunc(slices.Clone(p.Tools), func(t ToolPermit) bool {
		return !t.Denied && slices.Contains(refs, PermitRef{Tool: t.Tool, Approval: t.Approval})
	})
	if len(p.Tools) == 0 {
		p.Tools = nil
	}
}
