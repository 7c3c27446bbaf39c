package scenario

import (
	"fmt"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// peopleQueue holds the lines of people.jsonl that are still to come: a queue that goes on whenever the runs wait, and
// lines with a trigger.
type peopleQueue struct {
	sim       *simulation
	queued    []line
	triggered []line
	busy      bool   // a queued line is being performed
	expiring  string // the request or the service's call that a line has expired; empty = none
}

// actAt performs the lines of a trigger, each once, and reports whether one of them changes the run.
func (s *simulation) actAt(at trigger) (acted bool) {
	for {
		i := slices.IndexFunc(s.people.triggered, func(l line) bool { return l.trigger == at })
		if i < 0 {
			return acted
		}
		l := s.people.triggered[i]
		s.people.triggered = slices.Delete(s.people.triggered, i, i+1)
		s.performLine(l)
		acted = acted || !l.Refused
	}
}

// onIdle runs when no task can go on before the clock moves. It starts the next action or ends the simulation; false
// lets the clock move.
func (q *peopleQueue) onIdle() bool {
	if q.busy || !q.sim.started {
		return false
	}
	runs, err := q.sim.loadRunTree()
	if err != nil {
		q.sim.addFailure("run", err.Error(), "a run")
		return q.endSimulation()
	}
	if !q.sim.isProgressing(runs) && q.sim.injector.ReleaseZombies() {
		return true
	}
	rec, throttled := q.sim.findThrottledRun(runs)
	throttled = throttled && q.sim.injector.LiveInvocations() == 0
	if throttled && len(rec.scripted.model.Leftover()) == 0 { // the models never answer again
		return q.endSimulation()
	}
	if throttled || q.sim.needsSweep(runs) {
		q.act(q.sim.sweepLater)
		return true
	}
	if runs[0].State.Status == run.RunDone {
		return q.onRunDone(runs)
	}
	switch {
	case !q.isResting(runs[0].Loaded):
		return false
	case q.sim.isDisturbed() && q.sim.injector.LiveInvocations() > 0: // an abandoned invocation still runs
		return false
	case slices.ContainsFunc(runs, func(rec recordedRun) bool {
		return q.isResting(rec.Loaded) && rec.scripted.settleUnknownOutcome(rec.State.Waits())
	}):
		return true
	case len(q.queued) > 0:
		return q.actNext(runs)
	default:
		return q.areAllResting(runs) && q.sim.isParked(runs) && q.endSimulation()
	}
}

// onRunDone is onIdle for a main run that has ended.
func (q *peopleQueue) onRunDone(runs []recordedRun) bool {
	switch {
	case q.sim.injector.LiveInvocations() > 0,
		slices.ContainsFunc(runs, func(rec recordedRun) bool { return !q.sim.isOver(rec) }):
		return false
	case q.sim.scenario.then != nil && q.sim.continues == "":
		q.act(q.sim.startThenRun)
		return true
	case len(q.queued) > 0 && q.queued[0].Do == "undo":
		return q.actNext(runs)
	case q.sim.hasDueWork(): // reminders and escalations wait for the clock
		return false
	default:
		return q.endSimulation()
	}
}

// areAllResting reports whether every run waits for a person or is over.
func (q *peopleQueue) areAllResting(runs []recordedRun) bool {
	return !slices.ContainsFunc(runs, func(rec recordedRun) bool { return !q.isResting(rec.Loaded) && !q.sim.isOver(rec) })
}

// actNext performs the first queued line if all runs are resting.
func (q *peopleQueue) actNext(runs []recordedRun) bool {
	if !q.areAllResting(runs) {
		return false
	}
	l := q.queued[0]
	_, ok := findRunOfAgent(runs, l.Agent)
	if !ok && !q.sim.InvariantsOnly {
		return q.endSimulation() // compareOutcome reports the unused line
	}
	if q.queued = q.queued[1:]; !ok {
		return q.onIdle()
	}
	q.act(func() { q.sim.performLine(l) })
	return true
}

func (q *peopleQueue) endSimulation() bool {
	q.sim.endSignal.Notify()
	return true
}

// isResting reports whether a run waits, its inbox is empty and none of its waits is about to expire.
func (q *peopleQueue) isResting(l store.Loaded) bool {
	return l.State.Status == run.RunWaiting && len(l.Inbox) == 0 &&
		!slices.ContainsFunc(l.State.Waits(), func(w run.Call) bool {
			return q.expiring != "" && (w.Wait.Approval == q.expiring || w.ID == q.expiring)
		}) && !slices.ContainsFunc(l.State.OpenRequests(),
		func(r run.PermissionRequest) bool { return r.Approval == q.expiring })
}

// act performs an action as a task of its own. The queue stops until the action is done.
func (q *peopleQueue) act(act func()) {
	q.busy = true
	q.sim.clock.Go(func() {
		act()
		q.busy = false
	})
}

// isOver reports whether a run and its execution have ended.
func (s *simulation) isOver(rec recordedRun) bool {
	return rec.State.Status == run.RunDone && !s.isExecuting(rec)
}

// isParked reports whether the main run has stored its task token, if it waits. In a disturbed simulation every waiting
// run must have.
func (s *simulation) isParked(runs []recordedRun) bool {
	return !slices.ContainsFunc(runs, func(rec recordedRun) bool {
		if rec.State.Run != s.run && !s.isDisturbed() || rec.State.Status != run.RunWaiting {
			return false
		}
		h, err := s.head(rec.State.Run)
		return err == nil && h.Token == ""
	})
}

// performLine performs a line, with retries, and checks whether the product took or refused it as the line expects.
// A retry repeats the first request unchanged.
func (s *simulation) performLine(l line) {
	sr, err := s.scriptedRunForLine(l)
	var act action
	if err == nil {
		act, err = sr.lineAction(l)
	}
	if err == nil {
		err = s.retry(strings.TrimSpace(l.Do+" "+l.Call), act)
		if s.InvariantsOnly && err != nil && !isRefusal(err) {
			s.addViolation("people", fmt.Sprintf("%s %s: %v", l.Do, l.Call, err), "taken or refused")
		}
	}
	at := fmt.Sprintf("%s:%d: %s", s.scenario.archive, l.number, l.Do)
	switch refused := isRefusal(err); {
	case err == nil && l.Refused:
		s.addFailure(at, "taken", "refused")
	case refused && !l.Refused:
		s.addFailure(at, "refused: "+err.Error(), "taken")
	case err != nil && !refused:
		s.addFailure(at, err.Error(), "taken or refused")
	}
}
