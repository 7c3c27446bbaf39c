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

// Deed is what somebody beside the story does at a call of a port: see Act.
type Deed string

// The deeds. Those about a request are about the first that is open.
const (
	Approve   Deed = "approve"   // approve a request, answer a question or a service's call
	Deny      Deed = "deny"      // deny it
	Contest   Deed = "contest"   // two people decide at once: one approves, the other denies
	Say       Deed = "message"   // send the run a message
	CancelRun Deed = "cancel"    // call the run off
	Again     Deed = "start"     // start the run again, as a client or a bus does that had no answer
	Redeliver Deed = "redeliver" // start the owner's execution again by its name
	Sweep     Deed = "sweep"     // the scheduled sweep looks at every run
	Expire    Deed = "expire"    // the time of the earliest wait runs out
	Abort     Deed = "abort"     // the owner's execution ends, wherever it is: somebody stops it, or it is lost
	Event     Deed = "event"     // the event that started the run is delivered again, to an execution of its own
)

// Deeds lists all deeds.
func Deeds() []Deed {
	return []Deed{Approve, Deny, Contest, Say, CancelRun, Again, Redeliver, Sweep, Expire, Abort, Event}
}

// Act is a deed at a call of a port: it is done, whole, in the moment before the call is made. Its own calls are counted behind that one.
type Act struct {
	Call int
	Do   Deed
	Lost bool // whoever does it does not come back if they have no answer
}

func (a Act) String() string {
	s := fmt.Sprintf("%s@%d", a.Do, a.Call)
	if a.Lost {
		s += "/lost"
	}
	return s
}

// interrupt does what is to be done before a call.
func (s *stage) interrupt(c fault.Call) {
	for i, a := range s.acts {
		if a.Call != c.Number || s.acted[i] {
			continue
		}
		s.acted[i] = true
		if !s.interfere(a) { // then this is the run without it
			s.idleActs++
			s.leave()
		}
	}
}

// leave leaves the run here, which is one that is known, unless what becomes of it is to be seen all the same.
func (s *stage) leave() {
	if s.promisesOnly {
		return
	}
	s.pruned = true
	s.curtain.Notify()
}

// interfere does a deed, and reports whether there was anything to do.
func (s *stage) interfere(a Act) bool {
	if _, err := s.record.Head(context.Background(), tenant, s.run); err != nil {
		return false
	}
	switch a.Do {
	case Approve, Deny, Contest:
		return s.interfereWith(a)
	case Say:
		id, runID := fmt.Sprintf("act-%d", a.Call), s.run
		said := []run.UserBlock{{Block: run.Text{Text: "And one more thing."}}}
		err := s.try(a, func(ctx context.Context) error {
			return s.machine.Inputs.Send(ctx, tenant, runID, id, localUser.ID, said)
		})
		if s.took(err) {
			s.said[id] = runID
		}
		return true
	case CancelRun:
		err := s.try(a, func(ctx context.Context) error {
			_, err := s.machine.Canceller.Cancel(ctx, tenant, s.run, localUser.ID, "")
			return err
		})
		s.cancelled = s.took(err) || s.cancelled
		return true
	case Again:
		s.took(s.try(a, func(ctx context.Context) error {
			_, err := s.machine.Starter.Start(ctx, s.body(s.scenario.start, ""))
			return err
		}))
		return true
	case Redeliver:
		return s.redeliver(a)
	case Sweep:
		s.sweep(a)
		return true
	case Expire:
		return s.runOut()
	case Abort:
		return s.abort(a)
	case Event:
		return s.event(a)
	default:
		panic("scenario: deed " + string(a.Do))
	}
}

// try does something as an invocation of its own, and again if that has no answer, unless whoever does it is lost.
func (s *stage) try(a Act, do func(ctx context.Context) error) error {
	if a.Lost {
		err := errGone
		s.faults.Run(context.Background(), string(a.Do), func(ctx context.Context) { err = do(ctx) })
		s.gone = s.gone || err != nil && !refusal(err)
		return err
	}
	return s.insist(string(a.Do), do)
}

// errGone is what is known of what somebody did who did not come back.
var errGone = errors.New("nobody knows")

// took reports whether something was taken. An error that is no considered no breaks a promise, but of who does not come back.
func (s *stage) took(err error) bool {
	if err == nil {
		return true
	}
	if !refusal(err) && !s.gone {
		s.violate("act", err.Error(), "taken or refused")
	}
	return false
}

