package local

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/registry"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/tool"
)

// define returns an agent of the demo's model with these tools.
func define(t *testing.T, name string, tools ...agent.ToolSpec) *agent.Definition {
	t.Helper()
	d, err := agent.PresetDefaults(agent.PresetCountersign)
	require.NoError(t, err)
	d.Name, d.System, d.Tools = name, "You work.", tools
	d.Model.Provider, d.Model.ID = "demo", "stand-in"
	require.NoError(t, d.Check())
	return &d
}

// replying is a model that gives these replies, one an inference, and the last one again and again.
type replying []agent.Reply

func (m replying) Generate(_ context.Context, r agent.Request) (agent.Reply, error) {
	return m[min(int(r.Inference), len(m))-1], nil
}

// message is what a run starts with.
func message(text string) []run.UserBlock { return []run.UserBlock{{Block: run.Text{Text: text}}} }

// tidy is an agent like the demo's, over one folder.
func tidy(t *testing.T, dir string) *agent.Definition {
	t.Helper()
	tools, err := tool.Builtin()
	require.NoError(t, err)
	var specs []agent.ToolSpec
	for _, b := range tools {
		s := b.Spec()
		s.Root = dir
		specs = append(specs, s)
	}
	d := define(t, "tidy", specs...)
	d.Limits.Interactions = 60
	return d
}

func notes(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.txt"), []byte("Team meeting\nTuesday"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "b.txt"), []byte("Shopping list\nmilk"), 0o600))
	return dir
}

func open(t *testing.T, dir string) *Home {
	t.Helper()
	tools, err := tool.Builtin()
	require.NoError(t, err)
	reg, err := registry.New(tools...)
	require.NoError(t, err)
	model := func(agent.ModelSpec) (runtime.Model, error) { return DemoModel{}, nil }
	h, err := Open(dir, reg, model, Config{Clock: clock.System()})
	require.NoError(t, err)
	require.NoError(t, h.Resume(t.Context(), Tenant, ""))
	return h
}

// settled waits until the run is done, or parked on a request that nobody has decided.
func settled(t *testing.T, h *Home, runID string) run.AgentState {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for {
		head, err := h.Ports.Journal.Head(ctx, Tenant, runID)
		require.NoError(t, err)
		if head.Status == run.RunDone || head.Status == run.RunWaiting && head.Token != "" {
			l, err := h.Ports.Journal.Load(ctx, Tenant, runID)
			require.NoError(t, err)
			if len(l.Inbox) == 0 && l.State.Status != run.RunRunning { // it may have moved on since its view was read
				return l.State
			}
		}
		require.NoError(t, h.Ports.Clock.Sleep(ctx, time.Millisecond))
	}
}

func TestOpenRefusesAStoreInUse(t *testing.T) {
	dir := t.TempDir()
	h := open(t, dir)
	_, err := Open(dir, registry.Must(registry.New()), nil, Config{Clock: clock.System()})
	require.ErrorIs(t, err, ErrInUse)
	require.NoError(t, h.Close())
}

// A client that hangs up after its change was begun does not cut the change off; what it only reads is cut off.
func TestFinishChanges(t *testing.T) {
	gone, hangUp := context.WithCancel(t.Context())
	hangUp()
	for target, want := range map[string]error{
		"POST /v1/runs": nil, "DELETE /v1/runs/r1": nil, "POST /a/token": nil,
		"GET /v1/runs": context.Canceled, "POST /v1/chat/shop": context.Canceled,
	} {
		method, path, _ := strings.Cut(target, " ")
		FinishChanges(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			require.Equal(t, want, r.Context().Err(), target)
		})).ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(gone, method, path, nil))
	}
}
