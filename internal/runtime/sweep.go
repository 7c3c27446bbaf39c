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

// Repair is what the sweeper did to a run.
type Repair string

// The repairs.
const (
	RepairNone     Repair = ""
	RepairStarted  Repair = "started"   // its execution had never begun
	RepairTookOver Repair = "took_over" // its execution had ended and the run had not, or had missed its wake-up
	RepairWoke     Repair = "woke"      // an input had come and nobody had woken it
	RepairExpired  Repair = "expired"   // its wait was over and nothing had ended it
	RepairFailed   Repair = "failed"    // so many executions had ended that it is given up
	RepairTold     Repair = "told"      // it had ended, and whoever ended it had not said so
	RepairClosed   Repair = "closed"    // it had ended, and its requests to people were still open
	// it had ended from outside and was not cleaned up after: an execution does that now
	RepairCleaning Repair = "cleaning"
	RepairStopped  Repair = "stopped" // an execution ran on though the run was done, or another's
)

// Repairs are all kinds of repair but none, in the order of their declaration.
func Repairs() []Repair {
	return []Repair{
		RepairStarted, RepairTookOver, RepairWoke, RepairExpired, RepairFailed, RepairTold, RepairClosed, RepairCleaning,
		RepairStopped,
	}
}

const (
	// settleTime is how long an execution that was just woken, or whose run has just ended or been handed over, has to
	// act.
	settleTime = time.Minute
	// maxTakeOvers is how many of a run's executions may end before it does: then it is not taken over again, unless the
	// last was throttled. Those that handed over do not count.
	maxTakeOvers = 100
)

// Sweeper finds runs that disagree with their executions and repairs them (rule 14). Safe for concurrent use, and
// idempotent.
type Sweeper struct {
	Ports
	Definitions Definitions
	// LeaveWoken says that an execution whose wait is over is sure to act: the local engine records the wake-up with the
	// wait. Else it has a minute.
	LeaveWoken bool
	Void       func(ctx context.Context, a approval.Approval) error // as approval.Desk.Void
}

// Repair repairs one run. Where an input waits and the run's token is used up, it gives the execution a minute first;
// without a minute to its deadline, ErrSweepTooShort.
func (sw *Sweeper) Repair(ctx context.Context, tenant, run string) (Repair, error) {
	r, sus, err := sw.inspect(ctx, tenant, run, nil)
	if err != nil || sus == nil {
		return r, err
	}
	// say so, rather than be cut off asleep
	if deadline, ok := ctx.Deadline(); ok && deadline.Sub(sw.Clock.Now()) < settleTime+sweepEnd {
		return RepairNone, fmt.Errorf("sweep run %s: %w", run, ErrSweepTooShort)
	}
	if err := sw.Clock.Sleep(ctx, settleTime); err != nil {
		return RepairNone, fmt.Errorf("sweep run %s: %w", run, err)
	}
	r, _, err = sw.inspect(ctx, tenant, run, sus)
	return r, err
}

// suspectRun is a run whose wait is over and that has not moved: its wake-up may be lost with its execution, or be
// under way. It is inspected again after a minute and taken over if nothing has changed.
type suspectRun struct {
	tenant, run string
	entries     int64
}

var errSuspect = errors.New("the run's wait is over and it stays as it is")

// inspect repairs a run, or finds it suspect. known is what it was a minute ago; nil at the first look.
func (sw *Sweeper) inspect(
	ctx context.Context, tenant, run string, known *suspectRun,
) (r Repair, sus *suspectRun, err error) {
	l, err := sw.Journal.Load(ctx, tenant, run)
	switch {
	case err != nil:
	case known == nil:
		r, err = sw.repair(ctx, l)
	case l.State.Entries == known.entries:
		r, err = sw.takeOver(ctx, l, false)
	}
	if errors.Is(err, errSuspect) {
		return RepairNone, &suspectRun{tenant, run, l.State.Entries}, nil
	}
	r, err = ignoreConflict(r, run, err)
	return r, nil, err
}

// ignoreConflict ignores a conflict: another writer acts on the run, which needs no repair.
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

// repair makes the first repair that the run needs. They are looked for in this order.
func (sw *Sweeper) repair(ctx context.Context, l store.Loaded) (Repair, error) {
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
	case status == ExecutionEnded, status == ExecutionThrottled:
		return sw.takeOver(ctx, l, status == ExecutionThrottled)
	case s.Status == run.RunWaiting && (len(l.Inbox) > 0 || isOverdue(s.EarliestExpiry(), sw.Clock.Now())):
		return sw.wake(ctx, l)
	default:
		return sw.stopLeftover(ctx, s, s.FormerOwner)
	}
}

// StopLeftover stops an execution by that name if the run does not need it any more and it had the time to end by
// itself. A run that does not exist has none to stop.
func (sw *Sweeper) StopLeftover(ctx context.Context, tenant, runID, name string) (Repair, error) {
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
	if r == RepairStopped { // whoever ended the run may have died before its end was told
		err = errors.Join(err, sw.notifyWithoutCleanup(ctx, &l.State))
	}
	return ignoreConflict(r, runID, err)
}

