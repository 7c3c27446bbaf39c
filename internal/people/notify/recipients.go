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

// remarkRecipients returns the people whom a remark is for: the requesters for a question, those who asked for an
// answer.
func (n *Notifier) remarkRecipients(
	ctx context.Context, a approval.Approval, i int,
) ([]person.Person, Occasion, error) {
	if n.Directory == nil {
		return nil, Question, nil
	}
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
		return nil, occasion, fmt.Errorf("find who is told of a remark about approval %s: %w", a.ID, err)
	}
	return slices.DeleteFunc(slices.Clone(people), func(p person.Person) bool { return p.ID == by }), occasion, nil
}

// channelsOf returns the channels by which a person wants to be told, in the person's order.
func (n *Notifier) channelsOf(p person.Person) []Channel {
	var out []Channel
	if p.Notify == nil {
		for _, c := range n.Channels {
			if c.Reaches(p) {
				out = append(out, c)
			}
		}
		return out
	}
	for _, name := range p.Notify {
		if c := n.findChannel(name); c != nil && c.Reaches(p) && !slices.Contains(out, c) {
			out = append(out, c)
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
