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

// visit is how requests are attended to.
type visit struct {
	begins bool          // where there is no notice yet, one is begun
	forced bool          // whether it is due or not
	ahead  time.Duration // what is due so soon is attended to as well, as if its time had come
}

const (
	// maxVisits bounds how often one call reads a request again because somebody else wrote its notice.
	maxVisits = 5
	// maxPass bounds the requests that are open in one pass, and so what it holds in memory.
	maxPass = 500
)

// pass attends to requests of one run: it opens them, sends what they owe, and records it in the notice of each.
type pass struct {
	*Notifier
	tenant string
	v      visit
	did    map[string]int64
	visits map[string]int // to each request that somebody else wrote meanwhile
	again  []string       // requests to read again
	failed []error
}

// opened is a request that a pass has made its own for a while.
type opened struct {
	have  notice
	a     approval.Approval
	at    time.Time // as of when it is attended to: now, or when it was to be due
	seats []seat
	owed  []delivery
	post  post
}

// attend does what is owed of requests of one run, whatever that is. It reads a notice, then the request, and only then
// makes the notice its own for a while by a conditional write: whoever decides a request makes the notice due after
// that, so that either this visit sees the decision, or its write fails, or the notice stays due. What goes wrong with
// one request stops no other.
func (n *Notifier) attend(ctx context.Context, tenant string, v visit, ids ...string) (map[string]int64, error) {
	p := &pass{Notifier: n, tenant: tenant, v: v, did: map[string]int64{}, visits: map[string]int{}}
	for todo := ids; len(todo) > 0; {
		var open []*opened
		open, todo = p.open(ctx, todo)
		open = p.group(ctx, open)
		for _, r := range open {
			again, err := p.settle(ctx, r)
			p.take(ctx, r.a.ID, again, err)
		}
		todo, p.again = append(todo, p.again...), nil
	}
	return p.did, errors.Join(p.failed...)
}

// open makes requests the pass's own, and leaves the others for the next one: what is open is sent while half of the
// time is left.
func (p *pass) open(ctx context.Context, ids []string) (open []*opened, rest []string) {
	var half time.Time
	if deadline, ok := ctx.Deadline(); ok {
		now := p.Clock.Now()
		half = now.Add(deadline.Sub(now) / 2)
	}
	until := p.Clock.Now().Add(lease) // one time for all: those that are not told of are due again together
	for i, id := range ids {
		if p.sweeps() && p.short(ctx) { // the next sweep goes on
			return open, nil
		}
		if len(open) == maxPass || len(open) > 0 && !half.IsZero() && p.Clock.Now().After(half) {
			return open, ids[i:]
		}
		r, err := p.visit(ctx, id, until)
		if p.take(ctx, id, false, err); r != nil {
			open = append(open, r)
		}
	}
	return open, nil
}

// sweeps reports whether the pass attends to what is due alone.
func (p *pass) sweeps() bool { return !p.v.begins && !p.v.forced }

// take takes in how a visit ended. What goes wrong in a sweep is put off, so that it does not stand before everything
// else for ever.
func (p *pass) take(ctx context.Context, id string, again bool, err error) {
	overtaken := errors.Is(err, errOvertaken)
	switch {
	case again, overtaken && p.v.forced:
		if p.visits[id]++; p.visits[id] < maxVisits { // else it is due: the next one goes on
			p.again = append(p.again, id)
		}
	case overtaken, err == nil: // by another sweep, which goes on
	default:
		if p.failed = append(p.failed, err); p.sweeps() && ctx.Err() == nil {
			p.failed = append(p.failed, p.putOff(ctx, p.tenant, id))
		}
	}
}

// visit opens a request; nil = nothing is owed of it now.
func (p *pass) visit(ctx context.Context, id string, until time.Time) (*opened, error) {
	have, err := load(ctx, p.Table, p.tenant, id)
	if err != nil || have.rev == 0 && !p.v.begins || have.rev > 0 && have.Due.IsZero() {
		return nil, err
	}
	at := p.Clock.Now()
	if !p.v.forced && have.Due.After(at) {
		if have.Due.After(at.Add(p.v.ahead)) {
			return nil, nil
		}
		at = have.Due
	}
	a, err := approval.Get(ctx, p.Table, p.tenant, id)
	if errors.Is(err, approval.ErrNotFound) && have.rev > 0 {
		return nil, have.leave(ctx, p.Table)
	}
	if err != nil {
		return nil, err
	}
	begun := have.rev == 0
	if begun {
		if a, err = p.begin(ctx, &have, a, until); err != nil || have.rev == 0 {
			return nil, err
		}
	}
	if a, err = p.escalate(ctx, a, at, p.did); err != nil {
		return nil, err
	}
	have.Run = a.Run
	seats, owed, err := p.owed(ctx, &have, a, at)
	if err != nil {
		return nil, err
	}
	if len(owed) == 0 {
		return nil, p.rest(ctx, &have, a, at, seats, begun)
	}
	if !begun {
		have.Due = until
		if err := have.save(ctx, p.Table); err != nil {
			return nil, err
		}
	}
	have.Troubles = 0
	return &opened{have: have, a: a, at: at, seats: seats, owed: owed, post: p.post(ctx, a)}, nil
}

