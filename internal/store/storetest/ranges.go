package storetest

import (
	"context"
	"fmt"
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/store"
)

// readAll follows cursors to the end of a range. A page may be empty and still have a cursor, but not forever.
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

// testLargePages checks that a page is limited by its bytes, and that no item is lost or returned twice.
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

// requireLists asserts the content of an index: items in the order of IndexSort, equal ones in the order of their keys.
func (f fixture) requireLists(index string, want ...store.Item) {
	f.Helper()
	r := store.Range{PK: index, Index: true}
	require.NoError(f, compareRange(f.table, r, want))
}
