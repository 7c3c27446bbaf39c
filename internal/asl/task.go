package asl

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/jsonx"
)

// task tries until the call succeeds, no entry of Retry covers its failure, or the execution is stopped.
func (x *execution) task(s *state, in any) (out any, next string, err error) {
	x.retries = make([]int, len(s.Retry))
	if x.attempt != nil {
		copy(x.retries, x.attempt.wait.Retries)
	}
	for {
		out, err := x.try(s, in)
		x.attempt = nil
		var failed *Error
		if !errors.As(err, &failed) {
			return out, s.Next, err
		}
		i := slices.IndexFunc(s.Retry, func(r retrier) bool { return failed.matches(r.ErrorEquals) })
		if i < 0 || x.retries[i] >= s.Retry[i].MaxAttempts {
			for _, c := range s.Catch {
				if failed.matches(c.ErrorEquals) {
					out, err := place(c.ResultPath, in, map[string]any{"Error": failed.Name, "Cause": failed.Cause})
					if err == nil {
						_, err = encode(out)
					}
					return out, c.Next, err
				}
			}
			return nil, "", failed
		}
		delay := s.Retry[i].delay(x.retries[i])
		if s.Retry[i].JitterStrategy != "" {
			delay = x.engine.Jitter(delay)
		}
		x.retries[i]++
		if x.engine.Retrying != nil {
			x.engine.Retrying(x.describe(), failed, delay)
		}
		err = x.engine.Clock.Sleep(x.ctx, delay)
		if stop := x.stopped(); stop != nil || err != nil {
			return nil, "", errors.Join(stop, err)
		}
		x.count(0, 1)
	}
}

// try is one attempt, from input to output. It goes on with the attempt of an earlier process, or makes a new one.
func (x *execution) try(s *state, in any) (any, error) {
	a := x.attempt
	if a == nil {
		timeout := s.TimeoutSeconds
		if s.TimeoutSecondsPath != "" {
			v, err := x.look(in, s.TimeoutSecondsPath)
			if err != nil {
				return nil, err
			}
			number, _ := v.(json.Number)
			if timeout, err = strconv.Atoi(string(number)); err != nil || timeout < 1 || timeout > maxSeconds {
				return nil, errorf(Runtime, "TimeoutSecondsPath: %s must lead to a whole number from 1 to %d",
					s.TimeoutSecondsPath, maxSeconds)
			}
		}
		a = x.engine.newAttempt(x.engine.Clock.Now().Add(time.Duration(timeout) * time.Second))
		if s.Resource == invokeAndWait {
			a.token = x.engine.IDs()
		}
		x.attempt = a
	}
	defer a.open.add(-1)
	params, err := x.fill(s.Parameters, in)
	if err == nil && a.token != "" && a.wait == nil { // it is on record that it waits before anyone can know the token
		var input json.RawMessage
		if input, err = encode(in); err == nil {
			err = x.saveWait(a, Wait{
				State: x.at, Input: input, Token: a.token, Deadline: a.deadline, Retries: slices.Clone(x.retries),
			})
		}
		if err == nil {
			x.engine.mu.Lock()
			x.engine.tokens[a.token] = a
			x.engine.mu.Unlock()
		}
	}
	if err != nil {
		return nil, err
	}
	due := x.engine.Clock.Now().Before(a.deadline)
	if !a.resumed || !a.wait.Submitted && a.wait.Output == nil && due {
		if !x.call(a, s.Resource, params) {
			return nil, ErrClosed
		}
		x.count(2, 0) // scheduled, started
	}
	result, err := x.await(a)
	var failed *Error
	if err == nil || errors.As(err, &failed) {
		x.count(1, 0)
	}
	if err != nil {
		return nil, err
	}
	out, err := place(s.ResultPath, in, result)
	if err == nil && s.OutputPath != "" {
		out, err = x.look(out, s.OutputPath)
	}
	if err == nil {
		_, err = encode(out)
	}
	return out, err
}

type attempt struct {
	token    string // empty = no token
	deadline time.Time
	resumed  bool         // it began in an earlier process
	wait     *Wait        // as last written; nil without a token
	unsaved  error        // why the wait could not be written
	signal   clock.Signal // that one of the fields below has changed
	open     *counter     // zero when the attempt has ended

	// Guarded by engine.mu.
	returned bool // the call did, with output or err
	output   any
	err      error
	sent     json.RawMessage // to the token
}

func (e *Engine) newAttempt(deadline time.Time) *attempt {
	return &attempt{deadline: deadline, signal: e.Clock.NewSignal(), open: &counter{clock: e.Clock, n: 1}}
}

func (x *execution) saveWait(a *attempt, w Wait) error {
	if a.unsaved = x.save(func(r *Record) { r.Wait = &w }); a.unsaved == nil {
		a.wait = &w
	}
	return a.unsaved
}

// call makes the attempt's call; false where none may begin any more. The call goes on alone when the attempt ends
// before it; its answer is then dropped. One that ends its goroutine is like a Lambda whose process exits.
func (x *execution) call(a *attempt, resource string, params any) bool {
	e := x.engine
	e.mu.Lock()
	drained := !e.drained.IsZero()
	if !drained {
		x.calls++
		e.calls.add(1)
	}
	e.mu.Unlock()
	if drained {
		return false
	}
	e.spawn(func() {
		var output any
		err := error(errorf("Runtime.ExitError", "the handler exited without a result"))
		defer func() {
			e.mu.Lock()
			a.returned, a.output, a.err = true, output, err
			x.calls--
			e.mu.Unlock()
			a.signal.Notify()
			e.calls.add(-1)
		}()
		output, err = e.perform(callContext{e.ctx, e}, resource, params.(map[string]any))
	})
	return true
}

