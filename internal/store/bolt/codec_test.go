package bolt

import (
	"encoding/binary"
	"math"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/store/storetest"
)

var sampleItem = store.Item{
	Key:   store.Key{PK: "T#t#RUN#r", SK: "HEAD"},
	Attrs: map[string]store.Value{"waitSeq": store.Num(-300), "status": store.Str("waiting"), "least": store.Num(math.MinInt64)},
	Body:  []byte("body"), Index: "T#t#waiting", IndexSort: "2026",
}

func TestDecodeDamaged(t *testing.T) {
	good := encoded(t, sampleItem)
	got, err := decode(sampleItem.Key, good)
	require.NoError(t, err)
	require.Equal(t, sampleItem, got)
	for i := range good {
		flipped := append([]byte(nil), good...)
		flipped[i] ^= 0x20
		requireDamaged(t, flipped)
		requireDamaged(t, good[:i])
	}
	_, err = decode(store.Key{PK: "other", SK: "key"}, good)
	require.ErrorIs(t, err, store.ErrDamaged, "a value belongs to its key")
	newer := append([]byte(nil), good...)
	newer[0] = format + 1
	_, err = decode(sampleItem.Key, newer)
	require.ErrorContains(t, err, "unknown format 3")
}

func encoded(t require.TestingT, it store.Item) []byte {
	b, err := encode(it)
	require.NoError(t, err)
	return b
}

func requireDamaged(t *testing.T, b []byte) {
	t.Helper()
	_, err := decode(sampleItem.Key, b)
	require.ErrorIs(t, err, store.ErrDamaged)
	require.ErrorContains(t, err, `item "T#t#RUN#r" "HEAD"`)
}

func TestCodecRoundTrip(t *testing.T) {
	value := rapid.OneOf(
		rapid.Map(rapid.String(), store.Str),
		rapid.Map(rapid.Int64(), store.Num),
	)
	rapid.Check(t, func(t *rapid.T) {
		it := store.Item{
			Key:   store.Key{PK: rapid.String().Draw(t, "PK"), SK: rapid.String().Draw(t, "SK")},
			Attrs: rapid.MapOfN(rapid.String(), value, 1, 5).Draw(t, "attrs"),
			Body:  rapid.SliceOfN(rapid.Byte(), 1, 50).Draw(t, "body"),
		}
		if it.Index = rapid.String().Draw(t, "index"); it.Index != "" {
			it.IndexSort = rapid.String().Draw(t, "index sort")
		}
		got, err := decode(it.Key, encoded(t, it))
		require.NoError(t, err)
		require.Equal(t, it, got)
	})
}

// FuzzDecode also mends the checksum, so that what is behind it is reached.
func FuzzDecode(f *testing.F) {
	f.Add(encoded(f, sampleItem))
	f.Add(encoded(f, store.Item{Key: sampleItem.Key}))
	f.Add([]byte{format, 0, 0, 0, 0, '{'}) // what a checksum does not catch because a faulty writer made it
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < headerSize {
			requireDamaged(t, b)
			return
		}
		b[0] = format
		binary.LittleEndian.PutUint32(b[1:], checksum(sampleItem.Key, b[headerSize:]))
		it, err := decode(sampleItem.Key, b)
		if err != nil {
			require.ErrorIs(t, err, store.ErrDamaged)
			return
		}
		again, err := decode(it.Key, encoded(t, it))
		require.NoError(t, err)
		require.Equal(t, it, again)
	})
}

// TestDamagedItem: one bad item is an error that names it, and no hindrance to the others.
func TestDamagedItem(t *testing.T) {
	tb, err := Open(filepath.Join(t.TempDir(), "store"), Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, tb.Close()) }()
	bad, good := sampleItem, sampleItem
	good.SK = "other"
	require.NoError(t, tb.Write(t.Context(), store.Op{Kind: store.Put, Item: bad}, store.Op{Kind: store.Put, Item: good}))
	require.NoError(t, tb.db.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket(itemsBucket).Put(itemKey(bad.Key), []byte{format, 1, 2, 3})
	}))

	_, _, err = tb.Get(t.Context(), bad.Key)
	require.ErrorIs(t, err, store.ErrDamaged)
	require.ErrorContains(t, err, bad.SK)
	for _, r := range []store.Range{{PK: bad.PK}, {PK: bad.PK, Reverse: true}, {PK: bad.Index, Index: true}} {
		items, failures := storetest.ReadAround(t, tb, r)
		require.Equal(t, []store.Item{good}, items, "the items before and behind it")
		require.Len(t, failures, 1)
		require.ErrorIs(t, failures[0], store.ErrDamaged)
		require.ErrorContains(t, failures[0], bad.SK)
	}
	require.ErrorIs(t, tb.Write(t.Context(), store.Op{Kind: store.Put, Item: bad}), store.ErrDamaged)

	got, found, err := tb.Get(t.Context(), good.Key)
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, good, got)
	require.NoError(t, tb.Write(t.Context(), store.Op{Kind: store.Put, Item: good}))
}
