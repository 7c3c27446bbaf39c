package observe_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/lambdafn"
	"github.com/countersign/countersign/internal/model/modelretry"
	"github.com/countersign/countersign/internal/observe"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/tool"
)

// The incoming trace of the tests, as W3C's specification writes it.
const (
	callerTrace  = "4bf92f3577b34da6a3ce929d0e0e4736"
	callerSpan   = "00f067aa0ba902b7"
	callerHeader = "00-" + callerTrace + "-" + callerSpan + "-01"
)

// world is a deployment: functions that share a table and nothing else, each with a tracer of its own, which send to one collector.
type world struct {
	t         *testing.T
	collector *tracetest.InMemoryExporter
	logged    chan string // which no test leaves unread
	clock     clock.Clock
	ids       *clock.IDs
	table     *fault.Table
	blobs     store.Blobs
	def       agent.Definition
	hide      observe.Hide
	functions map[string]*function
	script    *script
	woken     []string
	payroll   func(ctx context.Context, c tool.Call) (agent.ToolResultData, error)
	lookup    func(ctx context.Context, c tool.Call) (agent.ToolResultData, error)
	metrics   bytes.Buffer
}

// function is one Lambda.
type function struct {
	*lambdafn.Deployment
	watch *lambdafn.Observer
}

func inWorld(t *testing.T, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		f(w)
		require.Empty(t, w.logged)
	})
}

func newWorld(t *testing.T) *world {
	c := clock.System()
	w := &world{t: t, collector: tracetest.NewInMemoryExporter(), clock: c, ids: clock.SeededIDs(c, 7), functions: map[string]*function{}, script: &script{}, logged: make(chan string, 16)}
	w.table, w.blobs = fault.NewTable(store.NewMemory()), store.NewMemoryBlobs()
	def, err := agent.PresetDefaults(agent.PresetCountersign)
	require.NoError(t, err)
	def.Name, def.System = "clerk", "You work."
	def.Model.Provider, def.Model.ID, def.Model.Retry = "demo", "m-1", agent.Retry{Attempts: 2, Backoff: time.Second}
	schema := json.RawMessage(`{"type":"object"}`)
	def.Tools = []agent.ToolSpec{
		{Name: "pay", Kind: agent.KindInternal, Description: "Pays.", Effect: run.EffectNonIdempotent, Schema: schema},
		{Name: "lookup", Kind: agent.KindInternal, Description: "Looks.", Effect: run.EffectRead, Schema: schema},
	}
	w.def = def
	w.payroll = func(context.Context, tool.Call) (agent.ToolResultData, error) {
		return agent.ToolResultData{Content: "paid"}, nil
	}
	w.lookup = func(context.Context, tool.Call) (agent.ToolResultData, error) {
		return agent.ToolResultData{Content: "found"}, nil
	}
	return w
}

// fn is a function of the deployment, started cold when it is first used.
func (w *world) fn(name string) *function {
	if f := w.functions[name]; f != nil {
		return f
	}
	sends := observe.NewTelemetry(observe.TelemetryConfig{
		Clock: w.clock, Random: w.ids.Fill, Spans: sdktrace.NewSimpleSpanProcessor(w.collector),
	})
	w.functions[name] = w.start(&lambdafn.Observer{
		Trace: observe.NewTracer(sends.Tracers, w.clock, w.hide), Metrics: observe.NewEMF(&w.metrics, w.clock, "Countersign"), Clock: w.clock, Log: func(text string) { w.logged <- text },
	})
	return w.functions[name]
}

func (w *world) start(watch *lambdafn.Observer) *function {
	p := runtime.Ports{
		Table: w.table, Journal: store.NewJournal(w.table, 8), Blobs: w.blobs, Tools: toolbox{w}, Valid: tool.Validate, Waiter: w, Clock: w.clock, IDs: w.ids,
		Model: modelretry.New(watch.Model(w.script), w.clock, nil), Remotes: watch.Remotes(runtime.Remotes{agent.KindHTTP: away{w}}),
	}
	return &function{
		watch: watch,
		Deployment: (&lambdafn.Deployment{
			Ports: watch.Ports(p), Definitions: runtime.PinnedDefinitions(w.blobs), Invoked: watch.Invoked,
			Agents: func(string) (*agent.Definition, bool) { return &w.def, true },
		}).Compose(),
	}
}

