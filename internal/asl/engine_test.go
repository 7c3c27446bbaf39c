package asl

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/clock"
)

func TestStartIsIdempotentWhileRunning(t *testing.T) {
	r := newRig(t, waiting(``))
	var tokens []string
	r.hand(&tokens)
	r.run(func() {
		first, err := r.Start(bg, "n", []byte(`{"a": 1}`))
		require.NoError(t, err)
		require.Equal(t, "arn:aws:states:eu-west-1:123456789012:execution:agent:n", first.ExecutionARN)
		r.sleep(time.Second)
		again, err := r.Start(bg, "n", []byte(`{"a":1}`))
		require.NoError(t, err)
		require.Equal(t, first, again)
		require.Len(t, tokens, 1)
		_, err = r.Start(bg, "n", []byte(`{"a": 2}`))
		isRefused(t, err, ExecutionAlreadyExists)
		require.NoError(t, r.SendTaskSuccess(bg, tokens[0], []byte(`1`)))
		r.settled(first.ExecutionARN)
		_, err = r.Start(bg, "n", []byte(`{"a": 1}`))
		isRefused(t, err, ExecutionAlreadyExists)
	})
}

func TestStartChecks(t *testing.T) {
	r := newRig(t, waiting(``))
	r.hand(new([]string))
	r.MaxRunning = 1
	r.run(func() {
		for _, name := range []string{"a b", "a/b", "a*", strings.Repeat("x", 81), "a\x00", "a\xff", "{", "ü:"} {
			_, err := r.Start(bg, name, nil)
			isRefused(t, err, InvalidName)
		}
		for _, input := range []string{"{", "1 2", `"` + strings.Repeat("x", MaxData) + `"`} {
			_, err := r.Start(bg, "n", []byte(input))
			isRefused(t, err, InvalidExecutionInput)
		}
		arn := r.start("", "")
		require.Equal(t, "{}", string(r.describe(arn).Input))
		_, err := r.Start(bg, "two", nil)
		isRefused(t, err, ExecutionLimitExceeded)
		require.NoError(t, r.Stop(bg, arn, "", ""))
		r.start(strings.Repeat("ü", 80), "")
	})
	_, err := r.Start(bg, "n", nil)
	require.ErrorIs(t, err, ErrClosed)
}

// slowStore takes a second for every write, and fails as often as it is told.
type slowStore struct {
	MemoryStore
	clock clock.Clock
	fails int
	saves int
}

var errStore = errors.New("no space left")

func (s *slowStore) Save(ctx context.Context, r Record) error {
	s.saves++
	if err := s.clock.Sleep(ctx, time.Second); err != nil {
		return err
	}
	if s.fails > 0 {
		s.fails--
		return errStore
	}
	return s.MemoryStore.Save(ctx, r)
}

func newSlowRig(t *testing.T, definition string, fails int) (*rig, *slowStore) {
	r := newRig(t, definition)
	s := &slowStore{clock: r.v, fails: fails}
	r.store = s
	r.boot()
	return r, s
}

func TestConcurrentStartsAgree(t *testing.T) {
	for fails, want := range []int{0, 1} {
		r, s := newSlowRig(t, waiting(``), fails)
		var tokens []string
		r.hand(&tokens)
		got := map[StartResult]int{}
		failed := 0
		r.run(func() {
			for range 10 {
				r.v.Go(func() {
					res, err := r.Start(bg, "n", nil)
					if err != nil {
						require.ErrorIs(t, err, errStore)
						failed++
						return
					}
					got[res]++
				})
			}
			r.sleep(time.Minute)
		})
		require.Equal(t, want, failed, "the one whose write failed is told so, another tries again")
		require.Len(t, got, 1)
		require.Len(t, tokens, 1)
		require.Equal(t, 3+fails, s.saves, "start, wait, returned")
	}
}

func TestNothingIsSeenBeforeItIsWritten(t *testing.T) {
	r, _ := newSlowRig(t, waiting(``), 0)
	var tokens []string
	r.hand(&tokens)
	r.run(func() {
		r.v.Go(func() { r.start("n", "") })
		r.sleep(time.Second / 2)
		arn := r.prefix + "n"
		_, err := r.Describe(bg, arn)
		isRefused(t, err, ExecutionDoesNotExist)
		require.Empty(t, r.List(bg, ""))
		r.sleep(5 * time.Second)
		require.Equal(t, []string{"f@2"}, r.calls, "one second for the start, one for the token")
		sent := r.since()
		require.NoError(t, r.SendTaskSuccess(bg, tokens[0], []byte(`1`)))
		require.Equal(t, sent+1, r.since())
		require.Equal(t, Running, r.describe(arn).Status)
		require.Equal(t, Succeeded, r.settled(arn).Status)
		require.Equal(t, sent+2, r.since())
	})
}

