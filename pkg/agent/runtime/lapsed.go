package runtime

import (
	"context"

	"github.com/countersign/countersign/pkg/agent"
	"github.com/countersign/countersign/pkg/agent/approval"
	"github.com/countersign/countersign/pkg/agent/store"
)

// lapsed ends the approvals of calls about which the draft asks people again: nothing runs under them any more.
func (p Ports) lapsed(ctx context.Context, before *agent.AgentState, d *agent.Draft) ([]store.Op, error) {
	granted := map[string]string{}
	for _, c := range before.Live {
		if c.Grant != nil && !c.Grant.Tool && !c.Grant.Consumed {
			granted[c.ID] = c.Grant.Approval
		}
	}
	var ops []store.Op
	for _, e := range d.Entry.Events {
		switch e := e.(type) {
		case agent.Decided:
			if e.Action == agent.ActionApprove {
				granted[e.Call] = e.Approval
			}
		case agent.CallClaimed:
			delete(granted, e.Call)
		case agent.CallSuspended:
			id, was := granted[e.Call]
			if !was || e.For != "" {
				continue
			}
			a, err := approval.Get(ctx, p.Table, before.Tenant, id)
			if err != nil {
				return nil, err
			}
			if a.Kind == approval.KindCall && a.Status == approval.Approved {
				ops = append(ops, approval.LapseOp(a))
			}
		}
	}
	return ops, nil
}
