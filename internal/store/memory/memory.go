// Package memory keeps a store.Table in memory, for tests and for the fault sweep. Everything is lost with the Table.
// Its index never lags.
package memory

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/countersign/countersign/internal/store"
)

// Memory is a store.Table in memory. Make one with New. Safe for concurrent use.
type Memory struct {
	mu         sync.RWMutex
	partitions map[string]rows // by PK
	indexes    map[string]rows // by Index
}

var _ store.Table = (*Memory)(nil)

// NewMemory makes an empty table.
func NewMemory() *Memory {
	return &Memory{partitions: map[string]rows{}, indexes: map[string]rows{}}
}

// Get implements store.Table. It fails only with store.ErrInvalid and context errors.
func (t *Memory) Get(ctx context.Context, k store.Key) (store.Item, bool, error) {
	if err := ctx.Err(); err != nil {
		return store.Item{}, false, err
	}
	if err := store.CheckKey(k); err != nil {
		return store.Item{}, false, err
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	it, found := t.lookup(k)
	return clone(it), found, nil
}

// Query implements store.Table. It fails only with store.ErrInvalid and context errors.
func (t *Memory) Query(ctx context.Context, r store.Range) (store.Page, error) {
	if err := ctx.Err(); err != nil {
		return store.Page{}, err
	}
	from, until, err := store.Span(r)
	if err != nil {
		return store.Page{}, err
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	all := t.partitions[r.PK]
	if r.Index {
		all = t.indexes[r.PK]
	}
	pager := store.NewPager(r)
	for it := range all.between(from, until, r.Reverse) {
		if !pager.Add(clone(it)) {
			break
		}
	}
	return pager.Page(), nil
}

// Write implements store.Table. No error it returns is uncertain.
func (t *Memory) Write(ctx context.Context, ops ...store.Op) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := store.CheckOps(ops); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	changes, err := store.Decide(ops, func(k store.Key) (store.Item, bool, error) {
		it, found := t.lookup(k)
		return it, found, nil
	})
	if err != nil {
		return err
	}
	for _, c := range changes {
		if c.Found && c.Old.Index != "" {
			t.unlist(c.Old)
		}
		it := clone(c.New)
		t.partitions[it.PK] = t.partitions[it.PK].with(row{it.SK, it})
		if it.Index != "" {
			t.indexes[it.Index] = t.indexes[it.Index].with(row{store.Position(it, true), it})
		}
	}
	return nil
}

// lookup gives the stored item itself, which is never modified.
func (t *Memory) lookup(k store.Key) (store.Item, bool) {
	rs := t.partitions[k.PK]
	i, found := rs.find(k.SK)
	if !found {
		return store.Item{}, false
	}
	return rs[i].item, true
}

func (t *Memory) unlist(it store.Item) {
	left := t.indexes[it.Index].without(store.Position(it, true))
	if len(left) == 0 {
		delete(t.indexes, it.Index)
		return
	}
	t.indexes[it.Index] = left
}

func clone(it store.Item) store.Item {
	it.Attrs = maps.Clone(it.Attrs)
	it.Body = slices.Clone(it.Body)
	return it
}

// All are copies of all items, by partition and sort key: for whoever compares or keeps a whole table.
func (t *Memory) All() []store.Item {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var all []store.Item
	for _, pk := range slices.Sorted(maps.Keys(t.partitions)) {
		for _, r := range t.partitions[pk] {
			all = append(all, clone(r.item))
		}
	}
	return all
}
