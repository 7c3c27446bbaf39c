package asl

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const twoWaits = `{"StartAt": "T", "States": {
	"T": {"Type": "Task", "Resource": "arn:aws:states:::lambda:invoke", "TimeoutSeconds": 900,
		"Parameters": {"FunctionName": "t", "Payload.$": "$"}, "OutputPath": "$.Payload", "Next": "W"},
	"W": {"Type": "Task", "Resource": "arn:aws:states:::lambda:invoke.waitForTaskToken", "ResultPath": "$.w",
		"TimeoutSeconds": 100,
		"Parameters": {"FunctionName": "f", "Payload": {"token.$": "$$.Task.Token", "retries.$": "$$.State.RetryCount",
			"in.$": "$"}},
		"Retry": [{"ErrorEquals": ["Custom"], "IntervalSeconds": 1, "MaxAttempts": 3, "BackoffRate": 2,
			"MaxDelaySeconds": 9}], "Next": "Z"},
	"Z": {"Type": "Task", "Resource": "arn:aws:states:::lambda:invoke", "TimeoutSeconds": 900,
		"Parameters": {"FunctionName": "z", "Payload.$": "$"}, "OutputPath": "$.Payload", "Next": "S"},
	"S": {"Type": "Succeed"}}}`

// crashRig has handlers that count, and tokens.
type crashRig struct {
	*rig
	handler handler // of f, after it noted the token
	arn     string
}

func newCrashRig(t *testing.T) *crashRig {
	r := &crashRig{rig: newRig(t, twoWaits)}
	echo := func(_ context.Context, in map[string]any) (any, error) { return in, nil }
	r.on("t", echo)
	r.on("z", echo)
	r.handler = echo
	r.on("f", func(ctx context.Context, in map[string]any) (any, error) {
		r.tokens = append(r.tokens, in["token"].(string))
		return r.handler(ctx, in)
	})
	return r
}

// crash kills the process at a time and starts the next at another.
func (r *crashRig) crash(down, up time.Duration) {
	require.NoError(r.t, r.v.Sleep(bg, epoch.Add(down).Sub(r.v.Now())))
	require.NoError(r.t, r.Close())
	require.NoError(r.t, r.v.Sleep(bg, epoch.Add(up).Sub(r.v.Now())))
	r.boot()
	require.NoError(r.t, r.Resume(bg, nil))
	require.NoError(r.t, r.Resume(bg, nil), "once more does no harm")
}

func TestParkedExecutionKeepsTokenAndDeadline(t *testing.T) {
	r := newCrashRig(t)
	r.run(func() {
		r.arn = r.start("n", `{"a":1}`)
		r.crash(10*time.Second, 50*time.Second)
		before := r.describe(r.arn)
		require.NoError(t, r.SendTaskSuccess(bg, r.tokens[0], []byte(`"ok"`)), "known at once")
		d := r.settled(r.arn)
		require.Equal(t, `{"a":1,"w":"ok"}`, string(d.Output))
		require.Equal(t, epoch, d.StartDate)
		require.Equal(t, before.Transitions+2, d.Transitions)
	})
	require.Equal(t, []string{"t@0", "f@0", "z@50"}, r.calls, "no handler is called again")
}

// Who answers a token is told that the engine is closed, also where the execution had not yet gone on.
func TestTokenOfAnExecutionThatDidNotGoOn(t *testing.T) {
	r := newCrashRig(t)
	r.run(func() {
		r.arn = r.start("n", `{"a":1}`)
		r.crash(10*time.Second, 50*time.Second)
		r.Kill()
		require.ErrorIs(t, r.SendTaskSuccess(bg, r.tokens[0], []byte(`"ok"`)), ErrClosed)
	})
}

func TestParkedExecutionTimesOutWhenDue(t *testing.T) {
	for name, up := range map[string]time.Duration{"before": 50 * time.Second, "behind": 200 * time.Second} {
		t.Run(name, func(t *testing.T) {
			r := newCrashRig(t)
			r.run(func() {
				r.arn = r.start("n", `{}`)
				r.crash(10*time.Second, up)
				d := r.settled(r.arn)
				require.Equal(t, Timeout, d.Error)
				require.Equal(t, max(100*time.Second, up), d.StopDate.Sub(epoch))
			})
		})
	}
}

