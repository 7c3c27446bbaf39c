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

// cast is the people of a scenario: a queue of those who wait for the run to wait, and those who act at a moment.
type cast struct {
	stage    *stage
	queue    []line
	moments  []line
	busy     bool   // somebody of the queue is at it
	expiring string // the request, or the service's call, whose time was made to run out; empty = none
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

// act lets those act who wait for a moment, each once, and reports whether one of them had something to say that counts.
func (s *stage) act(m moment) (said bool) {
	for {
		i := slices.IndexFunc(s.cast.moments, func(l line) bool { return l.at == m })
		if i < 0 {
			return said
		}
		l := s.cast.moments[i]
		s.cast.moments = slices.Delete(s.cast.moments, i, i+1)
		s.perform(l)
		said = said || !l.refused
	}
}

// idle is asked when nothing can move before time does: whose turn it is, or whether it is over.
func (c *cast) idle() bool {
	if c.busy || !c.stage.open {
		return false
	}
	family, err := c.stage.family()
	if err != nil {
		c.stage.fail(Failure{Path: "run", Got: err.Error(), Want: "a run"})
		return c.end()
	}
	if !c.stage.moving(family) && c.stage.faults.Release() {
		return true
	}
	if m, ok := c.stage.outlasted(family); ok && c.stage.faults.Live() == 0 {
		if len(m.part.model.Leftover()) == 0 { // its models never answer
			return c.end()
		}
		c.enter(c.stage.rescue)
		return true
	}
	if c.stage.stuck(family) {
		c.enter(c.stage.rescue)
		return true
	}
	if family[0].State.Status == run.RunDone {
		return c.ended(family)
	}
	switch {
	case !c.resting(family[0].Loaded):
		return false
	case c.stage.disturbed() && c.stage.faults.Live() > 0: // somebody who was given up is at it
		return false
	case c.knows(family):
		return true
	case len(c.queue) > 0:
		return c.next(family)
	default:
		return c.rest(family) && c.stage.parked(family) && c.end()
	}
}

// ended is idle of a story whose run is done.
func (c *cast) ended(family []member) bool {
	switch {
	case !c.stage.quiet(family):
		return false
	case c.stage.scenario.then != nil && c.stage.first == "":
		c.enter(c.stage.goOn)
		return true
	case len(c.queue) > 0 && c.queue[0].do == "undo":
		return c.next(family)
	case c.stage.owes(): // what is due is done at its time
		return false
	default:
		return c.end()
	}
}

// knows lets somebody settle what only a crash has left open.
func (c *cast) knows(family []member) bool {
	return slices.ContainsFunc(family, func(m member) bool { return c.resting(m.Loaded) && m.part.truth(m.State.Waits()) })
}

// rest reports whether no run of the family goes on by itself.
func (c *cast) rest(family []member) bool {
	return !slices.ContainsFunc(family, func(m member) bool { return !c.resting(m.Loaded) && !c.stage.over(m) })
}

// next lets the first of the queue act. No run of the family goes on by itself then.
func (c *cast) next(family []member) bool {
	if !c.rest(family) {
		return false
	}
	l := c.queue[0]
	_, ok := of(family, l.agent)
	if !ok && !c.stage.promisesOnly {
		return c.end() // and its line was never used
	}
	if c.queue = c.queue[1:]; !ok {
		return c.idle()
	}
	c.enter(func() { c.stage.perform(l) })
	return true
}

func (c *cast) end() bool {
	c.stage.curtain.Notify()
	return true
}

// resting reports whether the run waits and has taken in all that was said to it.
func (c *cast) resting(l store.Loaded) bool {
	return l.State.Status == run.RunWaiting && len(l.Inbox) == 0 && !slices.ContainsFunc(l.State.Waits(), func(w run.Call) bool {
		return c.expiring != "" && (w.Wait.Approval == c.expiring || w.ID == c.expiring)
	}) && !slices.ContainsFunc(l.State.OpenRequests(), func(r run.PermissionRequest) bool { return r.Approval == c.expiring })
}

// enter lets somebody act; nobody of the queue does before they are done.
func (c *cast) enter(act func()) {
	c.busy = true
	c.stage.clock.Go(func() {
		act()
		c.busy = false
	})
}

// quiet reports whether what belongs to runs that are done has come to its end as well.
func (s *stage) quiet(family []member) bool {
	if s.faults.Live() > 0 {
		return false
	}
	return !slices.ContainsFunc(family, func(m member) bool { return !s.over(m) })
}

// over reports whether a run is done, and so is its execution.
func (s *stage) over(m member) bool {
	status, err := s.machine.Ports.Waiter.Status(context.Background(), m.State.Owner)
	return m.State.Status == run.RunDone && (err != nil || status != runtime.ExecutionRunning)
}

// parked reports whether the task token of the run that the story is about is stored, so that it can be woken; where something went wrong, that of
// each run of the family that waits.
func (s *stage) parked(family []member) bool {
	return !slices.ContainsFunc(family, func(m member) bool {
		if m.State.Run != s.run && !s.disturbed() || m.State.Status != run.RunWaiting {
			return false
		}
		h, err := s.record.Head(context.Background(), tenant, m.State.Run)
		return err == nil && h.Token == ""
	})
}

// perform does what a line says, as often as it takes, and judges what came of it. What it is about is what the person saw first: a
// repeated action is the same action.
func (s *stage) perform(l line) {
	p, err := s.partFor(l)
	var act action
	if err == nil {
		act, err = p.deed(l)
	}
	if err == nil {
		err = s.insist(strings.TrimSpace(l.do+" "+l.call), act)
		if s.promisesOnly && err != nil && !refusal(err) {
			s.violate("people", fmt.Sprintf("%s %s: %v", l.do, l.call, err), "taken or refused")
		}
	}
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
		approval.ErrNoCall, approval.ErrIgnored, approval.ErrKept, approval.ErrStale, approval.ErrPolicyChanged, runtime.ErrRunFinished, errNobodyWaits,
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

// deed is what a line says as an action.
func (p *part) deed(l line) (action, error) {
	switch l.do {
	case "approve":
		return p.decide(l, approval.Approve, l.note)
	case "deny":
		return p.decide(l, approval.Deny, l.note)
	case "edit":
		return p.decide(l, approval.Edit, l.note)
	case "cancel_call":
		return p.decide(l, approval.Cancel, l.note)
	case "answer":
		return p.answer(l)
	case "expire":
		return p.expire(l)
	case "wait":
		return func(ctx context.Context) error { return p.stage.clock.Sleep(ctx, l.wait) }, nil
	case "deploy":
		return func(context.Context) error { p.stage.deployed = true; return nil }, nil
	case "message":
		said := []run.UserBlock{{Block: run.Text{Text: l.text}}}
		return func(ctx context.Context) error {
			return p.stage.machine.Inputs.Send(ctx, tenant, p.run, fmt.Sprintf("line-%d", l.number), l.by.ID, said)
		}, nil
	case "cancel_run":
		return func(ctx context.Context) error {
			_, err := p.stage.machine.Canceller.Cancel(ctx, tenant, p.run, l.by.ID, l.note)
			return err
		}, nil
	case "undo":
		return p.stage.undo(l), nil
	case "ask", "reply":
		return p.talk(l)
	default:
		return nil, fmt.Errorf("do %s: not a deed", l.do)
	}
}

// asked is the call and the id of the newest request about it or its tool; of the first one there will be, if there was none.
func (p *part) asked(id string) (run.Call, string, error) {
	l, err := p.stage.record.Load(context.Background(), tenant, p.run)
	if err != nil {
		return run.Call{}, "", err
	}
	c, _ := l.State.Call(id)
	if request := l.State.RequestOf(c); request != "" {
		return c, request, nil
	}
	return c, run.ApprovalID(p.run, id, max(1, c.Asks)), nil
}

// decide is a decision on the newest request about a call; where there was none, or the line names a suspension or a pending call, it is
// aimed at that. An edit is always one of a request.
func (p *part) decide(l line, a approval.Action, note string) (action, error) {
	c, id, err := p.asked(l.call)
	if err != nil {
		return nil, err
	}
	if c.Request == "" && c.Asks == 0 && a != approval.Edit {
		// Aim a decision. One that is kept has an id, so that a person who repeats it says it once.
		l0, err := p.stage.record.Load(context.Background(), tenant, p.run)
		if err != nil {
			return nil, err
		}
		r := approval.CallDecision{
			Tenant: tenant, Run: p.run, Target: l.call, ID: fmt.Sprintf("line-%d", l.number), Action: a, Result: l.result, Note: note, By: l.by,
		}
		return p.stage.machine.Desk.PrepareDecision(context.Background(), &l0.State, r)
	}
	r := approval.DecisionInput{Tenant: tenant, ID: id, Action: a, Args: l.args, Result: l.result, Note: note, By: l.by, Grant: l.grant}
	if c.Request != "" { // what is decided about a blocked call is its tool
		r.Tool = c.Tool
	}
	return func(ctx context.Context) error {
		if now, err := approval.Get(ctx, p.stage.table, tenant, id); a == approval.Approve && err == nil {
			r.Digest = now.Digest // people look before they approve
		}
		_, err := p.stage.machine.Desk.Decide(ctx, r)
		return err
	}, nil
}

// answer is data for a call whose outcome is unknown, and a decision for one that waits for a person (presets 3).
func (p *part) answer(l line) (action, error) {
	c, id, err := p.asked(l.call)
	if err != nil {
		return nil, err
	}
	switch {
	case l.rerun:
	case c.Request != "" || c.Wait != nil && (c.Wait.For == run.ForApproval || c.Wait.For == run.ForInput):
		return p.answerAsDecision(l, c)
	case c.Service && (c.Wait == nil || c.Wait.For == run.ForAnswer), c.ID == "" && p.asksServices():
		return p.answerService(l), nil
	}
	o := approval.Outcome{Tenant: tenant, Run: p.run, Call: l.call, ID: id, Rerun: l.rerun, By: l.by}
	switch {
	case l.failure != nil:
		o.Content, o.IsError = *l.failure, true
	case l.result != nil:
		o.Content = textOf(l.result)
	}
	return p.settle(o), nil
}

// asksServices reports whether the agent has services: then an answer may match no call.
func (p *part) asksServices() bool {
	return slices.ContainsFunc(p.scenario.agent.Tools, func(t agent.ToolSpec) bool { return t.AnsweredLater() && t.Kind != agent.KindAgent })
}

// answerService is what a service gives. One that nobody waits for is no refusal: it changes nothing.
func (p *part) answerService(l line) action {
	a := runtime.Answer{Tenant: tenant, Run: p.run, Call: l.call, By: l.by.ID}
	if l.failure != nil {
		a.Content, a.IsError = *l.failure, true
	} else {
		a.Content = textOf(l.result)
	}
	return func(ctx context.Context) error {
		if err := p.stage.machine.Inputs.Answer(ctx, a); !errors.Is(err, runtime.ErrUnasked) {
			return err
		}
		return nil
	}
}

func (p *part) settle(o approval.Outcome) action {
	counted := false
	return func(ctx context.Context) error {
		_, err := p.stage.machine.Desk.SettleOutcome(ctx, o)
		if err == nil && o.Rerun && !counted {
			counted = true
			p.ledger.rerun[o.Call]++
		}
		return err
	}
}

// answerAsDecision takes an error as a denial, but where it answers a request about tools: then the request itself has failed.
func (p *part) answerAsDecision(l line, c run.Call) (action, error) {
	said := l.result
	l.result = nil
	if l.failure != nil && c.Request != "" {
		return p.decide(l, approval.Fail, *l.failure)
	}
	if l.failure != nil {
		return p.decide(l, approval.Deny, *l.failure)
	}
	resume, reason := policy.DecisionFromJSON(said)
	switch {
	case !resume:
		return p.decide(l, approval.Deny, reason)
	case c.Wait != nil && c.Wait.For == run.ForInput:
		l.result = said
		return p.decide(l, approval.Approve, "")
	default:
		return p.decide(l, approval.Approve, reason)
	}
}

// expire lets the time of a wait run out.
func (p *part) expire(l line) (action, error) {
	c, id, err := p.asked(l.call)
	if err != nil {
		return nil, err
	}
	at, err := p.expiry(c)
	if err != nil {
		return nil, fmt.Errorf("expire call %s: %w", l.call, err)
	}
	return func(context.Context) error {
		if p.stage.cast.expiring = id; c.Wait != nil && c.Wait.For == run.ForAnswer {
			p.stage.cast.expiring = c.ID
		}
		p.stage.clock.AdvanceTo(at)
		return nil
	}, nil
}

// expiry is when what a call waits for runs out, or the request that it was blocked for.
func (p *part) expiry(c run.Call) (time.Time, error) {
	if c.Wait != nil {
		return c.Wait.Expires, nil
	}
	l, err := p.stage.record.Load(context.Background(), tenant, p.run)
	if err != nil {
		return time.Time{}, err
	}
	for _, r := range l.State.OpenRequests() {
		if r.Approval == c.Request {
			return r.Expires, nil
		}
	}
	return time.Time{}, errNobodyWaits
}
