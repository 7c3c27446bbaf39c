package asl

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// hand makes the handler f hand its token over and succeed.
func (r *rig) hand(tokens *[]string) {
	r.on("f", func(_ context.Context, in map[string]any) (any, error) {
		*tokens = append(*tokens, in["token"].(string))
		return "ignored", nil
	})
}

func TestTokenSucceeds(t *testing.T) {
	r := newRig(t, waiting(`, "ResultPath": "$.answer"`))
	var tokens []string
	r.hand(&tokens)
	r.run(func() {
		arn := r.start("x", `{"a": 1}`)
		r.sleep(time.Hour)
		require.Equal(t, Running, r.describe(arn).Status)
		isRefused(t, r.SendTaskSuccess(bg, tokens[0], []byte(`{`)), InvalidOutput)
		isRefused(t, r.SendTaskSuccess(bg, tokens[0], []byte(`"`+strings.Repeat("x", MaxData)+`"`)), InvalidOutput)
		require.NoError(t, r.SendTaskSuccess(bg, tokens[0], []byte(`{"yes": 1.0}`)))
		isRefused(t, r.SendTaskSuccess(bg, tokens[0], []byte(`{}`)), TaskTimedOut)
		isRefused(t, r.SendTaskFailure(bg, tokens[0], "E", ""), TaskTimedOut)
		isRefused(t, r.SendTaskHeartbeat(bg, tokens[0]), TaskTimedOut)
		d := r.settled(arn)
		require.Equal(t, `{"a":1,"answer":{"yes":1.0}}`, string(d.Output))
		isRefused(t, r.SendTaskSuccess(bg, "made up", []byte(`{}`)), TaskDoesNotExist)
		isRefused(t, r.SendTaskSuccess(bg, "", []byte(`{}`)), InvalidToken)
		isRefused(t, r.SendTaskHeartbeat(bg, strings.Repeat("x", 2049)), InvalidToken)
	})
	require.Equal(t, []string{
		"ExecutionStarted", "TaskStateEntered W", "TaskScheduled W", "TaskStarted W", "TaskSubmitted W",
		"TaskSucceeded W", "TaskStateExited W", "ExecutionSucceeded",
	}, r.events)
}

func TestTokenBeforeTheInvocationReturns(t *testing.T) {
	r := newRig(t, waiting(``))
	r.on("f", func(ctx context.Context, in map[string]any) (any, error) {
		require.NoError(t, r.SendTaskSuccess(bg, in["token"].(string), []byte(`"early"`)))
		return nil, named("Late")
	})
	d := r.result(`{}`)
	require.Equal(t, `"early"`, string(d.Output))
}

func TestTokenSentTwiceAtOnce(t *testing.T) {
	r := newRig(t, waiting(``))
	var tokens []string
	r.hand(&tokens)
	r.run(func() {
		arn := r.start("x", `{}`)
		r.sleep(time.Second)
		errs := map[string]error{}
		for _, who := range []string{"1", "2"} {
			r.v.Go(func() { errs[who] = r.SendTaskSuccess(bg, tokens[0], []byte(who)) })
		}
		require.Equal(t, `1`, string(r.settled(arn).Output))
		r.sleep(time.Second)
		require.NoError(t, errs["1"])
		isRefused(t, errs["2"], TaskTimedOut)
	})
}

func TestTokenFails(t *testing.T) {
	r := newRig(t, waiting(``))
	var tokens []string
	r.hand(&tokens)
	r.run(func() {
		arn := r.start("x", `{}`)
		r.sleep(time.Second)
		require.NoError(t, r.SendTaskFailure(bg, tokens[0], "Denied", "by ann"))
		d := r.settled(arn)
		require.Equal(t, []string{"Denied", "by ann"}, []string{d.Error, d.Cause})
	})
}

func TestFailedInvocationMintsANewToken(t *testing.T) {
	r := newRig(t, waiting(`, "Retry": [{"ErrorEquals": ["Custom"], "IntervalSeconds": 5}]`))
	var tokens []string
	var counts []float64
	r.on("f", func(_ context.Context, in map[string]any) (any, error) {
		tokens = append(tokens, in["token"].(string))
		counts = append(counts, in["retries"].(float64))
		if len(tokens) == 1 {
			return nil, named("Custom")
		}
		return nil, nil
	})
	r.run(func() {
		arn := r.start("x", `{}`)
		r.sleep(time.Second)
		isRefused(t, r.SendTaskSuccess(bg, tokens[0], []byte(`{}`)), TaskTimedOut)
		r.sleep(10 * time.Second)
		require.Equal(t, []float64{0, 1}, counts)
		require.NotEqual(t, tokens[0], tokens[1])
		isRefused(t, r.SendTaskSuccess(bg, tokens[0], []byte(`{}`)), TaskTimedOut)
		require.NoError(t, r.SendTaskSuccess(bg, tokens[1], []byte(`{}`)))
		require.Equal(t, Succeeded, r.settled(arn).Status)
	})
}

func TestTokenTimesOut(t *testing.T) {
	r := newRig(t, waiting(`, "TimeoutSecondsPath": "$.s"`))
	var tokens []string
	r.hand(&tokens)
	r.run(func() {
		d := r.settled(r.start("x", `{"s": 30}`))
		require.Equal(t, Timeout, d.Error)
		require.Equal(t, 30*time.Second, d.StopDate.Sub(d.StartDate))
		isRefused(t, r.SendTaskSuccess(bg, tokens[0], []byte(`{}`)), TaskTimedOut)
	})
}

func TestHeartbeat(t *testing.T) {
	r := newRig(t, waiting(`, "TimeoutSeconds": 100, "HeartbeatSecondsPath": "$.h"`))
	var tokens []string
	r.hand(&tokens)
	r.run(func() {
		arn := r.start("x", `{"h": 10}`)
		for range 3 {
			r.sleep(9 * time.Second)
			require.NoError(t, r.SendTaskHeartbeat(bg, tokens[0]))
		}
		d := r.settled(arn)
		require.Equal(t, HeartbeatTimeout, d.Error)
		require.Equal(t, 37*time.Second, d.StopDate.Sub(d.StartDate))
	})
	t.Run("does not stretch the timeout", func(t *testing.T) {
		r := newRig(t, waiting(`, "TimeoutSeconds": 20, "HeartbeatSeconds": 15`))
		r.hand(&tokens)
		r.run(func() {
			arn := r.start("x", `{}`)
			r.sleep(14 * time.Second)
			require.NoError(t, r.SendTaskHeartbeat(bg, tokens[len(tokens)-1]))
			d := r.settled(arn)
			require.Equal(t, Timeout, d.Error)
			require.Equal(t, 20*time.Second, d.StopDate.Sub(d.StartDate))
		})
	})
	t.Run("not below the timeout", func(t *testing.T) {
		r := newRig(t, waiting(`, "TimeoutSeconds": 10, "HeartbeatSecondsPath": "$.h"`))
		require.Equal(t, Runtime, r.result(`{"h": 10}`).Error)
	})
}
