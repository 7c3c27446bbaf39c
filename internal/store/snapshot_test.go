package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// evicting writes a run of n inferences that keeps its newest four messages alive.
func evicting(t *testing.T, j *store.Journal, n int) run.AgentState {
	t.Helper()
	st := begin(t, j, runID)
	st.working(n)
	return st.s
}

// requireSaid wants the same conversation of both.
func requireSaid(t *testing.T, want, got run.AgentState) {
	t.Helper()
	shown := func(s run.AgentState) any {
		view, err := policy.ViewMessages(policy.WithSeenCounts(s.Messages.All(), s.Inferences))
		require.NoError(t, err)
		return view
	}
	require.Equal(t, shown(want), shown(got))
}

// A cold reader with the hint reads what is alive; its cost does not grow with the run's age, and it ends where
// everybody does.
func TestLoadAtReadsOnlyWhatIsAlive(t *testing.T) {
	read := func(n int) (fault.Counts, store.Loaded, run.AgentState) {
		table := fault.NewTable(store.NewMemory())
		s := evicting(t, store.NewJournal(table, 0), n)
		table.Reset()
		l, err := store.NewJournal(table, 0).LoadAt(t.Context(), acme, runID, s.ReadFrom())
		require.NoError(t, err)
		return table.Counts(), l, s
	}
	short, _, _ := read(40)
	long, l, s := read(400)
	require.Equal(t, int64(1), long.Queries)
	require.Less(t, long.ItemsRead, int64(60))
	require.InDelta(t, short.ItemsRead, long.ItemsRead, 40)
	require.True(t, l.State.Partial)
	require.Equal(t, s.Inferences, l.State.Inferences)
	requireSaid(t, s, l.State)
}

// A stale hint costs a second query; whoever wants the whole run gets it, also from a journal that knows a part.
func TestStaleHintAndWholeRun(t *testing.T) {
	table := fault.NewTable(store.NewMemory())
	s := evicting(t, store.NewJournal(table, 0), 40)
	j := store.NewJournal(table, 8)
	table.Reset()
	l, err := j.LoadAt(t.Context(), acme, runID, s.Seq())
	require.NoError(t, err)
	require.False(t, l.State.Partial)
	require.Equal(t, int64(2), table.Counts().Queries)

	part := store.NewJournal(table, 8)
	l, err = part.LoadAt(t.Context(), acme, runID, s.ReadFrom())
	require.NoError(t, err)
	require.True(t, l.State.Partial)
	whole, err := part.Load(t.Context(), acme, runID)
	require.NoError(t, err)
	require.Len(t, whole.State.Calls(), 40)
}

// A run as it was before any of its entries is the fold of those before it, at a cost that does not grow with its age.
func TestBefore(t *testing.T) {
	table := fault.NewTable(store.NewMemory())
	j := store.NewJournal(table, 0)
	last := evicting(t, j, 60)
	entries, err := j.Entries(t.Context(), acme, runID, 0, 0)
	require.NoError(t, err)
	var want run.AgentState
	for seq := range last.Entries {
		table.Reset()
		got, err := j.Before(t.Context(), acme, runID, seq)
		require.NoError(t, err)
		require.LessOrEqual(t, table.Counts().ItemsRead, int64(65), "before %d", seq)
		require.Equal(t, want.Entries, got.Entries)
		require.Equal(t, want.Messages.All(), got.Messages.All(), "before %d", seq)
		require.Equal(t, want.Live, got.Live, "before %d", seq)
		require.Equal(t, want.Inferences, got.Inferences)
		require.Equal(t, want.Status, got.Status)
		want, err = run.ApplyEntry(want, entries[seq])
		require.NoError(t, err)
	}
	require.ErrorIs(t, errOf(j.Before(t.Context(), acme, runID, last.Entries+1)), store.ErrNoEntry)
	require.ErrorIs(t, errOf(j.Before(t.Context(), acme, "r2", 0)), store.ErrNoRun)
	require.ErrorIs(t, errOf(j.Before(t.Context(), acme, "r2", 100)), store.ErrNoRun)
}
