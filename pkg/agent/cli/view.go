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

// definitionCache finds what is known of requests beside what is stored with them: the definitions of their runs, each read once.
type definitionCache struct {
	session *session
	byRun   map[string]*agent.Definition
}

func (s *session) newDefinitionCache() *definitionCache {
	return &definitionCache{session: s, byRun: map[string]*agent.Definition{}}
}

// loadView is what is known of a request. A run that is not there any more has no definition.
func (v *definitionCache) loadView(ctx context.Context, a approval.Approval) (show.View, error) {
	def, err := v.load(ctx, a.Run)
	return show.View{Definition: def}, err
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
		def, err = v.session.p.fetchDefinition(ctx, run)
	}
	if err != nil {
		return nil, fmt.Errorf("read the definition of run %s: %w", run, err)
	}
	v.byRun[run] = def
	return def, nil
}

// maskInput is what is shown of a call's arguments beside a request: its secrets are masked, and all of it where it cannot be known what they
// are. The name is the model's.
func (v *definitionCache) maskInput(ctx context.Context, run, name string, input json.RawMessage) string {
	t, known, err := v.findTool(ctx, run, name)
	if err == nil && !known { // its servers' tools have been listed since
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

// loadDefinition is the one that a run is pinned to; nil of a run that is not there.
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

// definitionPath is, like enginePath, between one countersign and another: which parts of a call's arguments are secrets is said by the
// definition of its tool, and only the process that has the store can read that.
const definitionPath = "/engine/definition"

func (e *engine) serveDefinition(w http.ResponseWriter, r *http.Request) {
	def, err := e.loadDefinition(r.Context(), r.URL.Query().Get("run"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(def) // whoever asked has gone
}

// fetchDefinition asks the process that has the store.
func (p *program) fetchDefinition(ctx context.Context, run string) (*agent.Definition, error) {
	var def *agent.Definition
	err := p.queryEngine(ctx, definitionPath+"?run="+url.QueryEscape(run), &def)
	return def, err
}

// queryEngine asks the process that has the store on its socket.
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
