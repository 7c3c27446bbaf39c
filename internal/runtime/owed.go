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
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// An end that no execution commits may never be announced, should the process that commits it die, and nothing there
// can clean up after the run. However many requests to people a run has open, its end commits by itself, and they are
// closed behind it. So an end that somebody waits for, or behind which cleaning up or closing requests is owed, has a
// record in its transaction, under PK T#tenant#END#run, SK "E", which is listed until nothing is owed.

func owedKey(tenant, run string) store.Key {
	return store.Key{PK: "T#" + tenant + "#END#" + run, SK: "E"}
}

func owedIndex(tenant string) string { return "T#" + tenant + "#ENDS" }

// owedEnd is the record of an end, less its time. The zero value owes nothing.
type owedEnd struct {
	listed   bool                   // something is owed: the announcement, if nothing else
	cleaning bool                   // cleaning up is owed
	requests []approval.OpenRequest // that are to be closed
	notified bool                   // the announcement is not owed, or not any more
	tries    int64                  // executions that were started to clean up and ended without
}

// The attributes of a record. "at" is when its newest execution was, or was to be, started, in milliseconds.
const (
	attrAt       = "at"
	attrCleaning = "cleanup" // 1, while it is owed
	attrRequests = "open"    // 1, while closing requests is owed
	attrNotified = "told"    // 1
	attrTries    = "tries"
)

func (p Ports) owedEnd(ctx context.Context, tenant, run string) (owedEnd, error) {
	it, _, err := p.Table.Get(ctx, owedKey(tenant, run))
	if err == nil {
		err = checkOwed(it)
	}
	owed := owedEnd{
		listed: it.Index != "", cleaning: it.Attrs[attrCleaning].Int() == 1, notified: it.Attrs[attrNotified].Int() == 1,
		tries: it.Attrs[attrTries].Int(),
	}
	if err == nil && it.Attrs[attrRequests].Int() == 1 {
		if bad := json.Unmarshal(it.Body, &owed.requests); bad != nil {
			err = store.Damaged(it.Key, "%w", bad)
		}
	}
	if err != nil {
		return owedEnd{}, fmt.Errorf("read what is owed behind the end of run %s: %w", run, err)
	}
	return owed, nil
}

// checkOwed holds an item to what is written: of the zero one, nothing is owed.
func checkOwed(it store.Item) error {
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
			return cmp.Or(err, store.Damaged(it.Key, "%s: got a number that is not written", name))
		}
	}
	return nil
}

// updateOwed changes the record of a run's end where an attribute is as it was; done is false where it is not.
func (p Ports) updateOwed(
	ctx context.Context, s *run.AgentState, attr string, was int64, to map[string]store.Value,
) (done bool, err error) {
	err = p.Table.Write(ctx, store.Op{
		Kind: store.Update, Item: store.Item{Key: owedKey(s.Tenant, s.Run), Attrs: to},
		If: []store.Cond{{Attr: attr, Op: store.Equal, Value: store.Num(was)}},
	})
	if store.FailedOp(err, 0) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("note what is owed behind the end of run %s: %w", s.Run, err)
	}
	return true, nil
}

func (p Ports) clearOwed(ctx context.Context, s *run.AgentState) error {
	if err := p.Table.Write(ctx, store.Op{Kind: store.Put, Item: store.Item{Key: owedKey(s.Tenant, s.Run)}}); err != nil {
		return fmt.Errorf("note that nothing is owed behind the end of run %s: %w", s.Run, err)
	}
	return nil
}

