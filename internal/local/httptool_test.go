package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
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

// payerVar starts this test binary again as a process that pays, until it is killed: a payment as JSON.
const payerVar = "COUNTERSIGN_TEST_PAYER"

// token is a secret of the payment, which nothing may store.
const token = "canary-of-the-payer"

// payment is what a process is to do: pay once at a host, by a tool of that effect.
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
	return agent.Reply{Model: "m", Calls: []agent.ReplyCall{{ID: "c1", Name: "pay", Input: json.RawMessage(`{"order":"A-1","amount":9.90}`)}}}, nil
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
		Schema: json.RawMessage(`{"type":"object","properties":{"order":{"type":"string"},"amount":{"type":"number"}},"required":["order"]}`),
		HTTP:   &agent.HTTPTool{Method: "POST", URL: "http://" + p.Host + "/orders/{order}", Headers: map[string]string{"Authorization": "Bearer ${secret:PAY}"}},
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
	s, err := h.Starter.Start(ctx, runtime.Start{Tenant: Tenant, Agent: def, Key: "k", Message: []run.UserBlock{{Block: run.Text{Text: "Pay."}}}})
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
			if _, err := h.Desk.Decide(ctx, approval.DecisionInput{Tenant: Tenant, ID: a.ID, Action: approval.Approve, By: by}); err != nil {
				return err
			}
		}
		if err := h.Ports.Clock.Sleep(ctx, time.Millisecond); err != nil {
			return err
		}
	}
}

// payerMain is the process that payerVar starts.
func payerMain(plan string) error {
	var p payment
	if err := json.Unmarshal([]byte(plan), &p); err != nil {
		return err
	}
	h, err := p.open()
	if err != nil {
		return err
	}
	return errors.Join(p.pay(context.Background(), h), h.Close())
}

// bank takes payments and keeps what it was asked. The first payer may be killed once its request is there, before it has an answer.
type bank struct {
	*httptest.Server
	mu    sync.Mutex
	asked []string // path, key, authorization and body
	keys  []string
	kill  func()
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
		kill := b.kill
		b.kill = nil
		b.mu.Unlock()
		if kill != nil {
			kill()
			return
		}
		_, _ = fmt.Fprintf(w, "receipt 7 for %s", r.Header.Get("Authorization"))
	}))
	t.Cleanup(b.Close)
	return b
}

func (b *bank) host() string { return b.Listener.Addr().String() }

// dies pays in a process of its own, which is killed once the bank has its request.
func dies(t *testing.T, b *bank, p payment) {
	t.Helper()
	plan, err := json.Marshal(p)
	require.NoError(t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), payerVar+"="+string(plan))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	started, dead := make(chan struct{}), make(chan struct{})
	b.mu.Lock()
	b.kill = func() {
		<-started
		if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
			t.Error(err)
		}
		<-dead
	}
	b.mu.Unlock()
	require.NoError(t, cmd.Start())
	close(started)
	err = cmd.Wait()
	close(dead)
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	require.True(t, ok && status.Signaled() && status.Signal() == syscall.SIGKILL, "the payer ended by itself: %v\n%s", err, stderr.String())
}

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

// A request of a tool waits for its countersignature, goes out once under the call's own key, and its answer is the call's result. Of the
// secret that it was sent with nothing is kept, though the server says it back.
func TestAnHTTPToolIsApprovedAndSentOnce(t *testing.T) {
	b := newBank(t)
	p := payment{Home: filepath.Join(t.TempDir(), "home"), Host: b.host(), Effect: run.EffectNonIdempotent}
	h, err := p.open()
	require.NoError(t, err)
	def, err := p.agent()
	require.NoError(t, err)
	s, err := h.Starter.Start(t.Context(), runtime.Start{Tenant: Tenant, Agent: def, Key: "k", Message: []run.UserBlock{{Block: run.Text{Text: "Pay."}}}})
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

// The process dies between sending and storing. What cannot be repeated is not sent again: a person says what became of it.
func TestAnHTTPToolWhoseProcessDies(t *testing.T) {
	t.Run("non_idempotent", func(t *testing.T) {
		b := newBank(t)
		p := payment{Home: filepath.Join(t.TempDir(), "home"), Host: b.host(), Effect: run.EffectNonIdempotent}
		dies(t, b, p)
		h, err := p.open()
		require.NoError(t, err)
		require.NoError(t, p.pay(t.Context(), h))
		s := settled(t, h, agent.RunID(Tenant, "payer", "k"))
		require.Equal(t, run.RunWaiting, s.Status)
		require.Equal(t, run.ForOutcome, s.Waits()[0].Wait.For)
		require.Len(t, b.keys, 1, "nobody sent it a second time")
		require.NoError(t, h.Close())
		nothingKeptOf(t, p.Home, token)
	})
	t.Run("idempotent", func(t *testing.T) {
		b := newBank(t)
		p := payment{Home: filepath.Join(t.TempDir(), "home"), Host: b.host(), Effect: run.EffectIdempotent}
		dies(t, b, p)
		h, err := p.open()
		require.NoError(t, err)
		require.NoError(t, p.pay(t.Context(), h))
		s := settled(t, h, agent.RunID(Tenant, "payer", "k"))
		require.Equal(t, run.ReasonNaturalEnd, s.Reason)
		c := s.Calls()[0]
		require.Equal(t, "receipt 7 for Bearer ${secret:PAY}", c.Result.Content)
		require.Equal(t, []string{s.Run + "/" + c.ID, s.Run + "/" + c.ID}, b.keys, "sent again under the same key")
		require.Equal(t, b.asked[0], b.asked[1])
		require.NoError(t, h.Close())
		nothingKeptOf(t, p.Home, token)
	})
}
