package sfn

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sfn"
	"github.com/aws/aws-sdk-go-v2/service/sfn/types"

	"github.com/countersign/countersign/pkg/agent/runtime"
)

var _ runtime.Executions = (*Waiter)(nil)

// Running pages through the machine's executions that run, a thousand a request. Step Functions lists them with a delay.
func (w *Waiter) Running(ctx context.Context, cursor string) (page []runtime.Execution, next string, err error) {
	in := &sfn.ListExecutionsInput{
		StateMachineArn: aws.String(w.machine), StatusFilter: types.ExecutionStatusRunning, MaxResults: 1000,
	}
	if cursor != "" {
		in.NextToken = aws.String(cursor)
	}
	out, err := w.client.ListExecutions(ctx, in)
	if err != nil {
		return nil, "", fmt.Errorf("list executions: %w", explain(err))
	}
	for _, e := range out.Executions {
		page = append(page, runtime.Execution{Name: aws.ToString(e.Name), Started: aws.ToTime(e.StartDate).UTC()})
	}
	return page, aws.ToString(out.NextToken), nil
}

// Input is what an execution was started with.
func (w *Waiter) Input(ctx context.Context, name string) (input []byte, found bool, err error) {
	d, err := w.client.DescribeExecution(ctx, &sfn.DescribeExecutionInput{ExecutionArn: aws.String(w.prefix + name)})
	var none *types.ExecutionDoesNotExist
	if errors.As(err, &none) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("describe execution %s: %w", name, explain(err))
	}
	return []byte(aws.ToString(d.Input)), true, nil
}
