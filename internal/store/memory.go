package store

// This file keeps a store.Table in memory, for tests and for the fault sweep. Everything is lost with the Table.
// Its index never lags.

import (
	"context"
	"maps"
	"slices"
	"sync"
)

// Memory is a store.Table in memory. Make one with NewMemory. Safe for concurrent use.
type Memory struct {
	mu         sync.RWMutex
	partitions map[string]rows // by PK
	indexes    map[string]rows // by Index
}

var _ Table = (*Memory)(nil)

// NewMemory makes an empty table.
func NewMemory() *Memory {
	return &Memory{partitions: map[string]rows{}, indexes: map[string]rows{}}
}

// Get implements store.Table. It fails only with store.ErrInvalid and context errors.
func (t *Memory) Get(ctx context.Context, k Key) (Item, bool, error) {
	if err := ctx.Err(); err != nil {
		return Item{}, false, err
	}
	if err := CheckKey(k); err != nil {
		return Item{}, false, err
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	it, found := t.lookup(k)
	return clone(it), found, nil
}

// Query implements store.Table. It fails only with store.ErrInvalid and context errors.
func (t *Memory) Query(ctx context.Context, r Range) (Page, error) {
	if err := ctx.Err(); err != nil {
		return Page{}, err
	}
	from, until, err := Span(r)
	if err != nil {
		return Page{}, err
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	all := t.partitions[r.PK]
	if r.Index {
		all = t.indexes[r.PK]
	}
	pager := NewPager(r)
	for it := range all.between(from, until, r.Reverse) {
		if !pager.Add(clone(it)) {
			break
		}
	}
	return pager.Page(), nil
}

// Write implements store.Table. No error it returns is uncertain.
func (t *Memory) Write(ctx context.Context, ops ...Op) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := CheckOps(ops); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	changes, err := Decide(ops, func(k Key) (Item, bool, error) {
		it, found := t.lookup(k)
		return it, found, nil
	})
	if err != nil {
		return err
	}
	for _, c := range changes {
		if c.Found && c.Old.Index != "" {
			left := t.indexes[c.Old.Index].without(Position(c.Old, true))
			if t.indexes[c.Old.Index] = left; len(left) == 0 {
				delete(t.indexes, c.Old.Index)
			}
		}
		it := clone(c.New)
		t.partitions[it.PK] = t.partitions[it.PK].with(row{it.SK, it})
		if it.Index != "" {
			t.indexes[it.Index] = t.indexes[it.Index].with(row{Position(it, true), it})
		}
	}
	return nil
}

// lookup gives the stored item itself, which is never modified.
func (t *Memory) lookup(k Key) (Item, bool) {
	rs := t.partitions[k.PK]
	i, found := rs.find(k.SK)
	if !found {
		return Item{}, false
	}
	return rs[i].item, true
}

func clone(it Item) Item {
	it.Attrs = maps.Clone(it.Attrs)
	it.Body = slices.Clone(it.Body)
	return it
}

// All are copies of all items, by partition and sort key: for whoever compares or keeps a whole table.
func (t *Memory) All() []Item {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var all []Item
	for _, pk := range slices.Sorted(maps.Keys(t.partitions)) {
		for _, r := range t.partitions[pk] {
			all = append(all, clone(r.item))
		}
	}
	return all
}
