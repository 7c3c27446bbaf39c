package person

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/damage"
	"github.com/countersign/countersign/pkg/agent"
	"github.com/countersign/countersign/pkg/agent/store"
	"github.com/countersign/countersign/pkg/agent/store/memory"
)

// A duty is a right: one that is not what was given is nobody's. Nobody is told otherwise than they said.
func TestDamagedPeople(t *testing.T) {
	ctx, now := t.Context(), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	_, d := peopleTable(t, now)
	lists := func(list func(Duties, context.Context, string, string, time.Time) ([]Duty, error), tenant, who string) func(context.Context, store.Table) error {
		return func(ctx context.Context, t store.Table) error {
			_, err := list(Duties{Table: t}, ctx, tenant, who, now)
			return err
		}
	}
	later := store.Key{PK: dutyPartition("acme", "user:ben"), SK: "R#9999999999999#" + d.ID}
	gives := func(ctx context.Context, t store.Table) error {
		_, err := Duties{Table: t}.Give(ctx, "acme", agent.Principal{ID: "user:ana"}, Duty{To: "user:cyd", Until: now.Add(time.Hour)}, now)
		return err
	}
	for name, c := range map[string]damage.Case{
		"a duty given": {
			Key: d.key("acme", given), Read: lists(Duties.Given, "acme", "user:ana"), Summed: optional("note", "groups", "givenAt"),
			Copies: map[store.Key]func(context.Context, store.Table) error{
				{PK: dutyPartition("acme", "user:cyd"), SK: d.key("acme", given).SK}: lists(Duties.Given, "acme", "user:cyd"),
			},
		},
		"a duty received": {
			Key: d.key("acme", received), Read: lists(Duties.Received, "acme", "user:ben"), Summed: optional("note", "groups", "givenAt"),
			Copies: map[store.Key]func(context.Context, store.Table) error{
				later: lists(Duties.Received, "acme", "user:ben"),
				{PK: dutyPartition("other", "user:ben"), SK: d.key("acme", received).SK}: lists(Duties.Received, "other", "user:ben"),
				{PK: dutyPartition("acme", "user:eve"), SK: d.key("acme", received).SK}:  lists(Duties.Received, "acme", "user:eve"),
			},
		},
		"preferences": {
			Key: preferencesKey("acme", "user:ana"), View: true, Summed: optional("notify"),
			Read: func(ctx context.Context, t store.Table) error {
				_, err := ReadPreferences(ctx, t, "acme", "user:ana")
				return err
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.Table, _ = peopleTable(t, now)
			t.Logf("%d cases", damage.Check(t, c))
		})
	}
	t.Run("the count of a giver's changes", func(t *testing.T) {
		table, _ := peopleTable(t, now)
		it, _, err := table.Get(ctx, headKey("acme", "user:ana"))
		require.NoError(t, err)
		it.Attrs["rev"] = store.Str("1")
		require.NoError(t, table.Write(ctx, store.Op{Kind: store.Put, Item: it}))
		require.ErrorIs(t, gives(ctx, table), store.ErrDamaged)
		delete(it.Attrs, "rev")
		require.NoError(t, table.Write(ctx, store.Op{Kind: store.Put, Item: it}))
		require.ErrorIs(t, gives(ctx, table), store.ErrDamaged)
	})
}

// peopleTable has a duty and the preferences of who gave it.
func peopleTable(t *testing.T, now time.Time) (*memory.Table, Duty) {
	t.Helper()
	table := memory.New()
	d, err := Duties{Table: table}.Give(t.Context(), "acme", agent.Principal{ID: "user:ana", Groups: []string{"group:desk"}},
		Duty{To: "user:ben", Until: now.Add(time.Hour), Note: "away"}, now)
	require.NoError(t, err)
	require.NoError(t, WritePreferences(t.Context(), table, "acme", agent.Principal{ID: "user:ana"}, Preferences{Notify: []string{"slack"}}))
	return table, d
}

func optional(keys ...string) []string {
	out := make([]string, len(keys))
	for i, k := range keys {
		out[i] = "body: " + k + ": missing"
	}
	return out
}
