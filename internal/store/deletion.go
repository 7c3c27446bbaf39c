package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/jsonx"
)

// A deleted run leaves two items for good. The record of its deletion has the key of its first entry, so that no run
// can start under its id again, and an audit can tell a deletion from a removed journal. The slot that closed its inbox
// stays, so that the inbox accepts nothing. For a day, copies of the record stay at the keys of its entries and inputs.

// Deletion is the record of a deleted run.
type Deletion struct {
	Run     string    `json:"run"`
	Agent   string    `json:"agent"`
	Entries int64     `json:"entries"` // number of entries of its journal
	Hash    string    `json:"hash"`    // hash of the newest entry, which the run's end announced
	By      string    `json:"by"`      // who deleted it
	At      time.Time `json:"at"`
	// Plan names what still has to be deleted; nil = everything is deleted.
	Plan *DeletionPlan `json:"plan,omitempty" jsonschema:"-"`
}

// DeletionPlan names items that belong to a run but have keys of their own.
type DeletionPlan struct {
	Origin    string   `json:"origin,omitempty"`    // the run that this run began from
	Children  []string `json:"children,omitempty"`  // delegated runs
	Approvals []string `json:"approvals,omitempty"` // requests to people
}

// DeletedError says that a run was deleted. It is an ErrNoRun.
type DeletedError struct{ Deletion Deletion }

func (e *DeletedError) Error() string {
	d := e.Deletion
	return fmt.Sprintf("run %s was deleted by %s at %s", d.Run, d.By, d.At.UTC().Format(time.RFC3339))
}

// Is makes e an ErrNoRun.
func (e *DeletedError) Is(target error) bool { return target == ErrNoRun }

const (
	attrDeleted = "deleted" // 1 in the record of a deletion
	attrBranch  = "branch"  // in HEAD: the newest run that began from this one since an entry wrote HEAD
	branchSK    = "C#"      // followed by the id of a run that began from this one
	blobSK      = "B#"      // followed by the digest of a blob that the run uses
)

// The index lists of deletions: in progress, and done.
const (
	deletionsOpen = "deleting"
	deletionsDone = "deleted"
)

func blobPK(tenant, digest string) string { return "T#" + tenant + "#BLOB#" + digest }

// noteKeys returns the two keys that record that a run uses a blob: one is found by the blob, the other by the run.
func noteKeys(tenant, run, digest string) (byBlob, byRun Key) {
	return Key{PK: blobPK(tenant, digest), SK: run}, Key{PK: runPK(tenant, run), SK: blobSK + digest}
}

// lockKey returns the key of the lock under which a blob is deleted.
func lockKey(tenant, digest string) Key { return Key{PK: blobPK(tenant, digest) + "#LOCK", SK: "LOCK"} }

// attrUntil of a lock is when it may be taken over, in milliseconds since 1970.
const attrUntil = "until"

// NoteBlob records that a run uses a blob, before the blob is stored or referred to. A blob is deleted with its last
// recorded run. ErrConflict says that the blob is being deleted at this moment. *DeletedError says that the run is
// deleted: a tool may outlive its run, and nobody would delete its blobs.
func (j *Journal) NoteBlob(ctx context.Context, tenant, run, digest string) error {
	if err := j.notDeleted(ctx, tenant, run); err != nil {
		return fmt.Errorf("note blob %s: %w", digest, err)
	}
	byBlob, byRun := noteKeys(tenant, run, digest)
	err := j.table.Write(ctx, Op{Kind: Check, Item: Item{Key: lockKey(tenant, digest)}, If: []Cond{{Op: ItemAbsent}}},
		Op{Kind: Put, Item: Item{Key: byBlob}}, Op{Kind: Put, Item: Item{Key: byRun}})
	if FailedOp(err, 0) {
		err = fmt.Errorf("it is being deleted with another run: %w", ErrConflict)
	}
	if err != nil {
		return fmt.Errorf("note blob %s of run %s: %w", digest, run, err)
	}
	return nil
}

// LockBlob prevents runs from being recorded for a blob until UnlockBlob. ErrConflict says that somebody else holds a
// lock that has not expired.
func (j *Journal) LockBlob(ctx context.Context, tenant, digest string, now, until time.Time) error {
	lock := Item{Key: lockKey(tenant, digest), Attrs: map[string]Value{attrUntil: Num(until.UnixMilli())}}
	op := Op{Kind: Put, Item: lock, If: []Cond{{Op: ItemAbsent}}}
	err := j.table.Write(ctx, op)
	if FailedOp(err, 0) {
		op.If = []Cond{{Attr: attrUntil, Op: AtMost, Value: Num(now.UnixMilli())}}
		err = j.table.Write(ctx, op)
	}
	if FailedOp(err, 0) {
		return fmt.Errorf("somebody else deletes it, try again in a minute: %w", ErrConflict)
	}
	return err
}

