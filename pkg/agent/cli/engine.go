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
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/ids"
	"github.com/countersign/countersign/internal/lambdafn"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/observe/telemetry"
	"github.com/countersign/countersign/internal/people/notify"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/prompt"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/tools/callback"
	"github.com/countersign/countersign/internal/tools/secrets"
	"github.com/countersign/countersign/internal/web/api"
)

// engine is the store, opened by this process, and the API served over it.
type engine struct {
	p         *program
	home      *local.Home
	feed      *api.Feed
	pipe      *local.Pipe
	backend   api.Backend
	observer  *lambdafn.Observer
	telemetry *telemetry.Telemetry // what watch records; nil = the environment names no exporter
	server    *http.Server
	web       *webServer             // what dev serves beside; nil in every other command
	url       atomic.Pointer[string] // of the web
	ready     func(context.Context) error
	ring      *keyringFile // signs callbacks and links
}

// openEngine opens the store and serves it. The error is local.ErrInUse where another process has it.
func (p *program) openEngine(who principals) (*engine, error) {
	feed := api.NewFeed(p.clock)
	heard := prompt.TranslateTags(feed.Said)
	model := func(m agent.ModelSpec) (runtime.Model, error) { return p.newModel(m, heard) }
	ring := &keyringFile{home: p.home, newKey: ids.System(p.clock).Token}
	remotes, err := local.Remotes(p.home, p.getenv, p.clock, &p.aws)
	if err != nil {
		return nil, err
	}
	e := &engine{p: p, feed: feed, pipe: local.NewPipe(), ring: ring}
	tells, err := p.newNotifier(e)
	if err != nil {
		return nil, err
	}
	if e.observer, e.telemetry, err = p.newObserver(); err != nil {
		return nil, err
	}
	home, err := local.Open(local.Options{
		Remotes: remotes, Trusts: p.newTrustNotice(), Functions: &p.aws, Embedder: local.Embedder{Dir: p.home, Getenv: p.getenv, From: &p.aws},
		Callbacks: callback.Addresses{Ring: ring.loadOrCreate, Base: e.callbackBase},
		Notify:    tells,
		Dir:       p.home, Registry: p.registry, Model: model, Sink: feed, Watch: e.observer, Trouble: p.logFailure, Busy: p.logBusyModel, Clock: p.clock, People: who.Book,
	})
	if err != nil {
		e.telemetry.Shutdown(context.Background())
		return nil, err
	}
	b := home.Backend(local.Serving{Agents: p.registry, Feed: feed, Caller: newCallerFunc(who)})
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

// newNotifier tells people of requests: by mails, which are files of the store directory, and by Slack where there is a token among the secrets. Who is
// in no directory with an address is told by nothing, and finds requests by listing them.
func (p *program) newNotifier(e *engine) (*notify.Notifier, error) {
	channels, err := local.Channels(context.Background(), p.home, p.localSecrets().Secret, p.clock)
	if err != nil {
		return nil, usageErrorf("%v", err)
	}
	return &notify.Notifier{Channels: channels, Links: engineLinks{e}, Warn: func(what string, err error) {
		if err != nil {
			what += ": " + err.Error()
		}
		p.logLine("%-8s could not %s", "trouble", line(what))
	}}, nil
}

func (p *program) localSecrets() secrets.Local {
	return local.Secrets(p.home, p.getenv)
}

// callbackBase is where the API is reached by whoever is asked for an answer: where the environment says, else dev's own address. "" = nowhere:
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

// logFailure tells of a function of the state machine that failed. What passes by itself is tried again.
func (p *program) logFailure(function string, err error) {
	p.logLine("%-8s %s failed: %s", "trouble", function, line(err.Error()))
}

// newTrustNotice returns what tells, once for each agent, that a server is trusted because it is not in mcp.lock.
func (p *program) newTrustNotice() func(agent, server string) {
	var told sync.Map
	return func(agent, server string) {
		if _, again := told.LoadOrStore(agent+"/"+server, true); !again {
			p.logLine("%-8s server %s of %s is not in mcp.lock: its tools are trusted as they are, on this machine alone (%s pins them)",
				"trusted", line(server), line(agent), p.commandLine("mcp", "lock"))
		}
	}
}

// logBusyModel tells of a run that waits for its model.
func (p *program) logBusyModel(run string, err error, again time.Duration) {
	p.logLine("%-8s run %s waits: %s; asks again in %s", "busy", run, line(err.Error()), again.Truncate(time.Second)+time.Second)
}

// newCallerFunc is who a request of the socket is made for. Only the owner of the machine can open it.
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

// listenSocket opens the socket. Whoever has the store may replace one that is left from a process that died.
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

// newClient talks to this very process.
func (e *engine) newClient(as policy.Principal) *api.Client {
	return api.NewClient(e.pipe.Dial, as.String())
}

// defaultGrace is how long calls that are under way may take once the process ends, and answerGrace how long requests then.
const (
	defaultGrace = 20 * time.Second
	requestGrace = 5 * time.Second
)

// silentGrace is how long what is under way is waited for without a word: most of it is the end of what the command did.
const silentGrace = 200 * time.Millisecond

func (p *program) shutdownGrace() time.Duration { return cmp.Or(p.grace, defaultGrace) }

// drain begins nothing more and lets end what is under way, also for the runs of other commands, which it goes on to serve meanwhile. It is cut short by
// the end of ctx, or where that has ended already, by the second Ctrl-C, which kills.
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
		e.p.logLine("countersign: what is under way of run %s has %s to end; Ctrl-C ends at once", strings.Join(runs, ", "), e.p.shutdownGrace())
	}
	if e.home.Drain(ctx) != nil {
		e.p.logLine("countersign: what is under way of run %s is cut off; whoever carries it on finds out what became of it", strings.Join(e.home.ActiveRuns(), ", "))
	}
}

// drainAndClose lets end what is under way, and closes.
func (e *engine) drainAndClose(ctx context.Context) error {
	e.drain(ctx)
	return e.Close()
}

// Close stops serving, lets handlers come to a safe point and closes the store.
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

// shutDownServer lets what is being answered end until ctx does, and cuts off the rest, which is no failure.
func (p *program) shutDownServer(ctx context.Context, s *http.Server) {
	if err := s.Shutdown(ctx); err != nil {
		p.logLine("countersign: requests were cut off: %s", lines(errors.Join(err, s.Close()).Error()))
	}
}