// stopLeftover stops an execution that the run does not need any more and that had the time to end by itself.
func (sw *Sweeper) stopLeftover(ctx context.Context, s *run.AgentState, name string) (Repair, error) {
	if name == "" || sw.Clock.Now().Sub(s.UpdatedAt) < settleTime {
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

// isOverdue reports whether a wait is over for so long that its execution should have noticed.
func isOverdue(expires, now time.Time) bool {
	return !expires.IsZero() && now.Sub(expires) >= settleTime
}

// wake completes the token of a run that nobody has woken for its inputs, or for the end of its wait. Without a token
// there is nothing to do: the waiter looks when it has stored one. Where the token is used up and the run stays as it
// is, the wake-up is lost with the execution that had it.
func (sw *Sweeper) wake(ctx context.Context, l store.Loaded) (Repair, error) {
	s := &l.State
	h, err := sw.Journal.Head(ctx, s.Tenant, s.Run)
	if err != nil || h.Status != run.RunWaiting || h.Token == "" {
		return RepairNone, err
	}
	err = sw.Waiter.Success(ctx, h.Token)
	switch {
	case errors.Is(err, ErrSettled) && !sw.LeaveWoken:
		return RepairNone, errSuspect
	case errors.Is(err, ErrSettled):
		return RepairNone, nil
	case err != nil:
		return RepairNone, err
	}
	kind, sum := RepairExpired, sha256.Sum256([]byte(h.Token))
	if len(l.Inbox) > 0 {
		kind = RepairWoke
	}
	return sw.record(ctx, s, kind, hex.EncodeToString(sum[:8])), nil // which names the token without revealing it
}

// takeOver makes the next execution the owner, conditional on the sequence, starts it and stops the old one. Where so
// many have ended, the run ends as failed (rule 4), unless the last was throttled: throttling ends no run, however
// often.
func (sw *Sweeper) takeOver(ctx context.Context, l store.Loaded, throttled bool) (Repair, error) {
	s := &l.State
	def, err := sw.Definitions(ctx, s.Tenant, s.Definition)
	if err != nil {
		return RepairNone, err
	}
	if s.TakeOvers() >= maxTakeOvers && !throttled {
		after, err := sw.endOutside(ctx, l, def, func(*run.AgentState) run.Finished {
			return policy.Fail(run.CodeInternal, fmt.Sprintf("%d executions ended before the run did", s.TakeOvers()+1))
		}, sw.recordOp(s, RepairFailed, s.Owner))
		if err == nil {
			err = sw.finishOutsideEnd(ctx, &after, namesCleanup(def), nil)
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

// Every repair has a record, PK T#tenant#REPAIR#run, SK sequence#kind#of, put if absent: an operator lists them (R18),
// and of several sweeps that did the same one counts it. A repair that is an entry has its record in the entry's
// transaction; the others have it right after. Whoever dies between has repaired something that nobody counted.

// Repaired is one repair of a run.
type Repaired struct {
	Run  string    `json:"run"`
	Kind Repair    `json:"kind"`
	Of   string    `json:"of,omitempty"` // the execution, or the token's name, that it was about
	Seq  int64     `json:"seq"`          // the newest entry of the run that was repaired
	At   time.Time `json:"at"`
}

func repairsIndex(tenant string) string { return "T#" + tenant + "#REPAIRS" }

func repairKey(tenant string, r Repaired) store.Key {
	return store.Key{PK: "T#" + tenant + "#REPAIR#" + r.Run, SK: fmt.Sprintf("%010d#%s#%s", r.Seq, r.Kind, r.Of)}
}

// recordOp is the record of a repair of the run as it was found.
func (sw *Sweeper) recordOp(s *run.AgentState, kind Repair, of string) store.Op {
	r := Repaired{Run: s.Run, Kind: kind, Of: of, Seq: s.Seq(), At: sw.Clock.Now().UTC().Truncate(time.Millisecond)}
	body, _ := json.Marshal(r) // strings, a number and a time always marshal
	return store.Op{Kind: store.Put, If: []store.Cond{{Op: store.ItemAbsent}}, Item: store.Item{
		Key: repairKey(s.Tenant, r), Index: repairsIndex(s.Tenant),
		IndexSort: fmt.Sprintf("%013d#%s#%s", r.At.UnixMilli(), s.Run, kind), Body: body,
	}}
}

// record notes a repair that was made. It is none where another sweep has noted the same.
func (sw *Sweeper) record(ctx context.Context, s *run.AgentState, kind Repair, of string) Repair {
	err := sw.Table.Write(ctx, sw.recordOp(s, kind, of))
	if store.FailedOp(err, 0) {
		return RepairNone
	}
	if err != nil { // it is repaired; the count is short
		sw.warn("note that run "+s.Run+" was repaired", err)
	}
	return kind
}

// ListRepaired pages through a tenant's repairs, the newest first. Limit 0 is 50. It may be late.
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
