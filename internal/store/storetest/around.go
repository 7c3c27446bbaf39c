package storetest

import (
	"context"
	"errors"
	"slices"
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

// Unreadable is a table of which an item cannot be read, by its key or where the index lists it, as an adapter whose
// bytes have changed.
type Unreadable struct {
	store.Table
	Key store.Key
}

// Get implements store.Table.
func (u Unreadable) Get(ctx context.Context, k store.Key) (store.Item, bool, error) {
	if k == u.Key {
		return store.Item{}, false, store.Damaged(k, "checksum differs")
	}
	return u.Table.Get(ctx, k)
}

// Query implements store.Table.
func (u Unreadable) Query(ctx context.Context, r store.Range) (store.Page, error) {
	p, err := u.Table.Query(ctx, r)
	i := slices.IndexFunc(p.Items, func(it store.Item) bool { return it.Key == u.Key })
	if err != nil || i < 0 || !r.Index {
		return p, err
	}
	r.Limit = i + 1
	p, err = u.Table.Query(ctx, r)
	p.Items = p.Items[:i]
	return p, errors.Join(err, store.Damaged(u.Key, "checksum differs"))
}
