package scenario

import (
	"context"

	"github.com/countersign/countersign/internal/approval"
)

// commentAction says something of the newest request about a call, and decides nothing.
func (sr *scriptedRun) commentAction(l line) (action, error) {
	_, id, err := sr.findRequest(l.call)
	if err != nil {
		return nil, err
	}
	w := approval.Word{Tenant: tenant, ID: id, Text: l.note, By: l.by}
	say := sr.sim.machine.Desk.Ask
	if l.do == "reply" {
		say = sr.sim.machine.Desk.Reply
	}
	return func(ctx context.Context) error {
		_, err := say(ctx, w)
		return err
	}, nil
}
