package asl

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/jsonx"
)

// ErrClosed is what an Engine returns that was closed.
var ErrClosed = errors.New("engine is closed")

// ErrStalled is what Invoke returns, wrapped, for work that this process cannot do and another one may. The
// execution stays as it is on record, and goes on when an Engine of such a process resumes it. See
// Engine.StallReason.
var ErrStalled = errors.New("this process cannot carry on the execution")

// Config is what an Engine runs and what it runs on.
type Config struct {
	Definition *Definition
	ARN        string // of the state machine, arn:aws:states:REGION:ACCOUNT:stateMachine:NAME
	Clock      clock.Clock
	// Invoke calls a Lambda function and returns its answer, JSON. It is called concurrently. Its context ends when the
	// engine is closed and not when the Task times out, as a Lambda goes on too. An error's name for Retry and Catch is
	// its ErrorType() string, of any error it wraps, otherwise Lambda.Unknown. If the call ends its goroutine
	// (runtime.Goexit), the name is Runtime.ExitError. An error that wraps ErrStalled leaves the execution where it is.
	Invoke func(ctx context.Context, function string, payload []byte) ([]byte, error)
	Store  Store
	IDs    func() string // a new id at every call; safe for concurrent use

	// Jitter draws from 0 to max for JitterStrategy FULL; nil always draws max.
	Jitter func(max time.Duration) time.Duration
	// Retrying is told that an execution waits before it tries its state again, and after what failure. It must not
	// block. Nil is nobody.
	Retrying func(d Description, f *Error, wait time.Duration)
	// Ended is told, concurrently, of every execution whose end is on record. Close waits for it. Nil is nobody.
	Ended func(ctx context.Context, d Description)
	// Halted is told of an execution that goes no further in this process, as it could not be written. It must not block.
	// Nil is nobody; Close tells in any case.
	Halted func(d Description, err error)
}

// Engine runs executions of one state machine. All methods are safe for concurrent use; on a clock.Virtual they are
// called by its tasks.
type Engine struct {
	Config
	prefix     string // of execution ARNs
	ctx        context.Context
	cancel     context.CancelCauseFunc
	goroutines *counter
	calls      *counter // handlers that run

	mu         sync.Mutex // never held while waiting or calling out
	executions map[string]*execution
	tokens     map[string]*attempt // every token given out, spent ones too
	halted     []error
	drained    time.Time // when Drain was called; zero = it was not
}

// New checks the configuration. The engine runs nothing before Start or Resume.
func New(c Config) (*Engine, error) {
	account, name, ok := strings.Cut(c.ARN, ":stateMachine:")
	if !ok || name == "" {
		return nil, fmt.Errorf("new engine: %q is not the ARN of a state machine", c.ARN)
	}
	if c.Definition == nil || c.Clock == nil || c.Invoke == nil || c.Store == nil || c.IDs == nil {
		return nil, errors.New("new engine: Definition, Clock, Invoke, Store and IDs are required")
	}
	if c.Jitter == nil {
		c.Jitter = func(limit time.Duration) time.Duration { return limit }
	}
	e := &Engine{
		Config: c, prefix: account + ":execution:" + name + ":",
		goroutines: &counter{clock: c.Clock}, calls: &counter{clock: c.Clock},
		executions: map[string]*execution{}, tokens: map[string]*attempt{},
	}
	e.ctx, e.cancel = context.WithCancelCause(context.Background())
	return e, nil
}

// Start starts an execution and returns when that is durable. An empty input is {}. Starting again with the same name
// and input while the execution runs changes nothing and gives the same result. Errors: InvalidName,
// InvalidExecutionInput, ExecutionAlreadyExists (the name is taken by another input or is closed), ErrClosed, and the
// Store's, after which the execution may or may not be on record.
func (e *Engine) Start(ctx context.Context, name string, input []byte) (Description, error) {
	if !validName.MatchString(name) {
		return Description{}, errorf(InvalidName,
			"the name must be 1 to 80 characters, without white space, brackets and special characters")
	}
	if len(input) == 0 {
		input = []byte("{}")
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, input); err != nil || len(input) > MaxData {
		return Description{}, errorf(InvalidExecutionInput, "the input must be JSON of at most %d bytes", MaxData)
	}
	for e.ctx.Err() == nil {
		r := Record{Name: name, Status: Running, Input: compact.Bytes(), StartDate: e.Clock.Now(), Events: 1}
		x, fresh := e.reserve(r)
		if fresh {
			if err := e.begin(x, e.Store.Save(ctx, r)); err != nil {
				return Description{}, err
			}
			return x.describe(), nil
		}
		if x.begun.isZero() {
			d := x.describe()
			if d.Status != Running || !bytes.Equal(d.Input, compact.Bytes()) {
				return Description{}, errorf(ExecutionAlreadyExists, "execution %s already exists", x.arn)
			}
			return d, nil
		}
		if err := x.begun.wait(ctx); err != nil {
			return Description{}, err
		}
	}
	return Description{}, ErrClosed
}

