package standins

// This file puts the wire API of Step Functions, awsJson1.0, in front of the local engine, so that real SDK
// clients can drive it in tests.

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/asl"
)

// StepFunctions serves an engine. Operations other than those of lambdafn.Waiter are UnknownOperationException; answers
// hold what that reads.
func StepFunctions(e *asl.Engine) http.Handler {
	ops := map[string]func(context.Context, []byte) (any, error){
		"StartExecution": op(func(ctx context.Context, in struct{ StateMachineArn, Name, Input string }) (any, error) {
			r, err := e.Start(ctx, in.Name, []byte(in.Input))
			return map[string]any{"executionArn": r.ExecutionARN, "startDate": seconds(r.StartDate)}, err
		}),
		"StopExecution": op(func(ctx context.Context, in struct{ ExecutionArn, Error, Cause string }) (any, error) {
			return struct{}{}, e.Stop(ctx, in.ExecutionArn, in.Error, in.Cause)
		}),
		"DescribeExecution": op(func(ctx context.Context, in struct{ ExecutionArn string }) (any, error) {
			d, err := e.Describe(ctx, in.ExecutionArn)
			out := map[string]any{"status": string(d.Status), "input": string(d.Input)}
			if d.Error != "" {
				out["error"] = d.Error
			}
			return out, err
		}),
		"ListExecutions": op(func(ctx context.Context, in struct{ StatusFilter string }) (any, error) { // all in one page
			list := []any{}
			for _, d := range e.List(ctx, asl.Status(in.StatusFilter)) {
				list = append(list, map[string]any{"name": d.Name, "startDate": seconds(d.StartDate)})
			}
			return map[string]any{"executions": list}, nil
		}),
		"SendTaskSuccess": op(func(ctx context.Context, in struct{ TaskToken, Output string }) (any, error) {
			return struct{}{}, e.SendTaskSuccess(ctx, in.TaskToken, []byte(in.Output))
		}),
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		f, ok := ops[strings.TrimPrefix(r.Header.Get("X-Amz-Target"), "AWSStepFunctions.")]
		if !ok {
			refuseRPC(w, "UnknownOperationException", r.Header.Get("X-Amz-Target"))
			return
		}
		// At most an input of 256 KiB, escaped, and its frame.
		body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
		if err != nil {
			refuseRPC(w, "SerializationException", err.Error())
			return
		}
		out, err := f(r.Context(), body)
		refused, isRefused := errors.AsType[*asl.Error](err)
		switch {
		case isRefused:
			refuseRPC(w, refused.Name, refused.Cause)
		case err != nil:
			http.Error(w, `{"__type":"InternalFailure"}`, http.StatusInternalServerError)
		default:
			_ = json.NewEncoder(w).Encode(out) // the client is gone if this fails
		}
	})
}

// seconds is an instant as the service writes it.
func seconds(at time.Time) float64 { return float64(at.UnixMilli()) / 1000 }

func op[In any](f func(context.Context, In) (any, error)) func(context.Context, []byte) (any, error) {
	return func(ctx context.Context, body []byte) (any, error) {
		var in In
		if err := json.Unmarshal(body, &in); err != nil {
			return nil, &asl.Error{Name: "SerializationException", Cause: err.Error()}
		}
		return f(ctx, in)
	}
}
