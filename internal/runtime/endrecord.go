package runtime

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/hook"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// Records of ends with pending work. An end that no execution commits might never be announced if the committing
// process dies, and that process cannot clean up after the run. An end also commits alone, however many requests to
// people are open; they are closed afterwards. So an end whose announcement, cleanup or closing of requests is pending
// has a record in its transaction, under PK T#tenant#END#run, SK "E". The record is listed until nothing is pending.

func endKey(tenant, run string) store.Key {
	return store.Key{PK: "T#" + tenant + "#END#" + run, SK: "E"}
}

func endIndex(tenant string) string { return "T#" + tenant + "#ENDS" }

// endRecord is the record of an end, without its time. The zero value has nothing pending.
type endRecord struct {
	listed   bool                   // something is pending, at least the announcement
	cleaning bool                   // cleanup is pending
	requests []approval.OpenRequest // requests that have to be closed
	notified bool                   // no announcement is pending
	tries    int64                  // cleanup executions that failed
}

// The attributes of a record. "at" is the start of its newest execution, actual or planned, in milliseconds.
const (
	attrAt       = "at"
	attrCleaning = "cleanup"  // 1 while pending
	attrRequests = "open"     // 1 while closing requests is pending
	attrNotified = "notified" // 1
	attrTries    = "tries"
)

func (p Ports) loadEndRecord(ctx context.Context, tenant, run string) (endRecord, error) {
	it, _, err := p.Table.Get(ctx, endKey(tenant, run))
	if err == nil {
		err = checkEndRecord(it)
	}
	record := endRecord{
		listed: it.Index != "", cleaning: it.Attrs[attrCleaning].Int() == 1, notified: it.Attrs[attrNotified].Int() == 1,
		tries: it.Attrs[attrTries].Int(),
	}
	if err == nil && it.Attrs[attrRequests].Int() == 1 {
		if invalid := json.Unmarshal(it.Body, &record.requests); invalid != nil {
			err = store.Damaged(it.Key, "%w", invalid)
		}
	}
	if err != nil {
		return endRecord{}, fmt.Errorf("read the end record of run %s: %w", run, err)
	}
	return record, nil
}

// checkEndRecord returns an error if an item is not a valid record. The zero item is valid.
func checkEndRecord(it store.Item) error {
	if it.Index != "" {
		if _, err := it.Number(attrAt); err != nil {
			return err
		}
	}
	for _, name := range []string{attrCleaning, attrRequests, attrNotified, attrTries} {
		if _, there := it.Attrs[name]; !there {
			continue
		}
		if n, err := it.Number(name); err != nil || n < 0 || n > 1 && name != attrTries {
			return cmp.Or(err, store.Damaged(it.Key, "%s: got %d, want 0 or 1, or a count", name, n))
		}
	}
	return nil
}

// updateEndRecord changes the record of a run's end if attr still has the value was; done is false if it does not.
func (p Ports) updateEndRecord(
	ctx context.Context, s *run.AgentState, attr string, was int64, to map[string]store.Value,
) (done bool, err error) {
	err = p.Table.Write(ctx, store.Op{
		Kind: store.Update, Item: store.Item{Key: endKey(s.Tenant, s.Run), Attrs: to},
		If: []store.Cond{{Attr: attr, Op: store.Equal, Value: store.Num(was)}},
	})
	if store.FailedOp(err, 0) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("update the end record of run %s: %w", s.Run, err)
	}
	return true, nil
}

func (p Ports) clearEndRecord(ctx context.Context, s *run.AgentState) error {
	if err := p.Table.Write(ctx, store.Op{Kind: store.Put, Item: store.Item{Key: endKey(s.Tenant, s.Run)}}); err != nil {
		return fmt.Errorf("clear the end record of run %s: %w", s.Run, err)
	}
	return nil
}

// endOutside ends a run that no execution ends. It commits the end with the record of what is pending, and closes the
// run's requests to people.
func (p Ports) endOutside(
	ctx context.Context, l store.Loaded, def *agent.Definition, end func(*run.AgentState) run.Finished, beside ...store.Op,
) (run.AgentState, error) {
	inv := Invocation{Tenant: l.State.Tenant, Run: l.State.Run, Writer: p.IDs.Writer()}
	d, err := p.draft(ctx, inv, l, def)
	if err != nil {
		return run.AgentState{}, err
	}
	if err := addEnd(d, end(&d.State)); err != nil {
		return run.AgentState{}, err
	}
	announced, err := p.hasListeners(&d.State)
	attrs := map[string]store.Value{attrAt: store.Num(d.Entry.Time.UnixMilli())}
	if hasCleanup(def) {
		attrs[attrCleaning], attrs[attrTries] = store.Num(1), store.Num(0)
	}
	if announced || hasCleanup(def) {
		beside = append(beside, endRecordOp(&d.State, attrs))
	}
	if err == nil {
		err = p.commit(ctx, d, def, beside...)
	}
	if err != nil {
		return run.AgentState{}, err
	}
	after := d.Committed()
	return after, p.closeRequests(ctx, &after)
}

