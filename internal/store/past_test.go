package store_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// next begins a run that continues the story's, which it ends first.
func (st *story) next(runID2 string) *story {
	st.t.Helper()
	if st.s.Status != run.RunDone {
		st.commit(run.Finished{Reason: run.ReasonCancelled, Note: "Called off."})
	}
	from, err := policy.ContinueFrom(&st.s)
	require.NoError(st.t, err)
	return st.child(runID2, st.s, from)
}

// child writes the first entry of a run that begins from past.
func (st *story) child(runID2 string, past run.AgentState, from run.Origin) *story {
	st.t.Helper()
	c := &story{t: st.t, j: st.j, s: run.Seed(past)}
	first := c.draft(run.RunStarted{
		Tenant: past.Tenant, Run: runID2, Agent: "clerk", Owner: runID2 + "-0", MaxInteractions: 1000, From: &from,
		Messages: []run.UserBlock{{Block: run.Text{Text: "Go on."}}},
	})
	require.NoError(st.t, st.j.Append(context.Background(), run.AgentState{}, first))
	c.s = first.Committed()
	return c
}

func loadRun(t *testing.T, j *store.Journal, run string) run.AgentState {
	t.Helper()
	l, err := j.Load(context.Background(), acme, run)
	require.NoError(t, err)
	return l.State
}

// A run that continues another is read with one query more for each run up the line, whatever is read beside; warm,
// with its own alone.
func TestLoadOfAChild(t *testing.T) {
	onEach(t, func(t *testing.T, table store.Table) {
		counts := fault.NewTable(table)
		first := begin(t, store.NewJournal(counts, 0), runID)
		first.inference("One.")
		second := first.next("r2")
		second.inference("Two.")
		third := second.next("r3")
		third.inference("Three.")
		third.accept("m1", "And?")
		for i, st := range []*story{first, second, third} {
			counts.Reset()
			requireState(t, st.s, loadRun(t, store.NewJournal(counts, 0), st.s.Run))
			require.EqualValues(t, i+1, counts.Counts().Queries, st.s.Run)
			require.Zero(t, counts.Counts().Gets)
		}
		require.EqualValues(t, 2, third.s.Prior, "inferences of both")
		warm := store.NewJournal(counts, 8)
		requireState(t, second.s, loadRun(t, warm, "r2"))
		counts.Reset()
		requireState(t, third.s, loadRun(t, warm, "r3"))
		require.EqualValues(t, 1, counts.Counts().Queries, "the run it continues is warm")
		l, err := warm.LoadAt(context.Background(), acme, "r3", 0)
		require.NoError(t, err)
		require.Len(t, l.Inbox, 1)
		require.EqualValues(t, 2, counts.Counts().Queries)
	})
}

func TestAtRefuses(t *testing.T) {
	ctx := context.Background()
	st := begin(t, store.NewJournal(store.NewMemory(), 0), runID)
	_, err := st.j.At(ctx, acme, runID, 1)
	require.ErrorIs(t, err, store.ErrNoEntry)
	require.ErrorContains(t, err, "entries 0 to 0")
	require.ErrorIs(t, errOf(st.j.At(ctx, acme, "nobody", 0)), store.ErrNoRun)
	require.ErrorIs(t, errOf(st.j.At(ctx, "rival", runID, 0)), store.ErrNoRun)
}

// A run whose past is gone is a broken record: it is not taken for one that does not exist.
func TestLoadWithoutItsPast(t *testing.T) {
	table, other := store.NewMemory(), store.NewMemory()
	begin(t, store.NewJournal(table, 0), runID).next("r2")
	page, err := table.Query(context.Background(), store.Range{PK: "T#acme#RUN#r2"})
	require.NoError(t, err)
	for _, it := range page.Items {
		require.NoError(t, other.Write(context.Background(), store.Op{Kind: store.Put, Item: it}))
	}
	_, err = store.NewJournal(other, 0).Load(context.Background(), acme, "r2")
	require.ErrorContains(t, err, "read the run's origin")
	require.NotErrorIs(t, err, store.ErrNoRun)
}

