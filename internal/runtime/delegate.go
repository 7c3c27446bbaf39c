package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// isAway reports whether the call is carried out by an agent that only other processes know. It stays as it is, and the
// invocation ends as ErrElsewhere once nothing is left that it can do.
func (r *round) isAway(c run.Call) bool {
	t, ok := r.def.Tool(c.Tool)
	if !r.LeavesUnknown || !ok || t.Kind != agent.KindAgent || c.Child != "" {
		return false
	}
	if r.Agents.Find(t.Agent.Agent) != nil {
		return false
	}
	r.unlinked = fmt.Errorf("call %s: agent %s is not known here: %w", c.ID, t.Agent.Agent, ErrElsewhere)
	return true
}

// delegationClaim is the claim of a call that may run, with the child run if another agent carries it out. Otherwise it
// is the result that says why not.
func (r *round) delegationClaim(
	p *batchPlan, c run.Call, claim *run.CallClaimed,
) (*run.CallClaimed, *run.CallFinished) {
	child, refused := policy.Delegation(r.def, &p.draft.State, c, r.Agents)
	if refused != nil {
		p.addSettled()
	}
	if child == nil {
		return claim, refused
	}
	with := run.CallClaimed{Call: c.ID}
	if claim != nil {
		with = *claim
	}
	with.Child = child
	return &with, nil
}

// askAgent is the run of another agent that carries out a claimed call.
func (r *round) askAgent(t agent.ToolSpec, c run.Call, s *run.AgentState) (send, error) {
	child, ok := s.ChildOf(c.ID)
	if !ok {
		return nil, fmt.Errorf("no run was claimed for it")
	}
	from, err := policy.StartOf(s, t, c)
	if err != nil {
		return nil, err
	}
	start := Start{
		Tenant: s.Tenant, Message: from.Message, Input: from.Input, Subject: s.Subject, AccessControl: s.AccessControl,
		Parent: &from.Parent, By: s.By,
		heard: append(slices.Clone(s.Heard), s.Again...),
	}
	return func(ctx context.Context) error { return r.startChild(ctx, t, child, start) }, nil
}

// startChild writes the child run and starts its execution. A child that exists goes on as it was written.
func (r *round) startChild(ctx context.Context, t agent.ToolSpec, child run.Child, start Start) error {
	st := Starter{Ports: r.Ports}
	current := r.Agents.Find(t.Agent.Agent)
	if current == nil { // another deployment may have begun it before this one took the claim over
		l, err := r.Journal.Load(ctx, start.Tenant, child.Run)
		if errors.Is(err, store.ErrNoRun) && r.LeavesUnknown {
			return fmt.Errorf("agent %s is not known here: %w", t.Agent.Agent, ErrElsewhere)
		}
		if errors.Is(err, store.ErrNoRun) {
			return fmt.Errorf("%w: this deployment has no agent %s", ErrUndeliverable, t.Agent.Agent)
		}
		if err != nil {
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
		return fmt.Errorf("%w: %w", ErrUndeliverable, err) // no second attempt could mend it
	case err != nil:
		return err
	}
	return st.startExecution(ctx, &s)
}
