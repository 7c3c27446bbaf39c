package asl

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// agentFile is the definition that is deployed.
const agentFile = "../../statemachine/agent.asl.json"

// newAgentRig has the deployed definition and a Step that answers with these values of next, one a call.
func newAgentRig(t testing.TB, next ...string) *rig {
	t.Helper()
	data, err := os.ReadFile(agentFile)
	require.NoError(t, err)
	r := newRig(t, task(``))
	r.def, err = Parse(data, map[string]string{"StepFunctionArn": "step", "ToolFunctionArn": "tools", "ApproveFunctionArn": "approve"})
	require.NoError(t, err)
	r.boot()
	r.answer(next...)
	r.on("tools", func(_ context.Context, in map[string]any) (any, error) { return in["state"], nil })
	return r
}

// answer sets what Step answers; when it runs out, Step fails.
func (r *rig) answer(next ...string) {
	r.on("step", func(_ context.Context, in map[string]any) (any, error) {
		state := in["state"].(map[string]any)
		if state["failure"] != nil {
			return nil, nil
		}
		if len(next) == 0 {
			return nil, named("Countersign.Internal")
		}
		n := next[0]
		next = next[1:]
		return map[string]any{"tenant": "t", "run": "r1", "next": n, "at": 7, "waitSeconds": 60, "successor": "r1-2"}, nil
	})
}

// path is the states that were entered.
func (r *rig) path() string {
	var states []string
	for _, e := range r.events {
		if kind, state, _ := strings.Cut(e, " "); strings.HasSuffix(kind, "StateEntered") {
			states = append(states, state)
		}
	}
	return strings.Join(states, " ")
}

func TestAgentLoops(t *testing.T) {
	r := newAgentRig(t, "tools", "step", "done")
	d := r.result(`{"tenant": "t", "run": "r1"}`)
	require.Equal(t, Succeeded, d.Status)
	require.Equal(t, "Step Route Tools Step Route Step Route Done", r.path())
	require.Equal(t, 8, d.Transitions)
	require.Equal(t, []string{"step@0", "tools@0", "step@0", "step@0"}, r.calls)
}

func TestAgentWaitsForApproval(t *testing.T) {
	r := newAgentRig(t, "wait", "wait", "done")
	var tokens []string
	r.on("approve", func(_ context.Context, in map[string]any) (any, error) {
		tokens = append(tokens, in["token"].(string))
		require.Equal(t, []any{0.0, 0.0, "x"}, []any{in["retries"], in["redrives"], in["name"]})
		return nil, nil
	})
	r.run(func() {
		arn := r.start("x", `{"tenant": "t", "run": "r1"}`)
		r.sleep(30 * time.Second)
		require.NoError(t, r.SendTaskSuccess(bg, tokens[0], []byte(`{}`)))
		require.Equal(t, Succeeded, r.settled(arn).Status)
	})
	require.Equal(t, []string{"step@0", "approve@0", "step@30", "approve@30", "step@90"}, r.calls, "the second wait times out")
	require.Equal(t, "Step Route Approve Step Route Approve Step Route Done", r.path())
}

func TestAgentContinuesInANewExecution(t *testing.T) {
	r := newAgentRig(t, "continue", "done")
	r.run(func() {
		require.Equal(t, Succeeded, r.settled(r.start("r1-1", `{"tenant": "t", "run": "r1"}`)).Status)
		d := r.settled(r.prefix + "r1-2")
		require.Equal(t, `{"at":7,"run":"r1","tenant":"t"}`, string(d.Input))
		require.Equal(t, Succeeded, d.Status)
	})
}

func TestAgentRecordsItsFailure(t *testing.T) {
	r := newAgentRig(t)
	d := r.result(`{"tenant": "t", "run": "r1"}`)
	require.Equal(t, []any{Failed, "RunFailed"}, []any{d.Status, d.Error})
	require.Equal(t, "Step RecordFailure Failed", r.path())
}

func TestAgentRetriesThrottling(t *testing.T) {
	r := newAgentRig(t, "done")
	step, n := r.handlers["step"], 0
	r.on("step", func(ctx context.Context, in map[string]any) (any, error) {
		if n++; n <= 10 {
			return nil, fmt.Errorf("converse: %w", named("Countersign.Throttled"))
		}
		return step(ctx, in)
	})
	d := r.result(`{"tenant": "t", "run": "r1"}`)
	require.Equal(t, Succeeded, d.Status)
	require.Equal(t, time.Duration(1+2+4+8+16+32+60*4)*time.Second, d.StopDate.Sub(d.StartDate))
}

// What passes by itself is asked for again for about an hour (full jitter halves these delays), by a retrier of its own. Then the execution
// ends, and nothing is recorded of the run, which goes on in another.
func TestAgentOutlastsThrottling(t *testing.T) {
	const busy, lambda = (5 + 10 + 20 + 40 + 80 + 160 + 23*300) * time.Second, 6486 * time.Second
	for name, want := range map[string]struct {
		retries int
		within  time.Duration
	}{
		"Countersign.ModelBusy":            {29, busy},
		"Lambda.TooManyRequestsException":  {60, lambda},
		"Lambda.EC2ThrottledException":     {60, lambda},
		"Lambda.ENILimitReachedException":  {60, lambda},
		"Lambda.ResourceConflictException": {60, lambda},
		"Lambda.ResourceNotReadyException": {60, lambda},
		"Lambda.KMSThrottlingException":    {60, lambda},
		"Countersign.Throttled":            {10, 303 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			r := newAgentRig(t)
			r.on("step", func(context.Context, map[string]any) (any, error) { return nil, named(name) })
			d := r.result(`{"tenant": "t", "run": "r1"}`)
			require.Equal(t, "Step Throttled", r.path())
			require.Equal(t, []any{Failed, "Countersign.Throttled"}, []any{d.Status, d.Error})
			require.Len(t, r.calls, want.retries+1)
			require.Equal(t, want.within, d.StopDate.Sub(d.StartDate).Truncate(time.Second))
		})
	}
}

func BenchmarkAgentLoop(b *testing.B) {
	b.ReportAllocs()
	r := newAgentRig(b)
	for b.Loop() {
		r.store = &MemoryStore{}
		r.boot()
		r.answer("tools", "tools", "tools", "done")
		r.result(`{"tenant": "t", "run": "r1"}`)
	}
}
