package notify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/people/person"
	"github.com/countersign/countersign/internal/people/show"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// Notifier tells people of requests and does what is to be done at a time of them: reminders, escalation, messages that did not get through,
// messages whose request is decided. Table and Clock are required. Without channels nobody is told, and requests that escalate do so all the
// same. Nothing here runs between calls: what is due later is listed in the table's index, and Due does it. Safe for concurrent use, in any
// number of processes: a message may be sent twice, and no duty is lost.
type Notifier struct {
	Table     store.Table
	Journal   *store.Journal // nil = one of its own over Table
	Clock     clock.Clock
	Directory person.Directory // nil = nobody is known
	Channels  []Channel
	Links     Links                                                                // nil = messages have none
	Show      func(ctx context.Context, a approval.Approval) (show.Request, error) // nil = messages show nothing but the request's id
	Warn      func(what string, err error)                                         // is told of what went wrong and is tried again, or given up; nil = nobody is
}

// What Due counts.
const (
	DidNotify   = "notified"  // messages to people who were not told before, and about remarks
	DidRemind   = "reminded"  // messages
	DidEscalate = "escalated" // requests
	DidUpdate   = "updated"   // messages
)

// answering is what is left of a deadline to record what was sent.
const answering = 5 * time.Second

// atOnce bounds what a decision waits for until people's messages are updated. What is not done by then is due.
const atOnce = 3 * time.Second

// batch is how many messages are sent before it is recorded that they were.
const batch = 20

// Asked tells the people of every pending request that a run waits for, each of them who was not told before, where nobody is at it already. What
// cannot be done now is due later; the error says what not even that could be recorded of.
func (n *Notifier) Asked(ctx context.Context, tenant, run string) error {
	l, err := n.journal().Load(ctx, tenant, run)
	if err != nil {
		return fmt.Errorf("tell of the requests of run %s: %w", run, err)
	}
	_, err = n.first(ctx, tenant, requests(&l.State)...)
	return err
}

func (n *Notifier) journal() *store.Journal {
	if n.Journal != nil {
		return n.Journal
	}
	return store.NewJournal(n.Table, 0)
}

// requests are the requests to people that a run waits for.
func requests(s *run.AgentState) []string {
	var ids []string
	for _, c := range s.Waits() {
		if c.Wait.For != run.ForAnswer {
			ids = append(ids, c.Wait.Approval)
		}
	}
	for _, r := range s.OpenRequests() {
		ids = append(ids, r.Approval)
	}
	return ids
}

// Ensure does what Asked does for the run of a pending request of which there is no notice, and nothing for any other.
func (n *Notifier) Ensure(ctx context.Context, a approval.Approval) (map[string]int64, error) {
	if !n.concerns(a) {
		return nil, nil
	}
	have, err := load(ctx, n.Table, a.Tenant, a.ID)
	if err != nil || have.rev > 0 {
		return nil, err
	}
	ids := []string{a.ID}
	l, err := n.journal().Load(ctx, a.Tenant, a.Run)
	if err == nil {
		ids = append(ids, slices.DeleteFunc(requests(&l.State), func(id string) bool { return id == a.ID })...)
	} else if !errors.Is(err, store.ErrNoRun) {
		n.warn("find the other requests of run "+a.Run, err)
	}
	return n.first(ctx, a.Tenant, ids...)
}

// first tells the people of requests of a run of which there may be no notice yet. Where somebody is at one, it is left
// to them.
func (n *Notifier) first(ctx context.Context, tenant string, ids ...string) (map[string]int64, error) {
	return n.attend(ctx, tenant, visit{begins: true}, ids...)
}

// concerns reports whether anything will have to be done about a request while it is pending.
func (n *Notifier) concerns(a approval.Approval) bool {
	return a.Status == approval.Pending && (len(n.Channels) > 0 || !a.EscalatesAt.IsZero())
}

// Decided updates the messages of a request that has just been decided, as far as that is quickly done. It is an approval.Desk's Decided.
func (n *Notifier) Decided(ctx context.Context, a approval.Approval) {
	n.now(ctx, a, visit{forced: true})
}

// Noted asks again whoever has to look at a request again because somebody has changed its arguments and it takes more people: all who were asked
// before, and have not approved the new ones. It is an approval.Desk's Noted.
func (n *Notifier) Noted(ctx context.Context, a approval.Approval) {
	if last := len(a.Decisions) - 1; last >= 0 && a.Decisions[last].Action == approval.Edit {
		n.now(ctx, a, visit{forced: true})
	}
}

