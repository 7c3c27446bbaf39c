package memory

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/countersign/countersign/pkg/agent/store"
)

// Blobs is a store.Blobs in memory. Make one with NewBlobs. Safe for concurrent use.
type Blobs struct {
	mu   sync.RWMutex
	data map[blobKey][]byte
}

type blobKey struct{ tenant, digest string }

var _ store.Blobs = (*Blobs)(nil)

// NewBlobs makes an empty store of blobs.
func NewBlobs() *Blobs { return &Blobs{data: map[blobKey][]byte{}} }

// Put implements store.Blobs. It fails with store.ErrInvalid for content that is not the digest's, and with context errors.
func (b *Blobs) Put(ctx context.Context, tenant, digest string, data []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if store.BlobDigest(data) != digest {
		return fmt.Errorf("put blob %s: its content has another digest: %w", digest, store.ErrInvalid)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.data[blobKey{tenant, digest}] = slices.Clone(data)
	return nil
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

// Tenants lists every tenant that has a blob, sorted. It fails only with context errors.
func (b *Blobs) Tenants(ctx context.Context) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	var out []string
	for k := range b.data {
		out = append(out, k.tenant)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}