// UnlockBlob ends the lock that lasts until then, and removes the record that the run uses the blob. ErrConflict says
// that somebody else has taken over the lock.
func (j *Journal) UnlockBlob(ctx context.Context, tenant, run, digest string, until time.Time) error {
	byBlob, byRun := noteKeys(tenant, run, digest)
	err := j.table.Write(ctx, Op{Kind: Delete, Item: Item{Key: lockKey(tenant, digest)},
		If: []Cond{{Attr: attrUntil, Op: Equal, Value: Num(until.UnixMilli())}}},
		Op{Kind: Delete, Item: Item{Key: byBlob}}, Op{Kind: Delete, Item: Item{Key: byRun}})
	if FailedOp(err, 0) {
		return fmt.Errorf("its lock was taken over: %w", ErrConflict)
	}
	return err
}

// HasOtherUsers reports whether another run is recorded for a blob.
func (j *Journal) HasOtherUsers(ctx context.Context, tenant, run, digest string) (bool, error) {
	page, err := j.table.Query(ctx, Range{PK: blobPK(tenant, digest), Limit: 2})
	return slices.ContainsFunc(page.Items, func(it Item) bool { return it.SK != run }), err
}

// BlobsOf returns the digests of the blobs for which a run is recorded.
func (j *Journal) BlobsOf(ctx context.Context, tenant, run string) (digests []string, err error) {
	items, err := ReadAll(ctx, j.table, Range{PK: runPK(tenant, run), From: blobSK, To: blobSK + "~"})
	for _, it := range items {
		digests = append(digests, strings.TrimPrefix(it.SK, blobSK))
	}
	return digests, err
}

// BranchOps returns the writes that record, in the transaction of a run's first entry, that it begins from another run.
// That run cannot be deleted before this one. The writes fail if it is deleted already.
func BranchOps(tenant, origin, run string) []Op {
	return []Op{
		{Kind: Update, Item: Item{Key: RunKey(tenant, origin), Attrs: map[string]Value{attrBranch: Str(run)}}},
		{Kind: Put, Item: Item{Key: Key{PK: runPK(tenant, origin), SK: branchSK + run}}},
	}
}

// Branch returns a run that began from this one and is not deleted; "" = none. BeginDeletion compares mark.
func (j *Journal) Branch(ctx context.Context, tenant, run string) (branch, mark string, err error) {
	head, found, err := j.table.Get(ctx, RunKey(tenant, run))
	if err != nil || !found {
		return "", "", err
	}
	page, err := j.table.Query(ctx, Range{PK: runPK(tenant, run), From: branchSK, To: branchSK + "~", Limit: 1})
	if err == nil && len(page.Items) > 0 {
		branch = strings.TrimPrefix(page.Items[0].SK, branchSK)
	}
	return branch, head.Attrs[attrBranch].String(), err
}

// BeginDeletion replaces the first entry of an ended run by the record of its deletion, and removes the run from all
// lists. From then on the run does not exist for anybody. ErrGuardFailed says that another run has begun from it since
// mark was read, or that it is already deleted.
func (j *Journal) BeginDeletion(ctx context.Context, tenant, mark string, d Deletion) error {
	op, err := deletionOp(tenant, d)
	if err != nil {
		return err
	}
	defer j.cache.drop(tenant, d.Run)
	err = j.table.Write(ctx, op, Op{Kind: Delete, Item: Item{Key: RunKey(tenant, d.Run)}, If: []Cond{
		{Attr: "hash", Op: Equal, Value: Str(d.Hash)}, {Attr: attrBranch, Op: Equal, Value: Str(mark)},
	}})
	if FailedOp(err, 1) {
		err = ErrGuardFailed
	}
	if err != nil {
		return fmt.Errorf("delete run %s: %w", d.Run, err)
	}
	return nil
}

// fenceTime is how long copies of the record stay at the keys of a deleted run's entries and inputs: longer than any
// process can lag behind.
const fenceTime = 24 * time.Hour

