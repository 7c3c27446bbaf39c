package store_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/store/storetest"
)

// TestARunIsNotReadAroundAnItem: an entry, an input or a view that is cut off, has a key of another version or is
// copied to another key is an error that names the item; nothing is folded around it.
func TestARunIsNotReadAroundAnItem(t *testing.T) {
	hears := func(id string) run.Event {
		return run.InputReceived{ID: id, Blocks: []run.UserBlock{{Block: run.Text{Text: id}}}}
	}
	of := func(run, sk string) store.Key { return store.Key{PK: "T#" + acme + "#RUN#" + run, SK: sk} }
	load := func(table store.Table, run string) error {
		_, err := store.NewJournal(table, 0).Load(t.Context(), acme, run)
		return err
	}
	head := func(table store.Table, run string) error {
		_, err := store.NewJournal(table, 0).Head(t.Context(), acme, run)
		return err
	}
	again := func(table store.Table, run string) error {
		_, err := store.NewJournal(table, 0).Accept(t.Context(), acme, run, "a", hears("a"))
		return err
	}
	cut := func(it *store.Item) { it.Body = it.Body[1:] }
	unknown := func(it *store.Item) { it.Body = bytes.Replace(it.Body, []byte("{"), []byte(`{"zzz":1,`), 1) }
	to := func(k store.Key) func(*store.Item) { return func(it *store.Item) { it.Key = k } }
	for name, c := range map[string]struct {
		sk     string
		change func(it *store.Item)
		read   func(store.Table, string) error
	}{
		"an entry cut off":       {"J#0000000000", cut, load},
		"an unknown key":         {"J#0000000001", unknown, load},
		"an entry of another":    {"J#0000000000", to(of("r2", "J#0000000000")), load},
		"an entry at another":    {"J#0000000002", to(of(runID, "J#0000000001")), load},
		"a copied entry":         {"J#0000000002", to(of(runID, "J#0000000003")), load},
		"an input cut off":       {"K#9999999998", cut, load},
		"an unknown input":       {"K#9999999998", unknown, load},
		"an input at another":    {"K#9999999998", to(of(runID, "K#9999999997")), load},
		"a marker with a body":   {"I#a", func(it *store.Item) { it.Body = []byte("{}") }, again},
		"a marker of no digest":  {"I#a", func(it *store.Item) { it.Attrs["digest"] = store.Str("x") }, again},
		"a view without a key":   {"HEAD", func(it *store.Item) { delete(it.Attrs, "owner") }, head},
		"a view of another form": {"HEAD", func(it *store.Item) { it.Attrs["waitSeq"] = store.Str("x") }, head},
		"an unknown status":      {"HEAD", func(it *store.Item) { it.Attrs["status"] = store.Str("asleep") }, head},
		"a view of another run":  {"HEAD", to(of("r2", "HEAD")), head},
	} {
		t.Run(name, func(t *testing.T) {
			table := store.NewMemory()
			j := store.NewJournal(table, 0)
			st := begin(t, j, runID)
			begin(t, j, "r2").commit(run.HandedOver{Owner: "r2-1"})
			st.commit(run.HandedOver{Owner: "r1-1"})
			st.commit(run.HandedOver{Owner: "r1-2"})
			for _, id := range []string{"a", "b"} {
				require.NoError(t, errOf(j.Accept(t.Context(), acme, runID, id, hears(id))))
			}
			it, found, err := table.Get(t.Context(), of(runID, c.sk))
			require.NoError(t, err)
			require.True(t, found)
			c.change(&it)
			require.NoError(t, table.Write(t.Context(), store.Op{Kind: store.Put, Item: it}))
			run := runID
			if it.PK == of("r2", "").PK {
				run = "r2"
			}
			var damaged *store.DamagedError
			require.ErrorAs(t, c.read(table, run), &damaged)
			require.Equal(t, it.PK, damaged.Key.PK)
		})
	}
}

func TestConformance(t *testing.T) {
	storetest.Table(t, func(*testing.T) store.Table { return store.NewMemory() })
}

func TestBlobsConformance(t *testing.T) {
	storetest.Blobs(t, func(*testing.T) store.Blobs { return store.NewMemoryBlobs() })
}

func TestIntakeConformance(t *testing.T) {
	storetest.Intake(t, func(*testing.T) storetest.Taking { return store.NewMemoryBlobs() })
}
