package audit

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/damage"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/store/memory"
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

// A head or a cursor that is not what was written is continued by nobody. Lines are swept byte by byte elsewhere: see TestC5EveryChangeIsFound.
func TestDamagedAudit(t *testing.T) {
	for name, c := range map[string]damage.Case{
		"the head": {Key: headKey("acme"), Read: func(ctx context.Context, t store.Table) error {
			_, err := (&Log{Table: t}).Head(ctx, "acme")
			return err
		}, Summed: []string{"body: bytes"}},
		"a cursor": {
			Key: cursorKey("acme", "r1"), Summed: []string{"body: seq: missing", "body: open: missing", "body: open[0]."},
			Read: func(ctx context.Context, t store.Table) error {
				_, err := (&Auditor{Table: t}).cursor(ctx, "acme", "r1")
				return err
			},
			Copies: map[store.Key]func(context.Context, store.Table) error{cursorKey("acme", "r2"): func(ctx context.Context, t store.Table) error {
				_, err := (&Auditor{Table: t}).cursor(ctx, "acme", "r2")
				return err
			}},
		},
		"where the sweep is": {Key: placeKey("acme"), Mended: true, Read: func(ctx context.Context, t store.Table) error {
			_, err := (&pass{Sweep: &Sweep{Auditor: &Auditor{Table: t}}}).place(ctx, "acme")
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			table, _ := damagedChain(t)
			body, err := agent.MarshalVerbatim(place{Since: time.UnixMilli(1).UTC(), Agents: []string{"clerk"}})
			require.NoError(t, err)
			require.NoError(t, table.Write(t.Context(), store.Op{Kind: store.Put, Item: store.Item{Key: placeKey("acme"), Body: body}}))
			c.Table = table
			t.Logf("%d cases", damage.Check(t, c))
		})
	}
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
	require.Equal(t, "acme", swept.Failed[0].Tenant)
	require.Equal(t, "r1", swept.Failed[0].Run)
	require.ErrorIs(t, swept.Failed[0].Err, store.ErrDamaged)
	_, kept, err := table.Get(t.Context(), placeKey("acme"))
	require.NoError(t, err)
	require.False(t, kept, "the next sweep looks at all of it again")
}
