package lambdafn

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/secrets"
	"github.com/countersign/countersign/internal/tool"
	"github.com/countersign/countersign/internal/tools"
)

// addRemotes adds the ports that carry out the calls of tools outside the program: HTTP requests, MCP servers and
// functions. A variable that makes no sense is an error that names it.
func addRemotes(f *function) error {
	if base := f.getenv(envCallbackURL); base != "" {
		ring := f.keyRing(EnvKeyRing)
		if ring == nil {
			return fmt.Errorf("%s: want the secret of a ring of keys beside %s, got none", EnvKeyRing, envCallbackURL)
		}
		f.Ports.Callbacks = secrets.Addresses{Ring: ring, Base: func() string { return base }}
	}
	all, err := Reach{Secrets: f.vault, Private: f.getenv(tool.EnvPrivateHosts), Clock: f.Ports.Clock}.Remotes()
	if err != nil {
		return err
	}
	f.Ports.Functions = tools.NewFunctions(f.cfg)
	all[agent.KindLambda] = tools.Lambda{Functions: f.Ports.Functions}
	f.Ports.Remotes = f.watch.Remotes(all)
	return nil
}

// The environment of callbacks: of functions/tool, which hands out their addresses, and of functions/http, which takes
// the answers.
const (
	// where the API is reached from outside, as https://api.example.com; empty = no address is handed out
	envCallbackURL = "COUNTERSIGN_CALLBACK_URL"
	// the secret of the ring that signs them, which secrets.Parse reads; empty = there are no callbacks
	EnvKeyRing = "COUNTERSIGN_KEYRING"
)

// EnvLinkKeyRing names the secret of another ring, which signs the links to requests. Functions that run tools may not
// read it: nothing there can make a link by which a person decides. Empty = messages have no links.
const EnvLinkKeyRing = "COUNTERSIGN_LINK_KEYRING"

// secret reads what a variable names, as it is or was less than five minutes ago; nil = it names none.
func (f *function) secret(variable string) func(ctx context.Context) (string, error) {
	name := f.getenv(variable)
	if name == "" {
		return nil
	}
	return func(ctx context.Context) (string, error) { return f.vault.Value(ctx, name) }
}

// keyRing reads the ring that a variable names; nil = it names none. No key is in an error.
func (f *function) keyRing(variable string) func() (*secrets.Ring, error) {
	read := f.secret(variable)
	if read == nil {
		return nil
	}
	return func() (*secrets.Ring, error) {
		text, err := read(context.Background()) // bounded by the client
		if err != nil {
			return nil, err
		}
		ring, err := secrets.Parse(text)
		if err != nil {
			err = fmt.Errorf("%s: %w", variable, err)
		}
		f.watch.disablePart("a ring of keys", err)
		return ring, err
	}
}

// Reach is what the calls of tools that are HTTP requests or tools of MCP servers may use.
type Reach struct {
	Secrets tool.Secrets
	Private string // the hosts that are not public and may be reached, as COUNTERSIGN_PRIVATE_HOSTS has them
	Clock   clock.Clock
	Start   tools.StartProgram // starts the programs that MCP servers are; nil = none is started
	Laptop  bool               // an MCP server may listen on the machine itself
}

// Remotes makes what carries out those calls. An error names the variable that makes no sense.
func (r Reach) Remotes() (runtime.Remotes, error) {
	private, err := tool.ParsePrivateHosts(r.Private)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", tool.EnvPrivateHosts, err)
	}
	return runtime.Remotes{
		agent.KindHTTP: tools.HTTP{Secrets: r.Secrets, Private: private},
		agent.KindMCP:  tools.MCP{Clock: r.Clock, Client: r.client, Start: r.Start, Secrets: r.Secrets},
	}, nil
}

// client reaches the one server that is at the URL. Its error says why none can be made for it, and is fit to be shown.
func (r Reach) client(at *url.URL) (*http.Client, error) {
	origin, err := tool.OriginOf(at)
	if err != nil {
		return nil, err
	}
	private, host := r.Private, at.Hostname()
	ip, err := netip.ParseAddr(host)
	if r.Laptop && (host == "localhost" || err == nil && ip.IsLoopback()) {
		private += "," + origin
	}
	allowed, err := tool.ParsePrivateHosts(private)
	if err != nil {
		return nil, err
	}
	return tool.NewEgressClient(tool.EgressConfig{Allow: []string{origin}, Private: allowed, KeepAlive: true,
		MaxBody: 64 << 20}) // of one answer: package mcp has tighter bounds of its own for messages
}
