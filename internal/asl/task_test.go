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
)

// caughtAt is a Catch of everything that puts the error at $.e.
const caughtAt = `, "Catch": [{"ErrorEquals": ["States.ALL"], "ResultPath": "$.e", "Next": "Caught"}]`

func TestMatching(t *testing.T) {
	for name, patterns := range map[string]map[string]bool{
		"Custom":          {"Custom": true, All: true, Timeout: false, "Other": false},
		Timeout:           {Timeout: true, All: true, "Other": false},
		DataLimitExceeded: {DataLimitExceeded: true, All: false},
		Runtime:           {Runtime: false, All: false},
	} {
		for pattern, want := range patterns {
			require.Equal(t, want, (&Error{Name: name}).matches([]string{pattern}), "%s by %s", name, pattern)
		}
	}
}

func TestRetry(t *testing.T) {
	const retry = `, "Retry": [
		{"ErrorEquals": ["A"], "IntervalSeconds": 2, "BackoffRate": 3, "MaxAttempts": 3, "MaxDelaySeconds": 10},
		{"ErrorEquals": ["States.ALL"], "IntervalSeconds": 1, "BackoffRate": 2, "MaxAttempts": 3, "MaxDelaySeconds": 99}]`
	for _, c := range []struct {
		name  string
		fails []string
		want  string
		calls []string
	}{
		{"backs off, up to the longest delay", []string{"A", "A", "A"}, "", []string{"f@0", "f@2", "f@8", "f@18"}},
		{"gives up, and asks no other retrier", []string{"A", "A", "A", "A"}, "A", []string{"f@0", "f@2", "f@8", "f@18"}},
		{"each retrier counts for itself", []string{"A", "B", "A", "B"}, "", []string{"f@0", "f@2", "f@3", "f@9", "f@11"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, task(retry))
			r.fail(c.fails...)
			d := r.result(`{}`)
			require.Equal(t, c.want, d.Error)
			require.Equal(t, c.calls, r.calls)
			behind := 1
			if c.want != "" {
				behind = 0
			}
			require.Equal(t, len(c.calls)+behind, d.Transitions, "a retry is a transition")
		})
	}
}

