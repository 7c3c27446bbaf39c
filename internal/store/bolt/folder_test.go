package bolt_test

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/store/bolt"
	"github.com/countersign/countersign/internal/store/storetest"
)

var content = []byte("content")

func openFolder(t *testing.T) (*bolt.Blobs, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "blobs")
	b, err := bolt.OpenFolder(dir)
	require.NoError(t, err)
	return b, dir
}

// Content that is not its name's is not given.
func TestContentIsChecked(t *testing.T) {
	b, dir := openFolder(t)
	ctx, digest := context.Background(), store.BlobDigest(content)
	require.NoError(t, b.Put(ctx, "acme", digest, content))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "T", "acme", digest), []byte("contenT"), 0o600))
	_, err := b.Get(ctx, "acme", digest)
	require.ErrorContains(t, err, "damaged")
	require.NoError(t, b.PutFrom(ctx, "acme", digest, bytes.NewReader(content)), "a stream mends it")
	got, err := b.Get(ctx, "acme", digest)
	require.NoError(t, err)
	require.Equal(t, content, got)
}

// What a stream leaves when it breaks, lies or does not end is nothing, on disk either.
func TestStreamsLeaveNothingBehind(t *testing.T) {
	b, dir := openFolder(t)
	ctx, digest := context.Background(), store.BlobDigest(content)
	require.ErrorIs(t, b.PutFrom(ctx, "../x", digest, bytes.NewReader(content)), store.ErrInvalid)
	require.ErrorIs(t, b.PutFrom(ctx, "acme", digest, iotest.ErrReader(io.ErrUnexpectedEOF)), io.ErrUnexpectedEOF)
	require.ErrorIs(t, b.PutFrom(ctx, "acme", digest, strings.NewReader("contenT")), store.ErrBlobContent)
	ended, cancel := context.WithCancel(ctx)
	last := readerFunc(func(p []byte) (int, error) { // whoever sends it goes away before it is stored
		cancel()
		return copy(p, content), io.EOF
	})
	require.ErrorIs(t, b.PutFrom(ended, "acme", digest, last), context.Canceled)
	files, err := os.ReadDir(filepath.Join(dir, "T", "acme"))
	require.NoError(t, err)
	require.Empty(t, files)
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestOpenRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := bolt.OpenFolder(file)
	require.ErrorContains(t, err, "open blobs")
}

func TestFolderConformance(t *testing.T) {
	storetest.Blobs(t, func(t *testing.T) store.Blobs {
		b, _ := openFolder(t)
		return b
	})
}

func TestIntakeConformance(t *testing.T) {
	storetest.Intake(t, func(t *testing.T) storetest.Taking {
		b, _ := openFolder(t)
		return b
	})
}
