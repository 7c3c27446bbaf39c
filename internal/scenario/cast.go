package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/countersign/countersign/pkg/agent"
	"github.com/countersign/countersign/pkg/agent/approval"
	"github.com/countersign/countersign/pkg/agent/runtime"
	"github.com/countersign/countersign/pkg/agent/store"
)

// cast is the people of a scenario: a queue of those who wait for the run to wait, and those who act at a moment.
type cast struct {
	stage    *stage
	queue    []line
	moments  []line
	busy     bool   // somebody of the queue is at it
	expiring string // the request whose time was made to run out; empty = none
}

func newCast(s *stage, people []line) *cast {
	c := &cast{stage: s}
	for _, l := range people {
		if l.at == (moment{}) {
			c.queue = append(c.queue, l)
		} else {
			c.moments = append(c.moments, l)
		}
	}
	return c
}

// act lets those act who wait for a moment, each once.
func (s *stage) act(m moment) {
	for {
		i := slices.IndexFunc(s.cast.moments, func(l line) bool { return l.at == m })
		if i < 0 {
			return
		}
		l := s.cast.moments[i]
		s.cast.moments = slices.Delete(s.cast.moments, i, i+1)
		s.perform(l)
	}
}

// idle is asked when nothing can move before time does: whose turn it is, or whether it is over.
func (c *cast) idle() bool {
	if c.busy || !c.stage.open {
		return false
	}
	l, err := c.stage.record.Load(context.Background(), tenant, c.stage.run)
	if err != nil {
		c.stage.fail(Failure{Path: "run", Got: err.Error(), Want: "a run"})
		return c.end()
	}
	switch {
	case l.State.Status == agent.RunDone:
		return c.stage.quiet() && c.end()
	case !c.resting(l):
		return false
	case len(c.queue) > 0:
		c.next()
		return true
	default:
		return c.stage.parked() && c.end()
	}
}

func (c *cast) end() bool {
	c.stage.curtain.Notify()
	return true
}

// resting reports whether the run waits and has taken in all that was said to it.
func (c *cast) resting(l store.Loaded) bool {
	return l.State.Status == agent.RunWaiting && len(l.Inbox) == 0 && !slices.ContainsFunc(l.State.Waits(), func(w agent.Call) bool {
		return w.Wait.Approval == c.expiring
	})
}

// next lets the head of the queue act.
func (c *cast) next() {
	l := c.queue[0]
	c.queue, c.busy = c.queue[1:], true
	c.stage.clock.Go(func() {
		c.stage.perform(l)
		c.busy = false
	})
}

// quiet reports whether what belongs to a run that is done has come to its end as well.
func (s *stage) quiet() bool {
	if s.faults.Live() > 0 {
		return false
	}
	l, err := s.record.Load(context.Background(), tenant, s.run)
	if err != nil {
		return true
	}
	status, err := s.machine.Ports.Waiter.Status(context.Background(), l.State.Owner)
	return err != nil || status != runtime.ExecutionRunning
}

// parked reports whether the run's task token is stored, so that it can be woken.
func (s *stage) parked() bool {
	h, err := s.record.Head(context.Background(), tenant, s.run)
	return err != nil || h.Token != ""
}

// perform does what a line says, as often as it takes, and judges what came of it.
func (s *stage) perform(l line) {
	err := s.insist(l.do+" "+l.call, func(ctx context.Context) error { return s.do(ctx, l) })
	at := Failure{Path: fmt.Sprintf("%s:%d: %s", s.scenario.archive, l.number, l.do)}
	switch {
	case err == nil && l.refused:
		at.Got, at.Want = "taken", "refused"
	case err == nil || refusal(err) && l.refused:
		return
	case refusal(err):
		at.Got, at.Want = "refused: "+err.Error(), "taken"
	default:
		at.Got, at.Want = err.Error(), "taken or refused"
	}
	s.fail(at)
}

// errNobodyWaits refuses to let a wait run out that is not there.
var errNobodyWaits = errors.New("the call waits for nobody")

