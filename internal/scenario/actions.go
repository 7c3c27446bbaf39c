package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
)

// peopleQueue is the people of a scenario: a queue of those who wait for the run to wait, and those who act at a moment.
type peopleQueue struct {
	sim       *simulation
	queued    []line
	triggered []line
	busy      bool   // somebody of the queue is at it
	expiring  string // the request, or the service's call, whose time was made to run out; empty = none
}

func newPeopleQueue(s *simulation, people []line) *peopleQueue {
	q := &peopleQueue{sim: s}
	for _, l := range people {
		if l.trigger == (trigger{}) {
			q.queued = append(q.queued, l)
		} else {
			q.triggered = append(q.triggered, l)
		}
	}
	return q
}

// actAt lets those act who wait for a moment, each once, and reports whether one of them had something to say that counts.
func (s *simulation) actAt(at trigger) (said bool) {
	for {
		i := slices.IndexFunc(s.people.triggered, func(l line) bool { return l.trigger == at })
		if i < 0 {
			return said
		}
		l := s.people.triggered[i]
		s.people.triggered = slices.Delete(s.people.triggered, i, i+1)
		s.performLine(l)
		said = said || !l.refused
	}
}

// onIdle is asked when nothing can move before time does: whose turn it is, or whether it is over.
func (q *peopleQueue) onIdle() bool {
	if q.busy || !q.sim.started {
		return false
	}
	runs, err := q.sim.loadRunTree()
	if err != nil {
		q.sim.addFailure(Failure{Path: "run", Got: err.Error(), Want: "a run"})
		return q.endSimulation()
	}
	if !q.sim.isProgressing(runs) && q.sim.faults.Release() {
		return true
	}
	if rec, ok := q.sim.findThrottledRun(runs); ok && q.sim.faults.Live() == 0 {
		if len(rec.scripted.model.Leftover()) == 0 { // its models never answer
			return q.endSimulation()
		}
		q.act(q.sim.sweepLater)
		return true
	}
	if q.sim.needsSweep(runs) {
		q.act(q.sim.sweepLater)
		return true
	}
	if runs[0].State.Status == run.RunDone {
		return q.onRunDone(runs)
	}
	switch {
	case !q.isResting(runs[0].Loaded):
		return false
	case q.sim.isDisturbed() && q.sim.faults.Live() > 0: // somebody who was given up is at it
		return false
	case q.knows(runs):
		return true
	case len(q.queued) > 0:
		return q.actNext(runs)
	default:
		return q.areAllResting(runs) && q.sim.isParked(runs) && q.endSimulation()
	}
}

// onRunDone is idle of a story whose run is done.
func (q *peopleQueue) onRunDone(runs []recordedRun) bool {
	switch {
	case !q.sim.isQuiet(runs):
		return false
	case q.sim.scenario.then != nil && q.sim.continues == "":
		q.act(q.sim.startThenRun)
		return true
	case len(q.queued) > 0 && q.queued[0].do == "undo":
		return q.actNext(runs)
	case q.sim.hasDueWork(): // what is due is done at its time
		return false
	default:
		return q.endSimulation()
	}
}

// knows lets somebody settle what only a crash has left open.
func (q *peopleQueue) knows(runs []recordedRun) bool {
	return slices.ContainsFunc(runs, func(rec recordedRun) bool {
		return q.isResting(rec.Loaded) && rec.scripted.settleUnknownOutcome(rec.State.Waits())
	})
}

// areAllResting reports whether no run of the family goes on by itself.
func (q *peopleQueue) areAllResting(runs []recordedRun) bool {
	return !slices.ContainsFunc(runs, func(rec recordedRun) bool { return !q.isResting(rec.Loaded) && !q.sim.isOver(rec) })
}

