package asl

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// execution is one run of the state machine. Its loop runs in one goroutine, which alone writes its record.
type execution struct {
	engine *Engine
	arn    string
	rec    Record // as last written, with live counters; guarded by engine.mu
	saved  bool   // the start is durable; guarded by engine.mu
	active bool   // the loop runs, or is about to; guarded by engine.mu

	still    error  // why it does not go on in this process; guarded by engine.mu
	replaced bool   // by a redriven one, or about to be; guarded by engine.mu
	begun    *latch // opens when the start was written, or was not
	ended    *latch // opens when the loop has ended

	ctx     context.Context
	cancel  context.CancelCauseFunc
	release context.CancelFunc // of the timer behind ctx

	// The rest belongs to the loop.
	at         string
	in         any
	input      any // of the execution
	entered    time.Time
	retryCount int
	token      string
	object     any      // the context object; nil = to be made
	resumed    *attempt // to go on with in the first state
}

// end is how an execution closes. As an error it is what stops a loop from outside.
type end struct {
	status Status
	output any
	error  string
	cause  string
}

func (e *end) Error() string { return fmt.Sprintf("execution %s: %s: %s", e.status, e.error, e.cause) }

// stopped is what ended the execution's context: an *end or ErrClosed; nil while it may go on.
func (x *execution) stopped() error {
	if x.ctx.Err() == nil {
		return nil
	}
	cause := context.Cause(x.ctx)
	if errors.Is(cause, context.DeadlineExceeded) {
		return &end{status: TimedOut, error: Timeout, cause: "the execution ran longer than its timeout"}
	}
	return cause
}

// sleep lets time pass, unless the execution is stopped.
func (x *execution) sleep(d time.Duration) error {
	err := x.engine.Clock.Sleep(x.ctx, d)
	if stop := x.stopped(); stop != nil {
		return stop
	}
	return err
}

// run drives the execution to its end, or to where the engine stops it.
func (x *execution) run() {
	defer x.leave()
	err := x.conclude(x.loop())
	switch {
	case errors.Is(err, ErrStandStill):
		x.engine.mu.Lock()
		x.still = err
		x.engine.mu.Unlock()
	case err != nil && !errors.Is(err, ErrClosed):
		x.engine.halt(x, err)
	}
}

// leave lets others see that the loop is over.
func (x *execution) leave() {
	x.release()
	x.cancel(ErrClosed)
	x.engine.mu.Lock()
	x.active = false
	if x.rec.Status.Terminal() {
		x.engine.running--
	}
	x.engine.mu.Unlock()
	x.ended.release()
}

// loop goes from state to state. The error is a *Failure, an *end, or what halted it.
func (x *execution) loop() (any, error) {
	for {
		if err := x.stopped(); err != nil {
			return nil, err
		}
		out, next, err := x.visit(x.engine.Definition.states[x.at])
		if err != nil {
			return nil, err
		}
		if next == "" {
			return out, nil
		}
		x.at, x.in = next, out
	}
}

// visit enters a state, unless it was entered in the process before.
func (x *execution) visit(s state) (any, string, error) {
	x.retryCount, x.token, x.object = 0, "", nil
	if x.resumed == nil {
		x.entered = x.engine.Clock.Now()
		x.transition()
		x.event(s.kind()+"StateEntered", nil)
	}
	out, next, err := s.enter(x, x.in)
	if err == nil {
		x.event(s.kind()+"StateExited", nil)
		err = x.stopped()
	}
	return out, next, err
}

// conclude writes the end that the loop's result means.
func (x *execution) conclude(output any, err error) error {
	e := &end{status: Succeeded, output: output}
	var f *Failure
	switch {
	case err == nil:
	case errors.As(err, &f):
		e = &end{status: Failed, error: f.Name, cause: f.Cause}
	case errors.As(err, &e):
	default:
		return err
	}
	x.lastEvent(e)
	saved := x.save(func(r *Record) error { return x.close(r, e) })
	if saved == nil && x.engine.Ended != nil {
		x.engine.spawn(func() { x.engine.Ended(x.engine.ctx, x.describe()) })
	}
	return saved
}

