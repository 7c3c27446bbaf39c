package storetest

import (
	"context"
	"fmt"
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/store"
)

// readAll follows cursors to the end of a range. A page may be empty and still have a cursor, but not for ever.
func readAll(t store.Table, r store.Range) ([]store.Item, error) {
	var all []store.Item
	for range 1000 {
		page, err := t.Query(context.Background(), r)
		if err != nil {
			return nil, err
		}
		if r.Limit > 0 && len(page.Items) > r.Limit {
			return nil, fmt.Errorf("%+v gave %d items", r, len(page.Items))
		}
		for _, it := range page.Items {
			all = append(all, normal(it))
		}
		if page.Cursor == "" {
			return all, nil
		}
		r.Cursor = page.Cursor
	}
	return nil, fmt.Errorf("%+v has no end", r)
}

func testRange(f fixture) {
	for _, sk := range []string{"I#x", "J#0", "J#1", "J#2", "J#2a", "K#1", "K#2"} {
		f.write(put(store.Item{Key: key("P", sk), Body: []byte(sk)}))
	}
	for _, c := range []struct {
		r    store.Range
		want []string
	}{
		{store.Range{PK: "P"}, []string{"I#x", "J#0", "J#1", "J#2", "J#2a", "K#1", "K#2"}},
		{store.Range{PK: "P", From: "J#1"}, []string{"J#1", "J#2", "J#2a", "K#1", "K#2"}},
		{store.Range{PK: "P", To: "J#2"}, []string{"I#x", "J#0", "J#1", "J#2"}},
		{store.Range{PK: "P", From: "J#1", To: "K#1"}, []string{"J#1", "J#2", "J#2a", "K#1"}},
		{store.Range{PK: "P", From: "J#", To: "J#~"}, []string{"J#0", "J#1", "J#2", "J#2a"}},
		{store.Range{PK: "P", From: "J#1", To: "J#1"}, []string{"J#1"}},
		{store.Range{PK: "P", From: "J#1x", To: "J#1y"}, nil},
		{store.Range{PK: "P", From: "Z"}, nil},
		{store.Range{PK: "P", To: "A"}, nil},
		{store.Range{PK: "P", From: "K", To: "J"}, nil},
		{store.Range{PK: "none"}, nil},
	} {
		f.requireKeys(c.r, c.want...)
		c.r.Reverse = true
		slices.Reverse(c.want)
		f.requireKeys(c.r, c.want...)
	}
	page, err := f.table.Query(context.Background(), store.Range{PK: "P", From: "J#", Limit: 1, Reverse: true})
	require.NoError(f, err)
	require.Equal(f, "K#2", page.Items[0].SK, "the newest is one item away")
	require.Equal(f, []byte("K#2"), page.Items[0].Body)
}

// testNeighbours: partitions whose names are prefixes of each other or differ in the smallest and greatest characters.
func testNeighbours(f fixture) {
	partitions := []string{"A", "AA", "A\x01", "A ", "A#", "A\U0010FFFF", "B", "\x01", "a"}
	sorts := []string{"\x01", "A", "\U0010FFFF"}
	for _, pk := range partitions {
		for _, sk := range sorts {
			f.write(put(store.Item{Key: key(pk, sk), Index: pk, IndexSort: sk}))
		}
	}
	for _, pk := range partitions {
		f.requireKeys(store.Range{PK: pk}, sorts...)
		f.requireKeys(store.Range{PK: pk, Reverse: true}, "\U0010FFFF", "A", "\x01")
		f.requireKeys(store.Range{PK: pk, From: "A", To: "A"}, "A")
		f.requireKeys(store.Range{PK: pk, From: "\U0010FFFF"}, "\U0010FFFF")
		f.requireKeys(store.Range{PK: pk, To: "\x01", Reverse: true}, "\x01")
		f.requireLists(pk, indexed(pk, "\x01"), indexed(pk, "A"), indexed(pk, "\U0010FFFF"))
	}
}

func indexed(pk, sk string) store.Item {
	return store.Item{Key: key(pk, sk), Index: pk, IndexSort: sk}
}

