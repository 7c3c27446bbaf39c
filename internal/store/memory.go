package store

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// Memory is a Table in memory, for tests and for the fault sweep. Its index never lags. Use NewMemory to make one. Safe
// for concurrent use.
type Memory struct {
	mu         sync.RWMutex
	partitions lists // by PK
	indexes    lists // by Index
}

// NewMemory returns an empty table.
func NewMemory() *Memory { return &Memory{partitions: lists{}, indexes: lists{}} }

// Get implements store.Table. It fails only with store.ErrInvalid and context errors.
func (t *Memory) Get(ctx context.Context, k Key) (Item, bool, error) {
	if err := cmp.Or(ctx.Err(), CheckKey(k)); err != nil {
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
	pager := Pager{Range: r}
	low, _ := all.find(from)
	high := len(all)
	if until != "" {
		high, _ = all.find(until)
	}
	span := all[low:max(low, high)]
	for i := range span {
		if r.Reverse {
			i = len(span) - 1 - i
		}
		if !pager.Add(clone(span[i].item)) {
			break
		}
	}
	return pager.Page, nil
}

// Write implements store.Table. No error it returns is uncertain.
func (t *Memory) Write(ctx context.Context, ops ...Op) error {
	if err := cmp.Or(ctx.Err(), CheckOps(ops)); err != nil {
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
			t.indexes.remove(c.Old.Index, Position(c.Old, true))
		}
		if c.Gone {
			t.partitions.remove(c.Old.PK, c.Old.SK)
			continue
		}
		it := clone(c.New)
		t.partitions.put(it.PK, it.SK, it)
		if it.Index != "" {
			t.indexes.put(it.Index, Position(it, true), it)
		}
	}
	return nil
}

// lookup returns the stored item itself, which must not be modified.
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

// All returns copies of all items, by partition and sort key, to compare or to store a whole table.
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

// row is an item at its Position.
type row struct {
	position string
	item     Item
}

// rows are sorted by position, each position once.
type rows []row

func (rs rows) find(position string) (int, bool) {
	return slices.BinarySearchFunc(rs, position, func(r row, p string) int { return strings.Compare(r.position, p) })
}

// lists holds rows by name. No list is empty.
type lists map[string]rows

func (l lists) put(name, position string, it Item) {
	i, found := l[name].find(position)
	if found {
		l[name][i].item = it
		return
	}
	l[name] = slices.Insert(l[name], i, row{position, it})
}

func (l lists) remove(name, position string) {
	if i, found := l[name].find(position); found {
		l[name] = slices.Delete(l[name], i, i+1)
	}
	if len(l[name]) == 0 {
		delete(l, name)
	}
}

// separator separates the parts of a position. No key contains it, and it sorts before every character of a key.
const separator = "\x00"

// Position returns the place of an item in the order of its partition (its SK) or of its Index (IndexSort, PK and SK,
// separated by NUL). Positions compare as bytes.
func Position(it Item, index bool) string {
	if index {
		return it.IndexSort + separator + it.PK + separator + it.SK
	}
	return it.SK
}

// Span returns the positions that r asks for: from <= position, and position < until unless until is "" (open). It
// includes the cursor. The span is empty if from >= until. It returns ErrInvalid if r has no partition, a negative
// limit, a bound that no key can have, or a cursor that no page of such a range has.
func Span(r Range) (from, until string, err error) {
	if r.Limit < 0 {
		return "", "", fmt.Errorf("query %q: limit %d is negative: %w", r.PK, r.Limit, ErrInvalid)
	}
	if err := errors.Join(checkName("partition", r.PK, MaxPK), checkText("lower bound", r.From),
		checkText("upper bound", r.To)); err != nil {
		return "", "", fmt.Errorf("query %q: %w", r.PK, err)
	}
	from = r.From
	if r.To != "" {
		until = r.To + "\x01" // above To and To+separator+anything, below every other string above To
	}
	if r.Cursor == "" {
		return from, until, nil
	}
	last, err := lastPosition(r)
	if err != nil {
		return "", "", err
	}
	if !r.Reverse {
		return max(from, last+separator), until, nil
	}
	if until == "" || last < until {
		until = last
	}
	return from, until, nil
}

