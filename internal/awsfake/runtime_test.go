package awsfake_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/awsfake"
	"github.com/countersign/countersign/internal/clock"
)

// The tests' own binary is the bootstrap: with a folder in this variable it serves events instead of tests.
const folder = "LAMBDART_FOLDER"

func TestMain(m *testing.M) {
	if os.Getenv(folder) == "" {
		os.Exit(m.Run())
	}
	lambda.Start(serveEvents)
}

// serveEvents does what its event says; "wait" ends when the file of that name is there.
func serveEvents(_ context.Context, e struct{ Do, File string }) (string, error) {
	switch e.Do {
	case "exit":
		os.Exit(3)
	case "fail":
		return "", errors.New("no")
	case "wait":
		if err := os.WriteFile(e.File+".waits", nil, 0o600); err != nil {
			return "", err
		}
		for {
			if _, err := os.Stat(e.File); err == nil {
				break
			}
			if err := clock.System().Sleep(context.Background(), time.Millisecond); err != nil {
				return "", err
			}
		}
		return "waited", os.WriteFile(e.File+".went-on", nil, 0o600)
	}
	return fmt.Sprint(os.Getpid()), nil
}

func startFunction(t *testing.T, timeout time.Duration, concurrency int) (f *awsfake.Lambda, dir string) {
	t.Helper()
	dir = t.TempDir()
	f = awsfake.StartLambda(awsfake.LambdaConfig{
		Name: "f", Bootstrap: os.Args[0], Env: []string{folder + "=" + dir}, Timeout: timeout, Concurrency: concurrency,
		Clock: clock.System(), Log: io.Discard,
	})
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	return f, dir
}

func invoke(t *testing.T, f *awsfake.Lambda, do, file string) (string, string) {
	t.Helper()
	out, err := f.Invoke(t.Context(), fmt.Appendf(nil, `{"do":%q,"file":%q}`, do, file))
	var reported *awsfake.LambdaError
	if errors.As(err, &reported) {
		return "", reported.Type
	}
	require.NoError(t, err)
	return string(out), ""
}

func exists(t *testing.T, path string) {
	t.Helper()
	require.Eventually(t, func() bool { _, err := os.Stat(path); return err == nil }, 2*time.Minute, time.Millisecond, path)
}

func TestOneEnvironmentServesEventAfterEvent(t *testing.T) {
	f, _ := startFunction(t, time.Minute, 0)
	first, problem := invoke(t, f, "pid", "")
	require.Empty(t, problem)
	second, _ := invoke(t, f, "pid", "")
	require.Equal(t, first, second, "a warm environment is used again")
	_, problem = invoke(t, f, "fail", "")
	require.Equal(t, "errorString", problem)
	third, _ := invoke(t, f, "pid", "")
	require.Equal(t, first, third, "an error does not end a process")
	require.Len(t, f.Inits(), 1)
	require.Positive(t, f.Inits()[0])

	_, problem = invoke(t, f, "exit", "")
	require.Equal(t, "Runtime.ExitError", problem)
	require.NoError(t, f.Kill())
	fourth, _ := invoke(t, f, "pid", "")
	require.NotEqual(t, first, fourth)
	require.Len(t, f.Inits(), 2)
	require.Equal(t, 6, f.Invocations())
}

// Events that come together have an environment each, up to the function's concurrency.
func TestEventsAtOnce(t *testing.T) {
	f, dir := startFunction(t, time.Minute, 2)
	go func() { _, _ = f.Invoke(context.Background(), fmt.Appendf(nil, `{"do":"wait","file":%q}`, dir+"/a")) }()
	exists(t, dir+"/a.waits")
	_, problem := invoke(t, f, "pid", "")
	require.Empty(t, problem)
	require.Len(t, f.Inits(), 2)
	go func() { _, _ = f.Invoke(context.Background(), fmt.Appendf(nil, `{"do":"wait","file":%q}`, dir+"/b")) }()
	exists(t, dir+"/b.waits")
	_, problem = invoke(t, f, "pid", "")
	require.Equal(t, "Lambda.TooManyRequestsException", problem)
}

// A caller that stops waiting leaves a zombie behind: the invocation goes on.
func TestInvocationOutlivesItsCaller(t *testing.T) {
	f, dir := startFunction(t, time.Minute, 0)
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		_, err := f.Invoke(ctx, fmt.Appendf(nil, `{"do":"wait","file":%q}`, dir+"/a"))
		gone <- err
	}()
	exists(t, dir+"/a.waits")
	cancel()
	require.ErrorIs(t, <-gone, context.Canceled)
	require.NoError(t, os.WriteFile(dir+"/a", nil, 0o600))
	exists(t, dir+"/a.went-on")
}

func TestTimeoutEndsTheProcess(t *testing.T) {
	f, dir := startFunction(t, 200*time.Millisecond, 0)
	_, problem := invoke(t, f, "wait", dir+"/a")
	require.Equal(t, "Sandbox.Timedout", problem)
	require.NoError(t, os.WriteFile(dir+"/a", nil, 0o600))
	pid, problem := invoke(t, f, "pid", "")
	require.Empty(t, problem)
	require.NotEmpty(t, pid)
	require.NoFileExists(t, dir+"/a.went-on")
}

// A process that is killed between two events cannot take the second one with it.
func TestKilledBetweenEvents(t *testing.T) {
	f, _ := startFunction(t, 5*time.Second, 0)
	for range 40 {
		_, problem := invoke(t, f, "pid", "")
		require.Empty(t, problem)
		require.NoError(t, f.Kill())
	}
}
