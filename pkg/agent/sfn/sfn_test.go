package sfn_test

import (
	"context"
	"errors"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/sfn"
	"github.com/aws/aws-sdk-go-v2/service/sfn/types"
	"github.com/aws/smithy-go"
	"github.com/stretchr/testify/require"

	waiter "github.com/countersign/countersign/pkg/agent/sfn"
	"github.com/countersign/countersign/pkg/agent/store"
)

// refusing is Step Functions on a bad day.
type refusing struct{ err error }

func (r refusing) SendTaskSuccess(context.Context, *sfn.SendTaskSuccessInput, ...func(*sfn.Options)) (*sfn.SendTaskSuccessOutput, error) {
	return nil, r.err
}

func (r refusing) StartExecution(context.Context, *sfn.StartExecutionInput, ...func(*sfn.Options)) (*sfn.StartExecutionOutput, error) {
	return nil, r.err
}

func (r refusing) StopExecution(context.Context, *sfn.StopExecutionInput, ...func(*sfn.Options)) (*sfn.StopExecutionOutput, error) {
	return nil, r.err
}

func (r refusing) DescribeExecution(context.Context, *sfn.DescribeExecutionInput, ...func(*sfn.Options)) (*sfn.DescribeExecutionOutput, error) {
	return nil, r.err
}

func (r refusing) ListExecutions(context.Context, *sfn.ListExecutionsInput, ...func(*sfn.Options)) (*sfn.ListExecutionsOutput, error) {
	return nil, r.err
}

// Whoever asks Step Functions for something is told when to have patience, in the words of the store.
func TestThrottling(t *testing.T) {
	text := "Rate exceeded"
	for _, c := range []struct {
		err      error
		throttle bool
	}{
		{&smithy.GenericAPIError{Code: "ThrottlingException", Message: text}, true},
		{&types.ExecutionLimitExceeded{Message: &text}, true},
		{&smithy.GenericAPIError{Code: "AccessDeniedException", Message: text}, false},
		{errors.New("connection reset"), false},
	} {
		w, err := waiter.New(refusing{c.err}, "arn:aws:states:eu-central-1:123456789012:stateMachine:m")
		require.NoError(t, err)
		_, _, running := w.Running(t.Context(), "")
		_, _, input := w.Input(t.Context(), "r-0")
		_, status := w.Status(t.Context(), "r-0")
		for name, err := range map[string]error{
			"running": running, "input": input, "status": status, "start": w.Start(t.Context(), "acme", "r", "r-0"),
			"stop": w.Stop(t.Context(), "r-0", "done"), "success": w.Success(t.Context(), "token"),
		} {
			require.ErrorIs(t, err, c.err, name)
			require.Equal(t, c.throttle, errors.Is(err, store.ErrThrottled), name)
		}
	}
}

// starting keeps what it was asked to start.
type starting struct {
	refusing
	in *sfn.StartExecutionInput
}

func (s *starting) StartExecution(_ context.Context, in *sfn.StartExecutionInput, _ ...func(*sfn.Options)) (*sfn.StartExecutionOutput, error) {
	s.in = in
	return &sfn.StartExecutionOutput{}, nil
}

// An execution is started in the trace of whoever starts it, and in none where there is none; its name and input are the same either way.
func TestExecutionIsStartedInATrace(t *testing.T) {
	const header = "Root=1-6907a3c1-5e1b4f2a7c8d9e0f1a2b3c4d;Parent=00f067aa0ba902b7;Sampled=1"
	for name, trace := range map[string]func(context.Context) string{
		"": nil, "none": func(context.Context) string { return "" }, header: func(context.Context) string { return header },
	} {
		c := &starting{}
		w, err := waiter.New(c, "arn:aws:states:eu-central-1:123456789012:stateMachine:m")
		require.NoError(t, err)
		w.Trace = trace
		require.NoError(t, w.Start(t.Context(), "acme", "r", "r-0"))
		require.Equal(t, "r-0", *c.in.Name)
		require.JSONEq(t, `{"tenant":"acme","run":"r"}`, *c.in.Input)
		if name == header {
			require.Equal(t, header, *c.in.TraceHeader)
			continue
		}
		require.Nil(t, c.in.TraceHeader)
	}
}
