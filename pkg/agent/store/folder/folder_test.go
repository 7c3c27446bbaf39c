package folder_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/pkg/agent/store"
	"github.com/countersign/countersign/pkg/agent/store/folder"
)

var content = []byte("content")

func open(t *testing.T) (*folder.Blobs, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "blobs")
	b, err := folder.Open(dir)
	require.NoError(t, err)
	return b, dir
}

func TestPutGet(t *testing.T) {
	b, dir := open(t)
	ctx, digest := context.Background(), store.BlobDigest(content)
	require.NoError(t, b.Put(ctx, "acme", digest, content))
	require.NoError(t, b.Put(ctx, "acme", digest, content), "put is idempotent")
	reopened, err := folder.Open(dir)
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
	b, _ := open(t)
	ctx, digest := context.Background(), store.BlobDigest(content)
	for _, tenant := range []string{"", "..", "../x", "a/b", "A", "-a", "a\x00b"} {
		require.Error(t, b.Put(ctx, tenant, digest, content), tenant)
		_, err := b.Get(ctx, tenant, digest)
		require.Error(t, err, tenant)
		require.NotErrorIs(t, err, store.ErrNoBlob, tenant)
	}
	for _, digest := range []string{"", "../../etc/passwd", digest[:63], digest + "0", "Z" + digest[1:]} {
		_, err := b.Get(ctx, "acme", digest)
		require.Error(t, err, digest)
		require.NotErrorIs(t, err, store.ErrNoBlob, digest)
	}
}

// Content that is not its name's is neither taken nor given.
func TestContentIsChecked(t *testing.T) {
	b, dir := open(t)
	ctx, digest := context.Background(), store.BlobDigest(content)
	require.ErrorContains(t, b.Put(ctx, "acme", digest, []byte("other")), "another digest")
	require.NoError(t, b.Put(ctx, "acme", digest, content))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "T", "acme", digest), []byte("contenT"), 0o600))
	_, err := b.Get(ctx, "acme", digest)
	require.ErrorContains(t, err, "damaged")
}

func TestConcurrentPutsLeaveOneFile(t *testing.T) {
	b, dir := open(t)
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
	b, _ := open(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, b.Put(ctx, "acme", store.BlobDigest(content), content), context.Canceled)
	_, err := b.Get(ctx, "acme", store.BlobDigest(content))
	require.ErrorIs(t, err, context.Canceled)
}

func TestOpenRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := folder.Open(file)
	require.ErrorContains(t, err, "open blobs")
}
