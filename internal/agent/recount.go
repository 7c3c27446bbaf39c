package agent

import (
	"slices"
	"time"
)

// Voice is one approval as the desk recorded it: who the person is was authenticated when they decided.
type Voice struct {
	By        string    `json:"by"`
	Groups    []string  `json:"groups,omitempty"`
	For       string    `json:"for,omitempty"` // who has let By decide meanwhile; "" = By is an approver
	ForGroups []string  `json:"forGroups,omitempty"`
	At        time.Time `json:"at"`
}

// approver is the one in whose name the approval is.
func (v Voice) approver() Principal {
	if v.For != "" {
		return Principal{ID: v.For, Groups: v.ForGroups}
	}
	return Principal{ID: v.By, Groups: v.Groups}
}

// people are those who count as having said it.
func (v Voice) people() []string {
	if v.For != "" {
		return []string{v.By, v.For}
	}
	return []string{v.By}
}

// counts reports whether those who have approved a call are those whom its policy wants: approvers at that time, so
// many different people, and under four eyes none whom the call comes from. What the request said of its approvers is
// not looked at: whoever can write that one item could otherwise let anything run.
func (g Grant) counts(s *AgentState, dec Decision) bool {
	if len(g.Voices) == 0 || g.Consumed || g.Tool {
		return true
	}
	want := dec.People()
	if g.Edited {
		want = FourEyesEdit(want, dec.FourEyes)
	}
	requesters := s.requestersOnce(g.Heard)
	var counted []string
	have := 0
	for _, v := range g.Voices {
		known := func(id string) bool {
			return slices.Contains(counted, id) || dec.FourEyes && slices.Contains(requesters, id)
		}
		if !dec.MayAfter(v.approver(), v.At.Sub(g.Asked)) || slices.ContainsFunc(v.people(), known) {
			continue
		}
		have++
		counted = append(counted, v.people()...)
	}
	return have >= want
}
