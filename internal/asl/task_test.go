package asl

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestMatching(t *testing.T) {
	for _, c := range []struct {
		name     string
		patterns map[string]bool
	}{
		{"Custom", map[string]bool{"Custom": true, All: true, TaskFailed: true, Timeout: false, "Other": false}},
		{Timeout, map[string]bool{Timeout: true, All: true, TaskFailed: false, HeartbeatTimeout: false}},
		{HeartbeatTimeout, map[string]bool{Timeout: true, HeartbeatTimeout: true, All: true, TaskFailed: false}},
		{DataLimitExceeded, map[string]bool{DataLimitExceeded: true, All: false, TaskFailed: false}},
		{Runtime, map[string]bool{Runtime: false, All: false, TaskFailed: false}},
	} {
		for pattern, want := range c.patterns {
			require.Equal(t, want, (&Failure{Name: c.name}).matches(pattern), "%s by %s", c.name, pattern)
		}
	}
}

// fail makes the handler f fail with these errors, one a call, and then succeed.
func (r *rig) fail(names ...string) {
	r.on("f", func(context.Context, map[string]any) (any, error) {
		if len(names) == 0 {
			return "fine", nil
		}
		name := names[0]
		names = names[1:]
		return nil, fmt.Errorf("wrapped: %w", named(name))
	})
}

func TestRetry(t *testing.T) {
	const retry = `, "Retry": [
		{"ErrorEquals": ["A"], "IntervalSeconds": 2, "BackoffRate": 3, "MaxAttempts": 3, "MaxDelaySeconds": 10},
		{"ErrorEquals": ["Never"], "MaxAttempts": 0},
		{"ErrorEquals": ["States.ALL"]}]`
	for _, c := range []struct {
		name  string
		fails []string
		want  string
		calls []string
	}{
		{"backs off, up to the longest delay", []string{"A", "A", "A"}, "", []string{"f@0", "f@2", "f@8", "f@18"}},
		{"gives up", []string{"A", "A", "A", "A"}, "A", []string{"f@0", "f@2", "f@8", "f@18"}},
		{"never", []string{"Never"}, "Never", []string{"f@0"}},
		{"defaults: 1 s, 3 attempts, twice as long each", []string{"B", "B", "B", "B"}, "B", []string{"f@0", "f@1", "f@3", "f@7"}},
		{"each retrier counts for itself", []string{"A", "B", "A", "B"}, "", []string{"f@0", "f@2", "f@3", "f@9", "f@11"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, task(retry))
			r.fail(c.fails...)
			d := r.result(`{}`)
			require.Equal(t, c.want, d.Error)
			require.Equal(t, c.calls, r.calls)
			require.Equal(t, len(c.calls), d.Transitions, "a retry is a transition")
		})
	}
}

func TestJitterIsDrawnFromTheDelay(t *testing.T) {
	r := newRig(t, task(`, "Retry": [{"ErrorEquals": ["A"], "IntervalSeconds": 8, "JitterStrategy": "FULL"}]`))
	var drawn []time.Duration
	r.Jitter = func(limit time.Duration) time.Duration {
		drawn = append(drawn, limit)
		return limit / 4
	}
	r.fail("A", "A")
	r.result(`{}`)
	require.Equal(t, []time.Duration{8 * time.Second, 16 * time.Second}, drawn)
	require.Equal(t, []string{"f@0", "f@2", "f@6"}, r.calls)
}

func TestDelayIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := retrier{
			interval: rapid.IntRange(1, maxSeconds).Draw(t, "interval"),
			backoff:  rapid.Float64Range(1, 1e300).Draw(t, "backoff"),
			maxDelay: rapid.IntRange(0, maxDelayLimit-1).Draw(t, "max"),
		}
		n := rapid.IntRange(0, maxSeconds).Draw(t, "n")
		limit := maxSeconds
		if r.maxDelay > 0 {
			limit = r.maxDelay
		}
		d := r.delay(n)
		require.Positive(t, d)
		require.LessOrEqual(t, d, time.Duration(limit)*time.Second)
		require.LessOrEqual(t, d, r.delay(n+1))
	})
}

