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
)

// environment is one execution environment: a Runtime API of its own and the process behind it. A process that has ended is started
// again with the next event. handle is called for one event at a time.
type environment struct {
	cfg         Config
	server      *http.Server
	addr        string
	initialised func(time.Duration)
	busy        bool // guarded by the function

	mu      sync.Mutex
	running *event // the one that the process has
	process *process
	started time.Time // zero once the process has asked for its first event
}

// process has events of its own, so that the request of one that is gone cannot take what its successor is to have.
type process struct {
	cmd    *exec.Cmd
	events chan event
	died   chan struct{} // closed when it has ended
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

func newEnvironment(cfg Config, initialised func(time.Duration)) (*environment, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("serve runtime API of %s: %w", cfg.Name, err)
	}
	e := &environment{cfg: cfg, addr: l.Addr().String(), initialised: initialised}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /2018-06-01/runtime/invocation/next", e.next)
	mux.HandleFunc("POST /2018-06-01/runtime/invocation/{id}/response", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		w.WriteHeader(http.StatusAccepted)
		e.finish(r.PathValue("id"), answer{payload: body, err: err})
	})
	mux.HandleFunc("POST /2018-06-01/runtime/invocation/{id}/error", func(w http.ResponseWriter, r *http.Request) {
		err := reported(r.Body)
		w.WriteHeader(http.StatusAccepted)
		e.finish(r.PathValue("id"), answer{err: err})
	})
	e.server = &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	cfg.Clock.Go(func() { _ = e.server.Serve(l) }) // it returns when Close is called
	return e, nil
}

func (e *environment) finish(id string, a answer) {
	e.mu.Lock()
	ev := e.running
	if ev != nil && ev.id == id {
		e.running = nil
	}
	e.mu.Unlock()
	if ev != nil && ev.id == id {
		ev.answer <- a
	}
}

func (e *environment) next(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	if !e.started.IsZero() {
		e.initialised(e.cfg.Clock.Now().Sub(e.started))
		e.started = time.Time{}
	}
	events := e.process.events
	e.mu.Unlock()
	select {
	case <-r.Context().Done():
	case ev := <-events:
		e.mu.Lock()
		e.running = &ev
		e.mu.Unlock()
		w.Header().Set("Lambda-Runtime-Aws-Request-Id", ev.id)
		w.Header().Set("Lambda-Runtime-Deadline-Ms", strconv.FormatInt(ev.deadline.UnixMilli(), 10))
		w.Header().Set("Lambda-Runtime-Invoked-Function-Arn", "arn:aws:lambda:local:000000000000:function:"+e.cfg.Name)
		_, _ = w.Write(ev.payload) // a process that is gone by now is noticed by its end
	}
}

func reported(body io.Reader) error {
	var e struct{ ErrorType, ErrorMessage string }
	if err := json.NewDecoder(body).Decode(&e); err != nil {
		return &Error{Type: "Runtime.Unknown", Message: "the function reported an error that cannot be read"}
	}
	return &Error{Type: e.ErrorType, Message: e.ErrorMessage}
}

// handle gives the process one event and waits for its answer, its end or its timeout.
func (e *environment) handle(id string, payload []byte) answer {
	p, err := e.alive()
	if err != nil {
		return answer{err: err}
	}
	// The invocation has the function's timeout, however long its caller waits.
	ctx, cancel := e.cfg.Clock.WithTimeout(context.Background(), e.cfg.Timeout)
	defer cancel()
	ev := event{id: id, payload: payload, deadline: e.cfg.Clock.Now().Add(e.cfg.Timeout), answer: make(chan answer, 1)}
	select {
	case p.events <- ev:
		select {
		case a := <-ev.answer:
			return a
		case <-p.died:
			return answer{err: &Error{Type: "Runtime.ExitError", Message: e.cfg.Name + " ended"}}
		case <-ctx.Done():
		}
	case <-p.died:
		return answer{err: &Error{Type: "Runtime.ExitError", Message: e.cfg.Name + " ended at cold start"}}
	case <-ctx.Done():
	}
	if err := e.kill(); err != nil {
		return answer{err: err}
	}
	return answer{err: &Error{Type: "Sandbox.Timedout", Message: e.cfg.Name + " timed out"}}
}

// alive starts the process if there is none.
func (e *environment) alive() (*process, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.process != nil {
		select {
		case <-e.process.died:
		default:
			return e.process, nil
		}
	}
	cmd := exec.Command(e.cfg.Bootstrap)
	cmd.Env = append([]string{"AWS_LAMBDA_RUNTIME_API=" + e.addr, "AWS_LAMBDA_FUNCTION_NAME=" + e.cfg.Name}, e.cfg.Env...)
	cmd.Stdout, cmd.Stderr = e.cfg.Log, e.cfg.Log
	e.started = e.cfg.Clock.Now()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", e.cfg.Name, err)
	}
	p := &process{cmd: cmd, events: make(chan event), died: make(chan struct{})}
	e.process, e.running = p, nil
	e.cfg.Clock.Go(func() {
		_ = cmd.Wait() // how it ended is its own affair; that it did is what counts
		close(p.died)
	})
	return p, nil
}

func (e *environment) kill() error {
	e.mu.Lock()
	p := e.process
	e.mu.Unlock()
	if p == nil {
		return nil
	}
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", e.cfg.Name, err)
	}
	<-p.died
	return nil
}
