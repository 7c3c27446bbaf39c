package asl

import (
	"context"
	"errors"
	"time"
)

// ErrStandStill is what Invoke returns, wrapped, for work that this process cannot do and another one may: the
// execution stays where it is on record, and goes on when an Engine of such a process resumes it. See
// Engine.StandsStill.
var ErrStandStill = errors.New("the execution stands still in this process")

// lastCall is how much time the contexts of handlers say is left once the engine drains: so little that a handler
// begins nothing more, as on Lambda.
const lastCall = 5 * time.Second

// callContext is what handlers are called with.
type callContext struct {
	context.Context
	engine *Engine
}

// Deadline is near once the engine drains. Nothing ends at it: the context does when the engine is closed.
func (c callContext) Deadline() (time.Time, bool) {
	c.engine.mu.Lock()
	defer c.engine.mu.Unlock()
	if c.engine.drained.IsZero() {
		return c.Context.Deadline()
	}
	return c.engine.drained.Add(lastCall), true
}

// Drain begins no handler any more, and waits until those that run have returned, or ctx is done, which is its error.
// Executions stay where they are on record; what was sent to their tokens is kept. Close comes after it.
func (e *Engine) Drain(ctx context.Context) error {
	e.mu.Lock()
	if e.drained.IsZero() {
		e.drained = e.Clock.Now()
	}
	if e.quiet == nil {
		e.quiet = &latch{clock: e.Clock, open: len(e.calls) == 0}
	}
	quiet := e.quiet
	e.mu.Unlock()
	return quiet.wait(ctx)
}

// UnderWay are the executions whose handlers run at the moment.
func (e *Engine) UnderWay() []Description {
	e.mu.Lock()
	var running []*execution
	for _, x := range e.calls {
		running = append(running, x)
	}
	e.mu.Unlock()
	all := make([]Description, len(running))
	for i, x := range running {
		all[i] = x.describe()
	}
	return all
}

// beginCall notes that an attempt's handler runs; false where none may begin any more.
func (e *Engine) beginCall(a *attempt, x *execution) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.drained.IsZero() {
		return false
	}
	e.calls[a] = x
	return true
}

func (e *Engine) endCall(a *attempt) {
	e.mu.Lock()
	delete(e.calls, a)
	var quiet *latch
	if len(e.calls) == 0 {
		quiet = e.quiet
	}
	e.mu.Unlock()
	if quiet != nil {
		quiet.release()
	}
}

// StandsStill says why the execution of that name does not go on in this process, though it is open; nil while it may.
func (e *Engine) StandsStill(name string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if x := e.executions[name]; x != nil {
		return x.still
	}
	return nil
}
