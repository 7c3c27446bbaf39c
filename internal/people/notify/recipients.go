package notify

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/people/person"
	"github.com/countersign/countersign/internal/policy"
)

// maxRecipients is how many people are told of one request. The notice is one item, so it cannot hold more.
const maxRecipients = 500

// approvers returns the people who may decide a request now and have not decided it yet.
func (n *Notifier) approvers(ctx context.Context, a approval.Approval) ([]person.Person, error) {
	if n.Directory == nil {
		return nil, nil
	}
	now := n.Clock.Now()
	approvers, _ := a.ApproversAt(now)
	all, err := n.Directory.Members(ctx, a.Tenant, approvers)
	if err != nil {
		return nil, fmt.Errorf("find the approvers of approval %s: %w", a.ID, err)
	}
	all = slices.DeleteFunc(slices.Clone(all), func(p person.Person) bool { return !isAwaited(a, p, now) })
	if len(all) > maxRecipients {
		n.warn(fmt.Sprintf("tell everybody of approval %s: it asks %d people, of whom %d are told", a.ID, len(all), maxRecipients), nil)
		all = all[:maxRecipients]
	}
	return all, nil
}

// isAwaited reports whether the request waits for the person: the person may approve it and has not decided it.
func isAwaited(a approval.Approval, p person.Person, now time.Time) bool {
	if a.FourEyes && slices.Contains(a.Requesters, p.ID) { // a requester can only deny
		return false
	}
	who := policy.Principal{ID: p.ID, Groups: p.Groups}
	if a.Kind != approval.KindTools {
		return !hasDecided(a, p.ID) && a.CanDecide(who, now)
	}
	return slices.ContainsFunc(a.Permissions, func(t approval.Permission) bool {
		return t.Verdict == "" && !slices.ContainsFunc(t.Calls, func(c approval.BlockedCall) bool { return !mayDecideCall(a, c, who) })
	})
}

// hasDecided reports whether a person has decided since the last edit. An edit resets earlier approvals (A8).
func hasDecided(a approval.Approval, id string) bool {
	all := a.Decisions
	for i, d := range a.Decisions {
		if d.Action == approval.Edit {
			all = a.Decisions[i:]
		}
	}
	return slices.ContainsFunc(all, func(d approval.Decision) bool { return d.By == id })
}

// remarkRecipients returns the people whom a remark is for: the requesters for a question, those who asked for an
// answer.
func (n *Notifier) remarkRecipients(ctx context.Context, a approval.Approval, i int) ([]person.Person, Occasion, error) {
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

// mayDecideCall reports whether the person is an approver of one call of a request about tools.
func mayDecideCall(a approval.Approval, c approval.BlockedCall, who policy.Principal) bool {
	if a.EscalatedAt.IsZero() {
		return policy.MayDecideEach(who, c.Approvers, c.Above)
	}
	return policy.MayDecideEach(who, slices.Concat(c.Approvers, c.EscalateTo), policy.Widened(c.Above, c.AboveTo))
}
