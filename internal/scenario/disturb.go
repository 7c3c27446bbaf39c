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

// disturbed reports whether anything goes wrong or anybody acts beside the story.
func (s *stage) disturbed() bool { return s.promisesOnly || len(s.plan)+len(s.acts) > 0 }

// otherStory reports whether what is wanted of the story can be expected no more: somebody acts besides, or a fault is one that the run, and not
// only the product, has to do with. Then promises alone are checked.
func (s *stage) otherStory() bool {
	if s.promisesOnly || len(s.acts) > 0 {
		return true
	}
	return slices.ContainsFunc(s.plan, func(p fault.Point) bool { return !s.retold(p) })
}

// retold reports whether a run tells the same story after a fault: its invocation is begun again, or what it asked for is. One that has not
// happened yet changes nothing.
func (s *stage) retold(p fault.Point) bool {
	c, made := s.faults.Call(p.Call)
	if !made {
		return true
	}
	port, _, _ := strings.Cut(c.Port, ".")
	switch p.Kind {
	case fault.CrashBefore, fault.CrashAfter:
		return true
	case fault.ErrorBefore, fault.ErrorAfter, fault.Twice, fault.Throttled, fault.Stale, fault.Zombie:
		if c.Invocation == "approve" && s.scenario.tells() { // who is not told for that is told by the next sweep
			return false
		}
		return port == "table" || port == "blobs" || port == "waiter"
	default:
		return false
	}
}

// maxSweeps is how often a story may need a sweep.
const maxSweeps = 5

// stuck reports whether a run of the family would move only when its time runs out, though something is owed to it, or never, and none of the others
// moves that could see to it.
func (s *stage) stuck(family []member) bool {
	if !s.disturbed() || s.faults.Live() > 0 || s.sweeps > maxSweeps || s.moving(family) {
		return false
	}
	return slices.ContainsFunc(family, func(m member) bool {
		return m.State.Status != run.RunDone && (!s.executes(m) || len(m.Inbox) > 0)
	})
}

// outlasted is the first run of the family whose execution gave up because what it needed was throttled for too long.
func (s *stage) outlasted(family []member) (member, bool) {
	i := slices.IndexFunc(family, func(m member) bool {
		status, err := s.machine.Ports.Waiter.Status(context.Background(), m.State.Owner)
		return err == nil && status == runtime.ExecutionThrottled && m.State.Status != run.RunDone
	})
	if i < 0 {
		return member{}, false
	}
	return family[i], true
}

// moving reports whether an execution of the family goes on by itself, now or when it tries again.
func (s *stage) moving(family []member) bool {
	return slices.ContainsFunc(family, func(m member) bool {
		return s.executes(m) && (m.State.Status != run.RunWaiting || !s.waits(m.State.Run))
	})
}

// executes reports whether the run's execution has not ended.
func (s *stage) executes(m member) bool {
	status, err := s.machine.Ports.Waiter.Status(context.Background(), m.State.Owner)
	return err != nil || status == runtime.ExecutionRunning
}

// waits reports whether the run's task token is stored and can still wake it.
func (s *stage) waits(run string) bool {
	h, err := s.record.Head(context.Background(), tenant, run)
	return err == nil && s.machine.Engine.Waits(h.Token)
}

// rescue is the scheduled sweep, five minutes later. Only what somebody left undone who did not come back may need it.
func (s *stage) rescue() {
	s.sweeps++
	family, err := s.family()
	_, outlasted := s.outlasted(family)
	if err == nil && !outlasted && !s.gone && !s.exhausted() {
		s.violate("rest", s.standing()+", and only a sweep could move it", "a run that goes on by itself")
	}
	if err := s.clock.Sleep(context.Background(), 5*time.Minute); err != nil {
		return
	}
	s.sweep(Act{Do: Sweep})
	if s.sweeps == maxSweeps {
		s.violate("rest", fmt.Sprintf("%s, after %d sweeps", s.standing(), s.sweeps), "a run that a sweep moves")
	}
}

// exhausted reports whether somebody died whom nobody begins again: a zombie, whose retry is through with its work.
func (s *stage) exhausted() bool {
	zombies := map[int]bool{}
	for _, p := range s.plan {
		if c, made := s.faults.Call(p.Call); made && p.Kind == fault.Zombie {
			zombies[c.By] = true
		}
	}
	return slices.ContainsFunc(s.plan, func(p fault.Point) bool {
		c, made := s.faults.Call(p.Call)
		return made && zombies[c.By] && slices.Contains(fault.Crashes(), p.Kind)
	})
}

// stopHere notes the state in which a handler begins alone, and reports whether the run is to be left there.
func (s *stage) stopHere(function string, payload []byte) bool {
	if s.seenBefore == nil || !s.alone() {
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
	s.printStory(&all)
	sum := sha256.Sum256(s.canonical(all.Bytes()))
	print := [16]byte(sum[:16])
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
