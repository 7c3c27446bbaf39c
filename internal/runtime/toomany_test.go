package runtime_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
)

// onePerPage is a table whose pages are full with one item.
type onePerPage struct{ store.Table }

func (t onePerPage) Query(ctx context.Context, r store.Range) (store.Page, error) {
	if r.Index {
		r.Limit = 1
	}
	return t.Table.Query(ctx, r)
}

// TestMaxRunning: a tenant with as many running runs as it may have starts and forks no other, and nothing is written.
// What was accepted before stays accepted, and runs that wait are not counted.
func TestMaxRunning(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		waits := w.parked("waits")
		st := &runtime.Starter{Ports: w.ports, MaxRunning: 3}
		st.Journal = store.NewJournal(onePerPage{w.table}, 0)
		start := func(tenant, key, text string) error {
			r := w.request(text)
			r.Tenant, r.Key = tenant, key
			_, err := st.Start(w.ctx, r)
			return err
		}
		for _, key := range []string{"a", "b", "c"} {
			require.NoError(t, start(tenant, key, "Work."))
		}
		before := w.counts.Counts()
		require.ErrorIs(t, start(tenant, "d", "Work."), runtime.ErrTooManyRuns)
		require.ErrorIs(t, errOf(st.Fork(w.ctx, runtime.Fork{Tenant: tenant, Run: waits})), runtime.ErrTooManyRuns)
		cost := w.counts.Counts().Sub(before)
		require.Zero(t, cost.Writes+cost.Transactions)
		require.LessOrEqual(t, cost.Queries, int64(2*(3+1)+1), "its views, a page each, and what the run and its parent are")
		require.NoError(t, start(tenant, "a", "Work."), "again")
		require.ErrorIs(t, start(tenant, "a", "Other work."), runtime.ErrKeyReused)
		require.NoError(t, start("globex", "d", "Work."), "which is another tenant")

		last := agent.RunID(tenant, w.def.Name, "c")
		w.to(last)
		w.cancel()
		require.NoError(t, errOf((&runtime.Deleter{Ports: w.ports}).Delete(w.ctx, tenant, last, "user:ana")))
		require.NoError(t, errOf(st.Fork(w.ctx, runtime.Fork{Tenant: tenant, Run: waits})), "there is room")
		require.ErrorIs(t, start(tenant, "d", "Work."), runtime.ErrTooManyRuns)
		require.ErrorContains(t, start(tenant, "c", "Work."), "was deleted by user:ana", "it had been accepted")
	})
}

// However many runs are running, a call can be taken back.
func TestUndoNeedsNoRoom(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.paid()
		st := &runtime.Starter{Ports: w.ports, MaxRunning: 1}
		r := w.request("Work.")
		r.Key = "other"
		require.NoError(t, errOf(st.Start(w.ctx, r)))
		r.Key = "another"
		require.ErrorIs(t, errOf(st.Start(w.ctx, r)), runtime.ErrTooManyRuns)
		_, again, err := st.Undo(w.ctx, runtime.Undo{Tenant: tenant, Run: w.run, Call: "c1", By: "user:bob"})
		require.NoError(t, err)
		require.False(t, again)
	})
}
