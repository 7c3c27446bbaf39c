package asl

import (
	"context"
	"encoding/json"
	"errors"
	"time"
)

// resource is something a Task can call.
type resource struct {
	required []string // parameters
	optional []string
	token    bool // it waits for a task token
	prepare  func(x *execution, params map[string]any) (work, error)
}

// work is a call that is ready to be made. Its error is a *Failure.
type work func(ctx context.Context) (any, *Failure)

var resources = map[string]resource{
	"arn:aws:states:::lambda:invoke": {
		required: []string{"FunctionName"}, optional: []string{"Payload"}, prepare: prepareInvoke,
	},
	"arn:aws:states:::lambda:invoke.waitForTaskToken": {
		required: []string{"FunctionName"}, optional: []string{"Payload"}, prepare: prepareInvoke, token: true,
	},
	"arn:aws:states:::states:startExecution": {
		required: []string{"StateMachineArn"}, optional: []string{"Name", "Input"}, prepare: prepareStart,
	},
}

// Invocation tells a handler what calls it.
type Invocation struct {
	RequestID    string // its own for every invocation
	ExecutionARN string
	State        string
	RetryCount   int
	RedriveCount int
}

// textParam is a parameter that must be a string.
func textParam(params map[string]any, key string) (string, error) {
	s, ok := params[key].(string)
	if !ok {
		return "", failf(Runtime, "parameter %s must be a string", key)
	}
	return s, nil
}

// bodyParam is a parameter as JSON, an empty object when it is not there.
func bodyParam(params map[string]any, key string) ([]byte, error) {
	v, ok := params[key]
	if !ok {
		v = map[string]any{}
	}
	body, err := encodeValue(v)
	if err != nil {
		return nil, failf(Runtime, "parameter %s: %v", key, err)
	}
	if len(body) > MaxData {
		return nil, failf(DataLimitExceeded, "parameter %s is %d bytes, more than %d", key, len(body), MaxData)
	}
	return body, nil
}

func prepareInvoke(x *execution, params map[string]any) (work, error) {
	function, err := textParam(params, "FunctionName")
	if err != nil {
		return nil, err
	}
	payload, err := bodyParam(params, "Payload")
	if err != nil {
		return nil, err
	}
	inv := Invocation{
		RequestID: x.engine.IDs(), ExecutionARN: x.arn, State: x.at, RetryCount: x.retryCount, RedriveCount: x.rec.RedriveCount,
	}
	return func(ctx context.Context) (any, *Failure) {
		out, err := x.engine.Invoke(ctx, function, payload, inv)
		switch {
		case errors.Is(err, ErrStandStill):
			return nil, &Failure{still: err}
		case err != nil:
			return nil, lambdaFailure(err)
		}
		return lambdaResult(out)
	}, nil
}

// lambdaResult is what the lambda:invoke integration makes of a handler's answer; no bytes are null.
func lambdaResult(out []byte) (any, *Failure) {
	if len(out) > MaxData {
		return nil, failf(DataLimitExceeded, "the handler's result is %d bytes, more than %d", len(out), MaxData)
	}
	if len(out) == 0 {
		out = []byte("null")
	}
	payload, err := decodeValue(out)
	if err != nil {
		return nil, failf(LambdaUnknown, "the handler's result is not JSON: %v", err)
	}
	return map[string]any{"ExecutedVersion": "$LATEST", "Payload": payload, "StatusCode": json.Number("200")}, nil
}

// lambdaFailure is what Step Functions makes of a handler's error: its name, and the error as JSON for a cause.
func lambdaFailure(err error) *Failure {
	name := LambdaUnknown
	var typed interface{ ErrorType() string }
	if errors.As(err, &typed) && typed.ErrorType() != "" {
		name = typed.ErrorType()
	}
	cause, _ := json.Marshal(struct { // two strings always marshal
		Message string `json:"errorMessage"`
		Type    string `json:"errorType"`
	}{err.Error(), name})
	return &Failure{Name: name, Cause: string(cause), err: err}
}

func prepareStart(x *execution, params map[string]any) (work, error) {
	machine, err := textParam(params, "StateMachineArn")
	if err != nil {
		return nil, err
	}
	var name string
	if _, ok := params["Name"]; ok {
		if name, err = textParam(params, "Name"); err != nil {
			return nil, err
		}
	}
	input, err := bodyParam(params, "Input")
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (any, *Failure) { return x.engine.startNested(ctx, machine, name, input) }, nil
}

// startNested is states:startExecution: fire and forget, on this engine's own state machine.
func (e *Engine) startNested(ctx context.Context, machine, name string, input []byte) (any, *Failure) {
	if machine != e.ARN {
		return nil, startFailure(refuse(StateMachineDoesNotExist, "state machine %s does not exist", machine))
	}
	r, err := e.Start(ctx, name, input)
	if err != nil {
		return nil, startFailure(err)
	}
	return map[string]any{"ExecutionArn": r.ExecutionARN, "StartDate": r.StartDate.Format(timeFormat)}, nil
}

// startFailure names an error of Start as the integration does.
func startFailure(err error) *Failure {
	var refused *Error
	if errors.As(err, &refused) {
		return failf("StepFunctions."+refused.Name+"Exception", "%s", refused.Message)
	}
	return failf("StepFunctions.SdkClientException", "%v", err)
}

// timeFormat is how times look in the context object and in results.
const timeFormat = "2006-01-02T15:04:05.000Z07:00"

func formatTime(t time.Time) string { return t.UTC().Format(timeFormat) }
