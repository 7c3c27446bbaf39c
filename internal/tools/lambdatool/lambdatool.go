// Package lambdatool carries out calls of tools that are functions of AWS Lambda.
//
// A function is invoked with an agent.FunctionCall as JSON. One that is waited for gives its result as JSON: an object of text, json,
// error, media, suspend and patch, or any other value, which is its text (see read). One that answers later only takes the call
// (ADR 26). Client is the runtime.Functions, Remote the runtime.Remote.
package lambdatool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/countersign/countersign/internal/aws/awshttp"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/tool"
)

// How long it may take until a function has taken a call, and how often and with what pause at most a call is sent.
const (
	takeTimeout = 8 * time.Second
	attempts    = 4
	backoff     = time.Second
)

// What Lambda takes and gives at most, in bytes: 6 MB where it is waited for, either way, and 1 MB where it is not.
const (
	maxSync    = 6_291_556
	maxAsync   = 1 << 20
	maxRefusal = 64 << 10
)

// service is Lambda's name in signatures.
const service = "lambda"

// Client invokes functions, a runtime.Functions. Make one with New. Safe for concurrent use.
type Client struct {
	url     string
	unready bool // there is no region or are no credentials
	aws     *awshttp.Client
	clock   clock.Clock
}

// New makes a client of the functions at endpoint: Endpoint gives AWS' own. An HTTP client in cfg that is not the SDK's own is kept as it
// is. How long an answer may take is its context's to say: a function may run for minutes. A configuration without a region or credentials
// makes every Invoke fail.
func New(cfg aws.Config, endpoint string) *Client {
	return &Client{
		url: strings.TrimSuffix(endpoint, "/") + "/2015-03-31/functions/", unready: cfg.Credentials == nil || cfg.Region == "",
		aws: awshttp.New(cfg, awshttp.Options{Service: service, Attempts: attempts, Backoff: backoff}), clock: clock.System(),
	}
}

// Endpoint is where Lambda is in a region.
func Endpoint(region string, fips, dualStack bool) string {
	return awshttp.Endpoint(service, region, fips, dualStack)
}

// Invoke implements runtime.Functions. It sends again what was not taken and may be taken later, as after throttling; and what may have
// been taken, unless i is to be invoked once.
func (c *Client) Invoke(ctx context.Context, i runtime.Invoke) (runtime.Invoked, error) {
	limit := maxSync
	if i.Async {
		limit = maxAsync
	}
	if n := len(i.Payload); n > limit {
		return runtime.Invoked{}, fmt.Errorf("%w: it has %d bytes, and a function takes at most %d", runtime.ErrUndeliverable, n, limit)
	}
	var out runtime.Invoked
	err := c.aws.Try(ctx, func() (failed error) {
		out, failed = c.attempt(ctx, i)
		return failed
	}, func(err error) bool { return ctx.Err() == nil && again(err, i.Once) })
	if err != nil {
		return runtime.Invoked{}, fmt.Errorf("invoke function %s: %w", i.Function, err)
	}
	return out, nil
}

// again reports whether a call that failed so is to be sent again.
func again(err error, once bool) bool {
	var lost *tool.LostError
	if errors.As(err, &lost) {
		return !once
	}
	var r *refusal
	return !errors.Is(err, runtime.ErrUndeliverable) && (errors.Is(err, errUnreached) || errors.As(err, &r) && r.passes)
}

// errUnreached says that nothing was sent.
var errUnreached = errors.New("AWS Lambda cannot be reached")

// attempt makes one attempt.
func (c *Client) attempt(ctx context.Context, i runtime.Invoke) (runtime.Invoked, error) {
	if i.Async {
		var cancel context.CancelFunc
		ctx, cancel = c.clock.WithTimeout(ctx, takeTimeout)
		defer cancel()
	}
	r, err := c.request(ctx, i)
	if err != nil {
		return runtime.Invoked{}, err
	}
	resp, err := c.aws.Send(r, awshttp.Sum(i.Payload))
	var dialled *net.OpError
	var unsent *smithyhttp.RequestSendError
	var ended *smithy.CanceledError
	switch {
	case errors.As(err, &dialled) && dialled.Op == "dial":
		return runtime.Invoked{}, errUnreached
	case errors.As(err, &unsent), errors.As(err, &ended):
		return runtime.Invoked{}, &tool.LostError{Err: broken(ctx)}
	case err != nil:
		return runtime.Invoked{}, err
	}
	defer resp.Body.Close()
	return outcome(ctx, resp, i)
}

// broken is why an answer did not come, without what the transport says of addresses.
func broken(ctx context.Context) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return errors.New("the connection broke")
}

// request is the invocation, unsigned.
func (c *Client) request(ctx context.Context, i runtime.Invoke) (*http.Request, error) {
	at := c.url + strings.ReplaceAll(url.PathEscape(i.Function), ":", "%3A") + "/invocations"
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, at, bytes.NewReader(i.Payload))
	if err != nil {
		return nil, fmt.Errorf("%w: the function's name makes no address", runtime.ErrUndeliverable)
	}
	kind := "RequestResponse"
	if i.Async {
		kind = "Event"
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Amz-Invocation-Type", kind)
	if c.unready {
		return nil, fmt.Errorf("%w: sign the request: want a region and credentials of AWS, got none", runtime.ErrUndeliverable)
	}
	return r, nil
}

// outcome reads what became of an invocation.
func outcome(ctx context.Context, resp *http.Response, i runtime.Invoke) (runtime.Invoked, error) {
	want, limit := http.StatusOK, maxSync
	if i.Async {
		want, limit = http.StatusAccepted, maxRefusal
	}
	if resp.StatusCode != want {
		return runtime.Invoked{}, refused(resp)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, int64(limit)+1))
	switch {
	case i.Async:
		return runtime.Invoked{}, nil
	case err != nil:
		return runtime.Invoked{}, &tool.LostError{Err: broken(ctx)}
	case len(text) > limit:
		return runtime.Invoked{Payload: json.RawMessage(fmt.Sprintf(`{"errorMessage":"the result has more than %d bytes"}`, limit)), Failed: true}, nil
	}
	return runtime.Invoked{Payload: text, Failed: resp.Header.Get("X-Amz-Function-Error") != ""}, nil
}
