package bolt_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/store/bolt"
	"github.com/countersign/countersign/internal/store/storetest"
)

func TestConformance(t *testing.T) {
	storetest.Table(t, func(t *testing.T) store.Table { return open(t, filepath.Join(t.TempDir(), "store")) })
}

func open(t testing.TB, path string) *bolt.Table {
	t.Helper()
	tb, err := bolt.Open(path, bolt.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, tb.Close()) })
	return tb
}

func entry(n int) store.Op {
	return store.Op{
		Kind: store.Put,
		Item: store.Item{
			Key:   store.Key{PK: "LOG", SK: fmt.Sprintf("J#%06d", n)},
			Attrs: map[string]store.Value{"n": store.Num(int64(n))},
			Body:  make([]byte, 500),
		},
		If: []store.Cond{{Op: store.ItemAbsent}},
	}
}

// requireLog asserts that the log holds at least so many entries, without a gap, and gives how many.
func requireLog(t testing.TB, tb *bolt.Table, least int) int {
	t.Helper()
	log, err := store.ReadAll(context.Background(), tb, store.Range{PK: "LOG"})
	require.NoError(t, err)
	for n, it := range log {
		require.Equal(t, entry(n).Item, it)
	}
	require.GreaterOrEqual(t, len(log), least)
	return len(log)
}

// TestCloseDuringWrites: what was acknowledged is there, whenever Close came.
func TestCloseDuringWrites(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store")
	tb, err := bolt.Open(path, bolt.Options{})
	require.NoError(t, err)
	var wg sync.WaitGroup
	first := make(chan struct{})
	acknowledged := 0
	wg.Go(func() {
		for tb.Write(context.Background(), entry(acknowledged)) == nil {
			if acknowledged++; acknowledged == 5 {
				close(first)
			}
		}
	})
	<-first
	require.NoError(t, tb.Close())
	wg.Wait()
	require.Equal(t, acknowledged, requireLog(t, open(t, path), acknowledged))
}
