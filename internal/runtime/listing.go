package runtime

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/tool"
)

// The bounds of listing a server in one invocation.
const (
	listAttempts = 3
	listBackoff  = 500 * time.Millisecond // before the second attempt; doubled before the third
	listTimeout  = 20 * time.Second       // of an attempt, where the definition says none
)

var (
	errNoLister = errors.New("this deployment has no connection to MCP servers")
	errListing  = errors.New("it did not list its tools in time")

	errNotLocked = errors.New("the tool is not as mcp.lock has it")
)

// list asks the servers of the run's agent for their tools and commits what the run has of them; or that it cannot go
// on without one. What another attempt has committed meanwhile wins: this one leads back to Step like any other.
func (r *round) list(ctx context.Context) (Route, bool, error) {
	d, err := r.draft(r.inv, *r.loaded)
	if err != nil {
		return Route{}, false, err
	}
	ctx = r.within(ctx, &d.State)
	if r.servers == nil { // also after a conflict: what was listed is as good as it was
		servers, err := r.listAll(ctx)
		if err != nil { // what is known of them is not whole
			return Route{}, false, err
		}
		r.servers = servers
	}
	if fin, missing := unavailableEnd(r.servers); missing {
		err = r.addEndAfterCleanup(ctx, r.def, d, fin)
	} else {
		err = r.addListing(ctx, d)
	}
	if err != nil {
		return Route{}, false, err
	}
	if err := r.commit(ctx, r.loaded.State, d, r.def); err != nil {
		return Route{}, false, err
	}
	return r.inv.route(NextStep), true, nil
}

// addListing adds the listed tools to the draft. The definition is stored before the event that names it.
func (r *round) addListing(ctx context.Context, d *run.Draft) error {
	resolved, servers := policy.ResolveServers(r.def, r.servers)
	for _, s := range servers {
		for _, t := range s.Disabled {
			if t.Why == run.DisabledNew || t.Why == run.DisabledChanged {
				r.warnUnlocked(s.Name, t.Tool)
			}
		}
	}
	digest, err := r.storeDefinition(ctx, r.inv.Tenant, &resolved)
	if err != nil {
		return fmt.Errorf("list tools of run %s: %w", r.inv.Run, err)
	}
	return d.Add(run.ToolsListed{Definition: digest, Servers: servers})
}

// unavailableEnd is the end of a run that needs a server which could not be listed.
func unavailableEnd(servers []policy.ListedServer) (run.Finished, bool) {
	for _, s := range servers {
		if s.Problem != "" && !s.Server.Optional {
			return policy.Fail(run.CodeMCPUnavailable, fmt.Sprintf("the tools of the server %s cannot be listed: %s",
				s.Server.Name, s.Problem)), true
		}
	}
	return run.Finished{}, false
}

// listAll lists every server of the definition, all at once, each within its time.
func (r *round) listAll(ctx context.Context) ([]policy.ListedServer, error) {
	all := make([]policy.ListedServer, len(r.def.MCP))
	failed := make([]error, len(all))
	done := r.Clock.NewSignal()
	listed := make(chan struct{}, len(all)) // one for each server that has been
	for i, server := range r.def.MCP {
		all[i].Server = server
		s, _ := r.sessions.of(r.Remotes, r.inv.Tenant, r.def, agent.KindMCP)
		lister, ok := s.(Lister)
		if !ok {
			failed[i] = errNoLister
			listed <- struct{}{}
			continue
		}
		r.Clock.Go(func() {
			all[i].Tools, failed[i] = r.listOne(ctx, lister, server)
			listed <- struct{}{}
			done.Notify()
		})
	}
	for heard := 0; heard < len(all); {
		select {
		case <-listed:
			heard++
		default:
			if err := done.Wait(ctx, 0); err != nil {
				return nil, err
			}
		}
	}
	if err := ctx.Err(); err != nil { // the invocation is over, which says nothing about a server
		return nil, err
	}
	for i := range all {
		switch {
		case failed[i] != nil:
			all[i].Problem = agent.Bounded(failed[i].Error())
		case all[i].Server.Locked != nil:
		case r.Trusts != nil:
			r.Trusts(r.def.Name, all[i].Server.Name)
		default:
			all[i].Server.Locked = map[string]string{}
		}
	}
	return all, nil
}

