package mcp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/tool"
	"github.com/countersign/countersign/internal/tools/mcp"
)

// served is a server of the official SDK that speaks the given versions, or all.
func served(versions []string, stateless bool, add func(*sdk.Server)) http.Handler {
	s := sdk.NewServer(&sdk.Implementation{Name: "peer", Version: "1"}, &sdk.ServerOptions{SupportedProtocolVersions: versions})
	add(s)
	return sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, &sdk.StreamableHTTPOptions{Stateless: stateless})
}

type greeting struct {
	Name string `json:"name" jsonschema:"whom to greet"`
}

func greeter(s *sdk.Server) {
	yes := true
	sdk.AddTool(s, &sdk.Tool{
		Name: "greet", Title: "Greet", Description: "says hello",
		Annotations: &sdk.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: &yes},
	}, func(_ context.Context, r *sdk.CallToolRequest, in greeting) (*sdk.CallToolResult, any, error) {
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: fmt.Sprint("Hello ", in.Name, " by ", r.Params.Meta["countersign/idempotency-key"])}}}, nil, nil
	})
}

// Every version of the protocol is spoken, and a tool has the same digest in each.
func TestVersionsOfTheProtocol(t *testing.T) {
	digests := map[string]bool{}
	for _, c := range []struct {
		speaks    []string
		stateless bool
		want      string
	}{
		{nil, true, "2026-07-28"},
		{[]string{"2026-07-28"}, true, "2026-07-28"},
		{nil, false, "2025-11-25"},
		{[]string{"2025-11-25", "2025-06-18"}, false, "2025-11-25"},
		{[]string{"2025-06-18"}, false, "2025-06-18"},
		{[]string{"2025-03-26"}, true, "2025-03-26"},
		{[]string{"2024-11-05"}, false, "2024-11-05"},
	} {
		t.Run(fmt.Sprint(c.speaks, c.stateless), func(t *testing.T) {
			r := over(t, served(c.speaks, c.stateless, greeter))
			got, err := r.list()
			require.NoError(t, err)
			require.Equal(t, c.want, got.Protocol)
			require.Empty(t, got.Left)
			require.Len(t, got.Tools, 1)
			require.Equal(t, "greet", got.Tools[0].Name)
			require.Equal(t, "says hello", got.Tools[0].Description)
			require.Equal(t, agent.MCPHints{Title: "Greet", ReadOnly: true, Idempotent: true, OpenWorld: true}, got.Tools[0].Hints)
			require.NoError(t, agent.CheckSchema(got.Tools[0].Schema))
			digests[got.Tools[0].Digest] = true

			res, err := r.call("greet", tool.Call{Key: "r1/c1", Args: json.RawMessage(`{"name":"Ana"}`)})
			require.NoError(t, err)
			require.Equal(t, agent.ToolResultData{Content: "Hello Ana by r1/c1"}, res)
			res, err = r.call("greet", tool.Call{Args: json.RawMessage(`{"name":7}`)})
			require.NoError(t, err)
			require.True(t, res.IsError, "the tool's own error")
			require.Contains(t, res.Content, "name")
		})
	}
	require.Len(t, digests, 1)
}

// One invocation connects once, lists once and says goodbye once, however many calls share the connection; it connects to nothing that is
// not used.
func TestOneConnectionAnInvocation(t *testing.T) {
	p := newPeer(t)
	r := over(t, p)
	unused := r.pinned("echo", "d")
	require.NotNil(t, unused)
	require.Empty(t, p.calls("server/discover"))
	repeats := r.tool("echo")
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			_, err := repeats.Call(context.Background(), tool.Call{})
			require.NoError(t, err)
		})
	}
	all.Wait()
	require.Len(t, p.calls("server/discover"), 1)
	require.Len(t, p.calls("tools/list"), 1)
	require.Len(t, p.calls("tools/call"), 20)
}

