package scenario

import (
	"context"

	"github.com/countersign/countersign/internal/approval"
)

// talk says something of the newest request about a call, and decides nothing.
func (p *part) talk(l line) (action, error) {
	_, id, err := p.asked(l.call)
	if err != nil {
		return nil, err
	}
	w := approval.RemarkInput{Tenant: tenant, ID: id, Text: l.note, By: l.by}
	say := p.stage.machine.Desk.AskQuestion
	if l.do == "reply" {
		say = p.stage.machine.Desk.ReplyToQuestion
	}
	return func(ctx context.Context) error {
		_, err := say(ctx, w)
		return err
	}, nil
}
