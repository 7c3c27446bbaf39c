package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/model/script"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
)

// models routes a request to the adapter of the model it names: every run has its own, pinned with its definition.
type models struct {
	make func(agent.ModelSpec) (runtime.Model, error)
	mu   sync.Mutex
	made map[string]runtime.Model
}

// withBlobs makes adapters that get the content of blobs and use the dialect of their model. A script's lines are
// matched against the request before that.
func withBlobs(factory func(agent.ModelSpec) (runtime.Model, error), blobs store.Blobs) func(agent.ModelSpec) (runtime.Model, error) {
	return func(spec agent.ModelSpec) (runtime.Model, error) {
		m, err := factory(spec)
		if err != nil || spec.Provider == "script" {
			return m, err
		}
		return runtime.WithDialect(runtime.WithMedia(m, blobs)), nil
	}
}

func newModels(factory func(agent.ModelSpec) (runtime.Model, error)) *models {
	return &models{make: factory, made: map[string]runtime.Model{}}
}

// Generate asks the request's own model. One that cannot be made is a failed call that no retry mends.
func (m *models) Generate(ctx context.Context, r agent.Request) (agent.Reply, error) {
	adapter, err := m.adapter(r.Model)
	if err != nil {
		return agent.Reply{}, &agent.ModelError{Class: agent.ModelInvalid, Model: r.Model.ID, Message: err.Error(), Cause: err}
	}
	return adapter.Generate(ctx, r)
}

// CountTokens counts with the request's own model.
func (m *models) CountTokens(ctx context.Context, r agent.Request) (int64, error) {
	adapter, err := m.adapter(r.Model)
	if err != nil {
		return 0, &agent.ModelError{Class: agent.ModelInvalid, Model: r.Model.ID, Message: err.Error(), Cause: err}
	}
	return runtime.CountWith(ctx, adapter, r)
}

// resetScripts tells scripts that a reply was given up for now, so that they do not fail the same way for ever.
func (m *models) resetScripts(next Invoker) Invoker {
	return func(ctx context.Context, function string, payload []byte) ([]byte, error) {
		out, err := next(ctx, function, payload)
		if errors.Is(err, runtime.ErrModelBusy) {
			m.mu.Lock()
			defer m.mu.Unlock()
			for _, a := range m.made {
				if s, ok := a.(*script.Model); ok {
					s.GiveUp(RunOf(payload))
				}
			}
		}
		return out, err
	}
}

// RunOf is the run that an event of the state machine is about; "" = it has none yet.
func RunOf(payload []byte) string {
	var e struct{ State struct{ Run string } }
	if json.Unmarshal(payload, &e) != nil {
		return ""
	}
	return e.State.Run
}

func (m *models) adapter(spec agent.ModelSpec) (runtime.Model, error) {
	key, err := json.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("model %s: %w", spec.ID, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if a, ok := m.made[string(key)]; ok {
		return a, nil
	}
	a, err := m.make(spec)
	if err == nil {
		m.made[string(key)] = a
	}
	return a, err
}
