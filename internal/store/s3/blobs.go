// Package s3 keeps blobs as objects of one S3 bucket: T/<tenant>/<digest>. An object is written once, under a
// condition, and never changed, so that every request may be sent again and nothing can be overwritten. A client that
// puts a blob itself (see Presign) may put it twice: what it puts is bound to the digest.
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

// uploadWithin is how long an upload is permitted; less where the credentials that sign it end sooner.
const uploadWithin = 15 * time.Minute

// tenantsPrefix is what every object's key begins with, before its tenant.
const tenantsPrefix = "T/"

// Blobs is a store.Blobs and a store.Uploads in a bucket. Make one with New. Safe for concurrent use.
type Blobs struct {
	client *s3.Client
	bucket string
}

// New makes a Blobs in a bucket that exists. Who reads it must be allowed to list it, too: otherwise S3 answers for
// an object that is not there that access is denied, which is not store.ErrNoBlob. Where cfg names an endpoint, the
// bucket is part of the path.
func New(cfg aws.Config, bucket string) *Blobs {
	client := s3.NewFromConfig(cfg, func(o *s3.Options) {
		o.HTTPClient = awssdk.WithTimeout(o.HTTPClient, 26*time.Second) // enough for store.MaxBlob at 4 MB/s
		o.UsePathStyle = o.BaseEndpoint != nil
		// The digest is checked in both directions; a second checksum would guard nothing.
		o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
		// S3's answer to one of several conditional uploads of a key at the same time.
		o.Retryer = awssdk.Retryer("ConditionalRequestConflict")
	})
	return &Blobs{client: client, bucket: bucket}
}

func objectKey(tenant, digest string) *string {
	return aws.String(tenantsPrefix + tenant + "/" + digest)
}

// checksum is a digest as S3 spells it. A request that carries it makes S3 refuse a body that has another SHA-256.
func checksum(digest string) *string {
	sum, _ := hex.DecodeString(digest) // CheckBlob has seen that it is hex
	return aws.String(base64.StdEncoding.EncodeToString(sum))
}

// failed names what went wrong with which object; store.ErrThrottled where S3 still asks for patience after all
// attempts. An answer to HEAD has no code, only its status.
func failed(what string, err error) error {
	codes := retry.ThrottleErrorCode{Codes: retry.DefaultThrottleErrorCodes}
	if codes.IsErrorThrottle(err) == aws.TrueTernary || status(err) == http.StatusServiceUnavailable {
		err = fmt.Errorf("%w: %w", store.ErrThrottled, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// status is the HTTP status of an answer that is an error; 0 = there was no answer.
func status(err error) int {
	var response *smithyhttp.ResponseError
	if !errors.As(err, &response) {
		return 0
	}
	return response.HTTPStatusCode()
}

// Put implements store.Blobs. It fails with store.ErrInvalid for a name that is none, too. After an error that is
// neither that nor one of the content the blob may be there; to put it again is right.
func (b *Blobs) Put(ctx context.Context, tenant, digest string, data []byte) error {
	if err := store.CheckPut(ctx, tenant, digest, data); err != nil {
		return err
	}
	_, err := b.client.PutObject(ctx, &s3.PutObjectInput{
		Bucket: &b.bucket, Key: objectKey(tenant, digest), Body: bytes.NewReader(data), IfNoneMatch: aws.String("*"),
		ChecksumSHA256: checksum(digest), ContentType: aws.String("application/octet-stream"),
	})
	if err != nil && status(err) != http.StatusPreconditionFailed { // an object of that name is there: nothing is to do
		return failed("put blob "+digest, err)
	}
	return nil
}

// Get implements store.Blobs. It fails with store.ErrInvalid for a name that is none, store.ErrBlobTooLarge, and an
// error for an object whose content is not what its name says, too.
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
	data := bytes.NewBuffer(make([]byte, 0, size+bytes.MinRead)) // or reading it would copy it several times
	if _, err := data.ReadFrom(io.LimitReader(out.Body, store.MaxBlob+1)); err != nil {
		return nil, err
	}
	if data.Len() > store.MaxBlob {
		return nil, store.ErrBlobTooLarge
	}
	return data.Bytes(), nil
}

// Delete implements store.Blobs. A bucket with versions keeps the content as long as its rule says.
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

// Size implements store.Blobs. It fails with store.ErrInvalid for a name that is none, too. S3 does not say whether
// it is the object or the bucket that is not there.
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

// Presign implements store.Uploads. Length, type and SHA-256 are signed: S3 refuses another body, and a body that is
// cut short. To put the same again is allowed and changes nothing. What the client's credentials may not put, nobody
// who uploads may: they need s3:PutObject. It fails with store.ErrInvalid for a name that is none, and where there
// are no credentials.
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
	headers := map[string]string{} // those that the client has to send; the host it sends by itself
	for name := range signed.SignedHeader {
		if name != "Host" {
			headers[name] = signed.SignedHeader.Get(name)
		}
	}
	return store.Upload{URL: signed.URL, Headers: headers, Expires: expires}, nil
}

// Tenants lists every tenant that has a blob, sorted: one request a thousand tenants, however many blobs there are. A
// tenant is listed from its first blob on.
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
