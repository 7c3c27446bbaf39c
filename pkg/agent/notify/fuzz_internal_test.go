package notify

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzDueItem: a place of the index is read as what it was written for, or it is none.
func FuzzDueItem(f *testing.F) {
	f.Add("0000000005000#acme#a1")
	f.Add("5000#acme#a#1")
	f.Add("-1##")
	f.Fuzz(func(t *testing.T, sort string) {
		at, tenant, id, err := dueItem(sort)
		if err != nil {
			return
		}
		again, sameTenant, sameID, err := dueItem(dueSort(at, tenant, id))
		require.NoError(t, err)
		require.Equal(t, []any{at, tenant, id}, []any{again, sameTenant, sameID})
	})
}
