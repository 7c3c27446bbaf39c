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

// Sweep repairs all runs of all tenants that disagree with their executions, and counts what waits. One that is done is
// never read: it goes through the lists of running and waiting runs, compares their views with the executions that run,
// and reads the journal only of a run that looks wrong. Runs that moved within the last minute are left alone.
//
// One invocation does as much as its context's deadline allows and keeps its place in the table; the next one goes on
// there. Two never run at once (see lease); if clocks disagree by seconds, two do some work twice, which changes
// nothing. A table whose indexes or executions whose lists are late delay a repair and cause none.
type Sweep struct {
	Sweeper    *Sweeper
	Tenants    Tenants
	Executions Executions
	Notices    Notices // nil = nobody is told of requests
	Retention  Retention
}

// Retention is how long runs are kept after their end; 0 = for ever.
type Retention struct {
	Ended  time.Duration // runs that ended otherwise than in an error
	Failed time.Duration // runs that ended in an error; 0 = as Ended
}

// Report is what a sweep found and did.
type Report struct {
	Skipped  bool             // another sweep is under way, so that this one did nothing
	Checked  int64            // open runs whose views were compared
	Repaired map[Repair]int64 // by kind
	Failed   []FailedRepair   // runs that could not be checked or repaired
	Left     int64            // runs that were to be looked at again and had no time left: for a later sweep
	Told     map[string]int64 // what was done about requests to people, by what it was; see Notices
	Untold   []error          // what could not be done about them, and will be later
	Deleted  []DeletedRun     // runs whose retention was over, without those below them
	Complete bool             // the round through all lists has ended with this sweep
	Waiting  Waiting          // of the whole round; zero unless Complete
}

// DeletedRun is a run that was deleted.
type DeletedRun struct {
	Tenant string
	Deleted
}

// FailedRepair is a run, or an execution that may be one's leftover, whose check failed.
type FailedRepair struct {
	Tenant, Run string
	Execution   string // of a leftover
	Err         error
}

// Waiting is what waits for people and services.
type Waiting struct {
	Runs            int64     `json:"runs"`
	Since           time.Time `json:"since,omitzero"`  // when the oldest of them was parked; zero = nothing waits
	OutcomesUnknown int64     `json:"outcomesUnknown"` // calls of which nobody knows whether they happened
}

const (
	// sweepPage is how many runs are listed at once.
	sweepPage = 100
	// sweepReserve is what is left of the deadline for the end: to look at suspects again and to keep the place.
	sweepReserve = settleTime + 10*time.Second
	// sweepEnd is what is left of that to keep the place and to answer: a function whose time is up has done neither.
	sweepEnd = 5 * time.Second
	// sweepLeast is how much there has to be beside it.
	sweepLeast = 10 * time.Second
	// maxSweep is how long a sweep takes at most, as a Lambda function.
	maxSweep = 15 * time.Minute
	// maxFailures in a row end a sweep: it is not the runs that are broken.
	maxFailures = 20
)

// ErrSweepTooShort says that the deadline leaves no time for a sweep: the function's timeout is too short.
var ErrSweepTooShort = errors.New("a sweep wants at least 80 s to its deadline; give it 2 minutes or more")

// ErrSweepStopped says that so many runs in a row could not be checked that the sweep gave up.
var ErrSweepStopped = errors.New("too many runs in a row could not be checked")