func lastPosition(r Range) (string, error) {
	b, err := base64.RawURLEncoding.DecodeString(r.Cursor)
	parts := 0
	if r.Index {
		parts = 2
	}
	if err != nil || strings.Count(string(b), separator) != parts {
		return "", fmt.Errorf("query %q: cursor %q is not from such a query: %w", r.PK, r.Cursor, ErrInvalid)
	}
	return string(b), nil
}

// Pager collects one Page for adapters that go through the items of Range in order.
type Pager struct {
	Range Range
	Page  Page // the collected page
	size  int
}

// Add offers the next item and reports whether the page took it. If not, the page is full, by Limit or MaxPage, its
// cursor is set, and the caller has to stop.
func (p *Pager) Add(it Item) bool {
	n, count := Size(it), len(p.Page.Items)
	if count > 0 && (count == p.Range.Limit || p.size+n > MaxPage) {
		p.Skip(Position(p.Page.Items[count-1], p.Range.Index))
		return false
	}
	p.Page.Items = append(p.Page.Items, it)
	p.size += n
	return true
}

// Skip ends the page after a position: that of its last item, or of an unreadable one.
func (p *Pager) Skip(position string) { p.Page.Cursor = cursorAt(position) }

func cursorAt(position string) string { return base64.RawURLEncoding.EncodeToString([]byte(position)) }

// Change is the effect of an accepted Put, Update, Add or Delete on one key.
type Change struct {
	Old   Item // the item before; zero unless Found
	Found bool
	Gone  bool // the item is removed, and New is zero
	New   Item // shares attributes and body with the operation or with Old, so an adapter has to copy what it keeps
}

// Decide evaluates a Write for adapters that hold the items themselves. get returns the stored item of a key. Decide
// returns the changes to make, in the order of ops, without Checks. On an error nothing may be written: *ConditionError
// with every failed operation, ErrTooLarge if an Update grows an item over MaxItem, or the error of get. ops have
// passed CheckOps.
func Decide(ops []Op, get func(Key) (it Item, found bool, err error)) ([]Change, error) {
	changes := make([]Change, 0, len(ops))
	var failed []int
	for i, op := range ops {
		old, found, err := get(op.Item.Key)
		if err != nil {
			return nil, err
		}
		if !Holds(op.If, old, found) || op.Kind == Update && !found {
			failed = append(failed, i)
			continue
		}
		switch {
		case op.Kind == Delete && found:
			changes = append(changes, Change{Old: old, Found: true, Gone: true})
		case op.Kind == Put:
			changes = append(changes, Change{Old: old, Found: found, New: op.Item})
		case op.Kind == Update, op.Kind == Add: // the stored item with the operation's attributes and index, or with the sums
			it := old
			it.Key, it.Attrs = op.Item.Key, make(map[string]Value, len(old.Attrs)+len(op.Item.Attrs))
			maps.Copy(it.Attrs, old.Attrs)
			for name, v := range op.Item.Attrs {
				if op.Kind == Add {
					v.n += it.Attrs[name].n
				}
				it.Attrs[name] = v
			}
			if op.Item.Index != "" {
				it.Index, it.IndexSort = op.Item.Index, op.Item.IndexSort
			}
			changes = append(changes, Change{Old: old, Found: found, New: it})
		}
	}
	if len(failed) > 0 {
		return nil, &ConditionError{Failed: failed}
	}
	for _, c := range changes {
		if n := Size(c.New); n > MaxItem {
			return changes, fmt.Errorf("update %q %q to %d bytes: %w", c.New.PK, c.New.SK, n, ErrTooLarge)
		}
	}
	return changes, nil
}

// Holds reports whether every condition holds for the stored item; found is false if there is none. An empty list
// holds. A missing item fails all operators except ItemAbsent. A missing attribute or another type fails a comparison.
func Holds(conds []Cond, stored Item, found bool) bool {
	for _, c := range conds {
		v, present := stored.Attrs[c.Attr]
		ordered := found && present && !v.isStr && !c.Value.isStr
		ok := false
		switch c.Op {
		case ItemAbsent:
			ok = !found
		case ItemExists:
			ok = found
		case Equal:
			ok = found && present && v == c.Value
		case AtMost:
			ok = ordered && v.n <= c.Value.n
		case Above:
			ok = ordered && v.n > c.Value.n
		}
		if !ok {
			return false
		}
	}
	return true
}
