package bolt_test

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/store/bolt"
)

// requireRefused asserts the kind of the error and that it can be read by a person.
func requireRefused(t *testing.T, path string, kind error) {
	t.Helper()
	tb, err := bolt.Open(path, bolt.Options{})
	require.Nil(t, tb)
	require.ErrorIs(t, err, kind)
	require.ErrorContains(t, err, "open store "+path+": ")
	_, again := bolt.Open(path, bolt.Options{})
	require.EqualError(t, again, err.Error(), "the refusal holds no lock")
}

func TestOpenLocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store")
	tb := open(t, path)
	requireRefused(t, path, bolt.ErrLocked)
	require.NoError(t, tb.Write(context.Background(), entry(0)), "the holder is not disturbed")
	require.NoError(t, tb.Close())
	require.Equal(t, 1, requireLog(t, open(t, path), 1))
}

func TestOpenRefused(t *testing.T) {
	good := goodFile(t)
	for name, c := range map[string]struct {
		content []byte
		kind    error
	}{
		"text":                {bytes.Repeat([]byte("not a database\n"), 8000), bolt.ErrDamaged},
		"a few bytes":         {[]byte("x"), bolt.ErrDamaged},
		"zeros":               {make([]byte, len(good)), bolt.ErrDamaged},
		"both headers broken": {overwrite(good, 16, 16400), bolt.ErrDamaged},
		"cut to one page":     {good[:16384], bolt.ErrDamaged},
		"cut to half":         {good[:len(good)/2], bolt.ErrDamaged},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "store")
			require.NoError(t, os.WriteFile(path, c.content, 0o600))
			requireRefused(t, path, c.kind)
			after, err := os.ReadFile(path)
			require.NoError(t, err)
			require.True(t, bytes.Equal(c.content, after), "a refused file is left as it was")
		})
	}
}

// goodFile is a store's file in which every page below its end is in use.
func goodFile(t *testing.T) []byte {
	path := filepath.Join(t.TempDir(), "good")
	tb := open(t, path)
	for n := range 100 {
		require.NoError(t, tb.Write(context.Background(), entry(n)))
	}
	require.NoError(t, tb.Close())
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	return content
}

func overwrite(content []byte, at ...int) []byte {
	broken := bytes.Clone(content)
	for _, i := range at {
		copy(broken[i:], "XXXXXXXXXXXXXXXX")
	}
	return broken
}

func TestOpenPlaces(t *testing.T) {
	dir := t.TempDir()
	requireRefused(t, dir, bolt.ErrDamaged)
	requireRefused(t, filepath.Join(dir, "none", "store"), fs.ErrNotExist)
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	requireRefused(t, filepath.Join(file, "store"), syscall.ENOTDIR)

	theirs := filepath.Join(dir, "theirs")
	db, err := bbolt.Open(theirs, 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucket([]byte("theirs"))
		return err
	}))
	require.NoError(t, db.Close())
	requireRefused(t, theirs, bolt.ErrDamaged)
}

func TestOpenPrivate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store")
	open(t, path)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o600), info.Mode())
}

// TestBrokenPages: whatever page is overwritten, opening and reading give an answer or ErrDamaged; nothing panics and no
// entry comes back changed.
func TestBrokenPages(t *testing.T) {
	good := goodFile(t)
	damaged := 0
	for page := range len(good) / 4096 {
		path := filepath.Join(t.TempDir(), "store")
		require.NoError(t, os.WriteFile(path, overwrite(good, page*4096, page*4096+2000), 0o600))
		if err := readLog(path); err != nil {
			require.ErrorIs(t, err, store.ErrDamaged, "page %d", page)
			damaged++
		}
	}
	require.Positive(t, damaged)
}

// readLog reads the whole log entry by entry and fails if one is missing or changed.
func readLog(path string) error {
	tb, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		return err
	}
	defer func() { _ = tb.Close() }() // of a damaged store, read only
	for n := range 100 {
		want := entry(n).Item
		it, found, err := tb.Get(context.Background(), want.Key)
		if err != nil {
			return err
		}
		if found && !bytes.Equal(it.Body, want.Body) {
			return os.ErrInvalid
		}
	}
	_, err = tb.Query(context.Background(), store.Range{PK: "LOG"})
	return err
}
