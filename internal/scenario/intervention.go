package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
)

// InterventionKind is what happens in an Intervention.
type InterventionKind string

// The kinds of interventions. Those about a request are about the first open one.
const (
	Approve     InterventionKind = "approve" // approve a request, answer a question or a service's call
	Deny        InterventionKind = "deny"    // deny it, or answer with an error
	DecideTwice InterventionKind = "contest" // two people decide at once: one approves, the other denies
	SendMessage InterventionKind = "message" // send a message to the run
	CancelRun   InterventionKind = "cancel"  // cancel the run
	// repeat the request that started the run, as a client without an answer does
	StartAgain InterventionKind = "start"
	Redeliver  InterventionKind = "redeliver" // start the owner's execution again under its name
	Sweep      InterventionKind = "sweep"     // run the scheduled sweep over every run
	Expire     InterventionKind = "expire"    // move the clock to the expiry of the earliest wait
	Abort      InterventionKind = "abort"     // stop the owner's execution
	// deliver the event that started the run again, to an execution of its own
	RedeliverEvent InterventionKind = "event"
)

// InterventionKinds returns all kinds.
func InterventionKinds() []InterventionKind {
	return []InterventionKind{Approve, Deny, DecideTwice, SendMessage, CancelRun, StartAgain, Redeliver, Sweep, Expire,
		Abort, RedeliverEvent}
}

// Intervention is something that happens just before a call of a port and is not in the scenario. Its own calls get
// later numbers.
type Intervention struct {
	Call int // number of the call
	Do   InterventionKind
	Lost bool // the caller does not retry if the answer is lost
}

func (iv Intervention) String() string {
	s := fmt.Sprintf("%s@%d", iv.Do, iv.Call)
	if iv.Lost {
		s += "/lost"
	}
	return s
}

func (s *simulation) interveneBefore(c fault.Call) {
	for i, iv := range s.Interventions {
		if iv.Call != c.Number || s.intervened[i] {
			continue
		}
		s.intervened[i] = true
		if !s.intervene(iv) { // the run is the same as without it
			s.Ineffective++
			if !s.InvariantsOnly {
				s.Pruned = true
				s.endSignal.Notify()
			}
		}
	}
}

// intervene makes an intervention, and reports whether there was anything to do.
func (s *simulation) intervene(iv Intervention) bool {
	l, err := s.load(s.run)
	if err != nil {
		return false
	}
	var do action
	onAccept := func() {}
	switch iv.Do {
	case Approve, Deny, DecideTwice:
		return s.decideOpenRequest(iv)
	case RedeliverEvent:
		return s.redeliverEvent(iv)
	case Expire:
		runs, err := s.loadRunTree()
		if err != nil {
			return false
		}
		for _, rec := range runs {
			if at := rec.State.EarliestExpiry(); rec.State.Status != run.RunDone && !at.IsZero() && at.After(s.clock.Now()) {
				s.clock.AdvanceTo(at)
				return true
			}
		}
		return false
	case Sweep:
		s.sweepRuns(iv)
		return true
	case SendMessage:
		id, runID := fmt.Sprintf("act-%d", iv.Call), s.run
		message := []run.UserBlock{{Block: run.Text{Text: "And one more thing."}}}
		do = func(ctx context.Context) error {
			return s.machine.Inputs.Send(ctx, tenant, runID, id, localUser.ID, message)
		}
		onAccept = func() { s.acceptedMessages[id] = runID }
	case CancelRun:
		do = func(ctx context.Context) error {
			_, err := s.machine.Canceller.Cancel(ctx, tenant, s.run, localUser.ID, "")
			return err
		}
		onAccept = func() { s.cancelled = true }
	case StartAgain:
		do = func(ctx context.Context) error {
			_, err := s.machine.Starter.Start(ctx, s.startRequest(s.scenario.start, ""))
			return err
		}
	case Redeliver:
		do = func(ctx context.Context) error {
			return s.machine.Ports.Waiter.Start(ctx, tenant, s.run, l.State.Owner)
		}
	case Abort:
		if !s.isExecuting(recordedRun{Loaded: l}) {
			return false
		}
		s.callerLost = true // only the sweep can repair the run now
		do = func(ctx context.Context) error {
			return s.machine.Ports.Waiter.Stop(ctx, l.State.Owner, "stopped by an operator")
		}
	default:
		panic("scenario: intervention " + string(iv.Do))
	}
	if s.wasAccepted(s.tryIntervention(iv, do)) {
		onAccept()
	}
	return true
}

// tryIntervention runs do as an invocation, with retries unless the caller is lost.
func (s *simulation) tryIntervention(iv Intervention, do func(ctx context.Context) error) error {
	if iv.Lost {
		err := errors.New("nobody knows") // what became of the request of a caller who is lost
		s.injector.Run(context.Background(), string(iv.Do), func(ctx context.Context) { err = do(ctx) })
		s.callerLost = s.callerLost || err != nil && !isRefusal(err)
		return err
	}
	return s.retry(string(iv.Do), do)
}

