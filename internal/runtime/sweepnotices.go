package runtime

import (
	"context"

	"github.com/countersign/countersign/internal/approval"
)

// maxDue is how many requests one sweep attends to because something about them is due. The others are due for the next one.
const maxDue = 1000

// due does what is due about requests to people. It comes first in a sweep, and is of all tenants at once: a reminder does not wait for a round.
// It takes half of the time there is at most, however slow channels are: runs that stand still are worse than people who are told late.
func (p *pass) due(ctx context.Context) {
	if p.Notices == nil {
		return
	}
	if deadline, ok := ctx.Deadline(); ok {
		half, cancel := p.Sweeper.Clock.WithTimeout(ctx, deadline.Sub(p.Sweeper.Clock.Now())/2)
		defer cancel()
		ctx = half
	}
	p.told(p.Notices.Due(ctx, maxDue))
}

// ensure has people told of a request of which nobody began to tell: whoever should have died. A minute after it was made nobody is at it any more.
func (p *pass) ensure(ctx context.Context, a approval.Approval) error {
	if p.Notices == nil || p.Sweeper.Clock.Now().Sub(a.RequestedAt) < settling {
		return nil
	}
	p.told(p.Notices.Ensure(ctx, a))
	return ctx.Err()
}

// told adds up what was done. What could not be is no sign that runs cannot be repaired, and stops nothing.
func (p *pass) told(did map[string]int64, err error) {
	for what, n := range did {
		p.report.Told[what] += n
	}
	if err != nil {
		p.report.Untold = append(p.report.Untold, err)
	}
}
