package awsfake_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/asl"
	"github.com/countersign/countersign/internal/awsfake"
	"github.com/countersign/countersign/internal/awssdk"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/ids"
	"github.com/countersign/countersign/internal/runtime"
)

const machine = "arn:aws:states:local:000000000000:stateMachine:countersign"

// parked is a machine whose one state waits for its token.
const parked = `{"StartAt":"W","States":{"W":{"Type":"Task","Resource":"arn:aws:states:::lambda:invoke.waitForTaskToken",
 "Parameters":{"FunctionName":"w","Payload":{"token.$":"$$.Task.Token"}},"TimeoutSeconds":60,"Next":"S"},"S":{"Type":"Succeed"}}}`

func start(t *testing.T) (*awssdk.Waiter, *asl.Engine, chan string) {
	t.Helper()
	def, err := asl.Parse([]byte(parked), nil)
	require.NoError(t, err)
	clk := clock.System()
	draw := ids.System(clk)
	tokens := make(chan string, 8)
	e, err := asl.New(asl.Config{Definition: def, ARN: machine, Clock: clk, Store: &asl.MemoryStore{}, IDs: draw.Token, Jitter: draw.Jitter,
		Invoke: func(_ context.Context, _ string, payload []byte) ([]byte, error) {
			tokens <- strings.Split(string(payload), `"`)[3]
			return []byte("{}"), nil
		}})
	require.NoError(t, err)
	srv := httptest.NewServer(awsfake.StepFunctions(e))
	t.Cleanup(func() {
		srv.Close()
		require.NoError(t, e.Close())
	})
	w, err := awssdk.NewWaiter(aws.Config{
		Region: "local", Credentials: credentials.NewStaticCredentialsProvider("a", "b", ""), BaseEndpoint: &srv.URL,
	}, machine)
	require.NoError(t, err)
	return w, e, tokens
}

func TestWaiterOverTheWire(t *testing.T) {
	w, e, tokens := start(t)
	ctx := t.Context()
	st, err := w.Status(ctx, "r1-0")
	require.NoError(t, err)
	require.Equal(t, runtime.ExecutionNone, st)
	require.NoError(t, w.Start(ctx, "default", "r1", "r1-0"))
	require.NoError(t, w.Start(ctx, "default", "r1", "r1-0"), "the same name again")
	token := <-tokens
	st, err = w.Status(ctx, "r1-0")
	require.NoError(t, err)
	require.Equal(t, runtime.ExecutionRunning, st)
	require.NoError(t, w.Success(ctx, token))
	require.ErrorIs(t, w.Success(ctx, token), runtime.ErrSettled)
	require.ErrorIs(t, w.Success(ctx, "nobodys"), runtime.ErrSettled)
	require.Eventually(t, func() bool {
		st, err := w.Status(ctx, "r1-0")
		return err == nil && st == runtime.ExecutionEnded
	}, 2*time.Minute, time.Millisecond)
	require.NoError(t, w.Start(ctx, "default", "r1", "r1-0"), "closed: the name is used, which is all that was wanted")
	require.Len(t, e.List(ctx, ""), 1)
	require.NoError(t, w.Stop(ctx, "r1-0", "cancelled"), "ended already")
	require.NoError(t, w.Stop(ctx, "never", "cancelled"))
	require.NoError(t, w.Start(ctx, "default", "r2", "r2-0"))
	<-tokens
	require.NoError(t, w.Stop(ctx, "r2-0", "cancelled"))
	st, err = w.Status(ctx, "r2-0")
	require.NoError(t, err)
	require.Equal(t, runtime.ExecutionEnded, st)
}

func TestNewWantsAStateMachine(t *testing.T) {
	for _, arn := range []string{"", "countersign", "arn:aws:states:eu:1:execution:x", "arn:aws:states:eu:1:stateMachine:"} {
		_, err := awssdk.NewWaiter(aws.Config{}, arn)
		require.ErrorContains(t, err, "want arn:aws:states", arn)
	}
}

func TestExecutionsOverTheWire(t *testing.T) {
	w, e, tokens := start(t)
	ctx := t.Context()
	_, found, err := w.Input(ctx, "r1-0")
	require.NoError(t, err)
	require.False(t, found)
	for i := range 1001 {
		require.NoError(t, w.Start(ctx, "acme", fmt.Sprint("r", i), fmt.Sprintf("r%d-0", i)))
		<-tokens
	}
	input, found, err := w.Input(ctx, "r7-0")
	require.NoError(t, err)
	require.True(t, found)
	tenant, run, ok := runtime.StartedRun("r7-0", input)
	require.True(t, ok)
	require.Equal(t, []string{"acme", "r7"}, []string{tenant, run})

	require.NoError(t, w.Stop(ctx, "r7-0", "cancelled"))
	first, next, err := w.Running(ctx, "")
	require.NoError(t, err)
	require.Len(t, first, 1000)
	require.Empty(t, next, "one has been stopped")
	require.NoError(t, w.Start(ctx, "acme", "late", "late-0"))
	<-tokens
	first, next, err = w.Running(ctx, "")
	require.NoError(t, err)
	second, end, err := w.Running(ctx, next)
	require.NoError(t, err)
	require.Empty(t, end)
	names := map[string]bool{}
	for _, x := range append(first, second...) {
		names[x.Name] = true
		require.WithinDuration(t, time.Now(), x.Started, time.Minute)
	}
	require.Len(t, names, 1001)
	require.False(t, names["r7-0"])
	require.Len(t, e.List(ctx, ""), 1002)
	_, _, err = w.Running(ctx, "odd")
	require.ErrorContains(t, err, "list executions")
}