// warnUnlocked tells an operator which tool a run cannot use because of mcp.lock, and what to do.
func (r *round) warnUnlocked(server, tool string) {
	r.warn(fmt.Sprintf("use the tool %s of the MCP server %s of agent %s: it differs from mcp.lock or is not in it; "+
		"run: countersign mcp lock", tool, server, r.def.Name), errNotLocked)
}

// listOne lists a server, a few times where that fails.
func (r *round) listOne(ctx context.Context, l Lister, server agent.MCPServer) (tools agent.ServerTools, err error) {
	ended := clock.Retry(ctx, r.Clock, func(n int) (time.Duration, bool) {
		tools, err = r.listOnce(ctx, l, server)
		return listBackoff << (n - 1), err != nil && ctx.Err() == nil && n < listAttempts
	})
	return tools, cmp.Or(ended, err)
}

// listOnce lists a server and gives up on it when its time is over, also if the session does not: what it says later is
// lost.
func (r *round) listOnce(ctx context.Context, l Lister, server agent.MCPServer) (agent.ServerTools, error) {
	limit := server.Timeout
	if limit <= 0 {
		limit = listTimeout
	}
	ctx, cancel := r.Clock.WithTimeout(ctx, limit)
	defer cancel()
	answer := make(chan func() (agent.ServerTools, error), 1)
	done := r.Clock.NewSignal()
	r.Clock.Go(func() {
		said := func() (agent.ServerTools, error) { return agent.ServerTools{}, errPanicked }
		defer func() {
			_ = recover() // what it panicked with may hold anything
			answer <- said
			done.Notify()
		}()
		tools, err := l.List(ctx, server)
		said = func() (agent.ServerTools, error) { return tools, err }
	})
	if ended := done.Wait(ctx, 0); ended != nil {
		return agent.ServerTools{}, errListing
	}
	return (<-answer)()
}

// changedTools are the tools whose calls were not made because their servers have changed them. The zero value is
// empty. Safe for concurrent use.
type changedTools struct {
	mu    sync.Mutex
	facts map[string]run.ToolsDisabled // by call
}

// noteChanged notes, where an error says so, that a server's tool differs from its pin, and returns the result of the
// call, which nobody made. Other kinds of tools have no pin.
func (r *round) noteChanged(c run.Call, err error) (run.Event, bool) {
	var changed *tool.ChangedError
	spec, _ := r.def.Tool(c.Tool)
	if spec.MCP == nil || !errors.As(err, &changed) {
		return nil, false
	}
	r.changedTools.mu.Lock()
	defer r.changedTools.mu.Unlock()
	if r.changedTools.facts == nil {
		r.changedTools.facts = map[string]run.ToolsDisabled{}
	}
	r.changedTools.facts[c.ID] = run.ToolsDisabled{
		Server: spec.MCP.Server, Tool: spec.MCP.Tool, Why: run.DisabledChanged, Digest: changed.Got,
	}
	r.warnUnlocked(spec.MCP.Server, spec.MCP.Tool)
	return run.CallFinished{
		Call: c.ID, IsError: true, Reason: run.WhyToolChanged, Content: policy.TextToolChanged(r.def, c),
	}, true
}

// disableChanged adds to the draft that the run has lost the tool, if that is why the call was not made.
func (r *round) disableChanged(p *batchPlan, c run.Call) error {
	r.changedTools.mu.Lock()
	fact, ok := r.changedTools.facts[c.ID]
	r.changedTools.mu.Unlock()
	if spec, _ := r.def.Tool(c.Tool); !ok || policy.Disabled(&p.draft.State, spec) {
		return nil
	}
	return p.draft.Add(fact)
}
