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

// A deleted run leaves two items. The record of its deletion stands at the key of its first entry, so that no run
// begins under its id again and an audit tells a deletion from a journal that was taken out. The slot that closed its
// inbox stays, so that nothing is accepted for it any more.

// Deletion is the record of a deleted run.
type Deletion struct {
	Run     string    `json:"run"`
	Agent   string    `json:"agent"`
	Entries int64     `json:"entries"` // that its journal had
	Hash    string    `json:"hash"`    // of the newest of them, which its end announced
	By      string    `json:"by"`      // who deleted it
	At      time.Time `json:"at"`
	// Plan is what is still to be deleted; nil = all of it is gone.
	Plan *DeletionPlan `json:"plan,omitempty" jsonschema:"-"`
}

// DeletionPlan names what belongs to a run and stands under keys of its own.
type DeletionPlan struct {
	Origin    string   `json:"origin,omitempty"`    // the run that it began from
	Children  []string `json:"children,omitempty"`  // its delegated runs
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
	attrDeleted = "deleted" // 1 of a record of a deletion
	attrBranch  = "branch"  // of HEAD: the newest run that began from this one since HEAD was put
	branchSK    = "C#"      // and the id of a run that began from this one
	blobSK      = "B#"      // and the digest of a blob that the run has
)

// The index lists of deletions: under way, and done.
const (
	deletionsOpen = "deleting"
	deletionsDone = "deleted"
)

func blobPK(tenant, digest string) string { return "T#" + tenant + "#BLOB#" + digest }

// noteKeys are the two of a note that a run has a blob: one is found by the blob, the other by the run.
func noteKeys(tenant, run, digest string) (byBlob, byRun Key) {
	return Key{PK: blobPK(tenant, digest), SK: run}, Key{PK: runPK(tenant, run), SK: blobSK + digest}
}

// lockKey is where a blob is locked for whoever deletes it.
func lockKey(tenant, digest string) Key { return Key{PK: blobPK(tenant, digest) + "#LOCK", SK: "LOCK"} }

const attrUntil = "until" // of a lock: it may be taken over then, in ms since 1970

// NoteBlob notes that a run has a blob, before it is stored or pointed at: a blob is deleted with the last run that is
// noted for it. ErrConflict says that it is being deleted at this moment.
func (j *Journal) NoteBlob(ctx context.Context, tenant, run, digest string) error {
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

// LockBlob keeps runs from being noted for a blob until UnlockBlob. ErrConflict says that somebody else has locked it
// and has time left.
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

// UnlockBlob ends the lock that lasts until then, and takes the run's note of the blob back. ErrConflict says that
// somebody else has taken the lock over.
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

// HasOtherUsers reports whether another run is noted for a blob.
func (j *Journal) HasOtherUsers(ctx context.Context, tenant, run, digest string) (bool, error) {
	page, err := j.table.Query(ctx, Range{PK: blobPK(tenant, digest), Limit: 2})
	return slices.ContainsFunc(page.Items, func(it Item) bool { return it.SK != run }), err
}

// BlobsOf are the blobs that a run is noted for.
func (j *Journal) BlobsOf(ctx context.Context, tenant, run string) (digests []string, err error) {
	items, err := j.items(ctx, Range{PK: runPK(tenant, run), From: blobSK, To: blobSK + "~"})
	for _, it := range items {
		digests = append(digests, strings.TrimPrefix(it.SK, blobSK))
	}
	return digests, err
}

// BranchOps note in the transaction of a run's first entry that it begins from another run, which cannot be deleted
// before it. They fail if that run is deleted.
func BranchOps(tenant, origin, run string) []Op {
	return []Op{
		{Kind: Update, Item: Item{Key: RunKey(tenant, origin), Attrs: map[string]Value{attrBranch: Str(run)}}},
		{Kind: Put, Item: Item{Key: Key{PK: runPK(tenant, origin), SK: branchSK + run}}},
	}
}

// Branch returns a run that began from this one and is not deleted; "" = there is none. mark is what BeginDeletion
// compares.
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

// BeginDeletion puts the record of a deletion in the place of the first entry of a run that has ended, and takes the
// run off all lists. From then on the run does not exist for anybody. ErrGuardFailed says that another run has begun
// from it since mark was read, or that it is deleted already.
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

// FinishDeletion deletes what is left under the run's own key, and notes that nothing else is to be deleted.
func (j *Journal) FinishDeletion(ctx context.Context, tenant string, d Deletion) error {
	_, err := DeleteRange(ctx, j.table, Range{PK: runPK(tenant, d.Run)}, func(it Item) bool {
		return it.SK == entrySK(0) || it.Attrs["closed"].Int() == 1
	})
	if err != nil {
		return err
	}
	var ops []Op
	if d.Plan != nil && d.Plan.Origin != "" {
		ops = append(ops, Op{Kind: Delete, Item: Item{Key: Key{PK: runPK(tenant, d.Plan.Origin), SK: branchSK + d.Run}}})
	}
	d.Plan = nil
	op, err := deletionOp(tenant, d)
	if err != nil {
		return err
	}
	if err := j.table.Write(ctx, append(ops, op)...); err != nil {
		return fmt.Errorf("delete run %s: %w", d.Run, err)
	}
	return nil
}

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

// readDeletion reads the record of a deletion; found is false for an entry.
func readDeletion(it Item) (d Deletion, found bool, err error) {
	if it.Attrs[attrDeleted].Int() == 0 {
		return d, false, nil
	}
	if err := jsonx.ReadStored("deletion", it.Body, &d); err != nil {
		return d, false, Damaged(it.Key, "%w", err)
	}
	return d, true, nil
}

// Deletion reads the record of a run's deletion; found is false for a run that is not deleted, or never was there.
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

// Deletions pages through a tenant's deleted runs, the newest deletion first; open gives those that are under way. It
// may be late.
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

// DeleteRange deletes the items of a range, but for those that are kept; nil keeps none. It returns how many it
// deleted. It may be repeated.
func DeleteRange(ctx context.Context, t Table, r Range, keep func(Item) bool) (deleted int64, err error) {
	r.Limit = 50 // items that one request deletes
	for {
		page, err := t.Query(ctx, r)
		if damaged, ok := errors.AsType[*DamagedError](err); ok { // which is deleted, too
			page.Items = append(page.Items, Item{Key: damaged.Key})
		} else if err != nil {
			return deleted, err
		}
		var ops []Op
		for _, it := range page.Items {
			if keep == nil || !keep(it) {
				ops = append(ops, Op{Kind: Delete, Item: Item{Key: it.Key}})
			}
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
