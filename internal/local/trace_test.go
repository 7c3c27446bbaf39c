package local

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/lambdafn"
	"github.com/countersign/countersign/internal/observe"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/registry"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/tool"
)

// peers are servers that tools are at: HTTP, MCP and AWS Lambda. They keep the traceparent of each tool call, by tool.
type peers struct {
	mcp     http.Handler
	mu      sync.Mutex
	told    map[string]string
	baggage []string
}

func newPeers() *peers {
	p := &peers{told: map[string]string{}}
	s := sdk.NewServer(&sdk.Implementation{Name: "peer", Version: "1"}, nil)
	sdk.AddTool(s, &sdk.Tool{Name: "price", Description: "Says the price."},
		func(_ context.Context, r *sdk.CallToolRequest, _ struct{}) (*sdk.CallToolResult, any, error) {
			p.note("stock_price", r.Extra.Header.Get("Traceparent"))
			return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "9.90"}}}, nil, nil
		})
	p.mcp = sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, nil)
	return p
}

func (p *peers) note(tool, traceparent string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.told[tool] = traceparent
}

func (p *peers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.baggage = append(p.baggage, r.Header.Values("Baggage")...)
	p.mu.Unlock()
	if r.URL.Path == "/mcp" {
		p.mcp.ServeHTTP(w, r)
		return
	}
	p.note("stock_count", r.Header.Get("Traceparent"))
}

// Invoke implements runtime.Functions.
func (p *peers) Invoke(_ context.Context, i runtime.Invoke) (runtime.Invoked, error) {
	var call policy.FunctionCall
	err := json.Unmarshal(i.Payload, &call)
	p.note(call.Tool, call.Traceparent)
	return runtime.Invoked{Payload: json.RawMessage(`"ok"`)}, err
}

// buyer is a model that calls every tool at once.
type buyer struct{}

func (buyer) Generate(_ context.Context, r agent.Request) (agent.Reply, error) {
	if len(r.Messages) > 1 {
		return agent.Reply{Text: "Done."}, nil
	}
	var out agent.Reply
	for _, t := range r.Tools {
		name := t.ModelName()
		out.Calls = append(out.Calls, agent.ReplyCall{ID: "c-" + name, Name: name, Input: json.RawMessage(`{}`)})
	}
	return out, nil
}

// Every tool outside the program is told the trace of its call: over HTTP in the header, a function in its payload. A
// function that answers later is told the run's own span.
func TestToolsAreToldTheTrace(t *testing.T) {
	p := newPeers()
	srv := httptest.NewServer(p)
	defer srv.Close()
	dir, clk, seen := filepath.Join(t.TempDir(), "home"), clock.System(), tracetest.NewInMemoryExporter()
	sends := observe.NewTelemetry(observe.TelemetryConfig{
		Clock: clk, Random: clock.NewIDs(clk).Fill, Spans: sdktrace.NewSimpleSpanProcessor(seen),
	})
	remotes, err := Remotes(dir, func(name string) string {
		return map[string]string{tool.EnvPrivateHosts: strings.TrimPrefix(srv.URL, "http://")}[name]
	}, clk, p)
	require.NoError(t, err)
	model := func(agent.ModelSpec) (runtime.Model, error) { return buyer{}, nil }
	h, err := Open(dir, registry.Must(registry.New()), model, Config{
		Clock: clk, Remotes: remotes, Functions: p, Trusts: func(string, string) {},
		Watch: &lambdafn.Observer{Clock: clk, Trace: observe.NewTracer(sends.Tracers, clk, observe.Hide{})},
	})
	require.NoError(t, err)
	tool := func(name string, kind agent.ToolKind) agent.ToolSpec {
		return agent.ToolSpec{Name: name, Kind: kind, Effect: run.EffectRead, Schema: json.RawMessage(`{"type":"object"}`)}
	}
	web, function := tool("stock_count", agent.KindHTTP), tool("stock_take", agent.KindLambda)
	later := tool("stock_order", agent.KindLambda)
	web.HTTP = &agent.HTTPTool{Method: "GET", URL: srv.URL + "/stock"}
	function.Lambda, later.Lambda = &agent.LambdaTool{Function: "take"}, &agent.LambdaTool{Function: "order", Async: true}
	d := define(t, "clerk", web, function, later)
	d.Permission.Default = agent.DefaultAllow
	d.MCP = []agent.MCPServer{{Name: "stock", URL: srv.URL + "/mcp"}}
	s, err := h.Starter.Start(t.Context(), runtime.Start{Tenant: Tenant, Agent: d, Key: "k", Message: message("Buy.")})
	require.NoError(t, err)
	s = settled(t, h, s.Run)
	require.Equal(t, run.RunWaiting, s.Status, "%+v", s.Error)
	require.NoError(t, h.Close()) // what is under way ends

	p.mu.Lock()
	defer p.mu.Unlock()
	want := map[string]string{"stock_order": s.Trace.Traceparent}
	for _, name := range []string{"stock_count", "stock_take", "stock_price"} {
		spans := seen.GetSpans()
		i := slices.IndexFunc(spans, func(s tracetest.SpanStub) bool {
			return strings.HasPrefix(s.Name, "execute_tool stock") && strings.HasSuffix(s.Name, name[6:]) // an MCP tool keeps its dot
		})
		require.GreaterOrEqual(t, i, 0, name)
		span := spans[i].SpanContext
		want[name] = "00-" + span.TraceID().String() + "-" + span.SpanID().String() + "-01"
		require.Equal(t, s.Trace.Traceparent[:35], want[name][:35], "the run's trace")
	}
	require.Equal(t, want, p.told)
	require.Empty(t, p.baggage)
}
