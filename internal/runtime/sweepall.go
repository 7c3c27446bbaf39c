package runtime

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// Sweep repairs all runs of all tenants that disagree with their executions, and counts what waits. It goes through the
// lists of running and waiting runs, compares their views with the running executions, and reads the journal only of
// runs that look wrong. Of finished runs it reads those with pending work, and those whose retention is over. It
// ignores runs that moved within the last minute.
//
// One invocation does as much as its context's deadline allows and stores its place in the table; the next one
// continues there. Two never run at once (see lease). If clocks differ by seconds, two may do some work twice, which
// changes nothing. Late indexes and late lists of executions delay a repair but cause none.
type Sweep struct {
	Sweeper    *Sweeper
	Tenants    Tenants
	Executions Executions
	Notices    Notices // nil = nobody is notified of requests
	Retention  Retention
}

// Retention is how long runs are kept after their end; 0 = forever.
type Retention struct {
	Ended  time.Duration // runs that ended without an error
	Failed time.Duration // runs that ended in an error; 0 = as Ended
}

// Report says what a sweep found and did.
type Report struct {
	Skipped      bool             // another sweep was running, so this one did nothing
	Checked      int64            // open runs whose views were compared
	Repaired     map[Repair]int64 // by kind
	Failed       []FailedRepair   // runs that could not be checked or repaired
	Left         int64            // suspect runs that a later sweep inspects, for lack of time
	Notified     map[string]int64 // notifications about requests by kind, see Notices; also published events
	NotifyFailed []error          // notifications that failed; a later sweep retries them
	Deleted      []DeletedRun     // runs whose retention was over, without delegated runs
	Complete     bool             // this sweep ended the round through all lists
	Waiting      Waiting          // for the whole round; zero unless Complete
}

// DeletedRun is a run that the sweep has deleted.
type DeletedRun struct {
	Tenant string
	Deleted
}

// FailedRepair is a run, or an execution without a run, whose check failed.
type FailedRepair struct {
	Tenant, Run string
	Execution   string // for a leftover execution
	Err         error
}

// Waiting counts what waits for people and services.
type Waiting struct {
	Runs            int64     `json:"runs"`
	Since           time.Time `json:"since,omitzero"`  // when the oldest of them was parked; zero = none waits
	OutcomesUnknown int64     `json:"outcomesUnknown"` // calls with an unknown outcome
}

const (
	// sweepPage is how many runs are listed at once.
	sweepPage = 100
	// sweepReserve is the time before the deadline that is reserved to inspect suspects again and to store the place.
	sweepReserve = graceTime + 10*time.Second
	// sweepEnd is the part of sweepReserve for storing the place and answering, which a timed-out function would not do.
	sweepEnd = 5 * time.Second
	// sweepLeast is the least time that a sweep needs besides sweepReserve.
	sweepLeast = 10 * time.Second
	// maxSweep is the longest duration of a sweep, which is that of a Lambda function.
	maxSweep = 15 * time.Minute
	// maxFailures in a row end a sweep, because then the fault is not in the runs.
	maxFailures = 20
)

// ErrSweepTooShort says that the deadline leaves no time for a sweep: the function's timeout is too short.
var ErrSweepTooShort = errors.New("a sweep wants at least 80 s to its deadline; give it 2 minutes or more")

// ErrSweepStopped says that the sweep gave up because too many runs in a row could not be checked.
var ErrSweepStopped = errors.New("too many runs in a row could not be checked")

// Run sweeps. The report is valid even with an error, which says that the sweep as a whole failed. Failures of single
// runs are in the report and stop nothing.
func (s *Sweep) Run(ctx context.Context) (Report, error) {
	p := &pass{Sweep: s, running: map[string]*runner{}, holder: s.Sweeper.IDs.Writer(),
		report: Report{Repaired: map[Repair]int64{}, Failed: []FailedRepair{}, Notified: map[string]int64{}}}
	ctx, cancel := s.Sweeper.Clock.WithTimeout(ctx, maxSweep)
	defer cancel()
	deadline, _ := ctx.Deadline()
	if left := deadline.Sub(s.Sweeper.Clock.Now()); left < sweepReserve+sweepLeast {
		return p.report, fmt.Errorf("sweep with %s left: %w", left, ErrSweepTooShort)
	}
	leased, err := p.lease(ctx, deadline)
	if err == nil && !leased {
		p.report.Skipped = true
		return p.report, nil
	}
	if err == nil {
		err = p.sweep(ctx)
	}
	return p.report, errors.Join(err, p.savePlace(ctx))
}

