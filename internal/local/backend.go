package local

import (
	"context"
	"log/slog"
	"net/http"
	"sync"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/web/api"
)

// Serving is what a Backend needs beside its machine. All fields but Log are required.
type Serving struct {
	Agents api.Agents
	Feed   *api.Feed // the machine's Sink
	Caller func(*http.Request) (api.Caller, error)
	Log    *slog.Logger // nil = internal errors are only answered
}

// Backend is the machine as the API serves it to whoever owns the laptop. The first request that acts resumes the
// machine, so that one who only looks sets nothing going.
func (m *Machine) Backend(s Serving) api.Backend {
	intake, _ := m.Ports.Blobs.(store.Intake) // a store that takes no streams serves no uploads
	b := m.Deployment.Backend()
	b.Agents, b.Feed, b.Caller, b.Log, b.Intake = s.Agents, s.Feed, s.Caller, s.Log, intake
	b.Local, b.Via, b.Tool, b.Ready = true, approval.ViaCLI, m.hasTool, m.resumeOnce(Tenant)
	b.Replay = m.Replay
	return b
}

func (m *Machine) hasTool(name string) bool {
	_, ok := m.Ports.Tools.Lookup(name)
	return ok
}

// resumeOnce resumes a tenant at the first call, and at the next ones until that succeeds.
func (m *Machine) resumeOnce(tenant string) func(context.Context) error {
	var mu sync.Mutex
	done := false
	return func(ctx context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		if done {
			return nil
		}
		if err := m.Resume(ctx, tenant); err != nil {
			return err
		}
		done = true
		return nil
	}
}
