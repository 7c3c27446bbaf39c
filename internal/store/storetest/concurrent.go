package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/store"
)

const (
	writers = 16
	appends = 4 // for each writer
)

// testConcurrentAppend: many append to one log by ItemAbsent on the next number. Each number has one winner, who is the
// one stored, and there is no gap.
func testConcurrentAppend(f fixture) {
	winners := race(f, func(who string, n int) []store.Op {
		return []store.Op{put(entry("LOG", n, who), absent)}
	})
	for n, won := range winners {
		require.Len(f, won, 1, "entry %d", n)
		f.requireItem(entry("LOG", n, won[0]))
	}
	require.Len(f, f.list(store.Range{PK: "LOG"}), writers*appends)
}

// testConcurrentTransactions: the same over two logs, half of the writers naming them in the other order. Both stay
// equal.
func testConcurrentTransactions(f fixture) {
	winners := race(f, func(who string, n int) []store.Op {
		a, b := put(entry("A", n, who), absent), put(entry("B", n, who), absent)
		if who < "w08" {
			return []store.Op{a, b}
		}
		return []store.Op{b, a}
	})
	for n, won := range winners {
		require.Len(f, won, 1, "entry %d", n)
		f.requireItem(entry("A", n, won[0]))
		f.requireItem(entry("B", n, won[0]))
	}
	require.Len(f, f.list(store.Range{PK: "A"}), writers*appends)
	require.Len(f, f.list(store.Range{PK: "B"}), writers*appends)
}

func entry(log string, n int, who string) store.Item {
	return store.Item{Key: key(log, fmt.Sprintf("%04d", n)), Body: []byte(who)}
}

// race lets every writer append until it has won its share; it gives who won each number.
func race(f fixture, ops func(who string, n int) []store.Op) [][]string {
	winners := make([][]string, writers*appends)
	var mu sync.Mutex
	var all sync.WaitGroup
	for w := range writers {
		who := fmt.Sprintf("w%02d", w)
		all.Go(func() {
			won, err := appendShare(f.table, func(n int) []store.Op { return ops(who, n) })
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				f.Errorf("%s: %v", who, err)
			}
			for _, n := range won {
				winners[n] = append(winners[n], who)
			}
		})
	}
	all.Wait()
	require.False(f, f.Failed())
	return winners
}

// appendShare tries number after number until it has won enough of them.
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