func testPages(f fixture) {
	var forward []string
	for i := range 7 {
		sk := fmt.Sprintf("%d", i)
		forward = append(forward, sk)
		f.write(put(bare("P", sk)), put(bare("O", sk)), put(bare("PP", sk)))
	}
	backward := slices.Clone(forward)
	slices.Reverse(backward)
	for limit := 1; limit <= 8; limit++ {
		f.requireKeys(store.Range{PK: "P", Limit: limit}, forward...)
		f.requireKeys(store.Range{PK: "P", Limit: limit, Reverse: true}, backward...)
		f.requireKeys(store.Range{PK: "P", Limit: limit, From: "2", To: "5"}, forward[2:6]...)
		f.requireKeys(store.Range{PK: "P", Limit: limit, From: "2", To: "5", Reverse: true}, backward[1:5]...)
	}
	page, err := f.table.Query(context.Background(), store.Range{PK: "P", Limit: 3})
	require.NoError(f, err)
	require.Len(f, page.Items, 3)
	require.NotEmpty(f, page.Cursor)
	f.write(put(bare("P", "2a")), put(bare("P", "1a")))
	f.requireKeys(store.Range{PK: "P", Cursor: page.Cursor}, "2a", "3", "4", "5", "6")
	f.requireKeys(store.Range{PK: "P", Cursor: page.Cursor, Reverse: true}, "1a", "1", "0")
}

// testLargePages: a page ends by its bytes, and no item is lost or given twice.
func testLargePages(f fixture) {
	const count = 9
	var want []string
	for i := range count {
		it := filled(key("P", fmt.Sprint(i)), 300<<10)
		it.Attrs = nil
		f.write(put(it))
		want = append(want, it.SK)
	}
	page, err := f.table.Query(context.Background(), store.Range{PK: "P"})
	require.NoError(f, err)
	require.NotEmpty(f, page.Cursor)
	require.NotEmpty(f, page.Items)
	require.LessOrEqual(f, len(page.Items)*(300<<10), store.MaxPage+store.MaxItem)
	f.requireKeys(store.Range{PK: "P"}, want...)
	f.requireKeys(store.Range{PK: "P", Limit: count}, want...)
	slices.Reverse(want)
	f.requireKeys(store.Range{PK: "P", Reverse: true}, want...)
}

// requireLists asserts what an index lists: items in order of IndexSort, equal ones in order of key.
func (f fixture) requireLists(index string, want ...store.Item) {
	f.Helper()
	f.requireSpan(store.Range{PK: index, Index: true}, want)
}

// requireSpan asserts what an index range gives once the index has settled. want is in ascending order whatever r's is.
func (f fixture) requireSpan(r store.Range, want []store.Item) {
	f.Helper()
	require.NoError(f, f.opts.eventually(func() error { return compareRange(f.table, r, want) }))
}

func testIndex(f fixture) {
	head := func(run, status, at string) store.Item {
		return store.Item{
			Key: key("T#t#RUN#"+run, "HEAD"), Attrs: attrs{"status": store.Str(status)}, Body: []byte(run + status),
			Index: "T#t#" + status, IndexSort: at,
		}
	}
	a, b, c := head("a", "running", "1"), head("b", "running", "3"), head("c", "running", "2")
	f.write(put(a), put(b))
	f.write(put(c))
	f.requireLists("T#t#running", a, c, b)
	f.requireLists("T#t#waiting")

	a, b = head("a", "waiting", "5"), head("b", "waiting", "4")
	f.write(put(a, exists))
	f.write(put(b))
	f.requireLists("T#t#running", c)
	f.requireLists("T#t#waiting", b, a)

	b = head("b", "waiting", "6")
	f.write(put(b))
	f.requireLists("T#t#waiting", a, b)
	b.Body = []byte("same place, new body")
	f.write(put(b))
	f.requireLists("T#t#waiting", a, b)

	b.Index, b.IndexSort = "", ""
	f.write(put(b))
	f.requireLists("T#t#waiting", a)
	f.requireLists("T#t#running", c)
	f.requireItem(b)
	f.requireKeys(store.Range{PK: "T#t#waiting"})
}

func testIndexPages(f fixture) {
	var all []store.Item
	for i := range 6 {
		it := store.Item{Key: key(fmt.Sprintf("P%d", i), "HEAD"), Index: "I", IndexSort: fmt.Sprint(i / 2)}
		all = append(all, it)
		f.write(put(it))
	}
	f.requireLists("I", all...)
	for limit := range 7 {
		for _, reverse := range []bool{false, true} {
			r := store.Range{PK: "I", Index: true, Limit: limit, Reverse: reverse}
			f.requireSpan(r, all)
			r.From, r.To = "1", "1"
			f.requireSpan(r, all[2:4])
			r.From, r.To = "1", "2"
			f.requireSpan(r, all[2:6])
			r.From, r.To = "", "0"
			f.requireSpan(r, all[:2])
		}
	}
}
