package awsfake

// This file is a small Lambda service: it runs a function's real bootstrap as processes behind the Runtime API
// and invokes them as Lambda does, so that tests exercise the binaries that are deployed. An execution environment is
// one process that takes one event at a time; events that come while all are busy get one more environment, up to the
// function's concurrency.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/countersign/countersign/internal/clock"
)

// LambdaConfig is a function as it is deployed.
type LambdaConfig struct {
	Name      string        // of the function
	Bootstrap string        // path of its binary
	Env       []string      // NAME=value; nothing else of this process's environment is handed on
	Timeout   time.Duration // of one invocation, from the event to the answer
	// Concurrency is how many environments there may be; an event beyond them is Lambda.TooManyRequestsException. 0 = 10.
	Concurrency int
	Clock       clock.Clock
	Log         io.Writer // what the processes print, safe for concurrent use; nil = standard error
}

// LambdaError is what a function reported, or what became of its process.
type LambdaError struct{ Type, Message string }

func (e *LambdaError) Error() string { return e.Type + ": " + e.Message }

// ErrorType is the name that a state machine's Retry looks for.
func (e *LambdaError) ErrorType() string { return e.Type }

// Lambda is one deployed function. Safe for concurrent use.
type Lambda struct {
	cfg LambdaConfig

	mu           sync.Mutex
	environments []*environment // busy and idle ones
	count        int            // of events, for their ids
	inits        []time.Duration
	closed       bool
}

// StartLambda deploys a function; its processes are started with its events. Close ends them.
func StartLambda(cfg LambdaConfig) *Lambda {
	if cfg.Concurrency == 0 {
		cfg.Concurrency = 10
	}
	if cfg.Log == nil {
		cfg.Log = os.Stderr
	}
	return &Lambda{cfg: cfg}
}

// Invoke gives the function one event and waits for its answer. A process that ends is Runtime.ExitError; one that
// takes longer than the function's timeout is ended and Sandbox.Timedout. Where ctx ends first, the caller no longer
// waits and the invocation goes on, as Lambda's does.
func (f *Lambda) Invoke(ctx context.Context, payload []byte) ([]byte, error) {
	e, id, err := f.take()
	if err != nil {
		return nil, err
	}
	done := make(chan lambdaAnswer, 1)
	f.cfg.Clock.Go(func() {
		a := e.handle(id, payload)
		f.mu.Lock()
		e.busy = false
		f.mu.Unlock()
		done <- a
	})
	select {
	case a := <-done:
		return a.payload, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// take finds an idle environment, or makes one.
func (f *Lambda) take() (*environment, string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, "", fmt.Errorf("invoke %s: it is closed", f.cfg.Name)
	}
	f.count++
	id := fmt.Sprintf("%s-%06d", f.cfg.Name, f.count)
	for _, e := range f.environments {
		if !e.busy {
			e.busy = true
			return e, id, nil
		}
	}
	if len(f.environments) >= f.cfg.Concurrency {
		return nil, "", &LambdaError{Type: "Lambda.TooManyRequestsException", Message: f.cfg.Name + " has no environment left"}
	}
	e := &environment{cfg: f.cfg, initialised: f.initialised, busy: true}
	f.environments = append(f.environments, e)
	return e, id, nil
}

func (f *Lambda) initialised(took time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.inits = append(f.inits, took)
}

// Inits are how long the processes took so far from their start to their first request for an event, in order.
func (f *Lambda) Inits() []time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.inits)
}

// Invocations counts the events so far.
func (f *Lambda) Invocations() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.count
}

// Kill ends every process with SIGKILL, as a crash would, and waits until they are gone. Without a process it does
// nothing.
func (f *Lambda) Kill() error {
	f.mu.Lock()
	all := slices.Clone(f.environments)
	f.mu.Unlock()
	var problems []error
	for _, e := range all {
		problems = append(problems, e.kill())
	}
	return errors.Join(problems...)
}

// Close ends the processes.
func (f *Lambda) Close() error {
	f.mu.Lock()
	f.closed = true
	all := f.environments
	f.mu.Unlock()
	var problems []error
	for _, e := range all {
		problems = append(problems, e.kill())
	}
	return errors.Join(problems...)
}
