package notify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/people/show"
)

// passOptions says how requests are processed.
type passOptions struct {
	createsNotice bool          // a request without a notice gets one
	ignoresDue    bool          // process the request even if it is not due
	ahead         time.Duration // what is due so soon counts as due
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

// leasedRequest is a request whose notice a pass has leased.
type leasedRequest struct {
	notice     notice
	a          approval.Approval
	shown      show.Document
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
			again, err := p.sendAll(ctx, r)
			p.recordResult(ctx, r.a.ID, again, err)
		}
		todo, p.reread = append(todo, p.reread...), nil
	}
	return p.counts, errors.Join(p.failed...)
}

// leaseAll leases requests until half of the time is over, and returns the others, which the next round leases.
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
		if p.recordResult(ctx, id, false, err); r != nil {
			open = append(open, r)
		}
	}
	return open, nil
}

// isSweep reports whether the pass processes only what is due.
func (p *pass) isSweep() bool { return !p.opts.createsNotice && !p.opts.ignoresDue }

// recordResult records how the processing of a request ended. A failed request of a sweep is postponed, so that it does
// not block the others.
func (p *pass) recordResult(ctx context.Context, id string, again bool, err error) {
	overtaken := errors.Is(err, errStaleNotice)
	switch {
	case again, overtaken && p.opts.ignoresDue:
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
		next := have.nextCheck(a, seats, at)
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
	r := &leasedRequest{notice: have, a: a, asOf: at, recipients: seats, deliveries: owed}
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
func (p *pass) sendAll(ctx context.Context, r *leasedRequest) (again bool, err error) {
	for len(r.deliveries) > 0 {
		if p.isOutOfTime(ctx) { // another pass continues
			r.notice.Due = p.Clock.Now()
			return false, r.notice.save(ctx, p.Table)
		}
		some := r.deliveries[:min(batchSize, len(r.deliveries))]
		r.deliveries = r.deliveries[len(some):]
		var done []sent
		for _, d := range some {
			s := sent{delivery: d}
			m, err := p.buildMessage(ctx, r, d)
			switch {
			case err != nil:
				s.err = err
			case d.updates != "":
				s.err = d.channel.Update(ctx, d.updates, m)
			default:
				s.ref, s.err = d.channel.Send(ctx, m)
			}
			if s.at = p.Clock.Now().Truncate(time.Millisecond); s.err != nil {
				p.warn(fmt.Sprintf("tell somebody of approval %s by %s", r.a.ID, d.channel.Name()), s.err)
			}
			p.count(s)
			done = append(done, s)
		}
		if again, err := p.recordSent(ctx, r, done); again || err != nil {
			return again, err
		}
	}
	return false, nil
}

// recordSent records what was sent. After the last delivery it sets when to check the request next. If another process
// has written the notice meanwhile, recordSent merges both and has the request read again, because it may be decided.
func (p *pass) recordSent(ctx context.Context, r *leasedRequest, done []sent) (again bool, err error) {
	r.notice.apply(r.a, done)
	now := p.Clock.Now()
	if r.notice.Due = now.Add(lease); len(r.deliveries) == 0 {
		r.notice.Due = r.notice.nextCheck(r.a, r.recipients, slices.MaxFunc([]time.Time{now, r.asOf}, time.Time.Compare))
	}
	for {
		err = r.notice.save(ctx, p.Table)
		if !errors.Is(err, errStaleNotice) {
			return again, err
		}
		if r.notice, err = loadNotice(ctx, p.Table, r.a.Tenant, r.a.ID); err != nil {
			return false, err
		}
		r.notice.apply(r.a, done)
		r.notice.Run, r.notice.Due, again = r.a.Run, p.Clock.Now(), true
	}
}

// count counts a delivery that succeeded.
func (p *pass) count(s sent) {
	switch {
	case s.err != nil:
	case s.updates != "":
		p.counts[CountUpdated]++
	case s.occasion == Reminder:
		p.counts[CountReminded]++
	default:
		p.counts[CountNotified]++
	}
}
