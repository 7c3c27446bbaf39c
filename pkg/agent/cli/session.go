package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/web/api"
)

// session is a connection to the engine, in this process or another.
type session struct {
	p       *program
	who     principals
	as      policy.Principal
	resumes bool    // resume open runs if the engine is in this process
	engine  *engine // nil = another process has the store
	client  *api.Client
}

// retryInterval is how often a process that has the store and does not answer is asked again.
const retryInterval = 20 * time.Millisecond

// newSession opens the store or connects to the process that has it.
func (p *program) newSession(ctx context.Context, carry bool) (*session, error) {
	who, err := readPrincipals(p.home)
	if err != nil {
		return nil, err
	}
	as, err := who.resolvePrincipal(p.as)
	if err != nil {
		return nil, usageErrorf("--as: %v", err)
	}
	known, problems := p.loadLocalAgents()
	if p.registry = known; carry || p.command == "resume" {
		p.logSkippedAgents(problems)
	}
	s := &session{p: p, who: who, as: as, resumes: carry}
	return s, s.openOrDial(ctx)
}

// withSession runs f in a session and closes the session.
func (p *program) withSession(ctx context.Context, carry bool, f func(s *session) error) error {
	s, err := p.newSession(ctx, carry)
	if err != nil {
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

// openOrDial opens the store, or connects to the process that has it. It waits for a process that is ending.
func (s *session) openOrDial(ctx context.Context) error {
	giveUp := s.p.clock.Now().Add(s.p.storeTimeout)
	for {
		e, err := s.p.openEngine(s.who)
		if err == nil {
			s.engine, s.client = e, e.newClient(s.as)
			if !s.resumes {
				return nil
			}
			if err = e.ready(ctx); err != nil {
				err = errors.Join(err, s.Close(ctx))
				s.engine = nil
			}
			return err
		}
		if !errors.Is(err, local.ErrInUse) {
			return err
		}
		socket := local.SocketPath(s.p.home)
		s.client = api.NewSocketClient(socket, s.as.String())
		_, err = s.client.Runs(ctx, api.RunQuery{Limit: 1})
		if !errors.Is(err, api.ErrUnreachable) {
			return err
		}
		s.client.Close()
		if s.p.clock.Now().After(giveUp) {
			return s.p.storeBusyError()
		}
		if err := s.p.clock.Sleep(ctx, retryInterval); err != nil {
			return err
		}
	}
}

// storeBusyError says that the process with the store does not answer.
func (p *program) storeBusyError() error {
	return fmt.Errorf("the store %s is in use by another process, which does not answer on %s", p.home,
		local.SocketPath(p.home))
}

// reconnect finds a new engine after the old one's process ended. It reports whether the call should be repeated.
func (s *session) reconnect(ctx context.Context, err error) (bool, error) {
	if s.engine != nil || !errors.Is(err, api.ErrUnreachable) {
		return false, err
	}
	s.client.Close()
	return true, s.openOrDial(ctx)
}

// callAPI calls the engine, again after each reconnect. Every request of the API may be repeated.
func callAPI[T any](ctx context.Context, s *session, ask func(*api.Client) (T, error)) (T, error) {
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

// Close ends the session, and the engine if it is in this process.
func (s *session) Close(ctx context.Context) error {
	s.client.Close()
	if s.engine == nil {
		return nil
	}
	return s.engine.drainAndClose(ctx)
}

// pageSize is the number of items read at once.
const pageSize = 200

// listAll reads all pages of a list. A nil session has no items.
func listAll[T any](
	ctx context.Context, s *session, read func(c *api.Client, cursor string) (api.Page[T], error),
) ([]T, error) {
	all, cursor := []T{}, ""
	for s != nil {
		page, err := callAPI(ctx, s, func(c *api.Client) (api.Page[T], error) { return read(c, cursor) })
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

func (s *session) listRuns(ctx context.Context, q api.RunQuery) ([]api.RunHead, error) {
	return listAll(ctx, s, func(c *api.Client, cursor string) (api.Page[api.RunHead], error) {
		q.Cursor, q.Limit = cursor, pageSize
		return c.Runs(ctx, q)
	})
}

// listAllApprovals returns the approval requests of all statuses.
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
	return listAll(ctx, s, func(c *api.Client, cursor string) (api.Page[approval.Approval], error) {
		q.Cursor, q.Limit = cursor, pageSize
		return c.FindApprovals(ctx, q)
	})
}
