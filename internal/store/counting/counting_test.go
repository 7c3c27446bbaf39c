package counting_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/store/counting"

	"github.com/countersign/countersign/internal/store/storetest"
)

func TestConformance(t *testing.T) {
	storetest.Table(t, func(*testing.T) store.Table { return counting.Wrap(store.NewMemory()) })
}

// sized makes an item of exactly n bytes.
func sized(sk string, n int) store.Item {
	it := store.Item{Key: store.Key{PK: "P", SK: sk}, Body: []byte("x")}
	it.Body = []byte(strings.Repeat("x", 1+n-store.Size(it)))
	return it
}

func put(it store.Item, conds ...store.Cond) store.Op {
	return store.Op{Kind: store.Put, Item: it, If: conds}
}

func TestCounts(t *testing.T) {
	absent := store.Cond{Op: store.ItemAbsent}
	exists := store.Cond{Op: store.ItemExists}
	key := func(sk string) store.Key { return store.Key{PK: "P", SK: sk} }
	set := store.Item{Key: key("a"), Attrs: map[string]store.Value{"n": store.Num(7)}}
	for _, c := range []struct {
		name string
		ops  []store.Op
		want counting.Counts
		fail bool
	}{
		{"one KB", []store.Op{put(sized("b", 1024))},
			counting.Counts{Writes: 1, ItemsWritten: 1, BytesWritten: 1024, WCU: 1}, false},
		{"one byte more", []store.Op{put(sized("b", 1025))},
			counting.Counts{Writes: 1, ItemsWritten: 1, BytesWritten: 1025, WCU: 2}, false},
		{"transaction", []store.Op{put(sized("b", 1025)), put(sized("c", 100))},
			counting.Counts{Transactions: 1, ItemsWritten: 2, BytesWritten: 1125, WCU: 6}, false},
		{"update", []store.Op{{Kind: store.Update, Item: set}},
			counting.Counts{Writes: 1, ItemsWritten: 1, BytesWritten: int64(store.Size(set)), WCU: 1}, false},
		{"check in a transaction", []store.Op{put(sized("b", 100)), {Kind: store.Check, Item: store.Item{Key: key("a")}, If: []store.Cond{exists}}},
			counting.Counts{Transactions: 1, ItemsWritten: 1, BytesWritten: 100, WCU: 4}, false},
		{"failed condition", []store.Op{put(sized("a", 5000), absent)}, counting.Counts{Writes: 1, WCU: 1}, true},
		{"failed transaction", []store.Op{put(sized("a", 5000), absent), put(sized("b", 5000))}, counting.Counts{Transactions: 1, WCU: 4}, true},
		{"refused", []store.Op{put(store.Item{})}, counting.Counts{Writes: 1}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			tb := counting.Wrap(store.NewMemory())
			require.NoError(t, tb.Write(context.Background(), put(sized("a", 100))))
			before := tb.Snapshot()
			err := tb.Write(context.Background(), c.ops...)
			require.Equal(t, c.fail, err != nil, "%v", err)
			require.Equal(t, c.want, tb.Snapshot().Sub(before))
		})
	}
}

func TestReads(t *testing.T) {
	ctx := context.Background()
	inner := store.NewMemory()
	listed := sized("c", 100)
	listed.Index, listed.IndexSort = "I", "1"
	require.NoError(t, inner.Write(ctx, put(sized("a", 4096)), put(sized("b", 100)), put(listed)))
	tb := counting.Wrap(inner)

	_, _, err := tb.Get(ctx, store.Key{PK: "P", SK: "a"})
	require.NoError(t, err)
	require.Equal(t, counting.Counts{Gets: 1, ItemsRead: 1, BytesRead: 4096, RCU: 1}, tb.Snapshot())

	tb.Reset()
	_, _, err = tb.Get(ctx, store.Key{PK: "P", SK: "none"})
	require.NoError(t, err)
	require.Equal(t, counting.Counts{Gets: 1, RCU: 1}, tb.Snapshot())

	tb.Reset()
	_, err = tb.Query(ctx, store.Range{PK: "P", To: "b"})
	require.NoError(t, err)
	require.Equal(t, 2.0, tb.Snapshot().RCU, "4096 and a few bytes are summed before they are rounded")
	require.EqualValues(t, 2, tb.Snapshot().ItemsRead)

	tb.Reset()
	_, err = tb.Query(ctx, store.Range{PK: "I", Index: true})
	require.NoError(t, err)
	require.Equal(t, counting.Counts{Queries: 1, ItemsRead: 1, BytesRead: int64(store.Size(listed)), RCU: 0.5}, tb.Snapshot())

	tb.Reset()
	_, err = tb.Query(ctx, store.Range{PK: ""})
	require.ErrorIs(t, err, store.ErrInvalid)
	require.Equal(t, counting.Counts{Queries: 1}, tb.Snapshot())
}
