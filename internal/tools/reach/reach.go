// Package reach puts together what carries out the calls of tools that are HTTP requests or those of MCP servers: for a deployed function,
// with the secrets of AWS Secrets Manager, and for a laptop, with those of its store directory. Only what runs tools links it.
package reach

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"path/filepath"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/tool"
	"github.com/countersign/countersign/internal/tools/egress"
	"github.com/countersign/countersign/internal/tools/httptool"
	"github.com/countersign/countersign/internal/tools/mcp"
	"github.com/countersign/countersign/internal/tools/secrets"
)

// Deployed is for a deployed function: a lambdafn.Remotes. Without a prefix there are no secrets. A variable that makes no sense is an
// error that names it.
func Deployed(cfg aws.Config, getenv func(string) string) (runtime.Remotes, error) {
	w := world{secrets: secrets.Deployed(cfg, getenv, clock.System()), private: getenv(egress.EnvPrivate), clock: clock.System()}
	return w.remotes()
}

// Local is for a laptop whose store directory is dir: start starts the programs that MCP servers are there, and those that listen on the
// machine itself may be reached, as what an agent's file names as a program may be started.
func Local(dir string, getenv func(string) string, clk clock.Clock, start mcp.Start) (runtime.Remotes, error) {
	w := world{
		secrets: secrets.Local{File: filepath.Join(dir, secrets.FileName), Getenv: getenv}, private: getenv(egress.EnvPrivate), clock: clk, start: start, laptop: true,
	}
	return w.remotes()
}

// world is what calls may reach.
type world struct {
	secrets tool.Secrets
	private string // as the environment has it
	clock   clock.Clock
	start   mcp.Start // nil = no program is started
	laptop  bool      // servers of the machine itself are reached, too
}

func (w world) remotes() (runtime.Remotes, error) {
	private, err := egress.ParsePrivate(w.private)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", egress.EnvPrivate, err)
	}
	servers, err := mcp.New(mcp.Config{
		Clock: w.clock, Client: w.client, Start: w.start, Secrets: func(tenant string) mcp.Secrets { return tool.NewDisclosure(w.secrets, tenant) },
	})
	if err != nil {
		return nil, err
	}
	return runtime.Remotes{agent.KindHTTP: httptool.New(httptool.Config{Secrets: w.secrets, Private: private}), agent.KindMCP: servers}, nil
}

// client reaches the one server that is at the URL. An error says why none can be made for it, fit to be shown.
func (w world) client(at *url.URL) (*http.Client, error) {
	origin, err := egress.Origin(at)
	if err != nil {
		return nil, err
	}
	private := w.private
	if w.laptop && loopback(at.Hostname()) {
		private += "," + origin
	}
	allowed, err := egress.ParsePrivate(private)
	if err != nil {
		return nil, err
	}
	return egress.New(egress.Config{Allow: []string{origin}, Private: allowed, KeepAlive: true, MaxBody: maxSession})
}

// maxSession bounds what one answer of a server may be, in bytes: package mcp has tighter bounds of its own for messages.
const maxSession = 64 << 20

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}
