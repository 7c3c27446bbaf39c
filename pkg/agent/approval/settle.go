package approval

import (
	"context"
	"fmt"
	"time"

	"github.com/countersign/countersign/pkg/agent"
	"github.com/countersign/countersign/pkg/agent/store"
)

// Outcome is somebody's word on what became of a call that was interrupted: a result, an error, or the order to run it again.
type Outcome struct {
	Tenant, Run, Call string
	Content           string
	IsError           bool
	Rerun             bool
	By                agent.Principal
}

// Settle records what became of a call, once, and wakes the run. It is data, not a decision: whoever may act for the tenant
// may say it; but running a call again that needed an approval takes one of its approvers. The answer to an overtaken question is a *DecidedError; a call that waits for no outcome is ErrNothing.
func (d *Desk) Settle(ctx context.Context, o Outcome) (Approval, error) {
	l, err := d.Journal.Load(ctx, o.Tenant, o.Run)
	if err != nil {
		return Approval{}, err
	}
	if l.State.Status == agent.RunDone {
		return Approval{}, fmt.Errorf("answer call %s: %w", o.Call, ErrFinished)
	}
	c, ok := l.State.Call(o.Call)
	if !ok || c.Wait == nil || c.Wait.For != agent.ForOutcome {
		return Approval{}, fmt.Errorf("answer call %s: %w", o.Call, ErrNothing)
	}
	a, err := Get(ctx, d.Table, o.Tenant, c.Wait.Approval)
	if err != nil {
		return Approval{}, err
	}
	if o.Rerun && c.Grant != nil && !agent.MayDecide(a.Approvers, o.By) {
		return Approval{}, fmt.Errorf("run call %s again as %s: it was approved once and takes an approver again: %w", o.Call, o.By.ID, ErrForbidden)
	}
	return d.settle(ctx, a, o)
}

func (d *Desk) settle(ctx context.Context, a Approval, o Outcome) (Approval, error) {
	if a.Status != Pending {
		return Approval{}, &DecidedError{Approval: a}
	}
	now := d.Clock.Now().Truncate(time.Millisecond)
	a.Status = Approved
	a.Decisions = append(a.Decisions[:len(a.Decisions):len(a.Decisions)], Decision{By: o.By.ID, Action: o.action(), At: now})
	op, err := put(a)
	if err != nil {
		return Approval{}, err
	}
	op.If = []store.Cond{{Attr: "status", Op: store.Equal, Value: store.Str(string(Pending))}}
	fact := agent.Answered{Call: o.Call, Approval: a.ID, Content: o.Content, IsError: o.IsError, Rerun: o.Rerun, By: o.By.ID}
	got, err := d.Journal.Accept(ctx, a.Tenant, a.Run, "", fact, op)
	if err != nil {
		return Approval{}, fmt.Errorf("answer call %s: %w", o.Call, err)
	}
	if got.Closed {
		return Approval{}, fmt.Errorf("answer call %s: %w", o.Call, ErrFinished)
	}
	if err := d.Wake(ctx, a.Tenant, a.Run); err != nil {
		return Approval{}, fmt.Errorf("wake run %s: %w", a.Run, err)
	}
	return a, nil
}

// action is how the answer is recorded with the request.
func (o Outcome) action() Action {
	switch {
	case o.Rerun:
		return "rerun"
	case o.IsError:
		return "error"
	default:
		return "result"
	}
}
