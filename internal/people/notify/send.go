package notify

import (
	"cmp"
	"context"
	"fmt"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/people/person"
	"github.com/countersign/countersign/internal/people/show"
)

// document returns what messages show of a request.
func (n *Notifier) document(ctx context.Context, a approval.Approval) (d show.Document, err error) {
	if n.Show != nil {
		if d, err = n.Show(ctx, a); err != nil {
			err = fmt.Errorf("show approval %s: %w", a.ID, err)
		}
	}
	return d, err
}

// SecondChannel returns the name of a channel that reaches the person, other than first; "" = there is none.
func (n *Notifier) SecondChannel(p person.Person, first string) string {
	for _, c := range n.Channels {
		if c.Name() != first && c.Reaches(p) {
			return c.Name()
		}
	}
	return ""
}

// SendCode sends a person a code for the page of a request by a channel. A message that is lost is not sent again: the
// code is stored nowhere, and the person asks for another.
func (n *Notifier) SendCode(ctx context.Context, a approval.Approval, to person.Person, channel, code string) error {
	c := n.findChannel(channel)
	shown, err := n.document(ctx, a)
	if c == nil || err != nil {
		return cmp.Or(err, fmt.Errorf("send a code for approval %s: there is no channel %s", a.ID, channel))
	}
	_, err = c.Send(ctx, Message{Occasion: Code, Approval: a, Shown: shown, To: to, Code: code})
	return err
}

// buildMessage builds the message of a delivery.
func (p *pass) buildMessage(ctx context.Context, r *leasedRequest, d delivery) (Message, error) {
	if r.showErr != nil {
		return Message{}, r.showErr
	}
	m := Message{Occasion: d.occasion, Approval: r.a, Shown: r.shown, To: d.to}
	if d.updates != "" && p.Directory != nil {
		who, found, err := p.Directory.Person(ctx, r.a.Tenant, d.to.ID)
		if err != nil {
			return Message{}, fmt.Errorf("find %s: %w", d.to.ID, err)
		}
		if found {
			m.To = who
		}
	}
	if p.Links != nil {
		var err error
		if m.Link, err = p.Links.URL(ctx, r.a, d.to.ID, d.channel.Name()); err != nil {
			return Message{}, fmt.Errorf("make the link of a message: %w", err)
		}
	}
	return m, nil
}
