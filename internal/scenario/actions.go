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

// errNotWaiting refuses to expire a call that waits for nobody.
var errNotWaiting = errors.New("the call waits for nobody")

// isRefusal reports whether the product refused a request for a stated reason. A repetition would be refused, too.
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
	return errors.As(err, &undo) || errors.As(err, &decided) || errors.As(err, &edit) || errors.As(err, &grant) || errors.As(err, &answer)
}

// action is one request of a person. It can be repeated.
type action func(ctx context.Context) error

// lineAction returns the action of a line of people.jsonl.
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
		message := []run.UserBlock{{Block: run.Text{Text: l.text}}}
		return func(ctx context.Context) error {
			return sr.sim.machine.Inputs.Send(ctx, tenant, sr.run, fmt.Sprintf("line-%d", l.number), l.by.ID, message)
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

// findRequest returns a call, and the id of the newest request about the call or its tool. If there was none, it is the
// id of the first request to come.
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

// decideAction decides the newest request about a call. If there was none, the decision targets the suspension or call
// that the line names. An edit always needs a request.
func (sr *scriptedRun) decideAction(l line, a approval.Action, note string) (action, error) {
	c, id, err := sr.findRequest(l.call)
	if err != nil {
		return nil, err
	}
	if c.Request == "" && c.Asks == 0 && a != approval.Edit {
		// The id makes a repeated decision count once.
		l0, err := sr.sim.journal.Load(context.Background(), tenant, sr.run)
		if err != nil {
			return nil, err
		}
		r := approval.DecisionInput{
			Tenant: tenant, Run: sr.run, Call: l.call, Key: fmt.Sprintf("line-%d", l.number), Action: a, Result: l.result, Note: note,
			By: l.by, Via: l.via,
		}
		return sr.sim.machine.Desk.PrepareDecision(context.Background(), &l0.State, r)
	}
	r := approval.DecisionInput{
		Tenant: tenant, ID: id, Action: a, Args: l.args, Result: l.result, Note: note, By: l.by, Via: l.via, Grant: l.grant,
	}
	if c.Request != "" { // the decision about a blocked call is about its tool
		r.Tool = c.Tool
	}
	return func(ctx context.Context) error {
		if now, err := approval.Get(ctx, sr.sim.table, tenant, id); a == approval.Approve && err == nil {
			r.Digest = now.Digest // people read the request before they approve it
		}
		_, err := sr.sim.machine.Desk.Decide(ctx, r)
		return err
	}, nil
}

// answerAction gives the outcome of a call whose outcome is unknown, decides one that waits for a person, or answers
// one of a service.
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
		a := runtime.Answer{Tenant: tenant, Run: sr.run, Call: l.call, By: l.by.ID}
		if l.failure != nil {
			a.Content, a.IsError = *l.failure, true
		} else {
			a.Content = textOf(l.result)
		}
		return func(ctx context.Context) error { // an answer that nobody waits for changes nothing and is no refusal
			if err := sr.sim.machine.Inputs.Answer(ctx, a); !errors.Is(err, runtime.ErrUnasked) {
				return err
			}
			return nil
		}, nil
	}
	o := approval.DecisionInput{
		Tenant: tenant, Run: sr.run, Call: l.call, ID: id, Action: approval.ReportResult, By: l.by, Via: l.via,
	}
	switch {
	case l.rerun:
		o.Action = approval.Rerun
	case l.failure != nil:
		o.Action, o.Content = approval.ReportError, *l.failure
	case l.result != nil:
		o.Content = textOf(l.result)
	}
	return sr.settleAction(o), nil
}

// hasServices reports whether the agent has services. If so, an answer may belong to no call.
func (sr *scriptedRun) hasServices() bool {
	return slices.ContainsFunc(sr.scenario.agent.Tools, func(t agent.ToolSpec) bool { return t.AnsweredLater() && t.Kind != agent.KindAgent })
}

// settleAction settles an unknown outcome, and counts the rerun it may ask for.
func (sr *scriptedRun) settleAction(o approval.DecisionInput) action {
	counted := false
	return func(ctx context.Context) error {
		_, err := sr.sim.machine.Desk.Decide(ctx, o)
		if err == nil && o.Action == approval.Rerun && !counted {
			counted = true
			sr.effects.reruns[o.Call]++
		}
		return err
	}
}

// answerAsDecisionAction decides with an answer. An error denies a request about a call, and fails a request about
// tools.
func (sr *scriptedRun) answerAsDecisionAction(l line, c run.Call) (action, error) {
	answer := l.result
	l.result = nil
	if l.failure != nil && c.Request != "" {
		return sr.decideAction(l, approval.Fail, *l.failure)
	}
	if l.failure != nil {
		return sr.decideAction(l, approval.Deny, *l.failure)
	}
	resume, reason := policy.DecisionFromJSON(answer)
	switch {
	case !resume:
		return sr.decideAction(l, approval.Deny, reason)
	case c.Wait != nil && c.Wait.For == run.ForInput:
		l.result = answer
		return sr.decideAction(l, approval.Approve, "")
	default:
		return sr.decideAction(l, approval.Approve, reason)
	}
}

