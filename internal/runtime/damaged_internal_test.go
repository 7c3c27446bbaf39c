package runtime

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/damage"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/store/memory"
)

// What is kept beside runs is what was written, or it is told; the place of a sweep begins anew.
func TestDamagedRecordsBesideRuns(t *testing.T) {
	table := memory.New()
	ports := func(t store.Table) Ports { return Ports{Table: t} }
	require.NoError(t, ports(table).writeAdvice(t.Context(), "acme", "clerk", []agent.ToolApproval{{Tool: "refund", Value: true}, {Tool: "mail"}}))
	require.NoError(t, table.Write(t.Context(), store.Op{Kind: store.Put, Item: store.Item{
		Key: owedKey("acme", "r1"), Index: owedIndex("acme"), IndexSort: "r1",
		Attrs: map[string]store.Value{attrAt: store.Num(5), attrCleaning: store.Num(1), attrTries: store.Num(2), attrTold: store.Num(1)},
	}}))
	require.NoError(t, writePlace(t.Context(), table, place{Tenant: "acme", List: 1, Waiting: Waiting{Runs: 3, Since: time.UnixMilli(1).UTC()}}))
	clocked := &Sweeper{Ports: Ports{Table: table, Clock: clock.NewVirtual(time.UnixMilli(7))}}
	for _, run := range []string{"r1", "r2"} {
		_, err := clocked.record(t.Context(), &agent.AgentState{Tenant: "acme", Run: run}, RepairWoke, "of")
		require.NoError(t, err)
	}
	repaired := Repaired{Run: "r1", Kind: RepairWoke, Of: "of", Seq: (&agent.AgentState{}).Seq()}
	other := repaired
	other.Run = "r2"
	listed := func(ctx context.Context, t store.Table) error {
		list, _, err := ListRepaired(ctx, t, "acme", 0, "")
		unread, spoilt := store.Spared(err)
		if spoilt != nil || len(list)+len(unread) != 2 || len(unread) > 1 {
			return errors.Join(spoilt, fmt.Errorf("%d listed, %d not read", len(list), len(unread)))
		}
		return err
	}
	for name, c := range map[string]damage.Case{
		"a repair": {Key: repairKey("acme", repaired), View: true, Read: listed, Copies: map[store.Key]func(context.Context, store.Table) error{repairKey("acme", other): listed}},
		"what was said of a tool": {
			Key: adviceKey("acme", "clerk", "refund"), Summed: []string{"body: value: missing"},
			Read: func(ctx context.Context, t store.Table) error {
				_, err := ports(t).readAdvice(ctx, "acme", "clerk", []string{"refund"})
				return err
			},
			Copies: map[store.Key]func(context.Context, store.Table) error{adviceKey("acme", "clerk", "mail"): func(ctx context.Context, t store.Table) error {
				_, err := ports(t).readAdvice(ctx, "acme", "clerk", []string{"mail"})
				return err
			}},
		},
		"what is owed behind an end": {
			Key: owedKey("acme", "r1"), Taken: []string{"cleanup: missing", "told: missing", "tries: missing"}, Summed: []string{"body: bytes"},
			Read: func(ctx context.Context, t store.Table) error {
				_, err := ports(t).owedEnd(ctx, "acme", "r1")
				return err
			},
		},
		"where the sweep is": {Key: placeKey, Mended: true, Read: func(ctx context.Context, t store.Table) error {
			_, err := readPlace(ctx, t)
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c.Table = table
			t.Logf("%d cases", damage.Check(t, c))
		})
	}
}