// FinishDeletion deletes the rest under the run's own key, and records that nothing else has to be deleted. A process
// that read the run before its end may still try to append an entry or to claim a call. Copies of the record at the
// keys of its entries and inputs make such writes fail, until the table's time to live deletes them.
func (j *Journal) FinishDeletion(ctx context.Context, tenant string, d Deletion) error {
	plan := d.Plan
	d.Plan = nil
	op, err := deletionOp(tenant, d)
	if err != nil {
		return err
	}
	fence := map[string]Value{attrDeleted: Num(1), "TTL": Num(d.At.Add(fenceTime).Unix())}
	_, err = DeleteRange(ctx, j.table, Range{PK: runPK(tenant, d.Run)}, func(it Item) []Op {
		switch {
		case it.SK == entrySK(0) || it.Attrs["closed"].Int() == 1:
			return nil
		case strings.HasPrefix(it.SK, journalSK), strings.HasPrefix(it.SK, inboxSK):
			return []Op{{Kind: Put, Item: Item{Key: it.Key, Body: op.Item.Body, Attrs: fence}}}
		}
		return deleteOps(it)
	})
	if err != nil {
		return err
	}
	var ops []Op
	if plan != nil && plan.Origin != "" {
		ops = append(ops, Op{Kind: Delete, Item: Item{Key: Key{PK: runPK(tenant, plan.Origin), SK: branchSK + d.Run}}})
	}
	if err := j.table.Write(ctx, append(ops, op)...); err != nil {
		return fmt.Errorf("delete run %s: %w", d.Run, err)
	}
	return nil
}

func deleteOps(it Item) []Op { return []Op{{Kind: Delete, Item: Item{Key: it.Key}}} }

func deletionOp(tenant string, d Deletion) (Op, error) {
	body, err := jsonx.MarshalVerbatim(d)
	if err != nil {
		return Op{}, fmt.Errorf("delete run %s: %w", d.Run, err)
	}
	list := deletionsDone
	if d.Plan != nil {
		list = deletionsOpen
	}
	return Op{Kind: Put, Item: Item{
		Key: entryKey(tenant, d.Run, 0), Body: body, Attrs: map[string]Value{attrDeleted: Num(1)},
		Index: runsIndex(tenant, list), IndexSort: fmt.Sprintf("%013d#%s", d.At.UnixMilli(), d.Run),
	}, If: []Cond{{Op: ItemExists}}}, nil
}

// readDeletion parses the record of a deletion; found is false for an entry.
func readDeletion(it Item) (d Deletion, found bool, err error) {
	if it.Attrs[attrDeleted].Int() == 0 {
		return d, false, nil
	}
	if err := jsonx.ReadStored("deletion", it.Body, &d); err != nil {
		return d, false, Damaged(it.Key, "%w", err)
	}
	return d, true, nil
}

// Deletion reads the record of a run's deletion; found is false for a run that is not deleted or never existed.
func (j *Journal) Deletion(ctx context.Context, tenant, run string) (d Deletion, found bool, err error) {
	it, found, err := j.table.Get(ctx, entryKey(tenant, run, 0))
	if err == nil && found {
		d, found, err = readDeletion(it)
	}
	if err != nil {
		return d, false, fmt.Errorf("read the deletion of run %s: %w", run, err)
	}
	return d, found, nil
}

// notDeleted returns a *DeletedError for a run that is deleted.
func (j *Journal) notDeleted(ctx context.Context, tenant, run string) error {
	d, deleted, err := j.Deletion(ctx, tenant, run)
	if deleted {
		err = &DeletedError{d}
	}
	return err
}

// Deletions pages through a tenant's deleted runs, the newest deletion first, or through deletions in progress if open
// is set. The list may be late.
func (j *Journal) Deletions(
	ctx context.Context, tenant string, open bool, limit int, cursor string,
) (list []Deletion, next string, err error) {
	r := Range{PK: runsIndex(tenant, deletionsDone), Index: true, Reverse: true, Limit: limit, Cursor: cursor}
	if open {
		r.PK = runsIndex(tenant, deletionsOpen)
	}
	return ReadPage(ctx, j.table, r, func(it Item) (Deletion, error) {
		d, found, err := readDeletion(it)
		if err == nil && !found {
			err = Damaged(it.Key, "deleted: got nothing, want 1")
		}
		return d, err
	})
}

// DeleteRange deletes the items of a range, or writes the operations that instead returns for each. It returns the
// number of operations. It may be repeated.
func DeleteRange(ctx context.Context, t Table, r Range, instead func(Item) []Op) (deleted int64, err error) {
	if instead == nil {
		instead = deleteOps
	}
	r.Limit = 50 // items that one request deletes
	for {
		page, err := t.Query(ctx, r)
		if damaged, ok := errors.AsType[*DamagedError](err); ok { // an unreadable item is deleted, too
			page.Items = append(page.Items, Item{Key: damaged.Key})
		} else if err != nil {
			return deleted, err
		}
		var ops []Op
		for _, it := range page.Items {
			ops = append(ops, instead(it)...)
		}
		if len(ops) > 0 {
			if err := t.Write(ctx, ops...); err != nil {
				return deleted, err
			}
			deleted += int64(len(ops))
		}
		if r.Cursor = page.Cursor; r.Cursor == "" {
			return deleted, nil
		}
	}
}
