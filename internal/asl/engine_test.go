package asl

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/clock"
)

func TestStartIsIdempotentWhileRunning(t *testing.T) {
	r := newRig(t, waiting(``))
	r.hand()
	r.run(func() {
		first, err := r.Start(bg, "n", []byte(`{"a": 1}`))
		require.NoError(t, err)
		require.Equal(t, "arn:aws:states:eu-west-1:123456789012:execution:agent:n", first.ExecutionARN)
		r.sleep(time.Second)
		again, err := r.Start(bg, "n", []byte(`{"a":1}`))
		require.NoError(t, err)
		require.Equal(t, first.StartDate, again.StartDate)
		require.Len(t, r.tokens, 1)
		_, err = r.Start(bg, "n", []byte(`{"a": 2}`))
		isRefused(t, err, ExecutionAlreadyExists)
		require.NoError(t, r.SendTaskSuccess(bg, r.tokens[0], []byte(`1`)))
		r.settled(first.ExecutionARN)
		_, err = r.Start(bg, "n", []byte(`{"a": 1}`))
		isRefused(t, err, ExecutionAlreadyExists)
	})
}

func TestStartChecks(t *testing.T) {
	r := newRig(t, waiting(``))
	r.hand()
	r.run(func() {
		for _, name := range []string{"", "a b", "a/b", "a*", strings.Repeat("x", 81), "a\x00", "a\xff", "{", "ü:", "`"} {
			_, err := r.Start(bg, name, nil)
			isRefused(t, err, InvalidName)
		}
		for _, input := range []string{"{", "1 2", `"` + strings.Repeat("x", MaxData) + `"`} {
			_, err := r.Start(bg, "n", []byte(input))
			isRefused(t, err, InvalidExecutionInput)
		}
		require.Equal(t, "{}", string(r.describe(r.start(strings.Repeat("ü", 80), "")).Input))
	})
	_, err := r.Start(bg, "n", nil)
	require.ErrorIs(t, err, ErrClosed)
}

// slowStore takes a second for every write, and fails as often as it is told.
type slowStore struct {
	jsonStore
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
	return s.jsonStore.Save(ctx, r)
}

func newSlowRig(t *testing.T, definition string, fails int) (*rig, *slowStore) {
	r := newRig(t, definition)
	s := &slowStore{jsonStore: jsonStore{t: t}, clock: r.v, fails: fails}
	r.store = s
	r.boot()
	return r, s
}

func TestConcurrentStartsAgree(t *testing.T) {
	for fails, want := range []int{0, 1} {
		r, s := newSlowRig(t, waiting(``), fails)
		r.hand()
		started, failed := map[time.Time]int{}, 0
		r.run(func() {
			for range 10 {
				r.v.Go(func() {
					d, err := r.Start(bg, "n", nil)
					if err != nil {
						require.ErrorIs(t, err, errStore)
						failed++
						return
					}
					started[d.StartDate]++
				})
			}
			r.sleep(time.Minute)
		})
		require.Equal(t, want, failed, "the one whose write failed is told so, another tries again")
		require.Len(t, started, 1)
		require.Len(t, r.tokens, 1)
		require.Equal(t, 3+fails, s.saves, "start, wait, returned")
	}
}

func TestNothingIsSeenBeforeItIsWritten(t *testing.T) {
	r, _ := newSlowRig(t, waiting(``), 0)
	r.hand()
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
		require.NoError(t, r.SendTaskSuccess(bg, r.tokens[0], []byte(`1`)))
		require.Equal(t, sent+1, r.since())
		require.Equal(t, Running, r.describe(arn).Status)
		require.Equal(t, Succeeded, r.settled(arn).Status)
		require.Equal(t, sent+2, r.since())
	})
}

func TestExecutionThatCannotBeWrittenHalts(t *testing.T) {
	r, s := newSlowRig(t, waiting(``), 0)
	r.hand()
	require.NoError(t, r.v.Run(func() {
		arn := r.start("n", "")
		s.fails = 4
		r.sleep(time.Hour)
		require.Len(t, r.calls, 1, "it tries again")
		s.fails = 1000
		var told error
		r.Halted = func(_ Description, err error) { told = err }
		require.ErrorContains(t, r.Stop(bg, arn, "", ""), "could not be written")
		require.ErrorIs(t, told, errStore, "at once, and not when it is closed")
		require.Equal(t, Running, r.describe(arn).Status)
		require.ErrorIs(t, r.Close(), errStore)
	}))
}

