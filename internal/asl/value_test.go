package asl

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestSizeIsNeverUnderestimated(t *testing.T) {
	var value func(depth int) *rapid.Generator[any]
	value = func(depth int) *rapid.Generator[any] {
		scalars := rapid.OneOf(rapid.String().AsAny(), rapid.Bool().AsAny(), rapid.Just[any](nil),
			rapid.Custom(func(t *rapid.T) any { return jsonInt(rapid.Int().Draw(t, "n")) }))
		if depth == 0 {
			return scalars
		}
		return rapid.OneOf(scalars, rapid.SliceOfN(value(depth-1), 0, 4).AsAny(), rapid.MapOfN(rapid.String(), value(depth-1), 0, 4).AsAny())
	}
	rapid.Check(t, func(t *rapid.T) {
		v := value(3).Draw(t, "v")
		data, err := encodeValue(v)
		require.NoError(t, err)
		require.GreaterOrEqual(t, sizeAtMost(v), len(data))
		back, err := decodeValue(data)
		require.NoError(t, err)
		require.Equal(t, v, back)
	})
}