// actNext lets the first of the queue act. No run of the family goes on by itself then.
func (q *peopleQueue) actNext(runs []recordedRun) bool {
	if !q.areAllResting(runs) {
		return false
	}
	l := q.queued[0]
	_, ok := findRunOfAgent(runs, l.agent)
	if !ok && !q.sim.invariantsOnly {
		return q.endSimulation() // and its line was never used
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

// isResting reports whether the run waits and has taken in all that was said to it.
func (q *peopleQueue) isResting(l store.Loaded) bool {
	return l.State.Status == run.RunWaiting && len(l.Inbox) == 0 && !slices.ContainsFunc(l.State.Waits(), func(w run.Call) bool {
		return q.expiring != "" && (w.Wait.Approval == q.expiring || w.ID == q.expiring)
	}) && !slices.ContainsFunc(l.State.OpenRequests(), func(r run.PermissionRequest) bool { return r.Approval == q.expiring })
}

// act lets somebody act; nobody of the queue does before they are done.
func (q *peopleQueue) act(act func()) {
	q.busy = true
	q.sim.clock.Go(func() {
		act()
		q.busy = false
	})
}

// isQuiet reports whether what belongs to runs that are done has come to its end as well.
func (s *simulation) isQuiet(runs []recordedRun) bool {
	if s.faults.Live() > 0 {
		return false
	}
	return !slices.ContainsFunc(runs, func(rec recordedRun) bool { return !s.isOver(rec) })
}

// isOver reports whether a run is done, and so is its execution.
func (s *simulation) isOver(rec recordedRun) bool {
	status, err := s.machine.Ports.Waiter.Status(context.Background(), rec.State.Owner)
	return rec.State.Status == run.RunDone && (err != nil || status != runtime.ExecutionRunning)
}

// isParked reports whether the task token of the run that the story is about is stored, so that it can be woken; where something went wrong, that of
// each run of the family that waits.
func (s *simulation) isParked(runs []recordedRun) bool {
	return !slices.ContainsFunc(runs, func(rec recordedRun) bool {
		if rec.State.Run != s.run && !s.isDisturbed() || rec.State.Status != run.RunWaiting {
			return false
		}
		h, err := s.journal.Head(context.Background(), tenant, rec.State.Run)
		return err == nil && h.Token == ""
	})
}

// performLine does what a line says, as often as it takes, and judges what came of it. What it is about is what the person saw first: a
// repeated action is the same action.
func (s *simulation) performLine(l line) {
	sr, err := s.scriptedRunForLine(l)
	var act action
	if err == nil {
		act, err = sr.lineAction(l)
	}
	if err == nil {
		err = s.retry(strings.TrimSpace(l.do+" "+l.call), act)
		if s.invariantsOnly && err != nil && !isRefusal(err) {
			s.addViolation("people", fmt.Sprintf("%s %s: %v", l.do, l.call, err), "taken or refused")
		}
	}
	at := Failure{Path: fmt.Sprintf("%s:%d: %s", s.scenario.archive, l.number, l.do)}
	switch {
	case err == nil && l.refused:
		at.Got, at.Want = "taken", "refused"
	case err == nil || isRefusal(err) && l.refused:
		return
	case isRefusal(err):
		at.Got, at.Want = "refused: "+err.Error(), "taken"
	default:
		at.Got, at.Want = err.Error(), "taken or refused"
	}
	s.addFailure(at)
}

// errNotWaiting refuses to let a wait run out that is not there.
var errNotWaiting = errors.New("the call waits for nobody")

// isRefusal reports whether an error is the runtime's considered no.
func isRefusal(err error) bool {
	for _, no := range []error{
		approval.ErrForbidden, approval.ErrExpired, approval.ErrFinished, approval.ErrKind, approval.ErrNothing, approval.ErrNotFound,
		approval.ErrNoCall, approval.ErrIgnored, approval.ErrKept, approval.ErrStale, approval.ErrPolicyChanged, runtime.ErrRunFinished, errNotWaiting,
		policy.ErrNotFinished, runtime.ErrNoSuchCall, approval.ErrRemark, approval.ErrThreadFull,
	} {
		if errors.Is(err, no) {
			return true
		}
	}
	var decided *approval.DecidedError
	var edit *approval.EditError
	var grant *approval.GrantError
	var answer *policy.AnswerError
	var undo *policy.UndoError
	if errors.As(err, &grant) {
		return true
	}
	return errors.As(err, &undo) || errors.As(err, &decided) || errors.As(err, &edit) || errors.As(err, &answer)
}

// action is something a person does, which may be repeated.
type action func(ctx context.Context) error

// lineAction is what a line says as an action.
func (sr *scriptedRun) lineAction(l line) (action, error) {
	switch l.do {
	case "approve":
		return sr.decideAction(l, approval.Approve, l.note)
	case "deny":
		return sr.decideAction(l, approval.Deny, l.note)
	case "edit":
		return sr.decideAction(l, approval.Edit, l.note)
	case "cancel_call":
		return sr.decideAction(l, approval.Cancel, l.note)
	case "answer":
		return sr.answerAction(l)
	case "expire":
		return sr.expireAction(l)
	case "wait":
		return func(ctx context.Context) error { return sr.sim.clock.Sleep(ctx, l.wait) }, nil
	case "deploy":
		return func(context.Context) error { sr.sim.redeployed = true; return nil }, nil
	case "message":
		said := []run.UserBlock{{Block: run.Text{Text: l.text}}}
		return func(ctx context.Context) error {
			return sr.sim.machine.Inputs.Send(ctx, tenant, sr.run, fmt.Sprintf("line-%d", l.number), l.by.ID, said)
		}, nil
	case "cancel_run":
		return func(ctx context.Context) error {
			_, err := sr.sim.machine.Canceller.Cancel(ctx, tenant, sr.run, l.by.ID, l.note)
			return err
		}, nil
	case "undo":
		return sr.sim.undoAction(l), nil
	case "ask", "reply":
		return sr.commentAction(l)
	default:
		return nil, fmt.Errorf("do %s: not a deed", l.do)
	}
}

// findRequest is the call and the id of the newest request about it or its tool; of the first one there will be, if there was none.
func (sr *scriptedRun) findRequest(id string) (run.Call, string, error) {
	l, err := sr.sim.journal.Load(context.Background(), tenant, sr.run)
	if err != nil {
		return run.Call{}, "", err
	}
	c, _ := l.State.Call(id)
	if request := l.State.RequestOf(c); request != "" {
		return c, request, nil
	}
	return c, run.ApprovalID(sr.run, id, max(1, c.Asks)), nil
}

// decideAction is a decision on the newest request about a call; where there was none, or the line names a suspension or a pending call, it is
// aimed at that. An edit is always one of a request.
func (sr *scriptedRun) decideAction(l line, a approval.Action, note string) (action, error) {
	c, id, err := sr.findRequest(l.call)
	if err != nil {
		return nil, err
	}
	if c.Request == "" && c.Asks == 0 && a != approval.Edit {
		// Aim a decision. One that is kept has an id, so that a person who repeats it says it once.
		l0, err := sr.sim.journal.Load(context.Background(), tenant, sr.run)
		if err != nil {
			return nil, err
		}
		r := approval.Directive{
			Tenant: tenant, Run: sr.run, Target: l.call, ID: fmt.Sprintf("line-%d", l.number), Action: a, Result: l.result, Note: note, By: l.by,
		}
		return sr.sim.machine.Desk.Direct(context.Background(), &l0.State, r)
	}
	r := approval.Request{Tenant: tenant, ID: id, Action: a, Args: l.args, Result: l.result, Note: note, By: l.by, Grant: l.grant}
	if c.Request != "" { // what is decided about a blocked call is its tool
		r.Tool = c.Tool
	}
	return func(ctx context.Context) error {
		if now, err := approval.Get(ctx, sr.sim.table, tenant, id); a == approval.Approve && err == nil {
			r.Digest = now.Digest // people look before they approve
		}
		_, err := sr.sim.machine.Desk.Decide(ctx, r)
		return err
	}, nil
}

// answerAction is data for a call whose outcome is unknown, and a decision for one that waits for a person (presets 3).
func (sr *scriptedRun) answerAction(l line) (action, error) {
	c, id, err := sr.findRequest(l.call)
	if err != nil {
		return nil, err
	}
	switch {
	case l.rerun:
	case c.Request != "" || c.Wait != nil && (c.Wait.For == run.ForApproval || c.Wait.For == run.ForInput):
		return sr.answerAsDecisionAction(l, c)
	case c.Service && (c.Wait == nil || c.Wait.For == run.ForAnswer), c.ID == "" && sr.hasServices():
		return sr.answerServiceAction(l), nil
	}
	o := approval.Outcome{Tenant: tenant, Run: sr.run, Call: l.call, ID: id, Rerun: l.rerun, By: l.by}
	switch {
	case l.failure != nil:
		o.Content, o.IsError = *l.failure, true
	case l.result != nil:
		o.Content = textOf(l.result)
	}
	return sr.settleAction(o), nil
}

// hasServices reports whether the agent has services: then an answer may match no call.
func (sr *scriptedRun) hasServices() bool {
	return slices.ContainsFunc(sr.scenario.agent.Tools, func(t agent.ToolSpec) bool { return t.AnsweredLater() && t.Kind != agent.KindAgent })
}

// answerServiceAction is what a service gives. One that nobody waits for is no refusal: it changes nothing.
func (sr *scriptedRun) answerServiceAction(l line) action {
	a := runtime.Answer{Tenant: tenant, Run: sr.run, Call: l.call, By: l.by.ID}
	if l.failure != nil {
		a.Content, a.IsError = *l.failure, true
	} else {
		a.Content = textOf(l.result)
	}
	return func(ctx context.Context) error {
		if err := sr.sim.machine.Inputs.Answer(ctx, a); !errors.Is(err, runtime.ErrUnasked) {
			return err
		}
		return nil
	}
}

func (sr *scriptedRun) settleAction(o approval.Outcome) action {
	counted := false
	return func(ctx context.Context) error {
		_, err := sr.sim.machine.Desk.Settle(ctx, o)
		if err == nil && o.Rerun && !counted {
			counted = true
			sr.effects.reruns[o.Call]++
		}
		return err
	}
}

// answerAsDecisionAction takes an error as a denial, but where it answers a request about tools: then the request itself has failed.
func (sr *scriptedRun) answerAsDecisionAction(l line, c run.Call) (action, error) {
	said := l.result
	l.result = nil
	if l.failure != nil && c.Request != "" {
		return sr.decideAction(l, approval.Fail, *l.failure)
	}
	if l.failure != nil {
		return sr.decideAction(l, approval.Deny, *l.failure)
	}
	resume, reason := policy.DecisionFromJSON(said)
	switch {
	case !resume:
		return sr.decideAction(l, approval.Deny, reason)
	case c.Wait != nil && c.Wait.For == run.ForInput:
		l.result = said
		return sr.decideAction(l, approval.Approve, "")
	default:
		return sr.decideAction(l, approval.Approve, reason)
	}
}

// expireAction lets the time of a wait run out.
func (sr *scriptedRun) expireAction(l line) (action, error) {
	c, id, err := sr.findRequest(l.call)
	if err != nil {
		return nil, err
	}
	at, err := sr.waitExpiry(c)
	if err != nil {
		return nil, fmt.Errorf("expire call %s: %w", l.call, err)
	}
	return func(context.Context) error {
		if sr.sim.people.expiring = id; c.Wait != nil && c.Wait.For == run.ForAnswer {
			sr.sim.people.expiring = c.ID
		}
		sr.sim.clock.AdvanceTo(at)
		return nil
	}, nil
}

// waitExpiry is when what a call waits for runs out, or the request that it was blocked for.
func (sr *scriptedRun) waitExpiry(c run.Call) (time.Time, error) {
	if c.Wait != nil {
		return c.Wait.Expires, nil
	}
	l, err := sr.sim.journal.Load(context.Background(), tenant, sr.run)
	if err != nil {
		return time.Time{}, err
	}
	for _, r := range l.State.OpenRequests() {
		if r.Approval == c.Request {
			return r.Expires, nil
		}
	}
	return time.Time{}, errNotWaiting
}
