package tools

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"go.opentelemetry.io/otel/propagation"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/awssdk"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
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
	maxSync  = 6_291_556
	maxAsync = 1 << 20
)

// Functions invokes functions, a runtime.Functions. Make one with NewFunctions. Safe for concurrent use.
//
// A function is invoked with a policy.FunctionCall as JSON. One that is waited for gives its result as JSON: an object
// of text, json, error, media, suspend and patch, or any other value, which is its text (see readFunctionResult). One
// that answers later only takes the call (ADR 3).
type Functions struct {
	invoke awssdk.Operation[lambda.InvokeInput, lambda.InvokeOutput, lambda.Options]
	pause  *retry.ExponentialJitterBackoff
	clock  clock.Clock
}

// NewFunctions makes a client. How long an answer may take is its context's to say: a function may run for minutes. The
// SDK sends nothing again by itself: what may be sent again depends on the call.
func NewFunctions(cfg aws.Config) *Functions {
	client := lambda.NewFromConfig(cfg, func(o *lambda.Options) {
		o.HTTPClient = awssdk.WithTimeout(o.HTTPClient, 0)
		o.Retryer = aws.NopRetryer{}
	})
	return &Functions{invoke: client.Invoke, pause: retry.NewExponentialJitterBackoff(backoff), clock: clock.System()}
}

// Invoke implements runtime.Functions. It sends again what was not taken and may be taken later, as after throttling;
// and what may have been taken, unless i is to be invoked once.
func (c *Functions) Invoke(ctx context.Context, i runtime.Invoke) (runtime.Invoked, error) {
	limit := maxSync
	if i.Async {
		limit = maxAsync
	}
	if n := len(i.Payload); n > limit {
		return runtime.Invoked{}, fmt.Errorf(
			"%w: it has %d bytes, and a function takes at most %d", runtime.ErrUndeliverable, n, limit)
	}
	var out runtime.Invoked
	var err error
	ended := clock.Retry(ctx, c.clock, func(n int) (time.Duration, bool) {
		if out, err = c.attempt(ctx, i); err == nil || n == attempts || ctx.Err() != nil || !shouldRetry(err, i.Once) {
			return 0, false
		}
		pause, failed := c.pause.BackoffDelay(n, err)
		return pause, failed == nil
	})
	if err = cmp.Or(err, ended); err != nil {
		return runtime.Invoked{}, fmt.Errorf("invoke function %s: %w", i.Function, err)
	}
	return out, nil
}

// shouldRetry reports whether a call that failed with err is to be sent again.
func shouldRetry(err error, once bool) bool {
	if errors.As(err, new(*tool.LostError)) {
		return !once
	}
	var r *awssdk.Refusal
	return !errors.Is(err, runtime.ErrUndeliverable) &&
		(errors.Is(err, errUnreached) || errors.As(err, &r) && isTransient(r))
}

// errUnreached says that nothing was sent.
var errUnreached = errors.New("AWS Lambda cannot be reached")

func (c *Functions) attempt(ctx context.Context, i runtime.Invoke) (runtime.Invoked, error) {
	kind := types.InvocationTypeRequestResponse
	if i.Async {
		kind = types.InvocationTypeEvent
		var cancel context.CancelFunc
		ctx, cancel = c.clock.WithTimeout(ctx, takeTimeout)
		defer cancel()
	}
	out, err := c.invoke(ctx, &lambda.InvokeInput{FunctionName: &i.Function, InvocationType: kind, Payload: i.Payload})
	switch {
	case err != nil:
		return runtime.Invoked{}, outcomeError(ctx, err)
	case i.Async:
		return runtime.Invoked{}, nil
	case len(out.Payload) > maxSync:
		text := fmt.Sprintf(`{"errorType":%q,"errorMessage":"the result has more than %d bytes"}`, tooLarge, maxSync)
		return runtime.Invoked{Payload: json.RawMessage(text), Failed: true}, nil
	}
	return runtime.Invoked{Payload: out.Payload, Failed: out.FunctionError != nil}, nil
}

