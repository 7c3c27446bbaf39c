package tools

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/tool"
)

// MCPClient makes the client of one connection to the server at a URL. It decides where requests may go; redirects stay
// on their host. Idle connections are closed with the connection to the server. An error says why the server may not be
// reached, fit to be shown.
type MCPClient func(server *url.URL) (*http.Client, error)

// StartProgram makes a program that is a server, with no other environment than PATH, HOME and env. Package local has
// one.
type StartProgram func(command []string, dir string, env map[string]string) (Program, error)

// Program is a server that is a program. Connect starts it, and messages of more than 16 MiB break the connection.
type Program interface {
	sdk.Transport
	// End ends the program and every process that it has started, and waits for it. It may be called at any time, and
	// again.
	End()
	// LastWords is how the program's standard error ends: whole once End has returned. Errors of connecting quote it.
	LastWords() string
}

// MCP has the tools of servers that speak the Model Context Protocol, over the official SDK, for protocol 2026-07-28
// and older ones, over streamable HTTP and, where the process can start programs, over standard streams. Safe for
// concurrent use.
//
// A server is not trusted. One invocation has one connection to a server, made when it is first needed, and ends it
// whatever happens; a connection that breaks is replaced by the next use. On each connection the server's tools are
// listed once, and a call is sent only where the tool's definition has the digest that the run is pinned to
// (tool.ChangedError). Whatever hangs ends with a deadline, whatever floods with a bound: the constants in mcplist.go.
//
// What becomes of a call: a result of the server's is a result, be it an error of the tool's; an answer that says no
// (an error of the protocol, a refusal of HTTP) is an error; an answer that did not come, broke off or cannot be read
// is a tool.LostError, since the server may have done what it was told.
type MCP struct {
	Clock   clock.Clock  // required
	Client  MCPClient    // for servers with a URL; nil = they are refused
	Start   StartProgram // for servers with a command; nil = they are refused, as in a deployed function
	Secrets tool.Secrets // for the templates of a connection; nil = there are none
}

// Open begins an invocation's use of the servers of d.
func (r MCP) Open(tenant string, d *agent.Definition) runtime.Session {
	ctx, cancel := context.WithCancelCause(context.Background())
	return &mcpSession{config: r, tenant: tenant, servers: d.MCP, ctx: ctx, cancel: cancel,
		links: map[string]*link{}}
}

// Refuses says why d cannot run here: it needs a program, and none can be started. "" means that it can run.
func (r MCP) Refuses(d *agent.Definition) string {
	if server, needed := d.Program(); needed && r.Start == nil {
		return policy.TextNeedsProgram(d.Name, server)
	}
	return ""
}

// errClosed is why nothing works after Close.
var errClosed = errors.New("the connection is closed: the invocation has ended")

// mcpSession is one invocation's connections: at most one to each server.
type mcpSession struct {
	config  MCP
	tenant  string
	servers []agent.MCPServer
	ctx     context.Context // ends with the session
	cancel  context.CancelCauseFunc

	mu    sync.Mutex
	links map[string]*link // by server
	all   sync.WaitGroup   // what is under way for links: connecting, closing
}

func (s *mcpSession) Tool(t agent.ToolSpec) tool.Tool { return remoteTool{t, s.call} }

func (s *mcpSession) List(ctx context.Context, server agent.MCPServer) (agent.ServerTools, error) {
	l, err := s.connected(ctx, server)
	if err != nil {
		return agent.ServerTools{}, err
	}
	all := l.listed
	all.left = slices.Clone(all.left)
	out := agent.ServerTools{Protocol: l.client.InitializeResult().ProtocolVersion}
	for _, d := range all.tools {
		t, err := d.tool(l.server.Name)
		if err == nil && l.secrets.Redact(t.Name+"\n"+string(t.Schema)) != t.Name+"\n"+string(t.Schema) {
			err = errors.New("its name or inputSchema holds a secret")
		}
		if err != nil {
			all.leave(d.Name, err.Error())
			continue
		}
		// in this order: nothing finds the first half of a secret
		t.Description = bounded(l.secrets.Redact(t.Description), maxDescription)
		t.Hints.Title = bounded(l.secrets.Redact(t.Hints.Title), maxTitle)
		out.Tools = append(out.Tools, t)
	}
	for i, left := range all.left {
		all.left[i] = agent.LeftTool{Name: bounded(l.secrets.Redact(left.Name), maxTitle), Why: l.secrets.Redact(left.Why)}
	}
	if out.Left = all.left; all.more > 0 {
		why := fmt.Sprintf("%d more tools that cannot be used", all.more)
		out.Left = append(out.Left, agent.LeftTool{Name: "*", Why: why})
	}
	return out, nil
}

// Close ends every connection and waits until nothing of it is left.
func (s *mcpSession) Close() {
	s.cancel(errClosed)
	s.mu.Lock()
	links := s.links
	s.links = nil
	s.mu.Unlock()
	for _, l := range links {
		s.all.Go(l.close)
	}
	s.all.Wait()
}

// connected returns a working connection to a server: the existing one, or a new one. Callers share it. A caller that
// gives up waiting does not end it for the others.
func (s *mcpSession) connected(ctx context.Context, server agent.MCPServer) (*link, error) {
	s.mu.Lock()
	if s.links == nil {
		s.mu.Unlock()
		return nil, errClosed
	}
	l := s.links[server.Name]
	if l == nil || l.ctx.Err() != nil {
		if l != nil {
			s.all.Go(l.close)
		}
		life, cut := context.WithCancelCause(context.Background())
		l = &link{
			config: s.config, server: server, secrets: tool.NewDisclosure(s.config.Secrets, s.tenant),
			ready: make(chan struct{}), ctx: life, cut: cut,
		}
		s.links[server.Name] = l
		s.all.Go(func() { l.connect(s.ctx) })
	}
	s.mu.Unlock()
	select {
	case <-l.ready:
		if l.err != nil {
			return nil, fmt.Errorf("connect to MCP server %s: %w", server.Name, l.err)
		}
		return l, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("connect to MCP server %s: %w", server.Name, ctx.Err())
	}
}
