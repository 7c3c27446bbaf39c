package people

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// Notifier tells people of requests and does the timed work: reminders, escalation, retries of messages, and updates of
// the messages of decided requests. Table and Clock are required. Without channels nobody is told, but requests still
// escalate. The Notifier runs nothing between calls: the table's index lists what is due later, and ProcessDue does it.
// Safe for concurrent use, in any number of processes: a message may be sent twice, and none is lost.
type Notifier struct {
	Table     store.Table
	Journal   *store.Journal // nil = one of its own over Table
	Clock     clock.Clock
	Directory Directory // nil = nobody is known
	Channels  []Channel
	Links     Links // nil = messages have none
	// Show returns what a message shows of a request; nil = only its id.
	Show func(ctx context.Context, a approval.Approval) (Document, error)
	// Warn is called for failures, which are retried or given up; nil = not called.
	Warn func(what string, err error)
}

// What ProcessDue counts.
const (
	CountNotified  = "notified"  // first messages, and those about remarks
	CountReminded  = "reminded"  // messages
	CountEscalated = "escalated" // requests
	CountUpdated   = "updated"   // messages
)

// recordReserve is the part of a deadline that is kept for recording what was sent.
const recordReserve = 5 * time.Second

// updateTimeout bounds how long a decision waits for its messages to be updated. The rest is done when it is due.
const updateTimeout = 3 * time.Second

// batchSize is how many messages are sent before that is recorded.
const batchSize = 20

// NotifyRun tells the approvers of every pending request of a run, each person once, unless another process is doing
// so. What fails is due later; the error says what could not even be recorded.
func (n *Notifier) NotifyRun(ctx context.Context, tenant, run string) error {
	ids, err := n.waitingRequests(ctx, tenant, run)
	if err != nil {
		return fmt.Errorf("tell of the requests of run %s: %w", run, err)
	}
	_, err = n.processRequests(ctx, tenant, passOptions{createsNotice: true}, ids...)
	return err
}

// waitingRequests returns the requests to people that a run waits for.
func (n *Notifier) waitingRequests(ctx context.Context, tenant, id string) (ids []string, err error) {
	l, err := cmp.Or(n.Journal, store.NewJournal(n.Table, 0)).Load(ctx, tenant, id)
	if err != nil {
		return nil, err
	}
	for _, c := range l.State.Waits() {
		if c.Wait.For != run.ForAnswer {
			ids = append(ids, c.Wait.Approval)
		}
	}
	for _, r := range l.State.OpenRequests() {
		ids = append(ids, r.Approval)
	}
	return ids, nil
}

// EnsureNotified does what NotifyRun does for the run of a pending request that has no notice, and nothing for any
// other.
func (n *Notifier) EnsureNotified(ctx context.Context, a approval.Approval) (map[string]int64, error) {
	if !n.needsNotice(a) {
		return nil, nil
	}
	have, err := loadNotice(ctx, n.Table, a.Tenant, a.ID)
	if err != nil || have.rev > 0 {
		return nil, err
	}
	others, err := n.waitingRequests(ctx, a.Tenant, a.Run)
	if err != nil && !errors.Is(err, store.ErrNoRun) {
		n.warn("find the other requests of run "+a.Run, err)
	}
	others = slices.DeleteFunc(others, func(id string) bool { return id == a.ID })
	return n.processRequests(ctx, a.Tenant, passOptions{createsNotice: true}, slices.Insert(others, 0, a.ID)...)
}

// needsNotice reports whether a pending request has work that is due later.
func (n *Notifier) needsNotice(a approval.Approval) bool {
	return a.Status == approval.Pending && (len(n.Channels) > 0 || !a.EscalatesAt.IsZero())
}

// NotifyChange notifies people, within updateTimeout, of a change to a request. It updates the messages about a decided
// request. It tells those who were told before of an edit, unless they have approved the new arguments. It sends the
// newest remarks. It makes the request's notice due and processes it, so that what fails is retried. It is an
// approval.Desk's OnChange.
func (n *Notifier) NotifyChange(ctx context.Context, a approval.Approval) {
	v := passOptions{ignoresDue: true, createsNotice: len(a.Thread) > 0 && len(n.Channels) > 0}
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

// makeDue makes a notice due now. It does nothing if there is none, or if it has left the index.
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

// groupWindow is how close to each other requests of a run must be due to be sent as one message. The requests of one
// model reply are made one after the other.
const groupWindow = 10 * time.Second

// ProcessDue does what is due of at most limit requests of all tenants, and what is due soon of the same runs. It
// returns counts of what it did. A failure of one request does not stop the others and is due again later; the error
// joins all failures.
func (n *Notifier) ProcessDue(ctx context.Context, limit int) (map[string]int64, error) {
	now, did := n.Clock.Now(), map[string]int64{}
	keys, all := n.readDue(ctx, fmt.Sprintf("%013d~", now.Add(groupWindow).UnixMilli()), limit)
	var due []*dueRun // with what is due soon in a run that has one due
	for _, key := range keys {
		at, tenant, run, id, err := parseDueSortKey(key)
		if err != nil {
			all = append(all, err)
			continue
		}
		i := slices.IndexFunc(due, func(d *dueRun) bool { return d.tenant == tenant && d.run == run })
		switch {
		case i >= 0:
			due[i].ids = append(due[i].ids, id)
		case !at.After(now):
			due = append(due, &dueRun{tenant, run, []string{id}})
		}
	}
	for _, of := range due {
		if n.isOutOfTime(ctx) { // the next sweep continues
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

type dueRun struct {
	tenant, run string
	ids         []string // of requests
}

// readDue returns the sort keys of at most limit notices, what is due first coming first. It skips what it cannot read.
func (n *Notifier) readDue(ctx context.Context, to string, limit int) (keys []string, all []error) {
	sortKey := func(it store.Item) (string, error) { return it.IndexSort, nil }
	for _, shard := range store.Shards(dueIndex) {
		r := store.Range{PK: shard, Index: true, To: to, Limit: limit}
		for end := len(keys) + limit; len(keys) < end; {
			page, next, err := store.ReadPage(ctx, n.Table, r, sortKey)
			if err != nil {
				all = append(all, fmt.Errorf("list what is due: %w", err))
			}
			if keys, r.Cursor = append(keys, page...), next; next == "" {
				break
			}
		}
	}
	slices.Sort(keys)
	return keys[:min(limit, len(keys))], all
}

// postpone makes a notice that failed due later, with a growing delay.
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

// NextDue returns when something is due next; false if nothing is. It may be as stale as the index.
func (n *Notifier) NextDue(ctx context.Context) (time.Time, bool, error) {
	keys, all := n.readDue(ctx, "", 1)
	if len(all) > 0 || len(keys) == 0 {
		return time.Time{}, false, errors.Join(all...)
	}
	at, _, _, _, err := parseDueSortKey(keys[0])
	return at, err == nil, err
}

// isOutOfTime reports whether the deadline leaves time only to record what was done.
func (n *Notifier) isOutOfTime(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && deadline.Sub(n.Clock.Now()) < recordReserve
}

func (n *Notifier) warn(what string, err error) {
	if n.Warn != nil {
		n.Warn(what, err)
	}
}
