package asl

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/countersign/countersign/internal/clock"
)

// MaxEvents is the longest history of an execution. The event that fills it is the execution's failure, which nothing
// can catch.
const MaxEvents = 25000

// execution is one run of the state machine. Its loop runs in one goroutine, which alone writes its record.
type execution struct {
	engine *Engine
	arn    string
	begun  *counter // zero when the start was written, or was not
	ended  *counter // zero while the loop does not run

	// Guarded by engine.mu.
	rec   Record // as last written, with live counters
	calls int    // handlers that run
	still error  // why it does not go on in this process

	ctx     context.Context
	cancel  context.CancelCauseFunc
	release context.CancelFunc // of the timer behind ctx

	// The rest belongs to the loop.
	at      string
	in      any
	retries []int    // used up in this visit to the state, for each entry of Retry
	attempt *attempt // under way; at the loop's beginning one of an earlier process, to go on with
}

// run drives the execution to its end, or to where the engine stops it.
func (x *execution) run() {
	e := x.engine
	out, err := x.loop()
	var output json.RawMessage
	if err == nil {
		output, err = encode(out)
	}
	var failed *Error
	if err == nil || errors.As(err, &failed) {
		err = x.finish(output, failed)
	}
	x.release()
	x.cancel(ErrClosed)
	if x.attempt != nil { // of an earlier process, and not gone on with
		x.attempt.open.add(-1)
	}
	halted := err != nil && !errors.Is(err, ErrClosed) && !errors.Is(err, ErrStalled)
	e.mu.Lock()
	if errors.Is(err, ErrStalled) {
		x.still = err
	}
	if halted {
		e.halted = append(e.halted, err)
	}
	e.mu.Unlock()
	if halted && e.Halted != nil {
		e.Halted(x.describe(), err)
	}
	x.ended.add(-1)
}

// finish closes the execution, with its output or as failed.
func (x *execution) finish(output json.RawMessage, failed *Error) error {
	e := x.engine
	err := x.save(func(r *Record) {
		r.Status, r.Output, r.StopDate, r.Wait = Succeeded, output, e.Clock.Now(), nil
		r.Events++
		if failed != nil {
			r.Status, r.Error, r.Cause = cmp.Or(failed.status, Failed), failed.Name, failed.Cause
		}
	})
	if err == nil && e.Ended != nil {
		d := x.describe()
		e.spawn(func() { e.Ended(e.ctx, d) })
	}
	return err
}

// loop goes from state to state. The error is an *Error, or what halted the execution.
func (x *execution) loop() (any, error) {
	for {
		if err := x.stopped(); err != nil {
			return nil, err
		}
		if x.attempt == nil {
			x.count(1, 1)
		}
		s := x.engine.Definition.states[x.at]
		out, next, err := x.in, s.Default, error(nil) // a Succeed has no Default and no Choices: it is the last
		switch s.Type {
		case "Task":
			out, next, err = x.task(s, x.in)
		case "Fail":
			err = &Error{Name: s.Error, Cause: s.Cause}
		}
		for _, c := range s.Choices {
			v, err := x.look(x.in, c.Variable)
			if err != nil {
				return nil, err
			}
			if v == c.StringEquals {
				next = c.Next
				break
			}
		}
		if err != nil {
			return nil, err
		}
		x.count(1, 0)
		if err := x.stopped(); err != nil || next == "" {
			return out, err
		}
		x.at, x.in = next, out
	}
}

// stopped is what ended the execution's context; nil while it may go on.
func (x *execution) stopped() error {
	if x.ctx.Err() == nil {
		return nil
	}
	cause := context.Cause(x.ctx)
	if errors.Is(cause, context.DeadlineExceeded) {
		return &Error{Name: Timeout, Cause: "the execution ran longer than a year", status: TimedOut}
	}
	return cause
}

// save writes the record with a change and then lets it be seen. It tries again for a while; what it returns then halts
// the execution where it is on record.
func (x *execution) save(change func(*Record)) error {
	e := x.engine
	r := x.describe().Record
	change(&r)
	var err error
	ended := clock.Retry(e.ctx, e.Clock, func(n int) (time.Duration, bool) {
		if err = e.ctx.Err(); err == nil {
			err = e.Store.Save(e.ctx, r)
		}
		return time.Second << n, err != nil && n < 5
	})
	switch {
	case err == nil:
		e.mu.Lock()
		defer e.mu.Unlock()
		x.rec = r
		return nil
	case ended != nil || e.ctx.Err() != nil:
		return ErrClosed
	}
	return fmt.Errorf("save execution %s: %w", x.arn, err)
}

func (x *execution) describe() Description {
	x.engine.mu.Lock()
	defer x.engine.mu.Unlock()
	return Description{ExecutionARN: x.arn, Record: x.rec}
}

// count counts history events and transitions: states entered or tried again. It stops the execution when there is
// room for the event of its end only.
func (x *execution) count(events, transitions int) {
	x.engine.mu.Lock()
	x.rec.Events += events
	x.rec.Transitions += transitions
	full := x.rec.Events >= MaxEvents
	if full {
		x.rec.Events = MaxEvents - 1
	}
	x.engine.mu.Unlock()
	if full {
		err := errorf(Runtime, "the execution reached the maximum number of history events (%d)", MaxEvents)
		err.status = Failed
		x.cancel(err)
	}
}

// Status is where an execution stands.
type Status string

// The statuses of Step Functions.
const (
	Running   Status = "RUNNING"
	Succeeded Status = "SUCCEEDED"
	Failed    Status = "FAILED"
	TimedOut  Status = "TIMED_OUT"
	Aborted   Status = "ABORTED"
)

// Valid tells whether s is one of the statuses.
func (s Status) Valid() bool { return s == Running || s.Terminal() }

// Terminal tells whether an execution with this status is closed.
func (s Status) Terminal() bool {
	return s == Succeeded || s == Failed || s == TimedOut || s == Aborted
}

// Store keeps the records of executions. It must be safe for concurrent use.
type Store interface {
	// Save writes a record in place of any other of the same name. When it returns nil the record is durable.
	Save(ctx context.Context, r Record) error
	// Load returns all records, in any order; of some that cannot be read, the others beside the error.
	Load(ctx context.Context) ([]Record, error)
}

// Record is the durable form of an execution. It marshals to JSON and back.
type Record struct {
	Name        string
	Status      Status
	Input       json.RawMessage
	Output      json.RawMessage `json:",omitempty"` // nil unless it succeeded
	Error       string          `json:",omitempty"`
	Cause       string          `json:",omitempty"`
	StartDate   time.Time
	StopDate    time.Time `json:",omitzero"` // zero while running
	Events      int       // history events so far; see MaxEvents
	Transitions int       // states entered so far, retries included: what AWS bills
	Wait        *Wait     `json:",omitempty"` // the last wait for a token; nil = none yet, or closed
}

// Wait is a Task that waits for its token, or has waited.
type Wait struct {
	State     string          // the Task's name
	Input     json.RawMessage // of State
	Token     string
	Deadline  time.Time
	Retries   []int           // used up so far, for each entry of Retry
	Submitted bool            // the handler has returned
	Output    json.RawMessage `json:",omitempty"` // what was sent to the token; nil = nothing yet
}

// Description is what can be known of an execution.
type Description struct {
	ExecutionARN string
	Record
}
