package api

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
)

// BlockType is what a block of a message is decoded into.
var BlockType = reflect.TypeFor[block]()

func TestPosition(t *testing.T) {
	entry, err := readPosition("3")
	require.NoError(t, err)
	one, err := readPosition("3.1")
	require.NoError(t, err)
	require.False(t, entry.before(3, 99))
	require.True(t, entry.before(4, 0))
	require.False(t, one.before(3, 1))
	require.True(t, one.before(3, 2))
	require.True(t, journalStart.before(0, 0))
	for _, bad := range []string{"", "x", "1.", ".1", "1.-1", "-2", "1.2.3", "99999999999999999999"} {
		_, err := readPosition(bad)
		require.Error(t, err, bad)
	}
}

func FuzzPosition(f *testing.F) {
	for _, s := range []string{"0", "3.1", "-1", "1.", ".1", "1.2.3", "+1.+1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := readPosition(s)
		if err != nil {
			return
		}
		again, err := readPosition(p.String())
		require.NoError(t, err)
		require.Equal(t, p, again)
		require.False(t, p.before(p.seq, p.index))
	})
}