// A server that keeps a session for us is told when the invocation ends, whatever became of its calls.
func TestGoodbye(t *testing.T) {
	for _, args := range []string{`{"name":"Ana"}`, `{"name":7}`} {
		var mu sync.Mutex
		said := 0
		server := served([]string{"2025-06-18"}, false, greeter)
		r := over(t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			if q.Method == http.MethodDelete && q.Header.Get("Mcp-Session-Id") != "" {
				mu.Lock()
				said++
				mu.Unlock()
			}
			server.ServeHTTP(w, q)
		}))
		greet := r.tool("greet")
		_, err := greet.Call(context.Background(), tool.Call{Args: json.RawMessage(args)})
		require.NoError(t, err)
		heard := func() int { mu.Lock(); defer mu.Unlock(); return said }
		require.Zero(t, heard())
		r.session.Close()
		require.Equal(t, 1, heard())
		_, err = greet.Call(context.Background(), tool.Call{Args: json.RawMessage(args)})
		require.Error(t, err, "its connections are gone")
	}
}

// Whoever gives up waiting for a connection leaves it to the others.
func TestGivingUpOnAConnection(t *testing.T) {
	p := newPeer(t)
	begin := make(chan struct{})
	p.first = on("server/discover", func(w http.ResponseWriter, a ask) { <-begin; p.answer(w, a) })
	r := over(t, p)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := r.pinned("echo", "d").Call(ctx, tool.Call{})
	require.ErrorIs(t, err, context.Canceled)
	close(begin)
	_, err = r.list()
	require.NoError(t, err)
	require.Len(t, p.calls("server/discover"), 1)
}

// A definition that is not what the run is pinned to is told from one that is, before anything is sent.
func TestChangedDefinitions(t *testing.T) {
	base := `{"name":"echo","title":"Echo","description":"d","inputSchema":{"type":"object","properties":{"a":{"type":"string","maxLength":9007199254740993}}},"outputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}`
	digest := func(t *testing.T, definition string) string {
		p := newPeer(t)
		p.tools = func(ask) string { return `{"tools":[` + definition + `]}` }
		got, err := over(t, p).list()
		require.NoError(t, err)
		require.Len(t, got.Tools, 1, got.Left)
		return got.Tools[0].Digest
	}
	pinned := digest(t, base)
	for name, c := range map[string]struct {
		definition string
		same       bool
	}{
		"as it was":     {base, true},
		"another order": {`{"annotations":{"readOnlyHint":true},"outputSchema":{"type":"object"},"inputSchema":{"properties":{"a":{"maxLength":9007199254740993,"type":"string"}},"type":"object"},"description":"d","title":"Echo","name":"echo"}`, true},
		"spelling":      {strings.Replace(base, `"d"`, `"\u0064"`, 1), true},
		"_meta, icons":  {strings.Replace(base, `{"name"`, `{"_meta":{"a":1},"icons":[],"name"`, 1), true},
		"title":         {strings.Replace(base, `"Echo"`, `"Echo!"`, 1), false},
		"description":   {strings.Replace(base, `"d"`, `"d\u200b"`, 1), false},
		"a digit":       {strings.Replace(base, `993`, `992`, 1), false},
		"output":        {strings.Replace(base, `"outputSchema":{"type":"object"}`, `"outputSchema":{}`, 1), false},
		"annotations":   {strings.Replace(base, `true`, `false`, 1), false},
		"nothing":       {strings.Replace(base, `,"annotations":{"readOnlyHint":true}`, ``, 1), false},
		"gone":          {echo[:9] + "other" + echo[13:], false},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPeer(t)
			p.tools = func(ask) string { return `{"tools":[` + c.definition + `]}` }
			r := over(t, p)
			res, err := r.pinned("echo", pinned).Call(context.Background(), tool.Call{})
			if c.same {
				require.NoError(t, err)
				require.Contains(t, res.Content, "hello")
				return
			}
			var changed *tool.ChangedError
			require.ErrorAs(t, err, &changed)
			require.Equal(t, "s", changed.Server)
			require.Equal(t, "echo", changed.Tool)
			require.Equal(t, pinned, changed.Want)
			require.NotEqual(t, pinned, changed.Got)
			require.Equal(t, name == "gone", changed.Got == "")
			require.Empty(t, p.calls("tools/call"))
		})
	}
}

