package run_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/internal/run"
)

// TestLogVersionsAreLists: whichever version is appended to, and in whatever order, each reads like a plain list of its own.
func TestLogVersionsAreLists(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		versions, want := []run.Log[int]{{}}, [][]int{nil}
		for i := range rapid.IntRange(1, 60).Draw(t, "appends") {
			from := rapid.IntRange(max(0, len(versions)-4), len(versions)-1).Draw(t, "from")
			versions = append(versions, versions[from].Append(i))
			want = append(want, append(slices.Clone(want[from]), i))
		}
		for i, l := range versions {
			require.Equal(t, len(want[i]), l.Len())
			require.True(t, slices.Equal(want[i], l.All()), "version %d: %v, want %v", i, l.All(), want[i])
		}
	})
}

func TestLogViewCannotGrowIntoTheLog(t *testing.T) {
	l := run.Log[int]{}.Append(1)
	next := l.Append(2)
	_ = append(l.All(), 99)
	require.Equal(t, []int{1, 2}, next.All())
}

func TestLogAtOutsideIsAPanic(t *testing.T) {
	l := run.Log[int]{}.Append(1)
	l.Append(2)
	require.Panics(t, func() { l.At(1) })
}
