package awsfake

import (
	"context"
	"sync"
	"time"
)

// environment is one execution environment: the place of one process at a time. A process that has ended is started
// again with the next event. handle is called for one event at a time.
type environment struct {
	cfg         LambdaConfig
	initialised func(time.Duration)
	busy        bool // guarded by the function

	mu      sync.Mutex
	process *process
}

type event struct {
	id       string
	payload  []byte
	deadline time.Time
	answer   chan lambdaAnswer
}

type lambdaAnswer struct {
	payload []byte
	err     error
}

// handle gives the process one event and waits for its answer, its end or its timeout.
func (e *environment) handle(id string, payload []byte) lambdaAnswer {
	p, err := e.alive()
	if err != nil {
		return lambdaAnswer{err: err}
	}
	// The invocation has the function's timeout, however long its caller waits.
	ctx, cancel := e.cfg.Clock.WithTimeout(context.Background(), e.cfg.Timeout)
	defer cancel()
	ev := event{id: id, payload: payload, deadline: e.cfg.Clock.Now().Add(e.cfg.Timeout), answer: make(chan lambdaAnswer, 1)}
	select {
	case p.events <- ev:
		select {
		case a := <-ev.answer:
			return a
		case <-p.died:
			return lambdaAnswer{err: &LambdaError{Type: "Runtime.ExitError", Message: e.cfg.Name + " ended"}}
		case <-ctx.Done():
		}
	case <-p.died:
		return lambdaAnswer{err: &LambdaError{Type: "Runtime.ExitError", Message: e.cfg.Name + " ended at cold start"}}
	case <-ctx.Done():
	}
	if err := e.kill(); err != nil {
		return lambdaAnswer{err: err}
	}
	return lambdaAnswer{err: &LambdaError{Type: "Sandbox.Timedout", Message: e.cfg.Name + " timed out"}}
}

// alive starts the process if there is none.
func (e *environment) alive() (*process, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.process != nil {
		select {
		case <-e.process.died:
		default:
			return e.process, nil
		}
	}
	p, err := startProcess(e.cfg, e.initialised)
	if err != nil {
		return nil, err
	}
	e.process = p
	return p, nil
}

func (e *environment) kill() error {
	e.mu.Lock()
	p := e.process
	e.mu.Unlock()
	if p == nil {
		return nil
	}
	return p.kill()
}
