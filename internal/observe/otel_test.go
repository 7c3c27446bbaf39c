package observe_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/observe"

	"github.com/countersign/countersign/internal/run"
)

// answers is a model that answers after a second, or fails.
type answers struct{ err error }

func (a answers) Generate(context.Context, agent.Request) (agent.Reply, error) {
	time.Sleep(time.Second)
	if a.err != nil {
		return agent.Reply{}, a.err
	}
	return agent.Reply{Model: "m-1-0625", Usage: run.Usage{Input: 10, CacheRead: 90, Output: 5}}, nil
}

// What is recorded with OpenTelemetry has the names, units and attributes of the GenAI conventions.
func TestOTelMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clk, reader := clock.System(), sdkmetric.NewManualReader()
		otel, err := observe.NewOTel(observe.NewTelemetry(observe.TelemetryConfig{Clock: clk, Metrics: reader}).Meters)
		require.NoError(t, err)
		r := agent.Request{Agent: "clerk", Model: agent.ModelSpec{Provider: "bedrock", ID: "m-1"}}
		_, err = observe.MeterModel(answers{}, observe.Meters{}, otel, clk).Generate(t.Context(), r)
		require.NoError(t, err)
		_, err = observe.MeterModel(answers{&agent.ModelError{Class: agent.ModelThrottled}}, observe.Meters{}, otel, clk).Generate(t.Context(), r)
		require.Error(t, err)
		otel.Count(observe.ToolCalls, 2, "Agent", "clerk", "Outcome", "succeeded")
		otel.Millis(observe.ToolLatency, 1500*time.Millisecond, "Tool", "pay")
		otel.Count(observe.InputTokens, 100, "Agent", "clerk") // the conventions' own metric says so already
		const asked = "gen_ai.agent.name=clerk gen_ai.operation.name=chat gen_ai.provider.name=aws.bedrock gen_ai.request.model=m-1"
		require.Equal(t, []string{
			"countersign.tool.calls: 2 {countersign.outcome=succeeded gen_ai.agent.name=clerk}",
			"countersign.tool.duration s: 1 of 1.5 {gen_ai.tool.name=pay}",
			"gen_ai.client.operation.duration s: 1 of 1 {error.type=throttled " + asked + "}",
			"gen_ai.client.operation.duration s: 1 of 1 {" + asked + " gen_ai.response.model=m-1-0625}",
			"gen_ai.client.token.usage {token}: 1 of 100 {" + asked + " gen_ai.response.model=m-1-0625 gen_ai.token.type=input}",
			"gen_ai.client.token.usage {token}: 1 of 5 {" + asked + " gen_ai.response.model=m-1-0625 gen_ai.token.type=output}",
		}, collected(t, reader))
	})
}

// collected are the measurements, sorted: name, unit, count and sum, attributes.
func collected(t *testing.T, r sdkmetric.Reader) []string {
	t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(t, r.Collect(t.Context(), &all))
	var out []string
	for _, m := range all.ScopeMetrics[0].Metrics {
		name := strings.TrimSpace(m.Name + " " + m.Unit)
		switch data := m.Data.(type) {
		case metricdata.Sum[int64]:
			for _, p := range data.DataPoints {
				out = append(out, fmt.Sprintf("%s: %d %s", name, p.Value, attributes(p.Attributes.ToSlice())))
			}
		case metricdata.Histogram[int64]:
			for _, p := range data.DataPoints {
				out = append(out, fmt.Sprintf("%s: %d of %d %s", name, p.Count, p.Sum, attributes(p.Attributes.ToSlice())))
			}
		case metricdata.Histogram[float64]:
			for _, p := range data.DataPoints {
				out = append(out, fmt.Sprintf("%s: %d of %v %s", name, p.Count, p.Sum, attributes(p.Attributes.ToSlice())))
			}
		}
	}
	slices.Sort(out)
	return out
}

func attributes(kvs []attribute.KeyValue) string {
	var out []string
	for _, kv := range kvs {
		out = append(out, string(kv.Key)+"="+kv.Value.String())
	}
	return "{" + strings.Join(out, " ") + "}"
}
