package s3

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/countersign/countersign/pkg/agent/clock"
)

// Times of one attempt, enough for store.MaxBlob at 4 MB/s, and how often and with what pause at most a request is sent.
const (
	attemptTimeout = 26 * time.Second
	connectTimeout = time.Second
	attempts       = 4
	backoff        = time.Second
)

// uploadConflict is S3's answer to one of several conditional uploads of a key at the same time: it wants to be asked again.
const uploadConflict = "ConditionalRequestConflict"

// askFirst is from how many bytes on S3 is asked whether it takes a body before that is sent, as the SDK does.
const askFirst = 2 << 20

// service is S3's name in signatures.
const service = "s3"

// Client makes the few requests to S3 that are made here, with the SDK's own signatures, retries, transport and errors. It is ours
// because the SDK's client for all of S3 is a tenth of a function's bootstrap (ADR 15). Make one with NewClient. Safe for concurrent use.
//
// The machine's clock is trusted: where it is wrong by more than a quarter of an hour, S3 refuses every request with RequestTimeTooSkewed.
type Client struct {
	http        aws.HTTPClient
	place       place
	misplaced   error // why place is none
	region      string
	credentials aws.CredentialsProvider
	signer      *v4.Signer
	retryer     aws.RetryerV2
	clock       clock.Clock
}

// NewClient makes a client whose attempts take 26 s at most, 1 s of it for connecting. An endpoint that is not empty, as
// http://127.0.0.1:9000, stands in for AWS, and so does one that cfg names; buckets are then part of the path. An HTTP client in cfg that
// is not the SDK's own is kept as it is, timeouts and redirects included. A configuration without a region or credentials makes
// every request fail.
func NewClient(cfg aws.Config, endpoint string) *Client {
	c := &Client{
		http: timed(cfg.HTTPClient), region: cfg.Region, credentials: cfg.Credentials, clock: clock.System(), retryer: retryer(),
		signer: v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true }), // S3 signs a path as it is
	}
	c.place, c.misplaced = placeOf(cfg, endpoint)
	return c
}

// timed is the SDK's client with our timeouts, and without its redirects: S3 redirects nobody who asks in the right region, and
// what is signed for one host is no other's.
func timed(c aws.HTTPClient) aws.HTTPClient {
	if c == nil {
		c = awshttp.NewBuildableClient()
	}
	b, ok := c.(*awshttp.BuildableClient)
	if !ok {
		return c
	}
	b = b.WithDialerOptions(func(d *net.Dialer) { d.Timeout = connectTimeout })
	return &http.Client{
		Transport: b.GetTransport(), Timeout: attemptTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// retryer resends whatever may go better: a Put is the same however often it is done.
func retryer() aws.RetryerV2 {
	conflict := retry.RetryableErrorCode{Codes: map[string]struct{}{uploadConflict: {}}}
	return retry.NewStandard(func(o *retry.StandardOptions) {
		o.MaxAttempts, o.MaxBackoff = attempts, backoff
		o.Retryables = append(o.Retryables, conflict)
	})
}

// request is one of ours, as it is made anew for each attempt.
type request struct {
	method, bucket, key string
	query               url.Values
	header              http.Header
	body                []byte
	sha256              string // of the body, in hex, or v4's word for a body that is not signed
}

// do sends a request until it succeeds, cannot, or has been sent often enough. What is not a 2xx is an error; its answer is closed.
func (c *Client) do(ctx context.Context, r request) (*http.Response, error) {
	for attempt := 1; ; attempt++ {
		release, err := c.retryer.GetAttemptToken(ctx)
		if err != nil {
			return nil, err
		}
		resp, err := c.send(ctx, r)
		_ = release(err) // the SDK's returns none: it counts what went well
		if err == nil {
			return resp, nil
		}
		if attempt == c.retryer.MaxAttempts() || !c.retryer.IsErrorRetryable(err) {
			return nil, err
		}
		if !c.pause(ctx, attempt, err) {
			return nil, err
		}
	}
}

// pause waits before the next attempt. It reports whether there is to be one: not where too much has failed lately, nor where ctx ends.
func (c *Client) pause(ctx context.Context, attempt int, failure error) bool {
	if _, err := c.retryer.GetRetryToken(ctx, failure); err != nil {
		return false
	}
	delay, err := c.retryer.RetryDelay(attempt, failure)
	return err == nil && c.clock.Sleep(ctx, delay) == nil
}

// send makes one attempt.
func (c *Client) send(ctx context.Context, r request) (*http.Response, error) {
	h, err := c.build(ctx, r)
	if err != nil {
		return nil, err
	}
	keys, err := c.keys(ctx)
	if err != nil {
		return nil, err
	}
	h.Header.Set("X-Amz-Content-Sha256", r.sha256)
	if err := c.signer.SignHTTP(ctx, keys, h, r.sha256, service, c.region, c.clock.Now()); err != nil {
		return nil, fmt.Errorf("sign the request: %w", err)
	}
	resp, err := c.http.Do(h)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, &smithy.CanceledError{Err: err}
	case err != nil:
		return nil, &smithyhttp.RequestSendError{Err: err}
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		return nil, refusal(resp)
	default:
		return resp, nil
	}
}

// build makes the request itself, unsigned.
func (c *Client) build(ctx context.Context, r request) (*http.Request, error) {
	if c.misplaced != nil {
		return nil, c.misplaced
	}
	target, err := c.place.of(r.bucket, r.key)
	if err != nil {
		return nil, err
	}
	if len(r.query) > 0 {
		target += "?" + r.query.Encode()
	}
	h, err := http.NewRequestWithContext(ctx, r.method, target, bytes.NewReader(r.body))
	if err != nil {
		return nil, err
	}
	for name, values := range r.header {
		h.Header[name] = values
	}
	h.Header.Set("User-Agent", "countersign")
	h.Header.Set("Accept-Encoding", "identity") // or the transport would ask for gzip, and an answer have no length
	if len(r.body) >= askFirst {
		h.Header.Set("Expect", "100-continue")
	}
	return h, nil
}

// keys are what a request is signed with.
func (c *Client) keys(ctx context.Context) (aws.Credentials, error) {
	if c.credentials == nil {
		return aws.Credentials{}, fmt.Errorf("sign the request: want credentials, got none")
	}
	keys, err := c.credentials.Retrieve(ctx)
	if err != nil {
		return aws.Credentials{}, fmt.Errorf("sign the request: %w", err)
	}
	return keys, nil
}
