package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// Deleter deletes ended runs with everything that belongs to them. It uses Table, Journal, Blobs and Clock of Ports.
// Safe for concurrent use.
type Deleter struct{ Ports }

// Deleted counts what a deletion has removed. A deletion that continues an interrupted one counts only its own part.
type Deleted struct {
	Run       string `json:"run"`
	Hash      string `json:"hash"`      // hash of the newest entry, which the run's end announced
	Runs      int64  `json:"runs"`      // including delegated runs
	Entries   int64  `json:"entries"`   // entries of their journals
	Approvals int64  `json:"approvals"` // requests to people, with links and codes
	Blobs     int64  `json:"blobs"`
	Kept      int64  `json:"kept"`    // blobs that other runs use, too
	Already   bool   `json:"already"` // the run was deleted before
}

// NotDeletable says why a run cannot be deleted now. It is safe to show.
type NotDeletable struct{ Run, Problem string }

func (e *NotDeletable) Error() string { return fmt.Sprintf("delete run %s: %s", e.Run, e.Problem) }

// Delete deletes an ended run and its delegated runs. First it checks whether all of them can be deleted: after
// *NotDeletable, policy.ErrNotFinished and store.ErrNoRun nothing was deleted. Then it replaces the run's first entry
// by a record that names what has to be deleted, and deletes that. If it is interrupted, the next call continues.
func (d *Deleter) Delete(ctx context.Context, tenant, runID, by string) (Deleted, error) {
	out := Deleted{Run: runID}
	record, begun, err := d.Journal.Deletion(ctx, tenant, runID)
	if err != nil {
		return out, err
	}
	out.Hash = record.Hash
	if out.Already = begun && record.Plan == nil; out.Already {
		return out, nil
	}
	if !begun {
		h, err := d.Journal.Head(ctx, tenant, runID)
		if err != nil {
			return out, fmt.Errorf("delete run %s: %w", runID, err)
		}
		out.Hash = h.Hash
		if p := h.Parent; p != nil {
			if _, err := d.Journal.Head(ctx, tenant, p.Run); err == nil {
				return out, &NotDeletable{runID, fmt.Sprintf("it is a call of run %s: delete that", p.Run)}
			} else if !errors.Is(err, store.ErrNoRun) {
				return out, err
			}
		}
		if err := d.checkFamily(ctx, tenant, runID); err != nil {
			return out, err
		}
	}
	err = d.deleteRun(ctx, tenant, runID, by, &out)
	return out, err
}

// checkFamily returns an error if a run or one below it cannot be deleted.
func (d *Deleter) checkFamily(ctx context.Context, tenant, runID string) error {
	record, _, err := d.plan(ctx, tenant, runID)
	if err != nil {
		return err
	}
	for _, child := range record.Plan.Children {
		if err := d.checkFamily(ctx, tenant, child); err != nil && !errors.Is(err, store.ErrNoRun) {
			return err
		}
	}
	return nil
}

// plan reads what belongs to a run, or returns why the run cannot be deleted. store.BeginDeletion compares mark.
func (d *Deleter) plan(ctx context.Context, tenant, runID string) (record store.Deletion, mark string, err error) {
	refused := func(format string, args ...any) (store.Deletion, string, error) {
		return store.Deletion{}, "", &NotDeletable{runID, fmt.Sprintf(format, args...)}
	}
	h, err := d.Journal.Head(ctx, tenant, runID)
	if err != nil {
		return record, "", fmt.Errorf("delete run %s: %w", runID, err)
	}
	if h.Status != run.RunDone {
		return record, "", fmt.Errorf("delete run %s, which is %s: %w", runID, h.Status, policy.ErrNotFinished)
	}
	if owed, err := d.loadEndRecord(ctx, tenant, runID); err != nil {
		return record, "", err
	} else if owed.listed {
		return refused("its requests are being closed or its end is being told: try again in a minute")
	}
	for outbox := (store.Range{PK: outboxPK(tenant, runID)}); ; {
		page, err := d.Table.Query(ctx, outbox)
		if err != nil {
			return record, "", err
		}
		if slices.ContainsFunc(page.Items, func(it store.Item) bool { return it.Index != "" }) {
			return refused("its events are being published: try again in a minute")
		}
		if outbox.Cursor = page.Cursor; outbox.Cursor == "" {
			break
		}
	}
	branch, mark, err := d.Journal.Branch(ctx, tenant, runID)
	if err != nil {
		return record, "", err
	} else if branch != "" {
		return refused("run %s began from it: delete that first", branch)
	}
	plan, asks := &store.DeletionPlan{}, map[string]int{}
	for from := int64(0); ; {
		entries, err := d.Journal.Entries(ctx, tenant, runID, from, 200)
		if err != nil {
			return record, "", err
		}
		if len(entries) == 0 {
			return store.Deletion{Run: runID, Agent: h.Agent, Entries: from, Hash: h.Hash, Plan: plan}, mark, nil
		}
		for _, e := range entries {
			addToPlan(plan, runID, asks, e.Events)
		}
		from += int64(len(entries))
	}
}

