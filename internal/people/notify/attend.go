package notify

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/people/person"
	"github.com/countersign/countersign/internal/store"
)

// passOptions is how requests are attended to.
type passOptions struct {
	createsNotice bool          // where there is no notice yet, one is begun
	ignoresDue    bool          // whether it is due or not
	ahead         time.Duration // what is due so soon is attended to as well, as if its time had come
}

const (
	// maxVisits bounds how often one call reads a request again because somebody else wrote its notice.
	maxRereads = 5
	// maxPass bounds the requests that are open in one pass, and so what it holds in memory.
	maxOpen = 500
)

// pass attends to requests of one run: it opens them, sends what they owe, and records it in the notice of each.
type pass struct {
	*Notifier
	tenant  string
	opts    passOptions
	counts  map[string]int64
	rereads map[string]int // to each request that somebody else wrote meanwhile
	reread  []string       // requests to read again
	failed  []error
}

// leasedRequest is a request that a pass has made its own for a while.
type leasedRequest struct {
	notice     notice
	a          approval.Approval
	asOf       time.Time // as of when it is attended to: now, or when it was to be due
	recipients []recipient
	deliveries []delivery
	sender     sender
}

// processRequests does what is owed of requests of one run, whatever that is. It reads a notice, then the request, and only then
// makes the notice its own for a while by a conditional write: whoever decides a request makes the notice due after
// that, so that either this visit sees the decision, or its write fails, or the notice stays due. What goes wrong with
// one request stops no other.
func (n *Notifier) processRequests(ctx context.Context, tenant string, v passOptions, ids ...string) (map[string]int64, error) {
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

// leaseAll makes requests the pass's own, and leaves the others for the next one: what is open is sent while half of the
// time is left.
func (p *pass) leaseAll(ctx context.Context, ids []string) (open []*leasedRequest, rest []string) {
	var half time.Time
	if deadline, ok := ctx.Deadline(); ok {
		now := p.Clock.Now()
		half = now.Add(deadline.Sub(now) / 2)
	}
	until := p.Clock.Now().Add(lease) // one time for all: those that are not told of are due again together
	for i, id := range ids {
		if p.isSweep() && p.isOutOfTime(ctx) { // the next sweep goes on
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

// isSweep reports whether the pass attends to what is due alone.
func (p *pass) isSweep() bool { return !p.opts.createsNotice && !p.opts.ignoresDue }

// recordResult takes in how a visit ended. What goes wrong in a sweep is put off, so that it does not stand before everything
// else for ever.
func (p *pass) recordResult(ctx context.Context, id string, again bool, err error) {
	overtaken := errors.Is(err, errStaleNotice)
	switch {
	case again, overtaken && p.opts.ignoresDue:
		if p.rereads[id]++; p.rereads[id] < maxRereads { // else it is due: the next one goes on
			p.reread = append(p.reread, id)
		}
	case overtaken, err == nil: // by another sweep, which goes on
	default:
		if p.failed = append(p.failed, err); p.isSweep() && ctx.Err() == nil {
			p.failed = append(p.failed, p.postpone(ctx, p.tenant, id))
		}
	}
}

// leaseRequest opens a request; nil = nothing is owed of it now.
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
		return nil, have.removeFromIndex(ctx, p.Table)
	}
	if err != nil {
		return nil, err
	}
	begun := have.rev == 0
	if begun {
		if a, err = p.createNotice(ctx, &have, a, until); err != nil || have.rev == 0 {
			return nil, err
		}
	}
	if a, err = p.markEscalated(ctx, a, at, p.counts); err != nil {
		return nil, err
	}
	have.Run = a.Run
	seats, owed, err := p.listDeliveries(ctx, &have, a, at)
	if err != nil {
		return nil, err
	}
	if len(owed) == 0 {
		return nil, p.scheduleNext(ctx, &have, a, at, seats, begun)
	}
	if !begun {
		have.Due = until
		if err := have.save(ctx, p.Table); err != nil {
			return nil, err
		}
	}
	have.Failures = 0
	return &leasedRequest{notice: have, a: a, asOf: at, recipients: seats, deliveries: owed, sender: p.newSender(ctx, a)}, nil
}

// createNotice writes the notice of a request before anybody is told, so that the duty is on record, and reads the request again behind that. A request
// that needs no notice gets none.
func (n *Notifier) createNotice(
	ctx context.Context, have *notice, a approval.Approval, until time.Time,
) (approval.Approval, error) {
	if !n.needsNotice(a) {
		return a, nil
	}
	have.Run, have.Due = a.Run, until
	if err := have.save(ctx, n.Table); err != nil {
		return a, err
	}
	return approval.Get(ctx, n.Table, a.Tenant, a.ID)
}

// listDeliveries is what a request owes by now, and where those sit who decide it.
func (n *Notifier) listDeliveries(
	ctx context.Context, have *notice, a approval.Approval, now time.Time,
) ([]recipient, []delivery, error) {
	switch {
	case a.Status != approval.Pending:
		return nil, have.updateDeliveries(a, n.findChannel, now), nil
	case !now.Before(a.ExpiresAt): // the run is about to say so
		return nil, nil, nil
	}
	people, err := n.approvers(ctx, a)
	if err != nil {
		return nil, nil, err
	}
	seats := n.listRecipients(people)
	remarks, err := n.remarkDeliveries(ctx, have, a, now)
	return seats, slices.Concat(have.requestDeliveries(a, seats, now), remarks), err
}

func (n *Notifier) listRecipients(people []person.Person) []recipient {
	var out []recipient
	for _, p := range people {
		for _, c := range n.channelsOf(p) {
			out = append(out, recipient{p, c})
		}
	}
	return out
}

// remarkDeliveries are the messages about remarks of which nobody was told.
func (n *Notifier) remarkDeliveries(ctx context.Context, have *notice, a approval.Approval, now time.Time) ([]delivery, error) {
	if have.Remarks >= len(a.Thread) || now.Before(have.NextRemarkTry) {
		return nil, nil
	}
	var out []delivery
	for i := have.Remarks; i < len(a.Thread); i++ {
		people, occasion, err := n.remarkRecipients(ctx, a, i)
		if err != nil {
			return nil, err
		}
		for _, s := range n.listRecipients(people) {
			out = append(out, delivery{to: s.person, channel: s.channel, occasion: occasion, remark: i + 1})
		}
	}
	if len(out) == 0 { // nobody is there to be told
		have.Remarks = len(a.Thread)
	}
	return out, nil
}

// sendAll sends what is owed and records it, a few messages at a time, and says when to look at the request next.
func (p *pass) sendAll(ctx context.Context, r *leasedRequest) (again bool, err error) {
	for len(r.deliveries) > 0 {
		if p.isOutOfTime(ctx) { // somebody else goes on
			r.notice.Due = p.Clock.Now()
			return false, r.notice.save(ctx, p.Table)
		}
		some := r.deliveries[:min(batchSize, len(r.deliveries))]
		r.deliveries = r.deliveries[len(some):]
		done := r.sender.send(ctx, some)
		addCounts(p.counts, done)
		if again, err := p.recordSent(ctx, r, done); again || err != nil {
			return again, err
		}
	}
	return false, nil
}

// recordSent records what was sent of what a request owes. Where nothing is left, it says when to look at the
// request next.
func (p *pass) recordSent(ctx context.Context, r *leasedRequest, done []sent) (again bool, err error) {
	r.notice.apply(r.a, done)
	now := p.Clock.Now()
	if r.notice.Due = now.Add(lease); len(r.deliveries) == 0 {
		r.notice.Due = r.notice.nextCheck(r.a, r.recipients, latest(now, r.asOf))
	}
	return p.saveSent(ctx, &r.notice, r.a, done)
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// scheduleNext says when to look at a request next that owes nothing now. A look that is to come anyway does as well as a later one.
func (n *Notifier) scheduleNext(
	ctx context.Context, have *notice, a approval.Approval, now time.Time, seats []recipient, begun bool,
) error {
	at := have.nextCheck(a, seats, now)
	if !begun && have.stored.After(now) && !have.stored.After(at) {
		return nil
	}
	have.Due, have.Failures = at, 0
	return have.save(ctx, n.Table)
}

// saveSent keeps what was sent. Where somebody else has written the notice meanwhile, it is kept with theirs, and the request is read again: they
// may have said that it is decided.
func (n *Notifier) saveSent(ctx context.Context, have *notice, a approval.Approval, done []sent) (again bool, err error) {
	for {
		err = have.save(ctx, n.Table)
		if !errors.Is(err, errStaleNotice) {
			return again, err
		}
		if *have, err = loadNotice(ctx, n.Table, a.Tenant, a.ID); err != nil {
			return false, err
		}
		have.apply(a, done)
		have.Run, have.Due, again = a.Run, n.Clock.Now(), true
	}
}

// removeFromIndex takes a notice out of the index for good.
func (n *notice) removeFromIndex(ctx context.Context, t store.Table) error {
	n.Due = time.Time{}
	return n.save(ctx, t)
}

// addCounts adds up what was sent.
func addCounts(did map[string]int64, done []sent) {
	for _, s := range done {
		switch {
		case s.err != nil:
		case s.updates != "":
			did[CountUpdated]++
		case s.occasion == Reminder:
			did[CountReminded]++
		default:
			did[CountNotified]++
		}
	}
}

// markEscalated lets others decide as well once it is time.
func (n *Notifier) markEscalated(
	ctx context.Context, a approval.Approval, now time.Time, did map[string]int64,
) (approval.Approval, error) {
	if !isEscalationDue(a, now) {
		return a, nil
	}
	after, changed, err := approval.MarkEscalated(ctx, n.Table, a.Tenant, a.ID, now)
	if changed {
		did[CountEscalated]++
	}
	return after, err
}