// invoke calls a function as the state machine does.
func (w *world) invoke(ctx context.Context, name, state string) (runtime.Route, error) {
	var s struct{ Run string }
	require.NoError(w.t, json.Unmarshal([]byte(state), &s))
	execution := "exec-1"
	if s.Run != "" {
		execution = w.owner(s.Run)
	}
	payload := fmt.Sprintf(`{"name":%q,"token":"token","state":%s}`, execution, state)
	out, err := w.fn(name).Invoke(ctx, name, []byte(payload))
	var r runtime.Route
	if err == nil {
		require.NoError(w.t, json.Unmarshal(out, &r))
	}
	return r, err
}

func (w *world) must(name, state string) runtime.Route {
	w.t.Helper()
	r, err := w.invoke(context.Background(), name, state)
	require.NoError(w.t, err)
	return r
}

// walk follows the routes until the run waits or has ended.
func (w *world) walk(r runtime.Route) runtime.Route {
	w.t.Helper()
	for {
		time.Sleep(10 * time.Millisecond)
		switch r.Next {
		case runtime.NextTools:
			r = w.must("tool", asJSON(w.t, r))
		case runtime.NextStep:
			r = w.must("step", asJSON(w.t, r))
		case runtime.NextWait:
			w.must("approve", asJSON(w.t, r))
			return r
		default:
			return r
		}
	}
}

// post starts a run as a client of the API with these headers does.
func (w *world) post(message string, headers map[string]string) run.AgentState {
	w.t.Helper()
	api := w.fn("api")
	var s run.AgentState
	h := api.watch.Trace.HTTP(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		st := runtime.Starter{Ports: api.Ports}
		var err error
		s, err = st.Start(r.Context(), runtime.Start{
			Tenant: "default", Agent: &w.def, Key: "k", Message: []run.UserBlock{{Block: run.Text{Text: message}}}, Subject: "ana",
		})
		require.NoError(w.t, err)
	}))
	r := httptest.NewRequest(http.MethodPost, "/v1/runs", nil)
	for k, v := range headers {
		r.Header.Set(k, v)
	}
	h.ServeHTTP(httptest.NewRecorder(), r)
	return s
}

// decide is a person's decision on the request about c1, through the API.
func (w *world) decide(action approval.Action) {
	w.t.Helper()
	api := w.fn("api")
	waits := &runtime.Waits{Ports: api.Ports}
	desk := &approval.Desk{
		Table: w.table, Journal: api.Ports.Journal, Clock: w.clock, Definitions: api.Definitions, ValidateArgs: tool.Validate, ResumeRun: waits.Wake,
		OnDecided: api.watch.Trace.Decided(api.Ports.Journal),
	}
	id := run.ApprovalID(w.state().Run, "c1", 1)
	h := api.watch.Trace.HTTP(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, err := desk.Decide(r.Context(), approval.DecisionInput{
			Tenant: "default", ID: id, Action: action, Note: "note " + canary, By: policy.Principal{ID: "user:boss", Groups: []string{"group:operators"}},
		})
		require.NoError(w.t, err)
	}))
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/v1/approvals/x/decision", nil))
}

// canary is what must not be seen where content is hidden.
const canary = "CANARY-7f3a"

func (w *world) state() run.AgentState {
	w.t.Helper()
	run := agent.RunID("default", "clerk", "k")
	l, err := store.NewJournal(w.table, 0).Load(context.Background(), "default", run)
	require.NoError(w.t, err)
	return l.State
}

func (w *world) owner(run string) string {
	l, err := store.NewJournal(w.table, 0).Load(context.Background(), "default", run)
	require.NoError(w.t, err)
	return l.State.Owner
}

// spans are what the collector got, in the order in which it was ended and sent.
func (w *world) spans() tracetest.SpanStubs { return w.collector.GetSpans() }

func (w *world) Success(_ context.Context, token string) error {
	w.woken = append(w.woken, token)
	return nil
}
func (w *world) Start(context.Context, string, string, string) error { return nil }
func (w *world) Stop(context.Context, string, string) error          { return nil }
func (w *world) Status(context.Context, string) (runtime.ExecutionStatus, error) {
	return runtime.ExecutionRunning, nil
}

