package lambdafn_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/smithy-go"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/lambdafn"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
)

const machine = "arn:aws:states:eu-central-1:123456789012:stateMachine:m"

func refused(code string) answer {
	return says(400, `{"__type":"com.amazonaws.swf.service.v2.model#`+code+`","message":"Rate exceeded"}`)
}

// answer is what a service says to one request; err = the connection breaks.
type answer struct {
	status int
	body   string
	err    error
}

func says(status int, body string) answer { return answer{status: status, body: body} }

// service is a service of AWS: it answers in order, the last answer repeating, and keeps what it was asked.
type service struct {
	answers []answer
	asked   []*http.Request
	bodies  []map[string]any
}

func (s *service) Do(r *http.Request) (*http.Response, error) {
	a := s.answers[min(len(s.asked), len(s.answers)-1)]
	var in map[string]any
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		return nil, err
	}
	s.asked, s.bodies = append(s.asked, r), append(s.bodies, in)
	if a.err != nil {
		return nil, a.err
	}
	return &http.Response{StatusCode: a.status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(a.body))}, nil
}

// config reaches a service; nil = the network does.
func config(s *service) aws.Config {
	cfg := aws.Config{
		Region: "eu-central-1", Credentials: credentials.NewStaticCredentialsProvider("AKID", "SECRET", "SESSION"),
	}
	if s != nil {
		cfg.HTTPClient = s
	}
	return cfg
}

// waiter asks s.
func waiter(t *testing.T, s *service) *lambdafn.Waiter {
	t.Helper()
	w, err := lambdafn.NewWaiter(config(s), machine)
	require.NoError(t, err)
	return w
}

// everything asks w for everything, and gives how it went.
func everything(t *testing.T, w *lambdafn.Waiter) map[string]error {
	t.Helper()
	_, _, running := w.Running(t.Context(), "")
	_, _, input := w.Input(t.Context(), "r-0")
	_, status := w.Status(t.Context(), "r-0")
	return map[string]error{
		"running": running, "input": input, "status": status, "start": w.Start(t.Context(), "acme", "r", "r-0"),
		"stop": w.Stop(t.Context(), "r-0", "done"), "success": w.Success(t.Context(), "token"),
	}
}

// Whoever asks Step Functions for something is told when to have patience, in the words of the store, after it has been asked three times
// where that may help.
func TestThrottling(t *testing.T) {
	broken := errors.New("connection reset")
	for name, c := range map[string]struct {
		answer   answer
		code     string
		attempts int
		throttle bool
	}{
		"throttled":  {refused("ThrottlingException"), "ThrottlingException", 3, true},
		"at a limit": {refused("ExecutionLimitExceeded"), "ExecutionLimitExceeded", 1, true},
		"forbidden":  {refused("AccessDeniedException"), "AccessDeniedException", 1, false},
		"failing":    {answer{status: 503, body: "<html>"}, "", 3, false},
		"moved":      {answer{status: 307}, "UnknownError", 1, false},
		"broken":     {answer{err: broken}, "", 3, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &service{answers: []answer{c.answer}}
				for what, err := range everything(t, waiter(t, s)) {
					var said smithy.APIError
					if c.answer.err != nil {
						require.ErrorIs(t, err, broken, what)
					} else if c.code != "" {
						require.ErrorAs(t, err, &said, what)
						require.Equal(t, c.code, said.ErrorCode(), what)
					}
					if strings.Contains(c.answer.body, "Rate exceeded") {
						require.ErrorContains(t, err, "Rate exceeded", what)
					}
					require.Equal(t, c.throttle, errors.Is(err, store.ErrThrottled), what)
				}
				require.Len(t, s.asked, 6*c.attempts)
			})
		})
	}
}

// What is over, or was done before, is none of the caller's errors.
func TestSettled(t *testing.T) {
	for _, code := range []string{"TaskTimedOut", "TaskDoesNotExist", "InvalidToken"} {
		require.ErrorIs(t, waiter(t, &service{answers: []answer{refused(code)}}).Success(t.Context(), "token"), runtime.ErrTokenUsed)
	}
	require.NoError(t, waiter(t, &service{answers: []answer{refused("ExecutionAlreadyExists")}}).Start(t.Context(), "acme", "r", "r-0"))
	gone := waiter(t, &service{answers: []answer{refused("ExecutionDoesNotExist")}})
	require.NoError(t, gone.Stop(t.Context(), "r-0", "done"))
	status, err := gone.Status(t.Context(), "r-0")
	require.NoError(t, err)
	require.Equal(t, runtime.ExecutionNone, status)
	_, found, err := gone.Input(t.Context(), "r-0")
	require.NoError(t, err)
	require.False(t, found)
	for _, other := range []string{"ExecutionDoesNotExist", "InvalidName"} {
		require.NotErrorIs(t, waiter(t, &service{answers: []answer{refused(other)}}).Success(t.Context(), "token"), runtime.ErrTokenUsed)
		require.Error(t, waiter(t, &service{answers: []answer{refused(other)}}).Start(t.Context(), "acme", "r", "r-0"))
	}
}

