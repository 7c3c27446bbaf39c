package standins

// This file is a small Lambda service: it runs a function's real bootstrap as processes behind the Runtime API
// and invokes them as Lambda does, so that tests exercise the binaries that are deployed. An execution environment is
// one process that takes one event at a time; events that come while all are busy get one more, up to the function's
// concurrency. A process that has ended is replaced with the next event.

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/countersign/countersign/internal/clock"
)

// LambdaConfig is a function as it is deployed.
type LambdaConfig struct {
	Name      string        // of the function
	Bootstrap string        // path of its binary
	Env       []string      // NAME=value; nothing else of this process's environment is handed on
	Timeout   time.Duration // of one invocation, from the event to the answer
	// Concurrency is how many environments there may be; an event beyond them is Lambda.TooManyRequestsException. 0 =
	// 10.
	Concurrency int
	Freezes     bool // a process stands still from its answer to its next event
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

	mu        sync.Mutex
	processes []*process // busy and idle ones, and some that have ended
	count     int        // of events, for their ids
	closed    bool
}

// StartLambda deploys a function; its processes are started with its events. Close ends them.
func StartLambda(cfg LambdaConfig) *Lambda {
	cfg.Concurrency = cmp.Or(cfg.Concurrency, 10)
	if cfg.Log == nil {
		cfg.Log = os.Stderr
	}
	return &Lambda{cfg: cfg}
}

// Invoke gives the function one event and waits for its answer. A process that ends is Runtime.ExitError; one that
// takes longer than the function's timeout is ended and Sandbox.Timedout. Where ctx ends first, the caller no longer
// waits and the invocation goes on, as Lambda's does.
func (f *Lambda) Invoke(ctx context.Context, payload []byte) ([]byte, error) {
	return f.invoke(ctx, payload, nil)
}

// InvokeWithResponseStream is Invoke that writes the answer to out, as the function sends it.
func (f *Lambda) InvokeWithResponseStream(ctx context.Context, payload []byte, out io.Writer) error {
	_, err := f.invoke(ctx, payload, out)
	return err
}

func (f *Lambda) invoke(ctx context.Context, payload []byte, out io.Writer) ([]byte, error) {
	p, id, err := f.take()
	if err != nil {
		return nil, err
	}
	done := make(chan lambdaAnswer, 1)
	f.cfg.Clock.Go(func() {
		a := p.handle(f.cfg, id, payload, out)
		f.mu.Lock()
		p.busy = false
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

// take finds an idle process, or starts one.
func (f *Lambda) take() (p *process, id string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, "", fmt.Errorf("invoke %s: it is closed", f.cfg.Name)
	}
	f.count++
	id = fmt.Sprintf("%s-%06d", f.cfg.Name, f.count)
	f.processes = slices.DeleteFunc(f.processes, func(p *process) bool { return !p.busy && p.hasEnded() })
	if i := slices.IndexFunc(f.processes, func(p *process) bool { return !p.busy }); i >= 0 {
		f.processes[i].busy = true
		return f.processes[i], id, nil
	}
	if len(f.processes) >= f.cfg.Concurrency {
		return nil, "", &LambdaError{"Lambda.TooManyRequestsException", f.cfg.Name + " has no environment left"}
	}
	if p, err = startProcess(f.cfg); err != nil {
		return nil, "", err
	}
	p.busy = true
	f.processes = append(f.processes, p)
	return p, id, nil
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
	var problems []error
	for _, p := range snapshot(&f.mu, &f.processes) {
		problems = append(problems, p.kill())
	}
	return errors.Join(problems...)
}

// Signal sends a signal to every process.
func (f *Lambda) Signal(s os.Signal) {
	for _, p := range snapshot(&f.mu, &f.processes) {
		p.signal(s)
	}
}

// Close ends the processes.
func (f *Lambda) Close() error {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	return f.Kill()
}

// process is one execution environment: a bootstrap and the Runtime API it asks. The API is its own, so that a request
// of a process that is gone cannot take an event that its successor is to have.
type process struct {
	name   string
	cmd    *exec.Cmd
	events chan event
	asks   func()        // at its first request for an event, closes asked
	asked  chan struct{} // closed when it has asked for its first event
	died   chan struct{} // closed when it has ended
	busy   bool          // guarded by the function

	mu      sync.Mutex
	running *event // the one that it has
}

func startProcess(cfg LambdaConfig) (*process, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("serve runtime API of %s: %w", cfg.Name, err)
	}
	cmd := exec.Command(cfg.Bootstrap)
	cmd.Env = append([]string{"AWS_LAMBDA_RUNTIME_API=" + l.Addr().String(), "AWS_LAMBDA_FUNCTION_NAME=" + cfg.Name},
		cfg.Env...)
	cmd.Stdout, cmd.Stderr = cfg.Log, cfg.Log
	asked := make(chan struct{})
	p := &process{name: cfg.Name, cmd: cmd, events: make(chan event), asks: sync.OnceFunc(func() { close(asked) }),
		asked: asked, died: make(chan struct{})}
	server := &http.Server{Handler: p.api(), ReadHeaderTimeout: time.Minute}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", cfg.Name, err), l.Close())
	}
	cfg.Clock.Go(func() { _ = server.Serve(l) }) // it returns when the process has ended
	cfg.Clock.Go(func() {
		_ = cmd.Wait()     // how it ended is its own affair; that it did is what counts
		_ = server.Close() // nobody asks any more
		close(p.died)
	})
	return p, nil
}

