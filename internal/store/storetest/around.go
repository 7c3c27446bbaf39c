package storetest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/store"
)

// ReadAround reads a whole range page by page, as a sweep does: it goes on behind items that cannot be read. It returns
// the others, and an error for each of those.
func ReadAround(t testing.TB, table store.Table, r store.Range) (items []store.Item, failures []error) {
	t.Helper()
	for {
		p, err := table.Query(t.Context(), r)
		items = append(items, p.Items...)
		if err != nil {
			require.ErrorIs(t, err, store.ErrDamaged)
			failures = append(failures, err)
		}
		if r.Cursor = p.Cursor; r.Cursor == "" {
			return items, failures
		}
	}
}
