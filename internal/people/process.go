package people

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/countersign/countersign/internal/approval"
)

// passOptions say which requests a pass processes.
type passOptions struct {
	createsNotice bool          // a request without a notice gets one
	ignoresDue    bool          // process the request even if it is not due
	ahead         time.Duration // a request that is due within this time counts as due
}

const (
	// maxRereads bounds how often a pass reads a request again because another process wrote its notice.
	maxRereads = 5
	// maxOpen bounds the leased requests of one round, and so its memory.
	maxOpen = 500
)

// pass processes requests of one run: it leases them, sends their messages and records that in the notice of each.
type pass struct {
	*Notifier
	tenant  string
	opts    passOptions
	counts  map[string]int64
	rereads map[string]int // by request
	reread  []string       // requests to read again
	failed  []error
}

type leasedRequest struct {
	notice     notice
	approval   approval.Approval
	shown      Document
	showErr    error     // why the request cannot be shown; nil = it can
	asOf       time.Time // now, or its due time if that is ahead
	recipients []recipient
	deliveries []delivery
}

// processRequests sends what is due of requests of one run. It reads the notice, then the request, and only then leases
// the notice by a conditional write. A decision makes the notice due after it is committed. So either this pass reads
// the decision, or its write fails, or the notice stays due. A failure of one request does not stop the others.
func (n *Notifier) processRequests(
	ctx context.Context, tenant string, v passOptions, ids ...string,
) (map[string]int64, error) {
	p := &pass{Notifier: n, tenant: tenant, opts: v, counts: map[string]int64{}, rereads: map[string]int{}}
	for todo := ids; len(todo) > 0; {
		var open []*leasedRequest
		open, todo = p.leaseAll(ctx, todo)
		open = p.sendGroups(ctx, open)
		for _, r := range open {
			p.recordResult(ctx, r.approval.ID, p.sendAll(ctx, r))
		}
		todo, p.reread = append(todo, p.reread...), nil
	}
	return p.counts, errors.Join(p.failed...)
}

// leaseAll leases requests until half of the time is over. The next round leases the rest.
func (p *pass) leaseAll(ctx context.Context, ids []string) (open []*leasedRequest, rest []string) {
	var half time.Time
	if deadline, ok := ctx.Deadline(); ok {
		now := p.Clock.Now()
		half = now.Add(deadline.Sub(now) / 2)
	}
	until := p.Clock.Now().Add(lease) // one time for all, so that unsent ones are due together again
	for i, id := range ids {
		if p.isSweep() && p.isOutOfTime(ctx) { // the next sweep continues
			return open, nil
		}
		if len(open) == maxOpen || len(open) > 0 && !half.IsZero() && p.Clock.Now().After(half) {
			return open, ids[i:]
		}
		r, err := p.leaseRequest(ctx, id, until)
		if p.recordResult(ctx, id, err); r != nil {
			open = append(open, r)
		}
	}
	return open, nil
}

// isSweep reports whether the pass processes only what is due.
func (p *pass) isSweep() bool { return !p.opts.createsNotice && !p.opts.ignoresDue }

// recordResult records how the processing of a request ended. A failed request of a sweep is postponed, so that it does
// not block the others.
func (p *pass) recordResult(ctx context.Context, id string, err error) {
	overtaken := errors.Is(err, errStaleNotice)
	switch {
	case errors.Is(err, errMerged), overtaken && p.opts.ignoresDue:
		if p.rereads[id]++; p.rereads[id] < maxRereads { // else it stays due for the next pass
			p.reread = append(p.reread, id)
		}
	case overtaken, err == nil: // another sweep has leased it
	default:
		if p.failed = append(p.failed, err); p.isSweep() && ctx.Err() == nil {
			p.failed = append(p.failed, p.postpone(ctx, p.tenant, id))
		}
	}
}

