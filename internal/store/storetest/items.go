package storetest

import (
	"context"
	"math"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/store"
)

func testItems(f fixture) {
	full := store.Item{
		Key: key("P", "full"),
		Attrs: attrs{
			"text": store.Str("grüße \x00\n"), "empty": store.Str(""), "zero": store.Num(0),
			"most": store.Num(math.MaxInt64), "least": store.Num(math.MinInt64),
		},
		Body:  []byte{0, 1, 0xff, 0, 'x'},
		Index: "open", IndexSort: "2026",
	}
	f.requireAbsent(full.Key)
	for _, it := range []store.Item{
		full,
		bare("P", "bare"),
		{Key: key("P", "body"), Body: []byte("{}")},
		{Key: key("P", "attrs"), Attrs: attrs{"a": store.Num(-1)}},
		{Key: key("P", "empty"), Attrs: attrs{}, Body: []byte{}},
		{Key: key("ü/#|", "日本"), Body: []byte("b")},
	} {
		f.write(put(it))
		f.requireItem(it)
	}
	over := store.Item{Key: full.Key, Attrs: attrs{"other": store.Str("x")}}
	f.write(put(over))
	f.requireItem(over)
}

// testCopies checks that the table keeps neither the passed nor the returned item.
func testCopies(f fixture) {
	mine := store.Item{Key: key("P", "S"), Attrs: attrs{"a": store.Num(1)}, Body: []byte("body"), Index: "I",
		IndexSort: "1"}
	want := store.Item{Key: key("P", "S"), Attrs: attrs{"a": store.Num(1)}, Body: []byte("body"), Index: "I",
		IndexSort: "1"}
	spoil := func(it store.Item) {
		it.Attrs["a"] = store.Num(2)
		it.Body[0] = 'X'
	}
	f.write(put(filled(key("O", "large"), 64<<10))) // so that the small item is stored as usual
	f.write(put(mine))
	spoil(mine)
	f.requireItem(want)
	got, _ := f.get(want.Key)
	spoil(got)
	f.requireItem(want)
	spoil(f.list(store.Range{PK: "P"})[0])
	f.requireItem(want)
	f.requireLists("I", want)
	spoil(f.list(store.Range{PK: "I", Index: true})[0])
	f.requireItem(want)

	set := store.Item{Key: want.Key, Attrs: attrs{"b": store.Num(1)}}
	f.write(update(set))
	set.Attrs["b"] = store.Num(2)
	want.Attrs["b"] = store.Num(1)
	f.requireItem(want)
	f.requireLists("I", want)
}

func testInvalid(f fixture) {
	ok := bare("P", "ok")
	num := attrs{"a": store.Num(1)}
	for name, op := range map[string]store.Op{
		"no PK":                  put(bare("", "S")),
		"no SK":                  put(bare("P", "")),
		"NUL in PK":              put(bare("P\x00", "S")),
		"NUL in SK":              put(bare("P", "\x00")),
		"PK not UTF-8":           put(bare("P\xff", "S")),
		"attribute not UTF-8":    put(store.Item{Key: key("P", "S"), Attrs: attrs{"a": store.Str("\xff")}}),
		"attribute named Body":   put(store.Item{Key: key("P", "S"), Attrs: attrs{store.NameBody: store.Num(1)}}),
		"attribute without name": put(store.Item{Key: key("P", "S"), Attrs: attrs{"": store.Num(1)}}),
		"index without sort":     put(store.Item{Key: key("P", "S"), Index: "I"}),
		"sort without index":     put(store.Item{Key: key("P", "S"), IndexSort: "1"}),
		"NUL in index":           put(store.Item{Key: key("P", "S"), Index: "I\x00", IndexSort: "1"}),
		"no kind":                {Item: bare("P", "S")},
		"unknown kind":           {Kind: store.Add + 1, Item: bare("P", "S")},
		"addition of nothing":    {Kind: store.Add, Item: bare("P", "S")},
		"addition of a text":     {Kind: store.Add, Item: store.Item{Key: key("P", "S"), Attrs: attrs{"a": store.Str("1")}}},
		"no operator":            put(bare("P", "S"), store.Cond{Attr: "a"}),
		"unknown operator":       put(bare("P", "S"), cond("a", store.Above+1, store.Num(1))),
		"ordered string":         put(bare("P", "S"), cond("a", store.AtMost, store.Str("1"))),
		"condition on no name":   put(bare("P", "S"), cond("", store.Equal, store.Num(1))),
		"update of body":         update(store.Item{Key: key("P", "S"), Attrs: num, Body: []byte("b")}),
		"update of nothing":      update(bare("P", "S")),
		"check with attributes": {Kind: store.Check, Item: store.Item{Key: key("P", "S"), Attrs: num},
			If: []store.Cond{absent}},
		"check of nothing": check(key("P", "S")),
		"key twice":        check(ok.Key, absent),
	} {
		require.ErrorIs(f, f.tryWrite(put(ok), op), store.ErrInvalid, name)
		f.requireAbsent(ok.Key)
	}
	require.ErrorIs(f, f.tryWrite(), store.ErrInvalid, "no operations")
	for _, k := range []store.Key{key("", "S"), key("P", ""), key("P\x00", "S"), key("P", "\xff")} {
		_, _, err := f.table.Get(context.Background(), k)
		require.ErrorIs(f, err, store.ErrInvalid, "%q", k)
	}
	for _, r := range []store.Range{
		{}, {PK: "P", Limit: -1}, {PK: "P\x00"}, {PK: "P", To: "J#\xff"}, {PK: "P", From: "\x00"},
		{PK: "P", Cursor: "!"}, {PK: "P", Index: true, Cursor: "QQ"},
	} {
		_, err := f.table.Query(context.Background(), r)
		require.ErrorIs(f, err, store.ErrInvalid, "%+v", r)
	}
}

func testContext(f fixture) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	it := bare("P", "S")
	require.ErrorIs(f, f.table.Write(ctx, put(it)), context.Canceled)
	f.requireAbsent(it.Key)
	_, _, err := f.table.Get(ctx, it.Key)
	require.ErrorIs(f, err, context.Canceled)
	_, err = f.table.Query(ctx, store.Range{PK: "P"})
	require.ErrorIs(f, err, context.Canceled)
}
