package runtime

import (
	"context"
	"fmt"

	"github.com/countersign/countersign/pkg/agent"
	"github.com/countersign/countersign/pkg/agent/store"
)

// Repair is what the sweeper did to a run.
type Repair string

// The repairs.
const (
	RepairNone     Repair = ""
	RepairStarted  Repair = "started"   // its execution had never begun
	RepairTookOver Repair = "took_over" // its execution had ended and the run had not
	RepairWoke     Repair = "woke"      // an input had come and nobody had woken it
)

// Sweeper finds runs that disagree with their executions and repairs them (rule 14). Safe for concurrent use, and idempotent.
type Sweeper struct {
	Ports
	Definitions Definitions
}

// Repair repairs one run.
func (sw *Sweeper) Repair(ctx context.Context, tenant, run string) (Repair, error) {
	l, err := sw.Journal.Load(ctx, tenant, run)
	if err != nil {
		return RepairNone, fmt.Errorf("sweep run %s: %w", run, err)
	}
	if l.State.Status == agent.RunDone {
		return RepairNone, nil
	}
	status, err := sw.Waiter.Status(ctx, l.State.Owner)
	if err != nil {
		return RepairNone, fmt.Errorf("sweep run %s: %w", run, err)
	}
	switch {
	case status == ExecutionNone:
		return RepairStarted, sw.start(ctx, &l.State, l.State.Owner)
	case status == ExecutionEnded:
		return RepairTookOver, sw.takeOver(ctx, l)
	case l.State.Status == agent.RunWaiting && len(l.Inbox) > 0:
		return RepairWoke, (&Waits{sw.Ports}).Wake(ctx, tenant, run)
	default:
		return RepairNone, nil
	}
}

// takeOver makes the next execution the owner, conditional on the sequence, and starts it.
func (sw *Sweeper) takeOver(ctx context.Context, l store.Loaded) error {
	s := l.State
	def, err := sw.Definitions(ctx, s.Tenant, s.Definition)
	if err != nil {
		return fmt.Errorf("take over run %s: %w", s.Run, err)
	}
	d := agent.NewDraft(s, sw.IDs.Writer(), sw.Clock.Now())
	next := ExecutionName(s.Run, s.Generation+1)
	events := []agent.Event{agent.HandedOver{Owner: next}}
	if s.Status == agent.RunWaiting {
		events = []agent.Event{agent.Resumed{}, agent.HandedOver{Owner: next}}
	}
	if err := d.Add(events...); err != nil {
		return fmt.Errorf("take over run %s: %w", s.Run, err)
	}
	if err := sw.commit(ctx, s, d, def); err != nil {
		return fmt.Errorf("take over run %s: %w", s.Run, err)
	}
	return sw.start(ctx, &s, next)
}

func (sw *Sweeper) start(ctx context.Context, s *agent.AgentState, name string) error {
	if err := sw.Waiter.Start(ctx, s.Tenant, s.Run, name); err != nil {
		return fmt.Errorf("start execution of run %s: %w", s.Run, err)
	}
	return nil
}
