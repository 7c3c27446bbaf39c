package person

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/damage"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/store/memory"
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

// A duty that cannot be read is nobody's, and hides no other: who has both acts by the other, and who gives counts both.
func TestADamagedDutyHidesNoOther(t *testing.T) {
	ctx, now := t.Context(), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, change := range map[string]func(it *store.Item){
		"damaged": func(it *store.Item) { it.Body = it.Body[1:] },
		"newer":   func(it *store.Item) { it.Body = append([]byte(`{"only":"refund",`), it.Body[1:]...) },
	} {
		t.Run(name, func(t *testing.T) {
			table, bad := peopleTable(t, now)
			duties := Duties{Table: table}
			_, err := duties.Give(ctx, "acme", agent.Principal{ID: "user:cyd", Groups: []string{"group:desk"}}, Duty{To: "user:ben", Until: now.Add(time.Hour)}, now)
			require.NoError(t, err)
			for _, side := range []string{given, received} {
				it, _, err := table.Get(ctx, bad.key("acme", side))
				require.NoError(t, err)
				change(&it)
				require.NoError(t, table.Write(ctx, store.Op{Kind: store.Put, Item: it}))
			}
			acts, err := duties.ActsFor(ctx, "acme", agent.Principal{ID: "user:ben"}, now)
			require.NoError(t, err)
			require.Len(t, acts, 1)
			require.Equal(t, "user:cyd", acts[0].ID)
			list, err := duties.Received(ctx, "acme", "user:ben", now)
			unread, spoilt := store.Spared(err)
			require.NoError(t, spoilt)
			require.Len(t, list, 1)
			require.Len(t, unread, 1)
			require.Equal(t, bad.key("acme", received), unread[0].Key)
			ana := agent.Principal{ID: "user:ana", Groups: []string{"group:desk"}}
			again := Duty{To: "user:ben", Until: bad.Until, Note: bad.Note}
			_, err = duties.Give(ctx, "acme", ana, again, now)
			require.True(t, store.Unread(err), "the same again is not written over it: %v", err)
			require.True(t, store.Unread(duties.End(ctx, "acme", ana, bad.ID, now)))
			for i := range MaxDuties - 1 {
				_, err = duties.Give(ctx, "acme", ana, Duty{To: "user:eve", Until: now.Add(time.Hour + time.Duration(i)*time.Minute)}, now)
				require.NoError(t, err)
			}
			_, err = duties.Give(ctx, "acme", ana, Duty{To: "user:fay", Until: now.Add(time.Hour)}, now)
			require.ErrorContains(t, err, "there are 20 duties")
		})
	}
}

// Somebody whose preferences cannot be read is told as the directory has it: a request that reaches nobody is worse.
func TestDamagedPreferencesKeepNobodyFromBeingTold(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, body := range []string{`{"notify":`, `{"notify":["teams"]}`, `{"notify":["email","email"]}`} {
		table, _ := peopleTable(t, now)
		require.NoError(t, table.Write(t.Context(), store.Op{Kind: store.Put, Item: store.Item{Key: preferencesKey("acme", "user:ana"), Body: []byte(body)}}))
		p := Person{ID: "user:ana", Notify: []string{Email}}
		require.NoError(t, preferring{table: table}.prefer(t.Context(), "acme", &p))
		require.Equal(t, []string{Email}, p.Notify)
		_, err := ReadPreferences(t.Context(), table, "acme", "user:ana")
		require.Equal(t, body == `{"notify":["teams"]}`, errors.Is(err, agent.ErrNewer), "%v", err)
		require.True(t, store.Unread(err))
	}
}