// sweep continues the round as long as there is time.
func (p *pass) sweep(ctx context.Context) error {
	walking, cancel := p.Sweeper.withEarlierDeadline(ctx, sweepReserve)
	defer cancel()
	if err := p.load(walking); err != nil {
		return err
	}
	if p.Notices != nil { // first and for all tenants, because a reminder must not wait for a round
		deadline, _ := walking.Deadline() // at most half of the time, because a stopped run is worse than a late message
		half, cancel := p.Sweeper.withEarlierDeadline(walking, deadline.Sub(p.Sweeper.Clock.Now())/2)
		p.addNotified(p.Notices.ProcessDue(half, maxDue))
		cancel()
	}
	err := p.walk(walking)
	if err == nil && p.from.Tenant == "" { // this sweep began the round
		err = p.sweepLeftovers(walking)
	}
	if walking.Err() != nil && ctx.Err() == nil && !errors.Is(err, ErrSweepStopped) {
		err = nil // the time is up; the next sweep continues
	}
	return errors.Join(err, p.inspectSuspects(ctx))
}

// withEarlierDeadline returns a context that ends that long before ctx's deadline.
func (sw *Sweeper) withEarlierDeadline(ctx context.Context, by time.Duration) (context.Context, context.CancelFunc) {
	deadline, _ := ctx.Deadline()
	return sw.Clock.WithTimeout(ctx, deadline.Sub(sw.Clock.Now())-by)
}

// pass is a running sweep.
type pass struct {
	*Sweep
	holder   string // holder of the lease
	running  map[string]*runner
	from, at place
	suspects []suspectRun
	failures int // failures in a row
	report   Report
}

// runner is an execution that ran when the sweep began.
type runner struct {
	started time.Time
	owner   bool // the execution owns an open run
}

// lists are the lists that a round goes through for each tenant. Each function handles a page and returns the next
// cursor.
var lists = []func(p *pass, ctx context.Context) (next string, err error){
	func(p *pass, ctx context.Context) (string, error) { return p.sweepHeads(ctx, run.RunRunning) },
	func(p *pass, ctx context.Context) (string, error) { return p.sweepHeads(ctx, run.RunWaiting) },
	(*pass).sweepRequests,
	(*pass).sweepEnds,
	(*pass).sweepDeletions,
	(*pass).sweepRetained,
	(*pass).sweepOutbox,
}

// walk goes through the lists of all tenants, from where the last sweep ended.
func (p *pass) walk(ctx context.Context) error {
	tenants, err := p.Tenants.Tenants(ctx)
	if err != nil {
		return fmt.Errorf("sweep: %w", err)
	}
	for _, tenant := range tenants {
		if tenant > p.at.Tenant { // earlier tenants are done; the present tenant's lists come first
			p.at.Tenant, p.at.List, p.at.Cursor = tenant, 0, ""
		}
		for p.at.List < len(lists) {
			next, err := lists[p.at.List](p, ctx)
			if errors.Is(err, store.ErrInvalid) && p.at.Cursor != "" { // the cursor is of another version
				p.at.Cursor = ""
				continue
			}
			if err != nil {
				return fmt.Errorf("sweep: %w", err)
			}
			if p.at.Cursor = next; next == "" {
				p.at.List++
			}
		}
	}
	p.report.Complete, p.report.Waiting = true, p.at.Waiting
	return nil
}

// each checks the items of a page one after the other and records the results. unread holds the errors of unreadable
// items, which are recorded too; it is returned if it is any other error. If time runs out, the next sweep checks the
// page again.
func each[T any](ctx context.Context, p *pass, items []T, unread error, check func(T) (FailedRepair, Repair)) error {
	if errors.Is(unread, store.ErrDamaged) {
		unread = p.noteResult(FailedRepair{Tenant: p.at.Tenant, Err: unread}, RepairNone)
	}
	if unread != nil {
		return unread
	}
	for _, it := range items {
		f, r := check(it)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := p.noteResult(f, r); err != nil {
			return err
		}
	}
	return nil
}

// noteResult records the result of a check. It fails after too many failures in a row. Unreadable items do not count.
func (p *pass) noteResult(f FailedRepair, r Repair) error {
	if f.Err == nil {
		p.failures = 0
		if r != RepairNone {
			p.report.Repaired[r]++
		}
		return nil
	}
	p.report.Failed = append(p.report.Failed, f)
	if isFinal(f.Err) {
		return nil
	}
	if p.failures++; p.failures >= maxFailures {
		return fmt.Errorf("%w: %w", ErrSweepStopped, f.Err)
	}
	return nil
}

