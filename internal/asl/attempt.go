package asl

import (
	"context"
	"errors"
	"time"

	"github.com/countersign/countersign/internal/clock"
)

// attempt is one try of a Task. Everything that happens to it arrives in its inbox and is judged by its execution's own
// goroutine, one after the other.
type attempt struct {
	engine    *Engine
	token     string // empty = no token
	deadline  time.Time
	heartbeat time.Duration // 0 = none
	beat      time.Time     // of the last heartbeat
	signal    clock.Signal
	inbox     []message // guarded by engine.mu
	closed    bool      // guarded by engine.mu
	resumed   bool      // it began in a process before this one
	wait      *Wait     // as last written; nil without a token
}

// message is something that happens to an attempt.
type message struct {
	kind    messageKind
	output  any
	failure *Failure
	reply   *reply // nil when nobody waits for an answer
}

type messageKind int

const (
	invoked   messageKind = iota // the call returned: failure or output
	succeeded                    // SendTaskSuccess
	failed                       // SendTaskFailure
	heartbeat                    // SendTaskHeartbeat
)

// reply is the answer to a message.
type reply struct {
	signal clock.Signal
	err    error
}

func (r *reply) give(err error) {
	if r != nil {
		r.err = err
		r.signal.Notify()
	}
}

// post delivers a message; false when the attempt is over.
func (a *attempt) post(m message) bool {
	a.engine.mu.Lock()
	ok := !a.closed
	if ok {
		a.inbox = append(a.inbox, m)
	}
	a.engine.mu.Unlock()
	if ok {
		a.signal.Notify()
	}
	return ok
}

func (a *attempt) take() (message, bool) {
	a.engine.mu.Lock()
	defer a.engine.mu.Unlock()
	if len(a.inbox) == 0 {
		return message{}, false
	}
	m := a.inbox[0]
	a.inbox = a.inbox[1:]
	return m, true
}

// close ends the attempt: what is left in the inbox is refused, and its token is spent.
func (a *attempt) close() {
	a.engine.mu.Lock()
	left := a.inbox
	a.inbox, a.closed = nil, true
	a.engine.mu.Unlock()
	for _, m := range left {
		m.reply.give(a.over())
	}
}

// perform makes the call, unless it is on record that it was made, and waits for the result. The call goes on alone when the
// attempt ends before it: its answer is then dropped.
func (a *attempt) perform(x *execution, do work) (any, error) {
	if a.owesCall(x.engine.Clock.Now()) {
		if !a.engine.beginCall(a, x) {
			a.close()
			return nil, ErrClosed
		}
		x.event("TaskScheduled", nil)
		x.event("TaskStarted", nil)
		a.engine.spawn(func() { a.call(do) })
	}
	result, err := a.await(x)
	a.close()
	var f *Failure
	switch {
	case err == nil:
		x.event("TaskSucceeded", nil)
	case !errors.As(err, &f):
	case f.Name == Timeout || f.Name == HeartbeatTimeout:
		x.event("TaskTimedOut", f)
	default:
		x.event("TaskFailed", f)
	}
	return result, err
}

// owesCall tells whether the call is still to be made.
func (a *attempt) owesCall(now time.Time) bool {
	if !a.resumed {
		return true
	}
	over := !a.deadline.IsZero() && !now.Before(a.deadline)
	return !a.wait.Submitted && a.wait.Outcome == nil && !over
}

// call makes the call. One that ends its goroutine is like a Lambda whose process exits.
func (a *attempt) call(do work) {
	m := message{kind: invoked, failure: failf("Runtime.ExitError", "the handler exited without a result")}
	defer func() {
		a.post(m)
		a.engine.endCall(a)
	}()
	m.output, m.failure = do(callContext{a.engine.ctx, a.engine})
}

// await is the attempt's result, or the *Failure it ended with, or what stopped the execution.
func (a *attempt) await(x *execution) (any, error) {
	if a.wait != nil && a.wait.Outcome != nil {
		return a.wait.Outcome.result()
	}
	for {
		if err := x.stopped(); err != nil {
			return nil, err
		}
		if m, ok := a.take(); ok {
			if result, done, err := a.judge(x, m); done || err != nil {
				return result, err
			}
			continue
		}
		left, f := a.left(x.engine.Clock.Now())
		if f != nil && left <= 0 {
			return nil, f
		}
		err := a.signal.Wait(x.ctx, left)
		if err != nil && !errors.Is(err, clock.ErrTimeout) && x.ctx.Err() == nil {
			return nil, err
		}
	}
}

