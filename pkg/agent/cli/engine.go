package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/ids"
	"github.com/countersign/countersign/internal/lambdafn"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/observe"
	"github.com/countersign/countersign/internal/people/notify"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/prompt"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/secrets"

	"github.com/countersign/countersign/internal/web/api"
)

// engine is the store, opened by this process, and the API over it.
type engine struct {
	p         *program
	home      *local.Home
	feed      *api.Feed
	pipe      *local.Pipe
	backend   api.Backend
	observer  *lambdafn.Observer
	telemetry *observe.Telemetry // sends what observer records; nil = no exporter
	server    *http.Server
	web       *webServer             // of dev; nil in every other command
	url       atomic.Pointer[string] // of web
	ready     func(context.Context) error
	ring      *keyringFile // signs callbacks and links
}

// openEngine opens the store and serves it. The error is local.ErrInUse if another process has the store.
func (p *program) openEngine(who principals) (*engine, error) {
	feed := api.NewFeed(p.clock)
	onDelta := prompt.TranslateTags(feed.ReceiveDelta)
	model := func(m agent.ModelSpec) (runtime.Model, error) { return p.newModel(m, onDelta) }
	ring := &keyringFile{home: p.home, newKey: ids.System(p.clock).Token}
	remotes, err := local.Remotes(p.home, p.getenv, p.clock, &p.aws)
	if err != nil {
		return nil, err
	}
	e := &engine{p: p, feed: feed, pipe: local.NewPipe(), ring: ring}
	notifier, err := p.newNotifier(e)
	if err != nil {
		return nil, err
	}
	// Runs are observed if the environment names an OpenTelemetry exporter.
	e.observer, e.telemetry, err = lambdafn.Watch(p.getenv, exporters{p.getenv}, p.clock, func(text string) {
		p.logEvent("trouble", "%s", line(text))
	})
	if err != nil {
		return nil, err
	}
	home, err := local.Open(local.Options{
		Remotes: remotes, Trusts: p.newTrustNotice(), Functions: &p.aws, Embedder: local.Embedder{Dir: p.home,
			Getenv: p.getenv, From: &p.aws},
		Callbacks: secrets.Addresses{Ring: ring.loadOrCreate, Base: e.callbackBase},
		Notify:    notifier,
		Dir:       p.home, Registry: p.registry, Agents: p.agents().Agent, Model: model, Sink: feed, Watch: e.observer,
		Trouble: p.logFailure,
		Busy:    p.logBusyModel, Clock: p.clock, People: who.Book,
	})
	if err != nil {
		e.telemetry.Shutdown(context.Background())
		return nil, err
	}
	log := slog.New(slog.NewTextHandler(p.stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	b := home.Backend(local.Serving{Agents: p.agents(), Feed: feed, Caller: newCallerFunc(who), Log: log})
	b.Callbacks = ring.load
	e.home, e.backend, e.ready = home, b, b.Ready
	e.server = p.newServer(e.socketHandler())
	e.serve(e.pipe)
	socket, err := listenSocket(home.Socket())
	if err != nil {
		p.logLine("countersign: other commands cannot reach this one: %v", err)
		return e, nil
	}
	e.serve(socket)
	return e, nil
}

// newNotifier notifies approvers by mail, written as files to the store directory, and by Slack if a token is among
// the secrets. People without an address list their requests themselves.
func (p *program) newNotifier(e *engine) (*notify.Notifier, error) {
	channels, err := local.Channels(context.Background(), p.home, p.localSecrets().Secret, p.clock)
	if err != nil {
		return nil, usageErrorf("%v", err)
	}
	return &notify.Notifier{Channels: channels, Links: engineLinks{e}, Warn: func(what string, err error) {
		if err != nil {
			what += ": " + err.Error()
		}
		p.logEvent("trouble", "could not %s", line(what))
	}}, nil
}

func (p *program) localSecrets() secrets.Local {
	return local.Secrets(p.home, p.getenv)
}

// callbackBase returns the base URL of callbacks: COUNTERSIGN_CALLBACK_URL, else the address of dev. It is empty if
// this command serves no port.
func (e *engine) callbackBase() string {
	if base := e.p.getenv("COUNTERSIGN_CALLBACK_URL"); base != "" {
		return base
	}
	if url := e.url.Load(); url != nil {
		return *url
	}
	return ""
}

// logFailure logs a failed function of the state machine. The machine retries what may pass.
func (p *program) logFailure(function string, err error) {
	p.logEvent("trouble", "%s failed: %s", function, line(err.Error()))
}

// newTrustNotice returns a function that logs, once for each agent and server, that a server is not in mcp.lock and
// is trusted.
func (p *program) newTrustNotice() func(agent, server string) {
	var logged sync.Map
	return func(agent, server string) {
		if _, again := logged.LoadOrStore(agent+"/"+server, true); !again {
			p.logEvent("trusted", "server %s of %s is not in mcp.lock: its tools are trusted as they are, on this machine "+
				"alone (%s pins them)", line(server), line(agent), p.commandLine("mcp", "lock"))
		}
	}
}

// logBusyModel logs a run that waits to retry its model.
func (p *program) logBusyModel(run string, err error, again time.Duration) {
	p.logEvent("busy", "run %s waits: %s; asks again in %s", run, line(err.Error()),
		again.Truncate(time.Second)+time.Second)
}

// newCallerFunc returns the caller of a socket request. Only the owner of the machine can open the socket.
func newCallerFunc(who principals) func(*http.Request) (api.Caller, error) {
	return func(r *http.Request) (api.Caller, error) {
		p, err := who.resolvePrincipal(r.Header.Get(api.AsHeader))
		return api.Caller{Tenant: local.Tenant, Principal: p}, err
	}
}

func (e *engine) serve(l net.Listener) {
	e.p.clock.Go(func() {
		if err := e.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			e.p.logLine("countersign: serve %s: %v", l.Addr(), err)
		}
	})
}

// listenSocket opens the socket. The process that holds the store may replace the socket of a process that died.
func listenSocket(path string) (net.Listener, error) {
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

// newClient returns a client of this very process.
func (e *engine) newClient(as policy.Principal) *api.Client {
	return api.NewClient(e.pipe.Dial, as.String())
}

// defaultGrace is how long running calls may take after an interrupt. requestGrace is how long HTTP requests may take
// after that.
const (
	defaultGrace = 20 * time.Second
	requestGrace = 5 * time.Second
)

// silentGrace is how long drain waits before it prints a note.
const silentGrace = 200 * time.Millisecond

func (p *program) shutdownGrace() time.Duration { return cmp.Or(p.grace, defaultGrace) }

// drain starts nothing new and waits for running calls, also for runs that other commands follow. It keeps serving
// meanwhile. The end of ctx cuts it short. If ctx has ended already, only a second Ctrl-C does.
func (e *engine) drain(ctx context.Context) {
	if ctx.Err() != nil {
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancel := e.p.clock.WithTimeout(ctx, e.p.shutdownGrace())
	defer cancel()
	soon, done := e.p.clock.WithTimeout(ctx, silentGrace)
	defer done()
	if e.home.Drain(soon) == nil {
		return
	}
	if runs := e.home.ActiveRuns(); len(runs) > 0 {
		e.p.logLine("countersign: what is under way of run %s has %s to end; Ctrl-C ends at once", strings.Join(runs,
			", "), e.p.shutdownGrace())
	}
	if e.home.Drain(ctx) != nil {
		e.p.logLine("countersign: what is under way of run %s is cut off; whoever carries it on finds out what became of it",
			strings.Join(e.home.ActiveRuns(), ", "))
	}
}

// drainAndClose waits for running calls and closes the engine.
func (e *engine) drainAndClose(ctx context.Context) error {
	e.drain(ctx)
	return e.Close()
}

// Close stops serving, waits for handlers to reach a safe point and closes the store.
func (e *engine) Close() error {
	e.feed.Close()
	ctx, cancel := e.p.clock.WithTimeout(context.Background(), min(e.p.shutdownGrace(), requestGrace))
	defer cancel()
	if e.web != nil {
		e.p.shutDownServer(ctx, e.web.server)
	}
	e.p.shutDownServer(ctx, e.server)
	err := e.home.Close()
	e.telemetry.Shutdown(context.Background())
	if err != nil {
		return fmt.Errorf("close store %s: %w", e.p.home, err)
	}
	return nil
}

// shutDownServer waits for requests until ctx ends and cuts off the rest, which is no error.
func (p *program) shutDownServer(ctx context.Context, s *http.Server) {
	if err := s.Shutdown(ctx); err != nil {
		p.logLine("countersign: requests were cut off: %s", lines(errors.Join(err, s.Close()).Error()))
	}
}
