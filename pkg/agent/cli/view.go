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

// views finds what is known of requests beside what is stored with them: the definitions of their runs, each read once.
type views struct {
	s   *session
	run map[string]*agent.Definition
}

func (s *session) views() *views { return &views{s: s, run: map[string]*agent.Definition{}} }

// of is what is known of a request. A run that is not there any more has no definition.
func (v *views) of(ctx context.Context, a approval.Approval) (show.View, error) {
	def, err := v.definition(ctx, a.Run)
	return show.View{Definition: def}, err
}

func (v *views) definition(ctx context.Context, run string) (*agent.Definition, error) {
	if def, known := v.run[run]; known {
		return def, nil
	}
	var def *agent.Definition
	var err error
	if v.s.engine != nil {
		def, err = v.s.engine.definition(ctx, run)
	} else {
		def, err = v.s.p.askedDefinition(ctx, run)
	}
	if err != nil {
		return nil, fmt.Errorf("read the definition of run %s: %w", run, err)
	}
	v.run[run] = def
	return def, nil
}

// input is what is shown of a call's arguments beside a request: its secrets are masked, and all of it where it cannot be known what they
// are. The name is the model's.
func (v *views) input(ctx context.Context, run, name string, input json.RawMessage) string {
	t, known, err := v.tool(ctx, run, name)
	if err == nil && !known { // its servers' tools have been listed since
		delete(v.run, run)
		t, _, err = v.tool(ctx, run, name)
	}
	if err != nil {
		return mask.Placeholder(utf8.RuneCount(input))
	}
	return mask.JSON(input, t.Schema)
}

func (v *views) tool(ctx context.Context, run, name string) (agent.ToolSpec, bool, error) {
	def, err := v.definition(ctx, run)
	if def == nil {
		return agent.ToolSpec{}, false, err
	}
	t, known := def.ToolByModelName(name)
	return t, known, nil
}

// definition is the one that a run is pinned to; nil of a run that is not there.
func (e *engine) definition(ctx context.Context, run string) (*agent.Definition, error) {
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
	def, err := e.definition(r.Context(), r.URL.Query().Get("run"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(def) // whoever asked has gone
}

// askedDefinition asks the process that has the store.
func (p *program) askedDefinition(ctx context.Context, run string) (*agent.Definition, error) {
	var def *agent.Definition
	err := p.askEngine(ctx, definitionPath+"?run="+url.QueryEscape(run), &def)
	return def, err
}

// askEngine asks the process that has the store on its socket.
func (p *program) askEngine(ctx context.Context, path string, answer any) error {
	ctx, cancel := p.clock.WithTimeout(ctx, p.patience)
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
