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

// Permissions is what a run knows about its tools' permissions beyond its definition (presets 4). It is part of the
// state, and so of the journal, and stored nowhere else. The zero value knows nothing. Slices are not written in place.
type Permissions struct {
	Asked []PermissionRequest `json:"asked,omitempty"` // open requests about tools, oldest first
	// people's decisions about tools for the rest of the run, oldest first
	Tools []ToolPermit `json:"tools,omitempty"`
	// the permission backend's answer about a round's tools; zero = it was not asked
	Checked PermissionChecked `json:"checked,omitzero"`
	Failed  string            `json:"failed,omitempty"` // why the run cannot continue (permission_failed); "" = it can
}

// PermissionRequest is one request to people about the tools whose calls a batch has blocked. It belongs to no call.
type PermissionRequest struct {
	Approval     string      `json:"approval"`
	Since        time.Time   `json:"since"`
	Expires      time.Time   `json:"expires"`
	Tools        []AskedTool `json:"tools"`                  // in call order, each once
	Reason       string      `json:"reason,omitempty"`       // reason shown to approvers
	Contributors int         `json:"contributors,omitempty"` // as in Wait
}

// AskedTool is one tool of a request and the decision about it.
type AskedTool struct {
	RequestedTool
	Verdict ToolVerdict `json:"verdict,omitempty"`
	By      string      `json:"by,omitempty"`
	Note    string      `json:"note,omitempty"`
}

// ToolVerdict is the decision about one tool of a request. "" = not decided yet.
type ToolVerdict string

// The verdicts. A cancelled tool is neither granted nor denied.
const (
	ToolGranted   ToolVerdict = "granted"
	ToolDenied    ToolVerdict = "denied"
	ToolCancelled ToolVerdict = "cancelled"
)

// Verdict returns the verdict on a tool that the action leads to.
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
	Approval string `json:"approval"`        // id of the request that was decided
	Place    int    `json:"place,omitempty"` // index of the tool in that request
	// ToolDigests of the grant: one for each policy of approvers that agreed, including the arguments if the grant is
	// limited to them
	Digests []string `json:"digests,omitempty"`
	By      string   `json:"by"`
	Note    string   `json:"note,omitempty"`
	Used    bool     `json:"used,omitempty"` // a claim has used it up
	// a record outside the run holds the grant too; once that is revoked, the grant is void
	Standing bool `json:"standing,omitempty"`

	ApprovedBy []Approver `json:"approvedBy,omitempty"` // the approvals; none = not recorded
	Asked      time.Time  `json:"asked,omitzero"`       // with ApprovedBy: when people were asked
	Edited     bool       `json:"edited,omitempty"`     // the grant covers arguments that a person changed
}

// PermissionStatus is a permission backend's answer about a tool (seed 000, PermissionManager.get). Package policy
// declares the statuses. A tool without an answer is requestable.
type PermissionStatus string

// First returns the id of the first call that the request blocked.
func (r PermissionRequest) First() string { return r.Tools[0].Calls[0] }

// Complete reports whether every tool has a verdict.
func (r PermissionRequest) Complete() bool {
	return !slices.ContainsFunc(r.Tools, func(t AskedTool) bool { return t.Verdict == "" })
}

// Denied returns the denial of a tool, if there is one.
func (p *Permissions) Denied(tool string) (ToolPermit, bool) {
	return First(p.Tools, func(t ToolPermit) bool { return t.Tool == tool && t.Denied })
}

// Request returns the index of an open request, or -1.
func (p *Permissions) Request(approval string) int {
	return slices.IndexFunc(p.Asked, func(r PermissionRequest) bool { return r.Approval == approval })
}

func (p *Permissions) close(approval string) {
	p.Asked = without(p.Asked, func(r PermissionRequest) bool { return r.Approval == approval })
}

// OpenRequests returns the requests about tools that the run waits for. A run that is done has none.
func (s *AgentState) OpenRequests() []PermissionRequest {
	if s.Status == RunDone {
		return nil
	}
	return s.Permissions.Asked
}

