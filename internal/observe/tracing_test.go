package observe_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/observe"
	"github.com/countersign/countersign/internal/run"
)

// The switches are those of OpenInference, but that inputs and outputs are hidden where nobody said anything.
func TestHideFromEnv(t *testing.T) {
	const hide = "OPENINFERENCE_HIDE_"
	for name, c := range map[string]struct {
		env  map[string]string
		want observe.Hide
		err  string
	}{
		"nothing is said":   {nil, observe.Hide{Inputs: true, Outputs: true}, ""},
		"shown":             {map[string]string{hide + "INPUTS": "false", hide + "OUTPUTS": "False"}, observe.Hide{}, ""},
		"inputs alone":      {map[string]string{hide + "OUTPUTS": "false"}, observe.Hide{Inputs: true}, ""},
		"all of the rest":   {map[string]string{hide + "INPUT_MESSAGES": "true", hide + "OUTPUT_MESSAGES": "TRUE", hide + "INPUT_TEXT": "1", hide + "OUTPUT_TEXT": "t", hide + "INPUT_IMAGES": "true", hide + "LLM_TOOLS": "true"}, observe.Hide{true, true, true, true, true, true, true, true}, ""},
		"neither yes or no": {map[string]string{hide + "INPUTS": "yes"}, observe.Hide{}, hide + `INPUTS: got "yes", want true or false`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := observe.HideFromEnv(func(name string) string { return c.env[name] })
			if c.err != "" {
				require.EqualError(t, err, c.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}

// Each switch hides what it says and leaves the rest.
func TestHideSwitches(t *testing.T) {
	const tools = "llm.tools.0.tool.json_schema"
	const in, out = "llm.input_messages.0.message.role", "llm.output_messages.0.message.role"
	texts := []string{"SYSTEM", "USER", "ARGS", "RESULT"}
	said := append([]string{"picture.png", in}, texts...)
	for name, c := range map[string]struct {
		hide observe.Hide
		gone []string
	}{
		"nothing":         {observe.Hide{}, nil},
		"inputs":          {observe.Hide{Inputs: true}, append([]string{tools}, said...)},
		"outputs":         {observe.Hide{Outputs: true}, []string{"REPLY", out}},
		"input messages":  {observe.Hide{InputMessages: true}, said},
		"output messages": {observe.Hide{OutputMessages: true}, []string{"REPLY", out}},
		"input text":      {observe.Hide{InputText: true}, texts},
		"output text":     {observe.Hide{OutputText: true}, []string{"REPLY"}},
		"input images":    {observe.Hide{InputImages: true}, []string{"picture.png"}},
		"tools":           {observe.Hide{Tools: true}, []string{tools}},
	} {
		inWorld(t, func(w *world) {
			w.hide = c.hide
			w.script.say(agent.Reply{Text: "REPLY"})
			_, err := w.fn("step").watch.Trace.Model(w.script).Generate(t.Context(), agent.Request{
				System: "SYSTEM", Tools: w.def.Tools, Messages: []run.Message{
					{Role: run.RoleUser, Block: run.Text{Text: "USER"}},
					{Role: run.RoleAssistant, Block: run.ToolUse{ID: "c1", Name: "pay", Input: []byte("ARGS")}},
					{Role: run.RoleUser, Block: run.ToolResult{ID: "c1", Content: "RESULT"}},
					{Role: run.RoleUser, Block: run.Media{Name: "picture.png", MediaType: "image/png", Data: "QUJD"}},
				}})
			require.NoError(t, err)
			all := tree(w.spans(), w.clock.Now())
			for _, s := range append([]string{"REPLY", tools, out}, said...) {
				require.Equal(t, !slices.Contains(c.gone, s), strings.Contains(all, s), "%s: %s", name, s)
			}
			require.NotContains(t, all, "QUJD")
		})
	}
}

// What goes out is what comes in; what makes no sense is nothing.
func TestCarrier(t *testing.T) {
	require.Empty(t, observe.TraceCarrier(context.Background()))
	require.Empty(t, observe.XRayHeader(context.Background()))
	in := map[string]string{"traceparent": callerHeader, "tracestate": "a=1,b=2"}
	ctx := observe.ExtractTrace(context.Background(), in)
	require.Equal(t, in, observe.TraceCarrier(ctx))
	require.Equal(t, "Root=1-4bf92f35-77b34da6a3ce929d0e0e4736;Parent="+callerSpan+";Sampled=1", observe.XRayHeader(ctx))
	off := strings.TrimSuffix(callerHeader, "01") + "00"
	require.Equal(t, off, observe.TraceCarrier(observe.ExtractTrace(context.Background(), map[string]string{"traceparent": off}))["traceparent"])
	for _, bad := range []string{"", "x", "00-0-0-01", "00-" + strings.Repeat("0", 32) + "-" + callerSpan + "-01", strings.ToUpper(callerHeader)} {
		require.Empty(t, observe.TraceCarrier(observe.ExtractTrace(context.Background(), map[string]string{"traceparent": bad})), bad)
	}
	long := map[string]string{"traceparent": callerHeader, "tracestate": "a=" + strings.Repeat("x", 600)}
	require.Equal(t, map[string]string{"traceparent": callerHeader}, observe.TraceCarrier(observe.ExtractTrace(context.Background(), long)), "nobody makes a run remember so much")
}

// A request's X-Ray header counts where it brings no traceparent.
func TestHTTPHeaders(t *testing.T) {
	const xray = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1"
	for name, c := range map[string]struct{ parent, xray, want string }{
		"both":  {callerHeader, xray, callerTrace},
		"x-ray": {"", xray, "5759e988bd862e3fe1be46a994272793"},
		"none":  {"", "", strings.Repeat("0", 32)},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				var got trace.SpanContext
				h := w.fn("api").watch.Trace.HTTP(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = trace.SpanContextFromContext(r.Context()) }))
				r := httptest.NewRequest(http.MethodPost, "/v1/runs", nil)
				r.Header.Set("Traceparent", c.parent)
				r.Header.Set("X-Amzn-Trace-Id", c.xray)
				h.ServeHTTP(httptest.NewRecorder(), r)
				require.Equal(t, c.want, got.TraceID().String())
			})
		})
	}
}

// A long value is cut, and a long conversation is not.
func TestLimits(t *testing.T) {
	inWorld(t, func(w *world) {
		w.script.say(agent.Reply{Text: strings.Repeat("x", 100_000)})
		r := agent.Request{System: "s"}
		for range 1000 {
			r.Messages = append(r.Messages, run.Message{Role: run.RoleUser, Block: run.Text{Text: "hi"}})
		}
		_, err := w.fn("step").watch.Trace.Model(w.script).Generate(context.Background(), r)
		require.NoError(t, err)
		s := w.spans()[0]
		require.Zero(t, s.DroppedAttributes)
		require.Equal(t, "hi", attr(s, "llm.input_messages.1000.message.content"))
		require.Len(t, attr(s, "llm.output_messages.0.message.content"), 16<<10)
	})
}
