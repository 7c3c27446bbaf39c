// Package s3 stores blobs as objects of one S3 bucket: T/<tenant>/<digest>. An object is written once, under a
// condition, and never changed. So every request may be sent again, and nothing can be overwritten. A client that
// uploads a blob itself (see Presign) may do so twice, because the content is bound to the digest.
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
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/awssdk"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/store"
)

// uploadWithin is how long an upload is permitted, or less if the signing credentials expire earlier.
const uploadWithin = 15 * time.Minute

// tenantsPrefix begins every object's key; the tenant follows.
const tenantsPrefix = "T/"

// Blobs is a store.Blobs and a store.Uploads in a bucket. Use New to make one. Safe for concurrent use.
type Blobs struct {
	client *s3.Client
	bucket string
}

// New returns Blobs in an existing bucket. A reader also needs permission to list the bucket: otherwise S3 answers
// "access denied" for a missing object, which is not store.ErrNoBlob. If cfg names an endpoint, the bucket is part of
// the path.
func New(cfg aws.Config, bucket string) *Blobs {
	client := s3.NewFromConfig(cfg, func(o *s3.Options) {
		o.HTTPClient = awssdk.WithTimeout(o.HTTPClient, 26*time.Second) // enough for store.MaxBlob at 4 MB/s
		o.UsePathStyle = o.BaseEndpoint != nil
		// The digest is checked in both directions, so no further checksum is needed.
		o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
		// S3's answer to one of several concurrent conditional uploads of a key.
		o.Retryer = awssdk.Retryer("ConditionalRequestConflict")
	})
	return &Blobs{client: client, bucket: bucket}
}

func objectKey(tenant, digest string) *string {
	return aws.String(tenantsPrefix + tenant + "/" + digest)
}

// checksum returns a digest in S3's form. With it, S3 refuses a body that has another SHA-256.
func checksum(digest string) *string {
	sum, _ := hex.DecodeString(digest) // CheckBlob has checked that it is hex
	return aws.String(base64.StdEncoding.EncodeToString(sum))
}

// failed adds what failed to an error. It adds store.ErrThrottled if S3 still throttles after all attempts. A response
// to HEAD has a status but no code.
func failed(what string, err error) error {
	codes := retry.ThrottleErrorCode{Codes: retry.DefaultThrottleErrorCodes}
	if codes.IsErrorThrottle(err) == aws.TrueTernary || status(err) == http.StatusServiceUnavailable {
		err = fmt.Errorf("%w: %w", store.ErrThrottled, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// status returns the HTTP status of an error response; 0 = there was no response.
func status(err error) int {
	var response *smithyhttp.ResponseError
	if !errors.As(err, &response) {
		return 0
	}
	return response.HTTPStatusCode()
}

// Put implements store.Blobs. It also fails with store.ErrInvalid for an invalid name. After any other error that is
// not about the content, the blob may be stored, and Put may be repeated.
func (b *Blobs) Put(ctx context.Context, tenant, digest string, data []byte) error {
	if err := store.CheckPut(ctx, tenant, digest, data); err != nil {
		return err
	}
	_, err := b.client.PutObject(ctx, &s3.PutObjectInput{
		Bucket: &b.bucket, Key: objectKey(tenant, digest), Body: bytes.NewReader(data), IfNoneMatch: aws.String("*"),
		ChecksumSHA256: checksum(digest), ContentType: aws.String("application/octet-stream"),
	})
	if err != nil && status(err) != http.StatusPreconditionFailed { // 412 = the object exists already
		return failed("put blob "+digest, err)
	}
	return nil
}

// Get implements store.Blobs. It also fails with store.ErrInvalid for an invalid name, with store.ErrBlobTooLarge, and
// if the object's content does not fit its name.
func (b *Blobs) Get(ctx context.Context, tenant, digest string) ([]byte, error) {
	if err := store.CheckBlob(ctx, tenant, digest); err != nil {
		return nil, err
	}
	out, err := b.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &b.bucket, Key: objectKey(tenant, digest)})
	if _, ok := errors.AsType[*types.NoSuchKey](err); ok {
		return nil, fmt.Errorf("get blob %s: %w", digest, store.ErrNoBlob)
	}
	if err != nil {
		return nil, failed("get blob "+digest, err)
	}
	data, err := content(out)
	if err != nil {
		return nil, failed("get blob "+digest, err)
	}
	if store.BlobDigest(data) != digest {
		return nil, fmt.Errorf("get blob %s: the object is damaged", digest)
	}
	return data, nil
}

// content reads the object, at most store.MaxBlob bytes of it.
func content(out *s3.GetObjectOutput) ([]byte, error) {
	defer out.Body.Close()
	size := max(0, aws.ToInt64(out.ContentLength))
	if size > store.MaxBlob {
		return nil, store.ErrBlobTooLarge
	}
	data := bytes.NewBuffer(make([]byte, 0, size+bytes.MinRead)) // avoids copying while it grows
	if _, err := data.ReadFrom(io.LimitReader(out.Body, store.MaxBlob+1)); err != nil {
		return nil, err
	}
	if data.Len() > store.MaxBlob {
		return nil, store.ErrBlobTooLarge
	}
	return data.Bytes(), nil
}

// Delete implements store.Blobs. A versioned bucket keeps the content as long as its lifecycle rule says.
func (b *Blobs) Delete(ctx context.Context, tenant, digest string) error {
	if err := store.CheckBlob(ctx, tenant, digest); err != nil {
		return err
	}
	in := &s3.DeleteObjectInput{Bucket: &b.bucket, Key: objectKey(tenant, digest)}
	if _, err := b.client.DeleteObject(ctx, in); err != nil {
		return failed("delete blob "+digest, err)
	}
	return nil
}

// Size implements store.Blobs. It also fails with store.ErrInvalid for an invalid name. S3 does not say whether the
// object or the bucket is missing.
func (b *Blobs) Size(ctx context.Context, tenant, digest string) (int64, error) {
	if err := store.CheckBlob(ctx, tenant, digest); err != nil {
		return 0, err
	}
	out, err := b.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &b.bucket, Key: objectKey(tenant, digest)})
	switch {
	case err == nil && out.ContentLength == nil:
		return 0, fmt.Errorf("look for blob %s: S3 does not say how large it is", digest)
	case err == nil:
		return *out.ContentLength, nil
	case status(err) == http.StatusNotFound:
		return 0, fmt.Errorf("look for blob %s: %w", digest, store.ErrNoBlob)
	default:
		return 0, failed("look for blob "+digest, err)
	}
}