// outcomeError says what an attempt's error means for the function: not invoked, never to be invoked, or unknown.
func outcomeError(ctx context.Context, err error) error {
	var dialled *net.OpError
	var refused *awssdk.Refusal
	switch {
	case errors.As(err, &dialled) && dialled.Op == "dial":
		return errUnreached
	case errors.As(awssdk.Bare(err), &refused):
		switch {
		case isTransient(refused):
			return refused
		case refused.Status < http.StatusInternalServerError, slices.Contains(never, refused.Code):
			return fmt.Errorf("%w: %w", runtime.ErrUndeliverable, refused)
		}
		return &tool.LostError{Err: refused}
	case errors.As(err, new(*smithyhttp.RequestSendError)), errors.As(err, new(*smithy.CanceledError)),
		errors.As(err, new(*smithyhttp.ResponseError)):
		lost := ctx.Err()
		if lost == nil { // the transport's error has addresses
			lost = errors.New("the connection broke")
		}
		return &tool.LostError{Err: lost}
	default: // it could not be signed
		return err
	}
}

// later are Lambda's names for what keeps it from entering a function now: throttling, and a function or its network
// that are not ready. Beside them stand those of signatures that a moment makes good.
var later = []string{
	"TooManyRequestsException", "EC2ThrottledException", "ResourceConflictException", "ResourceNotReadyException",
	"SnapStartNotReadyException", "SnapStartTimeoutException", "EFSMountTimeoutException", "ENILimitReachedException",
	"SubnetIPAddressLimitReachedException",
	"ThrottlingException", "ExpiredTokenException", "RequestExpired", "RequestTimeTooSkewed",
}

// never are its names of 5xx for what keeps it from entering a function until somebody changes it. Any other 5xx may
// come after the function was entered.
var never = []string{
	"EC2AccessDeniedException", "EC2UnexpectedException", "InvalidRuntimeException", "InvalidSecurityGroupIDException",
	"InvalidSubnetIDException", "InvalidZipFileException", "KMSAccessDeniedException", "KMSDisabledException",
	"KMSInvalidStateException", "KMSNotFoundException", "SnapStartException",
}

// isTransient reports whether a function that was not entered may be entered later.
func isTransient(r *awssdk.Refusal) bool {
	return slices.Contains(later, r.Code) || r.Status == http.StatusTooManyRequests
}

// Lambda carries out the calls of tools of kind lambda that are waited for, a runtime.Remote. Functions is required.
// Safe for concurrent use.
type Lambda struct{ Functions runtime.Functions }

// Open implements runtime.Remote.
func (r Lambda) Open(string, *agent.Definition) runtime.Session {
	return newSession(r.call, errors.New("the invocation that made the call has ended"))
}

// call invokes the function and reads its result. A function that ended without a word of its own, because its time was
// up or its process died, may have done what it was asked, as one whose answer was lost: *tool.LostError.
func (r Lambda) call(ctx context.Context, t agent.ToolSpec, c tool.Call) (agent.ToolResultData, error) {
	traced := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, traced) // in the payload: Lambda drops the client context of events
	in := policy.FunctionCall{
		Tool: c.Name, Args: c.Args, Key: c.Key, Tenant: c.Tenant, Run: c.Run, Call: c.ID, State: c.State, Resume: c.Resume,
		Traceparent: traced["traceparent"], Tracestate: traced["tracestate"],
	}
	payload, err := in.Payload()
	if err != nil {
		return agent.ToolResultData{}, err
	}
	out, err := r.Functions.Invoke(ctx, runtime.Invoke{
		Function: t.Lambda.Function, Payload: payload, Once: t.Effect == run.EffectNonIdempotent,
	})
	switch {
	case err != nil:
		return agent.ToolResultData{}, err
	case out.Failed:
		return functionError(out.Payload)
	default:
		return readFunctionResult(out.Payload), nil
	}
}
