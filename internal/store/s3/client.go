package s3

import (
	"bytes"
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/countersign/countersign/internal/aws/awshttp"
)

// Times of one attempt, enough for store.MaxBlob at 4 MB/s, and how often and with what pause at most a request is sent.
const (
	attemptTimeout = 26 * time.Second
	attempts       = 4
	backoff        = time.Second
)

// uploadConflict is S3's answer to one of several conditional uploads of a key at the same time: it wants to be asked again.
const uploadConflict = "ConditionalRequestConflict"

// askFirst is from how many bytes on S3 is asked whether it takes a body before that is sent, as the SDK does.
const askFirst = 2 << 20

// service is S3's name in signatures.
const service = "s3"

// Client makes the few requests to S3 that are made here. It is ours because the SDK's client for all of S3 is a tenth of a function's
// bootstrap (ADR 15). Make one with NewClient. Safe for concurrent use.
//
// The machine's clock is trusted: where it is wrong by more than a quarter of an hour, S3 refuses every request with RequestTimeTooSkewed.
type Client struct {
	aws       *awshttp.Client
	place     place
	misplaced error // why place is none
}

// NewClient makes a client whose attempts take 26 s at most, 1 s of it for connecting. An endpoint that is not empty, as
// http://127.0.0.1:9000, stands in for AWS, and so does one that cfg names; buckets are then part of the path. An HTTP client in cfg that
// is not the SDK's own is kept as it is, timeouts and redirects included. A configuration without a region or credentials makes
// every request fail.
func NewClient(cfg aws.Config, endpoint string) *Client {
	c := &Client{aws: awshttp.New(cfg, awshttp.Options{
		Service: service, Timeout: attemptTimeout, Attempts: attempts, Backoff: backoff, Again: []string{uploadConflict}, Verbatim: true,
	})}
	c.place, c.misplaced = placeOf(cfg, endpoint)
	return c
}

// request is one of ours, as it is made anew for each attempt.
type request struct {
	method, bucket, key string
	query               url.Values
	header              http.Header
	body                []byte
	sha256              string // of the body, in hex, or v4's word for a body that is not signed
}

// do sends a request until it succeeds, cannot, or has been sent often enough: a Put is the same however often it is done. What is not a 2xx
// is an error; its answer is closed.
func (c *Client) do(ctx context.Context, r request) (resp *http.Response, err error) {
	err = c.aws.Try(ctx, func() (failed error) {
		resp, failed = c.send(ctx, r) //nolint:bodyclose // one that failed is closed, the other is the caller's
		return failed
	}, nil)
	return resp, err
}

// send makes one attempt.
func (c *Client) send(ctx context.Context, r request) (*http.Response, error) {
	h, err := c.build(ctx, r)
	if err != nil {
		return nil, err
	}
	h.Header.Set("X-Amz-Content-Sha256", r.sha256)
	resp, err := c.aws.Send(h, r.sha256)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return nil, refusal(resp)
	}
	return resp, nil
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
	h.Header.Set("Accept-Encoding", "identity") // or the transport would ask for gzip, and an answer have no length
	if len(r.body) >= askFirst {
		h.Header.Set("Expect", "100-continue")
	}
	return h, nil
}
