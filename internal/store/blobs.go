package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"time"
)

// MaxBlob is the largest blob, in bytes, that any adapter takes.
const MaxBlob = 100_000_000

// The errors of blobs.
var (
	ErrNoBlob       = errors.New("no such blob")                                 // the tenant has no blob of that digest
	ErrBlobContent  = errors.New("the content is not what the digest says")      // nothing was stored
	ErrBlobTooLarge = errors.New("a blob has at most 100000000 bytes (MaxBlob)") // nothing was stored
)

// Blobs keeps content that is too large for the journal, under its digest and its tenant. Put is idempotent and durable
// when it returns; a reference resolves under the caller's tenant only. Safe for concurrent use.
//
// Errors beside those named below: context errors, ErrInvalid for a tenant or a digest that has not the form of one
// (see BlobDigest), ErrThrottled where the store asks for patience, and others that may pass.
type Blobs interface {
	Put(ctx context.Context, tenant, digest string, data []byte) error // ErrBlobContent, ErrBlobTooLarge
	// ErrNoBlob; an error when the content does not fit the digest
	Get(ctx context.Context, tenant, digest string) ([]byte, error)
	Size(ctx context.Context, tenant, digest string) (int64, error) // in bytes, without reading it; ErrNoBlob
}

// Intake takes a blob as a stream, with everything that Put promises: until it has been read to its end and fits its
// digest nobody can see it, and after an error nothing is left. Safe for concurrent use.
type Intake interface {
	// ErrBlobContent, ErrBlobTooLarge, content's own
	PutFrom(ctx context.Context, tenant, digest string, content io.Reader) error
}

// Uploads lets a client put a blob into the store itself. Safe for concurrent use.
type Uploads interface {
	// Presign permits one blob of that digest, size in bytes and media type to be put. It writes nothing.
	Presign(ctx context.Context, tenant, digest string, size int64, mediaType string) (Upload, error)
}

// Upload is a permission to PUT one blob at a URL, as often as one likes until it expires. Whoever has it needs no
// other.
type Upload struct {
	URL     string
	Headers map[string]string // which the request must carry, exactly; Content-Length is among them
	Expires time.Time         // zero = it does not
}

// BlobDigest is the name of a blob: the SHA-256 of its content in hex. No other spelling of it is a name.
func BlobDigest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
