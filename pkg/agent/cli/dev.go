package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/lambdafn"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/people"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/secrets"
	"github.com/countersign/countersign/internal/web"
)

// devCommand serves the API on a TCP port, beside the socket, until it is interrupted. It serves the registered
// agents and those of the current directory, which it reads again when they are saved.
type devCommand struct {
	Addr           string `default:"127.0.0.1:8420" placeholder:"HOST:PORT" help:"Where to listen (127.0.0.1:8420)."`
	InsecureListen bool   `help:"Allow an address that others can reach. Nothing is encrypted."`
}

func (c *devCommand) run(ctx context.Context, p *program) error {
	host, port, err := c.parseAddr()
	if err != nil {
		return err
	}
	p.live = &liveAgents{p: p}
	who, as, err := p.resolvePrincipals()
	if err != nil {
		return err
	}
	e, err := p.awaitEngine(ctx, who, func() (bool, error) {
		var by engineInfo
		if err := p.queryEngine(ctx, enginePath, &by); err != nil || by.PID == 0 {
			return false, nil // a process that does not answer is waited for
		}
		where := ""
		if by.URL != "" {
			where = " on " + line(by.URL)
		}
		return true, fmt.Errorf("the store %s is served already, by process %d, countersign %s%s", p.home, by.PID,
			line(by.Command), where)
	})
	if err != nil {
		return err
	}
	return errors.Join(c.serve(ctx, e, host, port, as), e.drainAndClose(ctx))
}

// parseAddr checks the address and returns where to listen. It does not resolve localhost, which always means this
// machine.
func (c *devCommand) parseAddr() (host, port string, err error) {
	if host, port, err = net.SplitHostPort(c.Addr); err != nil {
		return "", "", usageErrorf("--addr: got %q, want HOST:PORT, such as 127.0.0.1:8420", c.Addr)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "", "", usageErrorf("--addr: got port %q, want 0 to 65535", port)
	}
	if strings.EqualFold(host, "localhost") {
		return "127.0.0.1", port, nil
	}
	ip, err := netip.ParseAddr(host)
	if (err != nil || !ip.IsLoopback()) && !c.InsecureListen {
		return "", "", usageErrorf("--addr: others can reach %q, and whoever has the token owns this machine; want "+
			"127.0.0.1, [::1] or localhost, or --insecure-listen if it is meant", c.Addr)
	}
	return host, port, nil
}

// serve listens, resumes open runs, and waits for the interrupt or an error of the server.
func (c *devCommand) serve(ctx context.Context, e *engine, host, port string, as policy.Principal) error {
	token, err := readToken(e.home.Dir, clock.NewIDs(e.p.clock).Token)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, port))
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("listen on %s: another process has the port; choose one with --addr", c.Addr)
	}
	if err != nil {
		return fmt.Errorf("listen on %s: %w", c.Addr, err)
	}
	if e.web, err = newWebServer(e, host, l.Addr().(*net.TCPAddr), token, as); err != nil {
		return errors.Join(err, l.Close())
	}
	if err := e.ready(ctx); err != nil {
		return errors.Join(err, l.Close())
	}
	failed := make(chan error, 1)
	e.p.clock.Go(func() { failed <- e.web.server.Serve(l) })
	if err := e.web.printAddress(); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		e.p.logLine("countersign: ending; what is under way has %s to end, and runs stay as they are. Ctrl-C "+
			"once more ends at once", e.p.grace)
		return nil
	case err := <-failed:
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	}
}

// webServer is the API with the console on a TCP port. Whoever has the token acts as one principal.
type webServer struct {
	engine *engine
	server *http.Server
	as     policy.Principal
	url    string // http://HOST:PORT
	open   bool   // the port is not on a loopback address
	token  string
}

