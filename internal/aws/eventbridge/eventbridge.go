// Package eventbridge puts the events of runs on a bus of Amazon EventBridge: what services are asked, and that runs have ended.
//
// An event's source is Source, its detail-type the event's type, and its detail the agent.Outgoing as JSON. EventBridge delivers at least
// once, and so does this: detail.id is the same each time.
package eventbridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/smithy-go"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/aws/awshttp"
	"github.com/countersign/countersign/internal/runtime"
)

// Source is the source of every event.
const Source = "countersign"

// How long one attempt may take, and how often and with what pause at most an event is put.
const (
	attemptTimeout = 8 * time.Second
	attempts       = 4
	backoff        = time.Second
)

// maxEntry is the largest entry that EventBridge takes, in bytes: source, type and detail together.
const maxEntry = 1 << 20

// service is EventBridge's name in signatures.
const service = "events"

// Bus is one event bus, a runtime.Emitter. Make one with New. Safe for concurrent use.
type Bus struct {
	name   string
	url    string
	client *awshttp.Client
}

// New makes the bus of that name, or ARN, at endpoint: Endpoint gives AWS' own. An HTTP client in cfg that is not the SDK's own is kept
// as it is. A configuration without a region or credentials makes every Emit fail.
func New(cfg aws.Config, endpoint, name string) *Bus {
	return &Bus{name: name, url: strings.TrimSuffix(endpoint, "/") + "/", client: awshttp.New(cfg, awshttp.Options{
		Service: service, Timeout: attemptTimeout, Attempts: attempts, Backoff: backoff, Again: []string{"InternalException", "InternalFailure"},
	})}
}

// Endpoint is where EventBridge is in a region.
func Endpoint(region string, fips, dualStack bool) string {
	return awshttp.Endpoint(service, region, fips && !strings.HasPrefix(region, "us-gov-"), dualStack) // whose own endpoints are
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
	return permanent(b.client.Try(ctx, func() error { return b.send(ctx, body) }, nil))
}

// unfit are EventBridge's words for an event that it will not take however often it is asked.
var unfit = map[string]bool{
	"MalformedDetail": true, "InvalidArgument": true, "ValidationException": true, "SerializationException": true, "RequestEntityTooLarge": true,
}

// permanent marks what will be refused again as undeliverable.
func permanent(err error) error {
	var said smithy.APIError
	if errors.As(err, &said) && unfit[said.ErrorCode()] {
		return fmt.Errorf("%w: %w", runtime.ErrUndeliverable, err)
	}
	return err
}

// send makes one attempt and reads what became of the one entry. What else an answer says is not shown: it may repeat the event.
func (b *Bus) send(ctx context.Context, body []byte) error {
	answer, err := b.client.Post(ctx, awshttp.Operation{URL: b.url, Version: "1.1", Target: "AWSEvents.PutEvents", Body: body})
	if err != nil {
		return err
	}
	var said struct {
		FailedEntryCount *int
		Entries          []struct{ ErrorCode string }
	}
	err = json.Unmarshal(answer.Text, &said)
	switch {
	case answer.Status != http.StatusOK:
		return answer.Refused(answer.Code(), "")
	case err != nil || said.FailedEntryCount == nil || len(said.Entries) != 1:
		return answer.Refused("InternalFailure", "") // nobody can say whether it was taken
	case said.Entries[0].ErrorCode != "":
		return answer.Refused(said.Entries[0].ErrorCode, "")
	default:
		return nil
	}
}
