package store_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/store/bolt"
)

const (
	acme  = "acme"
	runID = "r1"
)

var day = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// story writes a run, one entry after the other.
type story struct {
	t *testing.T
	j *store.Journal
	s run.AgentState
}

// errOf is the error of a call whose result does not matter.
func errOf[T any](_ T, err error) error { return err }

// begin writes a run's first entry.
func begin(t *testing.T, j *store.Journal, runID2 string) *story {
	t.Helper()
	return beginAt(t, j, runID2, day)
}

// beginAt begins a run at a time of its own.
func beginAt(t *testing.T, j *store.Journal, runID2 string, at time.Time) *story {
	t.Helper()
	st := &story{t: t, j: j}
	d := run.NewDraft(st.s, "writer0000", at)
	require.NoError(t, d.Add(run.RunStarted{
		Tenant: acme, Run: runID2, Agent: "clerk", Owner: runID2 + "-0", MaxInteractions: 1000,
		Messages: []run.UserBlock{{Block: run.Text{Text: "Begin."}}},
	}))
	require.NoError(t, j.Append(context.Background(), st.s, d))
	st.s = d.Committed()
	return st
}

// draft plans the next entry at a time of its own.
func (st *story) draft(events ...run.Event) *run.Draft {
	st.t.Helper()
	d := run.NewDraft(st.s, fmt.Sprintf("writer%04d", st.s.Entries), day.Add(time.Duration(st.s.Entries)*time.Second))
	require.NoError(st.t, d.Add(events...))
	return d
}

func (st *story) commit(events ...run.Event) {
	st.t.Helper()
	d := st.draft(events...)
	require.NoError(st.t, st.j.Append(context.Background(), st.s, d))
	st.s = d.Committed()
}

// end ends the run from outside.
func (st *story) end() {
	st.t.Helper()
	st.commit(run.Finished{Reason: run.ReasonCancelled})
}

func (st *story) accept(id, text string) store.Accepted {
	st.t.Helper()
	got, err := st.j.Accept(context.Background(), acme, st.s.Run, id, said(id, text))
	require.NoError(st.t, err)
	return got
}

// inference is one turn that asks for nothing, so that the run goes on.
func (st *story) inference(text string) {
	st.t.Helper()
	st.commit(run.Replied{Inference: st.s.Inferences + 1, Model: "m", Requests: 1, Text: text})
}

// suspend leads to a run that waits for a decision on its call c1.
func (st *story) suspend() {
	st.t.Helper()
	st.commit(run.Replied{Inference: st.s.Inferences + 1, Model: "m", Calls: []run.RepliedCall{
		{ID: "c1", Name: "pay", Effect: run.EffectNonIdempotent, Input: []byte(`{}`)},
	}})
	expires := day.Add(time.Hour)
	st.commit(run.CallSuspended{Call: "c1", Approval: "a1", Digest: "d", Expires: expires}, run.Parked{Expires: expires})
}

// requireState compares runs by what they hold: how much memory their lists have in reserve is not part of it.
func requireState(t *testing.T, want, got run.AgentState) {
	t.Helper()
	require.Equal(t, want.Messages.All(), got.Messages.All())
	require.Equal(t, want.Settled.All(), got.Settled.All())
	want.Messages, got.Messages = run.Log[run.Message]{}, run.Log[run.Message]{}
	want.Settled, got.Settled = run.Log[run.Call]{}, run.Log[run.Call]{}
	require.Equal(t, want, got)
}

func said(id, text string) run.InputReceived {
	return run.InputReceived{ID: id, Blocks: []run.UserBlock{{Block: run.Text{Text: text}}}, By: "user:bob"}
}

// onEach runs a test over the tables a run is kept in.
func onEach(t *testing.T, f func(t *testing.T, table store.Table)) {
	t.Run("memory", func(t *testing.T) { f(t, store.NewMemory()) })
	t.Run("bolt", func(t *testing.T) {
		b, err := bolt.Open(filepath.Join(t.TempDir(), "store.db"), bolt.Options{})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, b.Close()) })
		f(t, b)
	})
}

// What is read back is what was committed, by whoever reads: one query over the tail and the inbox that is not drained.
func TestLoadIsOneQuery(t *testing.T) {
	onEach(t, func(t *testing.T, table store.Table) {
		counts := fault.NewTable(table)
		st := begin(t, store.NewJournal(counts, 0), runID)
		st.inference("One.")
		st.accept("m1", "First.")
		st.accept("m2", "Second.")
		l := load(t, counts)
		require.Equal(t, []int64{1, 2}, slots(l.Inbox))
		st.commit(l.Inbox[0])
		counts.Reset()
		l = load(t, counts)
		requireState(t, st.s, l.State)
		require.Equal(t, []int64{2}, slots(l.Inbox), "what is drained is not read again")
		require.Equal(t, fault.Counts{Queries: 1, ItemsRead: 5, BytesRead: counts.Counts().BytesRead, RCU: 1}, counts.Counts())
	})
}

func load(t *testing.T, table store.Table) store.Loaded {
	t.Helper()
	l, err := store.NewJournal(table, 0).Load(context.Background(), acme, runID)
	require.NoError(t, err)
	return l
}

func slots(inbox []run.Event) []int64 {
	var out []int64
	for _, e := range inbox {
		out = append(out, run.InboxSlot(e))
	}
	return out
}

