package scenario

import (
	"context"

	"github.com/countersign/countersign/internal/run"
)

// runs are all runs of the story as they are on record. One that cannot be read is a promise broken already.
func (s *stage) runs() []Run {
	story, err := s.story()
	if err != nil {
		return nil
	}
	var list []Run
	for _, m := range story {
		if m.State.From != nil && m.State.Run != s.run { // what it began from is not at hand
			continue
		}
		entries, err := s.record.Entries(context.Background(), tenant, m.State.Run, 0, 0)
		if err != nil {
			continue
		}
		r := Run{State: m.State, Journal: entries}
		if m.State.From != nil {
			if r.Seed, err = s.seed(context.Background()); err != nil {
				continue
			}
		}
		list = append(list, r)
	}
	return list
}

// calledIn is a call of a run as it is on record.
func (p *part) calledIn(runID, id string) (run.Call, bool) {
	l, err := p.stage.record.Load(context.Background(), tenant, runID)
	if err != nil {
		return run.Call{}, false
	}
	return l.State.Call(id)
}
