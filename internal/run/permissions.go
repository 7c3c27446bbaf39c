package run

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/jsonx"
)

// Permissions is what a run knows of its tools' permissions beyond its definition (presets 4). It is part of the state,
// so of the journal, and of nothing else. The zero value knows nothing. Slices are never written in place.
type Permissions struct {
	Asked []PermissionRequest `json:"asked,omitempty"` // open requests about tools, oldest first
	// people's decisions about tools for the rest of the run, oldest first
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

// AskedTool is one tool of a request and the decision about it.
type AskedTool struct {
	RequestedTool
	Verdict ToolVerdict `json:"verdict,omitempty"`
	By      string      `json:"by,omitempty"`
	Note    string      `json:"note,omitempty"`
}

// ToolVerdict is what became of one tool of a request. "" = nobody has decided yet.
type ToolVerdict string

// The verdicts. A cancelled one is neither granted nor denied.
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

// ToolPermit is a person's decision about a tool for the rest of the run. A denial beats every grant.
type ToolPermit struct {
	Tool     string `json:"tool"`
	Denied   bool   `json:"denied,omitempty"`
	Approval string `json:"approval"`        // the request it was made on
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

// PermissionStatus is what a permission backend says of a tool (seed 000, PermissionManager.get). Package policy has
// the statuses; a tool that a backend says nothing of is requestable.
type PermissionStatus string

// First is the first call that the request blocked.
func (r PermissionRequest) First() string { return r.Tools[0].Calls[0] }

// Complete reports whether every tool has its verdict.
func (r PermissionRequest) Complete() bool {
	return !slices.ContainsFunc(r.Tools, func(t AskedTool) bool { return t.Verdict == "" })
}

// Denied is the denial of a tool, where there is one.
func (p *Permissions) Denied(tool string) (ToolPermit, bool) {
	return First(p.Tools, func(t ToolPermit) bool { return t.Tool == tool && t.Denied })
}

// Request finds an open request.
func (p *Permissions) Request(approval string) int {
	return slices.IndexFunc(p.Asked, func(r PermissionRequest) bool { return r.Approval == approval })
}

func (p *Permissions) close(approval string) {
	p.Asked = without(p.Asked, func(r PermissionRequest) bool { return r.Approval == approval })
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
	g, found := First(read.Standing, func(g StandingGrant) bool { return g.Tool == c.Tool && g.Digest == e.Digest })
	return g, found && read.Inference == c.Inference && e.Under != "" && g.Approval == e.Under
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
	// what it gave when people were last asked about the call, why they are asked again; nil = this is the first time
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

// apply opens a request about tools. The calls it names fail in the same entry.
func (e PermissionRequested) apply(s *AgentState) error {
	if s.Permissions.Request(e.Approval) >= 0 {
		return nil
	}
	if len(e.Tools) > 0 && len(e.Tools[0].Calls) > 0 {
		c, ok := s.Call(e.Tools[0].Calls[0])
		if ok && c.Request != "" && c.Request == e.Approval { // it has been answered since
			return nil
		}
	}
	if err := s.requireAwake(); err != nil {
		return err
	}
	if e.Approval == "" || e.Expires.IsZero() || len(e.Tools) == 0 {
		return &ApplyError{Problem: "a request needs an id that people see, an expiry and tools"}
	}
	live := slices.Clone(s.Live)
	r := PermissionRequest{
		Approval: e.Approval, Since: s.head.time, Expires: e.Expires, Reason: e.Reason, Heard: len(s.Heard),
	}
	for _, t := range e.Tools {
		if len(t.Calls) == 0 {
			return &ApplyError{Problem: "tool " + t.Tool + " has no call"}
		}
		for _, id := range t.Calls {
			i := slices.IndexFunc(live, func(c Call) bool { return c.ID == id })
			if i < 0 || live[i].Tool != t.Tool || live[i].Status != StatusNew && live[i].Status != StatusResuming {
				return &ApplyError{Call: id, Problem: "it is no call of the tool that could be blocked"}
			}
			live[i].Request = e.Approval
		}
		r.Tools = append(r.Tools, AskedTool{RequestedTool: t})
	}
	s.Live = live
	s.Permissions.Asked = append(slices.Clip(s.Permissions.Asked), r)
	return nil
}

// applyToolDecisions gives tools of an open request their verdicts, each its first.
func (s *AgentState) applyToolDecisions(at int, e Decided) error {
	if err := s.requireAwake(); err != nil {
		return err
	}
	if e.Action == ActionFail {
		s.Permissions.close(e.Approval)
		why := "the request for permission failed"
		if e.Note != "" {
			why += strings.ReplaceAll(fmt.Sprintf(" It says: %.1000q", e.Note), "<", `\u003c`)
		}
		s.Permissions.Failed = cmp.Or(s.Permissions.Failed, why)
		s.flushQueued()
		return nil
	}
	asked := slices.Clone(s.Permissions.Asked)
	asked[at].Tools = slices.Clone(asked[at].Tools)
	for i := range asked[at].Tools {
		t := &asked[at].Tools[i]
		if t.Verdict != "" || !slices.Contains(e.Tools, t.Tool) {
			continue
		}
		t.Verdict, t.By, t.Note = e.Action.Verdict(), e.By, e.Note
		// the next call asks again, or is covered by the record
		if t.Verdict == ToolCancelled || e.Once && (t.Verdict == ToolDenied || e.Standing) {
			continue
		}
		p := ToolPermit{
			Tool: t.Tool, Denied: t.Verdict == ToolDenied, Approval: e.Approval, Place: i, Digests: t.Digests,
			By: e.By, Note: e.Note, Standing: e.Standing, Voices: e.Voices,
		}
		if len(e.Voices) > 0 {
			p.Asked, p.Heard = asked[at].Since, asked[at].Heard
		}
		s.Permissions.Tools = append(slices.Clip(s.Permissions.Tools), p)
	}
	s.Permissions.Asked = asked
	return nil
}

// applyToolDecision records what a decision on a call grants of its tool (suspend_and_replay, scope tool).
func (s *AgentState) applyToolDecision(c Call, e Decided) {
	deny := e.Action == ActionDeny
	if e.Permit == "" || !deny && (e.Action != ActionApprove || e.Once) {
		return
	}
	p := ToolPermit{
		Tool: c.Tool, Denied: deny, Approval: e.Approval, Digests: []string{e.Permit}, By: e.By, Note: e.Note,
		Standing: e.Standing, Voices: e.Voices, Edited: e.Args != nil,
	}
	switch {
	case len(e.Voices) == 0:
	case c.Wait != nil && c.Wait.Approval == e.Approval:
		p.Asked, p.Heard = c.Wait.Since, c.Wait.Heard
	default: // it is overtaken
		p.Asked, p.Heard = s.head.time, len(s.Heard)
	}
	s.Permissions.Tools = append(slices.Clip(s.Permissions.Tools), p)
}

// apply closes a request, and queues the notice to the model, which stands behind the turn's results.
func (e PermissionAnswered) apply(s *AgentState) error {
	i := s.Permissions.Request(e.Approval)
	if i < 0 {
		return nil
	}
	if err := s.requireAwake(); err != nil {
		return err
	}
	if !s.Permissions.Asked[i].Complete() && !e.Expired {
		return &ApplyError{Problem: "a tool has no verdict and the request has not expired"}
	}
	s.Permissions.close(e.Approval)
	s.Queued = slices.Insert(slices.Clone(s.Queued), s.permissionTexts(),
		queued{Text{Text: e.Text}, s.nextSource(0), true})
	s.flushQueued()
	return nil
}

// permissionTexts is how many of the queued blocks are answers to requests already: they come before messages of users.
func (s *AgentState) permissionTexts() int {
	n := 0
	for n < len(s.Queued) && s.Queued[n].Permission {
		n++
	}
	return n
}

// apply lets a suspended call go on under a grant of its tool from another request.
func (e CallPermitted) apply(s *AgentState) error {
	return s.changeCall(e.Call, func(c *Call) error {
		if c.Status == StatusResuming && c.Grant == nil {
			return nil
		}
		if c.Status != StatusSuspended || c.Wait.For != ForApproval {
			return &ApplyError{Call: c.ID, Problem: "the call is " + string(c.Status)}
		}
		return c.transition(StatusResuming)
	})
}

// grantClaim records the tool's grant under which a call is claimed.
func (s *AgentState) grantClaim(c *Call, e CallClaimed) error {
	c.Grant = &Grant{Approval: e.Under, Digest: e.Digest, Consumed: true, Tool: true}
	t, granted := First(s.Permissions.Tools, func(t ToolPermit) bool {
		return t.Tool == c.Tool && t.Approval == e.Under && !t.Denied && !t.Used && slices.Contains(t.Digests, e.Digest)
	})
	if granted {
		c.Grant.By, c.Grant.Note, c.Grant.Standing = t.By, t.Note, t.Standing
		if e.Once {
			s.Permissions.Use(e.Under, c.Tool)
		}
		return nil
	}
	g, ok := s.StandingUnder(*c, e)
	if _, denied := s.Permissions.Denied(c.Tool); !ok || denied || !g.Left() || !jsonx.Fits(g.When, c.Input) {
		return &ApplyError{Call: c.ID, Problem: "no permission of its tool covers it"}
	}
	c.Grant.By, c.Grant.Note, c.Grant.Standing, c.Grant.When = g.By, g.Note, true, g.When
	s.Permissions.Count(c.Tool, e.Digest)
	return nil
}

// Use marks a grant as used up.
func (p *Permissions) Use(approval, tool string) {
	p.Tools = slices.Clone(p.Tools)
	for i := range p.Tools {
		if t := &p.Tools[i]; t.Approval == approval && t.Tool == tool && !t.Denied {
			t.Used = true
		}
	}
}

func (e PermissionChecked) apply(s *AgentState) error {
	p := &s.Permissions
	switch known := p.Checked.Inference; {
	case known == e.Inference:
		var left []StandingGrant
		for _, g := range p.Checked.Standing {
			if i := slices.IndexFunc(e.Standing, g.Same); i >= 0 {
				g.Used = e.Standing[i].Used
				left = append(left, g)
			}
		}
		p.Checked.Standing = left
	case known > e.Inference:
		return nil
	case e.Inference != s.Round.Inference:
		return &ApplyError{Problem: "it is not about the newest round"}
	default:
		p.Checked = e
	}
	p.Tools = without(p.Tools, func(t ToolPermit) bool { // a denial stays
		return !t.Denied && slices.Contains(e.Revoked, PermitRef{Tool: t.Tool, Approval: t.Approval})
	})
	return nil
}

func (e PermissionFailed) apply(s *AgentState) error {
	s.Permissions.Failed = cmp.Or(s.Permissions.Failed, e.Message)
	return nil
}
