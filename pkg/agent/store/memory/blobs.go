package memory

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/countersign/countersign/pkg/agent/store"
)

// Blobs is a store.Blobs and a store.Intake in memory. Make one with NewBlobs. Safe for concurrent use.
type Blobs struct {
	mu   sync.RWMutex
	data map[blobKey][]byte
}

type blobKey struct{ tenant, digest string }

var (
	_ store.Blobs  = (*Blobs)(nil)
	_ store.Intake = (*Blobs)(nil)
)

// NewBlobs makes an empty store of blobs.
func NewBlobs() *Blobs { return &Blobs{data: map[blobKey][]byte{}} }

// Put implements store.Blobs.
func (b *Blobs) Put(ctx context.Context, tenant, digest string, data []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(data) > store.MaxBlob {
		return fmt.Errorf("put blob %s: %w", digest, store.ErrBlobTooLarge)
	}
	if store.BlobDigest(data) != digest {
		return fmt.Errorf("put blob %s: %w", digest, store.ErrBlobContent)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.data[blobKey{tenant, digest}] = slices.Clone(data)
	return nil
}

// PutFrom implements store.Intake.
func (b *Blobs) PutFrom(ctx context.Context, tenant, digest string, content io.Reader) error {
	data, err := io.ReadAll(io.LimitReader(content, store.MaxBlob+1))
	if err != nil {
		return fmt.Errorf("put blob %s: %w", digest, err)
	}
	return b.Put(ctx, tenant, digest, data)
}

// Get implements store.Blobs. It fails with store.ErrNoBlob and context errors.
func (b *Blobs) Get(ctx context.Context, tenant, digest string) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	data, ok := b.data[blobKey{tenant, digest}]
	if !ok {
		return nil, fmt.Errorf("get blob %s: %w", digest, store.ErrNoBlob)
	}
	return slices.Clone(data), nil
}

// Size implements store.Blobs. It fails with store.ErrNoBlob and context errors.
func (b *Blobs) Size(ctx context.Context, tenant, digest string) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	data, ok := b.data[blobKey{tenant, digest}]
	if !ok {
		return 0, fmt.Errorf("look for blob %s: %w", digest, store.ErrNoBlob)
	}
	return int64(len(data)), nil
}