// expireAction moves the clock to the expiry of a call's wait.
func (sr *scriptedRun) expireAction(l line) (action, error) {
	c, id, err := sr.findRequest(l.call)
	if err != nil {
		return nil, err
	}
	var at time.Time
	if c.Wait != nil {
		at = c.Wait.Expires
	} else { // a request blocks the call
		loaded, err := sr.sim.journal.Load(context.Background(), tenant, sr.run)
		if err != nil {
			return nil, fmt.Errorf("expire call %s: %w", l.call, err)
		}
		open := loaded.State.OpenRequests()
		i := slices.IndexFunc(open, func(r run.PermissionRequest) bool { return r.Approval == c.Request })
		if i < 0 {
			return nil, fmt.Errorf("expire call %s: %w", l.call, errNotWaiting)
		}
		at = open[i].Expires
	}
	return func(context.Context) error {
		if sr.sim.people.expiring = id; c.Wait != nil && c.Wait.For == run.ForAnswer {
			sr.sim.people.expiring = c.ID
		}
		sr.sim.clock.AdvanceTo(at)
		return nil
	}, nil
}

// commentAction adds a question or a reply to the newest request about a call.
func (sr *scriptedRun) commentAction(l line) (action, error) {
	_, id, err := sr.findRequest(l.call)
	if err != nil {
		return nil, err
	}
	w := approval.RemarkInput{Tenant: tenant, ID: id, Text: l.note, By: l.by}
	comment := sr.sim.machine.Desk.AskQuestion
	if l.do == "reply" {
		comment = sr.sim.machine.Desk.ReplyToQuestion
	}
	return func(ctx context.Context) error {
		_, err := comment(ctx, w)
		return err
	}, nil
}

// undoAction undoes a call of a run that has ended. The undo run becomes the main run.
// If the main run is an undo run already, a call in it that undoes nothing belongs to the run before it.
func (s *simulation) undoAction(l line) action {
	of := s.run
	if c, ok := s.loadCall(s.run, l.call); s.continues != "" && ok && c.Undoes == "" {
		of = s.continues
	}
	return func(ctx context.Context) error {
		run, _, err := s.machine.Starter.Undo(ctx, runtime.Undo{Tenant: tenant, Run: of, Call: l.call, By: l.by.ID})
		if err == nil {
			s.continues, s.run, s.forkAt = of, run.Run, -1
		}
		return err
	}
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
			sr.effects.resultIndex[executionKey{c.ID, c.Executions + 1}] = sr.effects.reserveResult(c.Tool, last)
		}
		sr.sim.people.act(func() { sr.settleOutcome(o) })
		return true
	}
	return false
}

// settleOutcome settles an outcome as an approver. A refusal ends the simulation, since the request would stay open for
// ever.
func (sr *scriptedRun) settleOutcome(o approval.DecisionInput) {
	a, err := approval.Get(context.Background(), sr.sim.table, tenant, o.ID)
	if err == nil {
		o.By = anyApprover(a.Approvers)
		o.By.Groups = slices.Concat(o.By.Groups, slices.Concat(a.Above...))
		err = sr.sim.retry("settle "+o.Call, sr.settleAction(o))
	}
	if err != nil {
		sr.sim.addFailure(Failure{Path: "calls", Got: err.Error(), Want: "call " + o.Call + " settled"})
		sr.sim.endSignal.Notify()
	}
}

// anyApprover returns a person who may decide. Only an approver can have an approved call run again.
func anyApprover(approvers []string) policy.Principal {
	for _, name := range approvers {
		if strings.HasPrefix(name, "user:") {
			return policy.Principal{ID: name}
		}
	}
	return policy.Principal{ID: localUser.ID, Groups: approvers}
}

// knownOutcome returns what the effect log has of a call, if it was a crash that made the outcome unknown.
func (sr *scriptedRun) knownOutcome(c run.Call) (approval.DecisionInput, bool) {
	t := sr.effects.tools[c.Tool]
	if !sr.sim.isDisturbed() || c.Wait.For != run.ForOutcome || t == nil || t.reconciles {
		return approval.DecisionInput{}, false
	}
	o := approval.DecisionInput{Tenant: tenant, Run: sr.run, Call: c.ID, ID: c.Wait.Approval}
	switch e := sr.effects.newestExecution(sr.run, c.Tool, executionKey{c.ID, c.Executions}); {
	case e == nil || e.void:
		o.Action = approval.Rerun
	case e.resultLost: // the outcome is unknown without a crash, too
		return approval.DecisionInput{}, false
	case e.finished && (e.result.data.Suspend != nil || e.result.failure != nil): // without an effect; the rerun gives the same
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
