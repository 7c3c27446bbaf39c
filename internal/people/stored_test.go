package people_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/people"
	"github.com/countersign/countersign/internal/store"
)

func requireImport(t *testing.T, table store.Table, document string, written, removed int) {
	t.Helper()
	w, r, err := people.Import(t.Context(), table, []byte(document))
	require.NoError(t, err)
	require.Equal(t, []int{written, removed}, []int{w, r})
}

// The people of a table are those of the documents that were imported. Whoever is removed, or leaves a group, can act as
// before for less than a minute.
func TestStoredPeople(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := store.NewMemory()
		requireImport(t, table, staff, 8, 0)
		requireImport(t, table, staff, 0, 0)
		read, stored := book(t, staff), &people.Stored{Table: table, Clock: clock.System()}
		for _, of := range [][2]string{{"acme", "user:ana"}, {"acme", "user:ben"}, {"acme", "user:dan"}, {"other", "user:ana"}, {"other", "user:ben"}, {"none", "user:ana"}} {
			want, known, err := read.Person(t.Context(), of[0], of[1])
			require.NoError(t, err)
			got, found, err := stored.Person(t.Context(), of[0], of[1])
			require.NoError(t, err)
			require.Equal(t, known, found, "%v", of)
			require.Equal(t, want, got, "%v", of)
		}
		tenant, ana, found, err := stored.Slack(t.Context(), "T0OTHER", "U0ANA")
		require.NoError(t, err)
		require.True(t, found)
		require.Equal(t, "other user:ana", tenant+" "+ana.ID)

		// Ana leaves, Ben is in another group, and the tenant other is not named.
		requireImport(t, table, `{"tenants": {"acme": {"user:ben": ["group:guests"], "user:dan": null}}, "slack": {"T0ACME": "acme"}}`, 1, 3)
		time.Sleep(time.Minute)
		all, err := stored.Members(t.Context(), "acme", []string{"group:operators", "group:finance", "user:ana", "user:dan"})
		require.NoError(t, err)
		require.Equal(t, []string{"user:dan"}, ids(all))
		_, _, found, err = stored.Slack(t.Context(), "T0ACME", "U0ANA")
		require.NoError(t, err)
		require.False(t, found)
		_, _, found, err = stored.Slack(t.Context(), "E0ACME", "U0ANA")
		require.NoError(t, err)
		require.False(t, found)
		_, found, err = stored.Person(t.Context(), "other", "user:ana")
		require.NoError(t, err)
		require.True(t, found)
		for of, want := range map[[2]string]bool{
			{"acme", "user:ana"}: true, {"other", "user:ana"}: false, {"acme", "user:ben"}: false, {"acme", "user:eve"}: false,
		} {
			removed, err := stored.Removed(t.Context(), of[0], of[1])
			require.NoError(t, err)
			require.Equal(t, want, removed, "%v", of)
		}
		requireImport(t, table, staff, 4, 0)
		time.Sleep(time.Minute)
		removed, err := stored.Removed(t.Context(), "acme", "user:ana")
		require.NoError(t, err)
		require.False(t, removed, "imported again")
	})
}

// readable is a table whose people can be read after each write.
type readable struct {
	store.Table
	t *testing.T
}

func (r readable) Write(ctx context.Context, ops ...store.Op) error {
	err := r.Table.Write(ctx, ops...)
	_, unreadable := people.List(ctx, r.Table, "acme")
	require.NoError(r.t, unreadable)
	return err
}

// Slack ids that change hands are never two people's, for whom an import that broke off would keep everybody out.
func TestSlackIDsChangeHandsAtOnce(t *testing.T) {
	table := readable{store.NewMemory(), t}
	others := ""
	for i := range store.MaxOps {
		others += fmt.Sprintf(`"user:m%d": ["group:%%[3]s"], `, i)
	}
	for group, of := range map[string][2]string{"a": {"U0ONE", "U0TWO"}, "b": {"U0TWO", "U0ONE"}} {
		requireImport(t, table, fmt.Sprintf(
			`{"tenants": {"acme": {"user:ana": {"slack": %[1]q}, `+others+`"user:zoe": {"slack": %[2]q}}}}`, of[0], of[1], group), store.MaxOps+2, 0)
	}
}

// Of two imports at once one wins: who is only in the other one is not known, and nobody's Slack id is two people's.
func TestTwoImportsAtOnce(t *testing.T) {
	at := fault.NewTable(store.NewMemory())
	at.Once(fault.IsWrite, fault.Before(func() error {
		_, _, err := people.Import(t.Context(), at.Table, []byte(`{"tenants": {"acme": {"user:ana": {"slack": "U0ONE"}}}}`))
		return err
	}))
	requireImport(t, at, `{"tenants": {"acme": {"user:ben": {"slack": "U0ONE"}}}}`, 1, 1)
	list, err := people.List(t.Context(), at, "acme")
	require.NoError(t, err)
	require.Equal(t, []string{"user:ben"}, ids(list))
}

// A document that is wrong writes nothing, and an item that is damaged lets nobody of its tenant act.
func TestStoredPeopleThatCannotBeRead(t *testing.T) {
	table := store.NewMemory()
	_, _, err := people.Import(t.Context(), table, []byte(`{"tenants": {"acme": {"user:ana": ["finance"]}}}`))
	require.ErrorContains(t, err, "tenants.acme.user:ana")
	requireImport(t, table, staff, 8, 0)
	stored := &people.Stored{Table: table, Clock: clock.System()}
	require.NoError(t, table.Write(context.Background(), store.Op{Kind: store.Put, Item: store.Item{
		Key: store.Key{PK: "T#acme#PEOPLE", SK: "user:ben"}, Body: []byte(`["finance"]`),
	}}))
	_, _, err = stored.Person(t.Context(), "acme", "user:ana")
	require.ErrorContains(t, err, "people of acme")
	_, found, err := stored.Person(t.Context(), "other", "user:ana")
	require.NoError(t, err)
	require.True(t, found)
}

// Two who are given one Slack id at the same time would make the book unreadable, and nobody could do anything: the
// second is put back. Somebody who was not known before is not kept out by that.
func TestPutTakesBackWhatCannotBeRead(t *testing.T) {
	table := store.NewMemory()
	ben := json.RawMessage(`{"slack":"U012ABCDEF"}`)
	at := fault.NewTable(table)
	at.Once(fault.IsWrite, fault.Before(func() error { return people.Put(t.Context(), table, "acme", "user:ben", ben) }))
	err := people.Put(t.Context(), at, "acme", "user:ana", json.RawMessage(`{"groups":["group:a"],"slack":"U012ABCDEF"}`))
	require.ErrorIs(t, err, store.ErrConflict)
	list, err := people.List(t.Context(), table, "acme")
	require.NoError(t, err)
	require.Equal(t, []people.Person{{ID: "user:ana"}, {ID: "user:ben", Slack: "U012ABCDEF"}}, list)
}
