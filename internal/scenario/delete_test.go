package scenario

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
)

var errAnswerLost = errors.New("the answer to a write was lost")

// TestDeletedRuns plays every scenario and deletes the runs that have ended. The process dies after its first write, the
// next one after its second, and so on until one ends. Of a deleted run the record of its deletion is left, and the slot
// that closed its inbox; nothing of a run that goes on is gone.
func TestDeletedRuns(t *testing.T) {
	for i, s := range corpus(t) {
		if CrashesInTests(1) != 0 && i%3 != 0 {
			continue // make crash plays them all
		}
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			sim := played(t, s)
			kept, err := sim.journal.Entries(t.Context(), tenant, sim.run, 0, 0)
			require.NoError(t, err)

			table, writes := fault.NewTable(sim.table), 0 // until the process dies
			table.Use(func(_ context.Context, c fault.Call, call func() error) error {
				if err := call(); err != nil || c.Port != fault.TableWrite {
					return err
				}
				if writes--; writes < 0 {
					return errAnswerLost
				}
				return nil
			})
			d := runtime.Deleter{Ports: runtime.Ports{
				Table: table, Journal: store.NewJournal(table, 0), Blobs: sim.blobs, Clock: sim.clock,
			}}
			deleted := map[string]store.Head{}
			for refused := true; refused; { // a run after those that began from it
				refused = false
				heads, _, err := sim.journal.List(t.Context(), tenant, run.RunDone, 200, "")
				require.NoError(t, err)
				for _, h := range heads {
					err := errAnswerLost
					for tries := 0; errors.Is(err, errAnswerLost); tries++ {
						require.Less(t, tries, 200, "run %s", h.Run)
						writes = tries
						sim.clock.AdvanceTo(sim.clock.Now().Add(time.Minute)) // locks of blobs run out
						_, err = d.Delete(t.Context(), tenant, h.Run, "user:ana")
					}
					var inUse *runtime.NotDeletable
					if errors.As(err, &inUse) || errors.Is(err, store.ErrNoRun) {
						continue
					}
					require.NoError(t, err)
					deleted[h.Run], refused = h, true
				}
			}
			requireDeleted(t, sim, deleted)
			if _, gone := deleted[sim.run]; !gone {
				if _, found, err := sim.journal.Deletion(t.Context(), tenant, sim.run); !found && err == nil {
					left, err := sim.journal.Entries(t.Context(), tenant, sim.run, 0, 0)
					require.NoError(t, err)
					require.Len(t, left, len(kept))
				}
			}
		})
	}
}

// A blob that another run takes in while it is deleted is there afterwards: that run is told to try again until the
// deletion is through, even if whoever deletes dies in its midst, and two who delete do not take each other's lock.
func TestBlobIsTakenInWhileItIsDeleted(t *testing.T) {
	sim := played(t, load(t, "precondition-true"))
	journal, content := sim.journal, []byte("an invoice")
	digest := store.BlobDigest(content)
	takeIn := func(run string) error {
		err := journal.NoteBlob(t.Context(), tenant, run, digest)
		if err == nil {
			err = sim.blobs.Put(t.Context(), tenant, digest, content)
		}
		return err
	}
	require.NoError(t, takeIn(sim.run))
	dies := true
	var between error
	d := runtime.Deleter{Ports: runtime.Ports{Table: sim.table, Journal: journal, Clock: sim.clock, Blobs: fault.NewBlobs(sim.blobs,
		func(_ context.Context, c fault.Call, call func() error) error {
			if err := call(); err != nil {
				return err
			}
			if between = takeIn("rnew"); dies {
				return errAnswerLost
			}
			return nil
		})}}
	_, err := d.Delete(t.Context(), tenant, sim.run, "user:ana")
	require.ErrorIs(t, err, errAnswerLost)
	require.ErrorIs(t, between, store.ErrConflict)
	require.ErrorIs(t, takeIn("rnew"), store.ErrConflict, "whoever deletes it may be alive")
	_, err = d.Delete(t.Context(), tenant, sim.run, "user:ana")
	require.ErrorIs(t, err, store.ErrConflict)
	sim.clock.AdvanceTo(sim.clock.Now().Add(time.Minute))
	dies = false
	_, err = d.Delete(t.Context(), tenant, sim.run, "user:ana")
	require.NoError(t, err)
	require.ErrorIs(t, between, store.ErrConflict)
	require.NoError(t, takeIn("rnew"))
	got, err := sim.blobs.Get(t.Context(), tenant, digest)
	require.NoError(t, err)
	require.Equal(t, content, got)
}

