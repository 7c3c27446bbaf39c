package scenario

import (
	"context"
	"slices"
	"time"

	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/pkg/agent"
	"github.com/countersign/countersign/pkg/agent/ids"
	"github.com/countersign/countersign/pkg/agent/runtime"
)

// disturbed reports whether anything goes wrong or anybody acts beside the story.
func (s *stage) disturbed() bool { return s.promisesOnly || len(s.plan)+len(s.acts) > 0 }

// otherStory reports whether what is wanted of the story can be expected no more: somebody acts besides, or a fault is one that the run, and not
// only the product, has to do with. Then promises alone are checked.
func (s *stage) otherStory() bool {
	return s.promisesOnly || len(s.acts) > 0 || slices.ContainsFunc(s.plan, func(p fault.Point) bool { return !retold(p.Kind) })
}

// retold reports whether a run tells the same story after a fault of this kind.
func retold(k fault.Kind) bool { return k == fault.CrashBefore || k == fault.CrashAfter }

// maxSweeps is how often a story may need a sweep.
const maxSweeps = 5

// stuck reports whether a run of the family would move only when its time runs out, though something is owed to it, or never, and none of the others
// moves that could see to it.
func (s *stage) stuck(family []member) bool {
	if !s.disturbed() || s.faults.Live() > 0 || s.sweeps >= maxSweeps {
		return false
	}
	owed := false
	for _, m := range family {
		status, err := s.machine.Ports.Waiter.Status(context.Background(), m.State.Owner)
		if err != nil {
			return false
		}
		parked := m.State.Status == agent.RunWaiting && s.waits(m.State.Run)
		if status == runtime.ExecutionRunning && !parked { // it is about to try again
			return false
		}
		owed = owed || m.State.Status != agent.RunDone && (status != runtime.ExecutionRunning || len(m.Inbox) > 0)
	}
	return owed
}

// waits reports whether the run's task token is stored and can still wake it.
func (s *stage) waits(run string) bool {
	h, err := s.record.Head(context.Background(), tenant, run)
	return err == nil && s.machine.Engine.Waits(h.Token)
}

// rescue is the scheduled sweep, five minutes later. Only what somebody left undone who did not come back may need it.
func (s *stage) rescue() {
	s.sweeps++
	if !s.gone && !s.exhausted() {
		s.violate("rest", s.standing()+", and only a sweep could move it", "a run that goes on by itself")
	}
	if err := s.clock.Sleep(context.Background(), 5*time.Minute); err != nil {
		return
	}
	s.sweep(Act{Do: Sweep})
}

// exhausted reports whether a fault ended an execution for good.
func (s *stage) exhausted() bool { return false }

// stopHere notes the state in which a handler begins alone, and reports whether the run is to be left there.
func (s *stage) stopHere(function string, payload []byte) bool {
	if s.seenBefore == nil || !s.alone() {
		return false
	}
	print := s.print(function, payload)
	s.boundaries = append(s.boundaries, Boundary{Call: len(s.faults.Calls()) + 1, Print: print})
	if s.seenBefore(print) {
		s.pruned = true
		s.curtain.Notify()
	}
	return s.pruned
}

// drawn remembers what was drawn at random, so that it can be told from what means something.
type drawn struct {
	*ids.Source
	all map[string]bool
}

func newDrawn(s *ids.Source) *drawn { return &drawn{s, map[string]bool{}} }

func (d *drawn) Writer() string { return d.note(d.Source.Writer()) }
func (d *drawn) Token() string  { return d.note(d.Source.Token()) }
func (d *drawn) Key() string    { return d.note(d.Source.Key()) }

func (d *drawn) note(id string) string {
	d.all[id] = true
	return id
}
