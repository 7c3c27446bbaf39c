package show

import (
	"cmp"
	"slices"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
)

// history is what has happened with a request, in order of time.
func (s *builder) history(t agent.ToolSpec) []Event {
	a := s.a
	all := []Event{{At: a.RequestedAt, What: "asked", Who: bareText(a.Agent, nil)}}
	if !a.EscalatedAt.IsZero() {
		all = append(all, Event{At: a.EscalatedAt, What: "escalated", Who: namesText(a.EscalateTo)})
	}
	for _, r := range a.Thread {
		all = append(all, Event{At: r.At, Who: s.foreignText(r.By), What: EventRemark, Note: s.foreignText(r.Text), Via: string(r.Via)})
	}
	for _, d := range a.Decisions {
		e := Event{At: d.At, Who: s.foreignText(d.By), What: string(d.Action), Note: s.foreignText(d.Note), Via: string(d.Via), Tools: namesText(d.Tools), Grant: s.decisionGrantText(d.Grant)}
		switch {
		case d.Action == approval.Edit:
			e.Arguments = s.arguments(d.Args, t.Schema)
		case a.Kind == approval.KindInput:
			e.Arguments = s.arguments(d.Args, nil)
		}
		all = append(all, e)
	}
	if a.Status == approval.Expired {
		all = append(all, Event{At: a.ExpiresAt, What: "expired"})
	}
	slices.SortStableFunc(all, func(a, b Event) int { return cmp.Compare(a.At.UnixMilli(), b.At.UnixMilli()) })
	return all
}
