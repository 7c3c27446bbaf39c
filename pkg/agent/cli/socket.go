package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"

	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/scenario"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/web/api"
)

// engineInfo describes the process that serves a store: the answer to GET /engine on its socket.
type engineInfo struct {
	PID     int    `json:"pid"`
	Command string `json:"command"`       // its name, such as dev
	URL     string `json:"url,omitempty"` // where it serves TCP, without the token; "" = nowhere
}

func (s engineInfo) String() string {
	if s.URL == "" {
		return fmt.Sprintf("process %d, countersign %s", s.PID, line(s.Command))
	}
	return fmt.Sprintf("process %d, countersign %s on %s", s.PID, line(s.Command), line(s.URL))
}

// enginePath is served on the socket only. It is not part of the API.
const enginePath = "/engine"

// socketHandler serves the API and engineInfo.
func (e *engine) socketHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+enginePath, func(w http.ResponseWriter, _ *http.Request) {
		s := engineInfo{PID: os.Getpid(), Command: e.p.command}
		if url := e.url.Load(); url != nil {
			s.URL = *url
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(s) // the client has gone
	})
	mux.HandleFunc("GET "+definitionPath, e.serveDefinition)
	mux.HandleFunc("GET "+exportPath, e.serveExport)
	mux.HandleFunc("GET "+stalledPath, e.serveStalled)
	mux.Handle("/", e.observer.Trace.HTTP(api.Handler(e.backend)))
	return mux
}

// openEngineAlone opens the store for this process. It waits for a process that is ending. Its error names a process
// that serves the store.
func (p *program) openEngineAlone(ctx context.Context, who principals) (*engine, error) {
	giveUp := p.clock.Now().Add(p.storeTimeout)
	for {
		e, err := p.openEngine(who)
		if !errors.Is(err, local.ErrInUse) {
			return e, err
		}
		var by engineInfo
		if err := p.queryEngine(ctx, enginePath, &by); err == nil && by.PID != 0 {
			return nil, fmt.Errorf("the store %s is served already, by %s", p.home, by)
		}
		if p.clock.Now().After(giveUp) {
			return nil, p.storeBusyError()
		}
		if err := p.clock.Sleep(ctx, retryInterval); err != nil {
			return nil, err
		}
	}
}

// exportedTest is a scenario, or why there is none.
type exportedTest struct {
	Data    []byte
	Problem string
}

// exportPath, like definitionPath, is only between processes of countersign.
const exportPath = "/engine/export"

func (e *engine) serveExport(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	w.Header().Set("Content-Type", "application/json")
	test := e.exportTest(r.Context(), q.Get("run"), q.Get("redact") == "true")
	_ = json.NewEncoder(w).Encode(test) // the client has gone
}

func (e *engine) exportTest(ctx context.Context, run string, redact bool) (made exportedTest) {
	from := storedRuns{e.backend.Journal, e.home.Ports.Blobs, local.Tenant}
	var err error
	if made.Data, err = scenario.Export(ctx, from, run, redact, e.p.registry.Options()); err != nil {
		made.Problem = err.Error()
	}
	return made
}

// storedRuns implements scenario.Recorded over a store.
type storedRuns struct {
	journal api.Journal
	blobs   store.Blobs
	tenant  string
}

func (s storedRuns) Entries(ctx context.Context, id string) ([]run.Entry, error) {
	return s.journal.Entries(ctx, s.tenant, id, 0, 0)
}

func (s storedRuns) Blob(ctx context.Context, digest string) ([]byte, error) {
	return s.blobs.Get(ctx, s.tenant, digest)
}
