package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
)

// ErrNoBlob says that the tenant has no blob of that digest.
var ErrNoBlob = errors.New("no such blob")

// Blobs keeps content that is too large for the journal, under its digest and its tenant. Put is idempotent and durable
// when it returns; a reference resolves under the caller's tenant only. Safe for concurrent use.
type Blobs interface {
	Put(ctx context.Context, tenant, digest string, data []byte) error
	Get(ctx context.Context, tenant, digest string) ([]byte, error) // ErrNoBlob; an error when the content does not fit the digest
}

// BlobDigest is the name of a blob: the SHA-256 of its content in hex.
func BlobDigest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
