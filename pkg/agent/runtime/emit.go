package runtime

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/countersign/countersign/pkg/agent"
)

// emitTimeout is how long a bus has to take an event.
const emitTimeout = 30 * time.Second

// question is the event that asks the service of a claimed call.
func (r *round) question(c agent.Call) (agent.Outgoing, error) {
	t, _ := r.def.Tool(c.Tool)
	return agent.ServiceEvent(&r.loaded.State, t, c)
}

// emitted sends the event of a claimed call and notes what is to be stored of it: that its answer is waited for, or why it can never go
// out. Where the bus may take it later, the call stays claimed and the event goes out again, under the same id.
func (r *round) emitted(ctx context.Context, x *execution, e agent.Outgoing, err error) {
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrUndeliverable, err)
	} else {
		limited, cancel := r.Clock.WithTimeout(ctx, min(emitTimeout, r.timeout(ctx, x.call)))
		defer cancel()
		err = r.send(limited, e)
	}
	t, _ := r.def.Tool(x.call.Tool)
	switch {
	case errors.Is(err, ErrUndeliverable):
		r.flight.landed(x, agent.CallFinished{
			Call: x.call.ID, IsError: true, Reason: agent.WhyToolError, Content: x.call.Name + " was not asked: " + agent.Bounded(err.Error()),
		})
	case err != nil:
		x.err = fmt.Errorf("ask service of call %s: %w", x.call.ID, err)
		r.flight.landed(x, nil)
	default:
		r.flight.landed(x, agent.EmittedAs(t, x.call, r.Clock.Now()))
	}
}

// send hands an event to the bus.
func (p Ports) send(ctx context.Context, e agent.Outgoing) error {
	if p.Emit == nil {
		return fmt.Errorf("%w: this deployment has no event bus", ErrUndeliverable)
	}
	return p.Emit.Emit(ctx, e)
}

// announce tells whoever started the run that it has ended, where this execution owns it: at least once, since every attempt that finds
// the run done says so before it leaves, under one id. The end itself is committed by then, and stays whatever becomes of the event.
func (p Ports) announce(ctx context.Context, inv Invocation, s *agent.AgentState) error {
	if s.Owner != inv.Execution {
		return nil
	}
	return p.tell(ctx, s)
}

// tell announces the end of a run that is done.
func (p Ports) tell(ctx context.Context, s *agent.AgentState) error {
	if p.Emit == nil {
		return nil
	}
	e, owed, err := agent.Announcement(s)
	if err != nil || !owed {
		return err
	}
	err = p.Emit.Emit(ctx, e)
	if errors.Is(err, ErrUndeliverable) { // it would be refused again
		p.warn("announce the end of run "+s.Run, err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("announce the end of run %s: %w", s.Run, err)
	}
	return nil
}

func (p Ports) warn(what string, err error) {
	if p.Warn != nil {
		p.Warn(what, err)
	}
}
