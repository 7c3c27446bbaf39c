package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/web/api"
)

// session is a connection to the engine, wherever it is.
type session struct {
	p       *program
	who     principals
	as      policy.Principal
	resumes bool    // this command carries on what is open, should the engine be in this process
	engine  *engine // nil = another process has the store
	client  *api.Client
}

// retryInterval is how often another process that has the store and does not answer is asked again.
const retryInterval = 20 * time.Millisecond

// newSession opens the store, or talks to the process that has it.
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

// withSession runs f in a session and closes it.
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

// openOrDial opens the store, or finds a process that has it and answers; one that is just ending is waited for.
func (s *session) openOrDial(ctx context.Context) error {
	giveUp := s.p.clock.Now().Add(s.p.storeTimeout)
	for {
		e, err := s.p.openEngine(s.who)
		if err == nil {
			s.engine, s.client = e, e.newClient(s.as)
			return s.resumeOpenRuns(ctx)
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

// storeBusyError says that the process that has the store cannot be asked.
func (p *program) storeBusyError() error {
	return fmt.Errorf("the store %s is in use by another process, which does not answer on %s", p.home, local.SocketPath(p.home))
}

// resumeOpenRuns carries on what is open, in a command that does.
func (s *session) resumeOpenRuns(ctx context.Context) error {
	if !s.resumes {
		return nil
	}
	err := s.engine.ready(ctx)
	if err != nil {
		err = errors.Join(err, s.Close(ctx))
		s.engine = nil
	}
	return err
}

// reconnect takes up a session whose engine has gone with its process. It reports whether the call is worth repeating.
func (s *session) reconnect(ctx context.Context, err error) (bool, error) {
	if s.engine != nil || !errors.Is(err, api.ErrUnreachable) {
		return false, err
	}
	s.client.Close()
	return true, s.openOrDial(ctx)
}

// callAPI asks the engine, and once more whenever it has moved. Every request of the API may be repeated.
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