func endRecordOp(s *run.AgentState, attrs map[string]store.Value) store.Op {
	return store.Op{Kind: store.Put, Item: store.Item{
		Key: endKey(s.Tenant, s.Run), Index: endIndex(s.Tenant), IndexSort: s.Run, Attrs: attrs,
	}}
}

// addOpenRequests adds to the record of an end the requests to people that the draft's end leaves open. If the
// transaction has no such record, one is added.
func addOpenRequests(d *run.Draft, beside []store.Op) ([]store.Op, error) {
	ids := openRequestIDs(&d.State)
	var open []approval.OpenRequest
	for _, c := range d.Before.Waits() {
		if c.Wait.For != run.ForAnswer && slices.Contains(ids, c.Wait.Approval) {
			open = append(open, approval.OpenRequest{ID: c.Wait.Approval, Since: c.Wait.Since})
		}
	}
	for _, r := range d.Before.Permissions.Asked {
		if slices.Contains(ids, r.Approval) {
			open = append(open, approval.OpenRequest{ID: r.Approval, Since: r.Since})
		}
	}
	if len(open) == 0 {
		return beside, nil
	}
	body, err := json.Marshal(open)
	if err != nil {
		return nil, fmt.Errorf("end run %s: %w", d.State.Run, err)
	}
	beside = slices.Clone(beside)
	i := slices.IndexFunc(beside, func(op store.Op) bool { return op.Item.Key == endKey(d.State.Tenant, d.State.Run) })
	if i < 0 { // an execution commits and announces this end
		i = len(beside)
		beside = append(beside, endRecordOp(&d.State, map[string]store.Value{
			attrAt: store.Num(d.Entry.Time.UnixMilli()), attrNotified: store.Num(1),
		}))
	}
	beside[i].Item.Attrs = maps.Clone(beside[i].Item.Attrs)
	beside[i].Item.Attrs[attrRequests], beside[i].Item.Body = store.Num(1), body
	return beside, nil
}

// closeRequests closes the requests to people that the end of a run has left open, if that is pending. It is called by
// every process that ends a run or finds it ended.
func (p Ports) closeRequests(ctx context.Context, s *run.AgentState) error {
	if len(openRequestIDs(s)) == 0 {
		return nil
	}
	record, err := p.loadEndRecord(ctx, s.Tenant, s.Run)
	if err != nil || len(record.requests) == 0 {
		return err
	}
	if err := approval.CloseRequests(ctx, p.Table, s.Tenant, record.requests); err != nil {
		return fmt.Errorf("end run %s: %w", s.Run, err)
	}
	if record.notified && !record.cleaning {
		return p.clearEndRecord(ctx, s)
	}
	_, err = p.updateEndRecord(ctx, s, attrRequests, 1, map[string]store.Value{attrRequests: store.Num(0)})
	return err
}

// finishOutsideEnd does what follows an end that no execution committed, after its requests are closed. It cleans up,
// here with the definitions or, without them or if that fails, in an execution; and it announces the end. It notifies
// the family once: each cancelled child does the same, so a second time would double the work at every level.
func (p Ports) finishOutsideEnd(ctx context.Context, s *run.AgentState, cleaning bool, here Definitions) error {
	if !cleaning {
		return p.notifyOutsideEnd(ctx, s)
	}
	// the cleanup execution does not notify the family; if notifying fails, the record stays
	if err := p.NotifyFamily(ctx, s); err != nil {
		return err
	}
	if here != nil {
		failed := p.cleanUpEnd(ctx, s, here)
		if failed == nil {
			return nil
		}
		p.warn("clean up after run "+s.Run, failed)
	}
	if err := p.Waiter.Start(ctx, s.Tenant, s.Run, CleanupName(s.Run, 0)); err != nil {
		return fmt.Errorf("start the cleanup of run %s: %w", s.Run, err)
	}
	return nil
}

