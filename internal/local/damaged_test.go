package local

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/asl"
	"github.com/countersign/countersign/internal/damage"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/store/memory"
)

func savedExecutions(t *testing.T) *memory.Table {
	t.Helper()
	table := memory.New()
	for _, r := range []asl.Record{
		{Name: "r1-0", Status: asl.Running, Input: json.RawMessage(`{"tenant":"default","run":"r1"}`), StartDate: time.UnixMilli(1).UTC(), Events: 3},
		{Name: "r2-0", Status: asl.Succeeded, Input: json.RawMessage(`{}`), StartDate: time.UnixMilli(1).UTC(), StopDate: time.UnixMilli(2).UTC()},
	} {
		require.NoError(t, NewExecutions(table).Save(t.Context(), r))
	}
	return table
}

// An execution whose record is not what was written does not go on, and keeps no other from it.
func TestDamagedExecutions(t *testing.T) {
	open, closed := store.Key{PK: openExecutions, SK: "r1-0"}, store.Key{PK: closedExecutions, SK: "r2-0"}
	load := func(ctx context.Context, t store.Table) error {
		_, err := NewExecutions(t).Load(ctx)
		return err
	}
	loose := []string{
		"body: Input", "body: StartDate: missing", "body: StopDate: missing", "body: Events: missing", "body: Transitions: missing",
	}
	for _, k := range []store.Key{open, closed} {
		t.Logf("%d cases", damage.Check(t, damage.Case{
			Table: savedExecutions(t), Key: k, View: true, Read: load, Summed: loose,
			Copies: map[store.Key]func(context.Context, store.Table) error{{PK: k.PK, SK: "r9-0"}: load},
		}))
	}
	table := savedExecutions(t)
	it, _, err := table.Get(t.Context(), open)
	require.NoError(t, err)
	it.Body = it.Body[1:]
	require.NoError(t, table.Write(t.Context(), store.Op{Kind: store.Put, Item: it}))
	var told []error
	x := NewExecutions(table)
	x.Damaged = func(err error) { told = append(told, err) }
	records, err := x.Load(t.Context())
	require.NoError(t, err)
	require.Len(t, records, 1)
	require.Equal(t, "r2-0", records[0].Name)
	require.Len(t, told, 1)
	require.ErrorIs(t, told[0], store.ErrDamaged)
	require.ErrorContains(t, told[0], "load execution r1-0: ")
}
