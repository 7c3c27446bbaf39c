package asl

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/countersign/countersign/internal/clock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	bg    = context.Background()
)

const machine = "arn:aws:states:eu-west-1:123456789012:stateMachine:agent"

// named is an error with a name, as handlers return it.
type named string

func (n named) Error() string     { return "it went wrong" }
func (n named) ErrorType() string { return string(n) }

// rig is an engine in virtual time, with handlers by function name.
type rig struct {
	*Engine
	t        testing.TB
	v        *clock.Virtual
	store    Store
	def      *Definition
	handlers map[string]func(ctx context.Context, in map[string]any) (any, error)
	calls    []string // FUNCTION@SECONDS
	events   []string
	ids      int
}

func newRig(t testing.TB, definition string) *rig {
	t.Helper()
	def, err := Parse([]byte(definition), nil)
	require.NoError(t, err)
	r := &rig{t: t, v: clock.NewVirtual(epoch), store: &MemoryStore{}, def: def}
	r.handlers = map[string]func(context.Context, map[string]any) (any, error){}
	r.boot()
	return r
}

// boot makes a new engine over the same store, as a new process would.
func (r *rig) boot() {
	r.t.Helper()
	var err error
	r.Engine, err = New(Config{
		Definition: r.def, ARN: machine, Clock: r.v, Store: r.store, Invoke: r.invoke, RoleARN: "arn:aws:iam::123456789012:role/r",
		IDs: func() string { r.ids++; return fmt.Sprintf("id-%d", r.ids) },
		Observe: func(e HistoryEvent) {
			r.events = append(r.events, strings.TrimSuffix(fmt.Sprintf("%s %s", e.Type, e.State), " "))
		},
	})
	require.NoError(r.t, err)
}

func (r *rig) invoke(ctx context.Context, function string, payload []byte, _ Invocation) ([]byte, error) {
	r.calls = append(r.calls, fmt.Sprintf("%s@%g", function, r.since()))
	var in map[string]any
	if err := json.Unmarshal(payload, &in); err != nil {
		return nil, err
	}
	out, err := r.handlers[function](ctx, in)
	if err != nil {
		return nil, err
	}
	return json.Marshal(out)
}

func (r *rig) since() float64 { return r.v.Now().Sub(epoch).Seconds() }

// on sets the handler of a function.
func (r *rig) on(function string, f func(ctx context.Context, in map[string]any) (any, error)) {
	r.handlers[function] = f
}

// run runs main in virtual time and closes the engine.
func (r *rig) run(main func()) {
	r.t.Helper()
	require.NoError(r.t, r.v.Run(func() {
		main()
		require.NoError(r.t, r.Close())
	}))
}

func (r *rig) start(name, input string) string {
	s, err := r.Start(bg, name, []byte(input))
	require.NoError(r.t, err)
	return s.ExecutionARN
}

// settled waits until the execution is closed.
func (r *rig) settled(arn string) Description {
	x, err := r.find(arn)
	require.NoError(r.t, err)
	require.NoError(r.t, x.ended.wait(bg))
	return r.describe(arn)
}

func (r *rig) describe(arn string) Description {
	d, err := r.Describe(bg, arn)
	require.NoError(r.t, err)
	return d
}

// result runs one execution to its end.
func (r *rig) result(input string) (d Description) {
	r.t.Helper()
	r.run(func() { d = r.settled(r.start("x", input)) })
	return d
}

// sleep lets virtual time pass.
func (r *rig) sleep(d time.Duration) { require.NoError(r.t, r.v.Sleep(bg, d)) }

// task is a state machine with one Task that has the given further fields, a catch-all behind it named Caught.
func task(fields string) string {
	return `{"StartAt": "T", "States": {"T": {"Type": "Task", "Resource": "arn:aws:states:::lambda:invoke",
		"Parameters": {"FunctionName": "f", "Payload.$": "$"}, "End": true` + fields + `}}}`
}

// waiting is the same for a Task with a token.
func waiting(fields string) string {
	return `{"StartAt": "W", "States": {"W": {"Type": "Task", "Resource": "arn:aws:states:::lambda:invoke.waitForTaskToken",
		"Parameters": {"FunctionName": "f", "Payload": {"token.$": "$$.Task.Token", "retries.$": "$$.State.RetryCount", "in.$": "$"}},
		"End": true` + fields + `}}}`
}

func isRefused(t *testing.T, err error, name string) {
	t.Helper()
	var refused *Error
	require.ErrorAs(t, err, &refused)
	require.Equal(t, name, refused.Name)
}
