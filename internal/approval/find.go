package approval

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/countersign/countersign/internal/run"
)

// findRequestOf returns the request that a decision is on. One that reports an outcome names it, its call, or both.
func (d *Desk) findRequestOf(ctx context.Context, r DecisionInput) (Approval, error) {
	if r.ID == "" && r.Call != "" {
		return d.findOutcomeRequest(ctx, r)
	}
	a, err := Get(ctx, d.Table, r.Tenant, r.ID)
	switch outcome := slices.Contains(kinds[KindOutcome].actions, r.Action); {
	case outcome && errors.Is(err, ErrNotFound):
		err = fmt.Errorf("answer call %s: %w", r.Call, ErrNothing)
	case outcome && err == nil && (a.Kind != KindOutcome || r.Call != "" && !a.asksOutcomeOf(r)):
		err = fmt.Errorf("answer call %s: approval %s: %w", r.Call, r.ID, ErrNothing)
	}
	return a, err
}

// findOutcomeRequest returns the request of an outcome that names a call alone: the one that was answered under the
// same key, else the newest about the call if the call has no earlier one. A repeated answer about an earlier attempt
// is never taken for a later attempt: if there were several requests, it is a *StaleError. A call that waits for no
// outcome is ErrNothing.
func (d *Desk) findOutcomeRequest(ctx context.Context, r DecisionInput) (Approval, error) {
	l, err := d.Journal.Load(ctx, r.Tenant, r.Run)
	if err != nil {
		return Approval{}, err
	}
	c, ok := l.State.Call(r.Call)
	if !ok || c.Asks == 0 {
		return Approval{}, fmt.Errorf("answer call %s: %w", r.Call, ErrNothing)
	}
	var newest Approval
	earlier := false
	for ask := c.Asks; ask > 0; ask-- {
		a, err := Get(ctx, d.Table, r.Tenant, run.ApprovalID(r.Run, c.ID, ask))
		if err != nil && (ask == c.Asks || !errors.Is(err, ErrNotFound)) {
			return Approval{}, err
		}
		if ask == c.Asks {
			newest = a
		}
		if a.asksOutcomeOf(r) {
			if r.Key != "" && slices.ContainsFunc(a.Decisions, func(d Decision) bool { return d.Key == r.Key }) {
				return a, nil
			}
			earlier = earlier || ask < c.Asks
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

func (a Approval) asksOutcomeOf(r DecisionInput) bool {
	return a.Kind == KindOutcome && a.Run == r.Run && a.Call() == r.Call
}
