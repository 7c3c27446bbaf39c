package asl

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/countersign/countersign/internal/clock"
)

// enter tries until the call succeeds, no entry of Retry covers its failure, or the execution is stopped.
func (s *taskState) enter(x *execution, in any) (any, string, error) {
	a := x.resumed
	x.resumed = nil
	x.retries = make([]int, len(s.Retry))
	if a != nil {
		copy(x.retries, a.wait.Retries)
	}
	for {
		out, err := s.try(x, in, a)
		var f *Failure
		if !errors.As(err, &f) {
			return out, s.Next, err
		}
		i := slices.IndexFunc(s.Retry, func(r retrier) bool { return f.matches(r.ErrorEquals) })
		if i < 0 || x.retries[i] >= s.Retry[i].MaxAttempts {
			return s.caught(in, f)
		}
		delay := s.Retry[i].delay(x.retries[i])
		if s.Retry[i].JitterStrategy != "" {
			delay = x.engine.Jitter(delay)
		}
		x.retries[i]++
		if x.engine.Retrying != nil {
			d, _ := x.describe()
			x.engine.Retrying(d, f, delay)
		}
		err = x.engine.Clock.Sleep(x.ctx, delay)
		if stop := x.stopped(); stop != nil || err != nil {
			return nil, "", errors.Join(stop, err)
		}
		x.transition()
		a = nil
	}
}

// caught goes on where the first Catch that matches says.
func (s *taskState) caught(in any, f *Failure) (any, string, error) {
	for _, c := range s.Catch {
		if f.matches(c.ErrorEquals) {
			out, err := place(c.ResultPath, in, map[string]any{"Error": f.Name, "Cause": f.Cause})
			if err == nil {
				_, err = encode(out)
			}
			return out, c.Next, err
		}
	}
	return nil, "", f
}