// leaseRequest leases a request; nil = it has nothing to send now.
func (p *pass) leaseRequest(ctx context.Context, id string, until time.Time) (*leasedRequest, error) {
	have, err := loadNotice(ctx, p.Table, p.tenant, id)
	if err != nil || have.rev == 0 && !p.opts.createsNotice || have.rev > 0 && have.Due.IsZero() {
		return nil, err
	}
	at := p.Clock.Now()
	if !p.opts.ignoresDue && have.Due.After(at) {
		if have.Due.After(at.Add(p.opts.ahead)) {
			return nil, nil
		}
		at = have.Due
	}
	a, err := approval.Get(ctx, p.Table, p.tenant, id)
	if errors.Is(err, approval.ErrNotFound) && have.rev > 0 {
		have.Due = time.Time{} // the notice leaves the index for good
		return nil, have.save(ctx, p.Table)
	}
	if err != nil {
		return nil, err
	}
	begun := have.rev == 0
	if begun { // written before anybody is told, so that a crash loses nothing
		if !p.needsNotice(a) {
			return nil, nil
		}
		have.Run, have.Due = a.Run, until
		if err := have.save(ctx, p.Table); err != nil {
			return nil, err
		}
		if a, err = approval.Get(ctx, p.Table, p.tenant, id); err != nil {
			return nil, err
		}
	}
	if a, err = p.markEscalated(ctx, a, at); err != nil {
		return nil, err
	}
	have.Run = a.Run
	seats, owed, err := p.listDeliveries(ctx, &have, a, at)
	if err != nil {
		return nil, err
	}
	if len(owed) == 0 {
		next := p.nextCheck(&have, a, seats, at)
		if !begun && have.stored.After(at) && !have.stored.After(next) { // an earlier check is scheduled already
			return nil, nil
		}
		have.Due, have.Failures = next, 0
		return nil, have.save(ctx, p.Table)
	}
	if !begun {
		have.Due = until
		if err := have.save(ctx, p.Table); err != nil {
			return nil, err
		}
	}
	have.Failures = 0
	r := &leasedRequest{notice: have, approval: a, asOf: at, recipients: seats, deliveries: owed}
	r.shown, r.showErr = p.document(ctx, a)
	return r, nil
}

// markEscalated records the escalation of a request once it is due.
func (p *pass) markEscalated(
	ctx context.Context, a approval.Approval, now time.Time,
) (approval.Approval, error) {
	due := a.Status == approval.Pending && !a.EscalatesAt.IsZero() && !now.Before(a.EscalatesAt)
	if !due || !a.EscalatedAt.IsZero() || !now.Before(a.ExpiresAt) {
		return a, nil
	}
	after, changed, err := approval.MarkEscalated(ctx, p.Table, a.Tenant, a.ID, now)
	if changed {
		p.counts[CountEscalated]++
	}
	return after, err
}

// listDeliveries returns the messages that a request owes now, and the recipients who decide it.
func (n *Notifier) listDeliveries(
	ctx context.Context, have *notice, a approval.Approval, now time.Time,
) ([]recipient, []delivery, error) {
	switch {
	case a.Status != approval.Pending:
		return nil, have.updateDeliveries(a, n.findChannel, now), nil
	case !now.Before(a.ExpiresAt): // the run will expire it
		return nil, nil, nil
	}
	people, err := n.approvers(ctx, a, now)
	if err != nil {
		return nil, nil, err
	}
	seats := n.listRecipients(people)
	remarks, err := n.remarkDeliveries(ctx, have, a, now)
	return seats, slices.Concat(have.requestDeliveries(a, seats, now), remarks), err
}

// sendAll sends the deliveries in batches, records each batch, and warns of failures.
func (p *pass) sendAll(ctx context.Context, r *leasedRequest) error {
	sending, cancel := p.withSendTime(ctx)
	defer cancel()
	for len(r.deliveries) > 0 {
		start := p.Clock.Now()
		if p.isOutOfTime(ctx) { // another pass continues
			r.notice.Due = start
			return r.notice.save(ctx, p.Table)
		}
		if err := p.renewLease(ctx, r); err != nil {
			return err
		}
		var done []delivery
		for _, d := range r.deliveries {
			if n := len(done); n > 0 && p.isBatchFull(ctx, n, start) && !d.recordedWith(done[n-1]) {
				break
			}
			var m Message
			m, d.err = p.buildMessage(sending, r, d)
			switch {
			case d.err != nil:
			case d.updates != "":
				d.err = d.channel.Update(sending, d.updates, m)
			default:
				d.ref, d.err = d.channel.Send(sending, m)
			}
			if d.at = p.Clock.Now().Truncate(time.Millisecond); d.err != nil {
				p.warn(fmt.Sprintf("tell somebody of approval %s by %s", r.approval.ID, d.channel.Name()), d.err)
			}
			p.count(d)
			done = append(done, d)
		}
		r.deliveries = r.deliveries[len(done):]
		if err := p.recordSent(ctx, r, done); err != nil {
			return err
		}
	}
	return nil
}

