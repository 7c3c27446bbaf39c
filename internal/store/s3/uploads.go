package s3

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/countersign/countersign/internal/store"
)

// uploadWithin is how long an upload is permitted; less where the credentials that sign it end sooner.
const uploadWithin = 15 * time.Minute

// Uploads is a store.Uploads for a bucket. Make one with NewUploads. Safe for concurrent use.
type Uploads struct {
	client *Client
	bucket string
}

var _ store.Uploads = (*Uploads)(nil)

// NewUploads makes an Uploads for a bucket. What the client's credentials may not put, nobody who uploads may: they need s3:PutObject.
func NewUploads(client *Client, bucket string) *Uploads {
	return &Uploads{client: client, bucket: bucket}
}

// Presign implements store.Uploads. Length, type and SHA-256 are signed: S3 refuses another body, and a body that is cut short. To put
// the same again is allowed and changes nothing. It fails with store.ErrInvalid for a name that is none, and where there are no
// credentials.
func (u *Uploads) Presign(ctx context.Context, tenant, digest string, size int64, mediaType string) (store.Upload, error) {
	key, err := objectKey(tenant, digest)
	if err != nil {
		return store.Upload{}, err
	}
	sum, err := checksum(digest)
	if err != nil {
		return store.Upload{}, fmt.Errorf("permit blob %s: %w", digest, err)
	}
	h, err := u.client.build(ctx, request{
		method: http.MethodPut, bucket: u.bucket, key: key, query: url.Values{"X-Amz-Expires": {strconv.Itoa(int(uploadWithin.Seconds()))}},
	})
	if err != nil {
		return store.Upload{}, fmt.Errorf("permit blob %s: %w", digest, err)
	}
	h.ContentLength = size
	h.Header = http.Header{"Content-Type": {mediaType}, checksumHeader: {sum}}
	now := u.client.aws.Now().Truncate(time.Second) // as it is signed
	signed, header, err := u.client.aws.Presign(h, "UNSIGNED-PAYLOAD", now)
	if err != nil {
		return store.Upload{}, fmt.Errorf("permit blob %s: %w", digest, err)
	}
	return store.Upload{URL: signed, Headers: headers(header), Expires: now.Add(uploadWithin)}, nil
}

// headers are what the client has to send; the host it sends by itself.
func headers(signed http.Header) map[string]string {
	out := map[string]string{}
	for name := range signed {
		if name != "Host" {
			out[name] = signed.Get(name)
		}
	}
	return out
}
