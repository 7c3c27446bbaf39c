package fault

import (
	"context"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/tool"
)

// Remotes puts the injector before every call of tools that are somewhere else, and before every list of them.
func (in *Injector) Remotes(next runtime.Remotes) runtime.Remotes {
	all := runtime.Remotes{}
	for kind, r := range next {
		all[kind] = &remote{in, r}
	}
	return all
}

type remote struct {
	in   *Injector
	next runtime.Remote
}

func (r *remote) Open(tenant string, d *agent.Definition) runtime.Session {
	s := &session{r.in, r.next.Open(tenant, d)}
	if l, ok := s.Session.(runtime.Lister); ok {
		return &lister{s, l}
	}
	return s
}

type session struct {
	in *Injector
	runtime.Session
}

func (s *session) Tool(spec agent.ToolSpec) tool.Tool {
	t := s.Session.Tool(spec)
	if r, ok := t.(tool.Reconciler); ok {
		return &reconciler{entered{s.in, t}, r}
	}
	return &entered{s.in, t}
}

type lister struct {
	*session
	next runtime.Lister
}

func (l *lister) List(ctx context.Context, s agent.MCPServer) (tools agent.ServerTools, err error) {
	err = l.in.through(ctx, Call{Port: "remote.List", What: s.Name}, func() (err error) {
		tools, err = l.next.List(ctx, s)
		return err
	})
	return tools, err
}