// shortPages is a table whose pages hold one item.
type shortPages struct{ store.Table }

func (t shortPages) Query(ctx context.Context, r store.Range) (store.Page, error) {
	r.Limit = 1
	return t.Table.Query(ctx, r)
}

// A run whose events are not all sent is not deleted, however many pages of sent ones stand before them.
func TestDeletionWaitsForUnsentEvents(t *testing.T) {
	sim := played(t, load(t, "precondition-true"))
	outbox := "T#" + tenant + "#OUTBOX"
	sent, unsent := store.Key{PK: outbox + "#" + sim.run, SK: "0000000001"}, store.Key{PK: outbox + "#" + sim.run, SK: "0000000002"}
	put := func(it store.Item) {
		require.NoError(t, sim.table.Write(t.Context(), store.Op{Kind: store.Put, Item: it}))
	}
	put(store.Item{Key: sent})
	put(store.Item{Key: unsent, Index: outbox, IndexSort: "0"})
	table := shortPages{sim.table}
	d := runtime.Deleter{Ports: runtime.Ports{Table: table, Journal: store.NewJournal(table, 0), Blobs: sim.blobs, Clock: sim.clock}}
	_, err := d.Delete(t.Context(), tenant, sim.run, "user:ana")
	require.ErrorContains(t, err, "its events are being published")
	put(store.Item{Key: unsent})
	_, err = d.Delete(t.Context(), tenant, sim.run, "user:ana")
	require.NoError(t, err)
}

// requireDeleted looks through the whole table for what is left of deleted runs.
func requireDeleted(t *testing.T, sim *simulation, deleted map[string]store.Head) {
	t.Helper()
	records, _, err := sim.journal.Deletions(t.Context(), tenant, false, 1000, "")
	require.NoError(t, err)
	gone := map[string]bool{}
	for _, r := range records {
		gone[r.Run] = true
		if h, ok := deleted[r.Run]; ok {
			require.Equal(t, h.Hash, r.Hash)
		}
		_, err := sim.journal.Load(t.Context(), tenant, r.Run)
		require.ErrorIs(t, err, store.ErrNoRun)
		require.ErrorContains(t, err, "was deleted by user:ana")
	}
	for id := range deleted {
		require.True(t, gone[id], "no record of the deletion of run %s", id)
	}
	open, _, err := sim.journal.Deletions(t.Context(), tenant, true, 1000, "")
	require.NoError(t, err)
	require.Empty(t, open)
	for _, it := range sim.table.All() {
		for id := range gone {
			switch own := strings.HasSuffix(it.PK, "#RUN#"+id); {
			case own && it.Attrs["deleted"].Int() != 1 && it.Attrs["closed"].Int() != 1,
				strings.HasSuffix(it.PK, "#END#"+id), strings.Contains(it.PK, "#BLOB#") && it.SK == id,
				(strings.Contains(it.PK, "#APPROVAL#") || strings.HasPrefix(it.PK, "LINK#") || strings.Contains(it.PK, "#GRANT#")) &&
					strings.Contains(string(it.Body), `"`+id+`"`):
				t.Errorf("left of run %s: %s %s %s", id, it.PK, it.SK, it.Body)
			}
		}
	}
}
