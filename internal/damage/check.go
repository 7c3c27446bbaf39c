package damage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/store"
)

// Case is one kind of item, and who reads it.
type Case struct {
	Table store.Table                                    // where the item stands
	Key   store.Key                                      // of the item
	Read  func(ctx context.Context, t store.Table) error // as the product does, over this table

	// Taken are damages, by what they begin with, that a reader takes: a key that not every item has, and that is taken for none where it is
	// missing. Each must be met, and is no error.
	Taken []string
	// Summed are damages, by what they begin with, that leave something a writer might have written: the sum that adapters keep tells them, and a
	// reader behind it may or may not. It writes nothing and does not panic.
	Summed []string
	// Mended says that the reader begins anew where it cannot read the item, as who wrote it promises. Then nothing but its attributes is an error.
	Mended bool
	// View says that the reader leaves out keys that it does not know: nothing hangs on them.
	View bool
	// Lone are the objects, as e[0], that have one key: another beside it is written by no version. "" is the whole body.
	Lone []string
	// Sealed says that a sum is kept with the item: whatever is not what was written is damaged.
	Sealed bool
	// Copies are other keys to which the item is copied, and who reads it there.
	Copies map[store.Key]func(ctx context.Context, t store.Table) error
}

// Check damages the item in every way and reads it each time: a store.ErrDamaged that names the key comes, and nothing is written. A key that is not known
// is no damage: it is an agent.ErrNewer, which nothing else is. It returns how many ways there were.
func Check(t *testing.T, c Case) int {
	t.Helper()
	ctx := t.Context()
	good, found, err := c.Table.Get(ctx, c.Key)
	require.NoError(t, err)
	require.True(t, found, "%v is not there", c.Key)
	require.NoError(t, c.Read(ctx, c.Table), "it is read as it was written")
	count := 0
	met := map[string]bool{}
	for d := range Items(good) {
		count++
		put(t, c.Table, d.Item)
		c.one(t, d, met)
	}
	put(t, c.Table, good)
	require.NoError(t, c.Read(ctx, c.Table), "it is mended")
	for k, read := range c.Copies {
		count++
		was, there, err := c.Table.Get(ctx, k)
		require.NoError(t, err)
		copied := good
		copied.Key = k
		put(t, c.Table, copied)
		requireDamaged(t, read(ctx, c.Table), k, "copied to %v", k)
		if there {
			put(t, c.Table, was)
		}
	}
	for _, what := range c.Taken {
		require.True(t, met[what], "no damage begins with %q", what)
	}
	return count
}

func (c Case) one(t *testing.T, d Damaged, met map[string]bool) {
	t.Helper()
	w := &watched{Table: c.Table}
	err := c.Read(t.Context(), w)
	begins := func(prefix string) bool { return strings.HasPrefix(d.What, prefix) }
	i := slices.IndexFunc(c.Taken, begins)
	newer := c.newer(d)
	require.False(t, errors.Is(err, agent.ErrNewer) && !newer, "%s is no newer version's: %v\n%s", d.What, err, d.Item.Body)
	require.False(t, errors.Is(err, store.ErrDamaged) && newer, "%s is no damage: %v\n%s", d.What, err, d.Item.Body)
	require.False(t, errors.Is(err, agent.ErrNewer) && errors.Is(err, store.ErrDamaged), "%s", d.What)
	switch {
	case slices.ContainsFunc(c.Summed, begins):
		require.Zero(t, w.writes, "%s: something was written", d.What)
	case newer && (c.View || c.Mended):
		require.NoError(t, err, "%s is left out", d.What)
	case newer:
		require.ErrorIs(t, err, agent.ErrNewer, d.What)
		require.ErrorContains(t, err, fmt.Sprintf("%q %q", c.Key.PK, c.Key.SK))
		require.Zero(t, w.writes, "%s: something was written", d.What)
	case i >= 0:
		met[c.Taken[i]] = true
		require.NoError(t, err, "%s is taken", d.What)
	case c.Mended && strings.HasPrefix(d.What, "body: "):
		require.NoError(t, err, "%s is mended", d.What)
	default:
		requireDamaged(t, err, c.Key, "%s\n%s", d.What, d.Item.Body)
		require.Zero(t, w.writes, "%s: something was written", d.What)
	}
}

// newer reports whether a newer version may have written the item like that.
func (c Case) newer(d Damaged) bool {
	at, unknown := strings.CutSuffix(strings.TrimPrefix(d.What, "body: "), "zzz: unknown")
	return unknown && !c.Sealed && !slices.Contains(c.Lone, strings.TrimSuffix(at, "."))
}

func requireDamaged(t *testing.T, err error, k store.Key, what string, args ...any) {
	t.Helper()
	var damaged *store.DamagedError
	require.ErrorIs(t, err, store.ErrDamaged, append([]any{what}, args...)...)
	require.True(t, errors.As(err, &damaged), append([]any{what}, args...)...)
	require.Equal(t, k.PK, damaged.Key.PK, append([]any{what}, args...)...)
	require.NotEmpty(t, damaged.Err.Error())
}

// put puts an item as it is, whatever is wrong with it.
func put(t *testing.T, table store.Table, it store.Item) {
	t.Helper()
	require.NoError(t, table.Write(context.Background(), store.Op{Kind: store.Put, Item: it}))
}

// watched counts writes that were done.
type watched struct {
	store.Table
	writes int
}

// Write counts.
func (w *watched) Write(ctx context.Context, ops ...store.Op) error {
	err := w.Table.Write(ctx, ops...)
	if err == nil {
		w.writes++
	}
	return err
}
