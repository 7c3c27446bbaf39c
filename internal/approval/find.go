package approval

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/countersign/countersign/internal/run"
)

// findRequest returns the request that a decision is on. One that reports an outcome names it, its call, or both. Of a
// call alone it is the request that was answered under the same key, else the newest one if the call has no earlier one.
// A repeated answer about an earlier attempt is never taken for a later attempt: if there were several requests, it is a
// *StaleError. A call that waits for no outcome is ErrNothing.
func (t *attempt) findRequest(ctx context.Context) (Approval, error) {
	asks := func(a Approval) bool { return a.Kind == KindOutcome && a.Run == t.Run && a.Call() == t.Call }
	if t.ID != "" || t.Call == "" {
		a, err := Get(ctx, t.Table, t.Tenant, t.ID)
		switch outcome := slices.Contains(kinds[KindOutcome].actions, t.Action); {
		case outcome && errors.Is(err, ErrNotFound):
			err = fmt.Errorf("answer call %s: %w", t.Call, ErrNothing)
		case outcome && err == nil && (a.Kind != KindOutcome || t.Call != "" && !asks(a)):
			err = fmt.Errorf("answer call %s: approval %s: %w", t.Call, t.ID, ErrNothing)
		}
		return a, err
	}
	l, err := t.Journal.Load(ctx, t.Tenant, t.Run)
	if err != nil {
		return Approval{}, err
	}
	c, _ := l.State.Call(t.Call)
	var found []Approval // the newest first
	for ask := c.Asks; ask > 0; ask-- {
		a, err := Get(ctx, t.Table, t.Tenant, run.ApprovalID(t.Run, c.ID, ask))
		switch {
		case err != nil && (ask == c.Asks || !errors.Is(err, ErrNotFound)):
			return Approval{}, err
		case err != nil || !asks(a):
		case t.Key != "" && slices.ContainsFunc(a.Decisions, func(d Decision) bool { return d.Key == t.Key }):
			return a, nil
		default:
			found = append(found, a)
		}
	}
	switch {
	case len(found) == 0 || found[0].ID != run.ApprovalID(t.Run, c.ID, c.Asks):
		return Approval{}, fmt.Errorf("answer call %s: %w", t.Call, ErrNothing)
	case len(found) > 1 && found[0].Status == Pending:
		return Approval{}, &StaleError{Approval: found[0]}
	}
	return found[0], nil
}
