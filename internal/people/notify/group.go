package notify

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// few is how many messages of one kind a person gets on one channel about requests of one run, each by itself. More of
// them are one message.
const few = 3

// recipient is who gets messages of one kind.
type recipient struct {
	to, channel string
	occasion    Occasion
}

// group sends one message in place of more than few of one kind to a person on a channel, and records it in the notice
// of each request. It returns the requests that go on; what they still owe is sent one by one.
func (p *pass) group(ctx context.Context, open []*opened) []*opened {
	done := map[*opened][]sent{}
	// Those to whom more than few requests owe a message of one kind, in order, and these requests.
	// Updates, remarks and requests that cannot be shown stay by themselves.
	of := map[recipient][]*opened{}
	var order []recipient
	for _, r := range open {
		for _, d := range r.owed {
			if !d.asks() || r.post.broken != nil {
				continue
			}
			to := d.recipient()
			if of[to] == nil {
				order = append(order, to)
			}
			of[to] = append(of[to], r)
		}
	}
	all := slices.DeleteFunc(order, func(to recipient) bool { return len(of[to]) <= few })
	for i, to := range all {
		if p.short(ctx) {
			break
		}
		if i > 0 && i%batch == 0 {
			open = p.keepAll(ctx, open, done)
			clear(done)
		}
		left := slices.DeleteFunc(of[to], func(r *opened) bool { return !slices.Contains(open, r) })
		if len(left) > few {
			p.tell(ctx, to, left, done)
		}
	}
	return p.keepAll(ctx, open, done)
}

// asks reports whether the delivery is a new message to one who decides.
func (d delivery) asks() bool { return d.remark == 0 && d.updates == "" }

func (d delivery) recipient() recipient { return recipient{d.to.ID, d.channel.Name(), d.occasion} }

// tell sends one message about several requests, and takes what became of it in for each. The message has no ref: it is
// not updated when one of its requests is decided.
func (p *pass) tell(ctx context.Context, to recipient, of []*opened, done map[*opened][]sent) {
	var m Message
	var err error
	deliveries := make([]delivery, len(of))
	for i, r := range of {
		at := slices.IndexFunc(r.owed, func(d delivery) bool { return d.asks() && d.recipient() == to })
		deliveries[i] = r.owed[at]
		r.owed = slices.Delete(r.owed, at, at+1)
		if err != nil {
			continue
		}
		var one Message
		if one, err = r.post.message(ctx, deliveries[i]); i == 0 {
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
	count(p.did, done[of[0]][len(done[of[0]])-1:])
}

// keepAll records what was sent, and returns the requests whose notice nobody else wrote meanwhile.
func (p *pass) keepAll(ctx context.Context, open []*opened, done map[*opened][]sent) []*opened {
	return slices.DeleteFunc(open, func(r *opened) bool {
		if len(done[r]) == 0 {
			return false
		}
		again, err := p.keep(ctx, r, done[r])
		p.take(ctx, r.a.ID, again, err)
		return again || err != nil
	})
}