// left is the time until the next limit, and the failure it brings; 0 and nil without limits.
func (a *attempt) left(now time.Time) (time.Duration, *Failure) {
	var left time.Duration
	var f *Failure
	if !a.deadline.IsZero() {
		left, f = a.deadline.Sub(now), failf(Timeout, "the task ran longer than its timeout")
	}
	if a.heartbeat > 0 {
		if d := a.beat.Add(a.heartbeat).Sub(now); f == nil || d < left {
			left, f = d, failf(HeartbeatTimeout, "no heartbeat for %s", a.heartbeat)
		}
	}
	return left, f
}

// judge takes one message and tells whether the attempt is done.
func (a *attempt) judge(x *execution, m message) (result any, done bool, err error) {
	switch m.kind {
	case heartbeat:
		a.beat = x.engine.Clock.Now()
		m.reply.give(nil)
		return nil, false, nil
	case invoked:
		return a.returned(x, m)
	default:
		err := x.settle(a, m)
		m.reply.give(err)
		if err != nil {
			return nil, false, err
		}
		result, err := a.wait.Outcome.result()
		return result, true, err
	}
}

// returned takes the end of the call. With a token its output means nothing, its failure all.
func (a *attempt) returned(x *execution, m message) (any, bool, error) {
	switch {
	case m.failure != nil && m.failure.still != nil:
		return nil, true, m.failure.still
	case m.failure != nil:
		return nil, true, m.failure
	}
	if a.wait == nil {
		return m.output, true, nil
	}
	x.event("TaskSubmitted", nil)
	return nil, false, x.submitted(a)
}

// SendTaskSuccess ends the wait for a token with an output, JSON of at most MaxData bytes. It returns once the outcome is
// durable. Errors: InvalidToken (empty or longer than any token), InvalidOutput, TaskTimedOut when its task has ended,
// TaskDoesNotExist when this engine does not know the token: nobody gave it out, or its task ended before Resume;
// ErrClosed and ctx's leave the outcome unknown.
func (e *Engine) SendTaskSuccess(ctx context.Context, token string, output []byte) error {
	v, err := decodeValue(output)
	if err != nil || len(output) > MaxData {
		return refuse(InvalidOutput, "the output must be JSON of at most %d bytes", MaxData)
	}
	return e.send(ctx, token, message{kind: succeeded, output: v})
}

// SendTaskFailure ends the wait for a token with an error, which Retry and Catch see. Errors as SendTaskSuccess.
func (e *Engine) SendTaskFailure(ctx context.Context, token, name, cause string) error {
	return e.send(ctx, token, message{kind: failed, failure: &Failure{Name: name, Cause: cause}})
}

// SendTaskHeartbeat starts the time of HeartbeatSeconds anew; heartbeats are not durable, so Resume does too. Errors as
// SendTaskSuccess.
func (e *Engine) SendTaskHeartbeat(ctx context.Context, token string) error {
	return e.send(ctx, token, message{kind: heartbeat})
}

// Waits reports whether a task waits for a token: it was given out, and its outcome has not come.
func (e *Engine) Waits(token string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	a := e.tokens[token]
	return a != nil && !a.closed && len(a.inbox) == 0
}

// maxToken is the longest task token, in characters.
const maxToken = 2048

func (e *Engine) send(ctx context.Context, token string, m message) error {
	if token == "" || len(token) > maxToken {
		return refuse(InvalidToken, "a task token has 1 to %d characters", maxToken)
	}
	e.mu.Lock()
	a := e.tokens[token]
	e.mu.Unlock()
	if a == nil {
		return refuse(TaskDoesNotExist, "there is no task with this token")
	}
	m.reply = &reply{signal: e.Clock.NewSignal()}
	if !a.post(m) {
		return a.over()
	}
	if err := m.reply.signal.Wait(ctx, 0); err != nil {
		return err
	}
	return m.reply.err
}

// over is the refusal of a message to an attempt that has ended.
func (a *attempt) over() error {
	if a.engine.ctx.Err() != nil {
		return ErrClosed
	}
	return refuse(TaskTimedOut, "the task has ended")
}