// notifyOutsideEnd announces an end that no execution committed and that has nothing else pending, and removes it from
// the list.
func (p Ports) notifyOutsideEnd(ctx context.Context, s *run.AgentState) error {
	if err := p.notifyEnd(ctx, s); err != nil {
		return err
	}
	announced, err := p.hasListeners(s)
	if err != nil || !announced {
		return err
	}
	return p.clearEndRecord(ctx, s)
}

// hasListeners reports whether the end of a run has to be announced to anybody.
func (p Ports) hasListeners(s *run.AgentState) (bool, error) {
	_, announced, err := policy.Announcement(s)
	return announced && p.Emit != nil || hasFamily(s), err
}

// notifyWithoutCleanup announces the end of a finished run, unless its pending cleanup will.
func (p Ports) notifyWithoutCleanup(ctx context.Context, s *run.AgentState) error {
	record, err := p.loadEndRecord(ctx, s.Tenant, s.Run)
	if err != nil || record.cleaning {
		return err
	}
	return p.notifyEnd(ctx, s)
}

func (sw *Sweeper) repairEnd(ctx context.Context, tenant, run string) (Repair, error) {
	record, err := sw.loadEndRecord(ctx, tenant, run)
	if err != nil || !record.listed {
		return RepairNone, err
	}
	l, err := sw.Journal.Load(ctx, tenant, run)
	if err == nil {
		err = sw.closeRequests(ctx, &l.State)
	}
	if err != nil {
		return RepairNone, fmt.Errorf("sweep run %s: %w", run, err)
	}
	r := RepairNone
	switch {
	case record.cleaning:
		r, err = sw.continueEnd(ctx, &l.State, record)
	case record.notified:
		r = sw.record(ctx, &l.State, RepairClosed, "")
	default:
		if err = sw.notifyOutsideEnd(ctx, &l.State); err == nil {
			r = sw.record(ctx, &l.State, RepairAnnounced, "")
		}
	}
	if err != nil {
		return RepairNone, fmt.Errorf("sweep run %s: %w", run, err)
	}
	return r, nil
}

// RepairEnds continues what is pending after the ends of a tenant's runs, however new they are. If of is not nil, it
// looks only at the runs for which of returns true. It is for a process that has just started and is the only one.
func (sw *Sweeper) RepairEnds(ctx context.Context, tenant string, of func(run string) bool) error {
	r := store.Range{PK: endIndex(tenant), Index: true, Limit: sweepPage}
	for {
		page, err := sw.Table.Query(ctx, r)
		if errors.Is(err, store.ErrDamaged) {
			sw.warn("list ends with pending work", err)
		} else if err != nil {
			return fmt.Errorf("list ends with pending work: %w", err)
		}
		for _, it := range page.Items {
			if of != nil && !of(it.IndexSort) {
				continue
			}
			_, err := sw.repairEnd(ctx, tenant, it.IndexSort)
			if errors.Is(err, ErrCleanupFailed) || errors.Is(err, store.ErrDamaged) { // one bad record must not stop the rest
				sw.warn("clean up after run "+it.IndexSort, err)
				continue
			}
			if err != nil {
				return err
			}
		}
		if r.Cursor = page.Cursor; r.Cursor == "" {
			return nil
		}
	}
}

// openRequestIDs returns the requests to people that the end of a run may have left open: those about calls that the
// end closed, and about tools. The request's own record says whether it was decided before.
func openRequestIDs(s *run.AgentState) (ids []string) {
	if s.Status != run.RunDone {
		return nil
	}
	for _, c := range s.Live {
		// as run.Finished leaves it
		if c.Asks > 0 && c.Status == run.StatusCancelled && c.Result != nil && c.Result.Source.Part > 0 {
			ids = append(ids, run.ApprovalID(s.Run, c.ID, c.Asks))
		}
	}
	for _, r := range s.Permissions.Asked {
		if !r.Complete() {
			ids = append(ids, r.Approval)
		}
	}
	return ids
}

// A process that ends a run from outside, by cancelling it or giving up, has none of the code that runs at a run's end.
// It records that cleanup is pending and starts an execution of the state machine for it. This execution owns nothing
// and writes nothing to the run; the record decides what it may do.

// CleanupName returns the name of an execution that cleans up after a run: <run>-cleanup-<n>, n counted from 0. No name
// is used twice.
func CleanupName(run string, n int64) string { return fmt.Sprintf("%s-cleanup-%d", run, n) }

