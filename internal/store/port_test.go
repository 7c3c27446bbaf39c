package store

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSize(t *testing.T) {
	for _, c := range []struct {
		name string
		it   Item
		want int
	}{
		{"keys", Item{Key: Key{"P", "S"}}, 6},
		{"empty attributes and body", Item{Key: Key{"P", "S"}, Attrs: map[string]Value{}, Body: []byte{}}, 6},
		{"body", Item{Key: Key{"P", "S"}, Body: []byte("abc")}, 6 + 4 + 3},
		{"bytes, not characters", Item{Key: Key{"ü", "S"}}, 7},
		{"index", Item{Key: Key{"P", "S"}, Index: "ab", IndexSort: "c"}, 6 + 5 + 2 + 9 + 1},
		{"string", Item{Key: Key{"P", "S"}, Attrs: map[string]Value{"abc": Str("xy")}}, 6 + 3 + 2},
		{"empty string", Item{Key: Key{"P", "S"}, Attrs: map[string]Value{"abc": Str("")}}, 6 + 3},
		{"zero", Item{Key: Key{"P", "S"}, Attrs: map[string]Value{"n": Num(0)}}, 6 + 1 + 2},
		{"two digits", Item{Key: Key{"P", "S"}, Attrs: map[string]Value{"n": Num(42)}}, 6 + 1 + 2},
		{"three digits", Item{Key: Key{"P", "S"}, Attrs: map[string]Value{"n": Num(123)}}, 6 + 1 + 3},
		{"negative", Item{Key: Key{"P", "S"}, Attrs: map[string]Value{"n": Num(-42)}}, 6 + 1 + 3},
		{"least", Item{Key: Key{"P", "S"}, Attrs: map[string]Value{"n": Num(math.MinInt64)}}, 6 + 1 + 12},
	} {
		t.Run(c.name, func(t *testing.T) { require.Equal(t, c.want, Size(c.it)) })
	}
}

func TestCheckKeyLength(t *testing.T) {
	require.NoError(t, CheckKey(Key{strings.Repeat("p", MaxPK), strings.Repeat("s", MaxSK)}))
	require.ErrorIs(t, CheckKey(Key{strings.Repeat("p", MaxPK+1), "S"}), ErrInvalid)
	require.ErrorIs(t, CheckKey(Key{"P", strings.Repeat("s", MaxSK+1)}), ErrInvalid)
}

// TestSpanOfForgedCursor: a cursor can move within its partition and bounds, and nowhere else.
func TestSpanOfForgedCursor(t *testing.T) {
	last := Item{Key: Key{"P", "M"}}
	pager := Pager{Range: Range{PK: "P", Limit: 1}}
	require.True(t, pager.Add(last))
	require.False(t, pager.Add(Item{Key: Key{"P", "N"}}))
	cursor := pager.Page.Cursor
	for _, c := range []struct {
		r           Range
		from, until string
	}{
		{Range{PK: "P", Cursor: cursor}, "M\x00", ""},
		{Range{PK: "P", Cursor: cursor, To: "Z"}, "M\x00", "Z\x01"},
		{Range{PK: "P", Cursor: cursor, From: "N"}, "N", ""},
		{Range{PK: "P", Cursor: cursor, Reverse: true}, "", "M"},
		{Range{PK: "P", Cursor: cursor, Reverse: true, To: "C"}, "", "C\x01"},
	} {
		from, until, err := Span(c.r)
		require.NoError(t, err)
		require.Equal(t, c.from, from)
		require.Equal(t, c.until, until)
	}
	_, _, err := Span(Range{PK: "I", Index: true, Cursor: cursor})
	require.ErrorIs(t, err, ErrInvalid)
}