// StandingGrant is a person's grant of a tool, or of a tool with exact arguments, that outlives its run. It is a later
// run's copy of the record. The record itself decides: every claim checks it.
type StandingGrant struct {
	Tool     string    `json:"tool"`     // original name
	Approval string    `json:"approval"` // id of the decided request, in another run
	Digest   string    `json:"digest"`   // StandingDigest of the grant
	By       string    `json:"by"`
	Note     string    `json:"note,omitempty"`
	Expires  time.Time `json:"expires"`

	// a grant of a pattern: the arguments have to match all of these, and Digest comes from PatternDigest
	When []Condition `json:"when,omitempty"`
	Uses int         `json:"uses,omitempty"` // total number of claims that the grant covers; 0 = not counted
	Used int         `json:"used,omitempty"` // claims made when the record was read, plus claims of this run since

	// About the run in which the grant was given. The claim uses this to count the approvals again.
	Run        string     `json:"run,omitempty"`        // id of that run
	ApprovedBy []Approver `json:"approvedBy,omitempty"` // the approvals; none = the grant covers nothing
	Asked      time.Time  `json:"asked,omitzero"`       // when people were asked
	Requesters []string   `json:"requesters,omitempty"` // the requesters of that run when people were asked
	Edited     bool       `json:"edited,omitempty"`     // the grant covers arguments that a person changed
}

// Same reports whether both are copies of one record.
func (g StandingGrant) Same(h StandingGrant) bool {
	return g.Tool == h.Tool && g.Approval == h.Approval && g.Digest == h.Digest
}

// PermitRef names a grant of a tool that was given in the run itself.
type PermitRef struct {
	Tool     string `json:"tool"` // original name
	Approval string `json:"approval"`
}

// StandingUnder returns the standing grant that the claim of a call uses; false if it uses none.
func (s *AgentState) StandingUnder(c Call, e CallClaimed) (StandingGrant, bool) {
	read := s.Permissions.Checked
	g, found := First(read.Standing, func(g StandingGrant) bool { return g.Tool == c.Tool && g.Digest == e.Digest })
	return g, found && read.Inference == c.Inference && e.Under != "" && g.Approval == e.Under
}

// Left reports whether the grant covers one more claim.
func (g StandingGrant) Left() bool { return g.Uses == 0 || g.Used < g.Uses }

// Count adds one use to a counted standing grant.
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

// Checked is the result of a precondition when people were asked.
type Checked struct {
	Tool string          `json:"tool"`
	Args json.RawMessage `json:"args"`
	// the result's text; with Compare an object of the compared values by pointer, without missing ones
	Content string    `json:"content"`
	IsError bool      `json:"isError,omitempty"`
	At      time.Time `json:"at"`
	// the result when people were asked before, if a change is why they are asked again; nil = this is the first time
	Was *Was `json:"was,omitempty"`
}

// Was is an earlier result of a precondition.
type Was struct {
	Args    json.RawMessage `json:"args"`
	Content string          `json:"content"`
	IsError bool            `json:"isError,omitempty"`
	At      time.Time       `json:"at"`
}

// Same reports whether both are the same result of the same call.
func (k Checked) Same(o Checked) bool {
	return k.Tool == o.Tool && string(k.Args) == string(o.Args) && k.IsError == o.IsError &&
		jsonx.CanonicalText(json.RawMessage(k.Content)) == jsonx.CanonicalText(json.RawMessage(o.Content))
}

// Approver is one approval as the desk recorded it. The person was authenticated when they decided.
type Approver struct {
	By     string    `json:"by"`
	Groups []string  `json:"groups,omitempty"`
	At     time.Time `json:"at"`
	Tools  []string  `json:"tools,omitempty"` // for a request about tools: original names of the approved ones

	Via       Via     `json:"via,omitempty"`
	Confirmed Confirm `json:"confirmed,omitempty"`
}

