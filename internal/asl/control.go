package asl

import (
	"context"
	"fmt"
	"time"
)

// Stop ends a running execution as ABORTED and returns when that is durable. A handler that runs goes on; a closed
// execution stays as it is. Errors: InvalidArn, ExecutionDoesNotExist, ErrClosed, ctx's, the Store's.
func (e *Engine) Stop(ctx context.Context, arn, name, cause string) error {
	x, err := e.find(arn)
	if err != nil {
		return err
	}
	e.mu.Lock()
	stop, ended, active := x.cancel, x.ended, x.active
	e.mu.Unlock()
	if active {
		stop(&end{status: Aborted, error: name, cause: cause})
		if err := ended.wait(ctx); err != nil {
			return err
		}
	}
	if x.record().Status.Terminal() {
		return nil
	}
	e.mu.Lock()
	draining := !e.drained.IsZero()
	e.mu.Unlock()
	if draining || e.ctx.Err() != nil {
		return ErrClosed
	}
	return fmt.Errorf("stop execution %s: it could not be written", arn)
}

// Redrive sets an execution that failed, timed out or was stopped going again, at the state it ended in and with that
// state's input, and returns when that is durable. Errors: InvalidArn, ExecutionDoesNotExist, ExecutionNotRedrivable,
// ExecutionLimitExceeded, the Store's.
func (e *Engine) Redrive(ctx context.Context, arn string) error {
	old, err := e.find(arn)
	if err != nil {
		return err
	}
	if err := e.hold(old); err != nil {
		return err
	}
	x := e.newExecution(old.record().redriven(e.Clock.Now()))
	x.begun.release()
	x.count(HistoryEvent{Type: "ExecutionRedriven"}, MaxEvents)
	err = e.Store.Save(ctx, x.record())
	if err == nil {
		err = e.launch(x)
	}
	if err != nil {
		e.letGo(old)
		return fmt.Errorf("redrive execution %s: %w", arn, err)
	}
	return nil
}

// hold keeps a closed execution from being redriven twice, and reserves the room for it.
func (e *Engine) hold(x *execution) error {
	if e.ctx.Err() != nil {
		return ErrClosed
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if x.active || x.replaced || !x.rec.Status.redrivable() {
		return refuse(ExecutionNotRedrivable, "execution %s cannot be redriven", x.arn)
	}
	if e.running >= e.MaxRunning {
		return refuse(ExecutionLimitExceeded, "%d executions are open", e.running)
	}
	x.replaced = true
	e.running++
	return nil
}

// letGo undoes hold.
func (e *Engine) letGo(x *execution) {
	e.mu.Lock()
	x.replaced = false
	e.running--
	e.mu.Unlock()
}

// redriven is the record of a closed execution that runs again.
func (r Record) redriven(now time.Time) Record {
	r.Status, r.Error, r.Cause, r.StopDate = Running, "", "", time.Time{}
	r.RedriveCount++
	r.RedriveDate = now
	return r
}