func (p *process) api() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /2018-06-01/runtime/invocation/next", func(w http.ResponseWriter, r *http.Request) {
		p.asks()
		select {
		case <-r.Context().Done():
		case ev := <-p.events:
			p.mu.Lock()
			p.running = &ev
			p.mu.Unlock()
			w.Header().Set("Lambda-Runtime-Aws-Request-Id", ev.id)
			w.Header().Set("Lambda-Runtime-Deadline-Ms", strconv.FormatInt(ev.deadline.UnixMilli(), 10))
			w.Header().Set("Lambda-Runtime-Invoked-Function-Arn", "arn:aws:lambda:local:000000000000:function:"+p.name)
			_, _ = w.Write(ev.payload) // a process that is gone by now is noticed by its end
		}
	})
	mux.HandleFunc("POST /2018-06-01/runtime/invocation/{id}/response", func(w http.ResponseWriter, r *http.Request) {
		var body bytes.Buffer
		p.mu.Lock()
		var out io.Writer = &body
		if ev := p.running; ev != nil && ev.id == r.PathValue("id") && ev.out != nil {
			out = ev.out
		}
		p.mu.Unlock()
		_, err := io.Copy(out, r.Body)
		if kind := r.Trailer.Get("Lambda-Runtime-Function-Error-Type"); kind != "" {
			err = &LambdaError{Type: kind, Message: "the answer broke off"}
		}
		w.WriteHeader(http.StatusAccepted)
		p.finish(r.PathValue("id"), lambdaAnswer{payload: body.Bytes(), err: err})
	})
	mux.HandleFunc("POST /2018-06-01/runtime/invocation/{id}/error", func(w http.ResponseWriter, r *http.Request) {
		var e struct{ ErrorType, ErrorMessage string }
		if err := json.NewDecoder(r.Body).Decode(&e); err != nil {
			e.ErrorType, e.ErrorMessage = "Runtime.Unknown", "the function reported an error that cannot be read"
		}
		w.WriteHeader(http.StatusAccepted)
		p.finish(r.PathValue("id"), lambdaAnswer{err: &LambdaError{Type: e.ErrorType, Message: e.ErrorMessage}})
	})
	return mux
}

func (p *process) finish(id string, a lambdaAnswer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ev := p.running; ev != nil && ev.id == id {
		p.running = nil
		ev.answer <- a // it has room for one
	}
}

func (p *process) kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", p.name, err)
	}
	<-p.died
	return nil
}

func (p *process) hasEnded() bool {
	select {
	case <-p.died:
		return true
	default:
		return false
	}
}

// signal sends a signal. A process that has ended does not miss it.
func (p *process) signal(s os.Signal) { _ = p.cmd.Process.Signal(s) }

type event struct {
	id       string
	payload  []byte
	deadline time.Time
	out      io.Writer // gets the answer as it comes; nil = it is kept until its end
	answer   chan lambdaAnswer
}

type lambdaAnswer struct {
	payload []byte
	err     error
}

// handle gives the process one event and waits for its answer, its end or its timeout.
func (p *process) handle(cfg LambdaConfig, id string, payload []byte, out io.Writer) lambdaAnswer {
	// The invocation has the function's timeout, however long its caller waits.
	ctx, cancel := cfg.Clock.WithTimeout(context.Background(), cfg.Timeout)
	defer cancel()
	ev := event{id: id, payload: payload, deadline: cfg.Clock.Now().Add(cfg.Timeout), out: out,
		answer: make(chan lambdaAnswer, 1)}
	if cfg.Freezes {
		p.signal(syscall.SIGCONT)
	}
	select {
	case p.events <- ev:
		select {
		case a := <-ev.answer:
			if cfg.Freezes {
				p.signal(syscall.SIGSTOP)
			}
			return a
		case <-p.died:
			return lambdaAnswer{err: &LambdaError{"Runtime.ExitError", cfg.Name + " ended"}}
		case <-ctx.Done():
		}
	case <-p.died:
		return lambdaAnswer{err: &LambdaError{"Runtime.ExitError", cfg.Name + " ended at cold start"}}
	case <-ctx.Done():
	}
	if err := p.kill(); err != nil {
		return lambdaAnswer{err: err}
	}
	return lambdaAnswer{err: &LambdaError{"Sandbox.Timedout", cfg.Name + " timed out"}}
}

// ColdStart starts one more process, waits until it asks for its first event, and ends it. It says how long that took
// from the process's start.
func (f *Lambda) ColdStart(ctx context.Context) (took time.Duration, err error) {
	began := f.cfg.Clock.Now()
	p, err := startProcess(f.cfg)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, p.kill()) }()
	ctx, cancel := f.cfg.Clock.WithTimeout(ctx, f.cfg.Timeout)
	defer cancel()
	select {
	case <-p.asked:
		return f.cfg.Clock.Now().Sub(began), nil
	case <-p.died:
		return 0, fmt.Errorf("cold start of %s: %w", f.cfg.Name, &LambdaError{"Runtime.ExitError", "it ended"})
	case <-ctx.Done():
		return 0, fmt.Errorf("cold start of %s: %w", f.cfg.Name, ctx.Err())
	}
}
