package storetest

import (
	"bytes"
	"fmt"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/store"
)

// filled returns an item of exactly size bytes.
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
