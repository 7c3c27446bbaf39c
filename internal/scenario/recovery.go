package scenario

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
)

// isDisturbed reports whether the simulation has faults or interventions.
func (s *simulation) isDisturbed() bool {
	return s.InvariantsOnly || len(s.Faults)+len(s.Interventions) > 0
}

// mayDiffer reports whether the disturbances may change the outcome of the run. Then only invariants are checked.
func (s *simulation) mayDiffer() bool {
	if s.InvariantsOnly || len(s.Interventions) > 0 {
		return true
	}
	return slices.ContainsFunc(s.Faults, func(p fault.Point) bool { return !s.keepsOutcome(p) })
}

// keepsOutcome reports whether a fault leaves the outcome as it is, because the product repeats the invocation or the
// call. A fault that has not happened changes nothing.
func (s *simulation) keepsOutcome(p fault.Point) bool {
	c, made := s.injector.Call(p.Call)
	if !made {
		return true
	}
	port, _, _ := strings.Cut(c.Port, ".")
	switch p.Kind {
	case fault.CrashBefore, fault.CrashAfter:
		return true
	case fault.ErrorBefore, fault.ErrorAfter, fault.Twice, fault.Throttled, fault.Stale, fault.Zombie:
		if c.Invocation == "approve" && s.scenario.notifies { // the next sweep sends the notification instead
			return false
		}
		return port == "table" || port == "blobs" || port == "waiter"
	default:
		return false
	}
}

// maxSweeps is how many sweeps a simulation may need.
const maxSweeps = 5

// needsSweep reports whether a run has no execution or an undrained inbox, and no run makes progress that could repair
// it.
func (s *simulation) needsSweep(runs []recordedRun) bool {
	if !s.isDisturbed() || s.injector.LiveInvocations() > 0 || s.Sweeps > maxSweeps || s.isProgressing(runs) {
		return false
	}
	return slices.ContainsFunc(runs, func(rec recordedRun) bool {
		return rec.State.Status != run.RunDone && (!s.isExecuting(rec) || len(rec.Inbox) > 0)
	})
}

// findThrottledRun returns the first run whose execution gave up because of throttling.
func (s *simulation) findThrottledRun(runs []recordedRun) (recordedRun, bool) {
	for _, rec := range runs {
		if s.executionStatus(rec) == runtime.ExecutionThrottled && rec.State.Status != run.RunDone {
			return rec, true
		}
	}
	return recordedRun{}, false
}

// executionStatus returns the status of the execution that owns a run. It runs if the status cannot be read.
func (s *simulation) executionStatus(rec recordedRun) runtime.ExecutionStatus {
	status, err := s.machine.Ports.Waiter.Status(context.Background(), rec.State.Owner)
	if err != nil {
		return runtime.ExecutionRunning
	}
	return status
}

// isProgressing reports whether an execution goes on without a person, now or at its next retry.
func (s *simulation) isProgressing(runs []recordedRun) bool {
	return slices.ContainsFunc(runs, func(rec recordedRun) bool {
		if !s.isExecuting(rec) || rec.State.Status != run.RunWaiting {
			return s.isExecuting(rec)
		}
		h, err := s.head(rec.State.Run)
		return err != nil || !s.machine.Engine.Waits(h.Token) // no valid task token is stored
	})
}

// isExecuting reports whether the run's execution has not ended.
func (s *simulation) isExecuting(rec recordedRun) bool {
	return s.executionStatus(rec) == runtime.ExecutionRunning
}

// sweepLater runs the scheduled sweep after five minutes. A run may need it only after throttling, a lost caller or a
// dead zombie; otherwise the run must go on by itself.
func (s *simulation) sweepLater() {
	s.Sweeps++
	runs, err := s.loadRunTree()
	_, throttled := s.findThrottledRun(runs)
	if err == nil && !throttled && !s.callerLost && !s.hasDeadZombie() {
		s.addViolation("rest", s.describeRun()+", and only a sweep could move it", "a run that goes on by itself")
	}
	if err := s.clock.Sleep(context.Background(), 5*time.Minute); err != nil {
		return
	}
	s.sweepRuns(Intervention{Do: Sweep})
	if s.Sweeps == maxSweeps {
		s.addViolation("rest", fmt.Sprintf("%s, after %d sweeps", s.describeRun(), s.Sweeps), "a run that a sweep moves")
	}
}

// hasDeadZombie reports whether a zombie invocation crashed. Nobody repeats it, since its retry has finished already.
func (s *simulation) hasDeadZombie() bool {
	zombies := map[int]bool{}
	for _, p := range s.Faults {
		if c, made := s.injector.Call(p.Call); made && p.Kind == fault.Zombie {
			zombies[c.InvocationNumber] = true
		}
	}
	return slices.ContainsFunc(s.Faults, func(p fault.Point) bool {
		c, made := s.injector.Call(p.Call)
		return made && zombies[c.InvocationNumber] && slices.Contains(fault.Crashes(), p.Kind)
	})
}