// What Step Functions says is read as it is meant.
func TestAnswers(t *testing.T) {
	for said, want := range map[string]runtime.ExecutionStatus{
		"RUNNING": runtime.ExecutionRunning, "PENDING_REDRIVE": runtime.ExecutionRunning, "SUCCEEDED": runtime.ExecutionEnded,
		"FAILED": runtime.ExecutionEnded, "TIMED_OUT": runtime.ExecutionEnded, "ABORTED": runtime.ExecutionEnded,
	} {
		got, err := waiter(t, &service{answers: []answer{says(200, `{"status":"`+said+`"}`)}}).Status(t.Context(), "r-0")
		require.NoError(t, err)
		require.Equal(t, want, got, said)
	}
	for name, want := range map[string]runtime.ExecutionStatus{
		"Countersign.Throttled": runtime.ExecutionThrottled, "Countersign.OtherVersion": runtime.ExecutionOutdated,
		"RunFailed": runtime.ExecutionEnded,
	} {
		failed := says(200, `{"status":"FAILED","error":"`+name+`"}`)
		got, err := waiter(t, &service{answers: []answer{failed}}).Status(t.Context(), "r-0")
		require.NoError(t, err)
		require.Equal(t, want, got, name)
	}
	s := &service{answers: []answer{
		says(200, `{"executions":[{"name":"r-0","startDate":1.763795000123E9,"status":"RUNNING"}],"nextToken":"n"}`),
		says(200, `{"executions":[]}`), says(200, `{"executions":`),
	}}
	w := waiter(t, s)
	page, next, err := w.Running(t.Context(), "")
	require.NoError(t, err)
	require.Equal(t, []runtime.Execution{{Name: "r-0", Started: time.UnixMilli(1763795000123).UTC()}}, page)
	require.Equal(t, map[string]any{"stateMachineArn": machine, "statusFilter": "RUNNING", "maxResults": 1000.0}, s.bodies[0])
	page, next, err = w.Running(t.Context(), next)
	require.NoError(t, err)
	require.Empty(t, page)
	require.Empty(t, next)
	require.Equal(t, "n", s.bodies[1]["nextToken"])
	_, _, err = w.Running(t.Context(), "")
	require.ErrorContains(t, err, "list executions: ")
	require.Len(t, s.asked, 3, "an answer that cannot be read is not asked for again")
}

// An execution is started in the trace of whoever starts it, also in a Lambda function, whose own trace the SDK would send.
func TestExecutionIsStartedInATrace(t *testing.T) {
	const header = "Root=1-6907a3c1-5e1b4f2a7c8d9e0f1a2b3c4d;Parent=00f067aa0ba902b7;Sampled=1"
	const lambdas = "Root=1-00000000-000000000000000000000000;Sampled=0"
	t.Setenv("AWS_LAMBDA_FUNCTION_NAME", "step")
	t.Setenv("_X_AMZN_TRACE_ID", lambdas)
	for want, trace := range map[string]func(context.Context) string{
		lambdas: func(context.Context) string { return "" }, header: func(context.Context) string { return header },
	} {
		s := &service{answers: []answer{says(200, `{"executionArn":"a","startDate":1}`)}}
		w := waiter(t, s)
		w.Trace = trace
		require.NoError(t, w.Start(t.Context(), "acme", "r", "r-0"))
		require.Equal(t, []string{want}, s.asked[0].Header.Values("X-Amzn-Trace-Id"))
		require.Equal(t, "r-0", s.bodies[0]["name"])
		require.JSONEq(t, `{"tenant":"acme","run":"r"}`, s.bodies[0]["input"].(string))
	}
}

// A configuration says how often it is asked.
func TestAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, mode := range []aws.RetryMode{"", aws.RetryModeStandard, aws.RetryModeAdaptive} {
			s := &service{answers: []answer{{status: 503}}}
			cfg := config(s)
			cfg.RetryMaxAttempts, cfg.RetryMode = 5, mode
			w, err := lambdafn.NewWaiter(cfg, machine)
			require.NoError(t, err)
			require.Error(t, w.Success(t.Context(), "token"))
			require.Len(t, s.asked, 5)
		}
	})
}
