package scenario

import (
	"context"
	"time"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/people/person"
)

// talk says something of the newest request about a call, and decides nothing.
func (p *part) talk(l line) (action, error) {
	_, id, err := p.asked(l.call)
	if err != nil {
		return nil, err
	}
	w := approval.Word{Tenant: tenant, ID: id, Text: l.note, By: l.by}
	say := p.stage.machine.Desk.Ask
	if l.do == "reply" {
		say = p.stage.machine.Desk.Reply
	}
	return func(ctx context.Context) error {
		_, err := say(ctx, w)
		return err
	}, nil
}

// giveDuty lets another decide in the place of who says so. Without from it is from now on; repeated, it is the same duty.
func (s *stage) giveDuty(l line) action {
	d := person.Duty{To: l.to, From: l.from, Until: l.until, Note: l.note}
	if d.From.IsZero() {
		d.From = s.clock.Now()
	}
	duties := person.Duties{Table: s.machine.Ports.Table, Directory: s.machine.People}
	return func(ctx context.Context) error {
		_, err := duties.Give(ctx, tenant, l.by, d, s.clock.Now())
		return err
	}
}

// instant reads a time of a line; "" = none.
func instant(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	return time.Parse(time.RFC3339, text)
}
