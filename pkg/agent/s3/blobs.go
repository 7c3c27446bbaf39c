// Package s3 keeps blobs as objects of one S3 bucket: T/<tenant>/<digest>. An object is written once, under a condition, and never
// changed, so that everything may be sent again and nothing can be overwritten. A client that puts one itself (see Uploads) may put it
// twice: what it puts is bound to the digest.
package s3

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/countersign/countersign/pkg/agent"
	"github.com/countersign/countersign/pkg/agent/store"
)

// API is what is used of an *s3.Client of the SDK.
type API interface {
	PutObject(context.Context, *s3.PutObjectInput, ...func(*s3.Options)) (*s3.PutObjectOutput, error)
	GetObject(context.Context, *s3.GetObjectInput, ...func(*s3.Options)) (*s3.GetObjectOutput, error)
	HeadObject(context.Context, *s3.HeadObjectInput, ...func(*s3.Options)) (*s3.HeadObjectOutput, error)
	ListObjectsV2(context.Context, *s3.ListObjectsV2Input, ...func(*s3.Options)) (*s3.ListObjectsV2Output, error)
}

// Blobs is a store.Blobs in a bucket. Make one with New. Safe for concurrent use.
type Blobs struct {
	api    API
	bucket string
	resend func(*s3.Options)
}

var _ store.Blobs = (*Blobs)(nil)

// New makes a Blobs in a bucket that exists. Who reads it must be allowed to list it, too: otherwise S3 answers for an object that is
// not there that access is denied, which is not store.ErrNoBlob.
func New(client API, bucket string) *Blobs {
	r := retryer()
	return &Blobs{api: client, bucket: bucket, resend: func(o *s3.Options) { o.Retryer = r }}
}

func objectKey(tenant, digest string) (string, error) {
	if !agent.ValidTenant(tenant) || !agent.ValidDigest(digest) {
		return "", fmt.Errorf("blob %q of tenant %q: want a SHA-256 in hex and a tenant's name: %w", digest, tenant, store.ErrInvalid)
	}
	return "T/" + tenant + "/" + digest, nil
}

// checksum is a digest as S3 spells it.
func checksum(digest string) (*string, error) {
	sum, err := hex.DecodeString(digest)
	return aws.String(base64.StdEncoding.EncodeToString(sum)), err
}

// failed names what went wrong; store.ErrThrottled where S3 still asks for patience after all attempts.
func failed(what, digest string, err error) error {
	if throttled(err) {
		err = fmt.Errorf("%w: %w", store.ErrThrottled, err)
	}
	return fmt.Errorf("%s blob %s: %w", what, digest, err)
}

// throttled reports whether S3 asks for patience. An answer to HEAD has no code, only its status.
func throttled(err error) bool {
	codes := retry.ThrottleErrorCode{Codes: retry.DefaultThrottleErrorCodes}
	return codes.IsErrorThrottle(err) == aws.TrueTernary || status(err) == http.StatusServiceUnavailable
}

// status is the HTTP status of an answer that is an error; 0 = there was no answer.
func status(err error) int {
	var response *awshttp.ResponseError
	if !errors.As(err, &response) {
		return 0
	}
	return response.HTTPStatusCode()
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
	_, err = b.api.PutObject(ctx, &s3.PutObjectInput{
		Bucket: &b.bucket, Key: &key, Body: bytes.NewReader(data), ContentLength: aws.Int64(int64(len(data))),
		IfNoneMatch: aws.String("*"), ChecksumSHA256: sum,
	}, b.resend)
	if err != nil && status(err) != http.StatusPreconditionFailed { // it exists, which is all a Put wants: its name says what it is
		return failed("put", digest, err)
	}
	return nil
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
	out, err := b.api.GetObject(ctx, &s3.GetObjectInput{Bucket: &b.bucket, Key: &key}, b.resend)
	var none *types.NoSuchKey
	if errors.As(err, &none) {
		return nil, fmt.Errorf("get blob %s: %w", digest, store.ErrNoBlob)
	}
	if err != nil {
		return nil, failed("get", digest, err)
	}
	data, err := content(out)
	if err != nil {
		return nil, failed("get", digest, err)
	}
	if store.BlobDigest(data) != digest {
		return nil, fmt.Errorf("get blob %s: the object is damaged", digest)
	}
	return data, nil
}

// content reads the object, at most store.MaxBlob bytes of it.
func content(out *s3.GetObjectOutput) ([]byte, error) {
	defer out.Body.Close()
	size := aws.ToInt64(out.ContentLength)
	if size > store.MaxBlob {
		return nil, store.ErrBlobTooLarge
	}
	data := bytes.NewBuffer(make([]byte, 0, size+bytes.MinRead)) // or reading it would copy it several times
	if _, err := data.ReadFrom(io.LimitReader(out.Body, store.MaxBlob+1)); err != nil {
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
	out, err := b.api.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &b.bucket, Key: &key}, b.resend)
	switch {
	case err == nil:
		return aws.ToInt64(out.ContentLength), nil
	case status(err) == http.StatusNotFound:
		return 0, fmt.Errorf("look for blob %s: %w", digest, store.ErrNoBlob)
	default:
		return 0, failed("look for", digest, err)
	}
}
