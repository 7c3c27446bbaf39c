package scenario

import (
	"context"

	"github.com/countersign/countersign/internal/run"
)

// exportRuns are all runs of the story as they are on record. One that cannot be read is a promise broken already.
func (s *simulation) exportRuns() []Run {
	story, err := s.loadAllRuns()
	if err != nil {
		return nil
	}
	var list []Run
	for _, rec := range story {
		if rec.State.From != nil && rec.State.Run != s.run { // what it began from is not at hand
			continue
		}
		entries, err := s.journal.Entries(context.Background(), tenant, rec.State.Run, 0, 0)
		if err != nil {
			continue
		}
		r := Run{State: rec.State, Journal: entries}
		if rec.State.From != nil {
			if r.Seed, err = s.loadSeed(context.Background()); err != nil {
				continue
			}
		}
		list = append(list, r)
	}
	return list
}

// calledIn is a call of a run as it is on record.
func (sr *scriptedRun) calledIn(runID, id string) (run.Call, bool) {
	l, err := sr.sim.journal.Load(context.Background(), tenant, runID)
	if err != nil {
		return run.Call{}, false
	}
	return l.State.Call(id)
}
