package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/countersign/countersign/internal/agent"
)

// MemoryBlobs is a Blobs and an Intake in memory. Use NewMemoryBlobs to make one. Safe for concurrent use.
type MemoryBlobs struct {
	mu   sync.RWMutex
	data map[blobKey][]byte
}

type blobKey struct{ tenant, digest string }

// CheckBlob returns ctx's error if ctx has ended, or ErrInvalid for an invalid tenant or digest.
func CheckBlob(ctx context.Context, tenant, digest string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if !agent.ValidTenant(tenant) || !agent.ValidDigest(digest) {
		return fmt.Errorf("blob %q of tenant %q: want a SHA-256 in hex and a tenant's name: %w", digest, tenant, ErrInvalid)
	}
	return nil
}

// CheckPut does CheckBlob, and returns ErrBlobTooLarge or ErrBlobContent if data is not a blob of that digest.
func CheckPut(ctx context.Context, tenant, digest string, data []byte) error {
	err := CheckBlob(ctx, tenant, digest)
	switch {
	case err != nil:
		return err
	case len(data) > MaxBlob:
		return fmt.Errorf("put blob %s: %w", digest, ErrBlobTooLarge)
	case BlobDigest(data) != digest:
		return fmt.Errorf("put blob %s: %w", digest, ErrBlobContent)
	}
	return nil
}

// NewMemoryBlobs returns an empty store of blobs.
func NewMemoryBlobs() *MemoryBlobs { return &MemoryBlobs{data: map[blobKey][]byte{}} }

// Put implements store.Blobs.
func (b *MemoryBlobs) Put(ctx context.Context, tenant, digest string, data []byte) error {
	if err := CheckPut(ctx, tenant, digest, data); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.data[blobKey{tenant, digest}] = slices.Clone(data)
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
	if err := CheckBlob(ctx, tenant, digest); err != nil {
		return nil, err
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	data, ok := b.data[blobKey{tenant, digest}]
	if !ok {
		return nil, fmt.Errorf("get blob %s: %w", digest, ErrNoBlob)
	}
	return slices.Clone(data), nil
}

// Delete implements store.Blobs.
func (b *MemoryBlobs) Delete(ctx context.Context, tenant, digest string) error {
	if err := CheckBlob(ctx, tenant, digest); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.data, blobKey{tenant, digest})
	return nil
}

// Size implements store.Blobs.
func (b *MemoryBlobs) Size(ctx context.Context, tenant, digest string) (int64, error) {
	data, err := b.Get(ctx, tenant, digest)
	return int64(len(data)), err
}

// Names returns the tenants and digests of all blobs, sorted.
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

// Tenants returns every tenant that has a blob, sorted. It fails only with context errors.
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

// MaxBlob is the largest blob, in bytes, that any adapter accepts.
const MaxBlob = 100_000_000

// The errors of blobs.
var (
	ErrNoBlob       = errors.New("no such blob")                                 // the tenant has no blob of that digest
	ErrBlobContent  = errors.New("the content is not what the digest says")      // nothing was stored
	ErrBlobTooLarge = errors.New("a blob has at most 100000000 bytes (MaxBlob)") // nothing was stored
)

// Blobs stores content that is too large for the journal, by digest and tenant. Put is idempotent, and durable when it
// returns. A digest is resolved under the caller's tenant only. Safe for concurrent use.
//
// Further errors of all methods: context errors; ErrInvalid for an invalid tenant or digest (see BlobDigest);
// ErrThrottled if the store throttles; and others, after which a retry may succeed.
type Blobs interface {
	Put(ctx context.Context, tenant, digest string, data []byte) error // ErrBlobContent, ErrBlobTooLarge
	// ErrNoBlob; an error when the content does not fit the digest
	Get(ctx context.Context, tenant, digest string) ([]byte, error)
	Size(ctx context.Context, tenant, digest string) (int64, error) // in bytes, without reading the blob; ErrNoBlob
	Delete(ctx context.Context, tenant, digest string) error        // a missing blob is not an error
}

// Intake stores a blob from a stream, with the same promises as Put. Nobody can see the blob until the stream has ended
// and fits the digest. After an error nothing is left. Safe for concurrent use.
type Intake interface {
	// ErrBlobContent, ErrBlobTooLarge, content's own
	PutFrom(ctx context.Context, tenant, digest string, content io.Reader) error
}

// Uploads lets a client put a blob into the store directly. Safe for concurrent use.
type Uploads interface {
	// Presign permits the upload of one blob of that digest, size in bytes and media type. It writes nothing.
	Presign(ctx context.Context, tenant, digest string, size int64, mediaType string) (Upload, error)
}

// Upload is a permission to PUT one blob at a URL, any number of times until it expires. The holder needs no other
// permission.
type Upload struct {
	URL     string
	Headers map[string]string // exact headers that the request must have, including Content-Length
	Expires time.Time         // zero = it does not expire
}

// BlobDigest returns the name of a blob: the lower-case hex SHA-256 of its content. No other spelling is valid.
func BlobDigest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
