package awssdk

// This file puts the events of runs on a bus of Amazon EventBridge: what services are asked, and that runs
// have ended.
//
// An event's source is Source, its detail-type the event's type, and its detail the agent.Outgoing as JSON.
// EventBridge delivers at least once, and so does this: detail.id is the same each time.

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge/types"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"

	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
)

// Source is the source of every event.
const Source = "countersign"

// maxEntry is the largest entry that EventBridge takes, in bytes: source, type and detail together.
const maxEntry = 1 << 20

// Bus is one event bus, a runtime.Emitter. Make one with NewBus. Safe for concurrent use.
type Bus struct {
	name string
	put  Operation[eventbridge.PutEventsInput, eventbridge.PutEventsOutput, eventbridge.Options]
}

// NewBus makes the bus of that name, or ARN.
func NewBus(cfg aws.Config, name string) *Bus {
	client := eventbridge.NewFromConfig(cfg, func(o *eventbridge.Options) {
		o.HTTPClient = WithTimeout(o.HTTPClient, attemptTimeout)
		o.Retryer = Retryer("InternalException", "InternalFailure")
		o.APIOptions = append(o.APIOptions, func(s *middleware.Stack) error {
			return s.Finalize.Insert(middleware.FinalizeMiddlewareFunc("entry", checkEntry), "Retry", middleware.After)
		})
	})
	return &Bus{name: name, put: client.PutEvents}
}

// checkEntry makes the failure of the one entry the failure of its request, so that it is retried like one.
func checkEntry(
	ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler,
) (middleware.FinalizeOutput, middleware.Metadata, error) {
	out, meta, err := next.HandleFinalize(ctx, in)
	put, ok := out.Result.(*eventbridge.PutEventsOutput)
	switch {
	case err != nil || !ok:
	case len(put.Entries) != 1: // nobody can say whether it was taken
		err = &smithy.GenericAPIError{Code: "InternalFailure"}
	case put.Entries[0].ErrorCode != nil:
		err = &smithy.GenericAPIError{Code: *put.Entries[0].ErrorCode}
	}
	return out, meta, err
}

// Emit puts an event on the bus. One that is too large or malformed is runtime.ErrUndeliverable; any other error may
// pass.
func (b *Bus) Emit(ctx context.Context, e policy.Outgoing) error {
	detail, err := run.MarshalVerbatim(e)
	if err != nil {
		return fmt.Errorf("%w: %w", runtime.ErrUndeliverable, err)
	}
	if n := len(detail) + len(e.Type) + len(Source); n > maxEntry {
		return fmt.Errorf("%w: it has %d bytes, and a bus takes at most %d", runtime.ErrUndeliverable, n, maxEntry)
	}
	_, err = b.put(ctx, &eventbridge.PutEventsInput{Entries: []types.PutEventsRequestEntry{{
		Source: aws.String(Source), DetailType: &e.Type, Detail: aws.String(string(detail)), EventBusName: &b.name,
	}}})
	if err != nil {
		return fmt.Errorf("put event %s on bus %s: %w", e.ID, b.name, permanent(Bare(err)))
	}
	return nil
}

// unfit are EventBridge's words for an event that it will not take however often it is asked.
var unfit = map[string]bool{
	"MalformedDetail": true, "InvalidArgument": true, "ValidationException": true, "SerializationException": true,
}

// permanent marks what will be refused again as undeliverable.
func permanent(err error) error {
	var r *Refusal
	if errors.As(err, &r) && (unfit[r.Code] || r.Status == http.StatusRequestEntityTooLarge) {
		return fmt.Errorf("%w: %w", runtime.ErrUndeliverable, err)
	}
	return err
}
