package fault_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/store/storetest"
)

func TestConformance(t *testing.T) {
	storetest.Table(t, func(*testing.T) store.Table { return fault.NewTable(store.NewMemory()) })
}

// sized makes an item of exactly n bytes.
func sized(sk string, n int) store.Item {
	it := store.Item{Key: store.Key{PK: "P", SK: sk}, Body: []byte("x")}
	it.Body = []byte(strings.Repeat("x", 1+n-store.Size(it)))
	return it
}

func putItem(it store.Item, conds ...store.Cond) store.Op {
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
		want fault.Counts
		fail bool
	}{
		{"one KB", []store.Op{putItem(sized("b", 1024))},
			fault.Counts{Writes: 1, ItemsWritten: 1, BytesWritten: 1024, WCU: 1}, false},
		{"one byte more", []store.Op{putItem(sized("b", 1025))},
			fault.Counts{Writes: 1, ItemsWritten: 1, BytesWritten: 1025, WCU: 2}, false},
		{"transaction", []store.Op{putItem(sized("b", 1025)), putItem(sized("c", 100))},
			fault.Counts{Transactions: 1, ItemsWritten: 2, BytesWritten: 1125, WCU: 6}, false},
		{"update", []store.Op{{Kind: store.Update, Item: set}},
			fault.Counts{Writes: 1, ItemsWritten: 1, BytesWritten: int64(store.Size(set)), WCU: 1}, false},
		{"check in a transaction", []store.Op{putItem(sized("b", 100)), {Kind: store.Check, Item: store.Item{Key: key("a")}, If: []store.Cond{exists}}},
			fault.Counts{Transactions: 1, ItemsWritten: 1, BytesWritten: 100, WCU: 4}, false},
		{"failed condition", []store.Op{putItem(sized("a", 5000), absent)}, fault.Counts{Writes: 1, WCU: 1}, true},
		{"failed transaction", []store.Op{putItem(sized("a", 5000), absent), putItem(sized("b", 5000))}, fault.Counts{Transactions: 1, WCU: 4}, true},
		{"refused", []store.Op{putItem(store.Item{})}, fault.Counts{Writes: 1}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			tb := fault.NewTable(store.NewMemory())
			require.NoError(t, tb.Write(context.Background(), putItem(sized("a", 100))))
			before := tb.Counts()
			err := tb.Write(context.Background(), c.ops...)
			require.Equal(t, c.fail, err != nil, "%v", err)
			require.Equal(t, c.want, tb.Counts().Sub(before))
		})
	}
}

func TestReads(t *testing.T) {
	ctx := context.Background()
	inner := store.NewMemory()
	listed := sized("c", 100)
	listed.Index, listed.IndexSort = "I", "1"
	require.NoError(t, inner.Write(ctx, putItem(sized("a", 4096)), putItem(sized("b", 100)), putItem(listed)))
	tb := fault.NewTable(inner)

	_, _, err := tb.Get(ctx, store.Key{PK: "P", SK: "a"})
	require.NoError(t, err)
	require.Equal(t, fault.Counts{Gets: 1, ItemsRead: 1, BytesRead: 4096, RCU: 1}, tb.Counts())

	tb.Reset()
	_, _, err = tb.Get(ctx, store.Key{PK: "P", SK: "none"})
	require.NoError(t, err)
	require.Equal(t, fault.Counts{Gets: 1, RCU: 1}, tb.Counts())

	tb.Reset()
	_, err = tb.Query(ctx, store.Range{PK: "P", To: "b"})
	require.NoError(t, err)
	require.Equal(t, 2.0, tb.Counts().RCU, "4096 and a few bytes are summed before they are rounded")
	require.EqualValues(t, 2, tb.Counts().ItemsRead)

	tb.Reset()
	_, err = tb.Query(ctx, store.Range{PK: "I", Index: true})
	require.NoError(t, err)
	require.Equal(t, fault.Counts{Queries: 1, ItemsRead: 1, BytesRead: int64(store.Size(listed)), RCU: 0.5}, tb.Counts())

	tb.Reset()
	_, err = tb.Query(ctx, store.Range{PK: ""})
	require.ErrorIs(t, err, store.ErrInvalid)
	require.Equal(t, fault.Counts{Queries: 1}, tb.Counts())
}
