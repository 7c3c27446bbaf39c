package dynamo

import (
	"bytes"
	"encoding/base64"
	"io"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/internal/store"
)

func bodied(body []byte) store.Item {
	return store.Item{Key: store.Key{PK: "P", SK: "S"}, Body: body}
}

// storedSize is what DynamoDB counts for a body.
func storedSize(t require.TestingT, v types.AttributeValue) int {
	raw, packed := stored(t, v)
	if packed {
		return mapOverhead + len(*raw)
	}
	return len(*raw)
}

// stored are the bytes of a stored body, and whether they are deflated.
func stored(t require.TestingT, v types.AttributeValue) (raw *[]byte, packed bool) {
	if m, ok := v.(*types.AttributeValueMemberM); ok {
		require.Len(t, m.Value, 1)
		v, packed = m.Value[deflated], true
	}
	b, ok := v.(*types.AttributeValueMemberB)
	require.True(t, ok)
	return &b.Value, packed
}

// TestBodyComesBack: whatever the body, it comes back as it was and takes no more room than it has bytes.
func TestBodyComesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		unit := rapid.SliceOfN(rapid.Byte(), 1, 2000).Draw(t, "unit")
		body := bytes.Repeat(unit, rapid.IntRange(1, 50).Draw(t, "times"))
		v, err := encodeBody(bodied(body))
		require.NoError(t, err)
		require.LessOrEqual(t, storedSize(t, v), len(body))
		got, err := decodeBody(v)
		require.NoError(t, err)
		require.True(t, bytes.Equal(body, got))
	})
}

func TestBodyForms(t *testing.T) {
	full := bodied([]byte("x"))
	room := store.MaxItem - store.Size(full) + 1
	for _, c := range []struct {
		name string
		body []byte
		m    bool
	}{
		{"2 KB", bytes.Repeat([]byte("x"), compressAbove), false},
		{"a byte more", bytes.Repeat([]byte("x"), compressAbove+1), true},
		{"all it may be and compressed", bytes.Repeat([]byte("x"), room-growth), true},
		{"a byte more than that", bytes.Repeat([]byte("x"), room-growth+1), false},
		{"the greatest", bytes.Repeat([]byte("x"), room), false},
		{"nothing to gain", incompressible(8 << 10), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			v, err := encodeBody(bodied(c.body))
			require.NoError(t, err)
			_, packed := stored(t, v)
			require.Equal(t, c.m, packed)
		})
	}
}

// incompressible gives bytes without repetition.
func incompressible(n int) []byte {
	out := make([]byte, n)
	z := uint64(1)
	for i := range out {
		z = z*6364136223846793005 + 1442695040888963407
		out[i] = byte(z >> 56)
	}
	return out
}

func TestInflateIsBounded(t *testing.T) {
	bomb, err := deflate(make([]byte, store.MaxItem+1))
	require.NoError(t, err)
	_, err = inflate(bomb)
	require.ErrorContains(t, err, "to more than")
	most, err := deflate(make([]byte, store.MaxItem))
	require.NoError(t, err)
	got, err := inflate(most)
	require.NoError(t, err)
	require.Len(t, got, store.MaxItem)
	_, err = inflate(most[:len(most)-1])
	require.ErrorIs(t, err, io.ErrUnexpectedEOF, "cut short")
	_, err = inflate(append(most, 0))
	require.ErrorContains(t, err, "1 bytes behind its end")
}

// FuzzCursor: any cursor is refused as store.ErrInvalid or is the position of an item, and stays within its partition.
func FuzzCursor(f *testing.F) {
	f.Add("NwBQAFM", true, false)
	f.Add("QQ", false, true)
	f.Add("AAAA", true, true)
	f.Fuzz(func(t *testing.T, cursor string, index, reverse bool) {
		start, isEmpty, err := startKey(store.Range{PK: "P", From: "B", To: "Y", Cursor: cursor, Index: index, Reverse: reverse})
		if err != nil {
			require.ErrorIs(t, err, store.ErrInvalid)
			return
		}
		if start == nil || isEmpty {
			return
		}
		it, err := decode(start)
		require.NoError(t, err)
		require.NoError(t, store.CheckKey(it.Key))
		partition, sort := it.PK, it.SK
		if index {
			partition, sort = it.Index, it.IndexSort
		}
		require.Equal(t, "P", partition)
		require.True(t, "B" <= sort && sort <= "Y", "DynamoDB refuses a start outside the bounds: %q", sort)
	})
}

