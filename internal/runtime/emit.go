package runtime

import (
	"context"
	"errors"
	"fmt"

	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

// notifySink hands an entry to a sink. A panic in the sink is swallowed: the entry is committed.
func notifySink(ctx context.Context, sink EventSink, e run.Entry, s *run.AgentState) {
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
	return p.notifyBus(ctx, s)
}

// notifyEnd announces the end of a finished run to its parent, its children and its starter.
func (p Ports) notifyEnd(ctx context.Context, s *run.AgentState) error {
	if err := p.notifyFamily(ctx, s); err != nil {
		return err
	}
	return p.notifyBus(ctx, s)
}

// notifyBus announces the end of a run to its starter alone.
func (p Ports) notifyBus(ctx context.Context, s *run.AgentState) error {
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
