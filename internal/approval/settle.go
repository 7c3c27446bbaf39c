package approval

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/prompt"
	"github.com/countersign/countersign/internal/run"
)

// findRequestOf returns the request that a decision is on.
func (d *Desk) findRequestOf(ctx context.Context, r DecisionInput) (Approval, error) {
	if r.ID == "" && r.Call != "" {
		return d.findOutcomeRequest(ctx, r)
	}
	a, err := Get(ctx, d.Table, r.Tenant, r.ID)
	outcome := slices.Contains(kinds[KindOutcome].actions, r.Action)
	if err == nil && outcome && (a.Kind != KindOutcome || r.Call != "" && !a.asksOutcomeOf(r)) {
		err = fmt.Errorf("answer call %s: approval %s: %w", r.Call, r.ID, ErrNothing)
	}
	return a, err
}

// findOutcomeRequest returns the request of an outcome that names a call alone: the one that was answered under the same
// key, else the newest about the call if the call has no earlier one. A repeated answer about an earlier attempt is
// never taken for a later attempt: if there were several requests, it is a *StaleError. A call that waits for no outcome
// is ErrNothing.
func (d *Desk) findOutcomeRequest(ctx context.Context, r DecisionInput) (Approval, error) {
	l, err := d.Journal.Load(ctx, r.Tenant, r.Run)
	if err != nil {
		return Approval{}, err
	}
	c, ok := l.State.Call(r.Call)
	if !ok || c.Asks == 0 {
		return Approval{}, fmt.Errorf("answer call %s: %w", r.Call, ErrNothing)
	}
	newest, err := Get(ctx, d.Table, r.Tenant, run.ApprovalID(r.Run, c.ID, c.Asks))
	if err != nil {
		return Approval{}, err
	}
	earlier := false
	for ask, a := c.Asks, newest; ; {
		if a.asksOutcomeOf(r) {
			if r.Key != "" && slices.ContainsFunc(a.Decisions, func(d Decision) bool { return d.Key == r.Key }) {
				return a, nil
			}
			earlier = earlier || ask < c.Asks
		}
		if ask--; ask == 0 {
			break
		}
		if a, err = Get(ctx, d.Table, r.Tenant, run.ApprovalID(r.Run, c.ID, ask)); err != nil && !errors.Is(err, ErrNotFound) {
			return Approval{}, err
		}
	}
	switch {
	case !newest.asksOutcomeOf(r):
		return Approval{}, fmt.Errorf("answer call %s: %w", r.Call, ErrNothing)
	case earlier && newest.Status == Pending:
		return Approval{}, &StaleError{Approval: newest}
	}
	return newest, nil
}

// asksOutcomeOf reports whether the request asks for the outcome of r's call.
func (a Approval) asksOutcomeOf(r DecisionInput) bool {
	return a.Kind == KindOutcome && a.Run == r.Run && a.Call() == r.Call
}

// tallyOutcome is tallyCall of what became of an interrupted call: a result, an error, or the order to run it again. The
// order takes the quorum of the approval, if the call was approved. The model is told the answer and, if somebody had
// edited the call's arguments, the edited arguments (A8).
func (d *Desk) tallyOutcome(
	ctx context.Context, a Approval, r DecisionInput, decision Decision, fact run.Decided,
) (*run.Decided, Approval, error) {
	def, _, c, err := d.loadCall(ctx, a)
	if err != nil {
		return nil, a, err
	}
	decision.Key, decision.Args = r.Key, r.reported()
	decided := a.withDecision(fact, decision)
	if r.Action != Rerun { // as a tool result of the agent is shortened; the request keeps all of it
		fact.Text = prompt.ShowResult(def, agent.ToolSpec{}, a.Call(), r.Content, false).Text
		if by := c.Editor(); by != "" {
			fact.Text = agent.TextEdited(by, string(c.Input)) + fact.Text
		}
		return &fact, decided, nil
	}
	if !a.takesApprover(r) {
		return &fact, decided, nil
	}
	counted := decided.CountedApprovals()
	if len(counted) < a.Quorum {
		a.Decisions = decided.Decisions
		return nil, a, nil
	}
	fact.With = peopleOf(counted[:len(counted)-1])
	return &fact, decided, nil
}
