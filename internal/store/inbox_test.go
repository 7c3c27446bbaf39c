package store_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// Slots are numbered in the order of acceptance, whatever the ids.
func TestAcceptNumbersSlots(t *testing.T) {
	onEach(t, func(t *testing.T, table store.Table) {
		st := begin(t, store.NewJournal(table, 0), runID)
		for i, id := range []string{"zz", "aa", "mm"} {
			require.Equal(t, store.Accepted{Slot: int64(i + 1)}, st.accept(id, id))
		}
		inbox := load(t, table).Inbox
		require.Equal(t, []int64{1, 2, 3}, slots(inbox))
		require.Equal(t, "aa", inbox[1].(run.InputReceived).ID)
		for n, taken := range map[int64]bool{1: true, 3: true, 4: false} {
			got, err := st.j.SlotTaken(context.Background(), acme, runID, n)
			require.NoError(t, err)
			require.Equal(t, taken, got, "slot %d", n)
		}
	})
}

// An id is used once, for ever, and for one content.
func TestAcceptDuplicates(t *testing.T) {
	onEach(t, func(t *testing.T, table store.Table) {
		st := begin(t, store.NewJournal(table, 0), runID)
		st.accept("m1", "Hello.")
		require.Equal(t, store.Accepted{Duplicate: true}, st.accept("m1", "Hello."))
		_, err := st.j.Accept(context.Background(), acme, runID, "m1", said("m1", "Good-bye."))
		require.ErrorIs(t, err, store.ErrOtherInput)
		st.commit(load(t, table).Inbox...)
		require.Equal(t, store.Accepted{Duplicate: true}, st.accept("m1", "Hello."), "drained, and a duplicate still")
		st.end()
		require.Equal(t, store.Accepted{Duplicate: true}, st.accept("m1", "Hello."), "after the end, too")
		_, err = st.j.Accept(context.Background(), acme, runID, "m1", said("m1", "Good-bye."))
		require.ErrorIs(t, err, store.ErrOtherInput)
		require.EqualValues(t, 1, load(t, table).State.Drained)
	})
}

// Without an id the guards alone say whether it is new.
func TestAcceptGuards(t *testing.T) {
	onEach(t, func(t *testing.T, table store.Table) {
		st := begin(t, store.NewJournal(table, 0), runID)
		once := store.Op{
			Kind: store.Put, Item: store.Item{Key: store.Key{PK: "guard", SK: "g"}}, If: []store.Cond{{Op: store.ItemAbsent}},
		}
		got, err := st.j.Accept(context.Background(), acme, runID, "", said("x", "Hello."), once)
		require.NoError(t, err)
		require.Equal(t, store.Accepted{Slot: 1}, got)
		_, err = st.j.Accept(context.Background(), acme, runID, "", said("x", "Hello."), once)
		require.ErrorIs(t, err, store.ErrGuardFailed)
		require.Len(t, load(t, table).Inbox, 1)
	})
}

// What is no input, and what no entry could hold, is not accepted: it would stay in the inbox for ever.
func TestAcceptRefuses(t *testing.T) {
	st := begin(t, store.NewJournal(store.NewMemory(), 0), runID)
	_, err := st.j.Accept(context.Background(), acme, runID, "x", run.Resumed{})
	require.ErrorContains(t, err, "does not come through the inbox")
	_, err = st.j.Accept(context.Background(), acme, runID, "x", said("x", strings.Repeat("x", store.MaxItem-2000)))
	require.ErrorIs(t, err, store.ErrTooLarge)
	require.Equal(t, store.Accepted{Slot: 1}, st.accept("x", "Shorter."), "the id is still free")
}

// The inbox is handed out as one entry can hold it, and said to be full where nothing else has room beside it.
func TestFullInbox(t *testing.T) {
	const kb = 1 << 10
	for name, c := range map[string]struct {
		sizes []int
		reads []int // how many inputs each load gives, each drained before the next
		full  []bool
	}{
		"small":            {[]int{1 * kb, 2 * kb, 3 * kb}, []int{3}, []bool{false}},
		"half":             {[]int{60 * kb, 60 * kb}, []int{2}, []bool{true}},
		"one large":        {[]int{270 * kb}, []int{1}, []bool{true}},
		"large, then more": {[]int{200 * kb, 100 * kb, 1 * kb}, []int{1, 2}, []bool{true, true}},
		"several large":    {[]int{270 * kb, 270 * kb, 1 * kb}, []int{1, 2}, []bool{true, true}},
	} {
		t.Run(name, func(t *testing.T) {
			table := store.NewMemory()
			st := begin(t, store.NewJournal(table, 0), runID)
			for i, n := range c.sizes {
				st.accept(fmt.Sprint("m", i), strings.Repeat("x", n))
			}
			for i, n := range c.reads {
				l := load(t, table)
				require.Len(t, l.Inbox, n, "load %d", i)
				require.Equal(t, c.full[i], l.Full, "load %d", i)
				st.commit(l.Inbox...)
			}
			require.Empty(t, load(t, table).Inbox)
		})
	}
}
