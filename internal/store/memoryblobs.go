package store

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
)

// MemoryBlobs is a store.Blobs and a store.Intake in memory. Make one with NewMemoryBlobs. Safe for concurrent use.
type MemoryBlobs struct {
	mu   sync.RWMutex
	data map[blobKey][]byte
}

type blobKey struct{ tenant, digest string }

var (
	_ Blobs  = (*MemoryBlobs)(nil)
	_ Intake = (*MemoryBlobs)(nil)
)

// nameOf is the name of a blob, while ctx has not ended.
func nameOf(ctx context.Context, tenant, digest string) (blobKey, error) {
	if !agent.ValidTenant(tenant) || !run.ValidDigest(digest) {
		return blobKey{}, fmt.Errorf("blob %q of tenant %q: want a SHA-256 in hex and a tenant's name: %w", digest, tenant, ErrInvalid)
	}
	return blobKey{tenant, digest}, ctx.Err()
}

// NewMemoryBlobs makes an empty store of blobs.
func NewMemoryBlobs() *MemoryBlobs { return &MemoryBlobs{data: map[blobKey][]byte{}} }

// Put implements store.Blobs.
func (b *MemoryBlobs) Put(ctx context.Context, tenant, digest string, data []byte) error {
	key, err := nameOf(ctx, tenant, digest)
	if err != nil {
		return err
	}
	if len(data) > MaxBlob {
		return fmt.Errorf("put blob %s: %w", digest, ErrBlobTooLarge)
	}
	if BlobDigest(data) != digest {
		return fmt.Errorf("put blob %s: %w", digest, ErrBlobContent)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.data[key] = slices.Clone(data)
	return nil
}

// PutFrom implements store.Intake.
func (b *MemoryBlobs) PutFrom(ctx context.Context, tenant, digest string, content io.Reader) error {
	data, err := io.ReadAll(io.LimitReader(content, MaxBlob+1))
	if err != nil {
		return fmt.Errorf("put blob %s: %w", digest, err)
	}
	return b.Put(ctx, tenant, digest, data)
}

// Get implements store.Blobs.
func (b *MemoryBlobs) Get(ctx context.Context, tenant, digest string) ([]byte, error) {
	key, err := nameOf(ctx, tenant, digest)
	if err != nil {
		return nil, err
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	data, ok := b.data[key]
	if !ok {
		return nil, fmt.Errorf("get blob %s: %w", digest, ErrNoBlob)
	}
	return slices.Clone(data), nil
}

// Size implements store.Blobs.
func (b *MemoryBlobs) Size(ctx context.Context, tenant, digest string) (int64, error) {
	key, err := nameOf(ctx, tenant, digest)
	if err != nil {
		return 0, err
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	data, ok := b.data[key]
	if !ok {
		return 0, fmt.Errorf("look for blob %s: %w", digest, ErrNoBlob)
	}
	return int64(len(data)), nil
}

// Names are the tenants and digests of all blobs, sorted: for whoever has to show that nothing was written.
func (b *MemoryBlobs) Names() []string {
	b.mu.RLock()
	defer b.mu.RUnlock()
	var out []string
	for k := range b.data {
		out = append(out, k.tenant+"/"+k.digest)
	}
	slices.Sort(out)
	return out
}

// Tenants lists every tenant that has a blob, sorted. It fails only with context errors.
func (b *MemoryBlobs) Tenants(ctx context.Context) ([]string, error) {
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

// All are copies of a tenant's blobs, by digest: for whoever compares or keeps them.
func (b *MemoryBlobs) All(tenant string) map[string][]byte {
	b.mu.RLock()
	defer b.mu.RUnlock()
	all := map[string][]byte{}
	for key, data := range b.data {
		if key.tenant == tenant {
			all[key.digest] = slices.Clone(data)
		}
	}
	return all
}
