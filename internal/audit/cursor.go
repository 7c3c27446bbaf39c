package audit

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// cursor is how far a run's facts are audited. Its item has the version of its last change, which every change is
// conditional on.
type cursor struct {
	Tenant string   `json:"tenant"`
	Run    string   `json:"run"`
	Seq    int64    `json:"seq"`            // of the first journal entry that is not
	Open   []asking `json:"open,omitempty"` // requests whose end is not, oldest first
	Done   bool     `json:"done,omitempty"` // the run has ended and all is

	version int64
}

// asking is an open request, and how much of what was said on it is audited.
type asking struct {
	Approval  string `json:"approval"`
	Decisions int    `json:"decisions,omitempty"`
	Remarks   int    `json:"remarks,omitempty"`
	Escalated bool   `json:"escalated,omitempty"`
}

// openIndex is the index partition of the cursors of open runs.
const openIndex = "AUDIT"

func cursorKey(tenant, run string) store.Key {
	return store.Key{PK: "T#" + tenant + "#RUN#" + run, SK: "AUDIT"}
}

func (a *Auditor) cursor(ctx context.Context, tenant, run string) (cursor, error) {
	c := cursor{Tenant: tenant, Run: run}
	it, found, err := a.Table.Get(ctx, cursorKey(tenant, run))
	if err != nil {
		return c, fmt.Errorf("read audit cursor of run %s: %w", run, err)
	}
	if !found {
		return c, nil
	}
	if c, err = readCursor(it); err == nil && (c.Tenant != tenant || c.Run != run) {
		err = store.Damaged(it.Key, "tenant and run: want those of the key")
	}
	if err != nil {
		return c, fmt.Errorf("read audit cursor of run %s: %w", run, err)
	}
	return c, nil
}

func readCursor(it store.Item) (c cursor, err error) {
	if err := run.ReadStored("audit cursor", it.Body, &c); err != nil {
		return cursor{}, store.Damaged(it.Key, "%w", err)
	}
	if c.version, err = it.Number("version"); err == nil && (c.version < 1 || c.Seq < 0) {
		err = store.Damaged(it.Key, "version and seq: want one or more, and none or more")
	}
	return c, err
}

func (c cursor) clone() cursor {
	c.Open = slices.Clone(c.Open)
	return c
}

func (c cursor) same(o cursor) bool {
	return c.Seq == o.Seq && c.Done == o.Done && slices.Equal(c.Open, o.Open)
}

// op writes the cursor over its version. That of a run that has ended is listed no more.
func (c cursor) op() (store.Op, error) {
	body, err := run.MarshalVerbatim(c)
	if err != nil {
		return store.Op{}, fmt.Errorf("marshal audit cursor of run %s: %w", c.Run, err)
	}
	op := store.Op{Kind: store.Put, If: []store.Cond{{Op: store.ItemAbsent}}, Item: store.Item{
		Key: cursorKey(c.Tenant, c.Run), Body: body, Attrs: map[string]store.Value{"version": store.Num(c.version + 1)},
	}}
	if c.version > 0 {
		op.If = []store.Cond{{Attr: "version", Op: store.Equal, Value: store.Num(c.version)}}
	}
	if !c.Done {
		op.Item.Index, op.Item.IndexSort = openIndex, c.Tenant+"#"+c.Run
	}
	return op, nil
}

// commit appends the records, and with the last of them moves the cursor on. errMoved where somebody else has: then
// what they have kept is kept, and the rest is to be planned again.
func (a *Auditor) commit(ctx context.Context, next cursor, records []Record) error {
	op, err := next.op()
	if err != nil {
		return err
	}
	for len(records) > batch { // their ids keep them from being kept twice, should this be interrupted
		if err := a.Log.append(ctx, next.Tenant, records[:batch], held(op)); err != nil {
			return err
		}
		records = records[batch:]
	}
	return a.Log.append(ctx, next.Tenant, records, op)
}

// held is the condition of an operation without the operation.
func held(op store.Op) store.Op {
	return store.Op{Kind: store.Check, Item: store.Item{Key: op.Item.Key}, If: op.If}
}

// Moved reports whether others have audited the same run so often meanwhile that this one gave up: nothing is lost.
func Moved(err error) bool { return errors.Is(err, errMoved) || errors.Is(err, ErrContended) }
