package run

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/countersign/countersign/internal/jsonx"
)

// Permissions is what a run knows of its tools' permissions beyond its definition (presets 4). It is part of the state,
// so of the journal, and of nothing else. The zero value knows nothing. Slices are never written in place.
type Permissions struct {
	Asked []PermissionRequest `json:"asked,omitempty"` // open requests about tools, oldest first
	// what people said of tools for the rest of the run, oldest first
	Tools []ToolPermit `json:"tools,omitempty"`
	// what the permission backend says of a round's tools; zero = it was not asked
	Checked PermissionChecked `json:"checked,omitzero"`
	Failed  string            `json:"failed,omitempty"` // why the run cannot go on (permission_failed); "" = it can
}

// PermissionRequest is one request to people about the tools whose calls a batch has blocked. It belongs to no call.
type PermissionRequest struct {
	Approval string      `json:"approval"`
	Since    time.Time   `json:"since"`
	Expires  time.Time   `json:"expires"`
	Tools    []AskedTool `json:"tools"`            // in call order, each once
	Reason   string      `json:"reason,omitempty"` // why, for the people who are asked
	Heard    int         `json:"heard,omitempty"`  // as of Wait
}

// AskedTool is one tool of a request and what people have said of it.
type AskedTool struct {
	RequestedTool
	Verdict ToolVerdict `json:"verdict,omitempty"`
	By      string      `json:"by,omitempty"`
	Note    string      `json:"note,omitempty"`
}

// ToolVerdict is what became of one tool of a request. "" = nobody has said anything yet.
type ToolVerdict string

// The verdicts. One that was called off is neither granted nor denied.
const (
	ToolGranted   ToolVerdict = "granted"
	ToolDenied    ToolVerdict = "denied"
	ToolCancelled ToolVerdict = "cancelled"
)

// Verdict is what the action makes of a tool.
func (a DecisionAction) Verdict() ToolVerdict {
	switch a {
	case ActionApprove:
		return ToolGranted
	case ActionDeny:
		return ToolDenied
	default:
		return ToolCancelled
	}
}

// ToolPermit is a person's word on a tool for the rest of the run. A denial beats every grant.
type ToolPermit struct {
	Tool     string `json:"tool"`
	Denied   bool   `json:"denied,omitempty"`
	Approval string `json:"approval"`        // the request it was said on
	Place    int    `json:"place,omitempty"` // of the tool in that request
	// what was granted, by ToolDigest: one for each policy of approvers that agreed, and for the arguments where it is of
	// them
	Digests []string `json:"digests,omitempty"`
	By      string   `json:"by"`
	Note    string   `json:"note,omitempty"`
	Used    bool     `json:"used,omitempty"` // a claim has used it up
	// it is on record beyond the run as well, and is worth nothing once that is taken back
	Standing bool `json:"standing,omitempty"`

	Voices []Voice   `json:"voices,omitempty"` // whose approvals it rests on; none = it was not recorded
	Asked  time.Time `json:"asked,omitzero"`   // with Voices: when people were asked
	Heard  int       `json:"heard,omitempty"`  // with Voices: as of Wait
	Edited bool      `json:"edited,omitempty"` // it is of arguments that a person changed
}

// PermissionStatus is what a permission backend says of a tool (seed 000, PermissionManager.get).
type PermissionStatus string

// The statuses. A tool that a backend says nothing of is requestable.
const (
	PermissionApproved    PermissionStatus = "APPROVED"
	PermissionDenied      PermissionStatus = "DENIED"
	PermissionRequestable PermissionStatus = "REQUESTABLE"
)

// First is the first call that the request blocked.
func (r PermissionRequest) First() string { return r.Tools[0].Calls[0] }

// Complete reports whether every tool has its verdict.
func (r PermissionRequest) Complete() bool {
	return !slices.ContainsFunc(r.Tools, func(t AskedTool) bool { return t.Verdict == "" })
}

// Denied is the denial of a tool, where there is one.
func (p *Permissions) Denied(tool string) (ToolPermit, bool) {
	i := slices.IndexFunc(p.Tools, func(t ToolPermit) bool { return t.Tool == tool && t.Denied })
	if i < 0 {
		return ToolPermit{}, false
	}
	return p.Tools[i], true
}

// Status is the backend's word on a tool in the round of that inference.
func (p *Permissions) Status(tool string, inference int64) PermissionStatus {
	if p.Checked.Inference != inference {
		return ""
	}
	return p.Checked.Tools[tool]
}

// Request finds an open request.
func (p *Permissions) Request(approval string) int {
	return slices.IndexFunc(p.Asked, func(r PermissionRequest) bool { return r.Approval == approval })
}

// OpenRequests are the requests about tools that the run waits for; none once it is done.
func (s *AgentState) OpenRequests() []PermissionRequest {
	if s.Status == RunDone {
		return nil
	}
	return s.Permissions.Asked
}