// begin writes the notice of a request before anybody is told, so that the duty is on record, and reads the request again behind that. A request
// that needs no notice gets none.
func (n *Notifier) begin(
	ctx context.Context, have *notice, a approval.Approval, until time.Time,
) (approval.Approval, error) {
	if !n.concerns(a) {
		return a, nil
	}
	have.Run, have.Due = a.Run, until
	if err := have.save(ctx, n.Table); err != nil {
		return a, err
	}
	return approval.Get(ctx, n.Table, a.Tenant, a.ID)
}

// owed is what a request owes by now, and where those sit who decide it.
func (n *Notifier) owed(
	ctx context.Context, have *notice, a approval.Approval, now time.Time,
) ([]seat, []delivery, error) {
	switch {
	case a.Status != approval.Pending:
		return nil, have.updating(a, n.channel, now), nil
	case !now.Before(a.ExpiresAt): // the run is about to say so
		return nil, nil, nil
	}
	people, err := n.approvers(ctx, a)
	if err != nil {
		return nil, nil, err
	}
	seats := n.seats(people)
	remarks, err := n.remarks(ctx, have, a, now)
	return seats, slices.Concat(have.asking(a, seats, now), remarks), err
}

func (n *Notifier) seats(people []person.Person) []seat {
	var out []seat
	for _, p := range people {
		for _, c := range n.channels(p) {
			out = append(out, seat{p, c})
		}
	}
	return out
}

// remarks are the messages about remarks of which nobody was told.
func (n *Notifier) remarks(ctx context.Context, have *notice, a approval.Approval, now time.Time) ([]delivery, error) {
	if have.Remarks >= len(a.Thread) || now.Before(have.HearNext) {
		return nil, nil
	}
	var out []delivery
	for i := have.Remarks; i < len(a.Thread); i++ {
		people, occasion, err := n.audience(ctx, a, i)
		if err != nil {
			return nil, err
		}
		for _, s := range n.seats(people) {
			out = append(out, delivery{to: s.who, channel: s.by, occasion: occasion, remark: i + 1})
		}
	}
	if len(out) == 0 { // nobody is there to be told
		have.Remarks = len(a.Thread)
	}
	return out, nil
}

// settle sends what is owed and records it, a few messages at a time, and says when to look at the request next.
func (p *pass) settle(ctx context.Context, r *opened) (again bool, err error) {
	for len(r.owed) > 0 {
		if p.short(ctx) { // somebody else goes on
			r.have.Due = p.Clock.Now()
			return false, r.have.save(ctx, p.Table)
		}
		some := r.owed[:min(batch, len(r.owed))]
		r.owed = r.owed[len(some):]
		done := r.post.send(ctx, some)
		count(p.did, done)
		if again, err := p.keep(ctx, r, done); again || err != nil {
			return again, err
		}
	}
	return false, nil
}

// keep records what was sent of what a request owes. Where nothing is left, it says when to look at the
// request next.
func (p *pass) keep(ctx context.Context, r *opened, done []sent) (again bool, err error) {
	r.have.apply(r.a, done)
	now := p.Clock.Now()
	if r.have.Due = now.Add(lease); len(r.owed) == 0 {
		r.have.Due = r.have.next(r.a, r.seats, latest(now, r.at))
	}
	return p.record(ctx, &r.have, r.a, done)
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// rest says when to look at a request next that owes nothing now. A look that is to come anyway does as well as a later one.
func (n *Notifier) rest(
	ctx context.Context, have *notice, a approval.Approval, now time.Time, seats []seat, begun bool,
) error {
	at := have.next(a, seats, now)
	if !begun && have.stored.After(now) && !have.stored.After(at) {
		return nil
	}
	have.Due, have.Troubles = at, 0
	return have.save(ctx, n.Table)
}

// record keeps what was sent. Where somebody else has written the notice meanwhile, it is kept with theirs, and the request is read again: they
// may have said that it is decided.
func (n *Notifier) record(ctx context.Context, have *notice, a approval.Approval, done []sent) (again bool, err error) {
	for {
		err = have.save(ctx, n.Table)
		if !errors.Is(err, errOvertaken) {
			return again, err
		}
		if *have, err = load(ctx, n.Table, a.Tenant, a.ID); err != nil {
			return false, err
		}
		have.apply(a, done)
		have.Run, have.Due, again = a.Run, n.Clock.Now(), true
	}
}

// leave takes a notice out of the index for good.
func (n *notice) leave(ctx context.Context, t store.Table) error {
	n.Due = time.Time{}
	return n.save(ctx, t)
}

// count adds up what was sent.
func count(did map[string]int64, done []sent) {
	for _, s := range done {
		switch {
		case s.err != nil:
		case s.updates != "":
			did[DidUpdate]++
		case s.occasion == Reminder:
			did[DidRemind]++
		default:
			did[DidNotify]++
		}
	}
}

// escalate lets others decide as well once it is time.
func (n *Notifier) escalate(
	ctx context.Context, a approval.Approval, now time.Time, did map[string]int64,
) (approval.Approval, error) {
	if !escalates(a, now) {
		return a, nil
	}
	after, changed, err := approval.Escalate(ctx, n.Table, a.Tenant, a.ID, now)
	if changed {
		did[DidEscalate]++
	}
	return after, err
}
