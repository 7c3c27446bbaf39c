package notify

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/people/person"
	"github.com/countersign/countersign/internal/people/show"
)

// sender sends messages about one request.
type sender struct {
	*Notifier
	a       approval.Approval
	shown   show.Document
	showErr error // why the request cannot be shown; nil = it can
}

func (n *Notifier) newSender(ctx context.Context, a approval.Approval) sender {
	p := sender{Notifier: n, a: a}
	if n.Show != nil {
		if p.shown, p.showErr = n.Show(ctx, a); p.showErr != nil {
			p.showErr = fmt.Errorf("show approval %s: %w", a.ID, p.showErr)
		}
	}
	return p
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
	c, s := n.findChannel(channel), n.newSender(ctx, a)
	if c == nil || s.showErr != nil {
		return cmp.Or(s.showErr, fmt.Errorf("send a code for approval %s: there is no channel %s", a.ID, channel))
	}
	_, err := c.Send(ctx, Message{Occasion: Code, Approval: a, Shown: s.shown, To: to, Code: code})
	return err
}

// send sends messages one after the other, and warns of failures.
func (p sender) send(ctx context.Context, all []delivery) []sent {
	var done []sent
	for _, d := range all {
		s := sent{delivery: d}
		m, err := p.buildMessage(ctx, d)
		switch {
		case err != nil:
			s.err = err
		case d.updates != "":
			s.err = d.channel.Update(ctx, d.updates, m)
		default:
			s.ref, s.err = d.channel.Send(ctx, m)
		}
		if s.at = p.Clock.Now().Truncate(time.Millisecond); s.err != nil {
			p.warn(fmt.Sprintf("tell somebody of approval %s by %s", p.a.ID, d.channel.Name()), s.err)
		}
		done = append(done, s)
	}
	return done
}

// buildMessage builds the message of a delivery.
func (p sender) buildMessage(ctx context.Context, d delivery) (Message, error) {
	if p.showErr != nil {
		return Message{}, p.showErr
	}
	m := Message{Occasion: d.occasion, Approval: p.a, Shown: p.shown, To: d.to}
	if d.updates != "" && p.Directory != nil {
		who, found, err := p.Directory.Person(ctx, p.a.Tenant, d.to.ID)
		if err != nil {
			return Message{}, fmt.Errorf("find %s: %w", d.to.ID, err)
		}
		if found {
			m.To = who
		}
	}
	if p.Links != nil {
		var err error
		if m.Link, err = p.Links.URL(ctx, p.a, d.to.ID, d.channel.Name()); err != nil {
			return Message{}, fmt.Errorf("make the link of a message: %w", err)
		}
	}
	return m, nil
}
