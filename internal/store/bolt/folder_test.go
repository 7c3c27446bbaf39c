package bolt_test

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/store/bolt"
)

var content = []byte("content")

func openFolder(t *testing.T) (*bolt.Blobs, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "blobs")
	b, err := bolt.OpenFolder(dir)
	require.NoError(t, err)
	return b, dir
}

func TestPutGet(t *testing.T) {
	b, dir := openFolder(t)
	ctx, digest := context.Background(), store.BlobDigest(content)
	require.NoError(t, b.Put(ctx, "acme", digest, content))
	require.NoError(t, b.Put(ctx, "acme", digest, content), "put is idempotent")
	reopened, err := bolt.OpenFolder(dir)
	require.NoError(t, err)
	got, err := reopened.Get(ctx, "acme", digest)
	require.NoError(t, err)
	require.Equal(t, content, got)
	_, err = b.Get(ctx, "rival", digest)
	require.ErrorIs(t, err, store.ErrNoBlob, "a reference resolves under its tenant only")
	stored, err := os.ReadFile(filepath.Join(dir, "T", "acme", digest))
	require.NoError(t, err)
	require.Equal(t, content, stored)
}

// No name leads out of the folder.
func TestNamesAreChecked(t *testing.T) {
	b, _ := openFolder(t)
	ctx, digest := context.Background(), store.BlobDigest(content)
	for _, tenant := range []string{"", "..", "../x", "a/b", "A", "-a", "a\x00b"} {
		require.Error(t, b.Put(ctx, tenant, digest, content), tenant)
		require.ErrorIs(t, b.PutFrom(ctx, tenant, digest, bytes.NewReader(content)), store.ErrInvalid, tenant)
		_, err := b.Get(ctx, tenant, digest)
		require.ErrorIs(t, err, store.ErrInvalid, tenant)
		_, err = b.Size(ctx, tenant, digest)
		require.ErrorIs(t, err, store.ErrInvalid, tenant)
	}
	for _, digest := range []string{"", "../../etc/passwd", digest[:63], digest + "0", "Z" + digest[1:]} {
		_, err := b.Get(ctx, "acme", digest)
		require.ErrorIs(t, err, store.ErrInvalid, digest)
	}
}

// Content that is not its name's is neither taken nor given.
func TestContentIsChecked(t *testing.T) {
	b, dir := openFolder(t)
	ctx, digest := context.Background(), store.BlobDigest(content)
	require.ErrorIs(t, b.Put(ctx, "acme", digest, []byte("other")), store.ErrBlobContent)
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

func TestConcurrentPutsLeaveOneFile(t *testing.T) {
	b, dir := openFolder(t)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if err := b.Put(context.Background(), "acme", store.BlobDigest(content), content); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	files, err := os.ReadDir(filepath.Join(dir, "T", "acme"))
	require.NoError(t, err)
	require.Len(t, files, 1, "and nothing half-written")
}

func TestEndedContext(t *testing.T) {
	b, _ := openFolder(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, b.Put(ctx, "acme", store.BlobDigest(content), content), context.Canceled)
	_, err := b.Get(ctx, "acme", store.BlobDigest(content))
	require.ErrorIs(t, err, context.Canceled)
}

func TestOpenRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := bolt.OpenFolder(file)
	require.ErrorContains(t, err, "open blobs")
}
