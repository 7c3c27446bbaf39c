package local

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/registry"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"

	"github.com/countersign/countersign/internal/tools/builtin"
)

// tidy is an agent like the demo's, over one folder.
func tidy(t *testing.T, dir string) *agent.Definition {
	t.Helper()
	d, err := tidyDefinition(dir)
	require.NoError(t, err)
	return d
}

func tidyDefinition(dir string) (*agent.Definition, error) {
	d, err := agent.PresetDefaults(agent.PresetCountersign)
	if err != nil {
		return nil, err
	}
	d.Name, d.System = "tidy", "You tidy."
	d.Model.Provider, d.Model.ID = "demo", "stand-in"
	d.Limits.Interactions = 60
	tools, err := builtin.Tools()
	if err != nil {
		return nil, err
	}
	for _, b := range tools {
		s := b.Spec()
		s.Root = dir
		d.Tools = append(d.Tools, s)
	}
	return &d, d.Check()
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
	tools, err := builtin.Tools()
	require.NoError(t, err)
	reg, err := registry.New(tools...)
	require.NoError(t, err)
	h, err := Open(Options{
		Dir: dir, Registry: reg, Clock: clock.System(),
		Model: func(agent.ModelSpec) (runtime.Model, error) { return DemoModel{}, nil },
	})
	require.NoError(t, err)
	require.NoError(t, h.Resume(t.Context(), Tenant))
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
	_, err := Open(Options{Dir: dir, Registry: registry.Must(registry.New()), Clock: clock.System()})
	require.ErrorIs(t, err, ErrInUse)
	require.NoError(t, h.Close())
}
