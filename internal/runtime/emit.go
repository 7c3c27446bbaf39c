package runtime

import (
	"context"
	"errors"
	"fmt"

	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

// tell tells a sink of an entry. A sink that panics has not heard of it: the entry is committed, and what listens is nobody's durable
// concern (semantics.md, 1.9: listener failures are swallowed).
func tell(ctx context.Context, sink EventSink, e run.Entry, s *run.AgentState) {
	defer func() { _ = recover() }()
	sink.Committed(ctx, e, s)
}

// announce closes the requests that the run's end has left open, and tells whoever started the run that it has ended,
// where this execution owns it: at least once, since every attempt that finds the run done says so before it leaves,
// under one id. The end itself is committed by then, and stays whatever becomes of the event.
func (p Ports) announce(ctx context.Context, inv Invocation, s *run.AgentState) error {
	if s.Owner != inv.Execution {
		return nil
	}
	if err := p.closeRequests(ctx, s); err != nil {
		return err
	}
	return p.tellBus(ctx, s)
}

// tell says that a run has ended that is done: to the runs around it, and to whoever started it.
func (p Ports) tell(ctx context.Context, s *run.AgentState) error {
	if err := p.tellFamily(ctx, s); err != nil {
		return err
	}
	return p.tellBus(ctx, s)
}

// tellBus tells whoever started the run, and none of the runs around it.
func (p Ports) tellBus(ctx context.Context, s *run.AgentState) error {
	if p.Emit == nil {
		return nil
	}
	e, owed, err := policy.Announcement(s)
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