func TestJitterIsDrawnFromTheDelay(t *testing.T) {
	r := newRig(t, task(`, "Retry": [{"ErrorEquals": ["A"], "IntervalSeconds": 8, "BackoffRate": 2, "MaxAttempts": 3,
		"MaxDelaySeconds": 99, "JitterStrategy": "FULL"}]`))
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

// The delay grows up to its bound, also where the power is infinite.
func TestDelayIsBounded(t *testing.T) {
	r := retrier{IntervalSeconds: maxSeconds, BackoffRate: 1e300, MaxDelaySeconds: maxSeconds}
	for _, n := range []int{0, 1, 2, maxSeconds} {
		require.Equal(t, maxSeconds*time.Second, r.delay(n))
	}
}

func TestLambdaResultAndErrors(t *testing.T) {
	for _, c := range []struct {
		name    string
		handler handler
		want    string
	}{
		{"result", func(_ context.Context, in map[string]any) (any, error) { return in["a"], nil },
			`{"a":2.50,"r":{"ExecutedVersion":"$LATEST","Payload":2.5,"StatusCode":200},"s":"<&>"}`},
		{"named error", func(context.Context, map[string]any) (any, error) { return nil, named("Custom") },
			`{"a":2.50,"e":{"Cause":"{\"errorMessage\":\"it went wrong\",\"errorType\":\"Custom\"}","Error":"Custom"},"s":"<&>"}`},
		{"error without a name", func(context.Context, map[string]any) (any, error) { return nil, errors.New("no") },
			`{"a":2.50,"e":{"Cause":"{\"errorMessage\":\"no\",\"errorType\":\"Lambda.Unknown\"}","Error":"Lambda.Unknown"},"s":"<&>"}`},
		{"exit", func(context.Context, map[string]any) (any, error) { runtime.Goexit(); return nil, nil },
			`{"a":2.50,"e":{"Cause":"the handler exited without a result","Error":"Runtime.ExitError"},"s":"<&>"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, task(`, "ResultPath": "$.r"`+caughtAt))
			r.on("f", c.handler)
			d := r.result(`{"a": 2.50, "s": "<&>"}`)
			require.Equal(t, Succeeded, d.Status)
			require.Equal(t, c.want, string(d.Output))
		})
	}
}

func TestDataflow(t *testing.T) {
	for _, c := range []struct{ fields, input, want string }{
		{`, "OutputPath": "$.Payload"`, `{"a": 1}`, `"fine"`},
		{`, "ResultPath": null`, `{"a": 1}`, `{"a":1}`},
		{`, "ResultPath": "$.a", "OutputPath": "$.a.Payload"`, `{"a": 1}`, `"fine"`},
		{`, "OutputPath": "$$.Execution.Name"`, `{}`, `"x"`},
		{`, "ResultPath": "$.r"`, `[1]`, ResultPathMatchFailure},
		{`, "OutputPath": "$.x"`, `{}`, Runtime},
		{`, "TimeoutSecondsPath": "$.t"`, `{"t": "soon"}`, Runtime},
		{`, "TimeoutSecondsPath": "$.t"`, `{"t": 0}`, Runtime},
	} {
		r := newRig(t, task(c.fields))
		r.fail()
		r.Config.Invoke = func(context.Context, string, []byte) ([]byte, error) { return []byte(`"fine"`), nil }
		d := r.result(c.input)
		require.Equal(t, c.want, d.Error+string(d.Output), c.fields)
	}
	t.Run("a Choice with nothing to look at", func(t *testing.T) {
		r := newRig(t, `{"StartAt": "C", "States": {"C": {"Type": "Choice", "Default": "S",
			"Choices": [{"Variable": "$.a.b", "StringEquals": "x", "Next": "F"}]}, "S": {"Type": "Succeed"},
				"F": {"Type": "Fail", "Error": "x"}}}`)
		r.run(func() {
			for input, want := range map[string]string{`{"a": {"b": "x"}}`: "x", `{"a": {"b": ["x"]}}`: "",
				`{"a": 1}`: Runtime} {
				require.Equal(t, want, r.settled(r.start(fmt.Sprint(len(input)), input)).Error, input)
			}
		})
	})
}

func TestWhatNoCatchCatches(t *testing.T) {
	big := func(context.Context, map[string]any) (any, error) { return strings.Repeat("x", MaxData), nil }
	small := func(context.Context, map[string]any) (any, error) { return 1, nil }
	for _, c := range []struct {
		fields  string
		handler handler
		want    string
	}{
		{`, "OutputPath": "$.x"` + caughtAt, small, Runtime},
		{caughtAt, big, DataLimitExceeded},
		{strings.Replace(caughtAt, `[{`, `[{"ErrorEquals": ["States.DataLimitExceeded"], "ResultPath": null, "Next": "Caught"}, {`, 1), big, ""},
	} {
		r := newRig(t, task(c.fields))
		r.on("f", c.handler)
		require.Equal(t, c.want, r.result(`{}`).Error, c.fields)
	}
}

func TestTimeoutLeavesAZombie(t *testing.T) {
	r := newRig(t, task(`, "TimeoutSeconds": 10, "OutputPath": "$.Payload", "Retry": [{"ErrorEquals": ["States.Timeout"],
		"IntervalSeconds": 1, "BackoffRate": 2, "MaxAttempts": 3, "MaxDelaySeconds": 9}]`))
	n := 0
	var zombie error
	r.on("f", func(ctx context.Context, _ map[string]any) (any, error) {
		if n++; n > 1 {
			return "second", nil
		}
		zombie = r.v.Sleep(ctx, 15*time.Second)
		return "first", nil
	})
	r.run(func() {
		d := r.settled(r.start("x", `{}`))
		require.Equal(t, `"second"`, string(d.Output))
		require.Equal(t, []string{"f@0", "f@11"}, r.calls)
		require.Len(t, r.UnderWay(), 1)
		zombie = errors.New("still asleep")
		r.sleep(10 * time.Second)
		require.NoError(t, zombie, "its context did not end with the task")
		require.Equal(t, `"second"`, string(r.describe(d.ExecutionARN).Output))
		require.Empty(t, r.UnderWay())
	})
}

func TestTokenSucceeds(t *testing.T) {
	r := newRig(t, waiting(`, "ResultPath": "$.answer"`))
	r.hand()
	r.run(func() {
		arn := r.start("x", `{"a": 1}`)
		r.sleep(time.Hour)
		require.Equal(t, Running, r.describe(arn).Status)
		require.True(t, r.Waits(r.tokens[0]))
		isRefused(t, r.SendTaskSuccess(bg, r.tokens[0], []byte(`{`)), InvalidOutput)
		isRefused(t, r.SendTaskSuccess(bg, r.tokens[0], []byte(`"`+strings.Repeat("x", MaxData)+`"`)), InvalidOutput)
		require.NoError(t, r.SendTaskSuccess(bg, r.tokens[0], []byte(`{"yes": 1.0}`)))
		require.False(t, r.Waits(r.tokens[0]))
		isRefused(t, r.SendTaskSuccess(bg, r.tokens[0], []byte(`{}`)), TaskTimedOut)
		d := r.settled(arn)
		require.Equal(t, `{"a":1,"answer":{"yes":1.0}}`, string(d.Output))
		require.Equal(t, 1+6+2+1, d.Events)
		isRefused(t, r.SendTaskSuccess(bg, "made up", []byte(`{}`)), TaskDoesNotExist)
	})
}

func TestTokenSentTwiceAtOnce(t *testing.T) {
	r := newRig(t, waiting(``))
	r.hand()
	r.run(func() {
		arn := r.start("x", `{}`)
		r.sleep(time.Second)
		errs := map[string]error{}
		for _, who := range []string{"1", "2"} {
			r.v.Go(func() { errs[who] = r.SendTaskSuccess(bg, r.tokens[0], []byte(who)) })
		}
		require.Equal(t, `1`, string(r.settled(arn).Output))
		r.sleep(time.Second)
		require.NoError(t, errs["1"])
		isRefused(t, errs["2"], TaskTimedOut)
	})
}

func TestFailedInvocationMintsANewToken(t *testing.T) {
	r := newRig(t, waiting(`, "Retry": [{"ErrorEquals": ["Custom"], "IntervalSeconds": 5, "BackoffRate": 1, "MaxAttempts": 1, "MaxDelaySeconds": 5}]`))
	var tokens []string
	var counts []any
	r.on("f", func(_ context.Context, in map[string]any) (any, error) {
		tokens, counts = append(tokens, in["token"].(string)), append(counts, in["retries"])
		if len(tokens) == 1 {
			return nil, named("Custom")
		}
		return nil, nil
	})
	r.run(func() {
		arn := r.start("x", `{}`)
		r.sleep(10 * time.Second)
		require.Equal(t, []any{0.0, 1.0}, counts)
		require.NotEqual(t, tokens[0], tokens[1])
		isRefused(t, r.SendTaskSuccess(bg, tokens[0], []byte(`{}`)), TaskTimedOut)
		require.NoError(t, r.SendTaskSuccess(bg, tokens[1], []byte(`{}`)))
		require.Equal(t, Succeeded, r.settled(arn).Status)
	})
}
