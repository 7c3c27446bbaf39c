package notify

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzDueItem: a place of the index is read as what it was written for, or it is none.
func FuzzDueItem(f *testing.F) {
	f.Add("0000000005000#acme#r1#a1")
	f.Add("5000#acme#r#a#1")
	f.Add("-1###")
	f.Fuzz(func(t *testing.T, sort string) {
		at, tenant, run, id, err := parseDueSortKey(sort)
		if err != nil {
			return
		}
		again, sameTenant, sameRun, sameID, err := parseDueSortKey(dueSortKey(at, tenant, run, id))
		require.NoError(t, err)
		require.Equal(t, []any{at, tenant, run, id}, []any{again, sameTenant, sameRun, sameID})
	})
}
