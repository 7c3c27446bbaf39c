package notify

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// maxSingle is how many separate messages of one kind a person gets on one channel about requests of one run. More of
// them become one message.
const maxSingle = 3

// groupKey identifies the messages that can be grouped.
type groupKey struct {
	to, channel string
	occasion    Occasion
}

// sendGroups sends one message in place of more than maxSingle of one kind to a person on a channel, and records it in
// the notice of each request. It returns the requests that are still leased; their remaining messages are sent one by
// one.
func (p *pass) sendGroups(ctx context.Context, open []*leasedRequest) []*leasedRequest {
	done := map[*leasedRequest][]sent{}
	// Requests by the group that their messages belong to. Updates, remarks and requests that cannot be shown are sent
	// alone.
	of := map[groupKey][]*leasedRequest{}
	var order []groupKey
	for _, r := range open {
		for _, d := range r.deliveries {
			if !d.isNewRequest() || r.showErr != nil {
				continue
			}
			to := d.groupKey()
			if of[to] == nil {
				order = append(order, to)
			}
			of[to] = append(of[to], r)
		}
	}
	all := slices.DeleteFunc(order, func(to groupKey) bool { return len(of[to]) <= maxSingle })
	for i, to := range all {
		if p.isOutOfTime(ctx) {
			break
		}
		if i > 0 && i%batchSize == 0 {
			open = p.recordAllSent(ctx, open, done)
			clear(done)
		}
		left := slices.DeleteFunc(of[to], func(r *leasedRequest) bool { return !slices.Contains(open, r) })
		if len(left) > maxSingle {
			p.sendGroup(ctx, to, left, done)
		}
	}
	return p.recordAllSent(ctx, open, done)
}

// isNewRequest reports whether the delivery is a new message to an approver.
func (d delivery) isNewRequest() bool { return d.remark == 0 && d.updates == "" }

func (d delivery) groupKey() groupKey { return groupKey{d.to.ID, d.channel.Name(), d.occasion} }

// sendGroup sends one message about several requests and adds the result to done for each. The message has no ref: it
// is not updated when one of its requests is decided.
func (p *pass) sendGroup(ctx context.Context, to groupKey, of []*leasedRequest, done map[*leasedRequest][]sent) {
	var m Message
	var err error
	deliveries := make([]delivery, len(of))
	for i, r := range of {
		at := slices.IndexFunc(r.deliveries, func(d delivery) bool { return d.isNewRequest() && d.groupKey() == to })
		deliveries[i] = r.deliveries[at]
		r.deliveries = slices.Delete(r.deliveries, at, at+1)
		if err != nil {
			continue
		}
		var one Message
		if one, err = p.buildMessage(ctx, r, deliveries[i]); i == 0 {
			m = one
		} else {
			m.Others = append(m.Others, Other{one.Approval, one.Shown, one.Link})
		}
	}
	if err == nil {
		_, err = deliveries[0].channel.Send(ctx, m)
	}
	if err != nil {
		p.warn(fmt.Sprintf("tell somebody of %d requests of run %s by %s", len(of), of[0].a.Run, to.channel), err)
	}
	at := p.Clock.Now().Truncate(time.Millisecond)
	for i, r := range of {
		done[r] = append(done[r], sent{delivery: deliveries[i], at: at, err: err})
	}
	p.count(sent{delivery: deliveries[0], err: err}) // it is one message
}

// recordAllSent records what was sent, and returns the requests whose notice nobody else has written.
func (p *pass) recordAllSent(
	ctx context.Context, open []*leasedRequest, done map[*leasedRequest][]sent,
) []*leasedRequest {
	return slices.DeleteFunc(open, func(r *leasedRequest) bool {
		if len(done[r]) == 0 {
			return false
		}
		again, err := p.recordSent(ctx, r, done[r])
		p.recordResult(ctx, r.a.ID, again, err)
		return again || err != nil
	})
}
