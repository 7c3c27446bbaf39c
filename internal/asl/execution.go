package asl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// MaxEvents is the longest history of an execution. The event that fills it is the execution's failure, which nothing
// can catch.
const MaxEvents = 25000

// execution is one run of the state machine. Its loop runs in one goroutine, which alone writes its record.
type execution struct {
	engine *Engine
	arn    string
	begun  *counter // zero when the start was written, or was not
	ended  *counter // zero when the loop has ended

	// Guarded by engine.mu.
	rec    Record // as last written, with live counters
	saved  bool   // the start is durable
	active bool   // the loop runs, or is about to
	calls  int    // handlers that run
	still  error  // why it does not go on in this process

	ctx     context.Context
	cancel  context.CancelCauseFunc
	release context.CancelFunc // of the timer behind ctx

	// The rest belongs to the loop.
	at      string
	in      any
	retries []int    // used up in this visit to the state, for each entry of Retry
	token   string   // of the attempt
	resumed *attempt // to go on with in the first state
}

// end is how an execution closes. As an error it is what stops a loop from outside.
type end struct {
	status Status
	output json.RawMessage
	error  string
	cause  string
}

func (e *end) Error() string { return fmt.Sprintf("execution %s: %s: %s", e.status, e.error, e.cause) }

// run drives the execution to its end, or to where the engine stops it.
func (x *execution) run() {
	e := x.engine
	err := x.conclude(x.loop())
	x.release()
	x.cancel(ErrClosed)
	e.mu.Lock()
	x.active = false
	switch {
	case errors.Is(err, ErrStandStill):
		x.still = err
	case err != nil && !errors.Is(err, ErrClosed):
		e.halted = append(e.halted, err)
	}
	e.mu.Unlock()
	x.ended.add(-1)
}

// loop goes from state to state. The error is a *Failure, an *end, or what halted the execution.
func (x *execution) loop() (any, error) {
	for {
		if err := x.stopped(); err != nil {
			return nil, err
		}
		if x.resumed == nil {
			x.transition()
			x.event()
		}
		out, next, err := x.engine.Definition.states[x.at].enter(x, x.in)
		if err != nil {
			return nil, err
		}
		x.event()
		if err := x.stopped(); err != nil || next == "" {
			return out, err
		}
		x.at, x.in = next, out
	}
}

// stopped is what ended the execution's context: an *end or ErrClosed; nil while it may go on.
func (x *execution) stopped() error {
	if x.ctx.Err() == nil {
		return nil
	}
	cause := context.Cause(x.ctx)
	if errors.Is(cause, context.DeadlineExceeded) {
		return &end{status: TimedOut, error: Timeout, cause: "the execution ran longer than a year"}
	}
	return cause
}

// conclude writes the end that the loop's result means.
func (x *execution) conclude(output any, err error) error {
	e := &end{status: Succeeded}
	if err == nil {
		e.output, err = encode(output)
	}
	var f *Failure
	switch {
	case err == nil:
	case errors.As(err, &f):
		e = &end{status: Failed, error: f.Name, cause: f.Cause}
	case !errors.As(err, &e):
		return err
	}
	saved := x.save(func(r *Record) {
		r.Status, r.Output, r.Error, r.Cause = e.status, e.output, e.error, e.cause
		r.StopDate, r.Wait = x.engine.Clock.Now(), nil
		r.Events++
	})
	if saved == nil && x.engine.Ended != nil {
		d, _ := x.describe()
		x.engine.spawn(func() { x.engine.Ended(x.engine.ctx, d) })
	}
	return saved
}

const (
	saveAttempts = 5
	saveDelay    = time.Second
)

// save writes the record with a change and then lets it be seen. It tries again for a while; what it returns then halts
// the execution where it is on record.
func (x *execution) save(change func(*Record)) error {
	e := x.engine
	r := x.record()
	change(&r)
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

// saveWait writes how the wait for the attempt's token stands.
func (x *execution) saveWait(a *attempt, w Wait) error {
	err := x.save(func(r *Record) { r.Wait = &w })
	if err == nil {
		a.wait = &w
	}
	return err
}

func (x *execution) record() Record {
	x.engine.mu.Lock()
	defer x.engine.mu.Unlock()
	return x.rec
}

// describe tells also whether the execution is on record.
func (x *execution) describe() (d Description, saved bool) {
	x.engine.mu.Lock()
	defer x.engine.mu.Unlock()
	return Description{ExecutionARN: x.arn, Record: x.rec}, x.saved
}

// event counts a history event, and stops the execution when there is room for its end only.
func (x *execution) event() {
	x.engine.mu.Lock()
	full := x.rec.Events >= MaxEvents-1
	if !full {
		x.rec.Events++
	}
	x.engine.mu.Unlock()
	if full {
		cause := fmt.Sprintf("the execution reached the maximum number of history events (%d)", MaxEvents)
		x.cancel(&end{status: Failed, error: Runtime, cause: cause})
	}
}

// transition counts a state entered or tried again.
func (x *execution) transition() {
	x.engine.mu.Lock()
	x.rec.Transitions++
	x.engine.mu.Unlock()
}

func (x *execution) retryCount() int {
	n := 0
	for _, used := range x.retries {
		n += used
	}
	return n
}

func (s *choiceState) enter(x *execution, in any) (any, string, error) {
	for _, c := range s.Choices {
		v, err := x.look(in, c.Variable)
		if err != nil {
			return nil, "", err
		}
		if v == c.StringEquals {
			return in, c.Next, nil
		}
	}
	return in, s.Default, nil
}

func (*succeedState) enter(_ *execution, in any) (any, string, error) { return in, "", nil }

func (s *failState) enter(*execution, any) (any, string, error) {
	return nil, "", &Failure{Name: s.Error, Cause: s.Cause}
}
