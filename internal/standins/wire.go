package standins

// This file puts the wire API of Step Functions, awsJson1.0, in front of the local engine, so that real SDK
// clients can drive it in tests.

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/asl"
)

// StepFunctions serves an engine. Operations other than those of awssdk.Waiter are UnknownOperationException.
func StepFunctions(e *asl.Engine) http.Handler {
	ops := map[string]func(context.Context, []byte) (any, error){
		"StartExecution": op(func(ctx context.Context, in struct{ StateMachineArn, Name, Input string }) (any, error) {
			r, err := e.Start(ctx, in.Name, []byte(in.Input))
			return map[string]any{"executionArn": r.ExecutionARN, "startDate": seconds(r.StartDate)}, err
		}),
		"StopExecution": op(func(ctx context.Context, in struct{ ExecutionArn, Error, Cause string }) (any, error) {
			if err := e.Stop(ctx, in.ExecutionArn, in.Error, in.Cause); err != nil {
				return nil, err
			}
			d, err := e.Describe(ctx, in.ExecutionArn)
			return map[string]any{"stopDate": seconds(d.StopDate)}, err
		}),
		"DescribeExecution": op(func(ctx context.Context, in struct{ ExecutionArn string }) (any, error) {
			d, err := e.Describe(ctx, in.ExecutionArn)
			out := map[string]any{
				"executionArn": d.ExecutionARN, "name": d.Name, "status": string(d.Status), "input": string(d.Input),
				"startDate": seconds(d.StartDate),
			}
			if d.Status.Terminal() {
				out["stopDate"] = seconds(d.StopDate)
			}
			if d.Output != nil {
				out["output"] = string(d.Output)
			}
			if d.Error != "" {
				out["error"], out["cause"] = d.Error, d.Cause
			}
			return out, err
		}),
		"ListExecutions": op(func(ctx context.Context, in listInput) (any, error) {
			return listed(e, e.List(ctx, asl.Status(in.StatusFilter)), in)
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

// listInput asks for a page of executions.
type listInput struct {
	StateMachineArn, StatusFilter, NextToken string
	MaxResults                               int
}

func op[In any](f func(context.Context, In) (any, error)) func(context.Context, []byte) (any, error) {
	return func(ctx context.Context, body []byte) (any, error) {
		var in In
		if err := json.Unmarshal(body, &in); err != nil {
			return nil, &asl.Error{Name: "SerializationException", Cause: err.Error()}
		}
		return f(ctx, in)
	}
}

// listed is a page of executions, newest first. Its token is how many came before.
func listed(e *asl.Engine, all []asl.Description, in listInput) (any, error) {
	from := 0
	if in.NextToken != "" {
		var err error
		if from, err = strconv.Atoi(in.NextToken); err != nil || from < 0 || from > len(all) {
			return nil, &asl.Error{Name: "InvalidToken", Cause: "the token is not one of a page"}
		}
	}
	to := len(all)
	if in.MaxResults > 0 {
		to = min(from+in.MaxResults, to)
	}
	page := []any{}
	for _, d := range all[from:to] {
		page = append(page, map[string]any{
			"executionArn": d.ExecutionARN, "stateMachineArn": e.ARN, "name": d.Name, "status": string(d.Status),
			"startDate": seconds(d.StartDate),
		})
	}
	out := map[string]any{"executions": page}
	if to < len(all) {
		out["nextToken"] = strconv.Itoa(to)
	}
	return out, nil
}
