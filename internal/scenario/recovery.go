package scenario

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/asl"
	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/ids"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
)

// isDisturbed reports whether anything goes wrong or anybody acts beside the story.
func (s *simulation) isDisturbed() bool {
	return s.invariantsOnly || len(s.faultPoints)+len(s.interventions) > 0
}

// mayDiffer reports whether what is wanted of the story can be expected no more: somebody acts besides, or a fault is one that the run, and not
// only the product, has to do with. Then promises alone are checked.
func (s *simulation) mayDiffer() bool {
	if s.invariantsOnly || len(s.interventions) > 0 {
		return true
	}
	return slices.ContainsFunc(s.faultPoints, func(p fault.Point) bool { return !s.keepsOutcome(p) })
}

// keepsOutcome reports whether a run tells the same story after a fault: its invocation is begun again, or what it asked for is. One that has not
// happened yet changes nothing.
func (s *simulation) keepsOutcome(p fault.Point) bool {
	c, made := s.faults.Call(p.Call)
	if !made {
		return true
	}
	port, _, _ := strings.Cut(c.Port, ".")
	switch p.Kind {
	case fault.CrashBefore, fault.CrashAfter:
		return true
	case fault.ErrorBefore, fault.ErrorAfter, fault.Twice, fault.Throttled, fault.Stale, fault.Zombie:
		if c.Invocation == "approve" && s.scenario.sendsNotifications() { // who is not told for that is told by the next sweep
			return false
		}
		return port == "table" || port == "blobs" || port == "waiter"
	default:
		return false
	}
}

// maxSweeps is how often a story may need a sweep.
const maxSweeps = 5

// needsSweep reports whether a run of the family would move only when its time runs out, though something is owed to it, or never, and none of the others
// moves that could see to it.
func (s *simulation) needsSweep(runs []recordedRun) bool {
	if !s.isDisturbed() || s.faults.Live() > 0 || s.sweeps > maxSweeps || s.isProgressing(runs) {
		return false
	}
	return slices.ContainsFunc(runs, func(rec recordedRun) bool {
		return rec.State.Status != run.RunDone && (!s.isExecuting(rec) || len(rec.Inbox) > 0)
	})
}

// findThrottledRun is the first run of the family whose execution gave up because what it needed was throttled for too long.
func (s *simulation) findThrottledRun(runs []recordedRun) (recordedRun, bool) {
	i := slices.IndexFunc(runs, func(rec recordedRun) bool {
		status, err := s.machine.Ports.Waiter.Status(context.Background(), rec.State.Owner)
		return err == nil && status == runtime.ExecutionThrottled && rec.State.Status != run.RunDone
	})
	if i < 0 {
		return recordedRun{}, false
	}
	return runs[i], true
}

// isProgressing reports whether an execution of the family goes on by itself, now or when it tries again.
func (s *simulation) isProgressing(runs []recordedRun) bool {
	return slices.ContainsFunc(runs, func(rec recordedRun) bool {
		return s.isExecuting(rec) && (rec.State.Status != run.RunWaiting || !s.canWake(rec.State.Run))
	})
}

// isExecuting reports whether the run's execution has not ended.
func (s *simulation) isExecuting(rec recordedRun) bool {
	status, err := s.machine.Ports.Waiter.Status(context.Background(), rec.State.Owner)
	return err != nil || status == runtime.ExecutionRunning
}

// canWake reports whether the run's task token is stored and can still wake it.
func (s *simulation) canWake(run string) bool {
	h, err := s.journal.Head(context.Background(), tenant, run)
	return err == nil && s.machine.Engine.Waits(h.Token)
}

// sweepLater is the scheduled sweep, five minutes later. Only what somebody left undone who did not come back may need it.
func (s *simulation) sweepLater() {
	s.sweeps++
	runs, err := s.loadRunTree()
	_, outlasted := s.findThrottledRun(runs)
	if err == nil && !outlasted && !s.callerLost && !s.hasDeadZombie() {
		s.addViolation("rest", s.describeRun()+", and only a sweep could move it", "a run that goes on by itself")
	}
	if err := s.clock.Sleep(context.Background(), 5*time.Minute); err != nil {
		return
	}
	s.sweepRuns(Intervention{Do: Sweep})
	if s.sweeps == maxSweeps {
		s.addViolation("rest", fmt.Sprintf("%s, after %d sweeps", s.describeRun(), s.sweeps), "a run that a sweep moves")
	}
}

// hasDeadZombie reports whether somebody died whom nobody begins again: a zombie, whose retry is through with its work.
func (s *simulation) hasDeadZombie() bool {
	zombies := map[int]bool{}
	for _, p := range s.faultPoints {
		if c, made := s.faults.Call(p.Call); made && p.Kind == fault.Zombie {
			zombies[c.By] = true
		}
	}
	return slices.ContainsFunc(s.faultPoints, func(p fault.Point) bool {
		c, made := s.faults.Call(p.Call)
		return made && zombies[c.By] && slices.Contains(fault.Crashes(), p.Kind)
	})
}

// recordBoundary notes the state in which a handler begins alone, and reports whether the run is to be left there.
func (s *simulation) recordBoundary(function string, payload []byte) bool {
	if s.isKnownState == nil || !s.isAlone() {
		return false
	}
	// A digest of everything that can still matter: the table, the executions, the world outside and what
	// is left of the story. Two states with one print go on alike. What was drawn at random counts by the
	// place where it first stands, instants by how many minutes they lie ahead.
	var all bytes.Buffer
	for _, it := range s.items.All() {
		fmt.Fprintf(&all, "%s|%s|%s|%s|", it.PK, it.SK, it.Index, it.IndexSort)
		for _, k := range slices.Sorted(maps.Keys(it.Attrs)) {
			v := it.Attrs[k]
			fmt.Fprintf(&all, "%s=%s%d;", k, v.String(), v.Int())
		}
		all.Write(it.Body)
		all.WriteByte('\n')
	}
	fmt.Fprintf(&all, "%s %s timers=%d\n", function, payload, s.clock.Timers())
	for _, x := range s.machine.Engine.List(nil, "") { //nolint:staticcheck // it looks at nothing of the context
		fmt.Fprintf(&all, "%s %s %v\n", x.Name, x.Status, x.Status == asl.Running)
	}
	s.writeStoryState(&all)
	sum := sha256.Sum256(s.canonicalize(all.Bytes()))
	print := [16]byte(sum[:16])
	s.boundaries = append(s.boundaries, Boundary{Call: len(s.faults.Calls()) + 1, Fingerprint: print})
	if s.isKnownState(print) {
		s.pruned = true
		s.endSignal.Notify()
	}
	return s.pruned
}

// recordedIDs remembers what was drawn at random, so that it can be told from what means something.
type recordedIDs struct {
	*ids.Source
	seen map[string]bool
}

func newRecordedIDs(s *ids.Source) *recordedIDs { return &recordedIDs{s, map[string]bool{}} }

func (d *recordedIDs) Writer() string { return d.record(d.Source.Writer()) }
func (d *recordedIDs) Token() string  { return d.record(d.Source.Token()) }
func (d *recordedIDs) Key() string    { return d.record(d.Source.Key()) }

func (d *recordedIDs) record(id string) string {
	d.seen[id] = true
	return id
}