func TestExecutionThatCannotBeWrittenHalts(t *testing.T) {
	r, s := newSlowRig(t, waiting(``), 0)
	r.hand(new([]string))
	require.NoError(t, r.v.Run(func() {
		arn := r.start("n", "")
		s.fails = 4
		r.sleep(time.Hour)
		require.Len(t, r.calls, 1, "it tries again")
		s.fails = 1000
		require.ErrorContains(t, r.Stop(bg, arn, "", ""), "could not be written")
		require.Equal(t, Running, r.describe(arn).Status)
		require.ErrorIs(t, r.Close(), errStore)
	}))
	require.Contains(t, r.events, "ExecutionHalted")
}

func TestStop(t *testing.T) {
	r := newRig(t, task(``))
	var handler error
	r.on("f", func(ctx context.Context, _ map[string]any) (any, error) {
		handler = r.v.Sleep(ctx, time.Minute)
		return 1, nil
	})
	r.run(func() {
		arn := r.start("n", "")
		r.sleep(time.Second)
		require.NoError(t, r.Stop(bg, arn, "Cancelled", "by ann"))
		d := r.describe(arn)
		require.Equal(t, []any{Aborted, "Cancelled", "by ann", epoch.Add(time.Second)}, []any{d.Status, d.Error, d.Cause, d.StopDate})
		require.NoError(t, r.Stop(bg, arn, "Other", ""))
		require.Equal(t, "Cancelled", r.describe(arn).Error)
		r.sleep(time.Hour)
		require.NoError(t, handler, "the handler went on")
		isRefused(t, r.Stop(bg, arn+"x", "", ""), ExecutionDoesNotExist)
		isRefused(t, r.Stop(bg, "arn:nonsense", "", ""), InvalidArn)
	})
}

func TestList(t *testing.T) {
	r := newRig(t, waiting(``))
	r.hand(new([]string))
	r.run(func() {
		b := r.start("b", "")
		r.start("a", "")
		r.sleep(time.Second)
		r.start("c", "")
		require.NoError(t, r.Stop(bg, b, "", ""))
		names := func(s Status) string {
			var all []string
			for _, d := range r.List(bg, s) {
				all = append(all, d.Name)
			}
			return strings.Join(all, " ")
		}
		require.Equal(t, "c a b", names(""))
		require.Equal(t, "c a", names(Running))
		require.Equal(t, "b", names(Aborted))
	})
}

func TestRedrive(t *testing.T) {
	r := newRig(t, `{"StartAt": "P", "States": {"P": {"Type": "Pass", "Result": 7, "ResultPath": "$.p", "Next": "T"},
		"T": {"Type": "Task", "Resource": "arn:aws:states:::lambda:invoke", "End": true, "ResultPath": null,
			"Parameters": {"FunctionName": "f", "Payload": {"in.$": "$", "redrives.$": "$$.Execution.RedriveCount"}}}}}`)
	var seen []string
	r.on("f", func(_ context.Context, in map[string]any) (any, error) {
		data, err := json.Marshal(in)
		require.NoError(t, err)
		seen = append(seen, string(data))
		if len(seen) < 3 {
			return nil, named("Custom")
		}
		return nil, nil
	})
	r.run(func() {
		arn := r.start("n", `{"a": 1}`)
		require.Equal(t, Failed, r.settled(arn).Status)
		r.sleep(time.Minute)
		for range 2 {
			require.NoError(t, r.Redrive(bg, arn))
			isRefused(t, r.Redrive(bg, arn), ExecutionNotRedrivable)
			require.Equal(t, Running, r.describe(arn).Status)
			require.Zero(t, r.describe(arn).StopDate)
			r.settled(arn)
		}
		d := r.describe(arn)
		require.Equal(t, []any{Succeeded, 2, "", epoch}, []any{d.Status, d.RedriveCount, d.Error, d.StartDate})
		isRefused(t, r.Redrive(bg, arn), ExecutionNotRedrivable)
		isRefused(t, r.Redrive(bg, arn+"x"), ExecutionDoesNotExist)
	})
	require.Equal(t, []string{`{"in":{"a":1,"p":7},"redrives":0}`, `{"in":{"a":1,"p":7},"redrives":1}`, `{"in":{"a":1,"p":7},"redrives":2}`}, seen)
	require.Equal(t, 1, strings.Count(strings.Join(r.events, "\n"), "PassStateEntered"))
}

