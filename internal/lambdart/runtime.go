// Package lambdart is a small Lambda Runtime API: it runs a function's real bootstrap as a process and invokes it as Lambda does,
// one event at a time, so that tests exercise the binaries that are deployed.
package lambdart

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"time"

	"github.com/countersign/countersign/pkg/agent/clock"
)

// Function is one function behind its own Runtime API. Invoke may be called concurrently; events queue, as one environment takes
// one at a time. A process that ends is started again with the next event.
type Function struct {
	name    string
	path    string
	env     []string
	timeout time.Duration
	clock   clock.Clock
	server  *http.Server
	addr    string

	turn   chan struct{} // held by the event that the environment has
	events chan event

	mu      sync.Mutex
	process *exec.Cmd
	died    chan struct{} // closed when the process has ended
	ready   chan struct{} // closed when the process has asked for its first event
	count   int
}

type event struct {
	id       string
	payload  []byte
	deadline time.Time
	answer   chan answer
}

type answer struct {
	payload []byte
	err     error
}

// Error is what a function reported, or what became of its process.
type Error struct{ Type, Message string }

func (e *Error) Error() string { return e.Type + ": " + e.Message }

// ErrorType is the name that a state machine's Retry looks for.
func (e *Error) ErrorType() string { return e.Type }

// Start serves the Runtime API of a function on loopback. The bootstrap at path is started with the first event, with env alone
// as its environment. Close ends both.
func Start(name, path string, env []string, timeout time.Duration, c clock.Clock) (*Function, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("serve runtime API of %s: %w", name, err)
	}
	f := &Function{
		name: name, path: path, env: env, timeout: timeout, clock: c, addr: l.Addr().String(),
		turn: make(chan struct{}, 1), events: make(chan event),
	}
	mux := http.NewServeMux()
	running := &inFlight{byID: map[string]event{}}
	mux.HandleFunc("GET /2018-06-01/runtime/invocation/next", func(w http.ResponseWriter, r *http.Request) { f.next(w, r, running) })
	mux.HandleFunc("POST /2018-06-01/runtime/invocation/{id}/response", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		w.WriteHeader(http.StatusAccepted)
		running.finish(r.PathValue("id"), answer{payload: body, err: err})
	})
	mux.HandleFunc("POST /2018-06-01/runtime/invocation/{id}/error", func(w http.ResponseWriter, r *http.Request) {
		err := reported(r.Body)
		w.WriteHeader(http.StatusAccepted)
		running.finish(r.PathValue("id"), answer{err: err})
	})
	f.server = &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	c.Go(func() { _ = f.server.Serve(l) }) // it returns when Close is called
	return f, nil
}

// inFlight are the events a process has taken.
type inFlight struct {
	mu   sync.Mutex
	byID map[string]event
}

func (x *inFlight) finish(id string, a answer) {
	x.mu.Lock()
	e, ok := x.byID[id]
	delete(x.byID, id)
	x.mu.Unlock()
	if ok {
		e.answer <- a
	}
}

func (f *Function) next(w http.ResponseWriter, r *http.Request, running *inFlight) {
	f.askedForEvent()
	select {
	case <-r.Context().Done():
	case e := <-f.events:
		running.mu.Lock()
		running.byID[e.id] = e
		running.mu.Unlock()
		w.Header().Set("Lambda-Runtime-Aws-Request-Id", e.id)
		w.Header().Set("Lambda-Runtime-Deadline-Ms", strconv.FormatInt(e.deadline.UnixMilli(), 10))
		w.Header().Set("Lambda-Runtime-Invoked-Function-Arn", "arn:aws:lambda:local:000000000000:function:"+f.name)
		_, _ = w.Write(e.payload) // a process that is gone by now is noticed by its end
	}
}

func reported(body io.Reader) error {
	var e struct{ ErrorType, ErrorMessage string }
	if err := json.NewDecoder(body).Decode(&e); err != nil {
		return &Error{Type: "Runtime.Unknown", Message: "the function reported an error that cannot be read"}
	}
	return &Error{Type: e.ErrorType, Message: e.ErrorMessage}
}

// Invoke gives the function one event and waits for its answer. A process that ends is Runtime.ExitError, one that takes longer than the
// function's timeout is ended and Sandbox.Timedout.
func (f *Function) Invoke(ctx context.Context, payload []byte) ([]byte, error) {
	select {
	case f.turn <- struct{}{}:
		defer func() { <-f.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	died, id, err := f.alive()
	if err != nil {
		return nil, err
	}
	ctx, cancel := f.clock.WithTimeout(ctx, f.timeout)
	defer cancel()
	e := event{id: id, payload: payload, deadline: f.clock.Now().Add(f.timeout), answer: make(chan answer, 1)}
	select {
	case f.events <- e:
	case <-died:
		return nil, &Error{Type: "Runtime.ExitError", Message: f.name + " ended at cold start"}
	case <-ctx.Done():
		return nil, f.timedOut()
	}
	select {
	case a := <-e.answer:
		return a.payload, a.err
	case <-died:
		return nil, &Error{Type: "Runtime.ExitError", Message: f.name + " ended"}
	case <-ctx.Done():
		return nil, f.timedOut()
	}
}

// timedOut ends the environment, as Lambda does.
func (f *Function) timedOut() error {
	if err := f.Kill(); err != nil {
		return err
	}
	return &Error{Type: "Sandbox.Timedout", Message: f.name + " timed out"}
}

// alive starts the process if there is none.
func (f *Function) alive() (died chan struct{}, id string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count++
	id = fmt.Sprintf("%s-%06d", f.name, f.count)
	if f.process != nil {
		select {
		case <-f.died:
		default:
			return f.died, id, nil
		}
	}
	cmd := exec.Command(f.path)
	cmd.Env = append([]string{"AWS_LAMBDA_RUNTIME_API=" + f.addr, "AWS_LAMBDA_FUNCTION_NAME=" + f.name}, f.env...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, "", fmt.Errorf("start %s: %w", f.name, err)
	}
	ended := make(chan struct{})
	f.process, f.died, f.ready = cmd, ended, make(chan struct{})
	f.clock.Go(func() {
		_ = cmd.Wait() // how it ended is its own affair; that it did is what counts
		close(ended)
	})
	return ended, id, nil
}

// Kill ends the process with SIGKILL, as a crash would, and waits until it is gone. Without a process it does nothing.
func (f *Function) Kill() error {
	f.mu.Lock()
	cmd, died := f.process, f.died
	f.mu.Unlock()
	if cmd == nil {
		return nil
	}
	if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", f.name, err)
	}
	<-died
	return nil
}

// Close ends the process and the server.
func (f *Function) Close() error {
	return errors.Join(f.Kill(), f.server.Close())
}