var validName = regexp.MustCompile(`^[^\p{Z}\p{Cc}\x{FFFD}<>{}\[\]?*"#%\\^|~` + "`" + `$&,;:/]{1,80}$`)

// reserve makes an execution, which the caller must begin, or finds the one that has its name.
func (e *Engine) reserve(r Record) (x *execution, fresh bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if x := e.executions[r.Name]; x != nil {
		return x, false
	}
	x = &execution{
		engine: e, arn: e.prefix + r.Name, rec: r, begun: &counter{clock: e.Clock, n: 1}, ended: &counter{clock: e.Clock},
	}
	e.executions[r.Name] = x
	return x, true
}

// maxLife is how long an execution may take, waits included: a year, as on Step Functions.
const maxLife = 365 * 24 * time.Hour

// begin sets a reserved execution going where its record says, unless it is closed or err says why it was not written.
func (e *Engine) begin(x *execution, err error) error {
	defer x.begun.add(-1)
	if err == nil && x.rec.Status.Terminal() {
		return nil
	}
	x.at = e.Definition.startAt
	input, w := x.rec.Input, x.rec.Wait
	if w != nil {
		x.at, input = w.State, w.Input
	}
	if err == nil {
		x.in, err = jsonx.DecodeNumbers(input)
	}
	if err != nil {
		e.mu.Lock()
		delete(e.executions, x.rec.Name)
		e.mu.Unlock()
		return fmt.Errorf("begin execution %s: %w", x.arn, err)
	}
	if w != nil { // the token is known again before anyone can ask for it
		x.attempt = e.newAttempt(w.Deadline)
		x.attempt.token, x.attempt.wait, x.attempt.sent, x.attempt.resumed = w.Token, w, w.Output, true
		e.mu.Lock()
		e.tokens[w.Token] = x.attempt
		e.mu.Unlock()
	}
	ctx, cancel := context.WithCancelCause(e.ctx)
	x.cancel = cancel
	x.ctx, x.release = e.Clock.WithTimeout(ctx, x.rec.StartDate.Add(maxLife).Sub(e.Clock.Now()))
	x.ended.add(1)
	e.spawn(x.run)
	return nil
}

// spawn runs f concurrently; Close waits for it.
func (e *Engine) spawn(f func()) {
	e.goroutines.add(1)
	e.Clock.Go(func() {
		defer e.goroutines.add(-1)
		f()
	})
}

// Resume takes up what the Store has: closed executions can be described, open ones go on as the package comment says.
// If of is not nil, only the open ones for which it returns true go on. One that waits in a state where the definition
// no longer waits starts again. Names this engine knows already are left alone, so calling it twice does no harm.
// Errors: ErrClosed; the Store's, once what it returned beside it goes on; a record with an unknown status, once those
// before it go on.
func (e *Engine) Resume(ctx context.Context, of func(Record) bool) error {
	if e.ctx.Err() != nil {
		return ErrClosed
	}
	records, unread := e.Store.Load(ctx)
	for _, r := range records {
		if !r.Status.Valid() {
			return fmt.Errorf("resume execution %s: status %q is not known", r.Name, r.Status)
		}
		if !r.Status.Terminal() && of != nil && !of(r) {
			continue
		}
		if w := r.Wait; w != nil {
			if s := e.Definition.states[w.State]; s == nil || s.Resource != invokeAndWait {
				r.Wait = nil
			}
		}
		x, fresh := e.reserve(r)
		if !fresh {
			continue
		}
		if err := e.begin(x, nil); err != nil {
			return err
		}
	}
	if unread != nil {
		return fmt.Errorf("resume executions: %w", unread)
	}
	return nil
}

