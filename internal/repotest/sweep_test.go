package repotest

import (
	"context"
	"encoding/json"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/lambdafn"
	"github.com/countersign/countersign/internal/observe"
	"github.com/countersign/countersign/internal/runtime"
)

// outside is the state machine as functions/sweep may look at it. Its executions have ended, but for a leftover that nobody needs.
type outside struct {
	runtime.Waiter
	grants
	tenants runtime.Tenants
}

const leftover = "an-event"

func (o outside) Status(ctx context.Context, name string) (runtime.ExecutionStatus, error) {
	_, err := o.Waiter.Status(ctx, name)
	if name == leftover {
		return runtime.ExecutionRunning, err
	}
	if name != runSample+"-0" {
		return runtime.ExecutionNone, err
	}
	return runtime.ExecutionEnded, err
}

func (o outside) Running(context.Context, string) ([]runtime.Execution, string, error) {
	err := o.check("states:ListExecutions", o.values["AgentStateMachine"])
	return []runtime.Execution{{Name: leftover}}, "", err
}

func (o outside) Input(context.Context, string) ([]byte, bool, error) {
	return []byte(`{"agent":"` + agentN + `","key":"` + key + `"}`), true, o.check("states:DescribeExecution", "arn:aws:states:eu-central-1:123456789012:execution:countersign-dev-agent:x")
}

func (o outside) Tenants(ctx context.Context) ([]string, error) {
	if err := o.check("s3:ListBucket", o.values["BlobsBucket.Arn"]); err != nil {
		return nil, err
	}
	return o.tenants.Tenants(ctx)
}

type uncounted struct{}

func (uncounted) Count(string, int64, ...string)           {}
func (uncounted) Seconds(string, time.Duration, ...string) {}

// Its role allows functions/sweep all that a repair takes: by the schedule's event and by an execution's.
func TestSweepWithinItsRole(t *testing.T) {
	for _, c := range ofTheSweep {
		inWorld(t, func(t *testing.T, w *world) {
			w.started()
			time.Sleep(2 * time.Minute)
			allowed := grantsOf(t, "SweepRole")
			p := w.within(allowed, w.ports.Blobs, w.ports.Clock)
			o := outside{p.Waiter, allowed, w.ports.Blobs.(runtime.Tenants)}
			p.Waiter = o
			d := &lambdafn.Deployment{Ports: p, Definitions: runtime.PinnedDefinitions(p.Blobs), Log: observe.NewLogger(io.Discard)}
			const machine = "arn:aws:states:eu-central-1:123456789012:stateMachine:countersign-dev-agent"
			out, err := d.Compose().Sweep(o, o, machine, uncounted{})(t.Context(), readSample(t, c.file))
			require.NoError(t, err, c.file)
			var r lambdafn.Swept
			require.NoError(t, json.Unmarshal(out, &r))
			require.Empty(t, r.Failed)
			require.EqualValues(t, 1, r.Repaired[runtime.RepairTookOver], c.file)
			require.Equal(t, runSample+"-1", w.state(runSample).Owner)
		})
	}
}
