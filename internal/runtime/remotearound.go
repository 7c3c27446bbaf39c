package runtime

import (
	"context"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/tool"
)

// Around is rs with wrap around every tool of theirs, as they are asked for it. What a Remote or a Session can do
// besides, it still can. nil stays nil.
func (rs Remotes) Around(wrap func(tool.Tool) tool.Tool) Remotes {
	if rs == nil {
		return nil
	}
	all := make(Remotes, len(rs))
	for kind, r := range rs {
		around := aroundRemote{r, wrap}
		all[kind] = around
		if refuser, ok := r.(Refuser); ok {
			all[kind] = aroundRefuser{around, refuser}
		}
	}
	return all
}

type aroundRemote struct {
	next Remote
	wrap func(tool.Tool) tool.Tool
}

// Open begins an invocation's use of what is behind it.
func (r aroundRemote) Open(tenant string, d *agent.Definition) Session {
	s := aroundSession{r.next.Open(tenant, d), r.wrap}
	if l, ok := s.Session.(Lister); ok {
		return aroundLister{s, l}
	}
	return s
}

// aroundRefuser also refuses some definitions.
type aroundRefuser struct {
	aroundRemote
	Refuser
}

type aroundSession struct {
	Session
	wrap func(tool.Tool) tool.Tool
}

// Tool is the session's, wrapped.
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
