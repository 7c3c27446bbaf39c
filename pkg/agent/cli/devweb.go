package cli

import (
	"cmp"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/ids"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/people/link"
	"github.com/countersign/countersign/internal/people/slack"
	"github.com/countersign/countersign/internal/policy"
	webpages "github.com/countersign/countersign/internal/web"
	"github.com/countersign/countersign/internal/web/api"
)

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
	w := &webServer{engine: e, as: as, token: token, url: "http://" + browserAddr(at), open: !at.IP.IsLoopback()}
	guard := api.Guard{Token: token, Port: strconv.Itoa(at.Port), Open: w.open}
	if net.ParseIP(host) == nil {
		guard.Name = host
	}
	b := e.backend
	b.Via = agent.ViaAPI
	b.Caller = func(*http.Request) (api.Caller, error) { // a header proves nothing; only the token does
		return api.Caller{Tenant: local.Tenant, Principal: as}, nil
	}
	pages, err := e.newPagesHandler()
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle(link.Path, pages) // no token: the link authenticates the visitor
	mux.Handle(slack.Path, pages)
	console, served := newConsole(e, token, as), api.Handler(b)
	console.API = served
	mux.Handle("/", console.Handler())
	guard.HasFormProof, guard.Fragment = webpages.IsRequestForm, console.KeyFragment()
	mux.Handle(api.Path, e.observer.Trace.HTTP(served))
	signIn := &webpages.SignIn{IsToken: guard.IsToken, Accept: guard.AcceptToken, Clock: e.p.clock}
	if !w.open { // do not disclose the store's path to others
		if signIn.File, err = filepath.Abs(filepath.Join(e.home.Dir, tokenFile)); err != nil {
			return nil, fmt.Errorf("find the token: %w", err)
		}
	}
	guard.SignIn = signIn.Handler()
	unused := &unusedConns{conns: map[net.Conn]bool{}}
	w.server = e.p.newServer(guard.Protect(mux))
	w.server.ConnState = unused.trackState
	w.server.RegisterOnShutdown(unused.closeAll)
	e.url.Store(&w.url)
	return w, nil
}

// browserAddr returns an address that a local browser can open.
func browserAddr(at *net.TCPAddr) string {
	host := at.IP.String()
	if at.IP.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, strconv.Itoa(at.Port))
}

// devResult is the JSON document of dev, printed when it serves.
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

// unusedConns tracks connections on which nothing was sent yet. Browsers open such connections ahead, and a shutdown
// would wait for them. Safe for concurrent use.
type unusedConns struct {
	mu     sync.Mutex
	conns  map[net.Conn]bool
	closed bool
}

func (u *unusedConns) trackState(c net.Conn, s http.ConnState) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case s != http.StateNew:
		delete(u.conns, c)
	case u.closed:
		_ = c.Close() // nothing was sent on it
	default:
		u.conns[c] = true
	}
}

func (u *unusedConns) closeAll() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closed = true
	for c := range u.conns {
		_ = c.Close() // nothing was sent on it
	}
}

// newConsole returns the web console of an engine. The console reads and acts through the API client, and decides
// through the approval desk.
func newConsole(e *engine, token string, as policy.Principal) *webpages.Console {
	draw := ids.System(e.p.clock)
	c := e.newDeployment().Console(api.Caller{Tenant: local.Tenant, Principal: as}, e.newClient(as))
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
