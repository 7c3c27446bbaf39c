package asl

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"time"

	"github.com/countersign/countersign/internal/clock"
)

// ErrClosed is what an Engine returns that was closed.
var ErrClosed = errors.New("engine is closed")

// defaultMaxRunning is Step Functions' quota of open executions.
const defaultMaxRunning = 1_000_000

// Config is what an Engine runs and what it runs on.
type Config struct {
	Definition *Definition
	ARN        string // of the state machine, arn:aws:states:REGION:ACCOUNT:stateMachine:NAME
	Clock      clock.Clock
	// Invoke calls a Lambda function and returns its answer, JSON. It is called concurrently. Its context ends when the
	// engine is closed and not when the Task times out, as a Lambda goes on too. An error's name for Retry and Catch is its
	// ErrorType() string, of any error it wraps, else Lambda.Unknown; if the call ends its goroutine (runtime.Goexit), it
	// is Runtime.ExitError. One that wraps ErrStandStill leaves the execution where it is.
	Invoke func(ctx context.Context, function string, payload []byte, inv Invocation) ([]byte, error)
	Store  Store
	IDs    func() string // a new id at every call, 1 to 80 of A-Z a-z 0-9 - _; safe for concurrent use

	// Jitter draws from 0 to max for JitterStrategy FULL; nil always draws max.
	Jitter func(max time.Duration) time.Duration
	// Observe is told every history event, in order for each execution, by the goroutine that makes it, and
	// ExecutionHalted when an execution stands still because the Store failed. It must not block. Nil is nobody.
	Observe func(HistoryEvent)
	// Retrying is told that an execution waits before it tries its state again, and after what failure. It must not block. Nil is nobody.
	Retrying func(d Description, f *Failure, wait time.Duration)
	// Ended is told, concurrently, of every execution whose end is on record. Close waits for it. Nil is nobody.
	Ended      func(ctx context.Context, d Description)
	RoleARN    string // $$.Execution.RoleArn
	MaxRunning int    // open executions at most; 0 = 1,000,000
}

// Engine runs executions of one state machine. All methods are safe for concurrent use; on a clock.Virtual they are
// called by its tasks.
type Engine struct {
	Config
	name   string // of the state machine
	prefix string // of execution ARNs
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu         sync.Mutex // never held while waiting or calling out
	executions map[string]*execution
	tokens     map[string]*attempt // every token given out, spent ones too
	running    int                 // executions reserved or open
	goroutines int
	idle       *latch // opens when no goroutine is left; nil while nobody waits for that
	halted     []error
	calls      map[*attempt]*execution // whose handlers run
	drained    time.Time               // when Drain was called; zero = it was not
	quiet      *latch                  // opens when no handler runs any more; nil until Drain
}

var machineARN = regexp.MustCompile(`^(arn:[^:]+:states:[^:]+:[^:]+):stateMachine:([A-Za-z0-9_-]{1,80})$`)

// New checks the configuration. The engine runs nothing before Start or Resume.
func New(c Config) (*Engine, error) {
	m := machineARN.FindStringSubmatch(c.ARN)
	if m == nil {
		return nil, refuse(InvalidArn, "%q is not the ARN of a state machine", c.ARN)
	}
	if c.Definition == nil || c.Clock == nil || c.Invoke == nil || c.Store == nil || c.IDs == nil {
		return nil, errors.New("new engine: Definition, Clock, Invoke, Store and IDs are required")
	}
	if c.MaxRunning == 0 {
		c.MaxRunning = defaultMaxRunning
	}
	e := &Engine{
		Config: c, name: m[2], prefix: m[1] + ":execution:" + m[2] + ":",
		executions: map[string]*execution{}, tokens: map[string]*attempt{}, calls: map[*attempt]*execution{},
	}
	e.ctx, e.cancel = context.WithCancelCause(context.Background())
	return e, nil
}

func (e *Engine) jitter(limit time.Duration) time.Duration {
	if e.Jitter == nil {
		return limit
	}
	return e.Jitter(limit)
}

// spawn runs f concurrently; Close waits for it.
func (e *Engine) spawn(f func()) {
	e.mu.Lock()
	e.goroutines++
	e.mu.Unlock()
	e.Clock.Go(func() {
		defer e.returned()
		f()
	})
}

func (e *Engine) returned() {
	e.mu.Lock()
	e.goroutines--
	var idle *latch
	if e.goroutines == 0 {
		idle = e.idle
	}
	e.mu.Unlock()
	if idle != nil {
		idle.release()
	}
}

// register makes a token known.
func (e *Engine) register(a *attempt) {
	e.mu.Lock()
	e.tokens[a.token] = a
	e.mu.Unlock()
}

// halt keeps the error of an execution that could not be written: it stands still as it is on record.
func (e *Engine) halt(x *execution, err error) {
	e.mu.Lock()
	e.halted = append(e.halted, err)
	e.mu.Unlock()
	if e.Observe != nil {
		e.Observe(HistoryEvent{ExecutionARN: x.arn, Type: "ExecutionHalted", At: e.Clock.Now(), Cause: err.Error()})
	}
}

// Kill is the death of the process: nothing is written any more and the contexts of handlers end. It does not wait.
func (e *Engine) Kill() { e.cancel(ErrClosed) }

// Close is Kill, not Drain, and waits until executions stand still and handlers have returned. Open executions stay open for Resume.
// The error joins those of executions that halted because they could not be written.
func (e *Engine) Close() error {
	e.Kill()
	e.mu.Lock()
	if e.idle == nil {
		e.idle = &latch{clock: e.Clock, open: e.goroutines == 0}
	}
	idle := e.idle
	e.mu.Unlock()
	if err := idle.wait(context.Background()); err != nil {
		return fmt.Errorf("close engine: %w", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return errors.Join(e.halted...)
}