// endOutside ends a run that no execution ends: it commits the end, with the record of what is owed behind that, and
// closes the run's requests to people.
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
	heard, err := p.hasListeners(&d.State)
	attrs := map[string]store.Value{attrAt: store.Num(d.Entry.Time.UnixMilli())}
	if namesCleanup(def) {
		attrs[attrCleaning], attrs[attrTries] = store.Num(1), store.Num(0)
	}
	if heard || namesCleanup(def) {
		beside = append(beside, owedOp(&d.State, attrs))
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

func owedOp(s *run.AgentState, attrs map[string]store.Value) store.Op {
	return store.Op{Kind: store.Put, Item: store.Item{
		Key: owedKey(s.Tenant, s.Run), Index: owedIndex(s.Tenant), IndexSort: s.Run, Attrs: attrs,
	}}
}

// addOwedRequests notes in the record of an end which requests to people the draft's end leaves open: they are to be
// closed. The record is in the transaction, or is added to it.
func addOwedRequests(d *run.Draft, beside []store.Op) ([]store.Op, error) {
	ids := leftRequests(&d.State)
	var left []approval.OpenRequest
	for _, c := range d.Before.Waits() {
		if c.Wait.For != run.ForAnswer && slices.Contains(ids, c.Wait.Approval) {
			left = append(left, approval.OpenRequest{ID: c.Wait.Approval, Since: c.Wait.Since})
		}
	}
	for _, r := range d.Before.Permissions.Asked {
		if slices.Contains(ids, r.Approval) {
			left = append(left, approval.OpenRequest{ID: r.Approval, Since: r.Since})
		}
	}
	if len(left) == 0 {
		return beside, nil
	}
	body, err := json.Marshal(left)
	if err != nil {
		return nil, fmt.Errorf("end run %s: %w", d.State.Run, err)
	}
	beside = slices.Clone(beside)
	i := slices.IndexFunc(beside, func(op store.Op) bool { return op.Item.Key == owedKey(d.State.Tenant, d.State.Run) })
	if i < 0 { // an execution's own: it tells of the end
		i = len(beside)
		beside = append(beside, owedOp(&d.State, map[string]store.Value{
			attrAt: store.Num(d.Entry.Time.UnixMilli()), attrNotified: store.Num(1),
		}))
	}
	beside[i].Item.Attrs = maps.Clone(beside[i].Item.Attrs)
	beside[i].Item.Attrs[attrRequests], beside[i].Item.Body = store.Num(1), body
	return beside, nil
}

// closeRequests closes the requests to people that the end of a run has left open, where that is owed. Whoever ends a
// run does so, and whoever finds that it has ended.
func (p Ports) closeRequests(ctx context.Context, s *run.AgentState) error {
	if len(leftRequests(s)) == 0 {
		return nil
	}
	owed, err := p.owedEnd(ctx, s.Tenant, s.Run)
	if err != nil || len(owed.requests) == 0 {
		return err
	}
	if err := approval.CloseRequests(ctx, p.Table, s.Tenant, owed.requests); err != nil {
		return fmt.Errorf("end run %s: %w", s.Run, err)
	}
	if owed.notified && !owed.cleaning {
		return p.clearOwed(ctx, s)
	}
	_, err = p.updateOwed(ctx, s, attrRequests, 1, map[string]store.Value{attrRequests: store.Num(0)})
	return err
}

// finishOutsideEnd does what follows an end that no execution committed, behind closing its requests: cleaning up, here
// with the definitions or, without them or where that fails, by an execution; and announcing the end. It notifies the
// family once: each cancelled child does the same, so a second time would double the work at every level.
func (p Ports) finishOutsideEnd(ctx context.Context, s *run.AgentState, cleaning bool, here Definitions) error {
	if !cleaning {
		return p.notifyOutsideEnd(ctx, s)
	}
	// the execution that cleans up will not; where it fails, the record of the end stays
	if err := p.NotifyFamily(ctx, s); err != nil {
		return err
	}
	if here != nil {
		failed := p.settleEnd(ctx, s, here)
		if failed == nil {
			return nil
		}
		p.warn("clean up after run "+s.Run, failed)
	}
	if err := p.Waiter.Start(ctx, s.Tenant, s.Run, CleanupName(s.Run, 0)); err != nil {
		return fmt.Errorf("have run %s cleaned up after: %w", s.Run, err)
	}
	return nil
}

// notifyOutsideEnd announces an end that no execution committed and after which nothing else is owed, and takes it off
// the list.
func (p Ports) notifyOutsideEnd(ctx context.Context, s *run.AgentState) error {
	if err := p.notifyEnd(ctx, s); err != nil {
		return err
	}
	heard, err := p.hasListeners(s)
	if err != nil || !heard {
		return err
	}
	return p.clearOwed(ctx, s)
}

// hasListeners reports whether the end of a run is to be announced to anybody.
func (p Ports) hasListeners(s *run.AgentState) (bool, error) {
	_, owed, err := policy.Announcement(s)
	return owed && p.Emit != nil || hasFamily(s), err
}

// notifyWithoutCleanup announces the end of a finished run, unless its cleanup will.
func (p Ports) notifyWithoutCleanup(ctx context.Context, s *run.AgentState) error {
	owed, err := p.owedEnd(ctx, s.Tenant, s.Run)
	if err != nil || owed.cleaning {
		return err
	}
	return p.notifyEnd(ctx, s)
}

func (sw *Sweeper) repairEnd(ctx context.Context, tenant, run string) (Repair, error) {
	owed, err := sw.owedEnd(ctx, tenant, run)
	if err != nil || !owed.listed {
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
	case owed.cleaning:
		r, err = sw.continueEnd(ctx, &l.State, owed)
	case owed.notified:
		r = sw.record(ctx, &l.State, RepairClosed, "")
	default:
		if err = sw.notifyOutsideEnd(ctx, &l.State); err == nil {
			r = sw.record(ctx, &l.State, RepairTold, "")
		}
	}
	if err != nil {
		return RepairNone, fmt.Errorf("sweep run %s: %w", run, err)
	}
	return r, nil
}

// RepairEnds goes on with what is owed behind the ends of all runs of a tenant, however new they are: for a process
// that has just begun and is the only one.
func (sw *Sweeper) RepairEnds(ctx context.Context, tenant string) error {
	r := store.Range{PK: owedIndex(tenant), Index: true, Limit: sweepPage}
	for {
		page, err := sw.Table.Query(ctx, r)
		if errors.Is(err, store.ErrDamaged) {
			sw.warn("list ends that are owed", err)
		} else if err != nil {
			return fmt.Errorf("list ends that are owed: %w", err)
		}
		for _, it := range page.Items {
			_, err := sw.repairEnd(ctx, tenant, it.IndexSort)
			if errors.Is(err, ErrCleanupFailed) || errors.Is(err, store.ErrDamaged) { // it keeps nobody from working
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

// leftRequests are the requests to people that the end of a run may have left open: those about calls that the end
// closed, and about tools. Whether one of them was decided before, its own record says.
func leftRequests(s *run.AgentState) (ids []string) {
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

// Who ends a run from outside, by cancelling it or giving it up, has none of the code that is to be run at a run's end.
// It says in the record of the end that cleaning up is owed, and starts an execution of the state machine for that.
// Such an execution owns nothing and writes nothing to the run: what it may do, the record says.

// CleanupName is the name of an execution that cleans up after a run: <run>-cleanup-<n>, n counted from 0. None is used
// twice.
func CleanupName(run string, n int64) string { return fmt.Sprintf("%s-cleanup-%d", run, n) }

func isCleanup(run, execution string) bool {
	n, ok := strings.CutPrefix(execution, run+"-cleanup-")
	at, err := strconv.ParseInt(n, 10, 64)
	return ok && err == nil && at >= 0
}

// maxCleanups is how many executions are started to clean up after a run. Each may retry.
const maxCleanups = 8

// ErrCleanupFailed says that no execution could clean up after a run. Callers get it until a redriven execution
// succeeds.
var ErrCleanupFailed = fmt.Errorf("%d executions could not clean up after the run: redrive the last one", maxCleanups)

// errCleanupCode says that an agent's code for cleaning up failed.
var errCleanupCode = errors.New("clean up after the run")

// namesCleanup reports whether a definition names code that may run at a run's end. Only a plugin knows whether it has
// something to do then.
func namesCleanup(def *agent.Definition) bool {
	return def.Permission.Backend != "" || len(def.Plugins) > 0
}

// settleEnd does what the record of a run's end owes: it cleans up, announces the end whether that went well or not,
// and takes the record off its list when nothing is owed any more. It may be repeated. Who cleans up are the plugins at
// run_end, whose decisions have no place any more and are dropped, and the permission backend; all are tried, whichever
// fails.
func (p Ports) settleEnd(ctx context.Context, s *run.AgentState, of Definitions) error {
	owed, err := p.owedEnd(ctx, s.Tenant, s.Run)
	if err != nil || !owed.cleaning {
		return err
	}
	def, err := of(ctx, s.Tenant, s.Definition)
	if err != nil {
		return err
	}
	within := p.within(ctx, s)
	ph, failed := p.phases(def)
	if failed == nil {
		_, failed = ph.chain.State(within, run.PhaseRunEnd, def, s)
	}
	// a backend that is not there has nothing to clean up
	if backend, ok := p.Hooks.Backends[def.Permission.Backend]; ok && def.Permission.Backend != "" {
		if err := backend.Cleanup(within, contextOf(s)); err != nil {
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
	if !owed.notified { // the runs around it have been told before anybody was to clean up
		if err := p.notifyBus(ctx, s); err != nil {
			return errors.Join(failed, err)
		}
	}
	if failed == nil {
		return p.clearOwed(ctx, s)
	}
	_, err = p.updateOwed(ctx, s, attrCleaning, 1, map[string]store.Value{attrNotified: store.Num(1)})
	return errors.Join(failed, err)
}

// continueEnd takes an owed cleanup one step further: it starts the execution that was never started, or the next one
// after one that failed.
func (sw *Sweeper) continueEnd(ctx context.Context, s *run.AgentState, owed owedEnd) (Repair, error) {
	tries := owed.tries
	status, err := sw.Waiter.Status(ctx, CleanupName(s.Run, tries))
	switch {
	case err != nil || status == ExecutionRunning:
		return RepairNone, err
	case status == ExecutionNone:
		if err := sw.NotifyFamily(ctx, s); err != nil {
			return RepairNone, err
		}
	default:
		if !owed.notified { // whoever waits for the end is not to wait for this
			if err := sw.notifyEnd(ctx, s); err != nil {
				return RepairNone, err
			}
			notified := map[string]store.Value{attrNotified: store.Num(1)}
			if _, err := sw.updateOwed(ctx, s, attrCleaning, 1, notified); err != nil {
				return RepairNone, err
			}
		}
		if tries++; tries >= maxCleanups {
			return RepairNone, ErrCleanupFailed
		}
		// The try is counted first, so one that was counted and not started is found like the first. Where it is not
		// counted, the cleanup is done, or another sweep does it.
		counted, err := sw.updateOwed(ctx, s, attrTries, owed.tries, map[string]store.Value{
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
