package web

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
)

// BlockType is what a block of a message is decoded into.
var BlockType = reflect.TypeFor[messageBlock]()

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