// Run sweeps. The report is valid with an error, too, which says that the sweep as a whole went wrong; what went wrong
// with one run is in the report and stops nothing.
func (s *Sweep) Run(ctx context.Context) (Report, error) {
	p := &pass{Sweep: s, running: map[string]*runner{}, holder: s.Sweeper.IDs.Writer(),
		report: Report{Repaired: map[Repair]int64{}, Failed: []FailedRepair{}, Told: map[string]int64{}}}
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

// sweep goes on with the round, as far as there is time.
func (p *pass) sweep(ctx context.Context) error {
	walking, cancel := p.Sweeper.withEarlierDeadline(ctx, sweepReserve)
	defer cancel()
	if err := p.load(walking); err != nil {
		return err
	}
	if p.Notices != nil { // for all tenants and first: a reminder does not wait for a round
		deadline, _ := walking.Deadline() // at most half of the time: a stopped run is worse than a late message
		half, cancel := p.Sweeper.withEarlierDeadline(walking, deadline.Sub(p.Sweeper.Clock.Now())/2)
		p.addNotified(p.Notices.ProcessDue(half, maxDue))
		cancel()
	}
	err := p.walk(walking)
	if err == nil && p.from.Tenant == "" { // this sweep has begun the round
		err = p.sweepLeftovers(walking)
	}
	if walking.Err() != nil && ctx.Err() == nil && !errors.Is(err, ErrSweepStopped) {
		err = nil // its time is up: the next sweep goes on
	}
	return errors.Join(err, p.inspectSuspects(ctx))
}

// withEarlierDeadline ends that long before the deadline of ctx.
func (sw *Sweeper) withEarlierDeadline(ctx context.Context, while time.Duration) (context.Context, context.CancelFunc) {
	deadline, _ := ctx.Deadline()
	return sw.Clock.WithTimeout(ctx, deadline.Sub(sw.Clock.Now())-while)
}

// pass is a sweep under way.
type pass struct {
	*Sweep
	holder   string // of the lease
	running  map[string]*runner
	from, at place
	suspects []suspectRun
	failures int // in a row
	report   Report
}

// runner is an execution that ran when the sweep began.
type runner struct {
	started time.Time
	owner   bool // of an open run
}

// lists are what a round goes through for each tenant. Each takes a page and gives the cursor of the next one.
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
		if tenant > p.at.Tenant { // those before are done, and its own lists are ended first
			p.at.Tenant, p.at.List, p.at.Cursor = tenant, 0, ""
		}
		for p.at.List < len(lists) {
			next, err := lists[p.at.List](p, ctx)
			if errors.Is(err, store.ErrInvalid) && p.at.Cursor != "" { // kept by another version
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

// each checks the items of a page, one after the other, and notes what became of each. unread says which items of the
// page cannot be read: they are noted, too, and any other error is returned. A page that time ran out on is checked
// again by the next sweep.
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

// noteResult records the result of a check. It fails when nothing works any more; an unreadable item is no sign of
// that.
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

// sweepHeads compares a page of runs with the executions, several at once and changing nothing, then repairs those that
// disagree, one after the other, and counts those that wait. Only of the former is the journal read.
func (p *pass) sweepHeads(ctx context.Context, status run.RunStatus) (next string, err error) {
	heads, next, unread := p.Sweeper.Journal.List(ctx, p.at.Tenant, status, sweepPage, p.at.Cursor)
	looks, now := make([]look, len(heads)), p.Sweeper.Clock.Now()
	clock.Parallel(p.Sweeper.Clock, len(heads), 16, func(i int) {
		h, l := heads[i], &looks[i]
		*l = look{Head: h, settled: now.Sub(h.UpdatedAt) >= settleTime, owed: p.running[h.Owner] == nil}
		if !l.settled || l.owed || h.Status != run.RunWaiting || h.Token == "" {
			return
		}
		// It has stored its token, and may wait though there is something to wake it for. While a run waits, what it has
		// drained is in its view, exactly (rule 1).
		if l.owed = isOverdue(h.Expires, p.Sweeper.Clock.Now()); !l.owed {
			l.owed, l.err = p.Sweeper.Journal.SlotTaken(ctx, h.Tenant, h.Run, h.Drained+1)
		}
	})
	err = each(ctx, p, looks, unread, func(l look) (f FailedRepair, r Repair) {
		f = FailedRepair{Tenant: l.Tenant, Run: l.Run, Err: l.err}
		if e := p.running[l.Owner]; e != nil {
			e.owner = true
		}
		if !l.settled {
			return f, RepairNone
		}
		p.report.Checked++
		if l.err == nil && l.owed {
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

// look is a run's view, and what was found out beside it.
type look struct {
	store.Head
	settled bool // the run did not move within the last minute
	owed    bool // something is owed to it
	err     error
}

// sweepRequests counts the unknown outcomes on a page of requests, voids those for more of a budget that has something
// left, and notifies people of requests that nobody was told of.
func (p *pass) sweepRequests(ctx context.Context) (next string, err error) {
	pending := approval.Query{Status: approval.Pending, Limit: sweepPage, Cursor: p.at.Cursor}
	asked, next, unread := approval.List(ctx, p.Sweeper.Table, p.at.Tenant, pending)
	unknown := int64(0)
	err = each(ctx, p, asked, unread, func(a approval.Approval) (FailedRepair, Repair) {
		if a.Kind == approval.KindOutcome {
			unknown++
		}
		err := p.Sweeper.voidBudgetRequest(ctx, a)
		if p.Notices != nil && p.Sweeper.Clock.Now().Sub(a.RequestedAt) >= settleTime { // else whoever made it tells
			p.addNotified(p.Notices.EnsureNotified(ctx, a))
		}
		return FailedRepair{Tenant: a.Tenant, Run: a.Run, Err: err}, RepairNone
	})
	if err == nil { // else the next sweep begins with this page
		p.at.Waiting.OutcomesUnknown += unknown
	}
	return next, err
}

// sweepEnds continues what is owed after the ends on a page, without those of the last minute. Each cleanup execution
// has twice the time of the one before.
func (p *pass) sweepEnds(ctx context.Context) (next string, err error) {
	r := store.Range{PK: owedIndex(p.at.Tenant), Index: true, Limit: sweepPage, Cursor: p.at.Cursor}
	checked := func(it store.Item) (store.Item, error) { return it, checkOwed(it) }
	ends, next, unread := store.ReadPage(ctx, p.Sweeper.Table, r, checked)
	if unread != nil {
		unread = fmt.Errorf("list ends that are owed: %w", unread)
	}
	now := p.Sweeper.Clock.Now().UnixMilli()
	ends = slices.DeleteFunc(ends, func(it store.Item) bool {
		return now-it.Attrs[attrAt].Int() < settleTime.Milliseconds()<<min(it.Attrs[attrTries].Int(), maxCleanups)
	})
	return next, each(ctx, p, ends, unread, func(it store.Item) (FailedRepair, Repair) {
		r, err := p.Sweeper.repairEnd(ctx, p.at.Tenant, it.IndexSort)
		return FailedRepair{Tenant: p.at.Tenant, Run: it.IndexSort, Err: err}, r
	})
}

// sweepDeletions carries on a page of deletions that were interrupted.
func (p *pass) sweepDeletions(ctx context.Context) (next string, err error) {
	d := Deleter{Ports: p.Sweeper.Ports}
	open, next, unread := p.Sweeper.Journal.Deletions(ctx, p.at.Tenant, true, sweepPage, p.at.Cursor)
	return next, each(ctx, p, open, unread, func(r store.Deletion) (FailedRepair, Repair) {
		err := d.finish(ctx, p.at.Tenant, r, &Deleted{})
		return FailedRepair{Tenant: p.at.Tenant, Run: r.Run, Err: err}, RepairNone
	})
}

// sweepRetained deletes the runs on a page whose retention is over. Those that others are about, or began from, go with
// or after these.
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

// sweepOutbox sends the events on a page that nobody has sent for a minute. Without a bus they wait for the next sweep.
func (p *pass) sweepOutbox(ctx context.Context) (next string, err error) {
	by := p.Sweeper.Clock.Now().Add(-settleTime)
	sent, next, err := p.Sweeper.SendOutbox(ctx, p.at.Tenant, by, p.at.Cursor)
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if sent > 0 {
		p.report.Told["published"] += sent
	}
	p.addNotified(nil, err)
	return next, nil
}

// sweepLeftovers waits for, or stops, executions that own no open run. Their input says which run they are for.
func (p *pass) sweepLeftovers(ctx context.Context) error {
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(p.running)), func(name string) bool {
		return p.running[name].owner || p.Sweeper.Clock.Now().Sub(p.running[name].started) < settleTime
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
		r, f.Err = p.Sweeper.StopLeftover(ctx, tenant, run, name)
		return f, r
	})
}

// inspectSuspects gives all suspects the same minute, then takes over the runs that have not moved, as many as there is
// time for. A later sweep finds the others again.
func (p *pass) inspectSuspects(ctx context.Context) error {
	if len(p.suspects) == 0 {
		return nil
	}
	looking, cancel := p.Sweeper.withEarlierDeadline(ctx, sweepEnd)
	defer cancel()
	if err := p.Sweeper.Clock.Sleep(looking, settleTime); err != nil && ctx.Err() != nil {
		return fmt.Errorf("sweep: %w", err)
	}
	for i, sus := range p.suspects {
		if looking.Err() != nil {
			p.report.Left = int64(len(p.suspects) - i)
			return nil
		}
		r, _, err := p.Sweeper.inspect(looking, sus.tenant, sus.run, &sus)
		if err != nil && looking.Err() != nil {
			continue // what was begun is found again
		}
		if err := p.noteResult(FailedRepair{Tenant: sus.tenant, Run: sus.run, Err: err}, r); err != nil {
			return err
		}
	}
	return nil
}

// maxDue is how many requests one sweep attends to because something about them is due. The others are due for the next
// one.
const maxDue = 1000

// addNotified adds up the notifications. Failures among them stop nothing.
func (p *pass) addNotified(did map[string]int64, err error) {
	for what, n := range did {
		p.report.Told[what] += n
	}
	if err != nil {
		p.report.Untold = append(p.report.Untold, err)
	}
}

// place is how far the sweeps have come through the lists of all tenants, and what they have counted on the way. The
// zero value is before the first of them.
type place struct {
	Tenant  string  `json:"tenant,omitempty"`
	List    int     `json:"list,omitempty"` // of lists
	Cursor  string  `json:"cursor,omitempty"`
	Waiting Waiting `json:"waiting,omitzero"`
}

// The place's item is a lease, too: until says until when its holder may sweep, in milliseconds; 0 = nobody does.
var placeKey = store.Key{PK: "SWEEP", SK: "LEASE"}

const (
	attrHolder = "holder"
	attrUntil  = "until"
)

// lease makes this sweep the only one until its deadline, when it ends. A process that dies keeps the others out for as
// long.
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
	if store.FailedOp(err, 0) { // leased, perhaps by this one: a request may be delivered twice
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

// load reads where the last sweep ended, and all executions that run. Where its place cannot be read, the round begins
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

// savePlace gives the lease back, and stores the place where it has changed: the beginning when the round has ended. A
// sweep that has lost its lease stores nothing.
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
		return fmt.Errorf("keep the sweep's place: %w", err)
	}
	return nil
}