// Stop ends a running execution as ABORTED and returns when that is durable. A handler that runs goes on; a closed
// execution stays as it is. Errors: ExecutionDoesNotExist, ErrClosed, ctx's, the Store's.
func (e *Engine) Stop(ctx context.Context, arn, name, cause string) error {
	x, err := e.find(arn)
	if err != nil {
		return err
	}
	stopped := &Error{Name: name, Cause: cause, status: Aborted}
	if !x.ended.isZero() {
		x.cancel(stopped)
		if err := x.ended.wait(ctx); err != nil {
			return err
		}
	}
	e.mu.Lock()
	closed, still := x.rec.Status.Terminal(), x.still != nil
	unwritten := !e.drained.IsZero() || e.ctx.Err() != nil
	e.mu.Unlock()
	switch {
	case closed:
		return nil
	case unwritten:
		return ErrClosed
	case still: // its loop has ended, and nobody else writes its record
		return x.finish(nil, stopped)
	}
	return fmt.Errorf("stop execution %s: it could not be written", arn)
}

// Describe tells how an execution stands. Errors: ExecutionDoesNotExist.
func (e *Engine) Describe(_ context.Context, arn string) (Description, error) {
	x, err := e.find(arn)
	if err != nil {
		return Description{}, err
	}
	return x.describe(), nil
}

func (e *Engine) find(arn string) (*execution, error) {
	name, ok := strings.CutPrefix(arn, e.prefix)
	e.mu.Lock()
	defer e.mu.Unlock()
	x := e.executions[name]
	if !ok || x == nil || !x.begun.isZero() {
		return nil, errorf(ExecutionDoesNotExist, "execution %s does not exist", arn)
	}
	return x, nil
}

// List describes the executions with a status, all for an empty one, the newest first and those of the same instant by
// name.
func (e *Engine) List(_ context.Context, status Status) []Description {
	all := e.describe(func(x *execution) bool { return x.begun.isZero() && (status == "" || x.rec.Status == status) })
	slices.SortFunc(all, func(a, b Description) int {
		return cmp.Or(b.StartDate.Compare(a.StartDate), strings.Compare(a.Name, b.Name))
	})
	return all
}

// UnderWay are the executions whose handlers run at the moment, in any order.
func (e *Engine) UnderWay() []Description {
	return e.describe(func(x *execution) bool { return x.calls > 0 })
}

// describe calls which under the engine's lock.
func (e *Engine) describe(which func(x *execution) bool) (all []Description) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, x := range e.executions {
		if which(x) {
			all = append(all, Description{ExecutionARN: x.arn, Record: x.rec})
		}
	}
	return all
}

// StallReason says why the execution of that name does not go on in this process, though it is open; nil while it may.
func (e *Engine) StallReason(name string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if x := e.executions[name]; x != nil && !x.rec.Status.Terminal() {
		return x.still
	}
	return nil
}

// Drain begins no handler any more, and waits until those that run have returned, or ctx is done, which is its error.
// Executions stay where they are on record; what was sent to their tokens is kept. Close comes after it.
func (e *Engine) Drain(ctx context.Context) error {
	e.mu.Lock()
	if e.drained.IsZero() {
		e.drained = e.Clock.Now()
	}
	e.mu.Unlock()
	return e.calls.wait(ctx)
}

// Kill is the death of the process: nothing is written any more and the contexts of handlers end. It does not wait.
func (e *Engine) Kill() { e.cancel(ErrClosed) }

// Close is Kill, not Drain, and waits until executions stand still and handlers have returned. Open executions stay
// open for Resume. The error joins those of executions that halted because they could not be written.
func (e *Engine) Close() error {
	e.Kill()
	if err := e.goroutines.wait(context.Background()); err != nil {
		return fmt.Errorf("close engine: %w", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return errors.Join(e.halted...)
}

// counter lets others wait until it is zero. It is safe for concurrent use.
type counter struct {
	clock   clock.Clock
	mu      sync.Mutex
	n       int
	waiters []clock.Signal
}

func (c *counter) add(n int) {
	c.mu.Lock()
	c.n += n
	var wake []clock.Signal
	if c.n == 0 {
		wake, c.waiters = c.waiters, nil
	}
	c.mu.Unlock()
	for _, w := range wake {
		w.Notify()
	}
}

func (c *counter) isZero() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n == 0
}

// wait returns nil once the counter is or was zero, the context's error when that is done before.
func (c *counter) wait(ctx context.Context) error {
	c.mu.Lock()
	zero := c.n == 0
	s := c.clock.NewSignal()
	if !zero {
		c.waiters = append(c.waiters, s)
	}
	c.mu.Unlock()
	if zero {
		return nil
	}
	return s.Wait(ctx, 0)
}
