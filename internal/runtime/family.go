package runtime

import (
	"context"
	"errors"
	"fmt"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// hasFamily reports whether the end of s concerns another run: the one that waits for it, or one that it has begun.
func hasFamily(s *run.AgentState) bool { return s.Parent != nil || len(s.Children.Open) > 0 }

// tellFamily does what the end of a run means to others: the children that it still has are cancelled, and theirs, and the run whose call
// it was is answered, with what all of them used. It may be repeated: a run that has ended uses nothing more.
func (p Ports) tellFamily(ctx context.Context, s *run.AgentState) error {
	if s.Status != run.RunDone || !hasFamily(s) {
		return nil
	}
	used, err := p.usedInAll(ctx, s)
	if err != nil || s.Parent == nil {
		return err
	}
	return p.answerParent(ctx, s, used)
}

// usedInAll is what a run that has ended used with the children that it has not heard of. It ends those, and what is below them with that.
func (p Ports) usedInAll(ctx context.Context, s *run.AgentState) (run.ChildUsage, error) {
	for _, c := range s.Children.Open {
		if _, err := p.cancelChild(ctx, s, c.Run, "the run that it worked for has ended"); err != nil {
			return run.ChildUsage{}, err
		}
	}
	return p.sum(ctx, s)
}

// sum is what a run used with the children that it has not heard of, where all of them have ended. It ends none: whoever ends a run ends those
// below it, and doing so again at each level would be twice as much for each.
func (p Ports) sum(ctx context.Context, s *run.AgentState) (run.ChildUsage, error) {
	used := s.Used()
	for _, c := range s.Children.Open {
		l, err := p.Journal.Load(ctx, s.Tenant, c.Run)
		if errors.Is(err, store.ErrNoRun) {
			continue
		}
		if err != nil {
			return run.ChildUsage{}, fmt.Errorf("count what run %s used: %w", c.Run, err)
		}
		of, err := p.sum(ctx, &l.State)
		if err != nil {
			return run.ChildUsage{}, err
		}
		used = used.Add(of)
	}
	return used, nil
}

// cancelChild calls a run's child off, and reports whether there is one: it has ended then, by itself or so. One that was claimed and is not
// written is not found: it looks at its parent before it does anything (orphaned).
func (p Ports) cancelChild(ctx context.Context, s *run.AgentState, child, why string) (found bool, err error) {
	c := Canceller{Ports: p, Definitions: p.definition}
	_, err = c.Cancel(ctx, s.Tenant, child, byRun(s), why)
	if errors.Is(err, store.ErrNoRun) {
		return false, nil
	}
	return err == nil, err
}

// byRun is how a run is named where people are.
func byRun(s *run.AgentState) string { return "run:" + s.Run }

// definition reads a pinned definition. It is for who needs one now and then.
func (p Ports) definition(ctx context.Context, tenant, digest string) (*agent.Definition, error) {
	return readDefinition(ctx, p.Blobs, tenant, digest)
}

// answerParent puts what came of a run that has ended into the inbox of the one whose call it was, once, and wakes that.
func (p Ports) answerParent(ctx context.Context, s *run.AgentState, used run.ChildUsage) error {
	l, err := p.Journal.Load(ctx, s.Tenant, s.Parent.Run)
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
	fact, err := in.answered(ctx, def, Answer{Tenant: s.Tenant, Run: s.Parent.Run, Call: s.Parent.Call, Content: text, IsError: isError, By: byRun(s)}, call)
	if err != nil {
		return err
	}
	fact.Used = &used
	_, err = p.Journal.Accept(ctx, s.Tenant, s.Parent.Run, "answer/"+s.Parent.Call, fact)
	if err != nil && !errors.Is(err, store.ErrOtherInput) { // said before, in other words
		return fmt.Errorf("answer run %s: %w", s.Parent.Run, err)
	}
	return (&Waits{Ports: p}).Wake(ctx, s.Tenant, s.Parent.Run)
}

// TellFamily is what the end of a run means to the runs around it: those that it has begun are cancelled, and the one whose call it was is
// answered. It may be repeated, and does nothing to a run that goes on.
func (p Ports) TellFamily(ctx context.Context, s *run.AgentState) error {
	return p.tellFamily(ctx, s)
}

// dropAbandoned calls off the children for whose answer nobody waits any more. What they used comes with that. never are those that were
// claimed and are not there: should one be written yet, it will see that nobody waits for it (orphaned).
func (p Ports) dropAbandoned(ctx context.Context, s *run.AgentState) (never []run.OpenChild, err error) {
	for _, c := range policy.Abandoned(s) {
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

// dropAbandoned is that for the run of a batch; it takes off those that never were.
func (r *round) dropAbandoned(ctx context.Context, p *batchPlan) error {
	never, err := r.Ports.dropAbandoned(ctx, &p.draft.State)
	for _, c := range never {
		p.by(first)
		if err := p.draft.Add(run.Answered{Call: c.Call, By: "run:" + c.Run, Used: &run.ChildUsage{}}); err != nil {
			return err
		}
	}
	return err
}

// orphaned reports whether a run that has asked nothing yet was begun for one that does not wait for it: that could not call it off while
// it was not written. A call that is settled waits no more, though its child is still noted: who notes that there is none has looked before.
func (st *Stepper) orphaned(ctx context.Context, s *run.AgentState) (bool, error) {
	if s.Parent == nil || s.ModelCalls > 0 {
		return false, nil
	}
	l, err := st.Journal.Load(ctx, s.Tenant, s.Parent.Run)
	if err != nil {
		return false, fmt.Errorf("look at run %s, which asked for run %s: %w", s.Parent.Run, s.Run, err)
	}
	return !l.State.AwaitsChild(s.Parent.Call, s.Run), nil
}

// fallen tells of the end of a run whose execution fails now, so that no batch will.
func (st *Stepper) fallen(ctx context.Context, inv Invocation, s *run.AgentState) error {
	if st.Family != nil && s.Owner == inv.Execution {
		if err := st.Family(ctx, s); err != nil {
			return err
		}
	}
	return st.announce(ctx, inv, s)
}
