package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
)

// InterventionKind is what somebody beside the story does at a call of a port: see Act.
type InterventionKind string

// The deeds. Those about a request are about the first that is open.
const (
	Approve        InterventionKind = "approve"   // approve a request, answer a question or a service's call
	Deny           InterventionKind = "deny"      // deny it
	DecideTwice    InterventionKind = "contest"   // two people decide at once: one approves, the other denies
	SendMessage    InterventionKind = "message"   // send the run a message
	CancelRun      InterventionKind = "cancel"    // call the run off
	StartAgain     InterventionKind = "start"     // start the run again, as a client or a bus does that had no answer
	Redeliver      InterventionKind = "redeliver" // start the owner's execution again by its name
	Sweep          InterventionKind = "sweep"     // the scheduled sweep looks at every run
	Expire         InterventionKind = "expire"    // the time of the earliest wait runs out
	Abort          InterventionKind = "abort"     // the owner's execution ends, wherever it is: somebody stops it, or it is lost
	RedeliverEvent InterventionKind = "event"     // the event that started the run is delivered again, to an execution of its own
)

// InterventionKinds lists all deeds.
func InterventionKinds() []InterventionKind {
	return []InterventionKind{Approve, Deny, DecideTwice, SendMessage, CancelRun, StartAgain, Redeliver, Sweep, Expire, Abort, RedeliverEvent}
}

// Intervention is a deed at a call of a port: it is done, whole, in the moment before the call is made. Its own calls are counted behind that one.
type Intervention struct {
	Call int
	Do   InterventionKind
	Lost bool // whoever does it does not come back if they have no answer
}

func (iv Intervention) String() string {
	s := fmt.Sprintf("%s@%d", iv.Do, iv.Call)
	if iv.Lost {
		s += "/lost"
	}
	return s
}

// interveneBefore does what is to be done before a call.
func (s *simulation) interveneBefore(c fault.Call) {
	for i, iv := range s.interventions {
		if iv.Call != c.Number || s.intervened[i] {
			continue
		}
		s.intervened[i] = true
		if !s.intervene(iv) { // then this is the run without it
			s.ineffective++
			s.prune()
		}
	}
}

// prune leaves the run here, which is one that is known, unless what becomes of it is to be seen all the same.
func (s *simulation) prune() {
	if s.invariantsOnly {
		return
	}
	s.pruned = true
	s.endSignal.Notify()
}

// intervene does a deed, and reports whether there was anything to do.
func (s *simulation) intervene(iv Intervention) bool {
	if _, err := s.journal.Head(context.Background(), tenant, s.run); err != nil {
		return false
	}
	switch iv.Do {
	case Approve, Deny, DecideTwice:
		return s.decideOpenRequest(iv)
	case SendMessage:
		id, runID := fmt.Sprintf("act-%d", iv.Call), s.run
		said := []run.UserBlock{{Block: run.Text{Text: "And one more thing."}}}
		err := s.tryIntervention(iv, func(ctx context.Context) error {
			return s.machine.Inputs.Send(ctx, tenant, runID, id, localUser.ID, said)
		})
		if s.wasAccepted(err) {
			s.acceptedMessages[id] = runID
		}
		return true
	case CancelRun:
		err := s.tryIntervention(iv, func(ctx context.Context) error {
			_, err := s.machine.Canceller.Cancel(ctx, tenant, s.run, localUser.ID, "")
			return err
		})
		s.cancelled = s.wasAccepted(err) || s.cancelled
		return true
	case StartAgain:
		s.wasAccepted(s.tryIntervention(iv, func(ctx context.Context) error {
			_, err := s.machine.Starter.Start(ctx, s.startRequest(s.scenario.start, ""))
			return err
		}))
		return true
	case Redeliver:
		return s.redeliverExecution(iv)
	case Sweep:
		s.sweepRuns(iv)
		return true
	case Expire:
		return s.expireEarliestWait()
	case Abort:
		return s.abortExecution(iv)
	case RedeliverEvent:
		return s.redeliverEvent(iv)
	default:
		panic("scenario: deed " + string(iv.Do))
	}
}

// tryIntervention does something as an invocation of its own, and again if that has no answer, unless whoever does it is lost.
func (s *simulation) tryIntervention(iv Intervention, do func(ctx context.Context) error) error {
	if iv.Lost {
		err := errCallerLost
		s.faults.Run(context.Background(), string(iv.Do), func(ctx context.Context) { err = do(ctx) })
		s.callerLost = s.callerLost || err != nil && !isRefusal(err)
		return err
	}
	return s.retry(string(iv.Do), do)
}

// errCallerLost is what is known of what somebody did who did not come back.
var errCallerLost = errors.New("nobody knows")

// wasAccepted reports whether something was taken. An error that is no considered no breaks a promise, but of who does not come back.
func (s *simulation) wasAccepted(err error) bool {
	if err == nil {
		return true
	}
	if !isRefusal(err) && !s.callerLost {
		s.addViolation("act", err.Error(), "taken or refused")
	}
	return false
}

