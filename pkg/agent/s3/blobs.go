// Package s3 keeps blobs as objects of one S3 bucket: T/<tenant>/<digest>. An object is written once, under a condition, and never
// changed, so that everything may be sent again and nothing can be overwritten.
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
	"regexp"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/countersign/countersign/pkg/agent/store"
)

// MaxBlob is the largest blob, in bytes, that is put or read.
const MaxBlob = 64 << 20

// ErrTooLarge says that a blob has more than MaxBlob bytes.
var ErrTooLarge = errors.New("blob larger than 64 MiB")

// API is what is used of an *s3.Client of the SDK.
type API interface {
	PutObject(context.Context, *s3.PutObjectInput, ...func(*s3.Options)) (*s3.PutObjectOutput, error)
	GetObject(context.Context, *s3.GetObjectInput, ...func(*s3.Options)) (*s3.GetObjectOutput, error)
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

var (
	tenantName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,39}$`)
	digestName = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

func objectKey(tenant, digest string) (string, error) {
	if !tenantName.MatchString(tenant) || !digestName.MatchString(digest) {
		return "", fmt.Errorf("blob %q of tenant %q: want a SHA-256 in hex and a tenant's name: %w", digest, tenant, store.ErrInvalid)
	}
	return "T/" + tenant + "/" + digest, nil
}

// Put implements store.Blobs. It fails with store.ErrInvalid for a name that is none or content that is not the digest's, with
// ErrTooLarge, and with context errors. After any other error the blob may be there; to put it again is right.
func (b *Blobs) Put(ctx context.Context, tenant, digest string, data []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	key, err := objectKey(tenant, digest)
	if err != nil {
		return err
	}
	if len(data) > MaxBlob {
		return fmt.Errorf("put blob %s: %w", digest, ErrTooLarge)
	}
	if store.BlobDigest(data) != digest {
		return fmt.Errorf("put blob %s: its content has another digest: %w", digest, store.ErrInvalid)
	}
	sum, err := hex.DecodeString(digest)
	if err != nil {
		return fmt.Errorf("put blob %s: %w", digest, err)
	}
	_, err = b.api.PutObject(ctx, &s3.PutObjectInput{
		Bucket: &b.bucket, Key: &key, Body: bytes.NewReader(data), ContentLength: aws.Int64(int64(len(data))),
		IfNoneMatch: aws.String("*"), ChecksumSHA256: aws.String(base64.StdEncoding.EncodeToString(sum)),
	}, b.resend)
	if err != nil && !there(err) {
		return fmt.Errorf("put blob %s: %w", digest, err)
	}
	return nil
}

// there reports that the object exists, which is all a Put wants: by its name its content is the same.
func there(err error) bool {
	var response *awshttp.ResponseError
	return errors.As(err, &response) && response.HTTPStatusCode() == http.StatusPreconditionFailed
}

// Get implements store.Blobs. It fails with store.ErrNoBlob, store.ErrInvalid for a name that is none, ErrTooLarge, context errors, and
// an error for an object whose content is not what its name says.
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
		return nil, fmt.Errorf("get blob %s: %w", digest, err)
	}
	data, err := content(out)
	if err != nil {
		return nil, fmt.Errorf("get blob %s: %w", digest, err)
	}
	if store.BlobDigest(data) != digest {
		return nil, fmt.Errorf("get blob %s: the object is damaged", digest)
	}
	return data, nil
}

// content reads the object, at most MaxBlob bytes of it.
func content(out *s3.GetObjectOutput) ([]byte, error) {
	defer out.Body.Close()
	if aws.ToInt64(out.ContentLength) > MaxBlob {
		return nil, ErrTooLarge
	}
	data, err := io.ReadAll(io.LimitReader(out.Body, MaxBlob+1))
	if err != nil {
		return nil, err
	}
	if len(data) > MaxBlob {
		return nil, ErrTooLarge
	}
	return data, nil
}