// withSendTime leaves recordReserve of the time for recording what was sent.
func (p *pass) withSendTime(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	return p.Clock.WithTimeout(ctx, deadline.Sub(p.Clock.Now())-recordReserve)
}

// renewLease leases a request anew if a quarter of its lease is over: one message may take half of it.
func (p *pass) renewLease(ctx context.Context, r *leasedRequest) error {
	have, now := r.notice, p.Clock.Now()
	if now.Add(lease * 3 / 4).Before(have.Due) {
		return nil
	}
	have.Due = now.Add(lease)
	err := have.save(ctx, p.Table)
	if err == nil {
		r.notice = have
	}
	return err
}

// isBatchFull reports whether the n messages that were sent since start have to be recorded before the next one.
func (p *pass) isBatchFull(ctx context.Context, n int, start time.Time) bool {
	return n >= batchSize || p.Clock.Now().Sub(start) >= lease/4 || p.isOutOfTime(ctx)
}

// errMerged says that another process had written the notice, and that the request is to be read again.
var errMerged = errors.New("the notice was merged with what somebody else wrote")

// recordSent records what was sent. After the last delivery it sets when to check the request next. If another process
// has written the notice meanwhile, recordSent merges both and returns errMerged, because the request may be decided.
func (p *pass) recordSent(ctx context.Context, r *leasedRequest, done []delivery) (err error) {
	r.notice.apply(r.approval, done)
	now := p.Clock.Now()
	if r.notice.Due = now.Add(lease); len(r.deliveries) == 0 {
		r.notice.Due = p.nextCheck(&r.notice, r.approval, r.recipients,
			slices.MaxFunc([]time.Time{now, r.asOf}, time.Time.Compare))
	}
	if err = r.notice.save(ctx, p.Table); !errors.Is(err, errStaleNotice) {
		return err
	}
	for errors.Is(err, errStaleNotice) {
		if r.notice, err = loadNotice(ctx, p.Table, r.approval.Tenant, r.approval.ID); err != nil {
			return err
		}
		r.notice.apply(r.approval, done)
		r.notice.Run, r.notice.Due = r.approval.Run, p.Clock.Now()
		err = r.notice.save(ctx, p.Table)
	}
	return errMerged
}

// count counts a delivery that succeeded.
func (p *pass) count(d delivery) {
	switch {
	case d.err != nil:
	case d.updates != "":
		p.counts[CountUpdated]++
	case d.occasion == Reminder:
		p.counts[CountReminded]++
	default:
		p.counts[CountNotified]++
	}
}

// maxSingle is how many separate messages of one kind a person gets on one channel about requests of one run. More of
// them become one message.
const maxSingle = 3

type groupKey struct {
	to, channel string
	occasion    Occasion
}

// sendGroups sends one message in place of more than maxSingle of one kind to a person on a channel, and records it in
// the notice of each request. It returns the requests that are still leased; their remaining messages are sent one by
// one.
func (p *pass) sendGroups(ctx context.Context, open []*leasedRequest) []*leasedRequest {
	done := map[*leasedRequest][]delivery{}
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
		left := slices.DeleteFunc(of[to], func(r *leasedRequest) bool {
			return !slices.Contains(open, r) || p.renewLease(ctx, r) != nil // sendAll meets the error again
		})
		if len(left) > maxSingle {
			p.sendGroup(ctx, to, left, done)
		}
	}
	return p.recordAllSent(ctx, open, done)
}