func TestInterruptedInvocationIsMadeAgainWithItsToken(t *testing.T) {
	r := newCrashRig(t)
	var inputs []any
	r.handler = func(ctx context.Context, in map[string]any) (any, error) {
		inputs = append(inputs, []any{in["retries"], in["in"]})
		if len(inputs) == 1 {
			return nil, named("Custom")
		}
		return nil, r.v.Sleep(ctx, 20*time.Second)
	}
	r.run(func() {
		r.arn = r.start("n", `{"a":1}`)
		r.crash(10*time.Second, 50*time.Second)
		r.crash(60*time.Second, 61*time.Second)
		r.sleep(25 * time.Second)
		r.crash(87*time.Second, 88*time.Second) // it has returned by now
		require.NoError(t, r.SendTaskSuccess(bg, r.tokens[1], []byte(`1`)))
		require.Equal(t, Succeeded, r.settled(r.arn).Status)
	})
	require.Equal(t, []string{"t@0", "f@0", "f@1", "f@50", "f@61", "z@88"}, r.calls)
	require.NotEqual(t, r.tokens[0], r.tokens[1])
	require.Equal(t, []string{r.tokens[1], r.tokens[1]}, r.tokens[2:])
	require.Equal(t, inputs[1], inputs[2])
	require.Equal(t, float64(1), inputs[3].([]any)[0])
}

// The output is kept, and the handler that the crash interrupted is not called again for it.
func TestAcknowledgedOutputSurvives(t *testing.T) {
	r := newCrashRig(t)
	r.handler = func(ctx context.Context, _ map[string]any) (any, error) { return nil, r.v.Sleep(ctx, time.Hour) }
	r.on("z", func(ctx context.Context, in map[string]any) (any, error) { return in, r.v.Sleep(ctx, 5*time.Second) })
	r.run(func() {
		r.arn = r.start("n", `{}`)
		r.sleep(time.Second)
		r.v.Go(func() {
			require.NoError(t, r.SendTaskSuccess(bg, r.tokens[0], []byte(`{"n": 1.50}`)))
			r.Kill()
		})
		r.crash(2*time.Second, 3*time.Second)
		require.Error(t, r.SendTaskSuccess(bg, r.tokens[0], []byte(`2`)))
		require.Equal(t, `{"w":{"n":1.5}}`, string(r.settled(r.arn).Output))
	})
	require.Len(t, r.tokens, 1)
}

func TestInterruptedInvocationIsNotMadeBehindTheDeadline(t *testing.T) {
	r := newCrashRig(t)
	r.handler = func(ctx context.Context, _ map[string]any) (any, error) { return nil, r.v.Sleep(ctx, time.Hour) }
	r.run(func() {
		r.arn = r.start("n", `{}`)
		r.crash(10*time.Second, 200*time.Second)
		require.Equal(t, Timeout, r.settled(r.arn).Error)
	})
	require.Equal(t, []string{"t@0", "f@0"}, r.calls)
}

func TestOtherExecutionsStartAgain(t *testing.T) {
	r := newCrashRig(t)
	r.on("t", func(ctx context.Context, in map[string]any) (any, error) { return in, r.v.Sleep(ctx, 20*time.Second) })
	r.run(func() {
		r.arn = r.start("n", `{"a":1}`)
		r.crash(10*time.Second, 15*time.Second)
		r.sleep(30 * time.Second)
		require.NoError(t, r.SendTaskSuccess(bg, r.tokens[0], []byte(`1`)))
		require.Equal(t, `{"a":1,"w":1}`, string(r.settled(r.arn).Output))
		again, err := r.Start(bg, "other", nil)
		require.NoError(t, err)
		r.crash(50*time.Second, 51*time.Second)
		require.Equal(t, Succeeded, r.describe(r.arn).Status, "closed ones are known")
		_, err = r.Start(bg, "n", []byte(`{"a":1}`))
		isRefused(t, err, ExecutionAlreadyExists)
		require.NoError(t, r.Stop(bg, again.ExecutionARN, "", ""))
	})
	require.Equal(t, []string{"t@0", "t@15", "f@35", "z@45", "t@45"}, r.calls)
}

func TestChangedDefinitionStartsAgain(t *testing.T) {
	r := newCrashRig(t)
	r.run(func() {
		r.arn = r.start("n", `{}`)
		r.sleep(time.Second)
		var err error
		r.def, err = Parse([]byte(task(``)), nil)
		require.NoError(t, err)
		r.on("f", func(context.Context, map[string]any) (any, error) { return "new", nil })
		r.crash(2*time.Second, 3*time.Second)
		require.Contains(t, string(r.settled(r.arn).Output), `"new"`)
	})
}

func TestResumeReportsBadRecords(t *testing.T) {
	r := newCrashRig(t)
	require.NoError(t, r.store.Save(bg, Record{Name: "n", Status: "LOST", Input: json.RawMessage(`{}`)}))
	r.run(func() {
		require.Error(t, r.Resume(bg, nil))
		require.Empty(t, r.List(bg, ""))
	})
	require.ErrorIs(t, r.Resume(bg, nil), ErrClosed)
}
