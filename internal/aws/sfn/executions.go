package sfn

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/countersign/countersign/internal/runtime"
)

var _ runtime.Executions = (*Waiter)(nil)

// Running pages through the machine's executions that run, a thousand a request. Step Functions lists them with a delay.
func (w *Waiter) Running(ctx context.Context, cursor string) (page []runtime.Execution, next string, err error) {
	in := map[string]any{"stateMachineArn": w.machine, "statusFilter": "RUNNING", "maxResults": 1000}
	if cursor != "" {
		in["nextToken"] = cursor
	}
	var out struct {
		Executions []struct {
			Name      string
			StartDate float64 // seconds since 1970
		}
		NextToken string
	}
	if err := w.client.ask(ctx, "ListExecutions", in, &out); err != nil {
		return nil, "", fmt.Errorf("list executions: %w", explain(err))
	}
	for _, e := range out.Executions {
		page = append(page, runtime.Execution{Name: e.Name, Started: time.UnixMilli(int64(math.Round(e.StartDate * 1000))).UTC()})
	}
	return page, out.NextToken, nil
}

// described is what is read of an execution.
type described struct{ Status, Input, Error string }

// describe finds an execution by name; nil = there is none.
func (w *Waiter) describe(ctx context.Context, name string) (*described, error) {
	var d described
	err := w.client.ask(ctx, "DescribeExecution", map[string]any{"executionArn": w.prefix + name}, &d)
	switch {
	case said(err, "ExecutionDoesNotExist"):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("describe execution %s: %w", name, explain(err))
	}
	return &d, nil
}

// Input is what an execution was started with.
func (w *Waiter) Input(ctx context.Context, name string) (input []byte, found bool, err error) {
	d, err := w.describe(ctx, name)
	if d == nil {
		return nil, false, err
	}
	return []byte(d.Input), true, nil
}
