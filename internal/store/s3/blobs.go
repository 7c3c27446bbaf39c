// Package s3 keeps blobs as objects of one S3 bucket: T/<tenant>/<digest>. An object is written once, under a condition, and never
// changed, so that everything may be sent again and nothing can be overwritten. A client that puts one itself (see Uploads) may put it
// twice: what it puts is bound to the digest.
package s3

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/store"
)

// checksumHeader makes S3 refuse a body that has another SHA-256.
const checksumHeader = "X-Amz-Checksum-Sha256"

// ofNothing is the SHA-256 of no body.
const ofNothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// Blobs is a store.Blobs in a bucket. Make one with New. Safe for concurrent use.
type Blobs struct {
	client *Client
	bucket string
}

var _ store.Blobs = (*Blobs)(nil)

// New makes a Blobs in a bucket that exists. Who reads it must be allowed to list it, too: otherwise S3 answers for an object that is
// not there that access is denied, which is not store.ErrNoBlob.
func New(client *Client, bucket string) *Blobs { return &Blobs{client: client, bucket: bucket} }

func objectKey(tenant, digest string) (string, error) {
	if !agent.ValidTenant(tenant) || !agent.ValidDigest(digest) {
		return "", fmt.Errorf("blob %q of tenant %q: want a SHA-256 in hex and a tenant's name: %w", digest, tenant, store.ErrInvalid)
	}
	return "T/" + tenant + "/" + digest, nil
}

// checksum is a digest as S3 spells it.
func checksum(digest string) (string, error) {
	sum, err := hex.DecodeString(digest)
	return base64.StdEncoding.EncodeToString(sum), err
}

// failed names what went wrong; store.ErrThrottled where S3 still asks for patience after all attempts.
func failed(what, digest string, err error) error {
	if throttled(err) {
		err = fmt.Errorf("%w: %w", store.ErrThrottled, err)
	}
	return fmt.Errorf("%s blob %s: %w", what, digest, err)
}

// Put implements store.Blobs. It fails with store.ErrInvalid for a name that is none, too. After an error that is neither that nor one
// of the content the blob may be there; to put it again is right.
func (b *Blobs) Put(ctx context.Context, tenant, digest string, data []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	key, err := objectKey(tenant, digest)
	if err != nil {
		return err
	}
	if len(data) > store.MaxBlob {
		return fmt.Errorf("put blob %s: %w", digest, store.ErrBlobTooLarge)
	}
	if store.BlobDigest(data) != digest {
		return fmt.Errorf("put blob %s: %w", digest, store.ErrBlobContent)
	}
	sum, err := checksum(digest)
	if err != nil {
		return fmt.Errorf("put blob %s: %w", digest, err)
	}
	resp, err := b.client.do(ctx, request{
		method: http.MethodPut, bucket: b.bucket, key: key, body: data, sha256: digest,
		header: http.Header{"If-None-Match": {"*"}, checksumHeader: {sum}, "Content-Type": {"application/octet-stream"}},
	})
	switch {
	case err == nil:
		drain(resp)
		return nil
	case status(err) == http.StatusPreconditionFailed: // it exists, which is all a Put wants: its name says what it is
		return nil
	default:
		return failed("put", digest, err)
	}
}

// Get implements store.Blobs. It fails with store.ErrInvalid for a name that is none, store.ErrBlobTooLarge, and an error for an object
// whose content is not what its name says, too.
func (b *Blobs) Get(ctx context.Context, tenant, digest string) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	key, err := objectKey(tenant, digest)
	if err != nil {
		return nil, err
	}
	resp, err := b.client.do(ctx, request{method: http.MethodGet, bucket: b.bucket, key: key, sha256: ofNothing})
	if code(err) == "NoSuchKey" {
		return nil, fmt.Errorf("get blob %s: %w", digest, store.ErrNoBlob)
	}
	if err != nil {
		return nil, failed("get", digest, err)
	}
	data, err := content(resp)
	if err != nil {
		return nil, failed("get", digest, err)
	}
	if store.BlobDigest(data) != digest {
		return nil, fmt.Errorf("get blob %s: the object is damaged", digest)
	}
	return data, nil
}

// content reads the object, at most store.MaxBlob bytes of it.
func content(resp *http.Response) ([]byte, error) {
	defer resp.Body.Close()
	size := max(0, resp.ContentLength)
	if size > store.MaxBlob {
		return nil, store.ErrBlobTooLarge
	}
	data := bytes.NewBuffer(make([]byte, 0, size+bytes.MinRead)) // or reading it would copy it several times
	if _, err := data.ReadFrom(io.LimitReader(resp.Body, store.MaxBlob+1)); err != nil {
		return nil, err
	}
	if data.Len() > store.MaxBlob {
		return nil, store.ErrBlobTooLarge
	}
	return data.Bytes(), nil
}

// Size implements store.Blobs. It fails with store.ErrInvalid for a name that is none, too. S3 does not say whether it is the object or
// the bucket that is not there.
func (b *Blobs) Size(ctx context.Context, tenant, digest string) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	key, err := objectKey(tenant, digest)
	if err != nil {
		return 0, err
	}
	resp, err := b.client.do(ctx, request{method: http.MethodHead, bucket: b.bucket, key: key, sha256: ofNothing})
	switch {
	case err == nil:
		drain(resp)
		if resp.ContentLength < 0 {
			return 0, fmt.Errorf("look for blob %s: S3 does not say how large it is", digest)
		}
		return resp.ContentLength, nil
	case status(err) == http.StatusNotFound:
		return 0, fmt.Errorf("look for blob %s: %w", digest, store.ErrNoBlob)
	default:
		return 0, failed("look for", digest, err)
	}
}
