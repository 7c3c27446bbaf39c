package run

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/jsonx"
)

// apply opens a request about tools. The calls it names fail in the same entry.
func (e PermissionRequested) apply(s *AgentState) error {
	if s.Permissions.Request(e.Approval) >= 0 || s.askedBefore(e) {
		return nil
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

// askedBefore reports whether the request was made and has been answered since.
func (s *AgentState) askedBefore(e PermissionRequested) bool {
	if len(e.Tools) == 0 || len(e.Tools[0].Calls) == 0 {
		return false
	}
	c, ok := s.Call(e.Tools[0].Calls[0])
	return ok && c.Request != "" && c.Request == e.Approval
}

// applyToolDecisions gives tools of an open request their verdicts, each its first.
func (s *AgentState) applyToolDecisions(at int, e Decided) error {
	if err := s.requireAwake(); err != nil {
		return err
	}
	if e.Action == ActionFail {
		s.Permissions.Asked = without(s.Permissions.Asked, at)
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

// apply closes a request, and tells the model once the turn's results stand before it.
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
	s.Permissions.Asked = without(s.Permissions.Asked, i)
	s.Queued = slices.Insert(slices.Clone(s.Queued), s.permissionTexts(),
		queued{Text{Text: e.Text}, s.nextSource(0), true})
	s.flushQueued()
	return nil
}

// permissionTexts is how many of the queued blocks are answers to requests already: they come before what users said.
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
	i := slices.IndexFunc(s.Permissions.Tools, func(t ToolPermit) bool {
		return t.Tool == c.Tool && t.Approval == e.Under && !t.Denied && !t.Used && slices.Contains(t.Digests, e.Digest)
	})
	if i < 0 {
		g, ok := s.StandingUnder(*c, e)
		if _, denied := s.Permissions.Denied(c.Tool); !ok || denied || !g.Left() || !jsonx.Fits(g.When, c.Input) {
			return &ApplyError{Call: c.ID, Problem: "no permission of its tool covers it"}
		}
		c.Grant = &Grant{Approval: g.Approval, Digest: e.Digest, By: g.By, Note: g.Note, Consumed: true, Tool: true,
			Standing: true, When: g.When}
		s.Permissions.Count(c.Tool, e.Digest)
		return nil
	}
	t := s.Permissions.Tools[i]
	c.Grant = &Grant{Approval: t.Approval, Digest: e.Digest, By: t.By, Note: t.Note, Consumed: true, Tool: true,
		Standing: t.Standing}
	if e.Once {
		s.Permissions.Use(e.Under, c.Tool)
	}
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
	if err := s.requireAwake(); err != nil {
		return err
	}
	switch known := s.Permissions.Checked.Inference; {
	case known == e.Inference:
		var left []StandingGrant
		for _, g := range s.Permissions.Checked.Standing {
			if i := slices.IndexFunc(e.Standing, g.Same); i >= 0 {
				g.Used = e.Standing[i].Used
				left = append(left, g)
			}
		}
		s.Permissions.Checked.Standing = left
	case known > e.Inference:
		return nil
	case e.Inference != s.Round.Inference:
		return &ApplyError{Problem: "it is not about the newest round"}
	default:
		s.Permissions.Checked = e
	}
	s.Permissions.revoke(e.Revoked)
	return nil
}

func (e PermissionFailed) apply(s *AgentState) error {
	if err := s.requireAwake(); err != nil {
		return err
	}
	s.Permissions.Failed = cmp.Or(s.Permissions.Failed, e.Message)
	return nil
}
