package runtime

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

// The bounds of listing a server in one invocation.
const (
	listAttempts = 3
	listBackoff  = 500 * time.Millisecond // before the second attempt; doubled before the third
	listTimeout  = 20 * time.Second       // of an attempt, where the definition says none
)

var (
	errNoLister  = errors.New("this deployment has no connection to MCP servers")
	errListing   = errors.New("it did not list its tools in time")
	errNotLocked = errors.New("the tool is not as mcp.lock has it")
)

// list asks the servers of the run's agent for their tools and commits what the run has of them; or that it cannot go
// on without one. What another attempt has committed meanwhile wins: this one leads back to Step like any other.
func (r *round) list(ctx context.Context) (Route, error) {
	d, err := r.draft(ctx, r.inv, *r.loaded, r.def)
	if err != nil {
		return Route{}, err
	}
	ctx = r.within(ctx, &d.State)
	if r.servers == nil { // also after a conflict: what was listed is as good as it was
		servers, err := r.listAll(ctx)
		if err != nil { // what is known of them is not whole
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
		digest, failed := r.storeDefinition(ctx, r.inv.Tenant, &resolved) // before the event that names it
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

// listAll lists every server of the definition, all at once, each within its time.
func (r *round) listAll(ctx context.Context) ([]policy.ListedServer, error) {
	all := make([]policy.ListedServer, len(r.def.MCP))
	session, _ := r.sessions.of(r.Remotes, r.inv.Tenant, r.def, agent.KindMCP)
	lister, ok := session.(Lister)
	inParallel(r.Clock, len(all), len(all), func(i int) {
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

// listOne lists a server, a few times where that fails. It gives up on a server whose time is over, also if the session
// does not.
func (r *round) listOne(ctx context.Context, l Lister, server agent.MCPServer) (tools agent.ServerTools, err error) {
	limit := server.Timeout
	if limit <= 0 {
		limit = listTimeout
	}
	ended := clock.Retry(ctx, r.Clock, func(n int) (time.Duration, bool) {
		limited, cancel := r.Clock.WithTimeout(ctx, limit)
		defer cancel()
		tools, err = callBeside(limited, r.Clock, func() (agent.ServerTools, error) { return l.List(limited, server) })
		if limited.Err() != nil && errors.Is(err, limited.Err()) {
			err = errListing
		}
		return listBackoff << (n - 1), err != nil && ctx.Err() == nil && n < listAttempts
	})
	return tools, cmp.Or(ended, err)
}
