package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// sendTimeout is how long sending out one call may take.
const sendTimeout = 30 * time.Second

// outgoing prepares the sending of a claimed call that is answered later, by its kind, from state s. send hands the
// call to its receiver. It may be called again with the same effect, because the call keeps its id. An error that wraps
// ErrUndeliverable is final. After any other error a retry may succeed, and the call may be out nevertheless.
func (r *round) outgoing(c run.Call, s *run.AgentState) (send func(context.Context) error, err error) {
	t, _ := r.def.Tool(c.Tool)
	switch t.Kind {
	case agent.KindService:
		e, err := policy.ServiceEvent(s, t, c)
		if err != nil {
			return nil, err
		}
		to, err := r.callback(t, c)
		if err != nil {
			return nil, err
		}
		if to.URL != "" {
			e.Callback = &to
		}
		return func(ctx context.Context) error {
			if r.Emit == nil {
				return fmt.Errorf("%w: this deployment has no event bus", ErrUndeliverable)
			}
			return r.Emit.Emit(ctx, e)
		}, nil
	case agent.KindLambda: // a function that answers later
		to, err := r.callback(t, c)
		if err != nil {
			return nil, err
		}
		payload, err := policy.FunctionRequest(s, t, c, to).Payload()
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context) error {
			if r.Functions == nil {
				return fmt.Errorf("%w: this deployment invokes no functions", ErrUndeliverable)
			}
			_, err := r.Functions.Invoke(ctx, Invoke{Function: t.Lambda.Function, Payload: payload, Async: true})
			return err
		}, nil
	case agent.KindAgent:
		child, ok := s.ChildOf(c.ID)
		if !ok {
			return nil, errors.New("its claim names no delegated run")
		}
		from, err := policy.ChildStartOf(s, t, c)
		if err != nil {
			return nil, err
		}
		start := Start{
			Tenant: s.Tenant, Message: from.Message, Input: from.Input, Subject: s.Subject, AccessControl: s.AccessControl,
			Parent: &from.Parent, By: s.By, contributors: slices.Concat(s.Contributors, s.Again, []string{c.Editor()}),
		}
		return func(ctx context.Context) error { return r.startChild(ctx, t, child, start) }, nil
	default:
		return nil, fmt.Errorf("this deployment sends nothing to tools of kind %s", t.Kind)
	}
}

// sendOut sends a claimed call and records the event to store: that its answer is awaited, or why it can never be sent.
// err is the error of its preparation. If the call may be accepted later, it stays claimed and is sent again under the
// same id.
func (r *round) sendOut(ctx context.Context, x *execution, send func(context.Context) error, err error) {
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrUndeliverable, err)
	} else {
		limited, cancel := r.Clock.WithTimeout(ctx, min(sendTimeout, r.timeout(ctx, x.call)))
		defer cancel()
		err = send(limited)
	}
	t, _ := r.def.Tool(x.call.Tool)
	switch {
	case errors.Is(err, ErrUndeliverable):
		r.inflight.finish(x, run.CallFinished{
			Call: x.call.ID, IsError: true, Reason: run.WhyToolError, Content: x.call.Name + " was not asked: " +
				agent.Bounded(err.Error()),
		})
	case err != nil:
		x.err = fmt.Errorf("send out call %s: %w", x.call.ID, err)
		r.inflight.finish(x, nil)
	default:
		r.inflight.finish(x, policy.AwaitAnswer(t, x.call, r.Clock.Now()))
	}
}

// callback returns where the answer to a call has to be sent.
func (r *round) callback(t agent.ToolSpec, c run.Call) (policy.Callback, error) {
	to := policy.Callback{AnswerTo: policy.AnswerTo{Run: r.inv.Run, Call: c.ID}}
	if r.Callbacks == nil || c.AskedAt.IsZero() {
		return to, nil
	}
	var err error
	to.URL, err = r.Callbacks.URL(r.inv.Tenant, r.inv.Run, c.ID, policy.CallbackExpires(t, c))
	return to, err
}

// startChild writes the child run and starts its execution. An existing child continues as it was written.
func (r *round) startChild(ctx context.Context, t agent.ToolSpec, child run.Child, start Start) error {
	st := Starter{Ports: r.Ports}
	current := r.Agents.Find(t.Agent.Agent)
	if current == nil { // another deployment may have started the child before this one took over the claim
		l, err := r.Journal.Load(ctx, start.Tenant, child.Run)
		switch {
		case errors.Is(err, store.ErrNoRun) && r.SharesRuns:
			return fmt.Errorf("agent %s is not known here: %w", t.Agent.Agent, ErrOtherProcess)
		case errors.Is(err, store.ErrNoRun):
			return fmt.Errorf("%w: this deployment has no agent %s", ErrUndeliverable, t.Agent.Agent)
		case err != nil:
			return err
		}
		return st.startExecution(ctx, &l.State)
	}
	def := policy.ChildDefinition(r.def, child, current)
	start.Agent = &def
	s, err := st.Create(ctx, start, child.Run, ExecutionName(child.Run, 0))
	var bad *BadStart
	switch {
	case errors.As(err, &bad), errors.Is(err, ErrKeyReused),
		errors.Is(err, store.ErrTooLarge), errors.Is(err, store.ErrInvalid):
		return fmt.Errorf("%w: %w", ErrUndeliverable, err) // a second attempt would fail again
	case err != nil:
		return err
	}
	return st.startExecution(ctx, &s)
}
