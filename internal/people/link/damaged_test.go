package link_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/damage"
	"github.com/countersign/countersign/internal/people/link"
	"github.com/countersign/countersign/internal/store"
)

// A link opens what was signed, or nothing: what it stands for cannot be changed in the table.
func TestDamagedLinks(t *testing.T) {
	w := newWorld(t, both)
	text := w.mint(t, asked, "user:ana")
	want, err := w.read(t.Context(), text)
	require.NoError(t, err)
	key := store.Key{PK: "LINK#" + want.ID, SK: "L"}
	good, _, err := w.table.Get(t.Context(), key)
	require.NoError(t, err)
	count := 0
	refused := func(what string, it store.Item, newer bool) {
		count++
		require.NoError(t, w.table.Write(t.Context(), store.Op{Kind: store.Put, Item: it}))
		_, err := w.read(t.Context(), text)
		require.True(t, errors.Is(err, link.ErrInvalid) || errors.Is(err, store.ErrDamaged) || newer && errors.Is(err, agent.ErrNewer), "%s: %v\n%s", what, err, it.Body)
	}
	for i := range good.Body {
		for _, flip := range []byte{1, 0x20, 0x80} {
			bad := good
			bad.Body = append([]byte(nil), good.Body...)
			bad.Body[i] ^= flip
			refused("flipped", bad, true) // a key may have become another: adapters have sums against that
		}
	}
	for d := range damage.Items(good) {
		if d.What[:5] == "body:" { // attributes say when the table may forget it, and that it was seen
			refused(d.What, d.Item, strings.HasSuffix(d.What, ": unknown"))
		}
	}
	t.Logf("%d cases", count)
	require.NoError(t, w.table.Write(t.Context(), store.Op{Kind: store.Put, Item: good}))
	got, err := w.read(t.Context(), text)
	require.NoError(t, err)
	require.Equal(t, want, got)
}
