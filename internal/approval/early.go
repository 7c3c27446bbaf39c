package approval

import (
	"context"
	"fmt"
	"slices"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

// PrepareDecision finds what a decision on s, the newest state of its run, refers to by Call, which names a call or a
// request of the run (seed 001, ToolCallDecision), and returns the step that commits it. The action is Approve, Deny
// or Cancel:
//
//	a suspended call                the decision on its request (Decide)
//	a blocked call, or its request  the decision on its tool, or on all tools of the request
//	a call that waited              its request is decided: the same result for the same decision, else *DecidedError
//	anything else, early: keep      kept until the target is suspended; ErrIgnored if the call has ended
//	anything else, early: refuse    ErrNothing: the person was shown nothing; ErrNoCall if the run has no such call
//
// The step may be made again. Its errors are those of Decide, ErrFinished if the run has ended, and ErrKept.
func (d *Desk) PrepareDecision(ctx context.Context, s *run.AgentState, r DecisionInput) (DecisionStep, error) {
	key := r.Key
	if r.Key != "" {
		r.Key = "decision/" + key
	}
	if id, tool, ok := findRequest(s, r.Call); ok {
		r.ID, r.Tool = id, tool
		return func(ctx context.Context, check Checked) error {
			r.Check = check
			_, err := d.Decide(ctx, r)
			return err
		}, nil
	}
	def, err := d.Definitions(ctx, r.Tenant, s.Definition)
	if err != nil {
		return nil, fmt.Errorf("decide %s of run %s: %w", r.Call, r.Run, err)
	}
	c, known := s.Call(r.Call)
	switch keep := def.Early == agent.EarlyKeep; {
	case keep && known && !c.Open():
		return nil, fmt.Errorf("decide call %s: %w", r.Call, ErrIgnored)
	case keep:
		return d.prepareEarlyDecision(r, key)
	case known:
		return nil, fmt.Errorf("decide call %s: nothing was shown: %w", r.Call, ErrNothing)
	default:
		return nil, fmt.Errorf("decide %q of run %s: %w", r.Call, r.Run, ErrNoCall)
	}
}

// findRequest returns the request that a target names: that of the suspended call, else of the call with that id, or of
// one that waited under it. For a blocked call it returns the tool as well; for the call's request it does not, because
// all of its tools are meant.
func findRequest(s *run.AgentState, target string) (id, tool string, ok bool) {
	if c, ok := policy.FindSuspended(s, target); ok {
		return c.Wait.Approval, "", true
	}
	if c, ok := s.Call(target); ok && policy.RequestOf(s, c) != "" {
		return policy.RequestOf(s, c), c.Tool, true
	}
	if c, ok := s.Call(target); ok && c.Asks > 0 {
		return run.ApprovalID(s.Run, c.ID, c.Asks), "", true
	}
	for _, c := range s.Calls() {
		if id := policy.RequestOf(s, c); id != "" && id == target {
			return id, "", true
		}
		id := run.ApprovalID(s.Run, c.ID, c.Asks)
		ticket, pending := policy.SuspensionIDs(c) // also of a suspension that is decided: the decision may be a repeated one
		if c.Asks > 0 && target != "" && slices.Contains([]string{id, ticket, pending}, target) {
			return id, "", true
		}
	}
	return "", "", false
}

// prepareEarlyDecision returns the step that puts a decision into the run's inbox, where it is kept until its
// target is suspended. The person is authorized then; an unauthenticated one is refused here.
func (d *Desk) prepareEarlyDecision(r DecisionInput, id string) (DecisionStep, error) {
	fact := run.DecisionKept{
		ID: id, Target: r.Call, Action: run.DecisionAction(r.Action), Note: r.Note, By: r.By.ID, Groups: r.By.Groups,
		Via: r.Via,
	}
	switch r.Action {
	case Deny, Cancel:
	case Approve:
		var err error
		if fact.Result, err = policy.CompactAnswer(r.Result); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("decide %s: action %q: %w", r.Call, r.Action, ErrKind)
	}
	switch {
	case r.Call == "":
		return nil, fmt.Errorf("decide nothing of run %s: %w", r.Run, ErrNoCall)
	case !policy.MayDecide([]string{r.By.ID}, r.By):
		return nil, fmt.Errorf("decide %s as %q: %w", r.Call, r.By.ID, ErrForbidden)
	case r.By.Unpinned && r.Action == Approve: // what will be asked is not known yet
		return nil, fmt.Errorf("decide %s as %s: %w", r.Call, r.By.ID, ErrUnpinned)
	}
	return func(ctx context.Context, check Checked) error {
		l, err := d.Journal.Load(ctx, r.Tenant, r.Run)
		if err != nil {
			return err
		}
		others := map[string]bool{} // the targets of the other decisions that the run keeps, or is about to take in
		for _, e := range slices.Concat(l.Inbox, run.Map(l.State.Kept, func(k run.DecisionKept) run.Event { return k })) {
			if k, ok := e.(run.DecisionKept); ok && k.Target != r.Call {
				others[k.Target] = true
			}
		}
		if len(others) >= policy.MaxKept {
			return fmt.Errorf("decide %s of run %s: %d: %w", r.Call, r.Run, len(others), ErrKept)
		}
		if check != nil {
			return nil
		}
		got, err := d.Journal.Accept(ctx, r.Tenant, r.Run, r.Key, fact)
		if err != nil {
			return err
		}
		if got.Closed {
			return fmt.Errorf("decide %s: %w", r.Call, ErrFinished)
		}
		return d.ResumeRun(ctx, r.Tenant, r.Run)
	}, nil
}
