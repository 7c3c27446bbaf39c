package lambdafn

// This file puts the events of runs on a bus of Amazon EventBridge: what services are asked, and that runs have ended.
//
// An event's source is EventSource, its detail-type the event's type, and its detail the policy.Outgoing as JSON.
// EventBridge delivers at least once, and so does this: detail.id is the same each time.

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge/types"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/awssdk"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/tool"
)

// EventSource is the source of every event.
const EventSource = "countersign"

// maxEntry is the largest entry that EventBridge takes, in bytes: source, type and detail together.
const maxEntry = 1 << 20

// Bus is one event bus, a runtime.Emitter. Make one with NewBus. Safe for concurrent use.
type Bus struct {
	name string
	from []string
	put  awssdk.Operation[eventbridge.PutEventsInput, eventbridge.PutEventsOutput, eventbridge.Options]
}

// NewBus makes the bus of that name, or ARN. From is the ARN of the state machine whose runs the events are of: rules
// tell one stack's events from another's by it.
func NewBus(cfg aws.Config, name, from string) *Bus {
	client := eventbridge.NewFromConfig(cfg, func(o *eventbridge.Options) {
		o.HTTPClient = awssdk.WithTimeout(o.HTTPClient, attemptTimeout)
		o.Retryer = awssdk.Retryer("InternalException", "InternalFailure")
		o.APIOptions = append(o.APIOptions, func(s *middleware.Stack) error {
			return s.Finalize.Insert(middleware.FinalizeMiddlewareFunc("entry", checkEntry), "Retry", middleware.After)
		})
	})
	return &Bus{name: name, from: []string{from}, put: client.PutEvents}
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
	detail, err := jsonx.MarshalVerbatim(e)
	if err != nil {
		return fmt.Errorf("%w: %w", runtime.ErrUndeliverable, err)
	}
	if n := len(detail) + len(e.Type) + len(EventSource); n > maxEntry {
		return fmt.Errorf("%w: it has %d bytes, and a bus takes at most %d", runtime.ErrUndeliverable, n, maxEntry)
	}
	_, err = b.put(ctx, &eventbridge.PutEventsInput{Entries: []types.PutEventsRequestEntry{{
		Source: aws.String(EventSource), DetailType: &e.Type, Detail: aws.String(string(detail)), EventBusName: &b.name,
		Resources: b.from,
	}}})
	if err = awssdk.Bare(err); err == nil {
		return nil
	}
	var r *awssdk.Refusal
	if errors.As(err, &r) && (unfit[r.Code] || r.Status == http.StatusRequestEntityTooLarge) { // it will be refused again
		err = fmt.Errorf("%w: %w", runtime.ErrUndeliverable, err)
	}
	return fmt.Errorf("put event %s on bus %s: %w", e.ID, b.name, err)
}

// unfit are EventBridge's words for an event that it will not take however often it is asked.
var unfit = map[string]bool{
	"MalformedDetail": true, "InvalidArgument": true, "ValidationException": true, "SerializationException": true,
}

// EnvSecretsPrefix names what the names of a deployment's secrets begin with in AWS Secrets Manager; the tenant, '/'
// and the secret's name follow.
const EnvSecretsPrefix = "COUNTERSIGN_SECRETS_PREFIX"

// Vault are the secrets of AWS Secrets Manager: those of tenants by a prefix, others by their names. A value is kept
// for five minutes, so a rotated one counts no later than that; what is missing is asked for again each time. Make one
// with NewVault. Safe for concurrent use.
type Vault struct {
	prefix         string
	getSecretValue awssdk.Operation[
		secretsmanager.GetSecretValueInput, secretsmanager.GetSecretValueOutput, secretsmanager.Options,
	]
	clock clock.Clock

	mu   sync.Mutex
	kept map[string]vaultValue // by full name or ARN
}

type vaultValue struct {
	text  string
	until time.Time
}

// NewVault makes a vault. The names of tenants' secrets begin with prefix; "" = tenants have none.
func NewVault(cfg aws.Config, prefix string, clk clock.Clock) *Vault {
	client := secretsmanager.NewFromConfig(cfg, func(o *secretsmanager.Options) {
		o.HTTPClient = awssdk.WithTimeout(o.HTTPClient, attemptTimeout)
		o.Retryer = awssdk.Retryer()
	})
	return &Vault{prefix: prefix, getSecretValue: client.GetSecretValue, clock: clk, kept: map[string]vaultValue{}}
}

// Secret is the value of a tenant's secret, as Value reads it.
func (v *Vault) Secret(ctx context.Context, tenant, name string) (string, error) {
	if v.prefix == "" || !agent.ValidSecretName(name) || tenant == "" || strings.Contains(tenant, "/") {
		return "", fmt.Errorf("%w of that name", tool.ErrNoSecret)
	}
	return v.Value(ctx, v.prefix+tenant+"/"+name)
}

// Value is the value of the secret with that name or ARN, as it is or was less than five minutes ago. A secret that is
// binary is an error.
func (v *Vault) Value(ctx context.Context, full string) (string, error) {
	v.mu.Lock()
	k, ok := v.kept[full]
	v.mu.Unlock()
	if ok && v.clock.Now().Before(k.until) {
		return k.text, nil
	}
	text, err := v.get(ctx, full)
	if err != nil {
		return "", fmt.Errorf("%s in Secrets Manager: %w", full, err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.kept) >= 1000 { // whoever has so many asks again
		clear(v.kept)
	}
	v.kept[full] = vaultValue{text, v.clock.Now().Add(5 * time.Minute)}
	return text, nil
}

// get asks for a value. A secret that is not there, may not be read or decrypted, or is no text is tool.ErrNoSecret.
func (v *Vault) get(ctx context.Context, full string) (string, error) {
	out, err := v.getSecretValue(ctx, &secretsmanager.GetSecretValueInput{SecretId: &full})
	err = awssdk.Bare(err)
	var refused *awssdk.Refusal
	lasting := []string{"ResourceNotFoundException", "InvalidRequestException", "AccessDeniedException",
		"DecryptionFailure"}
	switch {
	case errors.As(err, &refused) && slices.Contains(lasting, refused.Code):
		return "", fmt.Errorf("%w that can be read: %w", tool.ErrNoSecret, err)
	case err != nil:
		return "", err
	case out.SecretString != nil:
		return *out.SecretString, nil
	case out.SecretBinary != nil:
		return "", fmt.Errorf("%w that is a text: it is binary", tool.ErrNoSecret)
	}
	return "", fmt.Errorf("%w: no value in the answer", tool.ErrNoSecret)
}