// await is the attempt's result, or the *Error it ended with, or what stopped the execution. The result is what the
// call returned; for a Task with a token, what was sent to that.
func (x *execution) await(a *attempt) (any, error) {
	for {
		if a.wait != nil && a.wait.Output != nil {
			return jsonx.DecodeNumbers(a.wait.Output)
		}
		if err := x.stopped(); err != nil {
			return nil, err
		}
		x.engine.mu.Lock()
		now := *a
		x.engine.mu.Unlock()
		switch {
		case now.sent != nil:
			w := *a.wait
			w.Output = now.sent
			if err := x.saveWait(a, w); err != nil {
				return nil, err
			}
			continue
		case now.returned && (now.err != nil || a.wait == nil):
			return now.output, now.err
		case now.returned && !a.wait.Submitted: // with a token the call's output means nothing
			x.count(1, 0)
			w := *a.wait
			w.Submitted = true
			if err := x.saveWait(a, w); err != nil {
				return nil, err
			}
			continue
		}
		left := a.deadline.Sub(x.engine.Clock.Now())
		if left <= 0 {
			return nil, errorf(Timeout, "the task ran longer than its timeout")
		}
		err := a.signal.Wait(x.ctx, left)
		if err != nil && !errors.Is(err, clock.ErrTimeout) && x.ctx.Err() == nil {
			return nil, err
		}
	}
}

// perform is the call of a Task. A handler's error gets its name, and its cause in JSON.
func (e *Engine) perform(ctx context.Context, resource string, params map[string]any) (any, error) {
	if resource == startExecution {
		return e.startNested(ctx, params)
	}
	payload, err := encode(params["Payload"])
	if err != nil {
		return nil, err
	}
	function, _ := params["FunctionName"].(string) // Invoke knows no function without a name
	out, err := e.Invoke(ctx, function, payload)
	switch {
	case errors.Is(err, ErrStalled):
		return nil, err
	case err != nil:
		name := "Lambda.Unknown"
		var typed interface{ ErrorType() string }
		if errors.As(err, &typed) && typed.ErrorType() != "" {
			name = typed.ErrorType()
		}
		cause, _ := json.Marshal(map[string]string{"errorMessage": err.Error(), "errorType": name}) // always marshals
		return nil, &Error{Name: name, Cause: string(cause), err: err}
	case len(out) > MaxData:
		return nil, errorf(DataLimitExceeded, "the handler's result is %d bytes, more than %d", len(out), MaxData)
	case len(out) == 0:
		out = []byte("null")
	}
	result, err := jsonx.DecodeNumbers(out)
	if err != nil {
		return nil, errorf("Lambda.Unknown", "the handler's result: %v", err)
	}
	return map[string]any{"ExecutedVersion": "$LATEST", "Payload": result, "StatusCode": json.Number("200")}, nil
}

// startNested is states:startExecution: it starts an execution of this engine's own state machine and does not wait.
func (e *Engine) startNested(ctx context.Context, params map[string]any) (any, error) {
	input, err := encode(params["Input"])
	if err != nil {
		return nil, err
	}
	if params["StateMachineArn"] != e.ARN {
		return nil, errorf("StepFunctions.StateMachineDoesNotExistException", "the engine has no other state machine")
	}
	name, _ := params["Name"].(string) // no execution has an empty name
	d, err := e.Start(ctx, name, input)
	var refused *Error
	switch {
	case errors.As(err, &refused):
		return nil, errorf("StepFunctions."+refused.Name+"Exception", "%s", refused.Cause)
	case err != nil:
		return nil, errorf("StepFunctions.SdkClientException", "%v", err)
	}
	return map[string]any{"ExecutionArn": d.ExecutionARN, "StartDate": d.StartDate.Format(time.RFC3339Nano)}, nil
}

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
	return c.engine.drained.Add(lastCall), !c.engine.drained.IsZero()
}

// SendTaskSuccess ends the wait for a token with an output, JSON of at most MaxData bytes. It returns once the
// output is durable. Errors: InvalidOutput, TaskTimedOut when its task has ended, TaskDoesNotExist when this engine
// does not know the token: nobody gave it out, or its task ended before Resume. After ErrClosed and ctx's errors
// the result is unknown.
func (e *Engine) SendTaskSuccess(ctx context.Context, token string, output []byte) error {
	if !json.Valid(output) || len(output) > MaxData {
		return errorf(InvalidOutput, "the output must be JSON of at most %d bytes", MaxData)
	}
	e.mu.Lock()
	a := e.tokens[token]
	first := a != nil && a.sent == nil && !a.open.isZero()
	if first {
		a.sent = slices.Clone(output)
	}
	e.mu.Unlock()
	if a == nil {
		return errorf(TaskDoesNotExist, "there is no task with this token")
	}
	a.signal.Notify()
	if err := a.open.wait(ctx); err != nil {
		return err
	}
	switch {
	case first && a.wait.Output != nil:
		return nil
	case first && a.unsaved != nil:
		return a.unsaved
	case e.ctx.Err() != nil:
		return ErrClosed
	}
	return errorf(TaskTimedOut, "the task has ended")
}

// Waits reports whether a task waits for a token: it was given out, and its output has not come.
func (e *Engine) Waits(token string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	a := e.tokens[token]
	return a != nil && !a.open.isZero() && a.sent == nil
}
