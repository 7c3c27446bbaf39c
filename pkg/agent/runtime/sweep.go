package runtime

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/countersign/countersign/pkg/agent"
	"github.com/countersign/countersign/pkg/agent/store"
)

// Repair is what the sweeper did to a run.
type Repair string

// The repairs.
const (
	RepairNone     Repair = ""
	RepairStarted  Repair = "started"   // its execution had never begun
	RepairTookOver Repair = "took_over" // its execution had ended and the run had not, or had missed its wake-up
	RepairWoke     Repair = "woke"      // an input had come and nobody had woken it
	RepairFailed   Repair = "failed"    // so many executions had ended that it is given up
	RepairStopped  Repair = "stopped"   // an execution ran on though the run was done, or another's
)

const (
	// settling is how long an execution that was just woken, or whose run has just ended or been handed over, has to act on it.
	settling = time.Minute
	// maxTakeOvers is the generation of owners from which on a run whose execution has ended is not taken over again.
	maxTakeOvers = 100
)

// Sweeper finds runs that disagree with their executions and repairs them (rule 14). Safe for concurrent use, and idempotent.
type Sweeper struct {
	Ports
	Definitions Definitions
	// LeaveWoken says that an execution whose wait is over is sure to act: the local engine records the wake-up with the wait. Else
	// it has a minute.
	LeaveWoken bool
}

// Repair repairs one run. Where an input waits and the run's token is used up, it gives the execution a minute first.
func (sw *Sweeper) Repair(ctx context.Context, tenant, run string) (Repair, error) {
	l, err := sw.Journal.Load(ctx, tenant, run)
	if err != nil {
		return RepairNone, fmt.Errorf("sweep run %s: %w", run, err)
	}
	r, err := sw.repair(ctx, l)
	switch {
	case err == nil:
		return r, nil
	case errors.Is(err, store.ErrSequenceTaken), errors.Is(err, store.ErrInboxMoved), errors.Is(err, store.ErrGuardFailed):
		return RepairNone, nil // somebody acts on the run: it is alive
	default:
		return r, fmt.Errorf("sweep run %s: %w", run, err)
	}
}

func (sw *Sweeper) repair(ctx context.Context, l store.Loaded) (Repair, error) {
	s := &l.State
	if s.Status == agent.RunDone {
		return sw.stopLeftover(ctx, s, s.Owner)
	}
	status, err := sw.Waiter.Status(ctx, s.Owner)
	if err != nil {
		return RepairNone, err
	}
	switch {
	case status == ExecutionNone:
		return RepairStarted, sw.Waiter.Start(ctx, s.Tenant, s.Run, s.Owner)
	case status == ExecutionEnded:
		return sw.takeOver(ctx, l)
	case s.Status == agent.RunWaiting && len(l.Inbox) > 0:
		return sw.wake(ctx, l)
	default:
		return sw.stopLeftover(ctx, s, s.FormerOwner)
	}
}

// stopLeftover stops an execution that the run does not need any more and that had the time to end by itself.
func (sw *Sweeper) stopLeftover(ctx context.Context, s *agent.AgentState, name string) (Repair, error) {
	if name == "" || sw.Clock.Now().Sub(s.UpdatedAt) < settling {
		return RepairNone, nil
	}
	status, err := sw.Waiter.Status(ctx, name)
	if err != nil || status != ExecutionRunning {
		return RepairNone, err
	}
	return RepairStopped, sw.Waiter.Stop(ctx, name, "the run goes on without it")
}

// wake completes the token of a run that nobody has woken for its inputs. Without a token there is nothing to do: the waiter looks
// when it has stored one. Where the wait is over and the run stays as it is, the wake-up is lost with the execution that had it.
func (sw *Sweeper) wake(ctx context.Context, l store.Loaded) (Repair, error) {
	s := &l.State
	h, err := sw.Journal.Head(ctx, s.Tenant, s.Run)
	if err != nil || h.Status != agent.RunWaiting || h.Token == "" {
		return RepairNone, err
	}
	err = sw.Waiter.Success(ctx, h.Token)
	if err == nil {
		return RepairWoke, nil
	}
	if !errors.Is(err, ErrSettled) {
		return RepairNone, err
	}
	if sw.LeaveWoken {
		return RepairNone, nil
	}
	if err := sw.Clock.Sleep(ctx, settling); err != nil {
		return RepairNone, err
	}
	now, err := sw.Journal.Load(ctx, s.Tenant, s.Run)
	if err != nil || now.State.Entries != s.Entries {
		return RepairNone, err
	}
	return sw.takeOver(ctx, now)
}

// takeOver makes the next execution the owner, conditional on the sequence, starts it and stops the old one.
func (sw *Sweeper) takeOver(ctx context.Context, l store.Loaded) (Repair, error) {
	s := &l.State
	if s.Generation >= maxTakeOvers {
		return RepairFailed, sw.giveUp(ctx, l)
	}
	def, err := sw.Definitions(ctx, s.Tenant, s.Definition)
	if err != nil {
		return RepairNone, err
	}
	d := agent.NewDraft(*s, sw.IDs.Writer(), sw.Clock.Now())
	next := ExecutionName(s.Run, s.Generation+1)
	events := []agent.Event{agent.HandedOver{Owner: next}}
	if s.Status == agent.RunWaiting {
		events = []agent.Event{sw.resumed(ctx, s), agent.HandedOver{Owner: next}}
	}
	if err := d.Add(events...); err != nil {
		return RepairNone, err
	}
	if err := sw.commit(ctx, *s, d, def); err != nil {
		return RepairNone, err
	}
	if err := sw.Waiter.Start(ctx, s.Tenant, s.Run, next); err != nil {
		return RepairNone, err
	}
	return RepairTookOver, sw.Waiter.Stop(ctx, s.Owner, "taken over")
}

// giveUp ends the run as failed (rule 4).
func (sw *Sweeper) giveUp(ctx context.Context, l store.Loaded) error {
	s := &l.State
	def, err := sw.Definitions(ctx, s.Tenant, s.Definition)
	if err != nil {
		return err
	}
	inv := Invocation{Tenant: s.Tenant, Run: s.Run, Writer: sw.IDs.Writer()}
	if err := sw.makeRoom(ctx, inv, l, def); err != nil {
		return err
	}
	d, err := sw.draft(ctx, inv, l)
	if err != nil {
		return err
	}
	if err := end(d, agent.Fail(agent.CodeInternal, fmt.Sprintf("%d executions ended before the run did", s.Generation+1))); err != nil {
		return err
	}
	return sw.commit(ctx, *s, d, def)
}