// Presign implements store.Uploads. Length, type and SHA-256 are signed, so S3 refuses another body and a truncated
// one. Uploading the same again is allowed and changes nothing. The client's credentials need s3:PutObject, since an
// upload has no more rights than they have. Presign fails with store.ErrInvalid for an invalid name, and without
// credentials.
func (b *Blobs) Presign(
	ctx context.Context, tenant, digest string, size int64, mediaType string,
) (store.Upload, error) {
	if err := store.CheckBlob(ctx, tenant, digest); err != nil {
		return store.Upload{}, err
	}
	expires := clock.System().Now().Truncate(time.Second).Add(uploadWithin) // S3 counts from the signature, in seconds
	presign := s3.NewPresignClient(b.client, s3.WithPresignExpires(uploadWithin))
	signed, err := presign.PresignPutObject(ctx, &s3.PutObjectInput{
		Bucket: &b.bucket, Key: objectKey(tenant, digest), ContentLength: &size, ContentType: &mediaType,
		ChecksumSHA256: checksum(digest),
	})
	if err != nil {
		return store.Upload{}, fmt.Errorf("permit blob %s: %w", digest, err)
	}
	headers := map[string]string{} // headers that the client has to send; it sends Host by itself
	for name := range signed.SignedHeader {
		if name != "Host" {
			headers[name] = signed.SignedHeader.Get(name)
		}
	}
	return store.Upload{URL: signed.URL, Headers: headers, Expires: expires}, nil
}

// Tenants returns every tenant that has a blob, sorted. It needs one request for a thousand tenants, however many blobs
// there are. A tenant is listed from its first blob on.
func (b *Blobs) Tenants(ctx context.Context) ([]string, error) {
	var all []string
	pages := s3.NewListObjectsV2Paginator(b.client, &s3.ListObjectsV2Input{
		Bucket: &b.bucket, Prefix: aws.String(tenantsPrefix), Delimiter: aws.String("/"),
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err == nil && aws.ToBool(page.IsTruncated) && aws.ToString(page.NextContinuationToken) == "" {
			err = errors.New("the list goes on, and does not say where")
		}
		if err != nil {
			return nil, failed("list tenants", err)
		}
		for _, p := range page.CommonPrefixes {
			tenant := strings.TrimSuffix(strings.TrimPrefix(aws.ToString(p.Prefix), tenantsPrefix), "/")
			if agent.ValidTenant(tenant) {
				all = append(all, tenant)
			}
		}
	}
	slices.Sort(all)
	return all, nil
}
