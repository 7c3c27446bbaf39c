package runtime

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// Repair is a kind of repair of a run.
type Repair string

// The repairs.
const (
	RepairNone      Repair = ""
	RepairStarted   Repair = "started"   // the execution had never started
	RepairTookOver  Repair = "took_over" // the execution had ended or missed its wake-up, and the run had not ended
	RepairWoke      Repair = "woke"      // an input had arrived and the run was not woken
	RepairExpired   Repair = "expired"   // the wait had expired and nothing had ended it
	RepairFailed    Repair = "failed"    // too many executions had ended, so the run was failed
	RepairAnnounced Repair = "told"      // the run had ended without an announcement
	RepairClosed    Repair = "closed"    // the run had ended and its requests to people were still open
	// the run had ended from outside and its cleanup was pending; an execution does it now
	RepairCleaning Repair = "cleaning"
	RepairStopped  Repair = "stopped" // an execution was running although the run was done or had another owner
)

// Repairs returns all kinds of repair except none, in the order of their declaration.
func Repairs() []Repair {
	return []Repair{
		RepairStarted, RepairTookOver, RepairWoke, RepairExpired, RepairFailed, RepairAnnounced, RepairClosed, RepairCleaning,
		RepairStopped,
	}
}

const (
	// graceTime is how long an execution has to act after it was woken, or after its run has ended or was handed over.
	graceTime = time.Minute
	// maxTakeOvers is how many of a run's executions may end before the run does. Then the run is not taken over again,
	// unless the last execution left it open for a reason that passes. Executions that handed over do not count.
	maxTakeOvers = 100
)

// Sweeper finds runs that disagree with their executions and repairs them (rule 14). Safe for concurrent use, and
// idempotent.
type Sweeper struct {
	Ports
	Definitions Definitions
	// TrustWoken says that an execution whose wait is over will certainly act, because the local engine records the
	// wake-up with the wait. Otherwise the execution has a minute to act.
	TrustWoken bool
	Void       func(ctx context.Context, a approval.Approval) error // as approval.Desk.Void
}

// Repair repairs one run. If an input waits and the run's token is used up, it first gives the execution a minute. It
// returns ErrSweepTooShort if its deadline is sooner.
func (sw *Sweeper) Repair(ctx context.Context, tenant, run string) (Repair, error) {
	r, sus, err := sw.inspect(ctx, tenant, run, nil)
	if err != nil || sus == nil {
		return r, err
	}
	// fail now rather than be stopped while asleep
	if deadline, ok := ctx.Deadline(); ok && deadline.Sub(sw.Clock.Now()) < graceTime+sweepEnd {
		return RepairNone, fmt.Errorf("sweep run %s: %w", run, ErrSweepTooShort)
	}
	if err := sw.Clock.Sleep(ctx, graceTime); err != nil {
		return RepairNone, fmt.Errorf("sweep run %s: %w", run, err)
	}
	r, _, err = sw.inspect(ctx, tenant, run, sus)
	return r, err
}

// suspectRun is a run whose wait is over and that has not moved. Its wake-up may be lost with its execution, or under
// way. It is inspected again after a minute, and taken over if nothing has changed.
type suspectRun struct {
	tenant, run string
	entries     int64
}

var errSuspect = errors.New("the run's wait is over and it stays as it is")

// inspect repairs a run or reports it as suspect. known is the suspect of a minute ago; nil at the first inspection.
func (sw *Sweeper) inspect(
	ctx context.Context, tenant, run string, known *suspectRun,
) (r Repair, sus *suspectRun, err error) {
	l, err := sw.Journal.Load(ctx, tenant, run)
	switch {
	case err != nil:
	case known == nil:
		r, err = sw.repairLoaded(ctx, l)
	case l.State.Entries == known.entries:
		r, err = sw.takeOver(ctx, l, false)
	}
	if errors.Is(err, errSuspect) {
		return RepairNone, &suspectRun{tenant, run, l.State.Entries}, nil
	}
	r, err = ignoreConflict(r, run, err)
	return r, nil, err
}

// ignoreConflict ignores a conflict, because another writer then acts on the run and no repair is needed.
func ignoreConflict(r Repair, run string, err error) (Repair, error) {
	switch {
	case err == nil:
		return r, nil
	case isConflict(err):
		return RepairNone, nil
	default:
		return r, fmt.Errorf("sweep run %s: %w", run, err)
	}
}

