package runtime

import (
	"context"
	"errors"
	"fmt"

	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// hasFamily reports whether the end of s concerns another run: its parent, or an open child.
func hasFamily(s *run.AgentState) bool { return s.Parent != nil || len(s.Children.Open) > 0 }

// NotifyFamily cancels the open children of an ended run, and theirs, and answers the call of its parent with the usage
// of all of them. It may be repeated, since an ended run uses nothing more. It does nothing for a run that has not
// ended.
func (p Ports) NotifyFamily(ctx context.Context, s *run.AgentState) error {
	if s.Status != run.RunDone || !hasFamily(s) {
		return nil
	}
	for _, c := range s.Children.Open {
		if _, err := p.cancelChild(ctx, s, c.Run, "the run that it worked for has ended"); err != nil {
			return err
		}
	}
	used, err := p.sumUsage(ctx, s)
	if err != nil || s.Parent == nil {
		return err
	}
	return p.answerParent(ctx, s, used)
}

// sumUsage returns what an ended run used together with its open children, and theirs. It does not end them: ending a
// run already ends all runs below, and doing so again at each level would double the work.
func (p Ports) sumUsage(ctx context.Context, s *run.AgentState) (run.ChildUsage, error) {
	used := s.Used()
	for _, c := range s.Children.Open {
		l, err := p.Journal.Load(ctx, s.Tenant, c.Run)
		if errors.Is(err, store.ErrNoRun) {
			continue
		}
		if err != nil {
			return run.ChildUsage{}, fmt.Errorf("count what run %s used: %w", c.Run, err)
		}
		below, err := p.sumUsage(ctx, &l.State)
		if err != nil {
			return run.ChildUsage{}, err
		}
		used = used.Add(below)
	}
	return used, nil
}

// cancelChild cancels a run's child. found reports whether the child exists; then it has ended. A child that was
// claimed but not written yet is not found. It checks its parent before it does anything (isOrphaned).
func (p Ports) cancelChild(ctx context.Context, s *run.AgentState, child, why string) (found bool, err error) {
	c := Canceller{Ports: p, Definitions: p.definition}
	if _, err = c.Cancel(ctx, s.Tenant, child, "run:"+s.Run, why); errors.Is(err, store.ErrNoRun) {
		return false, nil
	}
	return err == nil, err
}

// answerParent puts the result of an ended run into its parent's inbox, once, and wakes the parent. The ended run's
// requesters become requesters of what the parent does next (A10).
func (p Ports) answerParent(ctx context.Context, s *run.AgentState, used run.ChildUsage) error {
	l, err := p.Journal.Load(ctx, s.Tenant, s.Parent.Run)
	if errors.Is(err, store.ErrNoRun) { // it was deleted before this one was written
		return nil
	}
	if err != nil {
		return fmt.Errorf("answer run %s: %w", s.Parent.Run, err)
	}
	if l.State.Status == run.RunDone {
		return nil
	}
	def, err := p.definition(ctx, s.Tenant, l.State.Definition)
	if err != nil {
		return fmt.Errorf("answer run %s: %w", s.Parent.Run, err)
	}
	call, _ := l.State.Call(s.Parent.Call)
	t, _ := def.Tool(call.Tool)
	text, isError, err := policy.ChildAnswer(t, s)
	if err != nil {
		return fmt.Errorf("answer run %s: %w", s.Parent.Run, err)
	}
	in := Inputs{Ports: p}
	fact, err := in.answered(ctx, def, Answer{Tenant: s.Tenant, Run: s.Parent.Run, Call: s.Parent.Call, Content: text,
		IsError: isError, By: "run:" + s.Run}, call)
	if err != nil {
		return err
	}
	fact.Used, fact.With = &used, s.Requesters()
	_, err = p.Journal.Accept(ctx, s.Tenant, s.Parent.Run, "answer/"+s.Parent.Call, fact)
	if err != nil && !errors.Is(err, store.ErrOtherInput) { // the parent was answered before, with another text
		return fmt.Errorf("answer run %s: %w", s.Parent.Run, err)
	}
	return p.Wake(ctx, s.Tenant, s.Parent.Run)
}

// cancelAbandoned cancels the children whose answer is not needed any more. Their usage arrives with their
// cancellation. never lists the children that were claimed and do not exist: one that is written later finds that it is
// not needed (isOrphaned).
func (p Ports) cancelAbandoned(ctx context.Context, s *run.AgentState) (never []run.OpenChild, err error) {
	for _, c := range policy.AbandonedChildren(s) {
		found, err := p.cancelChild(ctx, s, c.Run, "nobody waits for its answer any more")
		if err != nil {
			return nil, err
		}
		if !found {
			never = append(never, c)
		}
	}
	return never, nil
}

// dropAbandoned cancels the abandoned children of a batch's run, and removes those that do not exist.
func (r *round) dropAbandoned(ctx context.Context, p *batchPlan) error {
	never, err := r.cancelAbandoned(ctx, &p.draft.State)
	for _, c := range never {
		p.raiseDue(dueFirst)
		if err := p.draft.Add(run.Answered{Call: c.Call, By: "run:" + c.Run, Used: &run.ChildUsage{}}); err != nil {
			return err
		}
	}
	return err
}

// isOrphaned reports whether the parent of a run stopped waiting before the run was written. It is checked until the
// run has called a model. A settled call does not wait, even if its child is still recorded.
func (st *Stepper) isOrphaned(ctx context.Context, s *run.AgentState) (bool, error) {
	if s.Parent == nil || s.ModelCalls > 0 {
		return false, nil
	}
	l, err := st.Journal.Load(ctx, s.Tenant, s.Parent.Run)
	if errors.Is(err, store.ErrNoRun) { // it has ended, and was deleted
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("read run %s, which delegated run %s: %w", s.Parent.Run, s.Run, err)
	}
	child, noted := l.State.ChildOf(s.Parent.Call)
	c, ok := l.State.Call(s.Parent.Call)
	return l.State.Status == run.RunDone || !noted || child.Run != s.Run || !ok || !c.Open(), nil
}

// notifyFailedFamily announces the end of a run whose execution fails now, so that no batch will.
func (st *Stepper) notifyFailedFamily(ctx context.Context, inv Invocation, s *run.AgentState) error {
	if st.Family != nil && s.Owner == inv.Execution {
		if err := st.Family(ctx, s); err != nil {
			return err
		}
	}
	return st.announce(ctx, inv, s)
}

// notifySink passes an entry to a sink. It ignores a panic of the sink, since the entry is committed.
func notifySink(ctx context.Context, sink EventSink, e run.Entry, s *run.AgentState) {
	defer func() { _ = recover() }()
	sink.Committed(ctx, e, s)
}

// announce closes the requests that the run's end has left open, and tells the run's starter that it has ended, if this
// execution owns the run. It does so at least once and under one id, since every attempt that finds the run done
// repeats it. The end itself is committed and does not depend on the event.
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
	if err := p.NotifyFamily(ctx, s); err != nil {
		return err
	}
	return p.notifyBus(ctx, s)
}

// notifyBus announces the end of a run to its starter alone.
func (p Ports) notifyBus(ctx context.Context, s *run.AgentState) error {
	if p.Emit == nil {
		return nil
	}
	e, announced, err := policy.Announcement(s)
	if err != nil || !announced {
		return err
	}
	if err = p.Emit.Emit(ctx, e); errors.Is(err, ErrUndeliverable) { // it would be refused again
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
