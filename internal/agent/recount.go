package agent

import (
	"slices"
	"time"
)

// Voice is one approval as the desk recorded it: who the person is was authenticated when they decided.
type Voice struct {
	By     string    `json:"by"`
	Groups []string  `json:"groups,omitempty"`
	At     time.Time `json:"at"`
	Tools  []string  `json:"tools,omitempty"` // of a request about tools: those that are approved, by original name
}

// enough reports whether those who have approved are those whom a policy wants: approvers at that time, so many
// different people, and under four eyes none whom the call comes from. What the request said of its approvers is not
// looked at: whoever can write that one item could otherwise let anything run.
func (d Decision) enough(voices []Voice, want int, asked time.Time, requesters []string) bool {
	var counted []string
	have := 0
	for _, v := range voices {
		known := func(id string) bool {
			return slices.Contains(counted, id) || d.FourEyes && slices.Contains(requesters, id)
		}
		if !d.MayAfter(Principal{ID: v.By, Groups: v.Groups}, v.At.Sub(asked)) || known(v.By) {
			continue
		}
		have++
		counted = append(counted, v.By)
	}
	return have >= want
}

// peopleFor is how many different people approve, edited or not.
func (d Decision) peopleFor(edited bool) int {
	if edited {
		return FourEyesEdit(d.People(), d.FourEyes)
	}
	return d.People()
}

// counts reports whether a call's policy lets it run on the word of those who have approved it, or who have ordered it
// to be run again. What was used up by a claim was counted then.
func (g Grant) counts(s *AgentState, dec Decision) bool {
	if !g.Again && (g.Consumed || len(g.Voices) == 0) {
		return true
	}
	return dec.enough(g.Voices, dec.peopleFor(g.Edited && !g.Again), g.Asked, s.RequestersOnce(g.Heard))
}

// counts reports whether a call's policy lets it run on the word of those who have granted its tool.
func (p ToolPermit) counts(s *AgentState, dec Decision) bool {
	if len(p.Voices) == 0 {
		return true
	}
	voices := slices.DeleteFunc(slices.Clone(p.Voices), func(v Voice) bool {
		return len(v.Tools) > 0 && !slices.Contains(v.Tools, p.Tool)
	})
	return dec.enough(voices, dec.peopleFor(p.Edited), p.Asked, s.RequestersOnce(p.Heard))
}

// counts reports whether a call's policy lets it run on the word of those who have given the standing grant.
func (g StandingGrant) counts(dec Decision) bool {
	return dec.enough(g.Voices, dec.peopleFor(g.Edited), g.Asked, g.Requesters)
}

// Suffices reports whether those who have granted a tool by e are those whom the policy of each call wants that asked.
func (e Decided) Suffices(d *Definition, s *AgentState, tool string) bool {
	calls := []string{e.Call}
	if at := s.Permissions.request(e.Approval); at >= 0 {
		for _, t := range s.Permissions.Asked[at].Tools {
			if t.Tool == tool {
				calls = t.Calls
			}
		}
	}
	t, _ := d.Tool(tool)
	for _, id := range calls {
		c, _ := s.Call(id)
		dec := DecideIn(d, s, t, c.Input)
		if c.Grant != nil && c.Grant.Approval == e.Approval && !c.Grant.counts(s, dec) {
			return false
		}
		for _, p := range s.Permissions.Tools {
			if p.Tool == tool && p.Approval == e.Approval && !p.Denied && !p.counts(s, dec) {
				return false
			}
		}
	}
	return true
}
