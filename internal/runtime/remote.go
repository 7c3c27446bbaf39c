package runtime

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/tool"
)

// Remotes runs the calls of remote tools, by kind. Calls of a missing kind fail with an error that says so.
type Remotes map[agent.ToolKind]Remote

// Remote runs the calls of one kind of tool. Safe for concurrent use.
type Remote interface {
	// Open begins an invocation's use of d's tools, for a run of a tenant. It does not connect or read anything.
	Open(tenant string, d *agent.Definition) Session
}

// Session is one invocation's use of a Remote. Tools may be called concurrently.
type Session interface {
	// Tool returns a tool for t, whose kind is the Remote's. It connects at the first call.
	Tool(t agent.ToolSpec) tool.Tool
	// Close ends every connection and the calls on it. Calling a tool afterwards is an error.
	Close()
}

// Lister is a Session that can list tools, such as that of MCP servers.
type Lister interface {
	Session
	// List asks a server of the definition for its tools. Several servers may be asked at once. Its error is safe to show.
	List(ctx context.Context, s agent.MCPServer) (agent.ServerTools, error)
}

// Refuser is a Remote that cannot carry out calls of some definitions, such as one with programs as servers where no
// program can be started.
type Refuser interface {
	// Refuses returns why d cannot be carried out, safe to show; "" = it can.
	Refuses(d *agent.Definition) string
}

// sessions are the sessions of one invocation, opened when they are needed and closed when it ends. The zero value has
// none open. Safe for concurrent use.
type sessions struct {
	mu     sync.Mutex
	byKind map[agent.ToolKind]Session
}

func (open *sessions) of(remotes Remotes, tenant string, d *agent.Definition, kind agent.ToolKind) (Session, bool) {
	open.mu.Lock()
	defer open.mu.Unlock()
	if s, ok := open.byKind[kind]; ok {
		return s, true
	}
	r, ok := remotes[kind]
	if !ok {
		return nil, false
	}
	if open.byKind == nil {
		open.byKind = map[agent.ToolKind]Session{}
	}
	open.byKind[kind] = r.Open(tenant, d)
	return open.byKind[kind], true
}

func (open *sessions) close() {
	open.mu.Lock()
	defer open.mu.Unlock()
	for _, s := range open.byKind {
		s.Close()
	}
}

// Around returns rs with wrap applied to every tool. Optional interfaces of a Remote and a Session stay available. nil
// stays nil.
func (rs Remotes) Around(wrap func(tool.Tool) tool.Tool) Remotes {
	if rs == nil {
		return nil
	}
	all := make(Remotes, len(rs))
	for kind, r := range rs {
		all[kind] = aroundRemote{r, wrap}
	}
	return all
}

type aroundRemote struct {
	next Remote
	wrap func(tool.Tool) tool.Tool
}

func (r aroundRemote) Open(tenant string, d *agent.Definition) Session {
	s := aroundSession{r.next.Open(tenant, d), r.wrap}
	if l, ok := s.Session.(Lister); ok {
		return aroundLister{s, l}
	}
	return s
}

// Refuses calls the wrapped Remote, if that is a Refuser.
func (r aroundRemote) Refuses(d *agent.Definition) string {
	if refuser, ok := r.next.(Refuser); ok {
		return refuser.Refuses(d)
	}
	return ""
}

type aroundSession struct {
	Session
	wrap func(tool.Tool) tool.Tool
}

func (s aroundSession) Tool(t agent.ToolSpec) tool.Tool { return s.wrap(s.Session.Tool(t)) }

// aroundLister is an aroundSession that can also list tools.
type aroundLister struct {
	aroundSession
	next Lister
}

// List asks a server for its tools. This is not a call of a tool, so it is not wrapped.
func (l aroundLister) List(ctx context.Context, s agent.MCPServer) (agent.ServerTools, error) {
	return l.next.List(ctx, s)
}

// Limits for listing a server in one invocation.
const (
	listAttempts = 3
	listBackoff  = 500 * time.Millisecond // before the second attempt; doubled before the third
	listTimeout  = 20 * time.Second       // of one attempt, if the definition sets none
)

var (
	errNoLister  = errors.New("this deployment has no connection to MCP servers")
	errListing   = errors.New("it did not list its tools in time")
	errNotLocked = errors.New("the tool is not as mcp.lock has it")
)

