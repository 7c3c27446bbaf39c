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

// newAgentRig has the deployed definition.
func newAgentRig(t testing.TB) *rig {
	t.Helper()
	data, err := os.ReadFile(agentFile)
	require.NoError(t, err)
	r := newRig(t, task(``))
	r.def, err = Parse(data, placeholders)
	require.NoError(t, err)
	r.boot()
	return r
}

const begin = `{"tenant": "t", "run": "r1"}`

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

// What this version cannot read ends the execution at once, by a name that the sweep knows; so does a failure that it
// cannot record.
func TestAgentLeavesRunsToOtherVersions(t *testing.T) {
	for calls, errs := range map[int][]string{
		1: {"Countersign.OtherVersion"}, 2: {"Countersign.Internal", "Countersign.OtherVersion"},
	} {
		r := newAgentRig(t)
		r.on("step", func(context.Context, map[string]any) (any, error) { return nil, named(errs[len(r.calls)-1]) })
		d := r.result(begin)
		require.Equal(t, []any{Failed, "Countersign.OtherVersion"}, []any{d.Status, d.Error})
		require.Len(t, r.calls, calls)
	}
}

func TestAgentReachesTheLongestHistory(t *testing.T) {
	r := newAgentRig(t)
	r.on("step", func(context.Context, map[string]any) (any, error) { return map[string]any{"next": "step"}, nil })
	d := r.result(begin)
	require.Equal(t, []any{Failed, Runtime, MaxEvents}, []any{d.Status, d.Error, d.Events})
}