func (d delivery) isNewRequest() bool { return d.remark == 0 && d.updates == "" }

// recordedWith reports whether two deliveries are recorded together: those about remarks, and updates of one contact's
// messages. The notice does not record a part of them.
func (d delivery) recordedWith(o delivery) bool {
	return d.remark > 0 && o.remark > 0 || d.updates != "" && o.updates != "" && d.groupKey() == o.groupKey()
}

func (d delivery) groupKey() groupKey { return groupKey{d.to.ID, d.channel.Name(), d.occasion} }

// sendGroup sends one message about several requests and adds the result to done for each. The message has no ref: it
// is not updated when one of its requests is decided.
func (p *pass) sendGroup(ctx context.Context, to groupKey, of []*leasedRequest, done map[*leasedRequest][]delivery) {
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
		sending, cancel := p.withSendTime(ctx)
		_, err = deliveries[0].channel.Send(sending, m)
		cancel()
	}
	if err != nil {
		p.warn(fmt.Sprintf("tell somebody of %d requests of run %s by %s", len(of), of[0].approval.Run, to.channel), err)
	}
	at := p.Clock.Now().Truncate(time.Millisecond)
	for i, r := range of {
		deliveries[i].at, deliveries[i].err = at, err
		done[r] = append(done[r], deliveries[i])
	}
	p.count(deliveries[0]) // all deliveries are one message
}

// recordAllSent records what was sent, and returns the requests whose notice nobody else has written.
func (p *pass) recordAllSent(
	ctx context.Context, open []*leasedRequest, done map[*leasedRequest][]delivery,
) []*leasedRequest {
	return slices.DeleteFunc(open, func(r *leasedRequest) bool {
		if len(done[r]) == 0 {
			return false
		}
		err := p.recordSent(ctx, r, done[r])
		p.recordResult(ctx, r.approval.ID, err)
		return err != nil
	})
}

func (n *Notifier) document(ctx context.Context, a approval.Approval) (d Document, err error) {
	if n.Show != nil {
		if d, err = n.Show(ctx, a); err != nil {
			err = fmt.Errorf("show approval %s: %w", a.ID, err)
		}
	}
	return d, err
}

// SecondChannel returns the name of a channel that reaches the person, other than first; "" = there is none.
func (n *Notifier) SecondChannel(p Person, first string) string {
	for _, c := range n.Channels {
		if c.Name() != first && c.Reaches(p) {
			return c.Name()
		}
	}
	return ""
}

// SendCode sends a person a code for the page of a request by a channel. A message that is lost is not sent again: the
// code is stored nowhere, and the person asks for another.
func (n *Notifier) SendCode(ctx context.Context, a approval.Approval, to Person, channel, code string) error {
	c := n.findChannel(channel)
	shown, err := n.document(ctx, a)
	if c == nil || err != nil {
		return cmp.Or(err, fmt.Errorf("send a code for approval %s: there is no channel %s", a.ID, channel))
	}
	_, err = c.Send(ctx, Message{Occasion: Code, Approval: a, Shown: shown, To: to, Code: code})
	return err
}

func (p *pass) buildMessage(ctx context.Context, r *leasedRequest, d delivery) (Message, error) {
	if r.showErr != nil {
		return Message{}, r.showErr
	}
	m := Message{Occasion: d.occasion, Approval: r.approval, Shown: r.shown, To: d.to}
	if d.remark > 0 { // later remarks have messages of their own
		m.Approval.Thread = m.Approval.Thread[:d.remark]
	}
	if d.updates != "" && p.Directory != nil {
		who, found, err := p.Directory.Person(ctx, r.approval.Tenant, d.to.ID)
		if err != nil {
			return Message{}, fmt.Errorf("find %s: %w", d.to.ID, err)
		}
		if found {
			m.To = who
		}
	}
	if p.Links != nil {
		var err error
		if m.Link, err = p.Links.URL(ctx, r.approval, d.to.ID, d.channel.Name()); err != nil {
			return Message{}, fmt.Errorf("make the link of a message: %w", err)
		}
	}
	return m, nil
}
