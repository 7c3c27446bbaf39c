package lambdafn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sfn"
	"github.com/aws/aws-sdk-go-v2/service/sfn/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/countersign/countersign/internal/awssdk"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
)

// attemptTimeout is how long one attempt of a request may take.
const attemptTimeout = 8 * time.Second

// Waiter is a runtime.Waiter over one state machine of AWS Step Functions. Safe for concurrent use.
type Waiter struct {
	// Trace gives the X-Ray header of the trace that an execution is started in; nil, or an empty one, is none. Set it
	// before use.
	Trace func(ctx context.Context) string

	sendTaskSuccess   awssdk.Operation[sfn.SendTaskSuccessInput, sfn.SendTaskSuccessOutput, sfn.Options]
	startExecution    awssdk.Operation[sfn.StartExecutionInput, sfn.StartExecutionOutput, sfn.Options]
	stopExecution     awssdk.Operation[sfn.StopExecutionInput, sfn.StopExecutionOutput, sfn.Options]
	describeExecution awssdk.Operation[sfn.DescribeExecutionInput, sfn.DescribeExecutionOutput, sfn.Options]
	listExecutions    awssdk.Operation[sfn.ListExecutionsInput, sfn.ListExecutionsOutput, sfn.Options]

	machine string // ARN of the state machine
	prefix  string // of its executions' ARNs
}

// NewWaiter makes a waiter for the state machine of that ARN, with cfg's retries. Every operation may be sent again:
// executions are started by name, and a token's wait ends once. An attempt takes 8 s at most, unless cfg has an HTTP
// client that is not the SDK's own.
func NewWaiter(cfg aws.Config, machine string) (*Waiter, error) {
	parts := strings.Split(machine, ":")
	if len(parts) != 7 || parts[0] != "arn" || parts[2] != "states" || parts[5] != "stateMachine" || parts[6] == "" {
		return nil, fmt.Errorf("state machine %q: want arn:aws:states:REGION:ACCOUNT:stateMachine:NAME", machine)
	}
	parts[5] = "execution"
	client := sfn.NewFromConfig(cfg, func(o *sfn.Options) {
		o.HTTPClient = awssdk.WithTimeout(o.HTTPClient, attemptTimeout)
	})
	return &Waiter{
		sendTaskSuccess: client.SendTaskSuccess, startExecution: client.StartExecution, stopExecution: client.StopExecution,
		describeExecution: client.DescribeExecution, listExecutions: client.ListExecutions,
		machine: machine, prefix: strings.Join(parts, ":") + ":",
	}, nil
}

// Success completes a task token's wait. Step Functions says TaskTimedOut, TaskDoesNotExist or InvalidToken of a wait
// that is over, which is runtime.ErrTokenUsed; the token is kept and tried again after anything else.
func (w *Waiter) Success(ctx context.Context, token string) error {
	_, err := w.sendTaskSuccess(ctx, &sfn.SendTaskSuccessInput{TaskToken: &token, Output: aws.String("{}")})
	if refusedWith(err, "TaskTimedOut", "TaskDoesNotExist", "InvalidToken") {
		return runtime.ErrTokenUsed
	}
	if err != nil {
		return fmt.Errorf("complete task token: %w", explainThrottling(err))
	}
	return nil
}

// Start starts an execution by name. One that was started by this name before, running or closed, is none of the
// caller's errors: the input holds no clock and nothing else that differs.
func (w *Waiter) Start(ctx context.Context, tenant, run, name string) error {
	input, err := json.Marshal(map[string]string{"tenant": tenant, "run": run})
	if err != nil {
		return fmt.Errorf("start execution %s: %w", name, err)
	}
	in := &sfn.StartExecutionInput{StateMachineArn: &w.machine, Name: &name, Input: aws.String(string(input))}
	_, err = w.startExecution(ctx, in, func(o *sfn.Options) {
		// In a Lambda function the SDK's own middleware sends the header of the invocation, which Step Functions prefers to
		// the parameter TraceHeader; so the header itself is set.
		if w.Trace == nil {
			return
		}
		if header := w.Trace(ctx); header != "" {
			o.APIOptions = append(o.APIOptions, smithyhttp.SetHeaderValue("X-Amzn-Trace-Id", header))
		}
	})
	if err == nil || refusedWith(err, "ExecutionAlreadyExists") {
		return nil
	}
	return fmt.Errorf("start execution %s: %w", name, explainThrottling(err))
}

// Stop ends an execution. One that was never started, or has ended, is left as it is.
func (w *Waiter) Stop(ctx context.Context, name, cause string) error {
	_, err := w.stopExecution(ctx, &sfn.StopExecutionInput{
		ExecutionArn: aws.String(w.prefix + name), Error: aws.String("Cancelled"), Cause: &cause,
	})
	if err == nil || refusedWith(err, "ExecutionDoesNotExist") {
		return nil
	}
	return fmt.Errorf("stop execution %s: %w", name, explainThrottling(err))
}

// Status says whether an execution of that name runs.
func (w *Waiter) Status(ctx context.Context, name string) (runtime.ExecutionStatus, error) {
	d, err := w.describe(ctx, name)
	switch {
	case err != nil:
		return "", err
	case d == nil:
		return runtime.ExecutionNone, nil
	case d.Status == types.ExecutionStatusRunning, d.Status == types.ExecutionStatusPendingRedrive:
		return runtime.ExecutionRunning, nil
	default:
		return runtime.EndedBy(aws.ToString(d.Error)), nil
	}
}

// Input is what an execution was started with.
func (w *Waiter) Input(ctx context.Context, name string) (input []byte, found bool, err error) {
	d, err := w.describe(ctx, name)
	if d == nil {
		return nil, false, err
	}
	return []byte(aws.ToString(d.Input)), true, nil
}

// describe finds an execution by name; nil = there is none.
func (w *Waiter) describe(ctx context.Context, name string) (*sfn.DescribeExecutionOutput, error) {
	d, err := w.describeExecution(ctx, &sfn.DescribeExecutionInput{ExecutionArn: aws.String(w.prefix + name)})
	switch {
	case refusedWith(err, "ExecutionDoesNotExist"):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("describe execution %s: %w", name, explainThrottling(err))
	}
	return d, nil
}

// Running pages through the machine's executions that run, a thousand a request. Step Functions lists them with a
// delay.
func (w *Waiter) Running(ctx context.Context, cursor string) (page []runtime.Execution, next string, err error) {
	in := &sfn.ListExecutionsInput{StateMachineArn: &w.machine, StatusFilter: types.ExecutionStatusRunning,
		MaxResults: 1000}
	if cursor != "" {
		in.NextToken = &cursor
	}
	out, err := w.listExecutions(ctx, in)
	if err != nil {
		return nil, "", fmt.Errorf("list executions: %w", explainThrottling(err))
	}
	for _, e := range out.Executions {
		page = append(page, runtime.Execution{Name: aws.ToString(e.Name), Started: aws.ToTime(e.StartDate).UTC()})
	}
	return page, aws.ToString(out.NextToken), nil
}

func refusedWith(err error, codes ...string) bool {
	var refused smithy.APIError
	return errors.As(err, &refused) && slices.Contains(codes, refused.ErrorCode())
}

// explainThrottling makes an error that asks for patience store.ErrThrottled, too, which callers know. Others stay as
// they are.
func explainThrottling(err error) error {
	if refusedWith(err, "ThrottlingException", "Throttling", "TooManyRequestsException", "RequestLimitExceeded",
		"ExecutionLimitExceeded") {
		return fmt.Errorf("%w: %w", store.ErrThrottled, err)
	}
	return err
}