func TestLambdaResultAndErrors(t *testing.T) {
	for _, c := range []struct {
		name    string
		handler func(context.Context, map[string]any) (any, error)
		want    string
	}{
		{"result", func(_ context.Context, in map[string]any) (any, error) { return in["a"], nil },
			`{"ExecutedVersion":"$LATEST","Payload":1,"StatusCode":200}`},
		{"named error", func(context.Context, map[string]any) (any, error) { return nil, named("Custom") },
			`{"e":{"Cause":"{\"errorMessage\":\"it went wrong\",\"errorType\":\"Custom\"}","Error":"Custom"}}`},
		{"error without a name", func(context.Context, map[string]any) (any, error) { return nil, errors.New("no") },
			`{"e":{"Cause":"{\"errorMessage\":\"no\",\"errorType\":\"Lambda.Unknown\"}","Error":"Lambda.Unknown"}}`},
		{"exit", func(context.Context, map[string]any) (any, error) { runtime.Goexit(); return nil, nil },
			`{"e":{"Cause":"the handler exited without a result","Error":"Runtime.ExitError"}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, strings.Replace(task(`, "Catch": [{"ErrorEquals": ["States.ALL"], "ResultPath": "$.e", "Next": "P"}]`),
				`"States": {`, `"States": {"P": {"Type": "Pass", "Parameters": {"e.$": "$.e"}, "End": true}, `, 1))
			r.on("f", c.handler)
			d := r.result(`{"a": 1}`)
			require.Equal(t, Succeeded, d.Status)
			require.Equal(t, c.want, string(d.Output))
		})
	}
}

func TestResultSelector(t *testing.T) {
	r := newRig(t, task(`, "ResultSelector": {"p.$": "$.Payload.x", "n.$": "$$.State.Name"}, "ResultPath": "$.r", "OutputPath": "$.r"`))
	r.on("f", func(context.Context, map[string]any) (any, error) { return map[string]any{"x": "y"}, nil })
	require.JSONEq(t, `{"p": "y", "n": "T"}`, string(r.result(`{}`).Output))
}

func TestWhatNoCatchCatches(t *testing.T) {
	caught := func(fields string) string {
		return strings.Replace(task(fields+`, "Retry": [{"ErrorEquals": ["States.ALL"]}], "Catch": [{"ErrorEquals": ["States.ALL"], "Next": "P"}]`),
			`"States": {`, `"States": {"P": {"Type": "Pass", "End": true}, `, 1)
	}
	for _, c := range []struct{ name, fields, want string }{
		{"a path nowhere in ResultSelector", `, "ResultSelector": {"x.$": "$.x"}`, Runtime},
		{"a path nowhere in OutputPath", `, "OutputPath": "$.x"`, Runtime},
		{"a timeout that is no number", `, "TimeoutSecondsPath": "$.x"`, Runtime},
		{"too much data", ``, DataLimitExceeded},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, caught(c.fields))
			r.on("f", func(context.Context, map[string]any) (any, error) {
				if c.want == DataLimitExceeded {
					return strings.Repeat("x", MaxData), nil
				}
				return 1, nil
			})
			d := r.result(`{}`)
			require.Equal(t, Failed, d.Status)
			require.Equal(t, c.want, d.Error)
		})
	}
	t.Run("but by its name", func(t *testing.T) {
		r := newRig(t, strings.Replace(caught(""), `"Catch": [`, `"Catch": [{"ErrorEquals": ["States.DataLimitExceeded"], "Next": "P"}, `, 1))
		r.on("f", func(context.Context, map[string]any) (any, error) { return strings.Repeat("x", MaxData), nil })
		require.Equal(t, Succeeded, r.result(`{}`).Status)
	})
}

func TestTimeoutLeavesAZombie(t *testing.T) {
	r := newRig(t, task(`, "TimeoutSeconds": 10, "OutputPath": "$.Payload", "Retry": [{"ErrorEquals": ["States.Timeout"]}]`))
	n := 0
	var zombie error
	r.on("f", func(ctx context.Context, _ map[string]any) (any, error) {
		n++
		if n > 1 {
			return "second", nil
		}
		zombie = r.v.Sleep(ctx, 15*time.Second)
		return "first", nil
	})
	r.run(func() {
		d := r.settled(r.start("x", `{}`))
		require.Equal(t, `"second"`, string(d.Output))
		require.Equal(t, []string{"f@0", "f@11"}, r.calls)
		zombie = errors.New("still asleep")
		r.sleep(10 * time.Second)
		require.NoError(t, zombie, "its context did not end with the task")
		require.Equal(t, `"second"`, string(r.describe(d.ExecutionARN).Output))
	})
	require.Equal(t, []string{
		"ExecutionStarted", "TaskStateEntered T", "TaskScheduled T", "TaskStarted T", "TaskTimedOut T",
		"TaskScheduled T", "TaskStarted T", "TaskSucceeded T", "TaskStateExited T", "ExecutionSucceeded",
	}, r.events)
}

func TestExecutionTimeout(t *testing.T) {
	r := newRig(t, strings.Replace(task(``), `{"StartAt"`, `{"TimeoutSeconds": 5, "StartAt"`, 1))
	r.on("f", func(ctx context.Context, _ map[string]any) (any, error) { return nil, r.v.Sleep(ctx, time.Hour) })
	d := r.result(`{}`)
	require.Equal(t, TimedOut, d.Status)
	require.Equal(t, Timeout, d.Error)
	require.Equal(t, 5*time.Second, d.StopDate.Sub(d.StartDate))
}

func TestEventsAreCountedAsStepFunctionsDoes(t *testing.T) {
	r := newRig(t, `{"StartAt": "T", "States": {
		"T": {"Type": "Task", "Resource": "arn:aws:states:::lambda:invoke", "Parameters": {"FunctionName": "f"}, "OutputPath": "$.Payload", "Next": "C"},
		"C": {"Type": "Choice", "Choices": [{"Variable": "$", "IsNull": true, "Next": "P"}], "Default": "S"},
		"P": {"Type": "Pass", "End": true}, "S": {"Type": "Succeed"}}}`)
	r.fail()
	d := r.result(`{}`)
	require.Equal(t, 1+5+2+2+1, d.HistoryEvents)
	require.Equal(t, 3, d.Transitions)
	require.Len(t, r.events, d.HistoryEvents)
}

func TestHistoryIsLimited(t *testing.T) {
	r := newRig(t, `{"StartAt": "A", "States": {"A": {"Type": "Pass", "Next": "T"},
		"T": {"Type": "Task", "Resource": "arn:aws:states:::lambda:invoke", "Parameters": {"FunctionName": "f"}, "Next": "C",
			"Catch": [{"ErrorEquals": ["States.ALL"], "Next": "S"}]},
		"C": {"Type": "Choice", "Choices": [{"Variable": "$", "IsNull": true, "Next": "S"}], "Default": "A"}, "S": {"Type": "Succeed"}}}`)
	r.fail()
	d := r.result(`{}`)
	require.Equal(t, Failed, d.Status)
	require.Equal(t, Runtime, d.Error)
	require.Equal(t, MaxEvents, d.HistoryEvents)
	require.Equal(t, "ExecutionFailed", r.events[len(r.events)-1])
}
