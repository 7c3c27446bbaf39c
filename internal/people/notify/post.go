package notify

import (
	"context"
	"fmt"
	"time"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/people/show"
)

// post sends messages about one request as it was read.
type post struct {
	*Notifier
	a      approval.Approval
	shown  show.Request
	broken error // why the request cannot be shown; nil = it can
}

func (n *Notifier) post(ctx context.Context, a approval.Approval) post {
	p := post{Notifier: n, a: a}
	if n.Show != nil {
		if p.shown, p.broken = n.Show(ctx, a); p.broken != nil {
			p.broken = fmt.Errorf("show approval %s: %w", a.ID, p.broken)
		}
	}
	return p
}

// send sends messages one after the other, and warns of those that did not go.
func (p post) send(ctx context.Context, all []delivery) []sent {
	var done []sent
	for _, d := range all {
		s := sent{delivery: d}
		s.ref, s.err = p.one(ctx, d)
		if s.at = p.Clock.Now().Truncate(time.Millisecond); s.err != nil {
			p.warn(fmt.Sprintf("tell somebody of approval %s by %s", p.a.ID, d.channel.Name()), s.err)
		}
		done = append(done, s)
	}
	return done
}

// one sends a message or updates one.
func (p post) one(ctx context.Context, d delivery) (ref string, err error) {
	m, err := p.message(ctx, d)
	switch {
	case err != nil:
		return "", err
	case d.updates != "":
		return "", d.channel.Update(ctx, d.updates, m)
	}
	return d.channel.Send(ctx, m)
}

// message is what the person of a delivery is told.
func (p post) message(ctx context.Context, d delivery) (Message, error) {
	if p.broken != nil {
		return Message{}, p.broken
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
