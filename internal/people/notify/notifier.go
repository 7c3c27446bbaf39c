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
	CountNotified  = "notified"  // messages to people who were not told before, and about remarks
	CountReminded  = "reminded"  // messages
	CountEscalated = "escalated" // requests
	CountUpdated   = "updated"   // messages
)

// recordReserve is what is left of a deadline to record what was sent.
const recordReserve = 5 * time.Second

// updateTimeout bounds what a decision waits for until people's messages are updated. What is not done by then is due.
const updateTimeout = 3 * time.Second

// batchSize is how many messages are sent before it is recorded that they were.
const batchSize = 20

// NotifyRun tells the people of every pending request that a run waits for, each of them who was not told before, where nobody is at it already. What
// cannot be done now is due later; the error says what not even that could be recorded of.
func (n *Notifier) NotifyRun(ctx context.Context, tenant, run string) error {
	l, err := n.runJournal().Load(ctx, tenant, run)
	if err != nil {
		return fmt.Errorf("tell of the requests of run %s: %w", run, err)
	}
	_, err = n.notifyFirst(ctx, tenant, waitingRequests(&l.State)...)
	return err
}

func (n *Notifier) runJournal() *store.Journal {
	if n.Journal != nil {
		return n.Journal
	}
	return store.NewJournal(n.Table, 0)
}

// waitingRequests are the requests to people that a run waits for.
func waitingRequests(s *run.AgentState) []string {
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

// EnsureNotified does what Asked does for the run of a pending request of which there is no notice, and nothing for any other.
func (n *Notifier) EnsureNotified(ctx context.Context, a approval.Approval) (map[string]int64, error) {
	if !n.needsNotice(a) {
		return nil, nil
	}
	have, err := loadNotice(ctx, n.Table, a.Tenant, a.ID)
	if err != nil || have.rev > 0 {
		return nil, err
	}
	ids := []string{a.ID}
	l, err := n.runJournal().Load(ctx, a.Tenant, a.Run)
	if err == nil {
		ids = append(ids, slices.DeleteFunc(waitingRequests(&l.State), func(id string) bool { return id == a.ID })...)
	} else if !errors.Is(err, store.ErrNoRun) {
		n.warn("find the other requests of run "+a.Run, err)
	}
	return n.notifyFirst(ctx, a.Tenant, ids...)
}

// notifyFirst tells the people of requests of a run of which there may be no notice yet. Where somebody is at one, it is left
// to them.
func (n *Notifier) notifyFirst(ctx context.Context, tenant string, ids ...string) (map[string]int64, error) {
	return n.processRequests(ctx, tenant, passOptions{createsNotice: true}, ids...)
}

// needsNotice reports whether anything will have to be done about a request while it is pending.
func (n *Notifier) needsNotice(a approval.Approval) bool {
	return a.Status == approval.Pending && (len(n.Channels) > 0 || !a.EscalatesAt.IsZero())
}

// UpdateMessages updates the messages of a request that has just been decided, as far as that is quickly done. It is an approval.Desk's Decided.
func (n *Notifier) UpdateMessages(ctx context.Context, a approval.Approval) {
	n.processNow(ctx, a, passOptions{ignoresDue: true})
}

// NotifyEdit asks again whoever has to look at a request again because somebody has changed its arguments and it takes more people: all who were asked
// before, and have not approved the new ones. It is an approval.Desk's Noted.
func (n *Notifier) NotifyEdit(ctx context.Context, a approval.Approval) {
	if last := len(a.Decisions) - 1; last >= 0 && a.Decisions[last].Action == approval.Edit {
		n.processNow(ctx, a, passOptions{ignoresDue: true})
	}
}

// NotifyRemarks tells those whom the newest remarks on a request are for.
func (n *Notifier) NotifyRemarks(ctx context.Context, a approval.Approval) {
	n.processNow(ctx, a, passOptions{ignoresDue: true, createsNotice: len(n.Channels) > 0})
}

// processNow attends to a request after it was made due, so that what fails is done later.
func (n *Notifier) processNow(ctx context.Context, a approval.Approval, v passOptions) {
	bounded, cancel := n.Clock.WithTimeout(ctx, recordReserve+updateTimeout)
	defer cancel()
	err := n.makeDue(bounded, a.Tenant, a.ID)
	if err == nil {
		_, err = n.processRequests(bounded, a.Tenant, v, a.ID)
	}
	if err != nil {
		n.warn("tell of approval "+a.ID, err)
	}
}

// makeDue makes a notice due. One that is not there, or has left the index for good, stays as it is.
func (n *Notifier) makeDue(ctx context.Context, tenant, id string) error {
	for {
		have, err := loadNotice(ctx, n.Table, tenant, id)
		if err != nil || have.rev == 0 || have.Due.IsZero() {
			return err
		}
		have.Due = n.Clock.Now()
		if err = have.save(ctx, n.Table); !errors.Is(err, errStaleNotice) {
			return err
		}
	}
}

// groupWindow is how close to each other requests of a run have to be due to be told of by one message: those of one reply
// are made one after the other.
const groupWindow = 10 * time.Second

// ProcessDue does what is due by now of at most limit requests of all tenants, and what is due soon of the same runs, and
// counts what it did. What goes wrong with one request stops no other, and is due again later; the error joins all of
// it.
func (n *Notifier) ProcessDue(ctx context.Context, limit int) (map[string]int64, error) {
	did := map[string]int64{}
	due, all := n.listDue(ctx, limit)
	for _, of := range due {
		if n.isOutOfTime(ctx) { // the next sweep goes on
			break
		}
		done, err := n.processRequests(ctx, of.tenant, passOptions{ahead: groupWindow}, of.ids...)
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

// listDue lists what is due by now, and what is due soon of the same runs: at most limit requests.
func (n *Notifier) listDue(ctx context.Context, limit int) (due []*dueRun, all []error) {
	now := n.Clock.Now()
	of := map[[2]string]*dueRun{}
	r := store.Range{PK: duePartition, Index: true, To: fmt.Sprintf("%013d~", now.Add(groupWindow).UnixMilli()), Limit: limit}
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
			at, tenant, run, id, err := parseDueSortKey(it.IndexSort)
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

// postpone makes a notice that could not be attended to due later, each time later.
func (n *Notifier) postpone(ctx context.Context, tenant, id string) error {
	have, err := loadNotice(ctx, n.Table, tenant, id)
	if err != nil || have.rev == 0 || have.Due.After(n.Clock.Now()) {
		return err
	}
	have.Failures++
	have.Due = n.Clock.Now().Add(retryDelay(have.Failures))
	if err = have.save(ctx, n.Table); errors.Is(err, errStaleNotice) {
		return nil
	}
	return err
}

// NextDue is when something is due next; false where nothing is, ever. It may be late as the index is.
func (n *Notifier) NextDue(ctx context.Context) (time.Time, bool, error) {
	p, err := n.Table.Query(ctx, store.Range{PK: duePartition, Index: true, Limit: 1})
	if err != nil || len(p.Items) == 0 {
		return time.Time{}, false, err
	}
	at, _, _, _, err := parseDueSortKey(p.Items[0].IndexSort)
	return at, err == nil, err
}

// isOutOfTime reports whether the deadline leaves no time but to record what was done.
func (n *Notifier) isOutOfTime(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && deadline.Sub(n.Clock.Now()) < recordReserve
}

func (n *Notifier) warn(what string, err error) {
	if n.Warn != nil {
		n.Warn(what, err)
	}
}
