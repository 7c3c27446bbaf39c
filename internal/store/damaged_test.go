package store_test

import (
	"context"

	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/damage"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/store/memory"
)

// damagedWorld is a run with entries and an inbox, and another one of each tenant.
func damagedWorld(t *testing.T) (*memory.Table, *story) {
	table := memory.New()
	j := store.NewJournal(table, 0)
	st := begin(t, j, runID)
	begin(t, j, "r2").commit(agent.HandedOver{Owner: "r2-1"})
	st.commit(agent.HandedOver{Owner: "r1-1"})
	st.commit(agent.HandedOver{Owner: "r1-2"})
	for _, id := range []string{"a", "b"} {
		_, err := j.Accept(t.Context(), acme, runID, id, hears(id))
		require.NoError(t, err)
	}
	return table, st
}

func hears(id string) agent.Event {
	return agent.InputReceived{ID: id, Blocks: []agent.UserBlock{{Block: agent.Text{Text: "<&> " + id}}}}
}

func inRun(run, sk string) store.Key { return store.Key{PK: "T#" + acme + "#RUN#" + run, SK: sk} }

func loads(run string) func(context.Context, store.Table) error {
	return func(ctx context.Context, t store.Table) error {
		_, err := store.NewJournal(t, 0).Load(ctx, acme, run)
		return err
	}
}

// What a run is read from is what was written, or the run is not read at all: nothing is folded around a hole.
func TestDamagedRuns(t *testing.T) {
	oldest, newest := inRun(runID, "J#0000000000"), inRun(runID, "J#0000000002")
	slot, other := inRun(runID, "K#9999999998"), inRun(runID, "K#9999999997")
	marker, head := inRun(runID, "I#a"), inRun(runID, "HEAD")
	again := func(ctx context.Context, t store.Table) error {
		got, err := store.NewJournal(t, 0).Accept(ctx, acme, runID, "a", hears("a"))
		if err == nil && !got.Duplicate {
			err = fmt.Errorf("it was accepted a second time")
		}
		return err
	}
	heads := func(run string) func(context.Context, store.Table) error {
		return func(ctx context.Context, t store.Table) error {
			_, err := store.NewJournal(t, 0).Head(ctx, acme, run)
			return err
		}
	}
	within := []string{"body: e[0].", "body: e: another type", "body: p", "body: g", "body: k", "body: t: another", "body: w: in", "body: s: in", "body: t: in", "body: v: in", "body: e: in"}
	for name, c := range map[string]damage.Case{
		"the first entry": {Key: oldest, Read: loads(runID), Summed: within, Lone: []string{"e[0]"}, Copies: map[store.Key]func(context.Context, store.Table) error{
			inRun("r2", "J#0000000000"): loads("r2"), inRun(runID, "J#0000000001"): loads(runID), inRun(runID, "J#0000000003"): loads(runID),
			{PK: "T#other#RUN#" + runID, SK: "J#0000000000"}: func(ctx context.Context, t store.Table) error {
				_, err := store.NewJournal(t, 0).Load(ctx, "other", runID)
				return err
			},
		}},
		"the newest entry": {Key: newest, Read: loads(runID), Summed: within, Lone: []string{"e[0]"}, Copies: map[store.Key]func(context.Context, store.Table) error{
			inRun(runID, "J#0000000001"): loads(runID), inRun(runID, "J#0000000003"): loads(runID), inRun("r2", "J#0000000005"): loads("r2"),
		}},
		"an input": {Key: slot, Lone: []string{""}, Read: loads(runID), Summed: []string{"body: input_received.", "body: input_received: in"},
			Copies: map[store.Key]func(context.Context, store.Table) error{other: loads(runID)}},
		"a marker": {Key: marker, Read: again},
		"a head": {Key: head, Read: heads(runID), Copies: map[store.Key]func(context.Context, store.Table) error{
			inRun("r2", "HEAD"): heads("r2"),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c.Table, _ = damagedWorld(t)
			t.Logf("%d cases", damage.Check(t, c))
		})
	}
}