// repairLoaded makes the first repair that the run needs, in this order.
func (sw *Sweeper) repairLoaded(ctx context.Context, l store.Loaded) (Repair, error) {
	s := &l.State
	if s.Status == run.RunDone {
		r, err := sw.stopLeftover(ctx, s, s.Owner)
		return r, errors.Join(err, sw.notifyWithoutCleanup(ctx, s))
	}
	status, err := sw.Waiter.Status(ctx, s.Owner)
	if err != nil {
		return RepairNone, err
	}
	switch {
	case status == ExecutionNone:
		if err := sw.Waiter.Start(ctx, s.Tenant, s.Run, s.Owner); err != nil {
			return RepairNone, err
		}
		return sw.record(ctx, s, RepairStarted, s.Owner), nil
	case status == ExecutionOutdated && sw.Clock.Now().Sub(s.UpdatedAt) < graceTime: // the next would end like it
		return RepairNone, nil
	case status == ExecutionEnded, status == ExecutionThrottled, status == ExecutionOutdated:
		return sw.takeOver(ctx, l, status != ExecutionEnded)
	case s.Status == run.RunWaiting && (len(l.Inbox) > 0 || isOverdue(s.EarliestExpiry(), sw.Clock.Now())):
		return sw.wake(ctx, l)
	default:
		return sw.stopLeftover(ctx, s, s.FormerOwner)
	}
}

// sweepLeftover stops an execution by name if the run does not need it any more and it had time to end by itself. It
// does nothing for a run that does not exist.
func (sw *Sweeper) sweepLeftover(ctx context.Context, tenant, runID, name string) (Repair, error) {
	l, err := sw.Journal.Load(ctx, tenant, runID)
	switch {
	case errors.Is(err, store.ErrNoRun), err == nil && l.State.Status != run.RunDone && l.State.Owner == name:
		return RepairNone, nil
	case err != nil:
		return RepairNone, fmt.Errorf("sweep run %s: %w", runID, err)
	case isCleanup(runID, name) && l.State.Owner != name: // it ends by itself
		return RepairNone, nil
	}
	r, err := sw.stopLeftover(ctx, &l.State, name)
	if r == RepairStopped { // the process that ended the run may have died before the announcement
		err = errors.Join(err, sw.notifyWithoutCleanup(ctx, &l.State))
	}
	return ignoreConflict(r, runID, err)
}

// stopLeftover stops an execution that the run does not need any more and that had time to end by itself.
func (sw *Sweeper) stopLeftover(ctx context.Context, s *run.AgentState, name string) (Repair, error) {
	if name == "" || sw.Clock.Now().Sub(s.UpdatedAt) < graceTime {
		return RepairNone, nil
	}
	status, err := sw.Waiter.Status(ctx, name)
	if err != nil || status != ExecutionRunning {
		return RepairNone, err
	}
	if err := sw.Waiter.Stop(ctx, name, "the run goes on without it"); err != nil {
		return RepairNone, err
	}
	return sw.record(ctx, s, RepairStopped, name), nil
}

// isOverdue reports whether a wait ended so long ago that its execution should have noticed.
func isOverdue(expires, now time.Time) bool {
	return !expires.IsZero() && now.Sub(expires) >= graceTime
}

// wake completes the token of a run that was not woken for its inputs or for the end of its wait. Without a token it
// does nothing, because the waiter checks after storing one. If the token is used up and the run does not move, the
// wake-up is lost with its execution.
func (sw *Sweeper) wake(ctx context.Context, l store.Loaded) (Repair, error) {
	s := &l.State
	h, err := sw.Journal.Head(ctx, s.Tenant, s.Run)
	if err != nil || h.Status != run.RunWaiting || h.Token == "" {
		return RepairNone, err
	}
	err = sw.Waiter.Success(ctx, h.Token)
	switch {
	case errors.Is(err, ErrTokenUsed) && !sw.TrustWoken:
		return RepairNone, errSuspect
	case errors.Is(err, ErrTokenUsed):
		return RepairNone, nil
	case err != nil:
		return RepairNone, err
	}
	kind, sum := RepairExpired, sha256.Sum256([]byte(h.Token))
	if len(l.Inbox) > 0 {
		kind = RepairWoke
	}
	return sw.record(ctx, s, kind, hex.EncodeToString(sum[:8])), nil // identifies the token without revealing it
}