// Secrets go out with every request of their server and nowhere else: not into results, errors or descriptions.
func TestSecretsOfAConnection(t *testing.T) {
	p := newPeer(t)
	p.tools = func(ask) string {
		return `{"tools":[` + strings.Replace(echo, "says it again", "knows hunter2", 1) + `]}`
	}
	p.calling(func(w http.ResponseWriter, a ask) {
		p.result(w, a, `{"content":[{"type":"text","text":"your key is hunter2"},{"type":"image","mimeType":"image/png","data":"hunter2"}]}`)
	})
	r := over(t, p, func(c *mcp.Config, s *agent.MCPServer) {
		s.Headers = map[string]string{"X-Key": "Bearer ${secret:key}", "X-Plain": "yes"}
		c.Secrets = vault{}
	})
	res, err := r.call("echo", tool.Call{})
	require.NoError(t, err)
	require.Equal(t, "your key is ${secret:key}\n[(image/png) is left out: it holds a secret]", res.Content)
	require.Empty(t, res.Media)
	all, err := r.list()
	require.NoError(t, err)
	require.Equal(t, "knows ${secret:key}", all.Tools[0].Description)
	p.calling(func(w http.ResponseWriter, a ask) { p.refuse(w, a, 1, "not with hunter2") })
	_, err = r.call("echo", tool.Call{})
	require.ErrorContains(t, err, "not with ${secret:key}")
	for _, a := range p.heard {
		require.Equal(t, "Bearer hunter2", a.header.Get("X-Key"))
		require.Equal(t, "yes", a.header.Get("X-Plain"))
	}
}

// vault has one secret of tenant acme.
type vault struct{}

func (vault) Secret(_ context.Context, tenant, name string) (string, error) {
	if tenant != "acme" || name != "key" {
		return "", tool.ErrNoSecret
	}
	return "hunter2", nil
}

// What cannot be reached from here is refused, and nothing is tried.
func TestWhatCannotBeReached(t *testing.T) {
	none := mcp.Config{Clock: clock.System()}
	web := mcp.Config{Clock: clock.System(), Client: as(http.DefaultClient)}
	for name, c := range map[string]struct {
		config mcp.Config
		server agent.MCPServer
		says   string
	}{
		"a program":       {web, agent.MCPServer{Name: "s", Command: []string{"touch", "x"}}, "its command is a program on this machine, and none can be started here"},
		"HTTP":            {none, agent.MCPServer{Name: "s", URL: "http://127.0.0.1:1/"}, "it is a server over HTTP, and none can be reached here"},
		"a strange URL":   {web, agent.MCPServer{Name: "s", URL: "file:///etc/passwd"}, "url: want an http or https URL"},
		"nobody there":    {web, agent.MCPServer{Name: "s", URL: "http://127.0.0.1:1/secret"}, "connect: connection refused"},
		"without secrets": {web, agent.MCPServer{Name: "s", URL: "http://127.0.0.1:1/", Headers: map[string]string{"A": "${secret:x}"}}, "headers.A: read secret x: there is no such secret"},
	} {
		t.Run(name, func(t *testing.T) {
			r := open(t, c.config, c.server)
			defer r.session.Close()
			_, err := r.list()
			require.ErrorContains(t, err, "connect to MCP server s: ")
			require.ErrorContains(t, err, c.says)
			require.NotContains(t, err.Error(), "/secret")
			_, err = r.pinned("echo", "d").Call(context.Background(), tool.Call{})
			var lost *tool.LostError
			require.NotErrorAs(t, err, &lost, "nothing was sent")
		})
	}
	r := open(t, web, agent.MCPServer{Name: "s", URL: "http://127.0.0.1:1/"})
	defer r.session.Close()
	_, err := r.session.Tool(agent.ToolSpec{Name: "other.x", MCP: &agent.MCPTool{Server: "other", Tool: "x"}}).Call(context.Background(), tool.Call{})
	require.ErrorContains(t, err, "the agent has no MCP server other")
	_, err = mcp.New(mcp.Config{})
	require.ErrorContains(t, err, "want a clock")
}
