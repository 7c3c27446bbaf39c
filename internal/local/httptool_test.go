package local

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/registry"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/secrets"
	"github.com/countersign/countersign/internal/tools/egress"
)

// token is a secret of the payment, which nothing may store.
const token = "canary-of-the-payer"

// payment is one payment at a host, by a tool of that effect.
type payment struct {
	Home, Host string
	Effect     run.Effect
}

// payer pays, and then says so.
type payer struct{}

func (payer) Generate(_ context.Context, r agent.Request) (agent.Reply, error) {
	if _, ok := r.Messages[len(r.Messages)-1].Block.(run.ToolResult); ok {
		return agent.Reply{Model: "m", Text: "Paid."}, nil
	}
	return agent.Reply{
		Model: "m", Calls: []agent.ReplyCall{
			{ID: "c1", Name: "pay", Input: json.RawMessage(`{"order":"A-1","amount":9.90}`)},
		},
	}, nil
}

func (p payment) agent() (*agent.Definition, error) {
	d, err := agent.PresetDefaults(agent.PresetCountersign)
	if err != nil {
		return nil, err
	}
	d.Name, d.System = "payer", "You pay."
	d.Model.Provider, d.Model.ID = "demo", "stand-in"
	d.Permission.Default = agent.DefaultAsk
	d.Tools = []agent.ToolSpec{{
		Name: "pay", Kind: agent.KindHTTP, Effect: p.Effect, Timeout: 20 * time.Second,
		Schema: json.RawMessage(
			`{"type":"object","properties":{"order":{"type":"string"},"amount":{"type":"number"}},"required":["order"]}`,
		),
		HTTP: &agent.HTTPTool{
			Method: "POST", URL: "http://" + p.Host + "/orders/{order}", Headers: map[string]string{
				"Authorization": "Bearer ${secret:PAY}",
			},
		},
	}}
	return &d, d.Check()
}

func (p payment) open() (*Home, error) {
	remotes, err := Remotes(p.Home, func(name string) string {
		return map[string]string{egress.EnvPrivate: p.Host, secrets.Env + "PAY": token}[name]
	}, clock.System(), nil)
	if err != nil {
		return nil, err
	}
	reg, err := registry.New()
	if err != nil {
		return nil, err
	}
	return Open(Options{
		Dir: p.Home, Registry: reg, Clock: clock.System(), Remotes: remotes,
		Model: func(agent.ModelSpec) (runtime.Model, error) { return payer{}, nil },
	})
}

// pay starts the run, or finds it, and approves what it asks until it is done or nobody knows what became of it.
func (p payment) pay(ctx context.Context, h *Home) error {
	if err := h.Resume(ctx, Tenant); err != nil {
		return err
	}
	def, err := p.agent()
	if err != nil {
		return err
	}
	s, err := h.Starter.Start(
		ctx, runtime.Start{Tenant: Tenant, Agent: def, Key: "k", Message: []run.UserBlock{{Block: run.Text{Text: "Pay."}}}},
	)
	if err != nil {
		return err
	}
	for {
		head, err := h.Ports.Journal.Head(ctx, Tenant, s.Run)
		if err != nil || head.Status == run.RunDone {
			return err
		}
		pending, _, err := approval.List(ctx, h.Ports.Table, Tenant, approval.Query{Status: approval.Pending})
		if err != nil {
			return err
		}
		for _, a := range pending {
			if a.Kind == approval.KindOutcome {
				return nil
			}
			by := policy.Principal{ID: "user:local", Groups: []string{"group:operators"}}
			if _, err := h.Desk.Decide(
				ctx, approval.DecisionInput{Tenant: Tenant, ID: a.ID, Action: approval.Approve, By: by},
			); err != nil {
				return err
			}
		}
		if err := h.Ports.Clock.Sleep(ctx, time.Millisecond); err != nil {
			return err
		}
	}
}

// bank takes payments and keeps what it was asked.
type bank struct {
	*httptest.Server
	mu    sync.Mutex
	asked []string // path, key, authorization and body
	keys  []string
}

func newBank(t *testing.T) *bank {
	t.Helper()
	b := &bank{}
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		b.mu.Lock()
		b.asked = append(b.asked, fmt.Sprintf("%s %s %s", r.URL.Path, r.Header.Get("Authorization"), body))
		b.keys = append(b.keys, r.Header.Get("Idempotency-Key"))
		b.mu.Unlock()
		_, _ = fmt.Fprintf(w, "receipt 7 for %s", r.Header.Get("Authorization"))
	}))
	t.Cleanup(b.Close)
	return b
}

func (b *bank) host() string { return b.Listener.Addr().String() }

// nothingKeptOf fails where a file below a folder holds a text.
func nothingKeptOf(t *testing.T, dir, text string) {
	t.Helper()
	files := 0
	require.NoError(t, filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		files++
		require.NotContains(t, string(data), text, path)
		return err
	}))
	require.NotZero(t, files)
}

// A request of a tool waits for its countersignature, goes out once under the call's own key, and its answer is the
// call's result. Of the secret that it was sent with nothing is kept, though the server says it back.
func TestAnHTTPToolIsApprovedAndSentOnce(t *testing.T) {
	b := newBank(t)
	p := payment{Home: filepath.Join(t.TempDir(), "home"), Host: b.host(), Effect: run.EffectNonIdempotent}
	h, err := p.open()
	require.NoError(t, err)
	def, err := p.agent()
	require.NoError(t, err)
	s, err := h.Starter.Start(t.Context(), runtime.Start{
		Tenant: Tenant, Agent: def, Key: "k", Message: []run.UserBlock{{Block: run.Text{Text: "Pay."}}},
	})
	require.NoError(t, err)
	s = settled(t, h, s.Run)
	require.Equal(t, run.RunWaiting, s.Status)
	require.Empty(t, b.asked, "nothing goes out before somebody signs")
	require.NoError(t, p.pay(t.Context(), h))
	s = settled(t, h, s.Run)
	require.Equal(t, run.ReasonNaturalEnd, s.Reason)
	require.Equal(t, []string{`/orders/A-1 Bearer ` + token + ` {"amount":9.90}`}, b.asked)
	c := s.Calls()[0]
	require.Equal(t, []string{s.Run + "/" + c.ID}, b.keys)
	require.Equal(t, run.StatusSucceeded, c.Status)
	require.Equal(t, "receipt 7 for Bearer ${secret:PAY}", c.Result.Content)
	require.NoError(t, h.Close())
	nothingKeptOf(t, p.Home, token)
}