// script is a model that says what it was told to.
type script struct{ turns []func() (agent.Reply, error) }

func (s *script) say(r agent.Reply) {
	s.turns = append(s.turns, func() (agent.Reply, error) { return r, nil })
}

func (s *script) fail(class agent.ModelErrorClass) {
	s.turns = append(s.turns, func() (agent.Reply, error) {
		return agent.Reply{}, &agent.ModelError{Class: class, Model: "m-1", Message: "no " + canary, Cause: errors.New(canary)}
	})
}

func (s *script) Generate(context.Context, agent.Request) (agent.Reply, error) {
	time.Sleep(100 * time.Millisecond)
	next := s.turns[0]
	s.turns = s.turns[1:]
	return next()
}

type toolbox struct{ w *world }

func (b toolbox) Lookup(name string) (tool.Tool, bool) {
	return fakeTool{b.w, name}, name == "pay" || name == "lookup"
}

type fakeTool struct {
	w    *world
	name string
}

func (f fakeTool) Spec() agent.ToolSpec { return agent.ToolSpec{Name: f.name} }

func (f fakeTool) Call(ctx context.Context, c tool.Call) (agent.ToolResultData, error) {
	time.Sleep(50 * time.Millisecond)
	if f.name == "pay" {
		return f.w.payroll(ctx, c)
	}
	return f.w.lookup(ctx, c)
}

// away are tools that are somewhere else, and the session of them.
type away struct{ w *world }

func (a away) Open(string, *agent.Definition) runtime.Session { return a }
func (a away) Tool(t agent.ToolSpec) tool.Tool                { return fakeTool{a.w, t.Name} }
func (a away) Close()                                         {}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	require.NoError(t, err)
	return string(b)
}

// kind and the others read a span's attributes.
func attr(s tracetest.SpanStub, key string) string {
	for _, kv := range s.Attributes {
		if string(kv.Key) == key {
			return kv.Value.String()
		}
	}
	return ""
}

func kind(s tracetest.SpanStub) string { return attr(s, "openinference.span.kind") }

func ofKind(spans tracetest.SpanStubs, k string) tracetest.SpanStubs {
	return slices.DeleteFunc(slices.Clone(spans), func(s tracetest.SpanStub) bool { return kind(s) != k })
}

// tree draws spans as a tree, in time, with their attributes; ids are left out, because who is whose parent is what they say.
func tree(spans tracetest.SpanStubs, epoch time.Time) string {
	sorted := slices.Clone(spans)
	slices.SortStableFunc(sorted, func(a, b tracetest.SpanStub) int {
		if c := a.StartTime.Compare(b.StartTime); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	have := map[string]bool{}
	for _, s := range sorted {
		have[s.SpanContext.SpanID().String()] = true
	}
	var b strings.Builder
	var draw func(parent, indent string)
	draw = func(parent, indent string) {
		for _, s := range sorted {
			above := s.Parent.SpanID().String()
			if !have[above] {
				above = ""
			}
			if above != parent {
				continue
			}
			fmt.Fprintf(&b, "%s%s %s [%v %v] %s\n", indent, kind(s), s.Name, s.StartTime.Sub(epoch), s.EndTime.Sub(epoch), s.Status.Code)
			for _, kv := range sortedAttributes(s) {
				fmt.Fprintf(&b, "%s    %s = %s\n", indent, kv.Key, kv.Value.String())
			}
			draw(s.SpanContext.SpanID().String(), indent+"  ")
		}
	}
	draw("", "")
	return b.String()
}

func sortedAttributes(s tracetest.SpanStub) []attribute.KeyValue {
	kvs := slices.Clone(s.Attributes)
	kvs = slices.DeleteFunc(kvs, func(kv attribute.KeyValue) bool { return kv.Key == "openinference.span.kind" })
	slices.SortFunc(kvs, func(a, b attribute.KeyValue) int { return strings.Compare(string(a.Key), string(b.Key)) })
	return kvs
}

// untraced is a function without a tracer.
var untraced lambdafn.Observer
