package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"unicode/utf8"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/people/mask"
	"github.com/countersign/countersign/internal/people/show"
	"github.com/countersign/countersign/internal/store"
)

// definitionCache holds the definitions of runs, each read once.
type definitionCache struct {
	session *session
	byRun   map[string]*agent.Definition
}

func (s *session) newDefinitionCache() *definitionCache {
	return &definitionCache{session: s, byRun: map[string]*agent.Definition{}}
}

// loadView returns the view of a request. A missing run has no definition.
func (v *definitionCache) loadView(ctx context.Context, a approval.Approval) (show.View, error) {
	def, err := v.load(ctx, a.Run)
	return show.View{Definition: def, Zone: v.session.p.zone}, err
}

func (v *definitionCache) load(ctx context.Context, run string) (*agent.Definition, error) {
	if def, known := v.byRun[run]; known {
		return def, nil
	}
	var def *agent.Definition
	var err error
	if v.session.engine != nil {
		def, err = v.session.engine.loadDefinition(ctx, run)
	} else {
		err = v.session.p.queryEngine(ctx, definitionPath+"?run="+url.QueryEscape(run), &def)
	}
	if err != nil {
		return nil, fmt.Errorf("read the definition of run %s: %w", run, err)
	}
	v.byRun[run] = def
	return def, nil
}

// maskInput returns a call's arguments with secrets masked. If the schema cannot be read, all of it is masked. name
// is the tool's name for the model.
func (v *definitionCache) maskInput(ctx context.Context, run, name string, input json.RawMessage) string {
	t, known, err := v.findTool(ctx, run, name)
	if err == nil && !known { // the tools of its MCP servers may have been listed since
		delete(v.byRun, run)
		t, _, err = v.findTool(ctx, run, name)
	}
	if err != nil {
		return mask.Placeholder(utf8.RuneCount(input))
	}
	return mask.JSON(input, t.Schema)
}

func (v *definitionCache) findTool(ctx context.Context, run, name string) (agent.ToolSpec, bool, error) {
	def, err := v.load(ctx, run)
	if def == nil {
		return agent.ToolSpec{}, false, err
	}
	t, known := def.ToolByModelName(name)
	return t, known, nil
}

// loadDefinition returns the definition that a run is pinned to; nil if there is no such run.
func (e *engine) loadDefinition(ctx context.Context, run string) (*agent.Definition, error) {
	l, err := e.backend.Journal.Load(ctx, local.Tenant, run)
	if errors.Is(err, store.ErrNoRun) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return e.backend.Definitions(ctx, local.Tenant, l.State.Definition)
}

// definitionPath, like enginePath, is only between processes of countersign. A tool's definition says which arguments
// are secret, and only the process with the store can read it.
const definitionPath = "/engine/definition"

func (e *engine) serveDefinition(w http.ResponseWriter, r *http.Request) {
	def, err := e.loadDefinition(r.Context(), r.URL.Query().Get("run"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(def) // the client has gone
}

// queryEngine sends a GET to the socket of the process that has the store.
func (p *program) queryEngine(ctx context.Context, path string, answer any) error {
	ctx, cancel := p.clock.WithTimeout(ctx, p.storeTimeout)
	defer cancel()
	t := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", local.SocketPath(p.home))
	}}
	defer t.CloseIdleConnections()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://countersign.local"+path, nil)
	if err != nil {
		return err
	}
	resp, err := t.RoundTrip(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("it answers %s", resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(answer)
}
