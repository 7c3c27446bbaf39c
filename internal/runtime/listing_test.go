package runtime_test

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/tool"
)

// servers is a Remote of MCP servers that list what a function says.
type servers struct {
	list func(ctx context.Context, server string) (agent.ServerTools, error)
	call func(ctx context.Context, t agent.ToolSpec) (agent.ToolResultData, error)

	mu     sync.Mutex
	open   int // sessions
	listed int
}

func (s *servers) Open(string, *agent.Definition) runtime.Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open++
	return &serverSession{s}
}

type serverSession struct{ *servers }

func (s *serverSession) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
}

func (s *serverSession) List(ctx context.Context, m agent.MCPServer) (agent.ServerTools, error) {
	s.mu.Lock()
	s.listed++
	list := s.list
	s.mu.Unlock()
	return list(ctx, m.Name)
}

func (s *serverSession) Tool(t agent.ToolSpec) tool.Tool { return serverTool{s, t} }

type serverTool struct {
	session *serverSession
	spec    agent.ToolSpec
}

func (t serverTool) Spec() agent.ToolSpec { return t.spec }

func (t serverTool) Call(ctx context.Context, _ tool.Call) (agent.ToolResultData, error) {
	return t.session.call(ctx, t.spec)
}

func has(names ...string) agent.ServerTools {
	l := agent.ServerTools{Protocol: "p"}
	for _, n := range names {
		l.Tools = append(l.Tools, agent.ServerTool{Name: n, Schema: json.RawMessage(`{"type":"object"}`), Digest: "1"})
	}
	return l
}

// serving gives the world's agent servers, whose tools read. They are in no mcp.lock and trusted, as on a laptop.
func (w *world) serving(s *servers, names ...string) {
	w.ports.Trusts = func(string, string) {}
	for _, name := range names {
		w.def.MCP = append(w.def.MCP, agent.MCPServer{
			Name: name, URL: "https://x", Tools: []agent.MCPPattern{{Match: "*", Effect: run.EffectRead}},
		})
	}
	if s != nil {
		w.ports.Remotes = runtime.Remotes{agent.KindMCP: s}
	}
}

// TestListingIsBounded: whatever a server does, the run comes to its end, and the connections are closed.
func TestListingIsBounded(t *testing.T) {
	for name, c := range map[string]struct {
		list  func(ctx context.Context, server string) (agent.ServerTools, error)
		says  string
		takes time.Duration
	}{
		"hangs": {func(ctx context.Context, _ string) (agent.ServerTools, error) {
			<-ctx.Done()
			return agent.ServerTools{}, ctx.Err()
		}, "it did not list its tools in time", 61500 * time.Millisecond},
		"hears of no end": {func(context.Context, string) (agent.ServerTools, error) {
			time.Sleep(time.Hour)
			return has("a"), nil
		}, "it did not list its tools in time", 61500 * time.Millisecond},
		"panics": {func(context.Context, string) (agent.ServerTools, error) {
			panic("secret")
		}, "it panicked", 1500 * time.Millisecond},
	} {
		subtest(t, name, func(t *testing.T, w *world) {
			s := &servers{list: c.list}
			w.serving(s, "files")
			w.start()
			began := w.ports.Clock.Now()
			require.Equal(t, runtime.NextFailed, w.drive(0).Next)
			require.Equal(t, c.takes, w.ports.Clock.Now().Sub(began))
			says := "the tools of the server files cannot be listed: " + c.says
			require.Equal(t, &run.RunError{Code: run.CodeMCPUnavailable, Message: says}, w.state().Error)
			require.Equal(t, 3, s.listed)
			require.Zero(t, s.open)
			require.Empty(t, w.model.asked)
			time.Sleep(2 * time.Hour) // for those who hear of no end
		})
	}
}

// TestListingIsTheBatchs: Step connects to nobody and writes nothing before; the batch lists every server at once,
// commits once, and whoever comes later lists nothing.
func TestListingIsTheBatchs(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		s := &servers{list: func(_ context.Context, server string) (agent.ServerTools, error) {
			time.Sleep(10 * time.Second)
			return has(server), nil
		}}
		w.serving(s, "a", "b", "c")
		w.start()
		written := len(w.entries())
		r := w.step(0)
		require.Equal(t, runtime.NextTools, r.Next)
		require.Len(t, w.entries(), written)
		require.Zero(t, s.listed)
		late := w.inv(0)
		began := w.ports.Clock.Now()
		require.Equal(t, runtime.NextStep, w.batchRun(0).Next)
		require.Equal(t, 10*time.Second, w.ports.Clock.Now().Sub(began))
		require.Equal(t, 3, s.listed)
		_, err := w.batch().Run(w.ctx, late) // the state machine's retry of a batch that had come to its end
		require.NoError(t, err)
		require.Equal(t, 3, s.listed)
		require.Equal(t, 1, w.written("tools_listed"))
		require.Equal(t, runtime.NextDone, w.drive(0).Next)
		require.Zero(t, s.open)
	})
}

// TestWithoutAConnection: a deployment that cannot speak to servers says so, and a run that can do without goes on.
func TestWithoutAConnection(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.serving(nil, "files")
		w.def.MCP[0].Optional = true
		w.start()
		require.Equal(t, runtime.NextDone, w.drive(0).Next)
		require.Equal(t, "this deployment has no connection to MCP servers", w.state().Servers[0].Problem)
	})
}

// TestAnEndedInvocationSaysNothingOfAServer: a listing that the invocation's own end cut off is tried again by the
// next one.
func TestAnEndedInvocationSaysNothingOfAServer(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		s := &servers{list: func(ctx context.Context, _ string) (agent.ServerTools, error) {
			<-ctx.Done()
			return agent.ServerTools{}, ctx.Err()
		}}
		w.serving(s, "files")
		w.start()
		ctx, cancel := context.WithTimeout(w.ctx, 5*time.Second)
		defer cancel()
		require.ErrorIs(t, errOf(w.batch().Run(ctx, w.inv(0))), context.DeadlineExceeded)
		require.Len(t, w.entries(), 1)
		s.mu.Lock()
		s.list = func(context.Context, string) (agent.ServerTools, error) { return has("a"), nil }
		s.mu.Unlock()
		require.Equal(t, runtime.NextDone, w.drive(0).Next)
	})
}
