package store_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/store"
)

func TestBlobs(t *testing.T) {
	ctx, b := context.Background(), store.NewMemoryBlobs()
	data := []byte("content")
	digest := store.BlobDigest(data)
	require.NoError(t, b.Put(ctx, "a", digest, data))
	require.NoError(t, b.Put(ctx, "a", digest, data), "put is idempotent")
	data[0] = 'X'
	got, err := b.Get(ctx, "a", digest)
	require.NoError(t, err)
	require.Equal(t, "content", string(got), "what was passed in is not kept")
	got[0] = 'Y'
	got, err = b.Get(ctx, "a", digest)
	require.NoError(t, err)
	require.Equal(t, "content", string(got), "what was returned is the caller's")
}

func TestBlobsRefuse(t *testing.T) {
	ctx, b := context.Background(), store.NewMemoryBlobs()
	digest := store.BlobDigest([]byte("content"))
	require.ErrorIs(t, b.Put(ctx, "a", digest, []byte("other")), store.ErrBlobContent)
	require.NoError(t, b.Put(ctx, "a", digest, []byte("content")))
	_, err := b.Get(ctx, "b", digest)
	require.ErrorIs(t, err, store.ErrNoBlob, "a reference resolves under its tenant only")
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err = b.Get(ended, "a", digest)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, b.Put(ended, "a", digest, []byte("content")), context.Canceled)
}