// A run of several megabytes is read page by page, and its inbox behind it.
func TestLoadPages(t *testing.T) {
	onEach(t, func(t *testing.T, table store.Table) {
		counts := fault.NewTable(table)
		st := begin(t, store.NewJournal(counts, 0), runID)
		for range 7 {
			st.inference(strings.Repeat("x", 160<<10))
		}
		for i := range 2 {
			st.accept(fmt.Sprintf("m%d", i), strings.Repeat("y", 160<<10))
		}
		counts.Reset()
		l := load(t, counts)
		require.EqualValues(t, 2, counts.Counts().Queries)
		requireState(t, st.s, l.State)
		require.Equal(t, []int64{1}, slots(l.Inbox), "as far as one entry can hold it, from the oldest, though they lie newest first")
		require.True(t, l.Full)

		all, err := st.j.Entries(context.Background(), acme, runID, 0, 0)
		require.NoError(t, err)
		require.Len(t, all, 8)
		tail, err := st.j.Entries(context.Background(), acme, runID, 5, 0)
		require.NoError(t, err)
		require.Equal(t, all[5:], tail)
		for from := range 9 {
			for _, count := range []int{1, 3, 9} {
				counts.Reset()
				some, err := st.j.Entries(context.Background(), acme, runID, int64(from), count)
				require.NoError(t, err)
				require.Equal(t, append([]run.Entry{}, all[from:min(from+count, 8)]...), some)
				require.EqualValues(t, len(some), counts.Counts().ItemsRead, "no more is read than is given")
			}
		}
		folded, err := run.Fold(run.AgentState{}, all)
		require.NoError(t, err)
		requireState(t, st.s, folded)
	})
}

func TestLoadRefuses(t *testing.T) {
	table := store.NewMemory()
	require.ErrorIs(t, errOf(store.NewJournal(table, 0).Load(context.Background(), acme, "nobody")), store.ErrNoRun)
	_, err := store.NewJournal(table, 0).Load(context.Background(), "rival", runID)
	require.ErrorIs(t, err, store.ErrNoRun, "a tenant has its own runs alone")

	st := begin(t, store.NewJournal(table, 0), runID)
	write(t, table, "J#0000000001", []byte(`{"v":99,"s":1,"w":"w","t":0,"e":[]}`))
	require.ErrorContains(t, errOf(st.j.Load(context.Background(), acme, runID)), "v: got 99, want 1")
}

// write puts an item of the run past all rules.
func write(t *testing.T, table store.Table, sk string, body []byte) {
	t.Helper()
	key := store.Key{PK: "T#" + acme + "#RUN#" + runID, SK: sk}
	require.NoError(t, table.Write(context.Background(), store.Op{Kind: store.Put, Item: store.Item{Key: key, Body: body}}))
}

// Each failed condition has its own answer, and the sequence's comes first: a plan on an old fold is void whatever else failed.
func TestAppendSaysWhatFailed(t *testing.T) {
	onEach(t, func(t *testing.T, table store.Table) {
		st := begin(t, store.NewJournal(table, 0), runID)
		ctx := context.Background()
		end := run.Finished{Reason: run.ReasonCancelled}
		failing := store.Op{Kind: store.Check, Item: store.Item{Key: store.Key{PK: "guard", SK: "g"}}, If: []store.Cond{{Op: store.ItemExists}}}

		require.ErrorIs(t, st.j.Append(ctx, st.s, st.draft(end), failing), store.ErrGuardFailed)
		st.accept("m1", "Wait!")
		require.ErrorIs(t, st.j.Append(ctx, st.s, st.draft(end)), store.ErrInboxMoved)
		require.ErrorIs(t, st.j.Append(ctx, st.s, st.draft(end), failing), store.ErrInboxMoved)
		old := *st
		st.inference("One.")
		require.ErrorIs(t, st.j.Append(ctx, old.s, old.draft(end), failing), store.ErrSequenceTaken)
		requireState(t, st.s, load(t, table).State)
	})
}

// An entry that no item can hold is refused, and the run is as it was.
func TestAppendTooLarge(t *testing.T) {
	onEach(t, func(t *testing.T, table store.Table) {
		st := begin(t, store.NewJournal(table, 4), runID)
		d := st.draft(run.Replied{Inference: 1, Model: "m", Text: strings.Repeat("x", store.MaxItem)})
		require.ErrorIs(t, st.j.Append(context.Background(), st.s, d), store.ErrTooLarge)
		l, err := st.j.Load(context.Background(), acme, runID)
		require.NoError(t, err)
		requireState(t, st.s, l.State)
	})
}

// The end closes the inbox in its own transaction.
func TestEndClosesTheInbox(t *testing.T) {
	onEach(t, func(t *testing.T, table store.Table) {
		st := begin(t, store.NewJournal(table, 0), runID)
		st.accept("m1", "First.")
		st.commit(load(t, table).Inbox...)
		st.end()
		require.Equal(t, store.Accepted{Closed: true}, st.accept("m2", "Second."))
		require.Equal(t, store.Accepted{Closed: true}, st.accept("", "Third."))
		require.Equal(t, store.Accepted{Duplicate: true}, st.accept("m1", "First."))
		require.Empty(t, load(t, table).Inbox)
		h, err := st.j.Head(context.Background(), acme, runID)
		require.NoError(t, err)
		require.Equal(t, run.RunDone, h.Status)
	})
}