// However old the run that is continued, a cold reader with the hint reads what is alive of it; and nothing, once the
// child has let go of it.
func TestLoadAtOfAChildReadsOnlyWhatIsAlive(t *testing.T) {
	read := func(n, own int) (fault.Counts, run.AgentState, run.AgentState) {
		table := fault.NewTable(store.NewMemory())
		j := store.NewJournal(table, 0)
		s := evicting(t, j, n)
		from, err := policy.ForkFrom(&s, "r2", day)
		require.NoError(t, err)
		require.Positive(t, from.At)
		c := (&story{t: t, j: j}).child("r2", s, from)
		c.working(own)
		table.Reset()
		l, err := store.NewJournal(table, 0).LoadAt(context.Background(), acme, "r2", c.s.ReadFrom())
		require.NoError(t, err)
		requireSaid(t, c.s, l.State)
		require.True(t, l.State.Partial)
		return table.Counts(), l.State, c.s
	}
	short, _, _ := read(40, 0)
	long, _, _ := read(400, 0)
	require.EqualValues(t, 2, long.Queries)
	require.Less(t, long.ItemsRead, int64(60))
	require.InDelta(t, short.ItemsRead, long.ItemsRead, 40)

	gone, part, whole := read(400, 60)
	require.EqualValues(t, 1, gone.Queries, "nothing of the parent is alive")
	require.Less(t, gone.ItemsRead, int64(60))
	require.Equal(t, whole.Prior, part.Prior)
	require.Equal(t, whole.From, part.From)
}

// working is n inferences with a call each; the newest four messages stay alive.
func (st *story) working(n int) {
	st.t.Helper()
	for range n {
		i := st.s.Inferences + 1
		id := fmt.Sprintf("c%d-0", st.s.Prior+i)
		events := []run.Event{}
		if st.s.Messages.Len() > 8 {
			events = append(events, run.Evicted{Total: st.s.EvictedMessages + int64(st.s.Messages.Len()-4), Summary: "much was said"})
		}
		d := st.draft(append(events, run.Replied{Inference: i, Model: "m", Requests: 1, Calls: []run.RepliedCall{
			{ID: id, Name: "read", Effect: run.EffectRead, Input: json.RawMessage(`{}`)},
		}})...)
		require.NoError(st.t, d.Snap())
		require.NoError(st.t, st.j.Append(context.Background(), st.s, d))
		st.s = d.Committed()
		st.commit(run.CallFinished{Call: id, Ran: true, Content: "some kilobytes of result"})
	}
}

// Everything that was said can be read, whoever's journal it is in, each message once, in order; what has left is
// marked and counts no more.
func TestConversation(t *testing.T) {
	onEach(t, func(t *testing.T, table store.Table) {
		j := store.NewJournal(table, 0)
		first := evicting(t, j, 10)
		whole := func(s *run.AgentState, messages int) []policy.SeenMessage {
			all, err := j.Conversation(t.Context(), acme, s)
			require.NoError(t, err)
			require.Len(t, all, messages)
			ids := map[string]int{}
			for i, m := range all {
				require.Equal(t, i < int(s.EvictedMessages), m.Evicted, i)
				switch b := m.Block.(type) {
				case run.ToolUse:
					ids[b.ID]++
				case run.ToolResult:
					require.Equal(t, 1, ids[b.ID])
				}
			}
			require.Equal(t, run.Text{Text: "Begin."}, all[0].Block)
			return all
		}
		all := whole(&first, 1+2*10)
		require.Positive(t, first.EvictedMessages)
		require.EqualValues(t, 4, all[0].SeenCount, "it was in four inferences, and left with the fifth")

		second := (&story{t: t, j: j, s: first}).next("r2")
		second.commit(
			run.Evicted{Total: second.s.EvictedMessages + 2, Summary: "more was said"},
			run.Replied{Inference: 1, Model: "m", Requests: 1, Text: "Yes."},
		)
		require.Equal(t, "more was said", second.s.Summary)
		require.Equal(t, first.EvictedMessages+2, second.s.EvictedMessages)
		again := whole(&second.s, 1+2*10+1+1+1)
		require.Equal(t, all[0].SeenCount, again[0].SeenCount)
	})
}
