package asl

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
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

// jsonStore keeps records as JSON, as a real store does.
type jsonStore struct {
	t       testing.TB
	mu      sync.Mutex
	records map[string][]byte
}

func (s *jsonStore) Save(_ context.Context, r Record) error {
	data, err := json.Marshal(r)
	require.NoError(s.t, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.records == nil {
		s.records = map[string][]byte{}
	}
	s.records[r.Name] = data
	return nil
}

func (s *jsonStore) Load(context.Context) (all []Record, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(s.records)) {
		var r Record
		require.NoError(s.t, json.Unmarshal(s.records[name], &r))
		all = append(all, r)
	}
	return all, nil
}

type handler func(ctx context.Context, in map[string]any) (any, error)

// rig is an engine in virtual time, with handlers by function name.
type rig struct {
	*Engine
	t        testing.TB
	v        *clock.Virtual
	store    Store
	def      *Definition
	handlers map[string]handler
	calls    []string // FUNCTION@SECONDS
	tokens   []string // that f was handed
	ids      int
}

func newRig(t testing.TB, definition string) *rig {
	t.Helper()
	def, err := Parse([]byte(definition), nil)
	require.NoError(t, err)
	r := &rig{t: t, v: clock.NewVirtual(epoch), store: &jsonStore{t: t}, def: def, handlers: map[string]handler{}}
	r.boot()
	return r
}

// boot makes a new engine over the same store, as a new process would.
func (r *rig) boot() {
	r.t.Helper()
	var err error
	r.Engine, err = New(Config{
		Definition: r.def, ARN: machine, Clock: r.v, Store: r.store, Invoke: r.invoke,
		IDs: func() string { r.ids++; return fmt.Sprintf("id-%d", r.ids) },
	})
	require.NoError(r.t, err)
}

func (r *rig) invoke(ctx context.Context, function string, payload []byte) ([]byte, error) {
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
func (r *rig) on(function string, h handler) { r.handlers[function] = h }

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

// hand makes the handler f note its token and succeed.
func (r *rig) hand() {
	r.on("f", func(_ context.Context, in map[string]any) (any, error) {
		r.tokens = append(r.tokens, in["token"].(string))
		return "ignored", nil
	})
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

// task is a state machine with one Task that has further fields, and a state Caught behind it.
func task(fields string) string {
	return machineOf("lambda:invoke", `"Payload.$": "$"`, fields)
}

// waiting is the same for a Task with a token.
func waiting(fields string) string {
	return machineOf("lambda:invoke.waitForTaskToken",
		`"Payload": {"token.$": "$$.Task.Token", "retries.$": "$$.State.RetryCount", "in.$": "$"}`, fields)
}

func machineOf(resource, payload, fields string) string {
	if !strings.Contains(fields, "TimeoutSeconds") {
		fields += `, "TimeoutSeconds": 86400`
	}
	return `{"StartAt": "T", "States": {"T": {"Type": "Task", "Resource": "arn:aws:states:::` + resource + `",
		"Parameters": {"FunctionName": "f", ` + payload + `}, "Next": "S"` + fields + `}, "S": {"Type": "Succeed"},
		"Caught": {"Type": "Succeed"}}}`
}

func isRefused(t testing.TB, err error, name string) {
	t.Helper()
	var refused *Error
	require.ErrorAs(t, err, &refused)
	require.Equal(t, name, refused.Name)
}