// Thread tells those whom the newest remarks on a request are for.
func (n *Notifier) Thread(ctx context.Context, a approval.Approval) {
	n.now(ctx, a, visit{forced: true, begins: len(n.Channels) > 0})
}

// now attends to a request after it was made due, so that what fails is done later.
func (n *Notifier) now(ctx context.Context, a approval.Approval, v visit) {
	bounded, cancel := n.Clock.WithTimeout(ctx, answering+atOnce)
	defer cancel()
	err := n.call(bounded, a.Tenant, a.ID)
	if err == nil {
		_, err = n.attend(bounded, a.Tenant, v, a.ID)
	}
	if err != nil {
		n.warn("tell of approval "+a.ID, err)
	}
}

// call makes a notice due. One that is not there, or has left the index for good, stays as it is.
func (n *Notifier) call(ctx context.Context, tenant, id string) error {
	for {
		have, err := load(ctx, n.Table, tenant, id)
		if err != nil || have.rev == 0 || have.Due.IsZero() {
			return err
		}
		have.Due = n.Clock.Now()
		if err = have.save(ctx, n.Table); !errors.Is(err, errOvertaken) {
			return err
		}
	}
}

// together is how close to each other requests of a run have to be due to be told of by one message: those of one reply
// are made one after the other.
const together = 10 * time.Second

// Due does what is due by now of at most limit requests of all tenants, and what is due soon of the same runs, and
// counts what it did. What goes wrong with one request stops no other, and is due again later; the error joins all of
// it.
func (n *Notifier) Due(ctx context.Context, limit int) (map[string]int64, error) {
	did := map[string]int64{}
	due, all := n.due(ctx, limit)
	for _, of := range due {
		if n.short(ctx) { // the next sweep goes on
			break
		}
		done, err := n.attend(ctx, of.tenant, visit{ahead: together}, of.ids...)
		for what, count := range done {
			did[what] += count
		}
		all = append(all, err)
	}
	return did, errors.Join(all...)
}

// dueRun is what is due of a run.
type dueRun struct {
	tenant, run string
	ids         []string // of requests
}

// due lists what is due by now, and what is due soon of the same runs: at most limit requests.
func (n *Notifier) due(ctx context.Context, limit int) (due []*dueRun, all []error) {
	now := n.Clock.Now()
	of := map[[2]string]*dueRun{}
	r := store.Range{PK: duePartition, Index: true, To: fmt.Sprintf("%013d~", now.Add(together).UnixMilli()), Limit: limit}
	for seen := 0; seen < limit; {
		p, err := n.Table.Query(ctx, r)
		if err != nil {
			all = append(all, fmt.Errorf("list what is due: %w", err))
		}
		if err != nil && !errors.Is(err, store.ErrDamaged) { // behind an item that cannot be read it goes on
			return due, all
		}
		for _, it := range p.Items {
			seen++
			at, tenant, run, id, err := dueItem(it.IndexSort)
			if err != nil {
				all = append(all, err)
				continue
			}
			key := [2]string{tenant, run}
			if of[key] == nil {
				if at.After(now) {
					continue
				}
				of[key] = &dueRun{tenant: tenant, run: run}
				due = append(due, of[key])
			}
			of[key].ids = append(of[key].ids, id)
		}
		if r.Cursor = p.Cursor; r.Cursor == "" {
			break
		}
	}
	return due, all
}

// putOff makes a notice that could not be attended to due later, each time later.
func (n *Notifier) putOff(ctx context.Context, tenant, id string) error {
	have, err := load(ctx, n.Table, tenant, id)
	if err != nil || have.rev == 0 || have.Due.After(n.Clock.Now()) {
		return err
	}
	have.Troubles++
	have.Due = n.Clock.Now().Add(pause(have.Troubles))
	if err = have.save(ctx, n.Table); errors.Is(err, errOvertaken) {
		return nil
	}
	return err
}

// Next is when something is due next; false where nothing is, ever. It may be late as the index is.
func (n *Notifier) Next(ctx context.Context) (time.Time, bool, error) {
	p, err := n.Table.Query(ctx, store.Range{PK: duePartition, Index: true, Limit: 1})
	if err != nil || len(p.Items) == 0 {
		return time.Time{}, false, err
	}
	at, _, _, _, err := dueItem(p.Items[0].IndexSort)
	return at, err == nil, err
}

// short reports whether the deadline leaves no time but to record what was done.
func (n *Notifier) short(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && deadline.Sub(n.Clock.Now()) < answering
}

func (n *Notifier) warn(what string, err error) {
	if n.Warn != nil {
		n.Warn(what, err)
	}
}
