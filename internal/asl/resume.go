package asl

import (
	"context"
	"fmt"
)

// Resume takes up what the Store has: closed executions can be described and redriven, open ones go on as the package
// comment says. One whose state is no longer in the definition, or no longer waits there, starts again. Names this engine
// knows already are left alone, so calling it twice does no harm. Errors: ErrClosed, the Store's, a record
// that cannot be read; executions before that one go on.
func (e *Engine) Resume(ctx context.Context) error {
	if e.ctx.Err() != nil {
		return ErrClosed
	}
	records, err := e.Store.Load(ctx)
	if err != nil {
		return fmt.Errorf("resume executions: %w", err)
	}
	for _, r := range records {
		if err := e.resume(r); err != nil {
			return fmt.Errorf("resume executions: %w", err)
		}
	}
	return nil
}

func (e *Engine) resume(r Record) error {
	if !r.Status.Valid() {
		return fmt.Errorf("execution %s has status %q", r.Name, r.Status)
	}
	x := e.newExecution(r)
	defer x.begun.release()
	if !e.adopt(x) || r.Status.Terminal() {
		return nil
	}
	e.reenter(x)
	if err := e.launch(x); err != nil {
		e.forget(x)
		return fmt.Errorf("execution %s: %w", x.arn, err)
	}
	return nil
}

// adopt makes an execution known, unless its name is.
func (e *Engine) adopt(x *execution) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.executions[x.rec.Name] != nil {
		return false
	}
	e.executions[x.rec.Name] = x
	if x.rec.Status == Running {
		e.running++
		return true
	}
	x.saved = true
	x.ended.release()
	return true
}

// reenter finds out where an open execution goes on. A token is known again before anyone can ask for it.
func (e *Engine) reenter(x *execution) {
	s, _ := e.Definition.states[x.rec.State].(*taskState)
	switch {
	case e.Definition.states[x.rec.State] == nil || x.rec.Wait != nil && (s == nil || !s.resource.token):
		x.rec.State, x.rec.StateInput, x.rec.Wait = e.Definition.startAt, nil, nil
	case x.rec.Wait != nil:
		a := x.newAttempt()
		a.resumed, a.wait, a.token, a.deadline = true, x.rec.Wait, x.rec.Wait.Token, x.rec.Wait.Deadline
		x.resumed, x.entered = a, x.rec.Wait.Entered
		e.register(a)
	}
}
