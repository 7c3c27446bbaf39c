// Package sfn drives executions on AWS Step Functions: the Waiter of package runtime.
package sfn

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
)

// Waiter is a runtime.Waiter over one state machine. Safe for concurrent use.
type Waiter struct {
	// Trace gives the X-Ray header of the trace that an execution is started in; nil, or an empty one, is none. Set it before use.
	Trace func(ctx context.Context) string

	client  client
	machine string // ARN of the state machine
	prefix  string // of its executions' ARNs
}

var _ runtime.Waiter = (*Waiter)(nil)

// New makes a waiter for the state machine of that ARN, with Step Functions at endpoint: Endpoint gives AWS' own. An HTTP client in cfg that
// is not the SDK's own is kept as it is. A configuration without a region or credentials makes every request fail.
func New(cfg aws.Config, endpoint, machine string) (*Waiter, error) {
	prefix, ok := executions(machine)
	if !ok {
		return nil, fmt.Errorf("state machine %q: want arn:aws:states:REGION:ACCOUNT:stateMachine:NAME", machine)
	}
	return &Waiter{client: newClient(cfg, endpoint), machine: machine, prefix: prefix}, nil
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
	err := w.client.ask(ctx, "SendTaskSuccess", map[string]any{"taskToken": token, "output": "{}"}, nil)
	if said(err, "TaskTimedOut", "TaskDoesNotExist") {
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
	in := map[string]any{"stateMachineArn": w.machine, "name": name, "input": string(input)}
	if w.Trace != nil {
		if header := w.Trace(ctx); header != "" {
			in["traceHeader"] = header
		}
	}
	err = w.client.ask(ctx, "StartExecution", in, nil)
	if err == nil || said(err, "ExecutionAlreadyExists") {
		return nil
	}
	return fmt.Errorf("start execution %s: %w", name, explain(err))
}

// Stop ends an execution. One that was never started, or has ended, is left as it is.
func (w *Waiter) Stop(ctx context.Context, name, cause string) error {
	err := w.client.ask(ctx, "StopExecution", map[string]any{"executionArn": w.prefix + name, "error": "Cancelled", "cause": cause}, nil)
	if err == nil || said(err, "ExecutionDoesNotExist") {
		return nil
	}
	return fmt.Errorf("stop execution %s: %w", name, explain(err))
}

// Status says whether an execution of that name runs.
func (w *Waiter) Status(ctx context.Context, name string) (runtime.ExecutionStatus, error) {
	d, err := w.describe(ctx, name)
	switch {
	case err != nil:
		return "", err
	case d == nil:
		return runtime.ExecutionNone, nil
	case d.Status == "RUNNING", d.Status == "PENDING_REDRIVE":
		return runtime.ExecutionRunning, nil
	case d.Error == runtime.ThrottledError:
		return runtime.ExecutionThrottled, nil
	default:
		return runtime.ExecutionEnded, nil
	}
}

// throttles are the codes by which Step Functions asks for patience.
var throttles = []string{"ThrottlingException", "Throttling", "TooManyRequestsException", "RequestLimitExceeded", "ExecutionLimitExceeded"}

// explain makes an error that asks for patience store.ErrThrottled, too, which callers know. Others stay as they are.
func explain(err error) error {
	if said(err, throttles...) {
		return fmt.Errorf("%w: %w", store.ErrThrottled, err)
	}
	return err
}