// sweepHeads compares a page of runs with the executions, several at once and without changing anything. Then it
// repairs those that disagree, one after the other, and counts those that wait. It reads journals only to repair.
func (p *pass) sweepHeads(ctx context.Context, status run.RunStatus) (next string, err error) {
	heads, next, unread := p.Sweeper.Journal.List(ctx, p.at.Tenant, status, sweepPage, p.at.Cursor)
	looks, now := make([]look, len(heads)), p.Sweeper.Clock.Now()
	clock.Parallel(p.Sweeper.Clock, len(heads), 16, func(i int) {
		h, l := heads[i], &looks[i]
		*l = look{Head: h, isIdle: now.Sub(h.UpdatedAt) >= graceTime, suspicious: p.running[h.Owner] == nil}
		if !l.isIdle || l.suspicious || h.Status != run.RunWaiting || h.Token == "" {
			return
		}
		// The waiter has stored its token, and may wait although something has arrived. While a run waits, its view says
		// exactly what it has drained (rule 1).
		if l.suspicious = isOverdue(h.Expires, p.Sweeper.Clock.Now()); !l.suspicious {
			l.suspicious, l.err = p.Sweeper.Journal.SlotTaken(ctx, h.Tenant, h.Run, h.Drained+1)
		}
	})
	err = each(ctx, p, looks, unread, func(l look) (f FailedRepair, r Repair) {
		f = FailedRepair{Tenant: l.Tenant, Run: l.Run, Err: l.err}
		if e := p.running[l.Owner]; e != nil {
			e.owner = true
		}
		if !l.isIdle {
			return f, RepairNone
		}
		p.report.Checked++
		if l.err == nil && l.suspicious {
			var sus *suspectRun
			if r, sus, f.Err = p.Sweeper.inspect(ctx, l.Tenant, l.Run, nil); sus != nil {
				p.suspects = append(p.suspects, *sus)
			}
		}
		return f, r
	})
	if err != nil || status != run.RunWaiting {
		return next, err
	}
	w := &p.at.Waiting
	for _, h := range heads {
		if w.Runs++; w.Since.IsZero() || h.UpdatedAt.Before(w.Since) {
			w.Since = h.UpdatedAt
		}
	}
	return next, nil
}

// look is a run's view with the result of the comparison.
type look struct {
	store.Head
	isIdle     bool // the run did not move within the last minute
	suspicious bool // the run needs a repair
	err        error
}

// sweepRequests counts the unknown outcomes on a page of requests, voids requests for more budget that is available
// again, and notifies people of requests about which nobody was notified.
func (p *pass) sweepRequests(ctx context.Context) (next string, err error) {
	pending := approval.Query{Status: approval.Pending, Limit: sweepPage, Cursor: p.at.Cursor}
	asked, next, unread := approval.List(ctx, p.Sweeper.Table, p.at.Tenant, pending)
	unknown := int64(0)
	err = each(ctx, p, asked, unread, func(a approval.Approval) (FailedRepair, Repair) {
		if a.Kind == approval.KindOutcome {
			unknown++
		}
		err := p.Sweeper.voidBudgetRequest(ctx, a)
		// before that, the process that made the request notifies
		if p.Notices != nil && p.Sweeper.Clock.Now().Sub(a.RequestedAt) >= graceTime {
			p.addNotified(p.Notices.EnsureNotified(ctx, a))
		}
		return FailedRepair{Tenant: a.Tenant, Run: a.Run, Err: err}, RepairNone
	})
	if err == nil { // otherwise the next sweep begins with this page
		p.at.Waiting.OutcomesUnknown += unknown
	}
	return next, err
}

// sweepEnds continues what is pending after the ends on a page, except those of the last minute. Each cleanup execution
// gets twice the time of the one before.
func (p *pass) sweepEnds(ctx context.Context) (next string, err error) {
	r := store.Range{PK: endIndex(p.at.Tenant), Index: true, Limit: sweepPage, Cursor: p.at.Cursor}
	checked := func(it store.Item) (store.Item, error) { return it, checkEndRecord(it) }
	ends, next, unread := store.ReadPage(ctx, p.Sweeper.Table, r, checked)
	if unread != nil {
		unread = fmt.Errorf("list ends with pending work: %w", unread)
	}
	now := p.Sweeper.Clock.Now().UnixMilli()
	ends = slices.DeleteFunc(ends, func(it store.Item) bool {
		return now-it.Attrs[attrAt].Int() < graceTime.Milliseconds()<<min(it.Attrs[attrTries].Int(), maxCleanups)
	})
	return next, each(ctx, p, ends, unread, func(it store.Item) (FailedRepair, Repair) {
		r, err := p.Sweeper.repairEnd(ctx, p.at.Tenant, it.IndexSort)
		return FailedRepair{Tenant: p.at.Tenant, Run: it.IndexSort, Err: err}, r
	})
}