// TestCursorOutsideTheBounds follows store.Span: behind them nothing is left, before them it has no effect.
func TestCursorOutsideTheBounds(t *testing.T) {
	at := base64.RawURLEncoding.EncodeToString([]byte("M"))
	for _, c := range []struct {
		r     store.Range
		empty bool
		after bool
	}{
		{store.Range{}, false, true},
		{store.Range{From: "M", To: "M"}, false, true},
		{store.Range{From: "N"}, false, false},
		{store.Range{To: "L"}, true, false},
		{store.Range{Reverse: true}, false, true},
		{store.Range{Reverse: true, From: "N"}, true, false},
		{store.Range{Reverse: true, To: "L"}, false, false},
		{store.Range{From: "Z", To: "A"}, true, false},
	} {
		c.r.PK, c.r.Cursor = "P", at
		start, isEmpty, err := startKey(c.r)
		require.NoError(t, err)
		require.Equal(t, c.empty, isEmpty, "%+v", c.r)
		require.Equal(t, c.after, start != nil, "%+v", c.r)
	}
}

// Every byte of a stored body, and the key it stands under, is in its sum: whatever is changed in the table is found when it is read.
func TestEveryByteOfABodyIsSummed(t *testing.T) {
	for name, body := range map[string][]byte{"as it is": []byte(`{"v":1,"e":[{"decided":{"call":"c1","amount":1.50}}]}`), "deflated": bytes.Repeat([]byte(`{"text":"abc"},`), 300)} {
		t.Run(name, func(t *testing.T) {
			it := store.Item{Key: store.Key{PK: "T#acme#RUN#r1", SK: "J#0000000001"}, Body: body, Index: "I", IndexSort: "1"}
			whole, err := encode(it)
			require.NoError(t, err)
			again, err := decode(whole)
			require.NoError(t, err)
			require.Equal(t, it, again)
			kept, _ := stored(t, whole[store.NameBody])
			raw := *kept
			require.Equal(t, name == "as it is", &raw[0] == &body[0])
			for i := range raw {
				for _, flip := range []byte{1, 0x20, 0x80} {
					raw[i] ^= flip
					if flipped, err := decode(whole); err == nil { // bits that fill up the last byte of what is deflated
						require.Equal(t, it, flipped, "byte %d", i)
					} else {
						requireItemDamaged(t, err, it.Key)
					}
					raw[i] ^= flip
				}
			}
			for n := range raw {
				cut, err := encode(it)
				require.NoError(t, err)
				raw, _ := stored(t, cut[store.NameBody])
				*raw = (*raw)[:n]
				_, err = decode(cut)
				requireItemDamaged(t, err, it.Key)
			}
			for _, other := range []store.Key{{PK: "T#acme#RUN#r2", SK: it.SK}, {PK: "T#other#RUN#r1", SK: it.SK}, {PK: it.PK, SK: "J#0000000002"}, {PK: it.PK + "J", SK: it.SK[1:]}} {
				copied, err := encode(it)
				require.NoError(t, err)
				copied[store.NamePK], copied[store.NameSK] = str(other.PK), str(other.SK)
				_, err = decode(copied)
				requireItemDamaged(t, err, other)
			}
			delete(whole, store.NameBody)
			_, err = decode(whole)
			requireItemDamaged(t, err, it.Key)
			old, err := encode(it)
			require.NoError(t, err)
			delete(old, store.NameSum)
			again, err = decode(old)
			require.NoError(t, err, "an item without a sum")
			require.Equal(t, it, again)
		})
	}
	large, err := encode(store.Item{Key: store.Key{PK: "P", SK: "S"}, Body: make([]byte, store.MaxItem-10)})
	require.NoError(t, err)
	require.NotContains(t, large, store.NameSum, "there is no room for it")
}

func requireItemDamaged(t *testing.T, err error, k store.Key) {
	t.Helper()
	var damaged *store.DamagedError
	require.ErrorIs(t, err, store.ErrDamaged)
	require.ErrorAs(t, err, &damaged)
	require.Equal(t, k, damaged.Key)
}
