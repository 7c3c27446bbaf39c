// Package eventbridge puts the events of runs on a bus of Amazon EventBridge: what services are asked, and that runs have ended.
//
// An event's source is Source, its detail-type the event's type, and its detail the agent.Outgoing as JSON. EventBridge delivers at least
// once, and so does this: detail.id is the same each time.
package eventbridge

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/countersign/countersign/pkg/agent"
	"github.com/countersign/countersign/pkg/agent/clock"
	"github.com/countersign/countersign/pkg/agent/runtime"
)

// Source is the source of every event.
const Source = "countersign"

// Times of one attempt, how often and with what pause at most an event is put, and what is read of an answer, in bytes.
const (
	attemptTimeout = 8 * time.Second
	connectTimeout = time.Second
	attempts       = 4
	backoff        = time.Second
	maxAnswer      = 64 << 10
)

// maxEntry is the largest entry that EventBridge takes, in bytes: source, type and detail together.
const maxEntry = 1 << 20

// service is EventBridge's name in signatures.
const service = "events"

// Bus is one event bus, a runtime.Emitter. It makes the one request it needs itself, with the SDK's signatures, transport and retries:
// the SDK's client for all of EventBridge would be a tenth of a function's bootstrap (ADR 15). Make one with New. Safe for concurrent use.
type Bus struct {
	name        string
	url         string
	region      string
	http        aws.HTTPClient
	credentials aws.CredentialsProvider
	signer      *v4.Signer
	retryer     aws.RetryerV2
	clock       clock.Clock
}

// New makes the bus of that name, or ARN, at endpoint: Endpoint gives AWS' own. An HTTP client in cfg that is not the SDK's own is kept
// as it is. A configuration without a region or credentials makes every Emit fail.
func New(cfg aws.Config, endpoint, name string) *Bus {
	return &Bus{
		name: name, url: strings.TrimSuffix(endpoint, "/") + "/", region: cfg.Region, http: timed(cfg.HTTPClient), credentials: cfg.Credentials,
		signer: v4.NewSigner(), clock: clock.System(),
		retryer: retry.NewStandard(func(o *retry.StandardOptions) {
			o.MaxAttempts, o.MaxBackoff = attempts, backoff
			o.Retryables = append(o.Retryables, retry.RetryableErrorCode{Codes: map[string]struct{}{"InternalException": {}, "InternalFailure": {}}})
		}),
	}
}

// Endpoint is where EventBridge is in a region.
func Endpoint(region string, fips, dualStack bool) string {
	host := "events"
	if fips && !strings.HasPrefix(region, "us-gov-") { // whose own endpoints are
		host += "-fips"
	}
	suffix := "amazonaws.com"
	switch china := strings.HasPrefix(region, "cn-"); {
	case china && dualStack:
		suffix = "api.amazonwebservices.com.cn"
	case china:
		suffix = "amazonaws.com.cn"
	case dualStack:
		suffix = "api.aws"
	}
	return "https://" + host + "." + region + "." + suffix
}

// timed is the SDK's client with our timeouts and without redirects: what is signed for one host is no other's.
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

// entry is an event as PutEvents takes it.
type entry struct {
	Source, DetailType, Detail, EventBusName string
}

// Emit puts an event on the bus. One that is too large or malformed is runtime.ErrUndeliverable; any other error may pass.
func (b *Bus) Emit(ctx context.Context, e agent.Outgoing) error {
	detail, err := agent.MarshalVerbatim(e)
	if err != nil {
		return fmt.Errorf("%w: %w", runtime.ErrUndeliverable, err)
	}
	if n := len(detail) + len(e.Type) + len(Source); n > maxEntry {
		return fmt.Errorf("%w: it has %d bytes, and a bus takes at most %d", runtime.ErrUndeliverable, n, maxEntry)
	}
	body, err := agent.MarshalVerbatim(map[string][]entry{"Entries": {{Source, e.Type, string(detail), b.name}}})
	if err != nil {
		return fmt.Errorf("%w: %w", runtime.ErrUndeliverable, err)
	}
	if err := b.put(ctx, body); err != nil {
		return fmt.Errorf("put event %s on bus %s: %w", e.ID, b.name, err)
	}
	return nil
}

// put sends the request until it succeeds, cannot, or has been sent often enough.
func (b *Bus) put(ctx context.Context, body []byte) error {
	for attempt := 1; ; attempt++ {
		release, err := b.retryer.GetAttemptToken(ctx)
		if err != nil {
			return err
		}
		err = b.send(ctx, body)
		_ = release(err) // the SDK's returns none: it counts what went well
		if err == nil || attempt == b.retryer.MaxAttempts() || !b.retryer.IsErrorRetryable(err) {
			return permanent(err)
		}
		if _, refused := b.retryer.GetRetryToken(ctx, err); refused != nil { // too much has failed lately
			return err
		}
		delay, tooMany := b.retryer.RetryDelay(attempt, err)
		if tooMany != nil || b.clock.Sleep(ctx, delay) != nil {
			return err
		}
	}
}

// unfit are EventBridge's words for an event that it will not take however often it is asked.
var unfit = map[string]bool{
	"MalformedDetail": true, "InvalidArgument": true, "ValidationException": true, "SerializationException": true, "RequestEntityTooLarge": true,
}

// permanent marks what will be refused again as undeliverable.
func permanent(err error) error {
	var said *refusal
	if asRefusal(err, &said) && unfit[said.code] {
		return fmt.Errorf("%w: %w", runtime.ErrUndeliverable, err)
	}
	return err
}

// send makes one attempt.
func (b *Bus) send(ctx context.Context, body []byte) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, b.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/x-amz-json-1.1")
	r.Header.Set("X-Amz-Target", "AWSEvents.PutEvents")
	r.Header.Set("User-Agent", "countersign")
	if b.credentials == nil {
		return fmt.Errorf("sign the request: want credentials, got none")
	}
	keys, err := b.credentials.Retrieve(ctx)
	if err != nil {
		return fmt.Errorf("sign the request: %w", err)
	}
	sum := sha256.Sum256(body)
	if err := b.signer.SignHTTP(ctx, keys, r, hex.EncodeToString(sum[:]), service, b.region, b.clock.Now()); err != nil {
		return fmt.Errorf("sign the request: %w", err)
	}
	resp, err := b.http.Do(r)
	switch {
	case err != nil && ctx.Err() != nil:
		return &smithy.CanceledError{Err: err}
	case err != nil:
		return &smithyhttp.RequestSendError{Err: err}
	}
	defer resp.Body.Close()
	return outcome(resp)
}

// outcome reads what became of the one entry.
func outcome(resp *http.Response) error {
	var said struct {
		Type             string `json:"__type"`
		FailedEntryCount *int
		Entries          []struct{ ErrorCode string }
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return &smithyhttp.RequestSendError{Err: err}
	}
	err = json.Unmarshal(text, &said)
	switch {
	case resp.StatusCode != http.StatusOK:
		return answered(resp, said.Type[strings.LastIndex(said.Type, "#")+1:])
	case err != nil || said.FailedEntryCount == nil || len(said.Entries) != 1:
		return answered(resp, "InternalFailure") // nobody can say whether it was taken
	case said.Entries[0].ErrorCode != "":
		return answered(resp, said.Entries[0].ErrorCode)
	default:
		return nil
	}
}