// sweepDeletions continues a page of interrupted deletions.
func (p *pass) sweepDeletions(ctx context.Context) (next string, err error) {
	d := Deleter{Ports: p.Sweeper.Ports}
	open, next, unread := p.Sweeper.Journal.Deletions(ctx, p.at.Tenant, true, sweepPage, p.at.Cursor)
	return next, each(ctx, p, open, unread, func(r store.Deletion) (FailedRepair, Repair) {
		err := d.finish(ctx, p.at.Tenant, r, &Deleted{})
		return FailedRepair{Tenant: p.at.Tenant, Run: r.Run, Err: err}, RepairNone
	})
}

// sweepRetained deletes the runs on a page whose retention is over. Runs on which others depend are deleted with or
// after those.
func (p *pass) sweepRetained(ctx context.Context) (next string, err error) {
	if p.Retention == (Retention{}) {
		return "", nil
	}
	d, now := Deleter{Ports: p.Sweeper.Ports}, p.Sweeper.Clock.Now()
	shortest := min(cmp.Or(p.Retention.Ended, p.Retention.Failed), cmp.Or(p.Retention.Failed, p.Retention.Ended))
	ended, next, unread := p.Sweeper.Journal.ListEnded(ctx, p.at.Tenant, now.Add(-shortest), sweepPage, p.at.Cursor)
	ended = slices.DeleteFunc(ended, func(h store.Head) bool {
		kept := p.Retention.Ended
		if h.Reason == run.ReasonError {
			kept = cmp.Or(p.Retention.Failed, kept)
		}
		return kept == 0 || h.UpdatedAt.After(now.Add(-kept))
	})
	return next, each(ctx, p, ended, unread, func(h store.Head) (FailedRepair, Repair) {
		out, err := d.Delete(ctx, p.at.Tenant, h.Run, "retention")
		var kept *NotDeletable
		if errors.As(err, &kept) || errors.Is(err, store.ErrNoRun) {
			return FailedRepair{}, RepairNone
		}
		if err == nil && !out.Already {
			p.report.Deleted = append(p.report.Deleted, DeletedRun{p.at.Tenant, out})
		}
		return FailedRepair{Tenant: p.at.Tenant, Run: h.Run, Err: err}, RepairNone
	})
}

// sweepOutbox sends the events on a page that have been unsent for a minute. Without a bus they stay unsent.
func (p *pass) sweepOutbox(ctx context.Context) (next string, err error) {
	by := p.Sweeper.Clock.Now().Add(-graceTime)
	sent, next, err := p.Sweeper.SendOutbox(ctx, p.at.Tenant, by, p.at.Cursor)
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if sent > 0 {
		p.report.Notified["published"] += sent
	}
	p.addNotified(nil, err)
	return next, nil
}

// sweepLeftovers stops executions that own no open run and had time to end. Their input says which run they are for.
func (p *pass) sweepLeftovers(ctx context.Context) error {
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(p.running)), func(name string) bool {
		return p.running[name].owner || p.Sweeper.Clock.Now().Sub(p.running[name].started) < graceTime
	})
	return each(ctx, p, names, nil, func(name string) (f FailedRepair, r Repair) {
		f.Execution = name
		input, found, err := p.Executions.Input(ctx, name)
		if err != nil || !found {
			f.Err = err
			return f, RepairNone
		}
		tenant, run, ok := StartedRun(name, input)
		if !ok {
			return f, RepairNone
		}
		f.Tenant, f.Run = tenant, run
		r, f.Err = p.Sweeper.sweepLeftover(ctx, tenant, run, name)
		return f, r
	})
}

// inspectSuspects waits one minute for all suspects together, and then takes over the runs that have not moved, as many
// as there is time for. A later sweep finds the others again.
func (p *pass) inspectSuspects(ctx context.Context) error {
	if len(p.suspects) == 0 {
		return nil
	}
	looking, cancel := p.Sweeper.withEarlierDeadline(ctx, sweepEnd)
	defer cancel()
	if err := p.Sweeper.Clock.Sleep(looking, graceTime); err != nil && ctx.Err() != nil {
		return fmt.Errorf("sweep: %w", err)
	}
	for i, sus := range p.suspects {
		if looking.Err() != nil {
			p.report.Left = int64(len(p.suspects) - i)
			return nil
		}
		r, _, err := p.Sweeper.inspect(looking, sus.tenant, sus.run, &sus)
		if err != nil && looking.Err() != nil {
			continue // a later sweep finds what was begun
		}
		if err := p.noteResult(FailedRepair{Tenant: sus.tenant, Run: sus.run, Err: err}, r); err != nil {
			return err
		}
	}
	return nil
}

