package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.opentelemetry.io/contrib/exporters/autoexport"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/lambdafn"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/observe"
	"github.com/countersign/countersign/internal/people"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/prompt"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/scenario"
	"github.com/countersign/countersign/internal/secrets"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/tool"
	"github.com/countersign/countersign/internal/web"
)

// engine is the store, opened by this process, and the API over it.
type engine struct {
	p         *program
	home      *local.Home
	feed      *web.Feed
	pipe      *local.Pipe
	backend   web.Backend
	observer  *lambdafn.Observer
	telemetry *observe.Telemetry // sends what observer records; nil = no exporter
	server    *http.Server
	web       *webServer             // of dev; nil in every other command
	url       atomic.Pointer[string] // of web
	ready     func(context.Context) error
	links     *approval.Links // to approval pages
}

// The addresses by which others reach this machine, such as a tunnel's: of approval links, and of callbacks.
const (
	envWebURL      = "COUNTERSIGN_WEB_URL"
	envCallbackURL = "COUNTERSIGN_CALLBACK_URL"
)

// openEngine opens the store and serves it. The error is local.ErrInUse if another process has the store.
func (p *program) openEngine(who principals) (*engine, error) {
	feed := web.NewFeed(p.clock)
	onDelta := prompt.TranslateTags(feed.ReceiveDelta)
	model := func(m agent.ModelSpec) (runtime.Model, error) { return p.newModel(m, onDelta) }
	ring := &keyringFile{home: p.home, newKey: clock.NewIDs(p.clock).Token}
	remotes, err := local.Remotes(p.home, p.getenv, p.clock, &p.aws)
	if err != nil {
		return nil, err
	}
	e := &engine{p: p, feed: feed, pipe: local.NewPipe()}
	e.links = &approval.Links{ // over a table that is still to be opened
		Ring: ring.load, Sign: ring.loadOrCreate, Clock: p.clock, IDs: clock.NewIDs(p.clock),
		Base: func() string { return cmp.Or(p.getenv(envWebURL), e.address()) },
	}
	notifier, err := p.newNotifier(e.links)
	if err != nil {
		return nil, err
	}
	var trusted sync.Map // the servers that were logged, by agent
	// Runs are observed if the environment names an OpenTelemetry exporter.
	e.observer, e.telemetry, err = lambdafn.Watch(p.getenv, exporters{p.getenv}, p.clock, func(text string) {
		p.logEvent("trouble", "%s", line(text))
	})
	if err != nil {
		return nil, err
	}
	e.home, err = local.Open(p.home, p.registry, model, local.Config{
		Agents: p.agents().Agent, Sink: feed, Watch: e.observer,
		Clock: p.clock, People: who.Book, Notify: notifier, Trouble: p.logFailure,
		Remotes: remotes, Functions: &p.aws, Embedder: local.Embedder{Dir: p.home, Getenv: p.getenv, From: &p.aws},
		Callbacks: secrets.Addresses{Ring: ring.loadOrCreate, Base: func() string {
			return cmp.Or(p.getenv(envCallbackURL), e.address())
		}},
		Busy: func(run string, err error, again time.Duration) {
			p.logEvent("busy", "run %s waits: %s; asks again in %s", run, line(err.Error()),
				again.Truncate(time.Second)+time.Second)
		},
		Trusts: func(agent, server string) {
			if _, again := trusted.LoadOrStore(agent+"/"+server, true); !again {
				p.logEvent("trusted", "server %s of %s is not in mcp.lock: its tools are trusted as they are, on this machine "+
					"alone (%s pins them)", line(server), line(agent), p.commandLine("mcp", "lock"))
			}
		},
	})
	if err != nil {
		e.telemetry.Shutdown(context.Background())
		if _, ok := errors.AsType[*fs.PathError](err); ok {
			err = fmt.Errorf("%w (--home or COUNTERSIGN_HOME name another folder)", err)
		}
		return nil, err
	}
	e.backend = e.home.Backend()
	e.backend.Agents, e.backend.Feed, e.backend.Caller = p.agents(), feed, newCallerFunc(who)
	e.backend.Log = slog.New(slog.NewTextHandler(p.stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	e.backend.Callbacks, e.ready, e.links.Table = ring.load, e.backend.Ready, e.backend.Table
	e.backend.Ready = func(ctx context.Context) error { // of this command's own requests, carryOn says what is resumed
		if at, ok := ctx.Value(http.LocalAddrContextKey).(net.Addr); ok && at.Network() == "pipe" {
			return nil
		}
		return e.ready(ctx)
	}
	e.server = p.newServer(e.socketHandler())
	e.serve(e.pipe)
	socket, err := listenSocket(local.SocketPath(p.home))
	if err != nil {
		p.logLine("countersign: other commands cannot reach this one: %v", err)
		return e, nil
	}
	e.serve(socket)
	return e, nil
}

// newNotifier notifies approvers by mail, written as files to the store directory, and by Slack if a token is among
// the secrets. People without an address list their requests themselves.
func (p *program) newNotifier(links people.Links) (*people.Notifier, error) {
	channels, err := local.Channels(context.Background(), p.home, p.localSecrets(), p.clock)
	if err != nil {
		return nil, usageErrorf("%v", err)
	}
	return &people.Notifier{Channels: channels, Links: links, Warn: func(what string, err error) {
		if err != nil {
			what += ": " + err.Error()
		}
		p.logEvent("trouble", "could not %s", line(what))
	}}, nil
}

func (p *program) localSecrets() tool.LocalSecrets { return local.Secrets(p.home, p.getenv) }

// logFailure logs a failed function of the state machine. The machine retries what may pass.
func (p *program) logFailure(function string, err error) {
	p.logEvent("trouble", "%s failed: %s", function, line(err.Error()))
}

// newCallerFunc returns the caller of a socket request. Only the owner of the machine can open the socket.
func newCallerFunc(who principals) func(*http.Request) (web.Caller, error) {
	return func(r *http.Request) (web.Caller, error) {
		p, err := who.resolvePrincipal(r.Header.Get(web.AsHeader))
		return web.Caller{Tenant: local.Tenant, Principal: p}, err
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
	if info, err := os.Lstat(path); err == nil {
		if info.Mode()&fs.ModeSocket == 0 {
			return nil, fmt.Errorf("listen on %s: there is something else", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("listen on %s: %w", path, err)
		}
	}
	l, err := net.Listen("unix", path)
	if errors.Is(err, syscall.EINVAL) { // it has more than about 100 bytes
		err = fmt.Errorf("%w: the path is too long for a socket; want a shorter --home", err)
	}
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func (e *engine) newClient(as policy.Principal) *web.Client {
	return web.NewClient(e.pipe.Dial, as.String())
}

const (
	defaultGrace = 20 * time.Second // for running calls after an interrupt
	silentGrace  = time.Second      // of these, before a note is printed
	requestGrace = 5 * time.Second  // for HTTP requests after them
)

// drainAndClose starts nothing new and waits for running calls, also for runs that other commands follow. It keeps
// serving meanwhile. The end of ctx cuts it short. If ctx has ended already, only a second Ctrl-C does. Then it closes
// the engine.
func (e *engine) drainAndClose(ctx context.Context) error {
	if ctx.Err() != nil {
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancel := e.p.clock.WithTimeout(ctx, e.p.grace)
	defer cancel()
	soon, done := e.p.clock.WithTimeout(ctx, silentGrace)
	defer done()
	if e.home.Engine.Drain(soon) == nil {
		return e.Close()
	}
	if runs := e.home.ActiveRuns(); len(runs) > 0 {
		e.p.logLine("countersign: what is under way of run %s has %s to end; Ctrl-C ends at once", strings.Join(runs,
			", "), e.p.grace)
	}
	if e.home.Engine.Drain(ctx) != nil {
		e.p.logLine("countersign: what is under way of run %s is cut off; whoever carries it on finds out what became of it",
			strings.Join(e.home.ActiveRuns(), ", "))
	}
	return e.Close()
}

// Close stops serving, waits for handlers to reach a safe point and closes the store.
func (e *engine) Close() error {
	e.feed.Close()
	ctx, cancel := e.p.clock.WithTimeout(context.Background(), min(e.p.grace, requestGrace))
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

// engineInfo describes the process that serves a store: the answer to GET /engine on its socket.
type engineInfo struct {
	PID     int    `json:"pid"`
	Command string `json:"command"`       // its name, such as dev
	URL     string `json:"url,omitempty"` // where it serves TCP, without the token; "" = nowhere
}

// What processes of countersign ask each other is served on the socket only. It is not part of the API. A tool's
// definition says which arguments are secret, and only the process with the store can read it.
const (
	enginePath     = "/engine"
	definitionPath = "/engine/definition"
	exportPath     = "/engine/export"
	stalledPath    = "/engine/stalled"
)

// socketHandler serves the API and what processes of countersign ask each other.
func (e *engine) socketHandler() http.Handler {
	mux := http.NewServeMux()
	serve := func(path string, answer func(ctx context.Context, q url.Values) (any, error)) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			v, err := answer(r.Context(), r.URL.Query())
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(v) // the client has gone
		})
	}
	serve(enginePath, func(context.Context, url.Values) (any, error) {
		return engineInfo{os.Getpid(), e.p.command, e.address()}, nil
	})
	serve(definitionPath, func(ctx context.Context, q url.Values) (any, error) {
		return e.loadDefinition(ctx, q.Get("run"))
	})
	serve(exportPath, func(ctx context.Context, q url.Values) (any, error) {
		return e.exportTest(ctx, q.Get("run"), q.Get("redact") == "true"), nil
	})
	serve(stalledPath, func(ctx context.Context, q url.Values) (any, error) {
		var why stalledError
		if err := e.checkStalled(ctx, q.Get("run")); err != nil && !errors.As(err, &why) {
			return nil, err
		}
		return why, nil
	})
	mux.Handle("/", e.observer.Trace.HTTP(web.APIHandler(e.backend)))
	return mux
}

// address is where dev serves TCP, without the token; "" = nowhere.
func (e *engine) address() string {
	if at := e.url.Load(); at != nil {
		return *at
	}
	return ""
}

type exportedTest struct {
	Data    []byte
	Problem string
}

func (e *engine) exportTest(ctx context.Context, run string, redact bool) (made exportedTest) {
	from := storedRuns{e.backend.Journal, e.home.Ports.Blobs, local.Tenant}
	var err error
	if made.Data, err = scenario.Export(ctx, from, run, redact, e.p.registry.Options()); err != nil {
		made.Problem = err.Error()
	}
	return made
}

// storedRuns implements scenario.Recorded over a store.
type storedRuns struct {
	journal web.Journal
	blobs   store.Blobs
	tenant  string
}

func (s storedRuns) Entries(ctx context.Context, id string) ([]run.Entry, error) {
	entries, err := s.journal.Entries(ctx, s.tenant, id, 0, 0)
	if err == nil && len(entries) == 0 {
		err = store.ErrNoRun
	}
	return entries, err
}

func (s storedRuns) Blob(ctx context.Context, digest string) ([]byte, error) {
	return s.blobs.Get(ctx, s.tenant, digest)
}

// timeouts limit how long a client of the port or the socket may take. Zero values mean the defaults. Answers have no
// limit, since event streams end by themselves.
type timeouts struct {
	header time.Duration // to send a request's header; 0 = 10 s
	body   time.Duration // to send its body; 0 = 30 s
	idle   time.Duration // between two requests on one connection; 0 = 2 min
}

func (p *program) newServer(next http.Handler) *http.Server {
	next = local.FinishChanges(next)
	bounded := func(w http.ResponseWriter, r *http.Request) {
		if r.Body == nil || r.Body == http.NoBody {
			next.ServeHTTP(w, r)
			return
		}
		limit := cmp.Or(p.timeouts.body, 30*time.Second)
		if r.Method == http.MethodPut && strings.HasPrefix(r.URL.Path, "/v1/blobs/") {
			limit = 15 * time.Minute // as for S3
		}
		conn := http.NewResponseController(w)
		if err := conn.SetReadDeadline(p.clock.Now().Add(limit)); err != nil {
			http.Error(w, "the connection cannot be bounded in time", http.StatusInternalServerError)
			return
		}
		r.Body = &timedBody{r.Body, conn}
		next.ServeHTTP(w, r)
	}
	return &http.Server{
		Handler: http.HandlerFunc(bounded), ReadHeaderTimeout: cmp.Or(p.timeouts.header, 10*time.Second),
		IdleTimeout: cmp.Or(p.timeouts.idle, 2*time.Minute), MaxHeaderBytes: 64 << 10,
	}
}

// timedBody removes the read deadline of its connection after the last byte.
type timedBody struct {
	io.ReadCloser
	conn *http.ResponseController
}

func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		_ = b.conn.SetReadDeadline(time.Time{}) // fails only on a closed connection
	}
	return n, err
}

// exporters are the exporters of OpenTelemetry's variables: otlp, console, and prometheus for metrics.
type exporters struct{ getenv func(string) string }

func (exporters) Protocols(signal string) []string {
	return append(observe.OTLP{}.Protocols(signal), "grpc")
}

func (x exporters) Spans(ctx context.Context, name string) (sdktrace.SpanProcessor, error) {
	if !x.usesAutoexport(name, "TRACES") {
		return observe.OTLP{}.Spans(ctx, name)
	}
	e, err := autoexport.NewSpanExporter(ctx)
	if err != nil {
		return nil, err
	}
	return sdktrace.NewBatchSpanProcessor(e), nil
}

// Metrics sends metrics every minute and at the end, or serves them.
func (x exporters) Metrics(ctx context.Context, name string) (sdkmetric.Reader, error) {
	if !x.usesAutoexport(name, "METRICS") {
		return observe.OTLP{}.Metrics(ctx, name)
	}
	return autoexport.NewMetricReader(ctx)
}

// usesAutoexport reports whether autoexport creates the exporter of a signal. For OTLP it knows two protocols;
// observe.OTLP has the others.
func (x exporters) usesAutoexport(name, signal string) bool {
	_, protocol := observe.ExporterProtocol(x.getenv, signal)
	return name != "" && name != "otlp" || slices.Contains([]string{"", "grpc", "http/protobuf"}, protocol)
}