// wasAccepted reports whether the product accepted an intervention. An error that is no refusal breaks an invariant,
// unless a caller was lost.
func (s *simulation) wasAccepted(err error) bool {
	if err == nil {
		return true
	}
	if !isRefusal(err) && !s.callerLost {
		s.addViolation("act", err.Error(), "taken or refused")
	}
	return false
}

// findOpenRequest returns the first open approval request, question or service call of all runs. A service call has no
// Approval.
func (s *simulation) findOpenRequest() (sr *scriptedRun, call run.Call, asked approval.Approval, ok bool) {
	runs, err := s.loadRunTree()
	if err != nil {
		return nil, call, asked, false
	}
	pending := func(id string) (approval.Approval, bool) {
		a, err := s.request(id)
		return a, err == nil && a.Status == approval.Pending
	}
	for _, rec := range runs {
		for _, c := range rec.State.Waits() {
			if c.Wait.For == run.ForAnswer && c.Child == "" {
				return rec.scripted, c, asked, true
			}
			if a, ok := pending(c.Wait.Approval); ok && a.Kind != approval.KindOutcome {
				return rec.scripted, c, a, true
			}
		}
		for _, r := range rec.State.OpenRequests() {
			if a, ok := pending(r.Approval); ok {
				return rec.scripted, call, a, true
			}
		}
	}
	return nil, call, asked, false
}

func (s *simulation) decideOpenRequest(iv Intervention) bool {
	sr, c, asked, ok := s.findOpenRequest()
	if !ok {
		return false
	}
	if asked.ID == "" {
		answer := runtime.Answer{Tenant: tenant, Run: sr.run, Call: c.ID, By: localUser.ID, Content: "answered",
			IsError: iv.Do == Deny}
		s.wasAccepted(s.tryIntervention(iv, s.serviceAnswer(answer)))
		return true
	}
	first := approval.Approve
	if iv.Do == Deny {
		first = approval.Deny
	}
	won := s.decideRequest(iv, asked, first)
	if iv.Do == DecideTwice && s.decideRequest(iv, asked, approval.Deny) && won && asked.Quorum <= 1 {
		s.addViolation("act", "two people decided "+asked.ID, "one")
	}
	return true
}

// decideRequest decides a request as an approver, and reports whether the decision was accepted.
func (s *simulation) decideRequest(iv Intervention, asked approval.Approval, action approval.Action) bool {
	r := approval.DecisionInput{Tenant: tenant, ID: asked.ID, Action: action}
	r.By, r.Via = anyApprover(asked, 0)
	if asked.Kind == approval.KindInput && action == approval.Approve {
		r.Result = []byte(`"yes"`)
	}
	accepted := s.wasAccepted(s.tryIntervention(iv, func(ctx context.Context) error {
		_, err := s.machine.Desk.Decide(ctx, r)
		return err
	}))
	if accepted && asked.Kind == approval.KindCall && asked.Quorum <= 1 {
		s.acceptedDecisions = append(s.acceptedDecisions, asked.ID)
	}
	return accepted
}

// redeliverEvent starts another execution with the event that started the run. That execution does not own the run and
// must end.
func (s *simulation) redeliverEvent(iv Intervention) bool {
	in := s.scenario.start
	if in.AccessControl != "" { // events have no access control
		return false
	}
	body := map[string]any{"tenant": tenant, "agent": s.scenario.agent.Name, "key": in.Key, "subject": in.Subject}
	if in.Input != nil {
		body["input"] = in.Input
	} else {
		body["message"] = in.blocks
	}
	name := fmt.Sprintf("event-%d", iv.Call)
	payload, err := json.Marshal(map[string]any{"execution": name, "name": name, "state": body})
	if err != nil {
		s.addViolation("act", err.Error(), "an event")
		return true
	}
	var r runtime.Route
	accepted := s.wasAccepted(s.tryIntervention(iv, func(ctx context.Context) error {
		out, err := s.handlers(ctx, "step", payload)
		if err != nil {
			return err
		}
		return json.Unmarshal(out, &r)
	}))
	if accepted && r.Next != runtime.NextDone {
		s.addViolation("owner", fmt.Sprintf("an execution that does not own the run was led to %q", r.Next), "its end")
	}
	return true
}

func (s *simulation) sweepRuns(iv Intervention) {
	// An error is ignored: the next sweep comes in five minutes.
	_ = s.tryIntervention(iv, func(ctx context.Context) error {
		runs, err := s.loadRunTree()
		if err != nil {
			return err
		}
		for _, rec := range runs {
			if _, err := s.machine.Sweeper.Repair(ctx, tenant, rec.State.Run); err != nil {
				return err
			}
		}
		return s.machine.Sweeper.RepairEnds(ctx, tenant, nil)
	})
}

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
