package asl

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// agentFile is the definition that is deployed.
const agentFile = "../../statemachine/agent.asl.json"

var placeholders = map[string]string{"StepFunctionArn": "step", "ToolFunctionArn": "tools",
	"ApproveFunctionArn": "approve", "Partition": "aws"}

// newAgentRig has the deployed definition and a Step that answers with these values of next, one a call. Then it fails.
func newAgentRig(t testing.TB, next ...string) *rig {
	t.Helper()
	data, err := os.ReadFile(agentFile)
	require.NoError(t, err)
	r := newRig(t, task(``))
	r.def, err = Parse(data, placeholders)
	require.NoError(t, err)
	r.boot()
	r.on("step", func(_ context.Context, in map[string]any) (any, error) {
		switch {
		case in["state"].(map[string]any)["failure"] != nil:
			return nil, nil
		case len(next) == 0:
			return nil, named("Countersign.Internal")
		}
		n := next[0]
		next = next[1:]
		return map[string]any{"tenant": "t", "run": "r1", "next": n, "at": 7, "waitSeconds": 60, "successor": "r1-2"}, nil
	})
	r.on("tools", func(_ context.Context, in map[string]any) (any, error) { return in["state"], nil })
	return r
}

const begin = `{"tenant": "t", "run": "r1"}`

func TestAgentWaitsForApproval(t *testing.T) {
	r := newAgentRig(t, "wait", "wait", "done")
	r.on("approve", func(_ context.Context, in map[string]any) (any, error) {
		r.tokens = append(r.tokens, in["token"].(string))
		require.Equal(t, []any{0.0, 0.0, "x", r.prefix + "x"}, []any{in["retries"], in["redrives"], in["name"],
			in["execution"]})
		return nil, nil
	})
	r.run(func() {
		arn := r.start("x", begin)
		r.sleep(30 * time.Second)
		require.NoError(t, r.SendTaskSuccess(bg, r.tokens[0], []byte(`{}`)))
		require.Equal(t, Succeeded, r.settled(arn).Status)
	})
	require.Equal(t, []string{"step@0", "approve@0", "step@30", "approve@30", "step@90"}, r.calls,
		"the second wait times out")
}

// The successor may have been started already, by an execution that died behind it.
func TestAgentFindsItsSuccessor(t *testing.T) {
	r := newAgentRig(t, "done", "continue")
	r.run(func() {
		r.settled(r.start("r1-2", begin))
		require.Equal(t, Succeeded, r.settled(r.start("r1-1", begin)).Status)
	})
}

func TestAgentRecordsItsFailure(t *testing.T) {
	r := newAgentRig(t)
	d := r.result(begin)
	require.Equal(t, []any{Failed, "RunFailed", 3}, []any{d.Status, d.Error, d.Transitions})
	require.Equal(t, []string{"step@0", "step@0"}, r.calls)
}

// What passes by itself, throttling or an outage, is asked for again for about an hour (full jitter halves these
// delays). Then the execution ends, and nothing is recorded of the run, which goes on in another.
func TestAgentOutlastsOutages(t *testing.T) {
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
		"Lambda.ServiceException":          {60, lambda},
		"Lambda.AWSLambdaException":        {60, lambda},
		"Lambda.SdkClientException":        {60, lambda},
		"Countersign.Throttled":            {65, 3603 * time.Second},
		"Countersign.Contention":           {65, 3603 * time.Second},
		"Countersign.Unavailable":          {65, 3603 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			r := newAgentRig(t)
			r.on("step", func(context.Context, map[string]any) (any, error) { return nil, named(name) })
			d := r.result(begin)
			require.Equal(t, []any{Failed, "Countersign.Throttled"}, []any{d.Status, d.Error})
			require.Len(t, r.calls, want.retries+1)
			require.Equal(t, want.within, d.StopDate.Sub(d.StartDate).Truncate(time.Second))
		})
	}
}

func TestAgentReachesTheLongestHistory(t *testing.T) {
	r := newAgentRig(t)
	r.on("step", func(context.Context, map[string]any) (any, error) { return map[string]any{"next": "step"}, nil })
	d := r.result(begin)
	require.Equal(t, []any{Failed, Runtime, MaxEvents}, []any{d.Status, d.Error, d.Events})
}
