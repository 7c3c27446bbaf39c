package s3

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/countersign/countersign/pkg/agent/store"
)

// uploadWithin is how long an upload is permitted; less where the credentials that sign it end sooner.
const uploadWithin = 15 * time.Minute

// Uploads is a store.Uploads for a bucket. Make one with NewUploads. Safe for concurrent use.
type Uploads struct {
	client *s3.PresignClient
	bucket string
}

var _ store.Uploads = (*Uploads)(nil)

// NewUploads makes an Uploads for a bucket. What the client's credentials may not put, nobody who uploads may: they need s3:PutObject.
func NewUploads(client *s3.Client, bucket string) *Uploads {
	return &Uploads{client: s3.NewPresignClient(client, s3.WithPresignExpires(uploadWithin)), bucket: bucket}
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
	signed, err := u.client.PresignPutObject(ctx, &s3.PutObjectInput{
		Bucket: &u.bucket, Key: &key, ContentLength: aws.Int64(size), ContentType: &mediaType, ChecksumSHA256: sum,
	})
	if err != nil {
		return store.Upload{}, fmt.Errorf("permit blob %s: %w", digest, err)
	}
	expires, err := expiry(signed.URL)
	if err != nil {
		return store.Upload{}, fmt.Errorf("permit blob %s: %w", digest, err)
	}
	return store.Upload{URL: signed.URL, Headers: headers(signed.SignedHeader), Expires: expires}, nil
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

// expiry is when a presigned URL ends, by its own word.
func expiry(presigned string) (time.Time, error) {
	u, err := url.Parse(presigned)
	if err != nil {
		return time.Time{}, fmt.Errorf("read the presigned URL: %w", err)
	}
	q := u.Query()
	at, err := time.Parse("20060102T150405Z", q.Get("X-Amz-Date"))
	if err != nil {
		return time.Time{}, fmt.Errorf("read the presigned URL's date: %w", err)
	}
	seconds, err := strconv.Atoi(q.Get("X-Amz-Expires"))
	if err != nil {
		return time.Time{}, fmt.Errorf("read the presigned URL's expiry: %w", err)
	}
	return at.Add(time.Duration(seconds) * time.Second), nil
}
