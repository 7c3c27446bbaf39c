package bolt_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/countersign/countersign/internal/store"
)

// BenchmarkWrite measures one Write against the floor: a bare bbolt put of the same key and as many bytes, by Update, with
// bbolt's own defaults. Both are done in turn on files of their own; medians are printed: ns/op of Write, floor-ns, and their ratio
// x-floor. One is an entry of 350 and 2,100 B in turn, as in performance.md's W; listed is a transaction of an entry and a HEAD in the index.
func BenchmarkWrite(b *testing.B) {
	b.Run("one", func(b *testing.B) { benchWrite(b, journal) })
	b.Run("listed", func(b *testing.B) {
		benchWrite(b, func(n int) []store.Op { return append(journal(n), head(n)) })
	})
}

// BenchmarkWriteParallel has 8 writers; ns/op is the time a Write takes of the whole.
func BenchmarkWriteParallel(b *testing.B) {
	tb := open(b, filepath.Join(b.TempDir(), "store"))
	numbers := make(chan int)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for n := range numbers {
				if err := tb.Write(context.Background(), journal(n)...); err != nil {
					b.Error(err)
				}
			}
		})
	}
	for n := range b.N {
		numbers <- n
	}
	close(numbers)
	all.Wait()
}

func journal(n int) []store.Op {
	size := 350
	if n%2 == 1 {
		size = 2100
	}
	return []store.Op{{
		Kind: store.Put,
		Item: store.Item{
			Key:   store.Key{PK: "T#tenant#RUN#rabcdefghijklmnopqrstuvwxy", SK: fmt.Sprintf("J#%010d", n)},
			Attrs: map[string]store.Value{"w": store.Str("01JD8X5T5S8N6Z6Y6Z6Y6Z6Y6Z")},
			Body:  make([]byte, size),
		},
		If: []store.Cond{{Op: store.ItemAbsent}},
	}}
}

func head(n int) store.Op {
	return store.Op{Kind: store.Put, Item: store.Item{
		Key:   store.Key{PK: "T#tenant#RUN#rabcdefghijklmnopqrstuvwxy", SK: "HEAD"},
		Attrs: map[string]store.Value{"drained": store.Num(int64(n))},
		Index: "T#tenant#running", IndexSort: fmt.Sprintf("%020d", n),
	}}
}

func benchWrite(b *testing.B, ops func(n int) []store.Op) {
	floor := bareTable(b)
	tb := open(b, filepath.Join(b.TempDir(), "store"))
	var bare, ours []time.Duration
	for n := range b.N {
		start := b.Elapsed()
		floor(journal(n)[0].Item)
		between := b.Elapsed()
		require.NoError(b, tb.Write(context.Background(), ops(n)...))
		bare = append(bare, between-start)
		ours = append(ours, b.Elapsed()-between)
	}
	b.ReportMetric(median(ours), "ns/op")
	b.ReportMetric(median(bare), "floor-ns")
	b.ReportMetric(median(ours)/median(bare), "x-floor")
}

func bareTable(b *testing.B) (put func(store.Item)) {
	db, err := bbolt.Open(filepath.Join(b.TempDir(), "bare"), 0o600, nil)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, db.Close()) })
	bucket := []byte("items")
	require.NoError(b, db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucket(bucket)
		return err
	}))
	return func(it store.Item) {
		err := db.Update(func(tx *bbolt.Tx) error {
			return tx.Bucket(bucket).Put([]byte(it.PK+"\x00"+it.SK), it.Body)
		})
		require.NoError(b, err)
	}
}

func median(d []time.Duration) float64 {
	slices.Sort(d)
	return float64(d[len(d)/2].Nanoseconds())
}