func TestRedriveThatCannotBeWritten(t *testing.T) {
	r, s := newSlowRig(t, task(``), 0)
	r.fail("Custom")
	r.run(func() {
		arn := r.start("n", "")
		r.settled(arn)
		s.fails = 1
		var second error
		r.v.Go(func() { second = r.Redrive(bg, arn) })
		require.NoError(t, r.v.Sleep(bg, time.Millisecond))
		isRefused(t, r.Redrive(bg, arn), ExecutionNotRedrivable)
		require.Equal(t, Failed, r.describe(arn).Status, "not before it is written")
		r.sleep(5 * time.Second)
		require.ErrorIs(t, second, errStore)
		require.Equal(t, Failed, r.describe(arn).Status)
		require.NoError(t, r.Redrive(bg, arn))
		require.Equal(t, Succeeded, r.settled(arn).Status)
		require.Equal(t, 1, r.describe(arn).RedriveCount)
	})
}

const nested = `{"StartAt": "C", "States": {
	"C": {"Type": "Choice", "Choices": [{"Variable": "$.to", "IsPresent": true, "Next": "N"}], "Default": "S"},
	"N": {"Type": "Task", "Resource": "arn:aws:states:::states:startExecution", "End": true,
		"Parameters": {"StateMachineArn.$": "$.machine", "Name.$": "$.to", "Input": {"by.$": "$$.Execution.Name"}}},
	"S": {"Type": "Succeed"}}}`

func TestNestedStart(t *testing.T) {
	r := newRig(t, nested)
	r.run(func() {
		d := r.settled(r.start("n", `{"to": "child", "machine": "`+machine+`"}`))
		require.JSONEq(t, `{"ExecutionArn": "`+r.prefix+`child", "StartDate": "2026-01-01T00:00:00.000Z"}`, string(d.Output))
		require.Equal(t, `{"by":"n"}`, string(r.settled(r.prefix+"child").Output))
		for name, want := range map[string]string{
			`{"to": "child", "machine": "` + machine + `"}`:  "StepFunctions.ExecutionAlreadyExistsException",
			`{"to": "a b", "machine": "` + machine + `"}`:    "StepFunctions.InvalidNameException",
			`{"to": "other", "machine": "` + machine + `2"}`: "StepFunctions.StateMachineDoesNotExistException",
			`{"to": 1, "machine": "` + machine + `"}`:        Runtime,
		} {
			require.Equal(t, want, r.settled(r.start("", name)).Error)
		}
	})
}

func TestCloseEndsHandlersAndKeepsExecutions(t *testing.T) {
	r := newRig(t, task(``))
	var handler error
	r.on("f", func(ctx context.Context, _ map[string]any) (any, error) {
		handler = r.v.Sleep(ctx, time.Hour)
		return nil, handler
	})
	var arn string
	r.run(func() { arn = r.start("n", ""); r.sleep(time.Second) })
	require.ErrorIs(t, handler, context.Canceled)
	require.Equal(t, Running, r.describe(arn).Status)
	require.ErrorIs(t, r.Stop(bg, arn, "", ""), ErrClosed)
}

func TestNewChecks(t *testing.T) {
	_, err := New(Config{ARN: "arn:aws:states:x:y:stateMachine:"})
	isRefused(t, err, InvalidArn)
	_, err = New(Config{ARN: machine})
	require.ErrorContains(t, err, "required")
}

// TestManyAtOnce runs the engine on the machine's clock, for the race detector.
func TestManyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		def, err := Parse([]byte(waiting(`, "TimeoutSeconds": 60`)), nil)
		require.NoError(t, err)
		var mu sync.Mutex
		var tokens []string
		ids := 0
		e, err := New(Config{
			Definition: def, ARN: machine, Clock: clock.System(), Store: &MemoryStore{},
			IDs: func() string { mu.Lock(); defer mu.Unlock(); ids++; return "id-" + jsonInt(ids).String() },
			Invoke: func(_ context.Context, _ string, payload []byte, _ Invocation) ([]byte, error) {
				var in struct{ Token string }
				err := json.Unmarshal(payload, &in)
				mu.Lock()
				tokens = append(tokens, in.Token)
				mu.Unlock()
				return nil, err
			},
		})
		require.NoError(t, err)
		for range 50 {
			for range 2 {
				go func() { _, _ = e.Start(bg, "same", nil) }()
			}
			go func() { _, _ = e.Start(bg, "", nil) }()
		}
		synctest.Wait()
		require.Len(t, tokens, 51)
		for _, token := range tokens[:40] {
			for range 3 {
				go func() { _ = e.SendTaskSuccess(bg, token, []byte(`1`)) }()
				go e.List(bg, "")
			}
		}
		require.NoError(t, e.Clock.Sleep(bg, time.Hour))
		require.Len(t, e.List(bg, Succeeded), 40)
		require.Len(t, e.List(bg, Failed), 11)
		require.NoError(t, e.Close())
	})
}