// refusal reports whether an error is the runtime's considered no.
func refusal(err error) bool {
	for _, no := range []error{
		approval.ErrForbidden, approval.ErrExpired, approval.ErrFinished, approval.ErrKind, approval.ErrNothing, approval.ErrNotFound,
		runtime.ErrRunFinished, errNobodyWaits,
	} {
		if errors.Is(err, no) {
			return true
		}
	}
	var decided *approval.DecidedError
	var edit *approval.EditError
	return errors.As(err, &decided) || errors.As(err, &edit)
}

// do does what a line says, once.
func (s *stage) do(ctx context.Context, l line) error {
	switch l.do {
	case "approve":
		return s.decide(ctx, l, approval.Approve, l.note)
	case "deny":
		return s.decide(ctx, l, approval.Deny, l.note)
	case "edit":
		return s.decide(ctx, l, approval.Edit, l.note)
	case "cancel_call":
		return s.decide(ctx, l, approval.Cancel, l.note)
	case "answer":
		return s.answer(ctx, l)
	case "expire":
		return s.expire(l)
	case "message":
		said := []agent.UserBlock{{Block: agent.Text{Text: l.text}}}
		return s.machine.Inputs.Send(ctx, tenant, s.run, fmt.Sprintf("line-%d", l.number), l.by.ID, said)
	case "cancel_run":
		_, err := s.machine.Canceller.Cancel(ctx, tenant, s.run, l.by.ID, l.note)
		return err
	default:
		return fmt.Errorf("do %s: not a deed", l.do)
	}
}

// asked is the call and the id of the newest request about it; of the first one there will be, if there was none.
func (s *stage) asked(id string) (agent.Call, string, error) {
	l, err := s.record.Load(context.Background(), tenant, s.run)
	if err != nil {
		return agent.Call{}, "", err
	}
	c, _ := l.State.Call(id)
	return c, agent.ApprovalID(s.run, id, max(1, c.Asks)), nil
}

func (s *stage) decide(ctx context.Context, l line, a approval.Action, note string) error {
	_, id, err := s.asked(l.call)
	if err != nil {
		return err
	}
	_, err = s.machine.Desk.Decide(ctx, approval.Request{Tenant: tenant, ID: id, Action: a, Args: l.args, Note: note, By: l.by})
	return err
}

// answer is data for a call whose outcome is unknown, and a decision for one that waits for a person (semantics 3.5).
func (s *stage) answer(ctx context.Context, l line) error {
	c, _, err := s.asked(l.call)
	if err != nil {
		return err
	}
	if c.Wait != nil && c.Wait.For == agent.ForApproval && !l.rerun {
		return s.answerAsDecision(ctx, l)
	}
	o := approval.Outcome{Tenant: tenant, Run: s.run, Call: l.call, Rerun: l.rerun, By: l.by}
	switch {
	case l.failure != nil:
		o.Content, o.IsError = *l.failure, true
	case l.result != nil:
		o.Content = textOf(l.result)
	}
	_, err = s.machine.Desk.Settle(ctx, o)
	return err
}

func (s *stage) answerAsDecision(ctx context.Context, l line) error {
	raw := l.result
	if l.failure != nil {
		var err error
		if raw, err = json.Marshal(map[string]any{"approved": false, "error": *l.failure}); err != nil {
			return err
		}
	}
	resume, reason := agent.DecisionFromJSON(raw)
	if resume {
		return s.decide(ctx, l, approval.Approve, "")
	}
	return s.decide(ctx, l, approval.Deny, reason)
}

// expire lets the time of a wait run out.
func (s *stage) expire(l line) error {
	c, id, err := s.asked(l.call)
	if err != nil {
		return err
	}
	if c.Wait == nil {
		return fmt.Errorf("expire call %s: %w", l.call, errNobodyWaits)
	}
	s.cast.expiring = id
	s.clock.AdvanceTo(c.Wait.Expires)
	return nil
}
