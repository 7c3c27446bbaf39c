package notify

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/people/person"
)

// maxRecipients is how many people are told of one request. The notice is one item, so it cannot hold more.
const maxRecipients = 500

// recipient is a person on one of the channels that the person wants.
type recipient struct {
	person  person.Person
	channel Channel
}

// approvers returns the people who may decide a request at that time and have not decided it yet.
func (n *Notifier) approvers(ctx context.Context, a approval.Approval, now time.Time) ([]person.Person, error) {
	if n.Directory == nil {
		return nil, nil
	}
	approvers, _ := a.ApproversAt(now)
	all, err := n.Directory.Members(ctx, a.Tenant, approvers)
	if err != nil {
		return nil, fmt.Errorf("find the approvers of approval %s: %w", a.ID, err)
	}
	all = slices.DeleteFunc(slices.Clone(all), func(p person.Person) bool { return !a.Awaits(p.Principal(), now) })
	if len(all) > maxRecipients {
		n.warn(fmt.Sprintf("tell everybody of approval %s: it asks %d people, of whom %d are told", a.ID, len(all),
			maxRecipients), nil)
		all = all[:maxRecipients]
	}
	return all, nil
}

// remarkDeliveries returns the messages about remarks that nobody was told of. A question is for the requesters, an
// answer for those who asked.
func (n *Notifier) remarkDeliveries(
	ctx context.Context, have *notice, a approval.Approval, now time.Time,
) (out []delivery, err error) {
	if have.Remarks >= len(a.Thread) || now.Before(have.NextRemarkTry) {
		return nil, nil
	}
	for i := have.Remarks; i < len(a.Thread) && n.Directory != nil; i++ {
		by, occasion, to := a.Thread[i].By, Question, a.Requesters
		var asked []string
		for _, r := range a.Thread[:i] {
			if !slices.Contains(a.Requesters, r.By) {
				asked = append(asked, r.By)
			}
		}
		if slices.Contains(a.Requesters, by) && len(asked) > 0 {
			occasion, to = Answer, asked
		}
		people, err := n.Directory.Members(ctx, a.Tenant, to)
		if err != nil {
			return nil, fmt.Errorf("find who is told of a remark about approval %s: %w", a.ID, err)
		}
		others := slices.DeleteFunc(slices.Clone(people), func(p person.Person) bool { return p.ID == by })
		for _, s := range n.listRecipients(others) {
			out = append(out, delivery{to: s.person, channel: s.channel, occasion: occasion, remark: i + 1})
		}
	}
	if len(out) == 0 { // nobody to tell
		have.Remarks = len(a.Thread)
	}
	return out, nil
}

// listRecipients returns people on the channels by which they want to be told, in each person's order.
func (n *Notifier) listRecipients(people []person.Person) (out []recipient) {
	for _, p := range people {
		channels := n.Channels
		if p.Notify != nil {
			channels = nil
			for _, name := range p.Notify {
				if c := n.findChannel(name); c != nil && !slices.Contains(channels, c) {
					channels = append(channels, c)
				}
			}
		}
		for _, c := range channels {
			if c.Reaches(p) {
				out = append(out, recipient{p, c})
			}
		}
	}
	return out
}

// findChannel returns the channel of that name; nil = this deployment has none.
func (n *Notifier) findChannel(name string) Channel {
	i := slices.IndexFunc(n.Channels, func(c Channel) bool { return c.Name() == name })
	if i < 0 {
		return nil
	}
	return n.Channels[i]
}
