package audit

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/store/memory"
	"github.com/countersign/countersign/internal/store/storetest"
)

// damagedChain is a chain of three entries, with the cursor of a run that is open.
func damagedChain(t *testing.T) (*memory.Table, *Log) {
	t.Helper()
	table := memory.New()
	log := &Log{Table: table, Clock: clock.System()}
	for _, id := range []string{"a", "b", "c"} {
		require.NoError(t, log.Record(t.Context(), "acme", Record{ID: id, Kind: "decided", Approval: "<" + id + ">", At: time.UnixMilli(1)}))
	}
	op, err := cursor{Tenant: "acme", Run: "r1", Seq: 2, Open: []asking{{Approval: "a1", Decisions: 1}}}.op()
	require.NoError(t, err)
	require.NoError(t, table.Write(t.Context(), op))
	return table, log
}

// A cursor that cannot be read is told, and keeps no other run from being audited.
func TestADamagedCursorStopsNoOther(t *testing.T) {
	table, log := damagedChain(t)
	it, _, err := table.Get(t.Context(), cursorKey("acme", "r1"))
	require.NoError(t, err)
	it.Body = it.Body[1:]
	require.NoError(t, table.Write(t.Context(), store.Op{Kind: store.Put, Item: it}))
	s := &Sweep{Auditor: &Auditor{Table: table, Journal: store.NewJournal(table, 0), Log: log}, Heads: store.NewJournal(table, 0), Clock: clock.System()}
	swept, err := s.Run(t.Context(), []string{"acme"})
	require.NoError(t, err)
	require.Len(t, swept.Failed, 1)
	require.ErrorIs(t, swept.Failed[0].Err, store.ErrDamaged)
	require.ErrorContains(t, swept.Failed[0].Err, "T#acme#RUN#r1")
	_, swepts, err := table.Get(t.Context(), placeKey("acme"))
	require.NoError(t, err)
	require.True(t, swepts, "the tenant is swept")

	s.Auditor.Table = storetest.Unreadable{Table: table, Key: placeKey("acme")}
	_, err = s.Run(t.Context(), []string{"acme"})
	require.NoError(t, err, "nor does the place that the sweep kept")
}
