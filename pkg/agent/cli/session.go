package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"
	"unicode/utf8"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/people"
	"github.com/countersign/countersign/internal/people/mask"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/web"
)

// session is a connection to the engine, in this process or another.
type session struct {
	p       *program
	who     principals
	as      policy.Principal
	skipped []error // why agents are left out, until it is printed
	carries string  // the run whose family goes on if the engine is in this process, or everyRun; "" = none
	engine  *engine // nil = another process has the store
	client  *web.Client
}

const everyRun = "*"

const retryInterval = 20 * time.Millisecond // for a process that has the store and does not answer

// withSession opens the store or connects to the process that has it, runs f, and closes the session.
func (p *program) withSession(ctx context.Context, f func(s *session) error) error {
	who, as, err := p.resolvePrincipals()
	if err != nil {
		return err
	}
	s := &session{p: p, who: who, as: as}
	p.registry, s.skipped = p.loadLocalAgents()
	if err := s.openOrDial(ctx); err != nil {
		return err
	}
	err = f(s)
	if closed := s.Close(ctx); closed != nil {
		p.logLine("countersign: %s", lines(closed.Error()))
		if err == nil {
			err = exitCode(exitFailed)
		}
	}
	return err
}

// openOrDial opens the store, or connects to the process that has it.
func (s *session) openOrDial(ctx context.Context) error {
	e, err := s.p.awaitEngine(ctx, s.who, func() (bool, error) {
		s.client = web.NewSocketClient(local.SocketPath(s.p.home), s.as.String())
		_, err := s.client.Runs(ctx, web.RunQuery{Limit: 1})
		if errors.Is(err, web.ErrUnreachable) {
			s.client.Close()
			return false, nil
		}
		return true, err
	})
	if err != nil || e == nil {
		return err
	}
	s.engine, s.client = e, e.newClient(s.as)
	if err = s.carryOn(ctx, s.carries); err != nil {
		err = errors.Join(err, s.Close(ctx))
		s.engine = nil
	}
	return err
}

// carryOn carries on the family of a run, or every run. If the process that has the store ends before this one does,
// this one opens the store and does so.
func (s *session) carryOn(ctx context.Context, run string) error {
	if s.carries = run; run == "" {
		return nil
	}
	s.p.logSkippedAgents(s.skipped)
	switch s.skipped = nil; {
	case s.engine == nil:
		return nil
	case run == everyRun:
		return s.engine.ready(ctx)
	}
	return s.engine.home.Resume(ctx, local.Tenant, run)
}

// awaitEngine opens the store. While another process has it, it waits for that process to end, unless dial reports
// that the process answers: then there is no engine here, and the error is dial's.
func (p *program) awaitEngine(ctx context.Context, who principals, dial func() (bool, error)) (*engine, error) {
	giveUp := p.clock.Now().Add(p.storeTimeout)
	for {
		e, err := p.openEngine(who)
		if !errors.Is(err, local.ErrInUse) {
			return e, err
		}
		if answers, err := dial(); answers {
			return nil, err
		}
		if p.clock.Now().After(giveUp) {
			return nil, fmt.Errorf("the store %s is in use by another process, which does not answer on %s", p.home,
				local.SocketPath(p.home))
		}
		if err := p.clock.Sleep(ctx, retryInterval); err != nil {
			return nil, err
		}
	}
}

// reconnect finds a new engine after the old one's process ended. It reports whether the call should be repeated.
func (s *session) reconnect(ctx context.Context, err error) (bool, error) {
	if s.engine != nil || !errors.Is(err, web.ErrUnreachable) {
		return false, err
	}
	s.client.Close()
	return true, s.openOrDial(ctx)
}

// callAPI calls the engine, again after each reconnect. Every request of the API may be repeated.
func callAPI[T any](ctx context.Context, s *session, ask func(*web.Client) (T, error)) (T, error) {
	for {
		v, err := ask(s.client)
		if err == nil {
			return v, nil
		}
		repeat, err := s.reconnect(ctx, err)
		if err != nil || !repeat {
			return v, err
		}
	}
}

