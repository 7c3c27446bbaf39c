package runtime_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
)

// damage changes an item of the current table, whatever it is then.
func (w *world) damage(k store.Key, change func(it *store.Item)) {
	w.t.Helper()
	it, found, err := w.ports.Table.Get(w.ctx, k)
	require.NoError(w.t, err)
	require.True(w.t, found, "%v is not there", k)
	change(&it)
	require.NoError(w.t, w.ports.Table.Write(w.ctx, store.Op{Kind: store.Put, Item: it}))
}

// dump is a run's partition as it stands.
func (w *world) dump(run string) []store.Item {
	w.t.Helper()
	p, err := w.ports.Table.Query(w.ctx, store.Range{PK: "T#" + tenant + "#RUN#" + run})
	require.NoError(w.t, err)
	return p.Items
}

// A run whose records are damaged is told of by its name and left as it is: nothing is written, no execution begins,
// no tool is called. The runs beside it are repaired. What else is damage, internal/store knows.
func TestSweepLeavesDamagedRunsAlone(t *testing.T) {
	cut := func(it *store.Item) { it.Body = it.Body[:len(it.Body)/2] }
	never := func(it *store.Item) { it.Attrs["expires"] = store.Str("never") }
	unseal := func(it *store.Item) { it.Body = bytes.Replace(it.Body, []byte("refund"), []byte("refunD"), 1) }
	for name, c := range map[string]struct {
		key    func(run, approval string) store.Key
		change func(it *store.Item)
		names  string // what the error names beside the run
	}{
		"an entry is cut off":     {entryOf, cut, `"J#0000000001"`},
		"the view":                {headOf, func(it *store.Item) { delete(it.Attrs, "owner") }, "owner: got nothing, want a string"},
		"the view's bytes":        {headOf, nil, "checksum differs"},
		"the request to people":   {approvalOf, cut, "#APPROVAL#"},
		"the request's expiry":    {approvalOf, never, "expires: got a string, want a number"},
		"the request is unsealed": {approvalOf, unseal, "seal: its body is not what was written"},
	} {
		subtest(t, name, func(t *testing.T, w *world) {
			w.parked("first")
			w.unheard()
			bad := w.parked("second")
			w.unheard()
			w.waiter.ended(w.owner)
			l, err := w.ports.Journal.Load(w.ctx, tenant, bad)
			require.NoError(t, err)
			id := l.State.Waits()[0].Wait.Approval
			third := w.parked("third")
			w.waiter.ended(w.owner)
			w.sleep(2 * time.Minute)
			w.model.replies = nil
			key := c.key(bad, id)
			if c.change == nil {
				w.table.Damage(key)
			} else {
				w.damage(key, c.change)
			}
			w.ports.Journal = store.NewJournal(w.ports.Table, 0)
			before, calls := w.dump(bad), len(w.model.asked)

			r := w.sweepAll()
			require.True(t, r.Complete)
			failed := slices.IndexFunc(r.Failed, func(f runtime.FailedRepair) bool { return strings.Contains(f.Err.Error(), c.names) })
			require.GreaterOrEqual(t, failed, 0, "%v", r.Failed)
			require.ErrorIs(t, r.Failed[failed].Err, store.ErrDamaged)
			require.Equal(t, tenant, r.Failed[failed].Tenant)
			if strings.Contains(key.PK, "#RUN#") {
				require.ErrorContains(t, r.Failed[failed].Err, bad)
				require.Equal(t, before, w.dump(bad), "it is left as it is")
				require.Empty(t, w.waiter.status[runtime.ExecutionName(bad, 1)], "nothing is started")
			} else {
				require.ErrorContains(t, r.Failed[failed].Err, id)
			}
			require.Equal(
				t, runtime.ExecutionRunning, w.waiter.status[runtime.ExecutionName(third, 1)], "the others are repaired",
			)
			require.Positive(t, r.Repaired[runtime.RepairWoke])
			require.Len(t, w.model.asked, calls)
		})
	}
}

func entryOf(run, _ string) store.Key {
	return store.Key{PK: "T#" + tenant + "#RUN#" + run, SK: "J#0000000001"}
}

func headOf(run, _ string) store.Key { return store.Key{PK: "T#" + tenant + "#RUN#" + run, SK: "HEAD"} }

func approvalOf(_, approval string) store.Key {
	return store.Key{PK: "T#" + tenant + "#APPROVAL#" + approval, SK: "A"}
}
