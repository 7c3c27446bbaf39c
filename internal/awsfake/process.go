package awsfake

import (
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

// process is a bootstrap and the Runtime API it asks. The API is its own, so that a request of a process that is gone
// cannot take an event that its successor is to have.
type process struct {
	name   string
	cmd    *exec.Cmd
	events chan event
	died   chan struct{} // closed when it has ended

	mu          sync.Mutex
	running     *event // the one that it has
	initialised func() // at its first request; nil from then on
}

func startProcess(cfg LambdaConfig, initialised func(time.Duration)) (*process, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("serve runtime API of %s: %w", cfg.Name, err)
	}
	cmd := exec.Command(cfg.Bootstrap)
	cmd.Env = append([]string{"AWS_LAMBDA_RUNTIME_API=" + l.Addr().String(), "AWS_LAMBDA_FUNCTION_NAME=" + cfg.Name}, cfg.Env...)
	cmd.Stdout, cmd.Stderr = cfg.Log, cfg.Log
	p := &process{name: cfg.Name, cmd: cmd, events: make(chan event), died: make(chan struct{})}
	server := &http.Server{Handler: p.api(), ReadHeaderTimeout: time.Minute}
	started := cfg.Clock.Now()
	p.initialised = func() { initialised(cfg.Clock.Now().Sub(started)) }
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
	mux.HandleFunc("GET /2018-06-01/runtime/invocation/next", p.next)
	mux.HandleFunc("POST /2018-06-01/runtime/invocation/{id}/response", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		w.WriteHeader(http.StatusAccepted)
		p.finish(r.PathValue("id"), lambdaAnswer{payload: body, err: err})
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
	ev := p.running
	if ev != nil && ev.id == id {
		p.running = nil
	}
	p.mu.Unlock()
	if ev != nil && ev.id == id {
		ev.answer <- a
	}
}

func (p *process) next(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	first := p.initialised
	p.initialised = nil
	p.mu.Unlock()
	if first != nil {
		first()
	}
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
}

// kill ends the process and waits until it is gone.
func (p *process) kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", p.name, err)
	}
	<-p.died
	return nil
}