// maxDue is how many due requests one sweep handles. The rest stays due for the next one.
const maxDue = 1000

// addNotified adds up the notifications. Their failures stop nothing.
func (p *pass) addNotified(did map[string]int64, err error) {
	for what, n := range did {
		p.report.Notified[what] += n
	}
	if err != nil {
		p.report.NotifyFailed = append(p.report.NotifyFailed, err)
	}
}

// place is how far the sweeps have come through the lists of all tenants, and what they have counted. The zero value is
// the beginning of a round.
type place struct {
	Tenant  string  `json:"tenant,omitempty"`
	List    int     `json:"list,omitempty"` // index in lists
	Cursor  string  `json:"cursor,omitempty"`
	Waiting Waiting `json:"waiting,omitzero"`
}

// placeKey is the item of the place, which is a lease, too: until is the time until which its holder may sweep, in
// milliseconds; 0 = it is free.
var placeKey = store.Key{PK: "SWEEP", SK: "LEASE"}

const (
	attrHolder = "holder"
	attrUntil  = "until"
)

// lease makes this sweep the only one until its deadline, when it ends. A process that dies keeps the lease until then.
func (p *pass) lease(ctx context.Context, until time.Time) (leased bool, err error) {
	op := store.Op{Kind: store.Update, Item: store.Item{Key: placeKey, Attrs: map[string]store.Value{
		attrHolder: store.Str(p.holder), attrUntil: store.Num(until.UnixMilli()),
	}}}
	op.If = []store.Cond{{Attr: attrUntil, Op: store.AtMost, Value: store.Num(p.Sweeper.Clock.Now().UnixMilli())}}
	err = p.Sweeper.Table.Write(ctx, op)
	if store.FailedOp(err, 0) { // leased, or there was no sweep yet
		op.Kind, op.If = store.Put, []store.Cond{{Op: store.ItemAbsent}}
		err = p.Sweeper.Table.Write(ctx, op)
	}
	if store.FailedOp(err, 0) { // leased, perhaps by this sweep, since a request may be delivered twice
		var it store.Item
		it, _, err = p.Sweeper.Table.Get(ctx, placeKey)
		if err == nil && it.Attrs[attrHolder].String() != p.holder {
			return false, nil
		}
	}
	if err != nil {
		return false, fmt.Errorf("lease the sweep: %w", err)
	}
	return true, nil
}

// load reads where the last sweep ended, and all running executions. If the place cannot be read, the round begins
// again.
func (p *pass) load(ctx context.Context) error {
	it, found, err := p.Sweeper.Table.Get(ctx, placeKey)
	if err != nil && !errors.Is(err, store.ErrDamaged) {
		return fmt.Errorf("read the sweep's place: %w", err)
	}
	if !found || json.Unmarshal(it.Body, &p.from) != nil || p.from.List < 0 {
		p.from = place{}
	}
	p.at = p.from
	cursor := ""
	for {
		page, next, err := p.Executions.Running(ctx, cursor)
		if err != nil {
			return fmt.Errorf("sweep: %w", err)
		}
		for _, e := range page {
			p.running[e.Name] = &runner{started: e.Started}
		}
		if cursor = next; cursor == "" {
			return nil
		}
	}
}

// savePlace releases the lease and stores the place if it has changed. After a complete round, the place is the
// beginning. A sweep that has lost its lease stores nothing.
func (p *pass) savePlace(ctx context.Context) error {
	if p.report.Complete {
		p.at = place{}
	}
	op := store.Op{Kind: store.Update, If: []store.Cond{{Attr: attrHolder, Op: store.Equal, Value: store.Str(p.holder)}},
		Item: store.Item{Key: placeKey, Attrs: map[string]store.Value{
			attrHolder: store.Str(p.holder), attrUntil: store.Num(0),
		}}}
	var err error
	if p.at != p.from {
		op.Kind = store.Put
		op.Item.Body, err = json.Marshal(p.at)
	}
	if err == nil {
		err = p.Sweeper.Table.Write(ctx, op)
	}
	if err != nil {
		return fmt.Errorf("save the sweep's place: %w", err)
	}
	return nil
}
