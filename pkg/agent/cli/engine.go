package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/pkg/agent"
	"github.com/countersign/countersign/pkg/agent/api"
	"github.com/countersign/countersign/pkg/agent/callback"
	"github.com/countersign/countersign/pkg/agent/ids"
	"github.com/countersign/countersign/pkg/agent/lambdatool"
	programs "github.com/countersign/countersign/pkg/agent/mcp/program"
	"github.com/countersign/countersign/pkg/agent/notify"
	"github.com/countersign/countersign/pkg/agent/reach"
	"github.com/countersign/countersign/pkg/agent/runtime"
	"github.com/countersign/countersign/pkg/agent/secrets"
	"github.com/countersign/countersign/pkg/agent/tracing"
)

// engine is the store, opened by this process, and the API served over it.
type engine struct {
	p       *program
	home    *local.Home
	feed    *api.Feed
	pipe    *pipe
	backend api.Backend
	trace   *tracing.Tracer // nil = the environment names no collector
	server  *http.Server
	web     *web                   // what dev serves beside; nil in every other command
	url     atomic.Pointer[string] // of the web
	ready   func(context.Context) error
	ring    *keys // signs callbacks and links
}

// openEngine opens the store and serves it. The error is local.ErrInUse where another process has it.
func (p *program) openEngine(who people) (*engine, error) {
	feed := api.NewFeed(p.clock)
	trace, err := p.tracer()
	if err != nil {
		return nil, err
	}
	heard := agent.HearTags(feed.Said)
	model := func(m agent.ModelSpec) (runtime.Model, error) { return p.adapter(m, heard) }
	invoked, ring := &functions{p: p}, &keys{home: p.home, draw: ids.System(p.clock).Token}
	remotes, err := reach.Local(p.home, p.getenv, p.clock, programs.Programs{Clock: p.clock, Path: p.getenv("PATH"), Home: p.getenv("HOME")}.Start)
	if err != nil {
		return nil, err
	}
	remotes[agent.KindLambda] = lambdatool.Remote{Functions: invoked}
	e := &engine{p: p, feed: feed, pipe: newPipe(), trace: trace, ring: ring}
	tells, err := p.notifier(e)
	if err != nil {
		return nil, err
	}
	home, err := local.Open(local.Options{
		Remotes: remotes, Functions: invoked,
		Callbacks: callback.Addresses{Ring: ring.get, Base: e.reached},
		Notify:    tells,
		Dir:       p.home, Registry: p.registry, Model: model, Sink: feed, Trace: trace, Trouble: p.trouble, Clock: p.clock, People: who.Book,
	})
	if err != nil {
		return nil, err
	}
	b := home.Backend(local.Serving{Agents: p.registry, Feed: feed, Caller: caller(who)})
	b.Callbacks = ring.known
	e.home, e.backend, e.ready = home, b, b.Ready
	e.server = &http.Server{Handler: e.socketHandler(), ReadHeaderTimeout: readHeaderTimeout}
	e.serve(e.pipe)
	socket, err := listen(home.Socket())
	if err != nil {
		p.note("countersign: other commands cannot reach this one: %v", err)
		return e, nil
	}
	e.serve(socket)
	return e, nil
}

// notifier tells people of requests: by mails, which are files of the store directory, and by Slack where there is a token among the secrets. Who is
// in no directory with an address is told by nothing, and finds requests by listing them.
func (p *program) notifier(e *engine) (*notify.Notifier, error) {
	channels, err := local.Channels(context.Background(), p.home, p.secrets().Secret, p.clock)
	if err != nil {
		return nil, usage("%v", err)
	}
	return &notify.Notifier{Channels: channels, Links: ownLinks{e}, Warn: func(what string, err error) {
		if err != nil {
			what += ": " + err.Error()
		}
		p.note("%-8s could not %s", "trouble", line(what))
	}}, nil
}

func (p *program) secrets() secrets.Local {
	return secrets.Local{File: filepath.Join(p.home, secrets.FileName), Getenv: p.getenv}
}

// reached is where the API is reached by whoever is asked for an answer: where the environment says, else dev's own address. "" = nowhere:
// this command serves no port.
func (e *engine) reached() string {
	if base := e.p.getenv("COUNTERSIGN_CALLBACK_URL"); base != "" {
		return base
	}
	if url := e.url.Load(); url != nil {
		return *url
	}
	return ""
}

const readHeaderTimeout = 10 * time.Second

// tracer records runs where the environment names a collector; nil = it names none.
func (p *program) tracer() (*tracing.Tracer, error) {
	draw := ids.System(p.clock)
	return tracing.FromEnv(p.getenv, tracing.Sources{
		Clock: p.clock, Random: draw.Fill, Jitter: draw.Jitter, Log: func(text string) { p.note("%-8s %s", "trouble", line(text)) },
	})
}

// trouble tells of a function of the state machine that failed. What passes by itself is tried again.
func (p *program) trouble(function string, err error) {
	p.note("%-8s %s failed: %s", "trouble", function, line(err.Error()))
}

// caller is who a request of the socket is made for. Only the owner of the machine can open it.
func caller(who people) func(*http.Request) (api.Caller, error) {
	return func(r *http.Request) (api.Caller, error) {
		p, err := who.acting(r.Header.Get(api.AsHeader))
		return api.Caller{Tenant: local.Tenant, Principal: p}, err
	}
}

func (e *engine) serve(l net.Listener) {
	e.p.clock.Go(func() {
		if err := e.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			e.p.note("countersign: serve %s: %v", l.Addr(), err)
		}
	})
}

// listen opens the socket. Whoever has the store may replace one that is left from a process that died.
func listen(path string) (net.Listener, error) {
	info, err := os.Lstat(path)
	switch {
	case err == nil && info.Mode()&fs.ModeSocket == 0:
		return nil, fmt.Errorf("listen on %s: there is something else", path)
	case err == nil:
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("listen on %s: %w", path, err)
		}
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// client talks to this very process.
func (e *engine) client(as agent.Principal) *api.Client {
	return api.NewClient(e.pipe.dial, as.String())
}

// defaultGrace is how long requests that are being answered may take once the process ends.
const defaultGrace = 5 * time.Second

// Close stops serving, lets handlers come to a safe point and closes the store.
func (e *engine) Close() error {
	e.feed.Close()
	ctx, cancel := e.p.clock.WithTimeout(context.Background(), cmp.Or(e.p.grace, defaultGrace))
	defer cancel()
	if e.web != nil {
		e.web.close(ctx)
	}
	err := e.server.Shutdown(ctx)
	if err != nil {
		err = errors.Join(fmt.Errorf("stop serving: %w", err), e.server.Close())
	}
	if closed := e.home.Close(); closed != nil {
		err = errors.Join(err, fmt.Errorf("close store %s: %w", e.p.home, closed))
	}
	return err
}