func isCleanup(run, execution string) bool {
	n, ok := strings.CutPrefix(execution, run+"-cleanup-")
	at, err := strconv.ParseInt(n, 10, 64)
	return ok && err == nil && at >= 0
}

// maxCleanups is how many executions are started to clean up after a run. Each may retry.
const maxCleanups = 8

// ErrCleanupFailed says that no execution could clean up after a run. It is returned until one that somebody starts
// succeeds. To redrive one does not help, because its last state is Fail.
var ErrCleanupFailed = fmt.Errorf("%d executions could not clean up after the run: start one named "+
	"RUN-cleanup-%[1]d", maxCleanups)

// errCleanupCode says that an agent's cleanup code failed.
var errCleanupCode = errors.New("clean up after the run")

// hasCleanup reports whether a definition names code that may run at a run's end. Only a plugin knows whether it has
// something to do then.
func hasCleanup(def *agent.Definition) bool {
	return def.Permission.Backend != "" || len(def.Plugins) > 0
}

// cleanUpEnd does what is pending in the record of a run's end: it cleans up, announces the end even if the cleanup
// failed, and clears the record when nothing is pending. It may be repeated. The cleanup calls the plugins at run_end,
// whose decisions are dropped, and the permission backend. A failure of one does not stop the others.
func (p Ports) cleanUpEnd(ctx context.Context, s *run.AgentState, definitions Definitions) error {
	record, err := p.loadEndRecord(ctx, s.Tenant, s.Run)
	if err != nil || !record.cleaning {
		return err
	}
	def, err := definitions(ctx, s.Tenant, s.Definition)
	if err != nil {
		return err
	}
	within := p.within(ctx, s)
	ph, failed := p.phases(def)
	if failed == nil {
		_, failed = ph.chain.State(within, run.PhaseRunEnd, def, s)
	}
	// a missing backend has nothing to clean up
	if backend, ok := p.Hooks.Backends[def.Permission.Backend]; ok && def.Permission.Backend != "" {
		if err := hook.CallSafely(func() error { return backend.Cleanup(within, contextOf(s)) }); err != nil {
			err = fmt.Errorf("permission backend %s: %s", def.Permission.Backend, agent.Bounded(err.Error()))
			failed = errors.Join(failed, err)
		}
	}
	if failed != nil {
		failed = fmt.Errorf("%w: %w", errCleanupCode, failed)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if !record.notified { // the family was notified before the cleanup
		if err := p.notifyBus(ctx, s); err != nil {
			return errors.Join(failed, err)
		}
	}
	if failed == nil {
		return p.clearEndRecord(ctx, s)
	}
	_, err = p.updateEndRecord(ctx, s, attrCleaning, 1, map[string]store.Value{attrNotified: store.Num(1)})
	return errors.Join(failed, err)
}

// continueEnd takes a pending cleanup one step further: it starts the execution that was never started, or the next one
// after a failure.
func (sw *Sweeper) continueEnd(ctx context.Context, s *run.AgentState, record endRecord) (Repair, error) {
	tries := record.tries
	status, err := sw.Waiter.Status(ctx, CleanupName(s.Run, tries))
	switch {
	case err != nil || status == ExecutionRunning:
		return RepairNone, err
	case status == ExecutionNone:
		if err := sw.NotifyFamily(ctx, s); err != nil {
			return RepairNone, err
		}
	default:
		if !record.notified { // nobody who waits for the end should wait for the cleanup
			if err := sw.notifyEnd(ctx, s); err != nil {
				return RepairNone, err
			}
			notified := map[string]store.Value{attrNotified: store.Num(1)}
			if _, err := sw.updateEndRecord(ctx, s, attrCleaning, 1, notified); err != nil {
				return RepairNone, err
			}
		}
		if tries++; tries >= maxCleanups {
			return RepairNone, ErrCleanupFailed
		}
		// The try is counted first, so a try that was counted but not started is found like the first one. If it is not
		// counted, the cleanup is done, or another sweep does it.
		counted, err := sw.updateEndRecord(ctx, s, attrTries, record.tries, map[string]store.Value{
			attrAt: store.Num(sw.Clock.Now().UnixMilli()), attrTries: store.Num(tries),
		})
		if err != nil || !counted {
			return RepairNone, err
		}
	}
	name := CleanupName(s.Run, tries)
	if err := sw.Waiter.Start(ctx, s.Tenant, s.Run, name); err != nil {
		return RepairNone, err
	}
	return sw.record(ctx, s, RepairCleaning, name), nil
}