func TestStop(t *testing.T) {
	r := newRig(t, task(``))
	var ended []string
	r.Ended = func(_ context.Context, d Description) { ended = append(ended, d.Name+" "+string(d.Status)) }
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
		require.Equal(t, []any{Aborted, "Cancelled", "by ann", epoch.Add(time.Second)}, []any{d.Status, d.Error, d.Cause,
			d.StopDate})
		require.NoError(t, r.Stop(bg, arn, "Other", ""))
		require.Equal(t, "Cancelled", r.describe(arn).Error)
		r.sleep(time.Hour)
		require.NoError(t, handler, "the handler went on")
		isRefused(t, r.Stop(bg, arn+"x", "", ""), ExecutionDoesNotExist)
		isRefused(t, r.Stop(bg, "arn:nonsense", "", ""), ExecutionDoesNotExist)
	})
	require.Equal(t, []string{"n ABORTED"}, ended)
}

func TestList(t *testing.T) {
	r := newRig(t, waiting(``))
	r.hand()
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

func TestNestedStart(t *testing.T) {
	r := newRig(t, `{"StartAt": "C", "States": {
		"C": {"Type": "Choice", "Choices": [{"Variable": "$.end", "StringEquals": "yes", "Next": "S"}], "Default": "N"},
		"N": {"Type": "Task", "Resource": "arn:aws:states:::states:startExecution", "Next": "S", "TimeoutSeconds": 60,
			"Parameters": {"StateMachineArn.$": "$.machine", "Name.$": "$.to", "Input": {"end": "yes",
				"by.$": "$$.Execution.Name"}}},
		"S": {"Type": "Succeed"}}}`)
	r.run(func() {
		d := r.settled(r.start("n", `{"end": "no", "to": "child", "machine": "`+machine+`"}`))
		require.JSONEq(t, `{"ExecutionArn": "`+r.prefix+`child", "StartDate": "2026-01-01T00:00:00Z"}`, string(d.Output))
		require.Equal(t, `{"by":"n","end":"yes"}`, string(r.settled(r.prefix+"child").Output))
		for input, want := range map[string]string{
			`{"end": "no", "to": "child", "machine": "` + machine + `"}`:  "StepFunctions.ExecutionAlreadyExistsException",
			`{"end": "no", "to": "a b", "machine": "` + machine + `"}`:    "StepFunctions.InvalidNameException",
			`{"end": "no", "to": "other", "machine": "` + machine + `2"}`: "StepFunctions.StateMachineDoesNotExistException",
		} {
			require.Equal(t, want, r.settled(r.start(want, input)).Error)
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

// A draining engine begins no handler, tells those that run so, and waits for them.
func TestDrain(t *testing.T) {
	r := newRig(t, task(``))
	r.on("f", func(ctx context.Context, _ map[string]any) (any, error) {
		_, limited := ctx.Deadline()
		require.False(t, limited)
		r.sleep(10 * time.Second)
		at, _ := ctx.Deadline()
		require.Equal(t, epoch.Add(time.Second+lastCall), at)
		return nil, nil
	})
	r.run(func() {
		first := r.start("first", "")
		r.sleep(time.Second)
		require.NoError(t, r.Drain(bg))
		require.Equal(t, 10.0, r.since())
		require.Equal(t, Succeeded, r.settled(first).Status)
		second := r.start("second", "")
		r.sleep(time.Second)
		require.Equal(t, Running, r.describe(second).Status)
		require.Equal(t, []string{"f@0"}, r.calls)
	})
}

func TestExecutionStandsStill(t *testing.T) {
	r := newRig(t, task(caughtAt))
	r.on("f", func(context.Context, map[string]any) (any, error) {
		return nil, fmt.Errorf("not here: %w", ErrStalled)
	})
	r.run(func() {
		arn := r.start("n", "")
		r.sleep(time.Second)
		require.Equal(t, Running, r.describe(arn).Status)
		require.ErrorContains(t, r.StallReason("n"), "not here")
		require.NoError(t, r.StallReason("other"))
		require.NoError(t, r.Stop(t.Context(), arn, "Cancelled", "by a person"))
		d := r.describe(arn)
		require.Equal(t, []any{Aborted, "Cancelled", "by a person"}, []any{d.Status, d.Error, d.Cause})
		require.NoError(t, r.StallReason("n"))
		require.NoError(t, r.Stop(t.Context(), arn, "Cancelled", "again"))
		require.Equal(t, d, r.describe(arn))
	})
}

func TestExecutionLivesAYear(t *testing.T) {
	r := newRig(t, waiting(`, "TimeoutSeconds": 99999999`))
	r.hand()
	d := r.result("")
	require.Equal(t, []any{TimedOut, Timeout, maxLife}, []any{d.Status, d.Error, d.StopDate.Sub(d.StartDate)})
}

func TestNewChecks(t *testing.T) {
	_, err := New(Config{ARN: "arn:aws:states:x:y:stateMachine:"})
	require.ErrorContains(t, err, "is not the ARN")
	_, err = New(Config{ARN: machine})
	require.ErrorContains(t, err, "required")
}
