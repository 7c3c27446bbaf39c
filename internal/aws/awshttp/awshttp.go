// Package awshttp makes single requests to services of AWS, with the SDK's own signatures, retries, transport and errors. It is for adapters
// that need a few operations of a service: the SDK's client for all of them would be a tenth of a function's bootstrap (ADR 15).
package awshttp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	awstransport "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/countersign/countersign/internal/clock"
)

// connectTimeout is how long connecting may take.
const connectTimeout = time.Second

// Options are what a service is asked with. Service is required.
type Options struct {
	Service  string        // its name in signatures, as "events"
	Timeout  time.Duration // of one attempt with its answer; 0 = as long as the request's context
	Attempts int           // how often a request is sent at most; 0 = the SDK's three
	Backoff  time.Duration // the longest pause between attempts; 0 = the SDK's 20 s
	Again    []string      // codes after which a request is sent again, beside those that the SDK knows
	// LeaveThrottling says that throttling is not waited out here but reported at once.
	LeaveThrottling bool
	Verbatim        bool        // a path is signed as it is, which is what S3 wants; otherwise escaped
	Clock           clock.Clock // signs and pauses; nil = the system's
}

// Client asks one service. Make one with New. Safe for concurrent use.
//
// The clock is trusted: where it is wrong by more than a quarter of an hour, AWS refuses every request.
type Client struct {
	http            aws.HTTPClient
	service, region string
	credentials     aws.CredentialsProvider
	signer          *v4.Signer
	retryer         aws.RetryerV2
	clock           clock.Clock
}

// New makes a client with the region and the credentials of cfg. An HTTP client in cfg that is not the SDK's own is kept as it is, timeouts
// and redirects included. Its retryer is not asked: a service's retries are o's, in cfg's mode. A configuration without credentials makes
// every request fail.
func New(cfg aws.Config, o Options) *Client {
	c := &Client{
		http: transport(cfg.HTTPClient, o.Timeout), service: o.Service, region: cfg.Region, credentials: cfg.Credentials,
		signer: v4.NewSigner(func(s *v4.SignerOptions) { s.DisableURIPathEscaping = o.Verbatim }), retryer: retryer(cfg.RetryMode, o), clock: o.Clock,
	}
	if c.clock == nil {
		c.clock = clock.System()
	}
	return c
}

// transport is the SDK's client with our timeouts and without redirects: what is signed for one host is no other's.
func transport(c aws.HTTPClient, timeout time.Duration) aws.HTTPClient {
	if c == nil {
		c = awstransport.NewBuildableClient()
	}
	b, ok := c.(*awstransport.BuildableClient)
	if !ok {
		return c
	}
	b = b.WithDialerOptions(func(d *net.Dialer) { d.Timeout = connectTimeout })
	return &http.Client{
		Transport: b.GetTransport(), Timeout: timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func retryer(mode aws.RetryMode, o Options) aws.RetryerV2 {
	standard := func(s *retry.StandardOptions) {
		if o.Attempts > 0 {
			s.MaxAttempts = o.Attempts
		}
		if o.Backoff > 0 {
			s.MaxBackoff = o.Backoff
		}
		if o.LeaveThrottling {
			s.Retryables = []retry.IsErrorRetryable{
				retry.NoRetryCanceledError{}, retry.RetryableError{}, retry.RetryableConnectionError{},
				retry.RetryableHTTPStatusCode{Codes: retry.DefaultRetryableHTTPStatusCodes},
				retry.RetryableErrorCode{Codes: retry.DefaultRetryableErrorCodes},
			}
		}
		codes := map[string]struct{}{}
		for _, code := range o.Again {
			codes[code] = struct{}{}
		}
		s.Retryables = append(s.Retryables, retry.RetryableErrorCode{Codes: codes})
	}
	if mode == aws.RetryModeAdaptive {
		return retry.NewAdaptiveMode(func(a *retry.AdaptiveModeOptions) { a.StandardOptions = append(a.StandardOptions, standard) })
	}
	return retry.NewStandard(standard)
}

// Try calls attempt until it succeeds, fails so that another makes no sense, or has been called often enough, with pauses in between. It
// returns what the last attempt did. again says which failures may pass; nil = the SDK does, and ends it, too, where too much has failed lately.
func (c *Client) Try(ctx context.Context, attempt func() error, again func(error) bool) error {
	if again == nil {
		again = func(err error) bool { return c.passes(ctx, err) }
	}
	for n := 1; ; n++ {
		release, err := c.retryer.GetAttemptToken(ctx)
		if err != nil {
			return err
		}
		err = attempt()
		_ = release(err) // the SDK's returns none: it counts what went well
		if err == nil || n == c.retryer.MaxAttempts() || !again(err) {
			return err
		}
		delay, tooMany := c.retryer.RetryDelay(n, err)
		if tooMany != nil || c.clock.Sleep(ctx, delay) != nil {
			return err
		}
	}
}

// passes reports whether a failure may pass, and there may be one more attempt.
func (c *Client) passes(ctx context.Context, failure error) bool {
	if !c.retryer.IsErrorRetryable(failure) {
		return false
	}
	_, refused := c.retryer.GetRetryToken(ctx, failure)
	return refused == nil
}

// Send signs a request and sends it once. sum is the SHA-256 of its body, in hex. Every answer is one, whatever its status; the caller closes
// it. Where there is none the error is the SDK's for that, *smithy.CanceledError where the request's context has ended.
func (c *Client) Send(r *http.Request, sum string) (*http.Response, error) {
	keys, err := c.keys(r.Context())
	if err != nil {
		return nil, err
	}
	r.Header.Set("User-Agent", "countersign")
	if err := c.signer.SignHTTP(r.Context(), keys, r, sum, c.service, c.region, c.clock.Now()); err != nil {
		return nil, fmt.Errorf("sign the request: %w", err)
	}
	resp, err := c.http.Do(r)
	switch {
	case err != nil && r.Context().Err() != nil:
		return nil, &smithy.CanceledError{Err: err}
	case err != nil:
		return nil, &smithyhttp.RequestSendError{Err: err}
	}
	return resp, nil
}

// Presign is a URL with which anybody may make a request for as long as its query says from at on, and the headers that have to be sent with it.
func (c *Client) Presign(r *http.Request, sum string, at time.Time) (url string, signed http.Header, err error) {
	keys, err := c.keys(r.Context())
	if err != nil {
		return "", nil, err
	}
	return c.signer.PresignHTTP(r.Context(), keys, r, sum, c.service, c.region, at)
}

// Now is the time by which the client signs.
func (c *Client) Now() time.Time { return c.clock.Now() }

// keys are what a request is signed with.
func (c *Client) keys(ctx context.Context) (aws.Credentials, error) {
	if c.credentials == nil {
		return aws.Credentials{}, errors.New("sign the request: want credentials, got none")
	}
	keys, err := c.credentials.Retrieve(ctx)
	if err != nil {
		return aws.Credentials{}, fmt.Errorf("sign the request: %w", err)
	}
	return keys, nil
}
