// Package storetest is the conformance suite of store.Table. Every adapter runs it. The journal relies on it.
package storetest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/store"
)

// Table runs the suite. open returns an empty table for one test and ends it with t.Cleanup.
func Table(t *testing.T, open func(t *testing.T) store.Table) {
	for _, test := range []struct {
		name string
		run  func(fixture)
	}{
		{"Items", testItems},
		{"Copies", testCopies},
		{"Invalid", testInvalid},
		{"Context", testContext},
		{"RangeLargePages", testLargePages},
		{"Limits", testLimits},
		{"ConcurrentAppend", func(f fixture) { f.race("LOG") }},
		{"ConcurrentTransactions", func(f fixture) { f.race("A", "B") }},
		{"Model", testModel},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.run(fixture{t, open(t)})
		})
	}
}

type fixture struct {
	*testing.T
	table store.Table
}

func (f fixture) write(ops ...store.Op) {
	f.Helper()
	require.NoError(f, f.table.Write(context.Background(), ops...))
}

func (f fixture) tryWrite(ops ...store.Op) error {
	return f.table.Write(context.Background(), ops...)
}

func (f fixture) get(k store.Key) (store.Item, bool) {
	f.Helper()
	it, found, err := f.table.Get(context.Background(), k)
	require.NoError(f, err)
	return normal(it), found
}

func (f fixture) requireItem(want store.Item) {
	f.Helper()
	got, found := f.get(want.Key)
	require.True(f, found, "%v is missing", want.Key)
	require.Equal(f, normal(want), got)
}

func (f fixture) requireAbsent(k store.Key) {
	f.Helper()
	_, found := f.get(k)
	require.False(f, found, "%v is there", k)
}

func (f fixture) list(r store.Range) []store.Item {
	f.Helper()
	items, err := readAll(f.table, r)
	require.NoError(f, err)
	return items
}

// requireKeys asserts the sort keys in a range, in order.
func (f fixture) requireKeys(r store.Range, want ...string) {
	f.Helper()
	var got []string
	for _, it := range f.list(r) {
		got = append(got, it.SK)
	}
	require.Equal(f, want, got, "%+v", r)
}

// normal removes the differences that the port allows: empty values may come back as nil.
func normal(it store.Item) store.Item {
	if len(it.Attrs) == 0 {
		it.Attrs = nil
	}
	if len(it.Body) == 0 {
		it.Body = nil
	}
	return it
}

func key(pk, sk string) store.Key { return store.Key{PK: pk, SK: sk} }

func put(it store.Item, conds ...store.Cond) store.Op {
	return store.Op{Kind: store.Put, Item: it, If: conds}
}

func update(it store.Item) store.Op { return store.Op{Kind: store.Update, Item: it} }

func check(k store.Key, conds ...store.Cond) store.Op {
	return store.Op{Kind: store.Check, Item: store.Item{Key: k}, If: conds}
}

func bare(pk, sk string) store.Item { return store.Item{Key: key(pk, sk)} }

type attrs = map[string]store.Value

var absent = store.Cond{Op: store.ItemAbsent}

func cond(attr string, op store.CondOp, v store.Value) store.Cond {
	return store.Cond{Attr: attr, Op: op, Value: v}
}

// ReadAround reads a whole range page by page, as a sweep does, and continues after unreadable items. It returns the
// readable items, and one error for each of the others.
func ReadAround(t testing.TB, table store.Table, r store.Range) (items []store.Item, failures []error) {
	t.Helper()
	for {
		p, err := table.Query(t.Context(), r)
		items = append(items, p.Items...)
		if err != nil {
			require.ErrorIs(t, err, store.ErrDamaged)
			failures = append(failures, err)
		}
		if r.Cursor = p.Cursor; r.Cursor == "" {
			return items, failures
		}
	}
}