// takeOver makes the next execution the owner, conditional on the sequence, starts it and stops the old one. After too
// many executions the run ends as failed (rule 4), unless the last one left it open: neither throttling nor
// another version ends a run.
func (sw *Sweeper) takeOver(ctx context.Context, l store.Loaded, leftOpen bool) (Repair, error) {
	s := &l.State
	def, err := sw.Definitions(ctx, s.Tenant, s.Definition)
	if err != nil {
		return RepairNone, err
	}
	if s.TakeOvers() >= maxTakeOvers && !leftOpen {
		after, err := sw.endOutside(ctx, l, def, func(*run.AgentState) run.Finished {
			return policy.Fail(run.CodeInternal, fmt.Sprintf("%d executions ended before the run did", s.TakeOvers()+1))
		}, sw.recordOp(s, RepairFailed, s.Owner))
		if err == nil {
			err = sw.finishOutsideEnd(ctx, &after, hasCleanup(def), nil)
		}
		return RepairFailed, err
	}
	next := ExecutionName(s.Run, s.Generation+1)
	// the inbox is left to the next execution
	d, err := sw.draft(ctx, Invocation{Writer: sw.IDs.Writer()}, store.Loaded{State: *s}, def)
	if err == nil {
		err = d.Add(run.HandedOver{Owner: next})
	}
	if err != nil {
		return RepairNone, err
	}
	if err := sw.commit(ctx, d, def, sw.recordOp(s, RepairTookOver, next)); err != nil {
		return RepairNone, err
	}
	if err := sw.Waiter.Start(ctx, s.Tenant, s.Run, next); err != nil {
		return RepairNone, err
	}
	return RepairTookOver, sw.Waiter.Stop(ctx, s.Owner, "taken over")
}

// Every repair has a record, PK T#tenant#REPAIR#run, SK sequence#kind#of, put if absent. Operators list the records
// (R18), and of several sweeps that did the same only one counts. A repair that is an entry has its record in the
// entry's transaction; others are recorded right after. If the process dies in between, the repair is not counted.

// Repaired is the record of one repair.
type Repaired struct {
	Run  string    `json:"run"`
	Kind Repair    `json:"kind"`
	Of   string    `json:"of,omitempty"` // the execution, or the hash of the token
	Seq  int64     `json:"seq"`          // the run's newest entry before the repair
	At   time.Time `json:"at"`
}

func repairsIndex(tenant string) string { return "T#" + tenant + "#REPAIRS" }

func repairKey(tenant string, r Repaired) store.Key {
	return store.Key{PK: "T#" + tenant + "#REPAIR#" + r.Run, SK: fmt.Sprintf("%010d#%s#%s", r.Seq, r.Kind, r.Of)}
}

// recordOp returns the write of the record of a repair.
func (sw *Sweeper) recordOp(s *run.AgentState, kind Repair, of string) store.Op {
	r := Repaired{Run: s.Run, Kind: kind, Of: of, Seq: s.Seq(), At: sw.Clock.Now().UTC().Truncate(time.Millisecond)}
	body, _ := json.Marshal(r) // strings, a number and a time always marshal
	return store.Op{Kind: store.Put, If: []store.Cond{{Op: store.ItemAbsent}}, Item: store.Item{
		Key: repairKey(s.Tenant, r), Index: repairsIndex(s.Tenant),
		IndexSort: fmt.Sprintf("%013d#%s#%s", r.At.UnixMilli(), s.Run, kind), Body: body,
	}}
}

// record writes the record of a repair that was made. It returns RepairNone if another sweep has recorded it.
func (sw *Sweeper) record(ctx context.Context, s *run.AgentState, kind Repair, of string) Repair {
	err := sw.Table.Write(ctx, sw.recordOp(s, kind, of))
	if store.FailedOp(err, 0) {
		return RepairNone
	}
	if err != nil { // the run is repaired, but not counted
		sw.warn("note that run "+s.Run+" was repaired", err)
	}
	return kind
}

// ListRepaired pages through a tenant's repairs, the newest first. Limit 0 is 50. The list may be late.
func ListRepaired(
	ctx context.Context, t store.Table, tenant string, limit int, cursor string,
) (list []Repaired, next string, err error) {
	if limit == 0 {
		limit = 50
	}
	r := store.Range{PK: repairsIndex(tenant), Index: true, Reverse: true, Limit: limit, Cursor: cursor}
	list, next, err = store.ReadPage(ctx, t, r, func(it store.Item) (r Repaired, err error) {
		if err := jsonx.ReadStored("repair", it.Body, &r); err != nil {
			return r, store.Damaged(it.Key, "%w", err)
		}
		if it.Key != repairKey(tenant, r) || r.At.IsZero() {
			return r, store.Damaged(it.Key, "run, seq, kind and of: want those of the key, and when")
		}
		return r, nil
	})
	if err != nil {
		err = fmt.Errorf("list repairs: %w", err)
	}
	return list, next, err
}
