package bolt

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/countersign/countersign/internal/store"
)

func newTable(t *testing.T) *Table {
	tb, err := Open(filepath.Join(t.TempDir(), "store"), Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, tb.Close()) })
	return tb
}

func absentPut(sk, body string) store.Op {
	return store.Op{
		Kind: store.Put,
		Item: store.Item{Key: store.Key{PK: "P", SK: sk}, Body: []byte(body)},
		If:   []store.Cond{{Op: store.ItemAbsent}},
	}
}

func queued(ops ...store.Op) *pending { return &pending{ops: ops, done: make(chan struct{})} }

// commits is the number of transactions the file has seen.
func commits(t *testing.T, tb *Table) (id int) {
	require.NoError(t, tb.db.View(func(tx *bbolt.Tx) error {
		id = tx.ID()
		return nil
	}))
	return id
}

// TestGroup: Writes of a group are decided in turn, each by itself, and share one transaction.
func TestGroup(t *testing.T) {
	tb := newTable(t)
	before := commits(t, tb)
	group := []*pending{
		queued(absentPut("1", "first")),
		queued(absentPut("2", "half"), absentPut("1", "second")),
		queued(absentPut("2", "third")),
	}
	tb.commit(group)
	require.NoError(t, group[0].err)
	require.True(t, store.FailedOp(group[1].err, 1))
	require.False(t, store.FailedOp(group[1].err, 0))
	require.NoError(t, group[2].err)
	require.Equal(t, before+1, commits(t, tb))

	for sk, body := range map[string]string{"1": "first", "2": "third"} {
		it, found, err := tb.Get(t.Context(), store.Key{PK: "P", SK: sk})
		require.NoError(t, err)
		require.True(t, found)
		require.Equal(t, body, string(it.Body))
	}
}

// TestGroupOfFailures: a group in which nothing is to be written costs no commit.
func TestGroupOfFailures(t *testing.T) {
	tb := newTable(t)
	require.NoError(t, tb.Write(t.Context(), absentPut("1", "first")))
	before := commits(t, tb)
	require.True(t, store.FailedOp(tb.Write(t.Context(), absentPut("1", "second")), 0))
	require.Equal(t, before, commits(t, tb))
}

// TestGroupFails: if the transaction fails, no Write of its group has an answer that rests on another's.
func TestGroupFails(t *testing.T) {
	tb := newTable(t)
	require.NoError(t, tb.db.Update(func(tx *bbolt.Tx) error { // where an item's value belongs: bbolt refuses the Put
		_, err := tx.Bucket(itemsBucket).CreateBucket(itemKey(store.Key{PK: "P", SK: "bucket"}))
		return err
	}))
	group := []*pending{queued(absentPut("1", "first")), queued(absentPut("1", "second")), queued(absentPut("bucket", "b"))}
	tb.commit(group)
	for _, p := range group {
		require.ErrorContains(t, p.err, "incompatible value")
		var ce *store.ConditionError
		require.False(t, errors.As(p.err, &ce))
	}
	_, found, err := tb.Get(t.Context(), store.Key{PK: "P", SK: "1"})
	require.NoError(t, err)
	require.False(t, found)
	require.NoError(t, tb.Write(t.Context(), absentPut("1", "again")), "the table goes on")
}

// TestDoubt: a commit that failed is harmless while its transaction is not to be seen; else the table is of no more
// use.
func TestDoubt(t *testing.T) {
	tb := newTable(t)
	full := errors.New("disk full")
	require.Equal(t, full, tb.checkDoubtfulCommit(notBegun, full))
	require.Equal(t, full, tb.checkDoubtfulCommit(commits(t, tb)+1, full))
	require.NoError(t, tb.Write(t.Context(), absentPut("1", "b")))
	err := tb.checkDoubtfulCommit(commits(t, tb), full)
	require.ErrorIs(t, err, ErrUnknownState)
	require.ErrorIs(t, err, full)
	require.ErrorIs(t, tb.Write(t.Context(), absentPut("x", "b")), ErrUnknownState)
	_, _, err = tb.Get(t.Context(), store.Key{PK: "P", SK: "x"})
	require.ErrorIs(t, err, ErrUnknownState)
	_, err = tb.Query(t.Context(), store.Range{PK: "P"})
	require.ErrorIs(t, err, ErrUnknownState)
	require.NoError(t, tb.Close())
	again, err := Open(tb.path, Options{})
	require.NoError(t, err, "the file and its lock are free")
	require.NoError(t, again.Close())
}
