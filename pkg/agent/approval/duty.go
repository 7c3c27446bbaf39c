package approval

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/countersign/countersign/pkg/agent"
	"github.com/countersign/countersign/pkg/agent/store"
)

// MayDecide reports whether p is among the approvers.
func (a Approval) MayDecide(p agent.Principal, _ time.Time) bool {
	return agent.MayDecideEach(p, a.Approvers, a.Above)
}

// Rewrite changes a pending request, however many write at once: change is given the request as it stands, and says false where there is nothing
// to change. It is called again where somebody else wrote first. What it changes is never the digest, nor who may decide.
//
// Errors: ErrNotFound; *DecidedError where the request is not pending; change's own; store.ErrConflict where others keep writing.
func Rewrite(ctx context.Context, t store.Table, tenant, id string, change func(a *Approval) (bool, error)) (a Approval, changed bool, err error) {
	for range maxRaces {
		if a, err = Get(ctx, t, tenant, id); err != nil {
			return Approval{}, false, err
		}
		if a.Status != Pending {
			return a, false, &DecidedError{Approval: a}
		}
		if changed, err = change(&a); err != nil || !changed {
			return a, false, err
		}
		op, err := put(a)
		if err != nil {
			return Approval{}, false, err
		}
		op.If = append([]store.Cond{{Attr: "status", Op: store.Equal, Value: store.Str(string(Pending))}}, unchanged(a)...)
		for i, p := range a.Permissions { // a claim uses a grant up without writing the body
			op.If = append(op.If, isVerdict(i, p.recorded()))
		}
		err = t.Write(ctx, op)
		var raced *store.ConditionError
		switch {
		case err == nil:
			return a.written(), true, nil
		case !errors.As(err, &raced) && !errors.Is(err, store.ErrConflict):
			return Approval{}, false, fmt.Errorf("write approval %s: %w", id, err)
		}
	}
	return Approval{}, false, fmt.Errorf("write approval %s: %w", id, store.ErrConflict)
}

// right is the principal by whose right somebody decides a request: their own, or that of the first who has let them decide meanwhile and
// is among the approvers. Where nobody's is, it is their own, which authorise refuses.
func (d *Desk) right(ctx context.Context, a Approval, by agent.Principal) (agent.Principal, error) {
	if agent.MayDecideEach(by, a.Approvers, a.Above) {
		return by, nil
	}
	if d.Duties == nil {
		return by, nil
	}
	all, err := d.Duties(ctx, a.Tenant, by, d.Clock.Now())
	if err != nil {
		return agent.Principal{}, fmt.Errorf("decide approval %s as %s: %w", a.ID, by.ID, err)
	}
	for _, p := range all {
		if agent.MayDecideEach(p, a.Approvers, a.Above) {
			return p, nil
		}
	}
	return by, nil
}

// meanwhile is whose right By decides by; "" = their own.
func (r Request) meanwhile() string {
	if r.right.ID == r.By.ID {
		return ""
	}
	return r.right.ID
}
