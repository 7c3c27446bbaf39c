package fault

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/countersign/countersign/internal/store"
)

// Table is a store.Table that counts what goes through it and can disturb its calls. It is safe for concurrent use.
type Table struct {
	store.Table // the table behind it: neither counted nor disturbed

	mu          sync.Mutex
	counts      Counts
	once        []onceHook
	hook        Hook // before all calls; nil = none
	unreadable  map[store.Key]bool
	keepsWrites bool
	written     [][]store.Op // successful writes, in order, if the table keeps them
}

type onceHook struct {
	matches func(Call) bool
	hook    Hook
}

// NewTable wraps a table. Until it has a hook, it only counts.
func NewTable(next store.Table) *Table { return &Table{Table: next, unreadable: map[store.Key]bool{}} }

// Table puts the injector before an empty table. Queries of its index can be stale.
func (in *Injector) Table(next store.Table) *Table {
	t := NewTable(next)
	t.hook = in.Do
	t.KeepWrites()
	return t
}

// Use puts a hook before all later calls, in place of the one before; nil = none.
func (t *Table) Use(h Hook) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hook = h
}

// Once puts a hook before the next call that matches. Of several such hooks, a call takes the first that was set.
func (t *Table) Once(matches func(Call) bool, h Hook) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.once = append(t.once, onceHook{matches, h})
}

// Damage makes an item unreadable from now on, by its key or where the index lists it, as if its stored bytes had
// changed.
func (t *Table) Damage(k store.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.unreadable[k] = true
}

func (t *Table) isUnreadable(k store.Key) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.unreadable[k]
}

// KeepWrites makes the table keep what is written from now on.
func (t *Table) KeepWrites() { t.count(func(*Counts) { t.keepsWrites = true }) }

// Written returns the writes that succeeded and were kept, in order.
func (t *Table) Written() [][]store.Op {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.written)
}

// do makes a call through the hooks.
func (t *Table) do(ctx context.Context, c Call, call func() error) error {
	t.mu.Lock()
	always := t.hook
	i := slices.IndexFunc(t.once, func(o onceHook) bool { return o.matches(c) })
	if i >= 0 {
		once, next := t.once[i].hook, call
		t.once = slices.Delete(t.once, i, i+1)
		call = func() error { return once(ctx, c, next) }
	}
	t.mu.Unlock()
	if always == nil {
		return call()
	}
	return always(ctx, c, call)
}

// Get implements store.Table.
func (t *Table) Get(ctx context.Context, k store.Key) (it store.Item, found bool, err error) {
	err = t.do(ctx, Call{Port: TableGet, Target: k.SK, Key: k}, func() (err error) {
		if it, found, err = t.Table.Get(ctx, k); t.isUnreadable(k) {
			it, found, err = store.Item{}, false, store.Damaged(k, "checksum differs")
		}
		var read []store.Item
		if found {
			read = []store.Item{it}
		}
		t.count(func(n *Counts) {
			n.Gets++
			n.countRead(read, 1, err)
		})
		return err
	})
	return it, found, err
}

// Query implements store.Table.
func (t *Table) Query(ctx context.Context, r store.Range) (p store.Page, err error) {
	c := Call{Port: TableQuery, Target: r.From, Key: store.Key{PK: r.PK, SK: r.From}, MayLag: r.Index}
	err = t.do(ctx, c, func() (err error) {
		from, factor := t.Table, 1.0
		if r.Index {
			factor = 0.5
		}
		if i := invocationOf(ctx); r.Index && i != nil && i.lagWrites > 0 {
			if from, err = t.olderTable(ctx, i.lagWrites); err != nil {
				return err
			}
		}
		p, err = from.Query(ctx, r)
		i := slices.IndexFunc(p.Items, func(it store.Item) bool { return r.Index && t.isUnreadable(it.Key) })
		if i >= 0 && err == nil {
			damaged := p.Items[i].Key
			r.Limit = i + 1 // the cursor is behind the damaged item
			p, err = from.Query(ctx, r)
			p.Items = p.Items[:i]
			err = errors.Join(err, store.Damaged(damaged, "checksum differs"))
		}
		t.count(func(n *Counts) {
			n.Queries++
			n.countRead(p.Items, factor, err)
		})
		return err
	})
	return p, err
}

