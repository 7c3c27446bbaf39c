// Package sfn drives executions on AWS Step Functions: the Waiter of package runtime over the SDK.
package sfn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sfn"
	"github.com/aws/aws-sdk-go-v2/service/sfn/types"
	"github.com/aws/smithy-go"

	"github.com/countersign/countersign/pkg/agent/runtime"
	"github.com/countersign/countersign/pkg/agent/store"
)

// API is what this package uses of the SDK's client.
type API interface {
	SendTaskSuccess(ctx context.Context, in *sfn.SendTaskSuccessInput, opts ...func(*sfn.Options)) (*sfn.SendTaskSuccessOutput, error)
	StartExecution(ctx context.Context, in *sfn.StartExecutionInput, opts ...func(*sfn.Options)) (*sfn.StartExecutionOutput, error)
	StopExecution(ctx context.Context, in *sfn.StopExecutionInput, opts ...func(*sfn.Options)) (*sfn.StopExecutionOutput, error)
	DescribeExecution(ctx context.Context, in *sfn.DescribeExecutionInput, opts ...func(*sfn.Options)) (*sfn.DescribeExecutionOutput, error)
	ListExecutions(ctx context.Context, in *sfn.ListExecutionsInput, opts ...func(*sfn.Options)) (*sfn.ListExecutionsOutput, error)
}

// Waiter is a runtime.Waiter over one state machine. Safe for concurrent use.
type Waiter struct {
	// Trace gives the X-Ray header of the trace that an execution is started in; nil, or an empty one, is none. Set it before use.
	Trace func(ctx context.Context) string

	client  API
	machine string // ARN of the state machine
	prefix  string // of its executions' ARNs
}

var _ runtime.Waiter = (*Waiter)(nil)

// New makes a waiter for the state machine of that ARN.
func New(client API, machine string) (*Waiter, error) {
	prefix, ok := executions(machine)
	if !ok {
		return nil, fmt.Errorf("state machine %q: want arn:aws:states:REGION:ACCOUNT:stateMachine:NAME", machine)
	}
	return &Waiter{client: client, machine: machine, prefix: prefix}, nil
}

// executions is what the ARNs of a state machine's executions begin with.
func executions(machine string) (string, bool) {
	parts := strings.Split(machine, ":")
	if len(parts) != 7 || parts[0] != "arn" || parts[2] != "states" || parts[5] != "stateMachine" || parts[6] == "" {
		return "", false
	}
	parts[5] = "execution"
	return strings.Join(parts, ":") + ":", true
}

// Success completes a task token's wait. Step Functions says TaskTimedOut or TaskDoesNotExist of a wait that is over, which
// is runtime.ErrSettled; the token is kept and tried again after anything else.
func (w *Waiter) Success(ctx context.Context, token string) error {
	_, err := w.client.SendTaskSuccess(ctx, &sfn.SendTaskSuccessInput{TaskToken: aws.String(token), Output: aws.String("{}")})
	var timedOut *types.TaskTimedOut
	var gone *types.TaskDoesNotExist
	if errors.As(err, &timedOut) || errors.As(err, &gone) {
		return runtime.ErrSettled
	}
	if err != nil {
		return fmt.Errorf("complete task token: %w", explain(err))
	}
	return nil
}

// Start starts an execution by name. One that was started by this name before, running or closed, is none of the caller's
// errors: the input holds no clock and nothing else that differs.
func (w *Waiter) Start(ctx context.Context, tenant, run, name string) error {
	input, err := json.Marshal(map[string]string{"tenant": tenant, "run": run})
	if err != nil {
		return fmt.Errorf("start execution %s: %w", name, err)
	}
	in := &sfn.StartExecutionInput{StateMachineArn: aws.String(w.machine), Name: aws.String(name), Input: aws.String(string(input))}
	if w.Trace != nil {
		if header := w.Trace(ctx); header != "" {
			in.TraceHeader = aws.String(header)
		}
	}
	_, err = w.client.StartExecution(ctx, in)
	var exists *types.ExecutionAlreadyExists
	if err == nil || errors.As(err, &exists) {
		return nil
	}
	return fmt.Errorf("start execution %s: %w", name, explain(err))
}

// Stop ends an execution. One that was never started, or has ended, is left as it is.
func (w *Waiter) Stop(ctx context.Context, name, cause string) error {
	_, err := w.client.StopExecution(ctx, &sfn.StopExecutionInput{
		ExecutionArn: aws.String(w.prefix + name), Error: aws.String("Cancelled"), Cause: aws.String(cause),
	})
	var none *types.ExecutionDoesNotExist
	if err == nil || errors.As(err, &none) {
		return nil
	}
	return fmt.Errorf("stop execution %s: %w", name, explain(err))
}

// Status says whether an execution of that name runs.
func (w *Waiter) Status(ctx context.Context, name string) (runtime.ExecutionStatus, error) {
	d, err := w.client.DescribeExecution(ctx, &sfn.DescribeExecutionInput{ExecutionArn: aws.String(w.prefix + name)})
	var none *types.ExecutionDoesNotExist
	switch {
	case errors.As(err, &none):
		return runtime.ExecutionNone, nil
	case err != nil:
		return "", fmt.Errorf("describe execution %s: %w", name, explain(err))
	case d.Status == types.ExecutionStatusRunning, d.Status == types.ExecutionStatusPendingRedrive:
		return runtime.ExecutionRunning, nil
	default:
		return runtime.ExecutionEnded, nil
	}
}

// throttles are the codes by which Step Functions asks for patience.
var throttles = []string{"ThrottlingException", "Throttling", "TooManyRequestsException", "RequestLimitExceeded", "ExecutionLimitExceeded"}

// explain makes an error that asks for patience store.ErrThrottled, too, which callers know. Others stay as they are.
func explain(err error) error {
	var refused smithy.APIError
	if errors.As(err, &refused) && slices.Contains(throttles, refused.ErrorCode()) {
		return fmt.Errorf("%w: %w", store.ErrThrottled, err)
	}
	return err
}
