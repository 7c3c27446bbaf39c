package runtime_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/hook"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
)

// building gives the world's agent a builder, which counts how often it is asked, and a run that begins with data.
func (w *world) building(build hook.Builder) {
	w.t.Helper()
	w.def.Builder, w.def.System = "b", ""
	w.ports.Hooks = hook.Set{Builders: map[string]hook.Builder{"b": build}}
	r := runtime.Start{Tenant: tenant, Agent: w.def, Key: "k1", Input: json.RawMessage(`{"n":1}`)}
	w.follow(w.starter().Start(w.ctx, r))
}

// A builder that runs out of time has said nothing: the step is tried again and the run goes on.
func TestContextOutOfTime(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		ctx, cancel := context.WithCancel(w.ctx)
		first := true
		w.building(func(ctx context.Context, _ hook.BuildInput) (hook.Built, error) {
			if first {
				first = false
				cancel()
			}
			return hook.Built{}, ctx.Err()
		})
		require.ErrorIs(t, errOf(w.stepper().Step(ctx, w.inv(0))), context.Canceled)
		require.Equal(t, run.RunRunning, w.state().Status)
		require.Equal(t, runtime.NextDone, w.drive(0).Next)
		require.Equal(t, run.Text{Text: `{"n":1}`}, w.model.asked[0].Messages[0].Block)
	})
}

// The same key and body are the same run, though an agent got a builder in between.
func TestBuilderIsNoPartOfTheBody(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		r := runtime.Start{Tenant: tenant, Agent: w.def, Key: "k1", Input: json.RawMessage(`{"n":1}`)}
		before, err := w.starter().Start(w.ctx, r)
		require.NoError(t, err)
		built := *w.def
		built.Builder = "b"
		r.Agent = &built
		after, err := w.starter().Start(w.ctx, r)
		require.NoError(t, err)
		require.Equal(t, before.Run, after.Run)
		require.Equal(t, 1, after.Messages.Len())
		r.Input = json.RawMessage(`{"n":2}`)
		require.ErrorIs(t, errOf(w.starter().Start(w.ctx, r)), runtime.ErrKeyReused)
	})
}
