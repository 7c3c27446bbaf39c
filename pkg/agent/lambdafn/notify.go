package lambdafn

import (
	"context"
	"fmt"

	"github.com/countersign/countersign/pkg/agent/approval"
	"github.com/countersign/countersign/pkg/agent/notify"
	"github.com/countersign/countersign/pkg/agent/runtime"
)

// notifier is what tells people of requests, from a function's environment: functions/approve tells those who are asked, functions/sweep does
// what is due, and whatever takes decisions has messages updated. Without channels nobody is told, and functions/sweep lets others decide in
// time all the same.
//
// It is called by the mains that tell people, and by nothing that functions/step and functions/tool reach: they link none of it.
func notifier(p runtime.Ports, _ func(string) string, log func(text string)) (*notify.Notifier, error) { //nolint:unparam // what the environment names can be wrong
	return &notify.Notifier{
		Table: p.Table, Journal: p.Journal, Clock: p.Clock,
		Warn: func(what string, _ error) { log("could not " + what) }, // what an error says may be content (R17)
	}, nil
}

// telling adds what tells people who are asked. Where there is no channel there is nobody to tell, and nothing is read or written for it.
func telling(getenv func(string) string, watch *Observer, p *runtime.Ports) error {
	n, err := notifier(*p, getenv, watch.Log)
	if err != nil {
		return fmt.Errorf("tell people of requests: %w", err)
	}
	if len(n.Channels) > 0 {
		p.Notify = n
	}
	return nil
}

// decided is what a desk tells of a decision: first, then whatever tells people, if that is told of decisions.
func decided(first func(context.Context, approval.Approval), tells runtime.Notify) func(context.Context, approval.Approval) {
	second, ok := tells.(interface {
		Decided(ctx context.Context, a approval.Approval)
	})
	if !ok {
		return first
	}
	return func(ctx context.Context, a approval.Approval) {
		if first != nil {
			first(ctx, a)
		}
		second.Decided(ctx, a)
	}
}
