package policy

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// What children are promised together is never more than is left, and every one that is asked gets something.
func TestPromisesFitTheBudget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit, spent := rapid.Int64Range(1, 1000).Draw(t, "limit"), rapid.Int64Range(0, 1100).Draw(t, "spent")
		among := rapid.Int64Range(1, 9).Draw(t, "among")
		promised := int64(0)
		for left := among; left > 0; left-- {
			got, ok := part(limit, spent, promised, rapid.Int64Range(0, 300).Draw(t, "most"), left)
			require.Equal(t, limit-spent-promised > 0, ok)
			if ok {
				require.Positive(t, got)
			}
			promised += got
		}
		require.LessOrEqual(t, promised, max(0, limit-spent))
	})
	got, ok := part(100, 10, 0, 0, 3)
	require.True(t, ok)
	require.EqualValues(t, 30, got)
	got, ok = part(0, 10, 5, 40, 3)
	require.True(t, ok)
	require.EqualValues(t, 40, got, "without a limit of the run only the tool's counts")
}
