package store_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// warmRun is a run of five entries that its journal knows.
func warmRun(t *testing.T, table store.Table) *story {
	t.Helper()
	st := begin(t, store.NewJournal(table, 2), runID)
	for range 4 {
		st.inference("More.")
	}
	return st
}

func (st *story) load() store.Loaded {
	st.t.Helper()
	l, err := st.j.Load(context.Background(), acme, st.s.Run)
	require.NoError(st.t, err)
	return l
}

// A warm run is read from its newest known entry on, that one included.
func TestWarmLoadReadsWhatCameAfter(t *testing.T) {
	counts := fault.NewTable(store.NewMemory())
	st := warmRun(t, counts)
	counts.Reset()
	requireState(t, st.s, st.load().State)
	require.EqualValues(t, 1, counts.Counts().ItemsRead)
	other := *st
	other.j = store.NewJournal(counts, 0)
	other.inference("From elsewhere.")
	other.accept("m1", "Hello.")
	counts.Reset()
	l := st.load()
	requireState(t, other.s, l.State)
	require.Equal(t, []int64{1}, slots(l.Inbox))
	require.EqualValues(t, 3, counts.Counts().ItemsRead)
	require.EqualValues(t, 1, counts.Counts().Queries)
}

// Rule 15: an entry whose put was not acknowledged is not known, whether it was written or not.
func TestCacheHoldsNoPhantom(t *testing.T) {
	blown := errors.New("connection reset")
	for name, harm := range map[string]fault.Hook{
		"not written": fault.Fail(blown),
		"written":     fault.Lose(blown),
	} {
		t.Run(name, func(t *testing.T) {
			counts := fault.NewTable(store.NewMemory())
			table := fault.NewTable(counts)
			st := warmRun(t, table)
			d := st.draft(run.Replied{Inference: 5, Model: "m", Text: "Phantom?"})
			table.Once(fault.IsWrite, harm)
			require.ErrorIs(t, st.j.Append(context.Background(), st.s, d), blown)
			counts.Reset()
			st.s = st.load().State
			require.EqualValues(t, 1, counts.Counts().Queries, "it does not begin with what is not there")
			requireState(t, load(t, table).State, st.s)
			st.inference("The next.")
			requireState(t, load(t, table).State, st.s)
		})
	}
	t.Run("lost the race", func(t *testing.T) {
		table := store.NewMemory()
		st := warmRun(t, table)
		other := *st
		other.j = store.NewJournal(table, 0)
		d := st.draft(run.Replied{Inference: 5, Model: "m", Text: "Mine."})
		other.inference("Theirs.")
		require.ErrorIs(t, st.j.Append(context.Background(), st.s, d), store.ErrSequenceTaken)
		requireState(t, other.s, st.load().State)
	})
}

// What is warm and not what the journal holds is forgotten: another writer's entry in its place, or none at all.
func TestCacheIsCheckedAgainstTheJournal(t *testing.T) {
	t.Run("another writer", func(t *testing.T) {
		table := store.NewMemory()
		st := warmRun(t, table)
		newest := st.s.Seq()
		body, err := run.MarshalEntry(run.Entry{
			Seq: newest, Writer: "intruder00", Time: day, Events: []run.Event{run.Replied{Inference: 4, Model: "m", Text: "Other."}},
		})
		require.NoError(t, err)
		write(t, table, fmt.Sprintf("J#%010d", newest), body)
		got := st.load().State
		require.Equal(t, "intruder00", got.LastWriter())
		requireState(t, load(t, table).State, got)
	})
	t.Run("no tail", func(t *testing.T) {
		long, short := store.NewMemory(), store.NewMemory()
		swap := &swapped{Table: long}
		st := warmRun(t, swap)
		restored := begin(t, store.NewJournal(short, 0), runID)
		swap.Table = short
		requireState(t, restored.s, st.load().State)
		swap.Table = store.NewMemory()
		require.ErrorIs(t, errOf(st.j.Load(context.Background(), acme, runID)), store.ErrNoRun)
	})
}

// swapped is a table that was restored from a backup.
type swapped struct{ store.Table }

// No more runs are kept than asked for, the least recently used goes first, and a journal without a cache reads everything.
func TestCacheLimit(t *testing.T) {
	for _, c := range []struct{ limit, a, b, c int64 }{{0, 3, 3, 3}, {2, 1, 3, 1}, {9, 1, 1, 1}} {
		counts := fault.NewTable(store.NewMemory())
		j := store.NewJournal(counts, int(c.limit))
		stories := map[string]*story{}
		for _, run := range []string{"a", "b", "c"} {
			stories[run] = begin(t, j, run)
			stories[run].inference("One.")
			stories[run].inference("Two.")
			if run == "b" {
				stories["a"].load()
			}
		}
		read := func(run string) int64 {
			counts.Reset()
			requireState(t, stories[run].s, stories[run].load().State)
			return counts.Counts().ItemsRead
		}
		require.Equal(t, []int64{c.a, c.c, c.b}, []int64{read("a"), read("c"), read("b")}, "limit %d", c.limit)
	}
}

// Readers and writers of one warm run, all at once, see prefixes of the one journal.
func TestCacheConcurrently(t *testing.T) {
	table := store.NewMemory()
	st := warmRun(t, table)
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for range 20 {
				l, err := st.j.Load(context.Background(), acme, runID)
				if err != nil {
					t.Error(err)
					return
				}
				d := run.NewDraft(l.State, fmt.Sprintf("w%d", w), day)
				if err := d.Add(run.Replied{Inference: l.State.Inferences + 1, Model: "m", Text: "x"}); err != nil {
					t.Error(err)
					return
				}
				if err := st.j.Append(context.Background(), l.State, d); err != nil && !errors.Is(err, store.ErrSequenceTaken) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	requireState(t, load(t, table).State, st.load().State)
}
