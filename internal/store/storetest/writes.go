package storetest

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/store"
)

func testConditions(f fixture) {
	stored := store.Item{Key: key("P", "there"),
		Attrs: attrs{"n": store.Num(5), "s": store.Str("5"), "zero": store.Num(0)}}
	f.write(put(stored))
	for _, c := range []struct {
		name           string
		conds          []store.Cond
		there, missing bool // whether they hold for the stored item, and for none
	}{
		{"none", nil, true, true},
		{"absent", []store.Cond{absent}, false, true},
		{"exists", []store.Cond{exists}, true, false},
		{"equal number", []store.Cond{cond("n", store.Equal, store.Num(5))}, true, false},
		{"equal other number", []store.Cond{cond("n", store.Equal, store.Num(6))}, false, false},
		{"equal string", []store.Cond{cond("s", store.Equal, store.Str("5"))}, true, false},
		{"equal other string", []store.Cond{cond("s", store.Equal, store.Str("6"))}, false, false},
		{"equal number to string", []store.Cond{cond("s", store.Equal, store.Num(5))}, false, false},
		{"equal string to number", []store.Cond{cond("n", store.Equal, store.Str("5"))}, false, false},
		{"equal zero", []store.Cond{cond("zero", store.Equal, store.Num(0))}, true, false},
		{"equal zero, absent attribute", []store.Cond{cond("none", store.Equal, store.Num(0))}, false, false},
		{"equal empty, absent attribute", []store.Cond{cond("none", store.Equal, store.Str(""))}, false, false},
		{"at most, below", []store.Cond{cond("n", store.AtMost, store.Num(6))}, true, false},
		{"at most, same", []store.Cond{cond("n", store.AtMost, store.Num(5))}, true, false},
		{"at most, above", []store.Cond{cond("n", store.AtMost, store.Num(4))}, false, false},
		{"at most, string", []store.Cond{cond("s", store.AtMost, store.Num(6))}, false, false},
		{"at most, absent attribute", []store.Cond{cond("none", store.AtMost, store.Num(6))}, false, false},
		{"above, below", []store.Cond{cond("n", store.Above, store.Num(4))}, true, false},
		{"above, same", []store.Cond{cond("n", store.Above, store.Num(5))}, false, false},
		{"above, string", []store.Cond{cond("s", store.Above, store.Num(4))}, false, false},
		{"above, absent attribute", []store.Cond{cond("none", store.Above, store.Num(-1))}, false, false},
		{"all hold", []store.Cond{exists, cond("n", store.Above, store.Num(4)), cond("n", store.AtMost, store.Num(5))}, true,
			false},
		{"first fails", []store.Cond{cond("n", store.Above, store.Num(5)), exists}, false, false},
		{"last fails", []store.Cond{exists, cond("n", store.Above, store.Num(5))}, false, false},
		{"contradiction", []store.Cond{absent, exists}, false, false},
	} {
		f.Run(c.name, func(t *testing.T) {
			f := fixture{T: t, table: f.table, opts: f.opts}
			f.requireOutcome(c.there, stored, put(stored, c.conds...))
			f.requireOutcome(c.there, stored, update(store.Item{Key: stored.Key, Attrs: attrs{"n": store.Num(5)}}, c.conds...))
			none := key("P", "none of "+c.name)
			f.requireOutcome(false, stored, update(store.Item{Key: none, Attrs: attrs{"n": store.Num(5)}}, c.conds...))
			f.requireAbsent(none)
			if len(c.conds) > 0 {
				f.requireOutcome(c.there, stored, check(stored.Key, c.conds...))
				f.requireOutcome(c.missing, stored, check(none, c.conds...))
				f.requireAbsent(none)
			}
			f.requireOutcome(c.missing, stored, put(store.Item{Key: none}, c.conds...))
			_, found := f.get(none)
			require.Equal(f, c.missing, found)
		})
	}
}

// requireOutcome writes op and asserts whether its condition held; stored stays as it is.
func (f fixture) requireOutcome(holds bool, stored store.Item, op store.Op) {
	f.Helper()
	err := f.tryWrite(op)
	if holds {
		require.NoError(f, err)
	} else {
		f.requireFailed(err, 0)
	}
	f.requireItem(stored)
}

// requireFailed asserts that err says exactly which operations failed their conditions.
func (f fixture) requireFailed(err error, ops ...int) {
	f.Helper()
	var ce *store.ConditionError
	require.ErrorAs(f, err, &ce)
	require.Equal(f, ops, ce.Failed)
}

