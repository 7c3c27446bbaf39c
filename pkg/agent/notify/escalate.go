package notify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/countersign/countersign/pkg/agent"
	"github.com/countersign/countersign/pkg/agent/approval"
	"github.com/countersign/countersign/pkg/agent/store"
)

// escalate records that those whom a request's rule names decide it as well, once, if it is pending and the time has come; changed says that this
// call did. The request is given as it stands then.
//
// It stands for approval.Escalate and is to be replaced by that, as what is below is by what package approval says of who decides at a time.
func escalate(ctx context.Context, t store.Table, tenant, id string, now time.Time) (a approval.Approval, changed bool, err error) {
	for {
		it, found, err := t.Get(ctx, store.Key{PK: "T#" + tenant + "#APPROVAL#" + id, SK: "A"})
		if err != nil {
			return approval.Approval{}, false, fmt.Errorf("escalate approval %s: %w", id, err)
		}
		if !found {
			return approval.Approval{}, false, fmt.Errorf("escalate approval %s: %w", id, approval.ErrNotFound)
		}
		a = approval.Approval{}
		if err := json.Unmarshal(it.Body, &a); err != nil {
			return approval.Approval{}, false, fmt.Errorf("escalate approval %s: %w", id, err)
		}
		a.Tenant, a.Status = tenant, approval.Status(it.Attrs["status"].String())
		if !escalates(a, now) {
			return a, false, nil
		}
		a.EscalatedAt = now.UTC().Truncate(time.Millisecond)
		op, err := escalated(it, a, now)
		if err != nil {
			return approval.Approval{}, false, err
		}
		err = t.Write(ctx, op)
		var failed *store.ConditionError
		if errors.As(err, &failed) {
			continue
		}
		return a, err == nil, err
	}
}

// escalates reports whether the time has come.
func escalates(a approval.Approval, now time.Time) bool {
	return a.Status == approval.Pending && !a.EscalatesAt.IsZero() && a.EscalatedAt.IsZero() && !now.Before(a.EscalatesAt) && now.Before(a.ExpiresAt)
}

// escalated writes the item as it was read with another body.
func escalated(it store.Item, a approval.Approval, now time.Time) (store.Op, error) {
	body, err := agent.MarshalVerbatim(a)
	if err != nil {
		return store.Op{}, fmt.Errorf("escalate approval %s: %w", a.ID, err)
	}
	cond := []store.Cond{
		{Attr: "status", Op: store.Equal, Value: store.Str(string(approval.Pending))},
		{Attr: "expires", Op: store.Above, Value: store.Num(now.UnixMilli())},
	}
	it.Body, it.Attrs = body, maps.Clone(it.Attrs)
	if rev, ok := it.Attrs["rev"]; ok {
		cond = append(cond, store.Cond{Attr: "rev", Op: store.Equal, Value: rev})
		it.Attrs["rev"] = store.Num(rev.Int() + 1)
	}
	return store.Op{Kind: store.Put, Item: it, If: cond}, nil
}

// late are those who decide as well by now.
func late(a approval.Approval) []string {
	if a.EscalatedAt.IsZero() {
		return nil
	}
	return a.EscalateTo
}

// sets are the principals of whom somebody decides.
func sets(a approval.Approval, _ time.Time) []string { return slices.Concat(a.Approvers, late(a)) }

// mayDecide reports whether who is among those who decide.
func mayDecide(a approval.Approval, who agent.Principal, now time.Time) bool {
	return agent.MayDecideEach(who, sets(a, now), a.Above)
}

// mayDecideCall is mayDecide of a call among those of a request about tools.
func mayDecideCall(a approval.Approval, c approval.Blocked, who agent.Principal, _ time.Time) bool {
	return agent.MayDecideEach(who, slices.Concat(c.Approvers, late(a)), c.Above)
}
