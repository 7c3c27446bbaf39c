package approval_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/store"
)

// A link opens what was signed, or nothing: what it stands for cannot be changed in the table.
func TestDamagedLinks(t *testing.T) {
	w := newLinkFixture(t, both)
	text := w.mint(t, testRequest, "user:ana")
	want, err := w.read(t.Context(), text)
	require.NoError(t, err)
	key := store.Key{PK: "LINK#" + want.ID, SK: "L"}
	good, _, err := w.table.Get(t.Context(), key)
	require.NoError(t, err)
	refused := func(body []byte) {
		t.Helper()
		bad := good
		bad.Body = body
		require.NoError(t, w.table.Write(t.Context(), store.Op{Kind: store.Put, Item: bad}))
		_, err := w.read(t.Context(), text)
		require.True(t, errors.Is(err, approval.ErrNoLink) || errors.Is(err, store.ErrDamaged), "%v\n%s", err, body)
	}
	for i := range good.Body {
		for _, flip := range []byte{1, 0x20, 0x80} {
			body := bytes.Clone(good.Body)
			body[i] ^= flip
			refused(body)
		}
		refused(good.Body[:i])
	}
	refused(append([]byte(`{"zzz":1,`), good.Body[1:]...))
	require.NoError(t, w.table.Write(t.Context(), store.Op{Kind: store.Put, Item: good}))
	got, err := w.read(t.Context(), text)
	require.NoError(t, err)
	require.Equal(t, want, got)
}
