package runtime

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

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

// owedEnd reads what is owed behind a run's end.
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

// markNotified notes that the end was announced while cleanup is still owed.
func (p Ports) markNotified(ctx context.Context, s *run.AgentState) error {
	_, err := p.updateOwed(ctx, s, attrCleaning, 1, map[string]store.Value{attrNotified: store.Num(1)})
	return err
}

// clearOwed notes that nothing is owed after the end any more.
func (p Ports) clearOwed(ctx context.Context, s *run.AgentState) error {
	if err := p.Table.Write(ctx, store.Op{Kind: store.Put, Item: store.Item{Key: owedKey(s.Tenant, s.Run)}}); err != nil {
		return fmt.Errorf("note that nothing is owed behind the end of run %s: %w", s.Run, err)
	}
	return nil
}

// commitOutside commits an end that no execution commits.
func (p Ports) commitOutside(ctx context.Context, d *run.Draft, def *agent.Definition, beside ...store.Op) error {
	heard, err := p.hasListeners(&d.State)
	if err != nil {
		return err
	}
	attrs := map[string]store.Value{attrAt: store.Num(d.Entry.Time.UnixMilli())}
	if namesCleanup(def) {
		attrs[attrCleaning], attrs[attrTries] = store.Num(1), store.Num(0)
	} else if !heard {
		return p.commit(ctx, d, def, beside...)
	}
	return p.commit(ctx, d, def, append(slices.Clip(beside), owedOp(&d.State, attrs))...)
}

// owedOp is the record of what is owed behind the end of a run.
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

// repairEnd goes on with what is owed behind a run's end.
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