// addToPlan adds the items under other keys that the events refer to. asks counts the requests about each call so far,
// or more.
func addToPlan(p *store.DeletionPlan, runID string, asks map[string]int, events []run.Event) {
	add := func(approval string) {
		if approval != "" && !slices.Contains(p.Approvals, approval) {
			p.Approvals = append(p.Approvals, approval)
		}
	}
	for _, e := range events {
		switch e := e.(type) {
		case run.RunStarted:
			if e.From != nil {
				p.Origin = e.From.Run
				for _, u := range e.From.Unknown {
					add(u.Approval)
					asks[u.Call]++
				}
			}
		case run.CallClaimed:
			if e.Child != nil {
				p.Children = append(p.Children, e.Child.Run)
			}
		case run.CallSuspended:
			add(e.Approval)
			asks[e.Call]++
		case run.LateSuspended: // the id of its request depends on the number of earlier requests
			asks[e.Call]++
			for ask := range asks[e.Call] {
				add(run.ApprovalID(runID, e.Call, ask+1))
			}
		case run.CallUnknown:
			add(e.Approval)
			asks[e.Call]++
		case run.PermissionRequested:
			add(e.Approval)
		}
	}
}

// deleteRun begins the deletion of a run, unless it has begun, and carries it out.
func (d *Deleter) deleteRun(ctx context.Context, tenant, runID, by string, out *Deleted) error {
	record, begun, err := d.Journal.Deletion(ctx, tenant, runID)
	switch {
	case err != nil:
		return err
	case begun && record.Plan == nil:
		return nil
	case !begun:
		var mark string
		if record, mark, err = d.plan(ctx, tenant, runID); err != nil {
			return err
		}
		record.By, record.At = by, d.Clock.Now().UTC()
		err = d.Journal.BeginDeletion(ctx, tenant, mark, record)
		if errors.Is(err, store.ErrGuardFailed) {
			return &NotDeletable{runID, "another run began from it, or somebody else deletes it, at this moment"}
		}
		if err != nil {
			return err
		}
	}
	return d.finish(ctx, tenant, record, out)
}

// finish deletes what the record of a deletion names, and then the run's own items.
func (d *Deleter) finish(ctx context.Context, tenant string, record store.Deletion, out *Deleted) error {
	for _, child := range record.Plan.Children {
		err := d.deleteRun(ctx, tenant, child, record.By, out)
		var kept *NotDeletable // a run from which another one branched off meanwhile is kept
		if err != nil && !errors.Is(err, store.ErrNoRun) && !errors.As(err, &kept) {
			return err
		}
	}
	for _, id := range record.Plan.Approvals {
		deleted, err := approval.Delete(ctx, d.Table, tenant, id)
		if err == nil {
			err = approval.DeleteLinks(ctx, d.Table, tenant, id)
		}
		if err != nil {
			return fmt.Errorf("delete approval %s of run %s: %w", id, record.Run, err)
		}
		if deleted > 0 {
			out.Approvals++
		}
	}
	if err := approval.DeleteStanding(ctx, d.Table, tenant, record.Agent, record.Run); err != nil {
		return fmt.Errorf("delete the standing grants of run %s: %w", record.Run, err)
	}
	digests, err := d.Journal.BlobsOf(ctx, tenant, record.Run)
	if err != nil {
		return fmt.Errorf("delete the blobs of run %s: %w", record.Run, err)
	}
	for _, digest := range digests {
		if err := d.deleteBlob(ctx, tenant, record.Run, digest, out); err != nil {
			return fmt.Errorf("delete blob %s of run %s: %w", digest, record.Run, err)
		}
	}
	_, err = store.DeleteRange(ctx, d.Table, store.Range{PK: outboxPK(tenant, record.Run)}, nil)
	if err == nil {
		owed := store.Op{Kind: store.Delete, Item: store.Item{Key: endKey(tenant, record.Run)}}
		err = d.Table.Write(ctx, owed)
	}
	if err != nil {
		return fmt.Errorf("delete run %s: %w", record.Run, err)
	}
	if err := d.Journal.FinishDeletion(ctx, tenant, record); err != nil {
		return err
	}
	out.Runs++
	out.Entries += record.Entries
	return nil
}

// blobLock is the longest lock of a blob. The deletion of the blob may take half of it.
const blobLock = time.Minute

// deleteBlob deletes a blob of a run if no other run is recorded as its user. A run is recorded before it puts a blob
// or finds it stored, and no run is recorded while the blob is locked. So no run relies on a deleted blob.
func (d *Deleter) deleteBlob(ctx context.Context, tenant, runID, digest string, out *Deleted) error {
	now := d.Clock.Now()
	until := now.Add(blobLock)
	ctx, cancel := d.Clock.WithTimeout(ctx, blobLock/2)
	defer cancel()
	if err := d.Journal.LockBlob(ctx, tenant, digest, now, until); err != nil {
		return err
	}
	shared, err := d.Journal.HasOtherUsers(ctx, tenant, runID, digest)
	if err == nil && !shared {
		err = d.Blobs.Delete(ctx, tenant, digest)
	}
	if err != nil {
		return err
	}
	if shared {
		out.Kept++
	} else {
		out.Blobs++
	}
	return d.Journal.UnlockBlob(ctx, tenant, runID, digest, until)
}
