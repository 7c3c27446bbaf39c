package approval

import (
	"context"
	"fmt"

	"github.com/countersign/countersign/pkg/agent"
)

// right is the principal by whose right somebody decides a request: their own, or that of the first who has let them decide meanwhile and
// is among the approvers. Where nobody's is, it is their own, which authorise refuses.
func (d *Desk) right(ctx context.Context, a Approval, by agent.Principal) (agent.Principal, error) {
	if agent.MayDecideEach(by, a.Approvers, a.Above) {
		return by, nil
	}
	all, err := d.actsAs(ctx, a.Tenant, by)
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