func (s *session) loadRun(ctx context.Context, id string) (web.Run, error) {
	return callAPI(ctx, s, func(c *web.Client) (web.Run, error) { return c.Run(ctx, id) })
}

// loadHead returns a run without its messages and calls.
func (s *session) loadHead(ctx context.Context, id string) (web.Run, error) {
	return callAPI(ctx, s, func(c *web.Client) (web.Run, error) { return c.RunWithoutMessages(ctx, id) })
}

func (s *session) loadApproval(ctx context.Context, id string) (approval.Approval, error) {
	return callAPI(ctx, s, func(c *web.Client) (approval.Approval, error) { return c.Approval(ctx, id) })
}

// Close ends the session, and the engine if it is in this process.
func (s *session) Close(ctx context.Context) error {
	s.client.Close()
	if s.engine == nil {
		return nil
	}
	return s.engine.drainAndClose(ctx)
}

const pageSize = 200 // items read at once

// listAll reads all pages of a list. A nil session has no items.
func listAll[T any](
	ctx context.Context, s *session, read func(c *web.Client, cursor string) (web.Page[T], error),
) ([]T, error) {
	all, cursor := []T{}, ""
	for s != nil {
		page, err := callAPI(ctx, s, func(c *web.Client) (web.Page[T], error) { return read(c, cursor) })
		if err != nil {
			return nil, err
		}
		all = append(all, page.Items...)
		if cursor = page.Cursor; cursor == "" {
			break
		}
	}
	return all, nil
}

func (s *session) listRuns(ctx context.Context, q web.RunQuery) ([]web.RunHead, error) {
	return listAll(ctx, s, func(c *web.Client, cursor string) (web.Page[web.RunHead], error) {
		q.Cursor, q.Limit = cursor, pageSize
		return c.Runs(ctx, q)
	})
}

func (s *session) listAllApprovals(ctx context.Context) (all []approval.Approval, err error) {
	for _, status := range approval.Statuses() {
		made, err := s.listApprovals(ctx, approval.Query{Status: status})
		if err != nil {
			return nil, err
		}
		all = append(all, made...)
	}
	return all, nil
}

func (s *session) listApprovals(ctx context.Context, q approval.Query) ([]approval.Approval, error) {
	return listAll(ctx, s, func(c *web.Client, cursor string) (web.Page[approval.Approval], error) {
		q.Cursor, q.Limit = cursor, pageSize
		return c.FindApprovals(ctx, q)
	})
}

// definitionCache holds the definitions of runs, each read once.
type definitionCache struct {
	session *session
	byRun   map[string]*agent.Definition
}

func (s *session) newDefinitionCache() *definitionCache {
	return &definitionCache{s, map[string]*agent.Definition{}}
}

// loadView returns the view of a request. A missing run has no definition.
func (v *definitionCache) loadView(ctx context.Context, a approval.Approval) (people.DocumentView, error) {
	def, err := v.load(ctx, a.Run)
	return people.DocumentView{Definition: def, Zone: v.session.p.zone}, err
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
// is the tool's name for the model, or its original one.
func (v *definitionCache) maskInput(ctx context.Context, run, name string, input json.RawMessage) string {
	find := func() (t agent.ToolSpec, known bool, err error) {
		def, err := v.load(ctx, run)
		if def != nil {
			if t, known = def.ToolByModelName(name); !known {
				t, known = def.Tool(name)
			}
		}
		return t, known, err
	}
	t, known, err := find()
	if err == nil && !known { // the tools of its MCP servers may have been listed since
		delete(v.byRun, run)
		t, _, err = find()
	}
	if err != nil {
		return mask.Placeholder(utf8.RuneCount(input))
	}
	return mask.JSON(input, t.Schema)
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
