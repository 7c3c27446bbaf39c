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

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/people/link"
	"github.com/countersign/countersign/internal/people/slack"
	"github.com/countersign/countersign/internal/policy"
	webpages "github.com/countersign/countersign/internal/web"
	"github.com/countersign/countersign/internal/web/api"
)

// web is the API on a TCP port, with the console. Whoever has the token acts as one principal.
type web struct {
	engine *engine
	server *http.Server
	as     policy.Principal
	url    string // http://HOST:PORT
	open   bool   // others can reach the port
	token  string
}

// newWeb makes the web of an engine. Host is what was asked to be listened on, at is what came of it.
func newWeb(e *engine, host string, at *net.TCPAddr, token string, as policy.Principal) (*web, error) {
	w := &web{engine: e, as: as, token: token, url: "http://" + reachable(at), open: !at.IP.IsLoopback()}
	guard := api.Guard{Token: token, Port: strconv.Itoa(at.Port), Open: w.open}
	if net.ParseIP(host) == nil {
		guard.Name = host
	}
	b := e.backend
	b.Via = approval.ViaAPI
	b.Caller = func(*http.Request) (api.Caller, error) { // a header can say anything: the token alone counts
		return api.Caller{Tenant: local.Tenant, Principal: as}, nil
	}
	pages, err := e.pages()
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle(link.Path, pages) // without the token: the link says who opens it
	mux.Handle(slack.Path, pages)
	console := newConsole(e, b, token, as)
	shown := console.Handler()
	for _, path := range webpages.ConsolePaths() {
		mux.Handle(path, shown)
	}
	guard.ProvesItself, guard.Fragment = webpages.ProvesItself, console.Fragment()
	mux.Handle("/", e.watch.Trace.HTTP(api.Handler(b)))
	signIn := &webpages.SignIn{Is: guard.Is, Welcome: guard.Welcome, Clock: e.p.clock}
	if !w.open { // whoever else reaches the port need not know where the store is
		if signIn.File, err = filepath.Abs(filepath.Join(e.home.Dir, tokenFile)); err != nil {
			return nil, fmt.Errorf("find the token: %w", err)
		}
	}
	guard.SignIn = signIn.Handler()
	unused := &unused{conns: map[net.Conn]bool{}}
	w.server = e.p.server(guard.Before(mux))
	w.server.ConnState = unused.track
	w.server.RegisterOnShutdown(unused.close)
	e.url.Store(&w.url)
	return w, nil
}

// reachable is an address that a browser here can open.
func reachable(at *net.TCPAddr) string {
	host := at.IP.String()
	if at.IP.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, strconv.Itoa(at.Port))
}

// announced is the JSON document of dev, printed when it serves.
type announced struct {
	URL    string   `json:"url"`
	Open   string   `json:"open"` // with the token
	As     string   `json:"as"`
	Agents []string `json:"agents"`
}

// announce says where to go. The link with the token is for the person who typed the command.
func (w *web) announce() error {
	p := w.engine.p
	doc := announced{URL: w.url, Open: w.url + "/?token=" + url.QueryEscape(w.token), As: w.as.ID, Agents: p.registry.Agents()}
	if w.open {
		p.note("countersign: others can reach this port. Whoever has the token owns this machine, and nothing is encrypted")
	}
	if p.json {
		return p.document(doc)
	}
	p.say("serving agents %s as %s", cmp.Or(strings.Join(doc.Agents, ", "), "(none)"), line(doc.As))
	p.say("open %s", doc.Open)
	return nil
}

// unused are the connections on which nothing has been sent yet, as browsers open them ahead: a server that ends would wait for
// them. Safe for concurrent use.
type unused struct {
	mu     sync.Mutex
	conns  map[net.Conn]bool
	closed bool
}

func (u *unused) track(c net.Conn, s http.ConnState) {
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

func (u *unused) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closed = true
	for c := range u.conns {
		_ = c.Close() // nothing was sent on it
	}
}