// close makes r the record of an execution that ended.
func (x *execution) close(r *Record, e *end) error {
	r.Status, r.Error, r.Cause, r.StopDate = e.status, e.error, e.cause, x.engine.Clock.Now()
	r.State, r.StateInput, r.Wait = "", nil, nil
	var err error
	if e.status == Succeeded {
		r.Output, err = encodeValue(e.output)
		return err
	}
	r.State = x.at
	r.StateInput, err = encodeValue(x.in)
	return err
}

// park writes that the execution waits for the attempt's token, before anyone can know the token.
func (x *execution) park(in any, r *retries, a *attempt) error {
	if a.token == "" || a.resumed {
		return nil
	}
	input, err := encodeValue(in)
	if err != nil {
		return fmt.Errorf("park execution %s: %w", x.arn, err)
	}
	a.wait = &Wait{Token: a.token, Entered: x.entered, Deadline: a.deadline, Retries: append([]int{}, r.used...)}
	err = x.save(func(rec *Record) error {
		rec.State, rec.StateInput, rec.Wait = x.at, input, a.wait
		return nil
	})
	if err == nil {
		x.engine.register(a)
	}
	return err
}

// submitted writes that the handler which got the token has returned.
func (x *execution) submitted(a *attempt) error {
	w := *a.wait
	w.Submitted = true
	return x.saveWait(a, &w)
}

// settle writes what was sent to the token.
func (x *execution) settle(a *attempt, m message) error {
	w := *a.wait
	w.Outcome = &Outcome{}
	if m.kind == failed {
		w.Outcome = &Outcome{Failed: true, Error: m.failure.Name, Cause: m.failure.Cause}
		return x.saveWait(a, &w)
	}
	var err error
	if w.Outcome.Output, err = encodeValue(m.output); err != nil {
		return fmt.Errorf("settle execution %s: %w", x.arn, err)
	}
	return x.saveWait(a, &w)
}

func (x *execution) saveWait(a *attempt, w *Wait) error {
	err := x.save(func(r *Record) error {
		r.Wait = w
		return nil
	})
	if err == nil {
		a.wait = w
	}
	return err
}

const (
	saveAttempts = 5
	saveDelay    = time.Second
)

// save writes the record with a change and then lets it be seen. It tries again for a while; what it returns then halts
// the execution where it is on record.
func (x *execution) save(change func(*Record) error) error {
	e := x.engine
	r := x.record()
	if err := change(&r); err != nil {
		return fmt.Errorf("save execution %s: %w", x.arn, err)
	}
	var err error
	for i := range saveAttempts {
		if i > 0 && e.Clock.Sleep(e.ctx, saveDelay<<i) != nil || e.ctx.Err() != nil {
			return ErrClosed
		}
		if err = e.Store.Save(e.ctx, r); err == nil {
			e.mu.Lock()
			x.rec = r
			e.mu.Unlock()
			return nil
		}
	}
	if e.ctx.Err() != nil {
		return ErrClosed
	}
	return fmt.Errorf("save execution %s: %w", x.arn, err)
}

func (x *execution) record() Record {
	x.engine.mu.Lock()
	defer x.engine.mu.Unlock()
	return x.rec
}

func (x *execution) newAttempt() *attempt {
	return &attempt{engine: x.engine, signal: x.engine.Clock.NewSignal()}
}

// takeResumed is the attempt to go on with, once, and nil otherwise.
func (x *execution) takeResumed(r *retries) *attempt {
	a := x.resumed
	x.resumed = nil
	if a != nil {
		copy(r.used, a.wait.Retries)
	}
	return a
}

// scope looks paths up in data and in the context object.
func (x *execution) scope(data any) scope { return scope{data: data, context: x.contextObject} }