// Write implements store.Table.
func (t *Table) Write(ctx context.Context, ops ...store.Op) error {
	keys := make([]string, len(ops))
	for i, op := range ops {
		keys[i] = op.Item.SK
	}
	return t.do(ctx, Call{Port: TableWrite, Target: strings.Join(keys, "+"), Ops: ops}, func() error {
		err := t.Table.Write(ctx, ops...)
		t.count(func(n *Counts) {
			n.countWrite(ops, err)
			if err == nil && t.keepsWrites {
				t.written = append(t.written, slices.Clone(ops))
			}
		})
		return err
	})
}

// olderTable returns the table as it was before the last writes.
func (t *Table) olderTable(ctx context.Context, writes int) (store.Table, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := store.NewMemory()
	for _, ops := range t.written[:max(0, len(t.written)-writes)] {
		ops = slices.Clone(ops)
		for i := range ops {
			ops[i].If = nil
		}
		if err := old.Write(context.WithoutCancel(ctx), ops...); err != nil {
			return nil, fmt.Errorf("read an older state of the index: %w", err)
		}
	}
	return old, nil
}

// Counts is what went through a Table. Requests are counted when they are made, whatever their outcome; items, bytes
// and capacity as written below.
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
	// An Update counts the bytes it carries, at least 1 KB: the size of the item it leaves is not known. A Delete, a
	// Check and an operation of a Write whose conditions failed count as 1 KB. The index's own capacity is not in it.
	WCU int64
	// RCU is DynamoDB's read capacity: one for each 4 KB, begun, of a Get or of a whole page, at least one; half for the
	// index, which is read with eventual consistency.
	RCU float64
}

// Counts returns all counts so far.
func (t *Table) Counts() Counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.counts
}

// Reset sets all counts to zero.
func (t *Table) Reset() { t.count(func(n *Counts) { *n = Counts{} }) }

func (t *Table) count(add func(n *Counts)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	add(&t.counts)
}

// Sub returns what went through between the earlier counts o and the later c.
func (c Counts) Sub(o Counts) Counts {
	return Counts{
		Gets: c.Gets - o.Gets, Queries: c.Queries - o.Queries,
		Writes: c.Writes - o.Writes, Transactions: c.Transactions - o.Transactions,
		ItemsWritten: c.ItemsWritten - o.ItemsWritten, BytesWritten: c.BytesWritten - o.BytesWritten,
		ItemsRead: c.ItemsRead - o.ItemsRead, BytesRead: c.BytesRead - o.BytesRead, WCU: c.WCU - o.WCU, RCU: c.RCU - o.RCU,
	}
}

// countRead counts the items of a read that costs factor for each unit.
func (c *Counts) countRead(items []store.Item, factor float64, err error) {
	if err != nil {
		return
	}
	size := 0
	for _, it := range items {
		size += store.Size(it)
	}
	c.ItemsRead += int64(len(items))
	c.BytesRead += int64(size)
	c.RCU += factor * float64(units(size, 4<<10))
}

func (c *Counts) countWrite(ops []store.Op, err error) {
	factor, requests := int64(1), &c.Writes
	if len(ops) > 1 {
		factor, requests = 2, &c.Transactions
	}
	*requests++
	if _, ok := errors.AsType[*store.ConditionError](err); ok {
		c.WCU += factor * int64(len(ops))
	}
	if err != nil {
		return
	}
	for _, op := range ops {
		if op.Kind == store.Check || op.Kind == store.Delete {
			c.WCU += factor
			continue
		}
		size := store.Size(op.Item)
		c.WCU += factor * units(size, 1<<10)
		c.ItemsWritten++
		c.BytesWritten += int64(size)
	}
}

// units returns how many units of so many bytes a size takes, at least one.
func units(size, unit int) int64 { return int64(max(1, (size+unit-1)/unit)) }