// newWebServer makes the web of an engine. Host is what was asked to be listened on, at is what came of it.
func newWebServer(e *engine, host string, at *net.TCPAddr, token string, as policy.Principal) (*webServer, error) {
	w := &webServer{engine: e, as: as, token: token, open: !at.IP.IsLoopback()}
	guard := web.Guard{Token: token, Port: strconv.Itoa(at.Port), Open: w.open}
	here := at.IP.String()
	if at.IP.IsUnspecified() { // a browser cannot open that
		here = "127.0.0.1"
	}
	w.url = "http://" + net.JoinHostPort(here, guard.Port)
	if net.ParseIP(host) == nil {
		guard.Name = host
	}
	for _, name := range []string{envWebURL, envCallbackURL} {
		base := e.p.getenv(name)
		if base == "" {
			continue
		}
		at, err := url.Parse(base)
		if err != nil || at.Scheme != "https" && at.Scheme != "http" || at.Host == "" {
			return nil, usageErrorf("%s: want an address such as https://example.com", name)
		}
		guard.Public = append(guard.Public, at.Host)
	}
	b := e.backend
	b.Via = agent.ViaAPI
	b.Caller = func(*http.Request) (web.Caller, error) { // a header proves nothing; only the token does
		return web.Caller{Tenant: local.Tenant, Principal: as}, nil
	}
	pages, err := e.newPagesHandler()
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle(approval.LinkPath, pages) // no token: the link authenticates the visitor
	mux.Handle(people.SlackPath, pages)
	console, served := newConsole(e, token, as), web.APIHandler(b)
	console.API = served
	mux.Handle("/", console.Handler())
	guard.HasFormProof, guard.Fragment = web.IsRequestForm, console.KeyFragment()
	mux.Handle(web.APIPath, e.observer.Trace.HTTP(served))
	signIn := &web.SignIn{IsToken: guard.IsToken, Accept: guard.AcceptToken, Clock: e.p.clock}
	if !w.open { // do not disclose the store's path to others
		if signIn.File, err = filepath.Abs(filepath.Join(e.home.Dir, tokenFile)); err != nil {
			return nil, fmt.Errorf("find the token: %w", err)
		}
	}
	guard.SignIn = signIn.Handler()
	w.server = e.p.newServer(guard.Protect(mux))
	closeUnused(w.server)
	e.url.Store(&w.url)
	return w, nil
}

type devResult struct {
	URL    string   `json:"url"`
	Open   string   `json:"open"` // with the token
	As     string   `json:"as"`
	Agents []string `json:"agents"`
}

// printAddress prints where to go. The link with the token is for the person who typed the command.
func (w *webServer) printAddress() error {
	p := w.engine.p
	doc := devResult{URL: w.url, Open: w.url + "/?token=" + url.QueryEscape(w.token), As: w.as.ID,
		Agents: p.agents().Agents()}
	if w.open {
		p.logLine("countersign: others can reach this port. Whoever has the token owns this machine, and " +
			"nothing is encrypted")
	}
	if p.json {
		return p.writeJSON(doc)
	}
	p.printLine("serving agents %s as %s", cmp.Or(strings.Join(doc.Agents, ", "), "(none)"), line(doc.As))
	p.printLine("open %s", doc.Open)
	return nil
}

// closeUnused closes the connections on which nothing was sent yet when the server shuts down. Browsers open such
// connections ahead, and a shutdown would wait for them.
func closeUnused(s *http.Server) {
	var mu sync.Mutex
	unused, closed := map[net.Conn]bool{}, false
	s.ConnState = func(c net.Conn, state http.ConnState) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case state != http.StateNew:
			delete(unused, c)
		case closed:
			_ = c.Close() // nothing was sent on it
		default:
			unused[c] = true
		}
	}
	s.RegisterOnShutdown(func() {
		mu.Lock()
		defer mu.Unlock()
		closed = true
		for c := range unused {
			_ = c.Close() // nothing was sent on it
		}
	})
}

// newConsole returns the web console of an engine. The console reads and acts through the API client, and decides
// through the approval desk.
func newConsole(e *engine, token string, as policy.Principal) *web.Console {
	draw := clock.NewIDs(e.p.clock)
	c := e.newDeployment().Console(web.Caller{Tenant: local.Tenant, Principal: as}, e.newClient(as))
	c.Agents, c.Definition = e.p.agents().Agents, e.p.agents().Agent
	c.Models = []string{"demo", "openai:qwen3@http://127.0.0.1:11434/v1",
		"bedrock:global.anthropic.claude-sonnet-4-5-20250929-v1:0"}
	c.WithModel = e.p.withModel
	if e.p.live != nil {
		c.Broken = e.p.live.Broken
	}
	c.Token, c.Start, c.Key = token, draw.Token()[:10], draw.Token()
	return c
}

