package local

import (
	"context"
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/ids"
	"github.com/countersign/countersign/internal/lambdafn"
	"github.com/countersign/countersign/internal/observe/telemetry"
	"github.com/countersign/countersign/internal/observe/tracing"
	"github.com/countersign/countersign/internal/registry"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/tool"
)

// stocklist is a tool that is somewhere else, the session of it and the Remote.
type stocklist struct{}

func (c stocklist) Open(string, *agent.Definition) runtime.Session { return c }
func (c stocklist) Tool(agent.ToolSpec) tool.Tool                  { return c }
func (stocklist) Close()                                           {}
func (stocklist) Spec() agent.ToolSpec                             { return agent.ToolSpec{} }
func (stocklist) Call(context.Context, tool.Call) (agent.ToolResultData, error) {
	return agent.ToolResultData{Content: "10"}, nil
}

// On a laptop, too, calls of tools that are somewhere else are in the trace.
func TestToolsSomewhereElseAreTraced(t *testing.T) {
	clk, seen := clock.System(), tracetest.NewInMemoryExporter()
	sends := telemetry.New(telemetry.Config{Clock: clk, Random: ids.System(clk).Fill, Spans: sdktrace.NewSimpleSpanProcessor(seen)})
	h, err := Open(Options{
		Dir: filepath.Join(t.TempDir(), "home"), Registry: registry.Must(registry.New()), Clock: clk,
		Watch:   &lambdafn.Observer{Clock: clk, Trace: tracing.New(sends.Tracers, clk, tracing.Hide{})},
		Remotes: runtime.Remotes{agent.KindHTTP: stocklist{}},
		Model:   func(agent.ModelSpec) (runtime.Model, error) { return stockkeeper{}, nil },
	})
	require.NoError(t, err)
	d, err := agent.PresetDefaults(agent.PresetCountersign)
	require.NoError(t, err)
	d.Name, d.System, d.Model.Provider, d.Model.ID, d.Permission.Default = "clerk", "You count.", "demo", "stand-in", agent.DefaultAllow
	d.Tools = []agent.ToolSpec{{
		Name: "stock.count", Kind: agent.KindHTTP, Description: "Counts.", Effect: agent.EffectRead, Schema: json.RawMessage(`{"type":"object"}`),
		HTTP: &agent.HTTPTool{Method: "GET", URL: "https://stock.example/"},
	}}
	require.NoError(t, d.Check())
	s, err := h.Starter.Start(t.Context(), runtime.Start{Tenant: Tenant, Agent: &d, Key: "k", Message: []agent.UserBlock{{Block: agent.Text{Text: "Count a1."}}}})
	require.NoError(t, err)
	s = settled(t, h, s.Run)
	require.Equal(t, agent.ReasonNaturalEnd, s.Reason, "%+v", s.Error)
	require.NoError(t, h.Close()) // what is under way ends
	require.Contains(t, names(seen), "execute_tool stock.count")
}

func names(seen *tracetest.InMemoryExporter) []string {
	var out []string
	for _, s := range seen.GetSpans() {
		out = append(out, s.Name)
	}
	return out
}