func testAtomic(f fixture) {
	old := store.Item{Key: key("P", "old"), Attrs: attrs{"n": store.Num(1)}, Index: "I", IndexSort: "old"}
	f.write(put(old))
	fresh := store.Item{Key: key("Q", "fresh"), Body: []byte("b"), Index: "I", IndexSort: "fresh"}
	moved := store.Item{Key: old.Key, Attrs: attrs{"n": store.Num(2)}}
	three := cond("n", store.Equal, store.Num(3))

	for _, c := range []struct {
		ops    []store.Op
		failed []int
	}{
		{[]store.Op{put(fresh), put(moved, three)}, []int{1}},
		{[]store.Op{put(moved), put(fresh, exists)}, []int{1}},
		{[]store.Op{put(fresh), update(moved), check(key("R", "r"), exists)}, []int{2}},
		{[]store.Op{put(fresh, exists), update(moved), check(key("R", "r"), exists)}, []int{0, 2}},
		{[]store.Op{put(fresh, exists), update(moved, three), check(key("R", "r"), exists)}, []int{0, 1, 2}},
		{[]store.Op{put(fresh), update(store.Item{Key: key("R", "r"), Attrs: moved.Attrs})}, []int{1}},
	} {
		f.requireFailed(f.tryWrite(c.ops...), c.failed...)
		f.requireItem(old)
		f.requireAbsent(fresh.Key)
		f.requireAbsent(key("R", "r"))
		f.requireLists("I", old)
	}

	f.write(put(fresh, absent), put(moved, exists), check(key("R", "r"), absent))
	f.requireItem(fresh)
	f.requireItem(moved)
	f.requireLists("I", fresh)
}

func testUpdate(f fixture) {
	it := store.Item{
		Key: key("P", "S"), Attrs: attrs{"keep": store.Str("k"), "set": store.Num(1)},
		Body: []byte("body"), Index: "waiting", IndexSort: "1",
	}
	f.write(put(it))
	f.write(update(store.Item{Key: it.Key, Attrs: attrs{"set": store.Str("now text"), "new": store.Num(2)}}))
	it.Attrs["set"], it.Attrs["new"] = store.Str("now text"), store.Num(2)
	f.requireItem(it)
	f.requireLists("waiting", it)

	f.write(update(store.Item{Key: it.Key, Attrs: attrs{"set": store.Num(3)}, Index: "done", IndexSort: "2"}))
	it.Attrs["set"], it.Index, it.IndexSort = store.Num(3), "done", "2"
	f.requireItem(it)
	f.requireLists("waiting")
	f.requireLists("done", it)

	f.write(update(store.Item{Key: it.Key, Index: "done", IndexSort: "3"}))
	it.IndexSort = "3"
	f.requireItem(it)
	f.requireLists("done", it)

	plain := bare("P", "plain")
	f.write(put(plain))
	f.write(update(store.Item{Key: plain.Key, Attrs: attrs{"a": store.Num(1)}}))
	plain.Attrs = attrs{"a": store.Num(1)}
	f.requireItem(plain)
}

// filled is an item of exactly size bytes.
func filled(k store.Key, size int) store.Item {
	it := store.Item{Key: k, Body: []byte{'x'}}
	it.Body = bytes.Repeat(it.Body, 1+size-store.Size(it))
	return it
}

func testLimits(f fixture) {
	most := filled(key("P", "S"), store.MaxItem)
	f.write(put(most))
	f.requireItem(most)
	require.ErrorIs(f, f.tryWrite(put(bare("P", "other")), put(filled(key("P", "S"), store.MaxItem+1))), store.ErrTooLarge)
	f.requireAbsent(key("P", "other"))
	grow := store.Item{Key: most.Key, Attrs: attrs{"a": store.Num(1)}}
	require.ErrorIs(f, f.tryWrite(put(bare("P", "other")), update(grow)), store.ErrTooLarge)
	f.requireAbsent(key("P", "other"))
	f.requireItem(most)

	var ops []store.Op
	for i := range store.MaxOps + 1 {
		ops = append(ops, put(bare("many", fmt.Sprintf("%03d", i))))
	}
	require.ErrorIs(f, f.tryWrite(ops...), store.ErrInvalid)
	f.requireKeys(store.Range{PK: "many"})
	f.write(ops[:store.MaxOps]...)
	require.Len(f, f.list(store.Range{PK: "many"}), store.MaxOps)

	ops = nil
	for i := range store.MaxWrite/store.MaxItem + 1 {
		ops = append(ops, put(filled(key("heavy", fmt.Sprint(i)), store.MaxItem)))
	}
	require.ErrorIs(f, f.tryWrite(ops...), store.ErrInvalid)
	f.requireKeys(store.Range{PK: "heavy"})
}