// firstOpen is the first request, question or service's call that is open in the family.
func (s *stage) firstOpen() (*part, run.Call, approval.Approval, bool) {
	family, err := s.family()
	if err != nil {
		return nil, run.Call{}, approval.Approval{}, false
	}
	for _, m := range family {
		for _, c := range m.State.Waits() {
			if c.Wait.For == run.ForAnswer && c.Child == "" {
				return m.part, c, approval.Approval{}, true
			}
			if a, err := approval.Get(context.Background(), s.table, tenant, c.Wait.Approval); err == nil && a.Status == approval.Pending && a.Kind != approval.KindOutcome {
				return m.part, c, a, true
			}
		}
		for _, r := range m.State.OpenRequests() {
			if a, err := approval.Get(context.Background(), s.table, tenant, r.Approval); err == nil && a.Status == approval.Pending {
				return m.part, run.Call{}, a, true
			}
		}
	}
	return nil, run.Call{}, approval.Approval{}, false
}

func (s *stage) interfereWith(a Act) bool {
	p, c, asked, ok := s.firstOpen()
	if !ok {
		return false
	}
	if asked.ID == "" {
		answer := runtime.Answer{Tenant: tenant, Run: p.run, Call: c.ID, By: localUser.ID, Content: "answered", IsError: a.Do == Deny}
		s.took(s.try(a, func(ctx context.Context) error {
			if err := s.machine.Inputs.Answer(ctx, answer); !errors.Is(err, runtime.ErrUnasked) {
				return err
			}
			return nil // nobody waits for it any more, and it changes nothing
		}))
		return true
	}
	first, second := approval.Approve, approval.Deny
	if a.Do == Deny {
		first = approval.Deny
	}
	won := s.decided(a, asked, first)
	if a.Do == Contest && s.decided(a, asked, second) && won && asked.Quorum <= 1 {
		s.violate("act", "two people decided "+asked.ID, "one")
	}
	return true
}

// decided has somebody who may decide do so, and reports whether it counts.
func (s *stage) decided(a Act, asked approval.Approval, action approval.Action) bool {
	by := oneOf(asked.Approvers)
	by.Groups = slices.Concat(by.Groups, slices.Concat(asked.Above...))
	r := approval.DecisionInput{Tenant: tenant, ID: asked.ID, Action: action, By: by}
	if asked.Kind == approval.KindInput && action == approval.Approve {
		r.Result = []byte(`"yes"`)
	}
	took := s.took(s.try(a, func(ctx context.Context) error {
		_, err := s.machine.Desk.Decide(ctx, r)
		return err
	}))
	if took && asked.Kind == approval.KindCall && asked.Quorum <= 1 {
		s.told = append(s.told, asked.ID)
	}
	return took
}

// redeliver starts the execution that owns the run again.
func (s *stage) redeliver(a Act) bool {
	l, err := s.record.Load(context.Background(), tenant, s.run)
	if err != nil {
		return false
	}
	s.took(s.try(a, func(ctx context.Context) error {
		return s.machine.Ports.Waiter.Start(ctx, tenant, s.run, l.State.Owner)
	}))
	return true
}

// abort ends the execution that owns the run. Nobody is left to see to the run but the sweep.
func (s *stage) abort(a Act) bool {
	l, err := s.record.Load(context.Background(), tenant, s.run)
	if err != nil || !s.executes(member{Loaded: l}) {
		return false
	}
	s.gone = true
	s.took(s.try(a, func(ctx context.Context) error {
		return s.machine.Ports.Waiter.Stop(ctx, l.State.Owner, "stopped by an operator")
	}))
	return true
}

// event has an execution begin by what the run was started by, as a bus does that delivers twice. It does not own the run, and ends.
func (s *stage) event(a Act) bool {
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
	name := fmt.Sprintf("event-%d", a.Call)
	payload, err := json.Marshal(map[string]any{"execution": name, "name": name, "state": body})
	if err != nil {
		s.violate("act", err.Error(), "an event")
		return true
	}
	var r runtime.Route
	took := s.took(s.try(a, func(ctx context.Context) error {
		out, err := s.functions(ctx, "step", payload)
		if err != nil {
			return err
		}
		return json.Unmarshal(out, &r)
	}))
	if took && r.Next != runtime.NextDone {
		s.violate("owner", fmt.Sprintf("an execution that does not own the run was led to %q", r.Next), "its end")
	}
	return true
}

// runOut lets the time of the earliest wait run out.
func (s *stage) runOut() bool {
	family, err := s.family()
	if err != nil {
		return false
	}
	for _, m := range family {
		if at := m.State.EarliestExpiry(); m.State.Status != run.RunDone && !at.IsZero() && at.After(s.clock.Now()) {
			s.clock.AdvanceTo(at)
			return true
		}
	}
	return false
}

// sweep looks at every run of the story as the scheduled sweep does, and counts what it repaired.
func (s *stage) sweep(a Act) {
	err := s.try(a, func(ctx context.Context) error {
		family, err := s.family()
		if err != nil {
			return err
		}
		for _, m := range family {
			r, err := s.machine.Sweeper.Repair(ctx, tenant, m.State.Run)
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