// findOpenRequest is the first request, question or service's call that is open in the family.
func (s *simulation) findOpenRequest() (*scriptedRun, run.Call, approval.Approval, bool) {
	runs, err := s.loadRunTree()
	if err != nil {
		return nil, run.Call{}, approval.Approval{}, false
	}
	for _, rec := range runs {
		for _, c := range rec.State.Waits() {
			if c.Wait.For == run.ForAnswer && c.Child == "" {
				return rec.scripted, c, approval.Approval{}, true
			}
			if a, err := approval.Get(context.Background(), s.table, tenant, c.Wait.Approval); err == nil && a.Status == approval.Pending && a.Kind != approval.KindOutcome {
				return rec.scripted, c, a, true
			}
		}
		for _, r := range rec.State.OpenRequests() {
			if a, err := approval.Get(context.Background(), s.table, tenant, r.Approval); err == nil && a.Status == approval.Pending {
				return rec.scripted, run.Call{}, a, true
			}
		}
	}
	return nil, run.Call{}, approval.Approval{}, false
}

func (s *simulation) decideOpenRequest(iv Intervention) bool {
	sr, c, asked, ok := s.findOpenRequest()
	if !ok {
		return false
	}
	if asked.ID == "" {
		answer := runtime.Answer{Tenant: tenant, Run: sr.run, Call: c.ID, By: localUser.ID, Content: "answered", IsError: iv.Do == Deny}
		s.wasAccepted(s.tryIntervention(iv, func(ctx context.Context) error {
			if err := s.machine.Inputs.Answer(ctx, answer); !errors.Is(err, runtime.ErrUnasked) {
				return err
			}
			return nil // nobody waits for it any more, and it changes nothing
		}))
		return true
	}
	first, second := approval.Approve, approval.Deny
	if iv.Do == Deny {
		first = approval.Deny
	}
	won := s.decideRequest(iv, asked, first)
	if iv.Do == DecideTwice && s.decideRequest(iv, asked, second) && won && asked.Quorum <= 1 {
		s.addViolation("act", "two people decided "+asked.ID, "one")
	}
	return true
}

// decideRequest has somebody who may decide do so, and reports whether it counts.
func (s *simulation) decideRequest(iv Intervention, asked approval.Approval, action approval.Action) bool {
	by := anyApprover(asked.Approvers)
	by.Groups = slices.Concat(by.Groups, slices.Concat(asked.Above...))
	r := approval.Request{Tenant: tenant, ID: asked.ID, Action: action, By: by}
	if asked.Kind == approval.KindInput && action == approval.Approve {
		r.Result = []byte(`"yes"`)
	}
	took := s.wasAccepted(s.tryIntervention(iv, func(ctx context.Context) error {
		_, err := s.machine.Desk.Decide(ctx, r)
		return err
	}))
	if took && asked.Kind == approval.KindCall && asked.Quorum <= 1 {
		s.acceptedDecisions = append(s.acceptedDecisions, asked.ID)
	}
	return took
}

// redeliverExecution starts the execution that owns the run again.
func (s *simulation) redeliverExecution(iv Intervention) bool {
	l, err := s.journal.Load(context.Background(), tenant, s.run)
	if err != nil {
		return false
	}
	s.wasAccepted(s.tryIntervention(iv, func(ctx context.Context) error {
		return s.machine.Ports.Waiter.Start(ctx, tenant, s.run, l.State.Owner)
	}))
	return true
}

// abortExecution ends the execution that owns the run. Nobody is left to see to the run but the sweep.
func (s *simulation) abortExecution(iv Intervention) bool {
	l, err := s.journal.Load(context.Background(), tenant, s.run)
	if err != nil || !s.isExecuting(recordedRun{Loaded: l}) {
		return false
	}
	s.callerLost = true
	s.wasAccepted(s.tryIntervention(iv, func(ctx context.Context) error {
		return s.machine.Ports.Waiter.Stop(ctx, l.State.Owner, "stopped by an operator")
	}))
	return true
}

// redeliverEvent has an execution begin by what the run was started by, as a bus does that delivers twice. It does not own the run, and ends.
func (s *simulation) redeliverEvent(iv Intervention) bool {
	in := s.scenario.start
	if in.accessControl != "" { // no event says that
		return false
	}
	body := map[string]any{"tenant": tenant, "agent": s.scenario.agent.Name, "key": in.key, "subject": in.subject}
	if in.input != nil {
		body["input"] = in.input
	} else {
		body["message"] = in.message
	}
	name := fmt.Sprintf("event-%d", iv.Call)
	payload, err := json.Marshal(map[string]any{"execution": name, "name": name, "state": body})
	if err != nil {
		s.addViolation("act", err.Error(), "an event")
		return true
	}
	var r runtime.Route
	took := s.wasAccepted(s.tryIntervention(iv, func(ctx context.Context) error {
		out, err := s.handlers(ctx, "step", payload)
		if err != nil {
			return err
		}
		return json.Unmarshal(out, &r)
	}))
	if took && r.Next != runtime.NextDone {
		s.addViolation("owner", fmt.Sprintf("an execution that does not own the run was led to %q", r.Next), "its end")
	}
	return true
}

// expireEarliestWait lets the time of the earliest wait run out.
func (s *simulation) expireEarliestWait() bool {
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
}

// sweepRuns looks at every run of the story as the scheduled sweep does, and counts what it repaired.
func (s *simulation) sweepRuns(iv Intervention) {
	err := s.tryIntervention(iv, func(ctx context.Context) error {
		runs, err := s.loadRunTree()
		if err != nil {
			return err
		}
		for _, rec := range runs {
			r, err := s.machine.Sweeper.Repair(ctx, tenant, rec.State.Run)
			if err != nil {
				return err
			}
			if r != runtime.RepairNone {
				s.repaired++
			}
		}
		return s.machine.Sweeper.RepairEnds(ctx, tenant)
	})
	_ = err // it sweeps again in five minutes
}
