package local

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/registry"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/secrets"
	"github.com/countersign/countersign/internal/standins"
	"github.com/countersign/countersign/internal/tools"
	"github.com/countersign/countersign/internal/web"
)

// stockkeeper is a model that has stock counted and says what came of it.
type stockkeeper struct{}

func (stockkeeper) Generate(_ context.Context, r agent.Request) (agent.Reply, error) {
	for _, m := range r.Messages {
		if res, ok := m.Block.(run.ToolResult); ok {
			return agent.Reply{Text: "Counted: " + res.Content}, nil
		}
	}
	return agent.Reply{Calls: []agent.ReplyCall{{ID: "c1", Name: "stock_count", Input: json.RawMessage(`{"sku":"a1"}`)}}}, nil
}

// warehouse is AWS Lambda with the one function that counts, and what it was sent, taken or not.
type warehouse struct {
	*standins.Functions
	url string

	mu   sync.Mutex
	sent []string
}

func newWarehouse(t *testing.T, refuse func(n int) (int, string)) *warehouse {
	t.Helper()
	w := &warehouse{Functions: &standins.Functions{
		Credentials: aws.Credentials{AccessKeyID: "AKID", SecretAccessKey: "SECRET"}, Region: "eu-central-1", Clock: clock.System(), Refuse: refuse,
		Named: map[string]standins.Function{"count": func(context.Context, json.RawMessage) (any, *standins.FunctionError) { return nil, nil }},
	}}
	srv := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.mu.Lock()
		w.sent = append(w.sent, string(body))
		w.mu.Unlock()
		r.Body = io.NopCloser(bytes.NewReader(body))
		w.ServeHTTP(out, r)
	}))
	t.Cleanup(srv.Close)
	w.url = srv.URL
	return w
}

// open opens a home whose functions are the warehouse's, and serves its API as dev does.
func (w *warehouse) open(t *testing.T, dir string, log *slog.Logger) (*Home, *httptest.Server) {
	t.Helper()
	ring, err := secrets.Parse(`{"id":"1","key":"0123456789abcdef0123456789abcdef"}`)
	require.NoError(t, err)
	rings := func() (*secrets.Ring, error) { return ring, nil }
	functions := tools.NewFunctions(aws.Config{
		Region: w.Region, Credentials: credentials.StaticCredentialsProvider{Value: w.Credentials}, BaseEndpoint: &w.url,
	})
	feed := web.NewFeed(clock.System())
	reg := registry.Must(registry.New())
	model := func(agent.ModelSpec) (runtime.Model, error) { return stockkeeper{}, nil }
	h, err := Open(dir, reg, model, Config{
		Clock: clock.System(), Sink: feed, Functions: functions,
		Remotes:   runtime.Remotes{agent.KindLambda: tools.Lambda{Functions: functions}},
		Callbacks: secrets.Addresses{Ring: rings, Base: func() string { return "https://api.example.com" }},
		Trouble:   func(function string, err error) { log.Error(function, "error", err) },
	})
	require.NoError(t, err)
	require.NoError(t, h.Resume(t.Context(), Tenant, ""))
	b := h.Backend()
	b.Agents, b.Feed, b.Log, b.Callbacks = reg, feed, log, rings
	b.Caller = func(*http.Request) (web.Caller, error) { return web.Caller{}, web.NewProblem(web.NotAllowed, "nobody") }
	srv := httptest.NewServer(web.APIHandler(b))
	t.Cleanup(srv.Close)
	t.Cleanup(feed.Close)
	return h, srv
}

// A function that answers later is sent the call until Lambda takes it, the same each time to the byte, also by another
// process that takes the claim over; it answers at the address it was given, in yet another one, and the address is in
// no journal and no log.
func TestFunctionAnswersAtItsAddressAfterARestart(t *testing.T) {
	var busy atomic.Bool
	busy.Store(true)
	refused := make(chan struct{}, 100)
	w := newWarehouse(t, func(int) (int, string) {
		if !busy.Load() {
			return 0, ""
		}
		refused <- struct{}{}
		return http.StatusTooManyRequests, "TooManyRequestsException"
	})
	var logged bytes.Buffer
	log := slog.New(slog.NewTextHandler(&logged, nil))
	dir := filepath.Join(t.TempDir(), "home")
	h, _ := w.open(t, dir, log)
	d := define(t, "clerk", agent.ToolSpec{
		Name: "stock.count", Kind: agent.KindLambda, Effect: run.EffectNonIdempotent, Schema: json.RawMessage(`{"type":"object"}`),
		Lambda: &agent.LambdaTool{Function: "count", Async: true},
	})
	d.Permission.Default = agent.DefaultAllow
	s, err := h.Starter.Start(t.Context(), runtime.Start{Tenant: Tenant, Agent: d, Key: "k", Message: message("Count a1.")})
	require.NoError(t, err)
	<-refused
	require.NoError(t, h.Close())
	require.NoError(t, h.Ports.Clock.Sleep(t.Context(), 1100*time.Millisecond)) // tokens are made of whole seconds
	busy.Store(false)
	h, _ = w.open(t, dir, log)
	s = settled(t, h, s.Run)
	require.Equal(t, run.ForAnswer, s.Waits()[0].Wait.For)
	require.NoError(t, h.Close())

	require.Greater(t, len(w.sent), 1)
	for _, again := range w.sent {
		require.Equal(t, w.sent[0], again)
	}
	require.Len(t, w.Asked(), 1)
	var got policy.FunctionCall
	require.NoError(t, json.Unmarshal(w.Asked()[0].Payload, &got))
	require.Equal(t, []string{"stock.count", `{"sku":"a1"}`, s.Run + "/c1"}, []string{got.Tool, string(got.Args), got.Key})
	require.Equal(t, policy.AnswerTo{Run: s.Run, Call: "c1"}, got.Callback.AnswerTo)
	path, ok := strings.CutPrefix(got.Callback.URL, "https://api.example.com")
	require.True(t, ok, got.Callback.URL)

	h, srv := w.open(t, dir, log)
	post := func(body string) string {
		resp, err := http.Post(srv.URL+path, "application/json", strings.NewReader(body))
		require.NoError(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, http.StatusAccepted, resp.StatusCode, string(text))
		return string(text)
	}
	require.JSONEq(t, `{"applied":true}`, post(`{"result":{"n":10.0}}`))
	s = settled(t, h, s.Run)
	require.Equal(t, run.RunDone, s.Status)
	require.JSONEq(t, `"Counted: {\"n\":10.0}"`, string(s.Output))
	require.JSONEq(t, `{"applied":false}`, post(`{"error":"late"}`))

	token := strings.TrimPrefix(path, secrets.Path)
	entries, err := h.Ports.Journal.Entries(t.Context(), Tenant, s.Run, 0, 100)
	require.NoError(t, err)
	require.NotEmpty(t, entries)
	for _, e := range entries {
		raw, err := run.MarshalEntry(e)
		require.NoError(t, err)
		require.NotContains(t, string(raw), token)
	}
	require.NotContains(t, logged.String(), token)
	require.Len(t, w.Asked(), 1, "it was not invoked again")
	require.NoError(t, h.Close())
}
