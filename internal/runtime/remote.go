package runtime

import (
	"context"
	"sync"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/tool"
)

// Remotes run the calls of tools that no code of the deployment does, by kind. A kind that is missing cannot be called
// here: its calls fail and say so.
type Remotes map[agent.ToolKind]Remote

// Remote runs the calls of one kind of tool. Safe for concurrent use.
type Remote interface {
	// Open begins an invocation's use of d's tools, for a run of a tenant. It connects to nothing and reads nothing.
	Open(tenant string, d *agent.Definition) Session
}

// Session is what one invocation has of a Remote. Tools may be called concurrently.
type Session interface {
	// Tool runs the calls of t, whose kind is the Remote's. It connects when it is first called.
	Tool(t agent.ToolSpec) tool.Tool
	// Close ends every connection, with what is under way on it. Calling a tool afterwards is an error.
	Close()
}

// Lister is a Session that finds out what tools there are, as that of MCP servers.
type Lister interface {
	Session
	// List asks a server of the definition for its tools, several of them at a time. An error says why it could not be
	// asked, fit to be shown.
	List(ctx context.Context, s agent.MCPServer) (agent.ServerTools, error)
}

// Refuser is a Remote that cannot carry out the calls of some definitions at all, such as one whose servers are
// programs where none can be started.
type Refuser interface {
	// Refuses says why nothing of d is carried out, fit to be shown; "" = it is.
	Refuses(d *agent.Definition) string
}

// sessions are those of one invocation, opened when they are needed and closed when it ends. The zero value has none
// open. Safe for concurrent use.
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

// Around is rs with wrap around every tool of theirs, as they are asked for it. What a Remote or a Session can do
// besides, it still can. nil stays nil.
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

// Refuses is the Remote's, where it is a Refuser.
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

// aroundLister also lists what tools there are.
type aroundLister struct {
	aroundSession
	next Lister
}

// List asks a server. It is no call of a tool.
func (l aroundLister) List(ctx context.Context, s agent.MCPServer) (agent.ServerTools, error) {
	return l.next.List(ctx, s)
}
