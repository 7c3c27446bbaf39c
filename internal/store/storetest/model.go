package storetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/internal/store"
)

// model is the simplest table: a map that is searched completely.
type model map[store.Key]store.Item

// testModel runs random operations against the table and the model and asserts the same results. All runs share a
// table; each has its own partitions and indexes.
func testModel(f fixture) {
	var runs atomic.Int64
	rapid.Check(f.T, func(t *rapid.T) {
		prefix := fmt.Sprintf("%d/", runs.Add(1))
		m := model{}
		write := func(d draw) {
			ops := d.ops()
			want, got := m.write(ops), f.tryWrite(ops...)
			if want == nil {
				require.NoError(d.T, got)
				return
			}
			ce, ok := errors.AsType[*store.ConditionError](got)
			if !ok {
				d.Fatalf("want %v, got %v", want, got)
			}
			require.Equal(d.T, want, ce)
		}
		t.Repeat(map[string]func(*rapid.T){
			"write": func(t *rapid.T) { write(draw{t, prefix}) },
			"get": func(t *rapid.T) {
				k := draw{t, prefix}.key()
				it, found, err := f.table.Get(context.Background(), k)
				require.NoError(t, err)
				want, has := m[k]
				require.Equal(t, has, found)
				require.Equal(t, normal(want), normal(it))
			},
			"query": func(t *rapid.T) {
				r := draw{t, prefix}.span()
				require.NoError(t, compareRange(f.table, r, m.query(r)))
			},
			"write between pages": func(t *rapid.T) {
				r := draw{t, prefix}.span()
				page, err := f.table.Query(context.Background(), r)
				require.NoError(t, err)
				write(draw{t, prefix})
				if r.Cursor = page.Cursor; r.Cursor == "" {
					return
				}
				last := page.Items[len(page.Items)-1].SK
				rest := slices.DeleteFunc(m.query(r), func(it store.Item) bool {
					return it.SK == last || (it.SK > last) == r.Reverse
				})
				require.NoError(t, compareRange(f.table, r, rest))
			},
			"list": func(t *rapid.T) {
				r := draw{t, prefix}.span()
				r.Index = true
				require.NoError(t, compareRange(f.table, r, m.query(r)))
			},
		})
		for _, name := range (draw{t, prefix}).partitions() {
			for _, r := range []store.Range{{PK: name}, {PK: name, Index: true}} {
				require.NoError(t, compareRange(f.table, r, m.query(r)))
			}
		}
	})
}

// write returns nil or the *store.ConditionError.
func (m model) write(ops []store.Op) error {
	var failed []int
	for i, op := range ops {
		it, found := m[op.Item.Key]
		ok := found || op.Kind != store.Update
		for _, c := range op.If {
			v, present := it.Attrs[c.Attr]
			present = present && v.IsString() == c.Value.IsString()
			switch c.Op {
			case store.ItemAbsent:
				ok = ok && !found
			case store.ItemExists:
				ok = ok && found
			case store.AtMost:
				ok = ok && present && v.Int() <= c.Value.Int()
			case store.Above:
				ok = ok && present && v.Int() > c.Value.Int()
			default:
				ok = ok && present && v.String() == c.Value.String() && v.Int() == c.Value.Int()
			}
		}
		if !ok {
			failed = append(failed, i)
		}
	}
	if failed != nil {
		return &store.ConditionError{Failed: failed}
	}
	for _, op := range ops {
		k := op.Item.Key
		switch op.Kind {
		case store.Put:
			m[k] = op.Item
		case store.Update, store.Add:
			it := m[k] // zero if an Add creates the item
			old := it.Attrs
			it.Key, it.Attrs = k, attrs{}
			maps.Copy(it.Attrs, old)
			for name, v := range op.Item.Attrs {
				if op.Kind == store.Add {
					v = store.Num(old[name].Int() + v.Int())
				}
				it.Attrs[name] = v
			}
			if op.Item.Index != "" {
				it.Index, it.IndexSort = op.Item.Index, op.Item.IndexSort
			}
			m[k] = it
		case store.Delete:
			delete(m, k)
		}
	}
	return nil
}

// compareRange reads a range page by page, and returns how it differs from want, which is ascending in any case. An
// index may return items of equal IndexSort in any order.
func compareRange(t store.Table, r store.Range, want []store.Item) error {
	got, err := readAll(t, r)
	if err != nil {
		return err
	}
	if r.Reverse {
		slices.Reverse(got)
	}
	if r.Index {
		if !slices.IsSortedFunc(got, func(a, b store.Item) int { return cmp.Compare(a.IndexSort, b.IndexSort) }) {
			return fmt.Errorf("listing is not in order: %v", got)
		}
		slices.SortFunc(got, byIndex)
	}
	sameValue := gocmp.Comparer(func(a, b store.Value) bool { return a == b })
	if d := gocmp.Diff(want, got, sameValue, cmpopts.EquateEmpty()); d != "" {
		return fmt.Errorf("listing differs (-want +got):\n%s", d)
	}
	return nil
}

// query returns the items of r, ascending in any case.
func (m model) query(r store.Range) []store.Item {
	var items []store.Item
	for _, it := range m {
		partition, sort := it.PK, it.SK
		if r.Index {
			partition, sort = it.Index, it.IndexSort
		}
		if partition == r.PK && sort >= r.From && (r.To == "" || sort <= r.To) {
			items = append(items, it)
		}
	}
	if r.Index {
		slices.SortFunc(items, byIndex)
	} else {
		slices.SortFunc(items, byKey)
	}
	return items
}

func byIndex(a, b store.Item) int { return cmp.Or(cmp.Compare(a.IndexSort, b.IndexSort), byKey(a, b)) }

func byKey(a, b store.Item) int { return cmp.Or(cmp.Compare(a.PK, b.PK), cmp.Compare(a.SK, b.SK)) }
