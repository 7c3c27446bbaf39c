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
)

var errNotWaiting = errors.New("the call waits for nobody")

// isRefusal reports whether the product refused a request for a stated reason. A repetition would be refused, too.
func isRefusal(err error) bool {
	for _, no := range []error{
		approval.ErrForbidden, approval.ErrExpired, approval.ErrFinished, approval.ErrKind, approval.ErrNothing,
		approval.ErrNotFound, approval.ErrNoCall, approval.ErrIgnored, approval.ErrKept, approval.ErrStale,
		approval.ErrPolicyChanged, approval.ErrRemark, approval.ErrThreadFull, runtime.ErrRunFinished,
		runtime.ErrNoSuchCall, policy.ErrNotFinished, errNotWaiting,
	} {
		if errors.Is(err, no) {
			return true
		}
	}
	return hasType[*approval.DecidedError](err) || hasType[*policy.EditError](err) ||
		hasType[*approval.GrantError](err) || hasType[*policy.AnswerError](err) || hasType[*policy.UndoError](err)
}

func hasType[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// action is one request of a person. It can be repeated.
type action func(ctx context.Context) error

var decisions = map[string]approval.Action{
	"approve": approval.Approve, "deny": approval.Deny, "edit": approval.Edit, "cancel_call": approval.Cancel,
}

func (sr *scriptedRun) lineAction(l line) (action, error) {
	s := sr.sim
	if a, ok := decisions[l.Do]; ok {
		return sr.decideAction(l, a, l.Note)
	}
	switch l.Do {
	case "answer":
		return sr.answerAction(l)
	case "expire":
		return sr.expireAction(l)
	case "wait":
		return func(ctx context.Context) error { return s.clock.Sleep(ctx, l.wait) }, nil
	case "deploy":
		return func(context.Context) error { s.redeployed = true; return nil }, nil
	case "message":
		message := []run.UserBlock{{Block: run.Text{Text: l.Text}}}
		return func(ctx context.Context) error {
			return s.machine.Inputs.Send(ctx, tenant, sr.run, fmt.Sprintf("line-%d", l.number), l.by.ID, message)
		}, nil
	case "cancel_run":
		return func(ctx context.Context) error {
			_, err := s.machine.Canceller.Cancel(ctx, tenant, sr.run, l.by.ID, l.Note)
			return err
		}, nil
	case "undo": // the undo run becomes the main run
		of := s.run
		// If the main run is an undo run already, a call in it that undoes nothing belongs to the run before it.
		if c, ok := s.loadCall(s.run, l.Call); s.continues != "" && ok && c.Undoes == "" {
			of = s.continues
		}
		return func(ctx context.Context) error {
			undo, _, err := s.machine.Starter.Undo(ctx, runtime.Undo{Tenant: tenant, Run: of, Call: l.Call, By: l.by.ID})
			if err == nil {
				s.continues, s.run, s.forkAt = of, undo.Run, -1
			}
			return err
		}, nil
	case "ask", "reply": // about the newest request
		_, _, id, err := sr.findRequest(l.Call)
		remark := approval.RemarkInput{Tenant: tenant, ID: id, Text: l.Note, Reply: l.Do == "reply", By: l.by}
		return func(ctx context.Context) error {
			_, err := s.machine.Desk.AddRemark(ctx, remark)
			return err
		}, err
	default:
		return nil, fmt.Errorf("do %s: not an action", l.Do)
	}
}

// findRequest returns a run's state with the call that an id or the id of its suspension names, and the id of the
// newest request about the call or its tool. If there was none, it is the id of the first request to come.
func (sr *scriptedRun) findRequest(id string) (*run.AgentState, run.Call, string, error) {
	l, err := sr.sim.load(sr.run)
	if err != nil {
		return nil, run.Call{}, "", err
	}
	c, known := l.State.Call(id)
	if waits, ok := policy.FindSuspended(&l.State, id); ok && !known {
		c, id = waits, waits.ID
	}
	if request := policy.RequestOf(&l.State, c); request != "" {
		return &l.State, c, request, nil
	}
	return &l.State, c, run.ApprovalID(sr.run, id, max(1, c.Asks)), nil
}

// decideAction decides the newest request about a call. If there was none, the decision targets the suspension or call
// that the line names. An edit always needs a request.
func (sr *scriptedRun) decideAction(l line, a approval.Action, note string) (action, error) {
	state, c, id, err := sr.findRequest(l.Call)
	if err != nil {
		return nil, err
	}
	if c.Request == "" && c.Asks == 0 && a != approval.Edit {
		decide, err := sr.sim.machine.Desk.PrepareDecision(context.Background(), state, approval.DecisionInput{
			Tenant: tenant, Run: sr.run, Call: l.Call, Action: a, Result: l.Result, Note: note, By: l.by, Via: l.Via,
			Key: fmt.Sprintf("line-%d", l.number), // makes a repeated decision count once
		})
		return func(ctx context.Context) error { return decide(ctx, nil) }, err
	}
	r := approval.DecisionInput{
		Tenant: tenant, ID: id, Action: a, Args: l.Args, Result: l.Result, Note: note, By: l.by, Via: l.Via, Grant: l.Grant,
	}
	if c.Request != "" { // the decision about a blocked call is about its tool
		r.Tool = c.Tool
	}
	return func(ctx context.Context) error {
		if now, err := sr.sim.request(id); a == approval.Approve && err == nil {
			r.Digest = now.Digest // people read the request before they approve it
		}
		_, err := sr.sim.machine.Desk.Decide(ctx, r)
		return err
	}, nil
}

// answerAction gives the outcome of a call whose outcome is unknown, decides one that waits for a person, or answers
// one of a service.
func (sr *scriptedRun) answerAction(l line) (action, error) {
	_, c, id, err := sr.findRequest(l.Call)
	if err != nil {
		return nil, err
	}
	// If the agent has services, an answer may belong to no call.
	hasServices := slices.ContainsFunc(sr.scenario.agent.Tools,
		func(t agent.ToolSpec) bool { return t.AnsweredLater() && t.Kind != agent.KindAgent })
	content := ""
	switch {
	case l.Error != nil:
		content = *l.Error
	case l.Result != nil:
		content = textOf(l.Result)
	}
	switch {
	case l.Rerun:
	case c.Request != "" || c.Wait != nil && (c.Wait.For == run.ForApproval || c.Wait.For == run.ForInput):
		// The answer decides. An error denies a request about a call, and fails a request about tools.
		answer := l.Result
		l.Result = nil
		if l.Error != nil {
			a := approval.Deny
			if c.Request != "" {
				a = approval.Fail
			}
			return sr.decideAction(l, a, *l.Error)
		}
		resume, reason := policy.DecisionFromJSON(answer)
		switch {
		case !resume:
			return sr.decideAction(l, approval.Deny, reason)
		case c.Wait != nil && c.Wait.For == run.ForInput:
			l.Result, reason = answer, ""
		}
		return sr.decideAction(l, approval.Approve, reason)
	case c.Service && (c.Wait == nil || c.Wait.For == run.ForAnswer), c.ID == "" && hasServices:
		return sr.sim.serviceAnswer(runtime.Answer{
			Tenant: tenant, Run: sr.run, Call: l.Call, By: l.by.ID, Content: content, IsError: l.Error != nil,
		}), nil
	}
	o := approval.DecisionInput{
		Tenant: tenant, Run: sr.run, Call: l.Call, ID: id, Action: approval.ReportResult, Content: content, By: l.by,
		Via: l.Via,
	}
	if l.Rerun {
		o.Action = approval.Rerun
	} else if l.Error != nil {
		o.Action = approval.ReportError
	}
	return sr.settleAction(o), nil
}

// serviceAnswer returns the action that answers a service's call. An answer that nobody waits for changes nothing and
// is no refusal.
func (s *simulation) serviceAnswer(a runtime.Answer) action {
	return func(ctx context.Context) error {
		if err := s.machine.Inputs.Answer(ctx, a); !errors.Is(err, runtime.ErrNotAwaited) {
			return err
		}
		return nil
	}
}

// settleAction settles an unknown outcome, and counts the rerun that it decides.
func (sr *scriptedRun) settleAction(o approval.DecisionInput) action {
	counted := false
	return func(ctx context.Context) error {
		a, err := sr.sim.machine.Desk.Decide(ctx, o)
		if err == nil && o.Action == approval.Rerun && a.Status != approval.Pending && !counted {
			counted = true
			sr.reruns[o.Call]++
		}
		return err
	}
}

// waitOf returns from when until when a call waits, or the request that blocks it does; zero = neither does.
func waitOf(s *run.AgentState, c run.Call) (since, until time.Time) {
	if c.Wait != nil {
		return c.Wait.Since, c.Wait.Expires
	}
	for _, q := range s.OpenRequests() {
		if q.Approval == c.Request {
			since, until = q.Since, q.Expires
		}
	}
	return since, until
}

// expireAction moves the clock to the expiry of a call's wait, or of the request that blocks the call.
func (sr *scriptedRun) expireAction(l line) (action, error) {
	state, c, id, err := sr.findRequest(l.Call)
	if err != nil {
		return nil, err
	}
	_, at := waitOf(state, c)
	if at.IsZero() {
		return nil, fmt.Errorf("expire call %s: %w", l.Call, errNotWaiting)
	}
	return func(context.Context) error {
		if sr.sim.people.expiring = id; c.Wait != nil && c.Wait.For == run.ForAnswer {
			sr.sim.people.expiring = c.ID
		}
		sr.sim.clock.AdvanceTo(at)
		return nil
	}, nil
}

// settleUnknownOutcome settles the first outcome that only a crash made unknown. The scenario has no line for the
// request, since it does not expect the crash: an approver gives the outcome that the effect log has, and the request
// is not compared.
func (sr *scriptedRun) settleUnknownOutcome(waits []run.Call) bool {
	for _, c := range waits {
		o, known := sr.knownOutcome(c)
		if !known {
			continue
		}
		sr.sim.crashRequests = append(sr.sim.crashRequests, o.ID)
		if o.Action == approval.Rerun {
			// The rerun has the result of the execution before it.
			last := executionKey{c.ID, c.Executions}
			sr.resultIndex[executionKey{c.ID, c.Executions + 1}] = sr.reserveResult(c.Tool, last)
		}
		sr.sim.act(func() { sr.settleOutcome(o) })
		return true
	}
	return false
}

// settleOutcome settles an outcome as an approver, by a channel that counts; an order to run the call again is that of
// as many as it takes. A refusal ends the simulation, since the request would stay open for ever.
func (sr *scriptedRun) settleOutcome(o approval.DecisionInput) {
	a, err := sr.sim.request(o.ID)
	for n := 0; err == nil && (n == 0 || n < a.Quorum && o.Action == approval.Rerun); n++ {
		o.By, o.Via = anyApprover(a, n)
		err = sr.sim.retry("settle "+o.Call, sr.settleAction(o))
	}
	if err != nil {
		sr.sim.addFailure("calls", err.Error(), "call "+o.Call+" settled")
		sr.sim.endSignal.Notify()
	}
}

// anyApprover returns the n-th of the people who may decide a request, from 0, and a channel that counts. Only an
// approver can have an approved call run again.
func anyApprover(a approval.Approval, n int) (by policy.Principal, via run.Via) {
	for _, each := range agent.Vias() {
		if a.ChannelsOf("").Count(each, "") {
			via = each
		}
	}
	above := slices.Concat(a.Above...)
	people := slices.DeleteFunc(slices.Clone(a.Approvers), func(name string) bool {
		return !strings.HasPrefix(name, "user:") || a.FourEyes && slices.Contains(a.Requesters, name)
	})
	if n < len(people) {
		return policy.Principal{ID: people[n], Groups: above}, via
	}
	return policy.Principal{ID: fmt.Sprintf("user:approver-%d", n), Groups: slices.Concat(a.Approvers, above)}, via
}

// knownOutcome returns what the effect log has of a call, if it was a crash that made the outcome unknown.
func (sr *scriptedRun) knownOutcome(c run.Call) (approval.DecisionInput, bool) {
	t := sr.tools[c.Tool]
	if !sr.sim.isDisturbed() || c.Wait.For != run.ForOutcome || t == nil || t.reconciles {
		return approval.DecisionInput{}, false
	}
	o := approval.DecisionInput{Tenant: tenant, Run: sr.run, Call: c.ID, ID: c.Wait.Approval}
	switch e := sr.sim.newestExecution(sr.run, c.Tool, executionKey{c.ID, c.Executions}); {
	case e == nil || e.void:
		o.Action = approval.Rerun
	case e.resultLost: // the outcome is unknown without a crash, too
		return approval.DecisionInput{}, false
	case e.finished && (e.result.data.Suspend != nil || e.result.failure != nil):
		// without an effect; the rerun gives the same
		e.void, o.Action = true, approval.Rerun
	case e.finished:
		if o.Action, o.Content = approval.ReportResult, e.result.data.Content; e.result.data.IsError {
			o.Action = approval.ReportError
		}
	default: // the scenario makes it time out
		return approval.DecisionInput{}, false
	}
	return o, true
}
