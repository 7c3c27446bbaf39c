package runtime_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/tool"
)

// named is a tool that is nothing but its name.
type named struct {
	tool.Tool
	name string
}

// far is a Remote and its session.
type far struct{ opened, closed *[]string }

func (f far) Open(tenant string, _ *agent.Definition) runtime.Session {
	*f.opened = append(*f.opened, tenant)
	return farSession{f}
}

type farSession struct{ far }

func (farSession) Tool(t agent.ToolSpec) tool.Tool { return named{name: t.Name} }
func (s farSession) Close()                        { *s.closed = append(*s.closed, "closed") }

// listing is one whose session lists, and that refuses.
type listing struct{ far }

func (l listing) Open(tenant string, d *agent.Definition) runtime.Session {
	return listingSession{l.far.Open(tenant, d)}
}
func (listing) Refuses(d *agent.Definition) string { return "not " + d.Name }

type listingSession struct{ runtime.Session }

var errFar = errors.New("too far")

func (listingSession) List(_ context.Context, s agent.MCPServer) (agent.ServerTools, error) {
	return agent.ServerTools{Protocol: s.Name}, errFar
}

// What stands around tools takes nothing from a Remote or a Session, and gives neither what it has not.
func TestAround(t *testing.T) {
	require.Nil(t, runtime.Remotes(nil).Around(nil))
	var opened, closed []string
	f := far{&opened, &closed}
	all := runtime.Remotes{agent.KindHTTP: f, agent.KindMCP: listing{f}}.Around(func(t tool.Tool) tool.Tool {
		return named{name: "around " + t.(named).name}
	})
	require.Len(t, all, 2)
	d := &agent.Definition{Name: "clerk"}
	for kind, lists := range map[agent.ToolKind]bool{agent.KindHTTP: false, agent.KindMCP: true} {
		s := all[kind].Open("acme", d)
		require.Equal(t, named{name: "around pay"}, s.Tool(agent.ToolSpec{Name: "pay"}), kind)
		s.Close()
		l, ok := s.(runtime.Lister)
		require.Equal(t, lists, ok, kind)
		r, ok := all[kind].(runtime.Refuser)
		require.Equal(t, lists, ok && r.Refuses(d) != "", kind)
		if lists {
			got, err := l.List(t.Context(), agent.MCPServer{Name: "files"})
			require.Equal(t, "files", got.Protocol)
			require.ErrorIs(t, err, errFar)
			require.Equal(t, "not clerk", r.Refuses(d))
		}
	}
	require.Equal(t, []string{"acme", "acme"}, opened)
	require.Equal(t, []string{"closed", "closed"}, closed)
}

// refusing is a Remote that nothing of a definition can be carried out by.
type refusing string

func (r refusing) Refuses(*agent.Definition) string             { return string(r) }
func (refusing) Open(string, *agent.Definition) runtime.Session { panic("nothing is opened") }

// A run whose definition cannot be carried out here ends and says why; no tool of it is entered.
func TestARefusedDefinition(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.ports.Remotes = runtime.Remotes{agent.KindMCP: refusing("agent a needs a program")}
		w.startWith(calls("look c1"))
		require.Equal(t, runtime.NextFailed, w.drive(0).Next)
		require.Zero(t, w.tool("look").times())
		require.Equal(t, &run.RunError{Code: run.CodeDefinition, Message: "agent a needs a program"}, w.state().Error)
	})
}
