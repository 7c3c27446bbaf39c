package runtime_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
)

func (w *world) delete() {
	w.t.Helper()
	d := runtime.Deleter{Ports: w.ports}
	require.NoError(w.t, errOf(d.Delete(w.ctx, tenant, w.run, "user:ana")))
}

// What a tool gives after its run was cancelled and deleted is not kept: nobody could delete it.
func TestAToolOutlivesItsDeletedRun(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		long := strings.Repeat("a secret of the customer ", 5000)
		w.tool("pay").gives(long)
		w.tool("pay").inside(func() {
			w.cancel()
			w.delete()
		})
		w.startRound(calls("pay c1"))
		b := w.watch()
		_, _ = w.batch().Run(w.ctx, w.inv(0))
		require.Empty(t, b.put)
		w.requireGone()
	})
}

// A model's reply to a run that was cancelled and deleted meanwhile is not kept, and no call of it is claimed.
func TestARunIsDeletedWhileItWorks(t *testing.T) {
	subtest(t, "its model thinks", func(t *testing.T, w *world) {
		w.startWith(agent.Reply{Text: "a secret of the customer"})
		w.model.during = func(agent.Request) error {
			w.cancel()
			w.delete()
			return nil
		}
		require.ErrorIs(t, errOf(w.stepper().Step(w.ctx, w.inv(0))), store.ErrNoRun)
		w.requireGone()
	})
	subtest(t, "a call is about to be claimed", func(t *testing.T, w *world) {
		w.startRound(calls("pay c1"))
		own := func(ops []store.Op) bool { return ops[0].Item.PK == "T#"+tenant+"#RUN#"+w.run }
		w.table.Once(meanwhile(own, func() {
			w.cancel()
			w.delete()
		}))
		require.ErrorIs(t, errOf(w.batch().Run(w.ctx, w.inv(0))), store.ErrNoRun)
		require.Zero(t, w.tool("pay").times())
		w.requireGone()
	})
}

// requireGone wants nothing under the run's key but what says that it is deleted and that its inbox is closed.
func (w *world) requireGone() {
	w.t.Helper()
	page, err := w.counts.Query(w.ctx, store.Range{PK: "T#" + tenant + "#RUN#" + w.run})
	require.NoError(w.t, err)
	for _, it := range page.Items {
		require.True(w.t, it.Attrs["deleted"].Int() == 1 || it.Attrs["closed"].Int() == 1, "%s %s", it.SK, it.Body)
	}
}

// A run that is written after the one that asked for it was cancelled and deleted ends, and can be deleted, too.
func TestAnOrphanOfADeletedRun(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.delegating(1)
		w.startRound(calls(`ask c1 {"message":"Help."}`))
		root := w.run
		child := agent.ChildID(tenant, "aide0", root, "c1")
		w.table.Once(meanwhile(func(ops []store.Op) bool { return ops[0].Item.PK == "T#"+tenant+"#RUN#"+child }, func() {
			w.cancel()
			w.delete()
		}))
		require.ErrorIs(t, errOf(w.batch().Run(w.ctx, w.inv(0))), store.ErrNoRun)
		w.to(child)
		w.drive(0)
		require.Equal(t, run.ReasonCancelled, w.state().Reason)
		w.sweep()
		w.delete()
	})
}