// try is one attempt, from input to output. A resumed attempt is given; otherwise it is nil and try makes a new one.
func (s *taskState) try(x *execution, in any, a *attempt) (any, error) {
	seconds, err := s.timeout(x, in)
	if err != nil {
		return nil, err
	}
	if a == nil {
		token := ""
		if s.waits() {
			token = x.engine.IDs()
		}
		a = x.newAttempt(token, x.engine.Clock.Now().Add(seconds), nil)
	}
	a.heartbeat, a.beat = time.Duration(s.HeartbeatSeconds)*time.Second, x.engine.Clock.Now()
	x.token = a.token
	do, err := s.prepare(x, in)
	if err != nil {
		return nil, err
	}
	if a.token != "" && a.wait == nil {
		if err := x.park(a, in); err != nil {
			return nil, err
		}
	}
	result, err := a.perform(x, do)
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

func (s *taskState) timeout(x *execution, in any) (time.Duration, error) {
	if s.TimeoutSecondsPath == "" {
		return time.Duration(s.TimeoutSeconds) * time.Second, nil
	}
	v, err := x.look(in, s.TimeoutSecondsPath)
	if err != nil {
		return 0, err
	}
	number, _ := v.(json.Number)
	n, err := strconv.Atoi(string(number))
	if err != nil || n <= s.HeartbeatSeconds || n > maxSeconds {
		return 0, failf(Runtime, "TimeoutSecondsPath: %s must lead to a whole number from %d to %d",
			s.TimeoutSecondsPath, s.HeartbeatSeconds+1, maxSeconds)
	}
	return time.Duration(n) * time.Second, nil
}

// work is a call that is ready to be made.
type work func(ctx context.Context) (any, error)

// prepare fills in the parameters.
func (s *taskState) prepare(x *execution, in any) (work, error) {
	filled, err := x.fill(s.Parameters, in)
	if err != nil {
		return nil, err
	}
	params := filled.(map[string]any)
	text := func(key string) string {
		v, ok := params[key].(string)
		if !ok {
			err = failf(Runtime, "parameter %s must be a string", key)
		}
		return v
	}
	if s.Resource == startExecution {
		machine, name := text("StateMachineArn"), text("Name")
		input, encErr := encode(params["Input"])
		return func(ctx context.Context) (any, error) { return x.engine.startNested(ctx, machine, name, input) },
			errors.Join(err, encErr)
	}
	function := text("FunctionName")
	payload, encErr := encode(params["Payload"])
	return func(ctx context.Context) (any, error) { return x.engine.invoke(ctx, function, payload) },
		errors.Join(err, encErr)
}

// invoke is lambda:invoke. A handler's error gets its name, and its cause in JSON.
func (e *Engine) invoke(ctx context.Context, function string, payload []byte) (any, error) {
	out, err := e.Invoke(ctx, function, payload)
	switch {
	case errors.Is(err, ErrStandStill):
		return nil, err
	case err != nil:
		name := "Lambda.Unknown"
		var typed interface{ ErrorType() string }
		if errors.As(err, &typed) && typed.ErrorType() != "" {
			name = typed.ErrorType()
		}
		cause, _ := json.Marshal(map[string]string{"errorMessage": err.Error(), "errorType": name}) // always marshals
		return nil, &Failure{Name: name, Cause: string(cause), err: err}
	case len(out) > MaxData:
		return nil, failf(DataLimitExceeded, "the handler's result is %d bytes, more than %d", len(out), MaxData)
	case len(out) == 0:
		out = []byte("null")
	}
	payloadOut, err := decode(out)
	if err != nil {
		return nil, failf("Lambda.Unknown", "the handler's result: %v", err)
	}
	return map[string]any{"ExecutedVersion": "$LATEST", "Payload": payloadOut, "StatusCode": json.Number("200")}, nil
}

// startNested is states:startExecution: fire and forget, on this engine's own state machine.
func (e *Engine) startNested(ctx context.Context, machine, name string, input []byte) (any, error) {
	d, err := Description{}, error(refuse(StateMachineDoesNotExist, "state machine %s does not exist", machine))
	if machine == e.ARN {
		d, err = e.Start(ctx, name, input)
	}
	var refused *Error
	switch {
	case errors.As(err, &refused):
		return nil, failf("StepFunctions."+refused.Name+"Exception", "%s", refused.Message)
	case err != nil:
		return nil, failf("StepFunctions.SdkClientException", "%v", err)
	}
	return map[string]any{"ExecutionArn": d.ExecutionARN, "StartDate": d.StartDate.Format(time.RFC3339Nano)}, nil
}

// attempt is one try of a Task. Everything that happens to it arrives in its inbox and is judged by its execution's own
// goroutine, one after the other.
type attempt struct {
	engine    *Engine
	token     string // empty = no token
	deadline  time.Time
	resumed   bool          // it began in an earlier process
	wait      *Wait         // as last written; nil without a token
	heartbeat time.Duration // 0 = none
	beat      time.Time     // of the last heartbeat
	signal    clock.Signal
	inbox     []*message // guarded by engine.mu
	closed    bool       // guarded by engine.mu
}

// message is something that happens to an attempt.
type message struct {
	kind   messageKind
	output any          // of invoked
	err    error        // of invoked
	sent   []byte       // of succeeded
	taken  clock.Signal // nil when nobody waits for the answer
	answer error
}

func (m *message) reply(answer error) {
	if m.taken != nil {
		m.answer = answer
		m.taken.Notify()
	}
}

type messageKind int

const (
	invoked   messageKind = iota // the call returned: output or err
	succeeded                    // SendTaskSuccess
	heartbeat                    // SendTaskHeartbeat
)

func (x *execution) newAttempt(token string, deadline time.Time, w *Wait) *attempt {
	return &attempt{
		engine: x.engine, token: token, deadline: deadline, resumed: w != nil, wait: w, signal: x.engine.Clock.NewSignal(),
	}
}

// park writes that the execution waits for the attempt's token, before anyone can know the token.
func (x *execution) park(a *attempt, in any) error {
	input, err := encode(in)
	if err != nil {
		return err
	}
	err = x.saveWait(a, Wait{
		State: x.at, Input: input, Token: a.token, Deadline: a.deadline, Retries: slices.Clone(x.retries),
	})
	if err == nil {
		x.engine.register(a)
	}
	return err
}

func (e *Engine) register(a *attempt) {
	e.mu.Lock()
	e.tokens[a.token] = a
	e.mu.Unlock()
}

// perform makes the call, unless the record shows that it was made, and waits for the result. The call goes on alone
// when the attempt ends before it; its answer is then dropped.
func (a *attempt) perform(x *execution, do work) (any, error) {
	defer a.close()
	due := x.engine.Clock.Now().Before(a.deadline)
	if !a.resumed || !a.wait.Submitted && a.wait.Output == nil && due {
		if !x.beginCall() {
			return nil, ErrClosed
		}
		x.event() // scheduled
		x.event() // started
		a.engine.spawn(func() { a.call(x, do) })
	}
	result, err := a.await(x)
	var f *Failure
	if err == nil || errors.As(err, &f) {
		x.event()
	}
	return result, err
}

// beginCall notes that a handler runs; false where none may begin any more.
func (x *execution) beginCall() bool {
	e := x.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.drained.IsZero() {
		return false
	}
	x.calls++
	e.calls.add(1)
	return true
}

// call makes the call. One that ends its goroutine is like a Lambda whose process exits.
func (a *attempt) call(x *execution, do work) {
	m := &message{kind: invoked, err: failf("Runtime.ExitError", "the handler exited without a result")}
	defer func() {
		a.post(m)
		a.engine.mu.Lock()
		x.calls--
		a.engine.mu.Unlock()
		a.engine.calls.add(-1)
	}()
	m.output, m.err = do(callContext{a.engine.ctx, a.engine})
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

// await is the attempt's result, or the *Failure it ended with, or what stopped the execution.
func (a *attempt) await(x *execution) (any, error) {
	if a.wait != nil && a.wait.Output != nil {
		return decode(a.wait.Output)
	}
	for {
		if err := x.stopped(); err != nil {
			return nil, err
		}
		if m := a.take(); m != nil {
			if result, done, err := a.judge(x, m); done || err != nil {
				return result, err
			}
			continue
		}
		now := x.engine.Clock.Now()
		left, f := a.deadline.Sub(now), failf(Timeout, "the task ran longer than its timeout")
		if d := a.beat.Add(a.heartbeat).Sub(now); a.heartbeat > 0 && d < left {
			left, f = d, failf(HeartbeatTimeout, "no heartbeat for %s", a.heartbeat)
		}
		if left <= 0 {
			return nil, f
		}
		err := a.signal.Wait(x.ctx, left)
		if err != nil && !errors.Is(err, clock.ErrTimeout) && x.ctx.Err() == nil {
			return nil, err
		}
	}
}

// judge takes one message and tells whether the attempt is done.
func (a *attempt) judge(x *execution, m *message) (result any, done bool, err error) {
	switch {
	case m.kind == heartbeat:
		a.beat = x.engine.Clock.Now()
		m.reply(nil)
		return nil, false, nil
	case m.kind == succeeded:
		w := *a.wait
		w.Output = m.sent
		err := x.saveWait(a, w)
		m.reply(err)
		if err != nil {
			return nil, false, err
		}
		result, err := decode(m.sent)
		return result, true, err
	case m.err != nil || a.wait == nil:
		return m.output, true, m.err
	}
	// With a token the call's output means nothing.
	x.event()
	w := *a.wait
	w.Submitted = true
	return nil, false, x.saveWait(a, w)
}

// post delivers a message; false when the attempt is over.
func (a *attempt) post(m *message) bool {
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

// take returns the oldest message, nil when there is none.
func (a *attempt) take() *message {
	a.engine.mu.Lock()
	defer a.engine.mu.Unlock()
	if len(a.inbox) == 0 {
		return nil
	}
	m := a.inbox[0]
	a.inbox = a.inbox[1:]
	return m
}

// close ends the attempt: what is left in the inbox is refused, and its token is spent.
func (a *attempt) close() {
	a.engine.mu.Lock()
	left := a.inbox
	a.inbox, a.closed = nil, true
	a.engine.mu.Unlock()
	for _, m := range left {
		m.reply(a.over())
	}
}

// over is the refusal of a message to an attempt that has ended.
func (a *attempt) over() error {
	if a.engine.ctx.Err() != nil {
		return ErrClosed
	}
	return refuse(TaskTimedOut, "the task has ended")
}

// SendTaskSuccess ends the wait for a token with an output, JSON of at most MaxData bytes. It returns once the
// output is durable. Errors: InvalidOutput, TaskTimedOut when its task has ended, TaskDoesNotExist when this engine
// does not know the token: nobody gave it out, or its task ended before Resume. After ErrClosed and ctx's errors
// the result is unknown.
func (e *Engine) SendTaskSuccess(ctx context.Context, token string, output []byte) error {
	if !json.Valid(output) || len(output) > MaxData {
		return refuse(InvalidOutput, "the output must be JSON of at most %d bytes", MaxData)
	}
	return e.send(ctx, token, &message{kind: succeeded, sent: slices.Clone(output)})
}

// SendTaskHeartbeat starts the time of HeartbeatSeconds anew; heartbeats are not durable, so Resume does too. Errors as
// SendTaskSuccess.
func (e *Engine) SendTaskHeartbeat(ctx context.Context, token string) error {
	return e.send(ctx, token, &message{kind: heartbeat})
}

func (e *Engine) send(ctx context.Context, token string, m *message) error {
	e.mu.Lock()
	a := e.tokens[token]
	e.mu.Unlock()
	if a == nil {
		return refuse(TaskDoesNotExist, "there is no task with this token")
	}
	m.taken = e.Clock.NewSignal()
	if !a.post(m) {
		return a.over()
	}
	if err := m.taken.Wait(ctx, 0); err != nil {
		return err
	}
	return m.answer
}

// Waits reports whether a task waits for a token: it was given out, and its output has not come.
func (e *Engine) Waits(token string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	a := e.tokens[token]
	return a != nil && !a.closed && len(a.inbox) == 0
}
