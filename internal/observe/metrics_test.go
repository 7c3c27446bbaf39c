package observe_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/observe"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/tool"
)

// meter writes down what it is told.
type meter []string

func (m *meter) Count(name string, n int64, dims ...string) {
	*m = append(*m, fmt.Sprintf("%s %d %s", name, n, strings.Join(dims, "=")))
}

func (m *meter) Millis(name string, d time.Duration, dims ...string) {
	*m = append(*m, fmt.Sprintf("%s %v %s", name, d, strings.Join(dims, "=")))
}

func TestFacts(t *testing.T) {
	at := time.Unix(1000, 0)
	for _, c := range []struct {
		fact run.Event
		want []string
	}{
		{run.RunStarted{}, []string{"RunsStarted 1 Agent=clerk"}},
		{run.RunStarted{From: &run.Origin{Kind: run.OriginFork, Unknown: make([]run.CallUnknown, 2)}}, []string{"RunsStarted 1 Agent=clerk", "CallsUnknown 2 Agent=clerk"}},
		{run.RunStarted{From: &run.Origin{Kind: run.OriginContinues}}, []string{"RunsStarted 1 Agent=clerk"}},
		{run.Replied{Usage: run.Usage{Input: 3, Output: 5, CacheRead: 20, CacheWrite: 100}}, []string{"Inferences 1 Agent=clerk", "InputTokens 123 Agent=clerk", "OutputTokens 5 Agent=clerk"}},
		{run.Evicted{Total: 2}, nil},
		{run.Evicted{Total: 2, Usage: &run.Usage{Input: 40, Output: 9}}, []string{"InputTokens 40 Agent=clerk", "OutputTokens 9 Agent=clerk"}},
		{run.CallFinished{}, []string{"ToolCalls 1 Agent=clerk=Outcome=succeeded"}},
		{run.CallFinished{IsError: true, Reason: run.WhyDenied}, []string{"ToolCalls 1 Agent=clerk=Outcome=denied"}},
		{run.CallSuspended{}, []string{"ApprovalsAsked 1 Agent=clerk"}},
		{run.CallUnknown{}, []string{"CallsUnknown 1 Agent=clerk"}},
		{run.Decided{Action: run.ActionDeny}, []string{"ApprovalsDecided 1 Agent=clerk=Outcome=deny"}},
		{run.CallCancelled{Reason: run.WhyExpired}, []string{"ApprovalsDecided 1 Agent=clerk=Outcome=expired"}},
		{run.CallCancelled{Reason: run.WhyOutcomeUnknown}, nil},
		{run.Finished{Reason: run.ReasonCancelled}, []string{"RunsEnded 1 Agent=clerk=Reason=cancelled", "RunTime 10s Agent=clerk"}},
		{run.CallClaimed{}, nil},
	} {
		var m meter
		observe.MeterEvents(&m).Committed(context.Background(), run.Entry{Time: at.Add(10 * time.Second), Events: []run.Event{c.fact}},
			&run.AgentState{Agent: "clerk", StartedAt: at})
		require.Equal(t, meter(c.want), m, "%T", c.fact)
	}
}

// A call of a model that was cancelled is neither measured nor an error; testdata/metrics.jsonl has the others.
func TestModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m meter
		model := observe.MeterModel(answers{context.Canceled}, &m, nil, clock.System())
		_, err := model.Generate(context.Background(), agent.Request{Agent: "clerk"})
		require.Equal(t, context.Canceled, err)
		require.Empty(t, m)
	})
}

type box struct{ tool.Tool }

func (b box) Lookup(name string) (tool.Tool, bool) { return b.Tool, name == "pay" }

type pay struct{ tool.Tool }

func (pay) Call(context.Context, tool.Call) (agent.ToolResultData, error) {
	time.Sleep(time.Second)
	return agent.ToolResultData{Content: "paid"}, errors.New("x")
}

type reconciling struct{ pay }

func (reconciling) Reconcile(context.Context, tool.Call) (tool.Outcome, agent.ToolResultData, error) {
	return tool.OutcomeDone, agent.ToolResultData{}, nil
}

// A tool is measured also when it fails, and can still say what became of a call if it could before.
func TestTools(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m meter
		metered := func(found tool.Tool) tool.Tool { return observe.MeterTool(found, &m, clock.System()) }
		_, ok := observe.ToolsAround(box{pay{}}, metered).Lookup("other")
		require.False(t, ok)
		found, _ := observe.ToolsAround(box{pay{}}, metered).Lookup("pay")
		_, err := found.Call(context.Background(), tool.Call{Name: "pay"})
		require.Error(t, err)
		require.Equal(t, meter{"ToolLatency 1s Tool=pay"}, m)
		_, ok = found.(tool.Reconciler)
		require.False(t, ok)
		found, _ = observe.ToolsAround(box{reconciling{}}, metered).Lookup("pay")
		require.Implements(t, (*tool.Reconciler)(nil), found)
	})
}
