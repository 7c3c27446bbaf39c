package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/store"
)

const (
	writers = 8
	appends = 4 // for each writer
)

// race lets every writer append to the logs with ItemAbsent on the next number, until it has won its share. Each number
// must have one winner, which is stored in every log, and there must be no gap. Half of the writers name the logs in
// reverse order. An append to several logs also adds to a sum, which counts the successful ones.
func (f fixture) race(logs ...string) {
	sum := store.Item{Key: key("sums", logs[0]), Attrs: attrs{"won": store.Num(1)}}
	entry := func(log string, n int, writer string) store.Item {
		return store.Item{Key: key(log, fmt.Sprintf("%04d", n)), Body: []byte(writer)}
	}
	winners := make([][]string, writers*appends) // winners by number
	var mu sync.Mutex
	var all sync.WaitGroup
	for w := range writers {
		writer := fmt.Sprintf("w%02d", w)
		all.Go(func() {
			won, err := appendShare(f.table, func(n int) []store.Op {
				var ops []store.Op
				if len(logs) > 1 {
					ops = append(ops, store.Op{Kind: store.Add, Item: sum})
				}
				for _, log := range logs {
					ops = append(ops, put(entry(log, n, writer), absent))
				}
				if w < writers/2 {
					slices.Reverse(ops)
				}
				return ops
			})
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				f.Errorf("%s: %v", writer, err)
			}
			for _, n := range won {
				winners[n] = append(winners[n], writer)
			}
		})
	}
	all.Wait()
	require.False(f, f.Failed())
	if len(logs) > 1 {
		f.requireItem(store.Item{Key: sum.Key, Attrs: attrs{"won": store.Num(writers * appends)}})
	}
	for _, log := range logs {
		for n, won := range winners {
			require.Len(f, won, 1, "entry %d", n)
			f.requireItem(entry(log, n, won[0]))
		}
		require.Len(f, f.list(store.Range{PK: log}), writers*appends)
	}
}

// appendShare tries one number after the other until it has won its share.
func appendShare(t store.Table, ops func(n int) []store.Op) (won []int, err error) {
	for n := 0; len(won) < appends; {
		var taken *store.ConditionError
		switch err := t.Write(context.Background(), ops(n)...); {
		case err == nil:
			won = append(won, n)
			n++
		case errors.As(err, &taken):
			n++
		case !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrThrottled):
			return won, err
		}
		if n > writers*appends {
			return won, errors.New("went past the end of the log")
		}
	}
	return won, nil
}
