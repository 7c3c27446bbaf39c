// Package counting wraps a store.Table and counts what goes through it and what it would cost on DynamoDB. Benches and
// tests read costs from it; it changes nothing.
package counting

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/countersign/countersign/internal/store"
)

// Counts is what went through a Table. Requests are counted when made, whatever their outcome; items, bytes and
// capacity as written below.
type Counts struct {
	Gets         int64
	Queries      int64
	Writes       int64 // Write calls of one operation
	Transactions int64 // Write calls of several

	// Of successful calls. Bytes are store.Size: for an Update, of the attributes it sets and its keys.
	ItemsWritten int64 // Puts and Updates, not Checks
	BytesWritten int64
	ItemsRead    int64
	BytesRead    int64

	// WCU is DynamoDB's write capacity on the base table: one for each KB, begun, of each item, doubled in a transaction.
	// An Update counts the bytes it carries, at least 1 KB: the size of the item it leaves is not known. A Check and an
	// operation of a Write whose conditions failed count as 1 KB. The index's own capacity is not in it.
	WCU int64
	// RCU is DynamoDB's read capacity: one for each 4 KB, begun, of a Get or of a whole page, at least one; half for the
	// index, which is read with eventual consistency.
	RCU float64
}

// Sub is what went through between the snapshot o and the later c.
func (c Counts) Sub(o Counts) Counts {
	return Counts{
		Gets:         c.Gets - o.Gets,
		Queries:      c.Queries - o.Queries,
		Writes:       c.Writes - o.Writes,
		Transactions: c.Transactions - o.Transactions,
		ItemsWritten: c.ItemsWritten - o.ItemsWritten,
		BytesWritten: c.BytesWritten - o.BytesWritten,
		ItemsRead:    c.ItemsRead - o.ItemsRead,
		BytesRead:    c.BytesRead - o.BytesRead,
		WCU:          c.WCU - o.WCU,
		RCU:          c.RCU - o.RCU,
	}
}

// Table counts what goes through to the table it wraps. Make one with Wrap. Safe for concurrent use.
type Table struct {
	inner store.Table

	gets, queries, writes, transactions   atomic.Int64
	itemsWritten, bytesWritten, itemsRead atomic.Int64
	bytesRead, wcu, halfRCU               atomic.Int64
}

var _ store.Table = (*Table)(nil)

// Wrap makes a Table over t, with all counts zero.
func Wrap(t store.Table) *Table { return &Table{inner: t} }

// Snapshot reads all counts. Each is exact; a call under way may be in some of them and not yet in others.
func (t *Table) Snapshot() Counts {
	return Counts{
		Gets:         t.gets.Load(),
		Queries:      t.queries.Load(),
		Writes:       t.writes.Load(),
		Transactions: t.transactions.Load(),
		ItemsWritten: t.itemsWritten.Load(),
		BytesWritten: t.bytesWritten.Load(),
		ItemsRead:    t.itemsRead.Load(),
		BytesRead:    t.bytesRead.Load(),
		WCU:          t.wcu.Load(),
		RCU:          float64(t.halfRCU.Load()) / 2,
	}
}

// Reset sets all counts to zero.
func (t *Table) Reset() {
	for _, n := range []*atomic.Int64{
		&t.gets, &t.queries, &t.writes, &t.transactions,
		&t.itemsWritten, &t.bytesWritten, &t.itemsRead, &t.bytesRead, &t.wcu, &t.halfRCU,
	} {
		n.Store(0)
	}
}

// Get implements store.Table.
func (t *Table) Get(ctx context.Context, k store.Key) (store.Item, bool, error) {
	it, found, err := t.inner.Get(ctx, k)
	t.gets.Add(1)
	if err != nil {
		return it, found, err
	}
	size := 0
	if found {
		size = store.Size(it)
		t.itemsRead.Add(1)
	}
	t.bytesRead.Add(int64(size))
	t.halfRCU.Add(2 * units(size, readUnit))
	return it, found, nil
}

// Query implements store.Table.
func (t *Table) Query(ctx context.Context, r store.Range) (store.Page, error) {
	page, err := t.inner.Query(ctx, r)
	t.queries.Add(1)
	if err != nil {
		return page, err
	}
	size := 0
	for _, it := range page.Items {
		size += store.Size(it)
	}
	t.itemsRead.Add(int64(len(page.Items)))
	t.bytesRead.Add(int64(size))
	halves := 2 * units(size, readUnit)
	if r.Index {
		halves /= 2
	}
	t.halfRCU.Add(halves)
	return page, nil
}

// Write implements store.Table.
func (t *Table) Write(ctx context.Context, ops ...store.Op) error {
	err := t.inner.Write(ctx, ops...)
	var failed *store.ConditionError
	factor := int64(1)
	if len(ops) > 1 {
		factor = 2
		t.transactions.Add(1)
	} else {
		t.writes.Add(1)
	}
	switch {
	case err == nil:
		t.countWritten(ops, factor)
	case errors.As(err, &failed):
		t.wcu.Add(factor * int64(len(ops)))
	}
	return err
}

func (t *Table) countWritten(ops []store.Op, factor int64) {
	for _, op := range ops {
		size := store.Size(op.Item)
		t.wcu.Add(factor * writeUnits(op, size))
		if op.Kind != store.Check {
			t.itemsWritten.Add(1)
			t.bytesWritten.Add(int64(size))
		}
	}
}

const (
	writeUnit = 1 << 10 // bytes
	readUnit  = 4 << 10
)

func writeUnits(op store.Op, size int) int64 {
	if op.Kind == store.Check {
		return 1
	}
	return units(size, writeUnit)
}

// units is how many of unit bytes size takes, at least one.
func units(size, unit int) int64 {
	return int64(max(1, (size+unit-1)/unit))
}