// StandingGrant is a person's grant of a tool, or of a tool with its very arguments, that outlives its run, as a later
// run of the agent has read it. The record itself decides: every claim under it is held to it.
type StandingGrant struct {
	Tool     string    `json:"tool"`     // original name
	Approval string    `json:"approval"` // the request it was given on, in another run
	Digest   string    `json:"digest"`   // what was granted, by StandingDigest
	By       string    `json:"by"`
	Note     string    `json:"note,omitempty"`
	Expires  time.Time `json:"expires"`

	// it is of a pattern: of arguments that fit all of these; Digest is PatternDigest's then
	When []Condition `json:"when,omitempty"`
	Uses int         `json:"uses,omitempty"` // claims that it covers in all; 0 = they are not counted
	Used int         `json:"used,omitempty"` // of them, those that are made, as it was read, and by this run since

	// What stands beside the run in which it was given, for the claim to count again.
	Run        string    `json:"run,omitempty"`        // that run
	Voices     []Voice   `json:"voices,omitempty"`     // whose approvals it takes; none = it covers nothing
	Asked      time.Time `json:"asked,omitzero"`       // when they were asked
	Requesters []string  `json:"requesters,omitempty"` // whom the call that asked came from
	Edited     bool      `json:"edited,omitempty"`     // it is of arguments that a person changed
}

// Same reports whether both are the one record.
func (g StandingGrant) Same(h StandingGrant) bool {
	return g.Tool == h.Tool && g.Approval == h.Approval && g.Digest == h.Digest
}

// PermitRef names a grant of a tool that a run has by a decision of its own.
type PermitRef struct {
	Tool     string `json:"tool"` // original name
	Approval string `json:"approval"`
}

// StandingUnder is the standing grant that the claim of a call takes; false where it takes none.
func (s *AgentState) StandingUnder(c Call, e CallClaimed) (StandingGrant, bool) {
	read := s.Permissions.Checked
	if read.Inference != c.Inference {
		return StandingGrant{}, false
	}
	i := slices.IndexFunc(read.Standing, func(g StandingGrant) bool { return g.Tool == c.Tool && g.Digest == e.Digest })
	if i < 0 {
		return StandingGrant{}, false
	}
	g := read.Standing[i]
	return g, e.Under != "" && g.Approval == e.Under
}

// revoke takes away what people granted in this run and have taken back since. A denial stays.
func (p *Permissions) revoke(refs []PermitRef) {
	if len(refs) == 0 {
		return
	}
	p.Tools = nonEmpty(slices.DeleteFunc(slices.Clone(p.Tools), func(t ToolPermit) bool {
		return !t.Denied && slices.Contains(refs, PermitRef{Tool: t.Tool, Approval: t.Approval})
	}))
}

// Left reports whether the grant covers another claim.
func (g StandingGrant) Left() bool { return g.Uses == 0 || g.Used < g.Uses }

// Count takes one use of a counted standing grant.
func (p *Permissions) Count(tool, digest string) {
	p.Checked.Standing = slices.Clone(p.Checked.Standing)
	for i := range p.Checked.Standing {
		if g := &p.Checked.Standing[i]; g.Tool == tool && g.Digest == digest && g.Uses > 0 {
			g.Used++
		}
	}
}

// Condition compares the value at a JSON Pointer of a call's arguments.
type Condition = jsonx.Condition

// Checked is what a precondition gave when people were asked.
type Checked struct {
	Tool string          `json:"tool"`
	Args json.RawMessage `json:"args"`
	// its text; with Compare an object of these values by pointer, without those that are not there
	Content string    `json:"content"`
	IsError bool      `json:"isError,omitempty"`
	At      time.Time `json:"at"`
	// what it gave when people were last asked about the call, which is why they are asked again; nil = this is the first
	// time
	Was *Was `json:"was,omitempty"`
}

// Was is what a precondition gave before.
type Was struct {
	Args    json.RawMessage `json:"args"`
	Content string          `json:"content"`
	IsError bool            `json:"isError,omitempty"`
	At      time.Time       `json:"at"`
}

// Same reports whether both gave the same of the same.
func (k Checked) Same(o Checked) bool {
	return k.Tool == o.Tool && string(k.Args) == string(o.Args) && k.IsError == o.IsError &&
		jsonx.CanonicalText(json.RawMessage(k.Content)) == jsonx.CanonicalText(json.RawMessage(o.Content))
}

// Voice is one approval as the desk recorded it: who the person is was authenticated when they decided.
type Voice struct {
	By     string    `json:"by"`
	Groups []string  `json:"groups,omitempty"`
	At     time.Time `json:"at"`
	Tools  []string  `json:"tools,omitempty"` // of a request about tools: those that are approved, by original name

	Via       Via     `json:"via,omitempty"`
	Confirmed Confirm `json:"confirmed,omitempty"`
}
