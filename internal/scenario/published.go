package scenario

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

// publishes reports whether want.json says what is published. Nobody listens in other scenarios.
func (s *Scenario) publishes() bool {
	wants := slices.Concat([]want{s.want}, slices.Concat(slices.Collect(maps.Values(s.children))...))
	return slices.ContainsFunc(wants, func(w want) bool { return w["published"] != nil })
}

// publishedEvents records what is published of each run. A repeated id must have the same event.
type publishedEvents struct{ sim *simulation }

func (p publishedEvents) Emit(_ context.Context, e policy.Outgoing) error {
	sr := p.sim.scriptedRunOf(e.Run)
	i := slices.IndexFunc(sr.published, func(seen policy.Outgoing) bool { return seen.ID == e.ID })
	switch {
	case i < 0:
		sr.published = append(sr.published, e)
	case !reflect.DeepEqual(sr.published[i], e):
		p.sim.addViolation("published", e.ID+" again, and not the same", "one event for each id")
	}
	return nil
}

// sendOutbox sends what a crash has kept from being sent, as the scheduled sweep does.
func (s *simulation) sendOutbox() {
	p := s.machine.Ports
	p.Table, p.Publish = s.table, publishedEvents{s}
	for cursor, by := "", s.clock.Now().Add(time.Hour); ; {
		_, next, err := p.SendOutbox(context.Background(), tenant, by, cursor)
		if err != nil {
			s.addViolation("published", err.Error(), "events that can be sent")
			return
		}
		if cursor = next; cursor == "" {
			return
		}
	}
}

// checkPublished: of every run its start and its end, and of every request that people were asked that and how it
// ended.
func (s *simulation) checkPublished(rec recordedRun, entries []run.Entry) {
	if !s.scenario.publishes() {
		return
	}
	seen := map[string]int{}
	for _, e := range rec.scripted.published {
		seen[e.ID]++
	}
	check := func(id string, want int) {
		if seen[id] != want {
			s.addViolation("published", fmt.Sprintf("%s %d times", id, seen[id]), fmt.Sprint(want))
		}
	}
	check(rec.State.Run+"#started", 1)
	if rec.State.Status == run.RunDone {
		check(rec.State.Run+"#ended", 1)
	}
	for _, id := range requestIDs(entries) {
		a, err := s.request(id)
		if err != nil { // settled by the entry that would have made it
			continue
		}
		closed := seen[id+"#decided"] + seen[id+"#expired"] + seen[id+"#closed"]
		if open := a.Status == approval.Pending; open && closed != 0 || !open && closed != seen[id+"#asked"] {
			s.addViolation("published", fmt.Sprintf("%d ends of request %s, which is %s", closed, id, a.Status),
				"one of each that was asked and is closed")
		}
		if a.Status == approval.Pending {
			check(id+"#asked", 1)
		}
	}
}