// apply opens a request about tools. The named calls fail in the same entry.
func (e PermissionRequested) apply(s *AgentState) error {
	if s.Permissions.Request(e.Approval) >= 0 {
		return nil
	}
	if len(e.Tools) > 0 && len(e.Tools[0].Calls) > 0 {
		c, ok := s.Call(e.Tools[0].Calls[0])
		if ok && c.Request != "" && c.Request == e.Approval { // the request has been answered since
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
		Approval: e.Approval, Since: s.head.time, Expires: e.Expires, Reason: e.Reason, Contributors: len(s.Contributors),
	}
	for _, t := range e.Tools {
		if len(t.Calls) == 0 {
			return &ApplyError{Problem: "tool " + t.Tool + " has no call"}
		}
		for _, id := range t.Calls {
			i := slices.IndexFunc(live, func(c Call) bool { return c.ID == id })
			if i < 0 || live[i].Tool != t.Tool || live[i].Status != StatusNew && live[i].Status != StatusResuming {
				return &ApplyError{Call: id, Problem: "it is not a call of the tool that can be blocked"}
			}
			live[i].Request = e.Approval
		}
		r.Tools = append(r.Tools, AskedTool{RequestedTool: t})
	}
	s.Live = live
	s.Permissions.Asked = append(slices.Clip(s.Permissions.Asked), r)
	return nil
}

// decideTools sets the verdicts on tools of an open request. A tool keeps its first verdict.
func (s *AgentState) decideTools(at int, e Decided) error {
	if err := s.requireAwake(); err != nil {
		return err
	}
	if e.Action == ActionFail {
		s.Permissions.close(e.Approval)
		why := "the request for permission failed"
		if e.Note != "" {
			why += strings.ReplaceAll(fmt.Sprintf(": %.1000q", e.Note), "<", `\u003c`)
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
		// nothing is stored for the run: the next call asks again, or the record covers it
		if t.Verdict == ToolCancelled || e.Once && (t.Verdict == ToolDenied || e.Standing) {
			continue
		}
		p := ToolPermit{
			Tool: t.Tool, Denied: t.Verdict == ToolDenied, Approval: e.Approval, Place: i, Digests: t.Digests,
			By: e.By, Note: e.Note, Standing: e.Standing, ApprovedBy: e.ApprovedBy,
		}
		if len(e.ApprovedBy) > 0 {
			p.Asked = asked[at].Since
		}
		s.Permissions.Tools = append(slices.Clip(s.Permissions.Tools), p)
	}
	s.Permissions.Asked = asked
	return nil
}

// recordToolPermit records the permission of a call's tool that a decision on the call includes (suspend_and_replay,
// scope tool).
func (s *AgentState) recordToolPermit(c Call, e Decided) {
	deny := e.Action == ActionDeny
	if e.Permit == "" || !deny && (e.Action != ActionApprove || e.Once) {
		return
	}
	p := ToolPermit{
		Tool: c.Tool, Denied: deny, Approval: e.Approval, Digests: []string{e.Permit}, By: e.By, Note: e.Note,
		Standing: e.Standing, ApprovedBy: e.ApprovedBy, Edited: e.Args != nil,
	}
	switch {
	case len(e.ApprovedBy) == 0:
	case c.Wait != nil && c.Wait.Approval == e.Approval:
		p.Asked = c.Wait.Since
	default: // the request has been overtaken
		p.Asked = s.head.time
	}
	s.Permissions.Tools = append(slices.Clip(s.Permissions.Tools), p)
}

// apply closes a request and queues the notice to the model, which follows the turn's results.
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

// permissionTexts returns how many of the queued blocks answer requests about tools. These precede messages of users.
func (s *AgentState) permissionTexts() int {
	n := 0
	for n < len(s.Queued) && s.Queued[n].Permission {
		n++
	}
	return n
}

// apply resumes a suspended call under a grant of its tool from another request.
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

// recordToolGrant records the tool's grant under which a call is claimed, and counts its use.
func (s *AgentState) recordToolGrant(c *Call, e CallClaimed) error {
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
		var remaining []StandingGrant
		for _, g := range p.Checked.Standing {
			if i := slices.IndexFunc(e.Standing, g.Same); i >= 0 {
				g.Used = e.Standing[i].Used
				remaining = append(remaining, g)
			}
		}
		p.Checked.Standing = remaining
	case known > e.Inference:
		return nil
	case e.Inference != s.Round.Inference:
		return &ApplyError{Problem: "it is not about the newest round"}
	default:
		p.Checked = e
	}
	p.Tools = without(p.Tools, func(t ToolPermit) bool { // denials stay
		return !t.Denied && slices.Contains(e.Revoked, PermitRef{Tool: t.Tool, Approval: t.Approval})
	})
	return nil
}

func (e PermissionFailed) apply(s *AgentState) error {
	s.Permissions.Failed = cmp.Or(s.Permissions.Failed, e.Message)
	return nil
}