// list asks the servers of the run's agent for their tools and commits the result, or the end of a run that needs a
// missing server. If another attempt has committed meanwhile, that one wins: the route leads back to Step in any case.
func (r *round) list(ctx context.Context) (Route, error) {
	d, err := r.draft(ctx, r.inv, *r.loaded, r.def)
	if err != nil {
		return Route{}, err
	}
	ctx = r.within(ctx, &d.State)
	if r.servers == nil { // kept after a conflict
		servers, err := r.listAll(ctx)
		if err != nil { // the result is incomplete
			return Route{}, err
		}
		r.servers = servers
	}
	i := slices.IndexFunc(r.servers, func(s policy.ListedServer) bool { return s.Problem != "" && !s.Server.Optional })
	if i >= 0 {
		missing := r.servers[i]
		err = r.addEndAfterCleanup(ctx, r.def, d, policy.Fail(run.CodeMCPUnavailable,
			fmt.Sprintf("the tools of the server %s cannot be listed: %s", missing.Server.Name, missing.Problem)))
	} else {
		resolved, servers := policy.ResolveServers(r.def, r.servers)
		for _, s := range servers {
			for _, t := range s.Disabled {
				if t.Why == run.DisabledNew || t.Why == run.DisabledChanged {
					r.warnUnlocked(s.Name, t.Tool)
				}
			}
		}
		digest, failed := r.storeDefinition(ctx, r.inv.Tenant, &resolved) // before the event that refers to it
		if failed != nil {
			return Route{}, fmt.Errorf("list tools of run %s: %w", r.inv.Run, failed)
		}
		err = d.Add(run.ToolsListed{Definition: digest, Servers: servers})
	}
	if err == nil {
		err = r.commit(ctx, d, r.def)
	}
	if err != nil {
		return Route{}, err
	}
	return r.inv.route(NextStep), nil
}

// listAll lists all servers of the definition concurrently, each within its timeout.
func (r *round) listAll(ctx context.Context) ([]policy.ListedServer, error) {
	all := make([]policy.ListedServer, len(r.def.MCP))
	session, _ := r.sessions.of(r.Remotes, r.inv.Tenant, r.def, agent.KindMCP)
	lister, ok := session.(Lister)
	clock.Parallel(r.Clock, len(all), len(all), func(i int) {
		all[i].Server = r.def.MCP[i]
		err := errNoLister
		if ok {
			all[i].Tools, err = r.listOne(ctx, lister, all[i].Server)
		}
		if err != nil {
			all[i].Problem = agent.Bounded(err.Error())
		}
	})
	if err := ctx.Err(); err != nil { // the invocation is over, which says nothing about a server
		return nil, err
	}
	for i := range all {
		switch s := &all[i]; {
		case s.Problem != "" || s.Server.Locked != nil:
		case r.Trusts != nil:
			r.Trusts(r.def.Name, s.Server.Name)
		default:
			s.Server.Locked = map[string]string{}
		}
	}
	return all, nil
}

// warnUnlocked tells an operator which tool a run cannot use because of mcp.lock, and what to do.
func (r *round) warnUnlocked(server, tool string) {
	r.warn(fmt.Sprintf("use the tool %s of the MCP server %s of agent %s: it differs from mcp.lock or is not in it; "+
		"run: countersign mcp lock", tool, server, r.def.Name), errNotLocked)
}

// listOne lists a server, with retries. It returns when the timeout is over, even if the session does not.
func (r *round) listOne(ctx context.Context, l Lister, server agent.MCPServer) (tools agent.ServerTools, err error) {
	limit := server.Timeout
	if limit <= 0 {
		limit = listTimeout
	}
	ended := clock.Retry(ctx, r.Clock, func(n int) (time.Duration, bool) {
		limited, cancel := r.Clock.WithTimeout(ctx, limit)
		defer cancel()
		tools, err = callWithDeadline(limited, r.Clock, func() (agent.ServerTools, error) { return l.List(limited, server) })
		if limited.Err() != nil && errors.Is(err, limited.Err()) {
			err = errListing
		}
		return listBackoff << (n - 1), err != nil && ctx.Err() == nil && n < listAttempts
	})
	return tools, cmp.Or(ended, err)
}