// newPagesHandler serves the approval pages and Slack interactions, as functions/http does. A POST first resumes the
// state machine, as in the API.
func (e *engine) newPagesHandler() (http.Handler, error) {
	signing, err := local.OptionalSecret(context.Background(), e.p.localSecrets(), local.SlackSecret)
	if err != nil {
		return nil, usageErrorf("%v", err)
	}
	d := e.newDeployment()
	d.Links = e.links
	if signing != "" {
		app, err := lambdafn.SlackApp(e.p.getenv, signing)
		if err != nil {
			return nil, usageErrorf("secret %s: %v", local.SlackSecret, err)
		}
		d.Slack = func(context.Context) (*people.SlackInteractions, error) { return app, nil }
	}
	pages := d.PagesHandler()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			if err := e.ready(r.Context()); err != nil {
				e.p.logFailure("page", err)
				http.Error(w, "the store could not be resumed", http.StatusServiceUnavailable)
				return
			}
		}
		pages.ServeHTTP(w, r)
	}), nil
}

func (e *engine) newDeployment() *lambdafn.Deployment {
	d := *e.home.Deployment
	d.Log = e.backend.Log
	return &d
}

// keyringFile is the keyring in HOME/keyring, created on first use. Only the process with the store uses it. Safe for
// concurrent use.
type keyringFile struct {
	home   string
	newKey func() string // returns a random key

	mu   sync.Mutex
	ring *secrets.Ring
}

// loadOrCreate reads the keyring or creates one.
func (k *keyringFile) loadOrCreate() (*secrets.Ring, error) { return k.read(true) }

// load reads the keyring. It returns nil if none was created, which means that nothing was ever signed.
func (k *keyringFile) load() (*secrets.Ring, error) { return k.read(false) }

// read's errors contain no key.
func (k *keyringFile) read(minting bool) (*secrets.Ring, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ring != nil {
		return k.ring, nil
	}
	name := filepath.Join(k.home, "keyring")
	text, err := readPrivate(name)
	if errors.Is(err, fs.ErrNotExist) {
		if !minting {
			return nil, nil
		}
		if text, err = secrets.Mint(k.newKey()); err == nil {
			text, err = writePrivate(name, text)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read the ring of keys: %w", err)
	}
	if k.ring, err = secrets.Parse(text); err != nil {
		return nil, fmt.Errorf("%s: %w; remove it, and a new one is made", name, err)
	}
	return k.ring, nil
}

// readPrivate reads a file that only its owner can read.
func readPrivate(name string) (string, error) {
	info, err := os.Lstat(name)
	switch {
	case err != nil:
		return "", err
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("%s: want a regular file", name)
	case info.Mode().Perm()&0o077 != 0:
		return "", fmt.Errorf("%s: others can read it (mode %#o, want 0600)", name, info.Mode().Perm())
	}
	data, err := os.ReadFile(name)
	return string(data), err
}

// tokenFile holds the token, in HOME.
const tokenFile = "token"

var tokenPattern = regexp.MustCompile(`^[a-z2-7]{52}$`)

// readToken returns the token in HOME/token. Whoever sends it to dev's port owns the store. The first call creates
// the token. The caller holds the store's lock, so no other process creates one.
func readToken(home string, draw func() string) (string, error) {
	name := filepath.Join(home, tokenFile)
	text, err := readPrivate(name)
	if errors.Is(err, fs.ErrNotExist) {
		return writePrivate(name, draw())
	}
	token := strings.TrimSpace(text)
	if err == nil && !tokenPattern.MatchString(token) {
		err = fmt.Errorf("%s: want 52 characters of a-z and 2-7", name)
	}
	if err != nil {
		return "", usageErrorf("%w; remove it, and a new token is made", err)
	}
	return token, nil
}

// writePrivate writes a file with mode 0600 atomically.
func writePrivate(name, token string) (string, error) {
	f, err := os.CreateTemp(filepath.Dir(name), "token-*")
	if err != nil {
		return "", fmt.Errorf("make token: %w", err)
	}
	_, err = f.WriteString(token + "\n")
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return "", fmt.Errorf("make token: %w", errors.Join(err, os.Remove(f.Name())))
	}
	return token, nil
}
