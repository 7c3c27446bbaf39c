package notify

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/countersign/countersign/pkg/agent/approval"
	"github.com/countersign/countersign/pkg/agent/person"
	"github.com/countersign/countersign/pkg/agent/store"
)

// visit is how a request is attended to.
type visit struct {
	begins bool // where there is no notice yet, one is begun
	forced bool // whether it is due or not
}

// maxVisits bounds how often one call reads a request again because somebody else wrote its notice.
const maxVisits = 5

// attend does what is owed of one request, whatever that is. It reads the notice, then the request, and only then makes the notice its own for a
// while by a conditional write: whoever decides a request makes the notice due after that, so that either this visit sees the decision, or its
// write fails, or the notice stays due.
func (n *Notifier) attend(ctx context.Context, tenant, id string, v visit) (map[string]int64, error) {
	did := map[string]int64{}
	for range maxVisits {
		again, err := n.visit(ctx, tenant, id, v, did)
		if errors.Is(err, errOvertaken) && !v.forced { // by another sweep
			return did, nil
		}
		if !again && !errors.Is(err, errOvertaken) {
			return did, err
		}
	}
	return did, nil // it is due: the next one goes on
}

// visit is one attempt of attend. Again says that the request is to be read again.
func (n *Notifier) visit(ctx context.Context, tenant, id string, v visit, did map[string]int64) (again bool, err error) {
	have, err := load(ctx, n.Table, tenant, id)
	if err != nil || have.rev == 0 && !v.begins || have.rev > 0 && have.Due.IsZero() {
		return false, err
	}
	now := n.Clock.Now()
	if !v.forced && have.Due.After(now) {
		return false, nil
	}
	a, err := approval.Get(ctx, n.Table, tenant, id)
	if errors.Is(err, approval.ErrNotFound) && have.rev > 0 {
		return false, have.leave(ctx, n.Table)
	}
	if err != nil {
		return false, err
	}
	begun := have.rev == 0
	if begun {
		if a, err = n.begin(ctx, &have, a); err != nil || have.rev == 0 {
			return false, err
		}
	}
	if a, err = n.escalate(ctx, a, did); err != nil {
		return false, err
	}
	seats, owed, err := n.owed(ctx, &have, a)
	if err != nil {
		return false, err
	}
	if len(owed) == 0 {
		return false, n.rest(ctx, &have, a, seats, begun)
	}
	if !begun {
		have.Due = now.Add(lease)
		if err := have.save(ctx, n.Table); err != nil {
			return false, err
		}
	}
	return n.settle(ctx, have, a, seats, owed, did)
}

// begin writes the notice of a request before anybody is told, so that the duty is on record, and reads the request again behind that. A request
// that needs no notice gets none.
func (n *Notifier) begin(ctx context.Context, have *notice, a approval.Approval) (approval.Approval, error) {
	if !n.concerns(a) {
		return a, nil
	}
	have.Due = n.Clock.Now().Add(lease)
	if err := have.save(ctx, n.Table); err != nil {
		return a, err
	}
	return approval.Get(ctx, n.Table, a.Tenant, a.ID)
}

// owed is what a request owes by now, and where those sit who decide it.
func (n *Notifier) owed(ctx context.Context, have *notice, a approval.Approval) ([]seat, []delivery, error) {
	now := n.Clock.Now()
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
	remarks, err := n.remarks(ctx, have, a)
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
func (n *Notifier) remarks(ctx context.Context, have *notice, a approval.Approval) ([]delivery, error) {
	if have.Remarks >= len(a.Thread) || n.Clock.Now().Before(have.HearNext) {
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
func (n *Notifier) settle(ctx context.Context, have notice, a approval.Approval, seats []seat, owed []delivery, did map[string]int64) (again bool, err error) {
	have.Troubles = 0
	post := n.post(ctx, a)
	for len(owed) > 0 {
		if n.short(ctx) { // somebody else goes on
			have.Due = n.Clock.Now()
			return false, have.save(ctx, n.Table)
		}
		some := owed[:min(batch, len(owed))]
		owed = owed[len(some):]
		done := post.send(ctx, some)
		count(did, done)
		have.apply(a, done)
		if have.Due = n.Clock.Now().Add(lease); len(owed) == 0 {
			have.Due = have.next(a, seats, n.Clock.Now())
		}
		if again, err := n.record(ctx, &have, a, done); again || err != nil {
			return again, err
		}
	}
	return false, nil
}

// rest says when to look at a request next that owes nothing now. A look that is to come anyway does as well as a later one.
func (n *Notifier) rest(ctx context.Context, have *notice, a approval.Approval, seats []seat, begun bool) error {
	now := n.Clock.Now()
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
		have.Due, again = n.Clock.Now(), true
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
func (n *Notifier) escalate(ctx context.Context, a approval.Approval, did map[string]int64) (approval.Approval, error) {
	now := n.Clock.Now()
	if !escalates(a, now) {
		return a, nil
	}
	after, changed, err := approval.Escalate(ctx, n.Table, a.Tenant, a.ID, now)
	if changed {
		did[DidEscalate]++
	}
	return after, err
}
