package storetest

import (
	"cmp"
	"fmt"
	"slices"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/countersign/countersign/internal/store"
)

// difference is nil when two listings are the same, in the same order.
func difference(want, got []store.Item) error {
	normalized := make([]store.Item, 0, len(want))
	for _, it := range want {
		normalized = append(normalized, normal(it))
	}
	if len(want) == 0 && len(got) == 0 {
		return nil
	}
	sameValue := gocmp.Comparer(func(a, b store.Value) bool { return a == b })
	if d := gocmp.Diff(normalized, got, sameValue); d != "" {
		return fmt.Errorf("listing differs (-want +got):\n%s", d)
	}
	return nil
}

// sortTies puts items of equal IndexSort, which an index may give in any order, in order of key. It moves no item past
// one of another IndexSort.
func sortTies(items []store.Item) {
	for start := 0; start < len(items); {
		end := start + 1
		for end < len(items) && items[end].IndexSort == items[start].IndexSort {
			end++
		}
		slices.SortFunc(items[start:end], byKey)
		start = end
	}
}

func byKey(a, b store.Item) int {
	return cmp.Or(cmp.Compare(a.PK, b.PK), cmp.Compare(a.SK, b.SK))
}
