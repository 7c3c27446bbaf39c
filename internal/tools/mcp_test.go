package tools_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/tool"
	"github.com/countersign/countersign/internal/tools"
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

// One invocation connects once, lists once and says goodbye once, however many calls share the connection; it connects
// to nothing that is not used.
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

// A server that was started again knows none of its sessions: the call is made in a new one.
func TestServerStartedAgain(t *testing.T) {
	var again atomic.Bool
	server := served([]string{"2025-06-18"}, false, greeter)
	r := over(t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if again.Swap(false) {
			end := q.Clone(q.Context())
			end.Method, end.Body = http.MethodDelete, http.NoBody
			server.ServeHTTP(httptest.NewRecorder(), end)
		}
		server.ServeHTTP(w, q)
	}))
	for range 2 {
		res, err := r.call("greet", tool.Call{Args: json.RawMessage(`{"name":"Ana"}`)})
		require.NoError(t, err)
		require.Contains(t, res.Content, "Hello Ana")
		again.Store(true)
	}
}

// A server that keeps a session for us is told when the invocation ends.
func TestGoodbye(t *testing.T) {
	var said atomic.Int64
	server := served([]string{"2025-06-18"}, false, greeter)
	r := over(t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.Method == http.MethodDelete && q.Header.Get("Mcp-Session-Id") != "" {
			said.Add(1)
		}
		server.ServeHTTP(w, q)
	}))
	greet, args := r.tool("greet"), json.RawMessage(`{"name":7}`)
	res, err := greet.Call(context.Background(), tool.Call{Args: args})
	require.NoError(t, err)
	require.True(t, res.IsError)
	require.Zero(t, said.Load())
	r.session.Close()
	require.EqualValues(t, 1, said.Load())
	_, err = greet.Call(context.Background(), tool.Call{Args: args})
	require.Error(t, err, "its connections are gone")
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
	base := `{"name":"echo","title":"Echo","description":"d","inputSchema":{"type":"object","properties":{"a":{` +
		`"type":"string","maxLength":9007199254740993}}},"outputSchema":{"type":"object"},` +
		`"annotations":{"readOnlyHint":true}}`
	order := `{"annotations":{"readOnlyHint":true},"outputSchema":{"type":"object"},"inputSchema":{"properties":{"a":{` +
		`"maxLength":9007199254740993,"type":"string"}},"type":"object"},"description":"d","title":"Echo","name":"echo"}`
	listed, err := overAnswering(t, base, "").list()
	require.NoError(t, err)
	require.Len(t, listed.Tools, 1, listed.Left)
	pinned := listed.Tools[0].Digest
	with := func(old, changed string) string { return strings.Replace(base, old, changed, 1) }
	for definition, same := range map[string]bool{
		base: true, order: true, with(`"d"`, `"\u0064"`): true, with(`{"name"`, `{"_meta":{"a":1},"icons":[],"name"`): true,
		with(`"Echo"`, `"Echo!"`): false, with(`"d"`, `"d\u200b"`): false, with(`993`, `992`): false,
		with(`"outputSchema":{"type":"object"}`, `"outputSchema":{}`): false, with(`true`, `false`): false,
		with(`,"annotations":{"readOnlyHint":true}`, ``): false, with(`"echo"`, `"other"`): false,
	} {
		p := newPeer(t)
		p.tools = func(ask) string { return `{"tools":[` + definition + `]}` }
		res, err := over(t, p).pinned("echo", pinned).Call(context.Background(), tool.Call{})
		if same {
			require.NoError(t, err)
			require.Contains(t, res.Content, "hello")
			continue
		}
		var changed *tool.ChangedError
		require.ErrorAs(t, err, &changed, definition)
		require.Equal(t, []string{"s", "echo", pinned}, []string{changed.Server, changed.Tool, changed.Want})
		require.NotEqual(t, pinned, changed.Got)
		require.Equal(t, strings.Contains(definition, "other"), changed.Got == "")
		require.Empty(t, p.calls("tools/call"))
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
	r := over(t, p, func(c *tools.MCP, s *agent.MCPServer) {
		s.Headers = map[string]string{"X-Key": "Bearer ${secret:key}", "X-Plain": "yes"}
		c.Secrets = mcpVault{}
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

// A text is cut once its secrets are out of it: nothing would find the half of one that is left.
func TestSecretsAtACut(t *testing.T) {
	p := newPeer(t)
	cut := func(most int) string { return strings.Repeat("x", most-10) + " hunter2, and more than is taken" } // behind the n
	p.tools = func(ask) string {
		return `{"tools":[` + strings.Replace(echo, "says it again", cut(8<<10), 1) + `]}`
	}
	p.calling(func(w http.ResponseWriter, a ask) {
		p.result(w, a, `{"content":[{"type":"resource_link","uri":"`+cut(8<<10)+`"},{"type":"text","text":"`+cut(8<<20-8<<10-len("[link ]"))+`"}]}`)
	})
	r := over(t, p, withKey)
	all, err := r.list()
	require.NoError(t, err)
	require.True(t, strings.HasSuffix(all.Tools[0].Description, "x ${s […]"))
	res, err := r.call("echo", tool.Call{})
	require.NoError(t, err)
	require.Equal(t, 2, strings.Count(res.Content, " ${s […]"))
}

// mcpVault has one secret of tenant acme.
type mcpVault struct{}

func (mcpVault) Secret(_ context.Context, tenant, name string) (string, error) {
	if tenant != "acme" || name != "key" {
		return "", tool.ErrNoSecret
	}
	return "hunter2", nil
}

// What cannot be reached from here is refused, and nothing is tried.
func TestWhatCannotBeReached(t *testing.T) {
	none := tools.MCP{Clock: clock.System()}
	web := tools.MCP{Clock: clock.System(), Client: as(http.DefaultClient)}
	for name, c := range map[string]struct {
		config tools.MCP
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
			require.NotErrorAs(t, err, new(*tool.LostError), "nothing was sent")
		})
	}
	needs := &agent.Definition{Name: "clerk", MCP: []agent.MCPServer{{Name: "s", Command: []string{"touch"}}}}
	require.Contains(t, web.Refuses(needs), "agent clerk needs a program")
	require.Empty(t, tools.MCP{Start: programs()}.Refuses(needs))
	r := open(t, web, agent.MCPServer{Name: "s", URL: "http://127.0.0.1:1/"})
	defer r.session.Close()
	_, err := r.session.Tool(agent.ToolSpec{Name: "other.x", MCP: &agent.MCPTool{Server: "other", Tool: "x"}}).Call(context.Background(), tool.Call{})
	require.ErrorContains(t, err, "the agent has no MCP server other")
}

// What a result says, for results of every kind (texts joined, else the field text, else JSON).
func TestResultsOfServers(t *testing.T) {
	png := run.Media{MediaType: "image/png", Data: "iVBORw=="}
	for name, c := range map[string]struct {
		result string
		want   agent.ToolResultData
	}{
		"texts":        {`{"content":[{"type":"text","text":"a"},{"type":"text","text":"b\u202e"}]}`, agent.ToolResultData{Content: "a\nb\u202e"}},
		"an error":     {`{"content":[{"type":"text","text":"no"}],"isError":true}`, agent.ToolResultData{Content: "no", IsError: true}},
		"nothing":      {`{"content":[]}`, agent.ToolResultData{}},
		"nothing, new": {`{"resultType":"complete","content":[],"_meta":{"a":1}}`, agent.ToolResultData{}},
		"structured":   {`{"content":[],"structuredContent":{"id": 9007199254740993, "b":[1.0]}}`, agent.ToolResultData{Content: `{"id":9007199254740993,"b":[1.0]}`}},
		"both":         {`{"content":[{"type":"text","text":"a"}],"structuredContent":{"b":1}}`, agent.ToolResultData{Content: "a"}},
		"a text field": {`{"text":"a","structuredContent":{"b":1}}`, agent.ToolResultData{Content: "a"}},
		"of old":       {`{"toolResult":{"n":1.0},"_meta":{}}`, agent.ToolResultData{Content: `{"toolResult":{"n":1.0}}`}},
		"no object":    {`"done"`, agent.ToolResultData{Content: "\"done\"\n[the server's answer is not a result of the protocol]"}},
		"media": {
			`{"content":[{"type":"image","mimeType":"image/png","data":"iVBORw=="},{"type":"audio","mimeType":"audio/wav","data":"UklGRg=="}]}`,
			agent.ToolResultData{Media: []run.Media{png, {MediaType: "audio/wav", Data: "UklGRg=="}}},
		},
		"resources": {
			`{"content":[{"type":"resource","resource":{"uri":"file:///a/b.txt","text":"inside"}},{"type":"resource","resource":{"uri":"file:///a/c.bin","blob":"AAE="}},{"type":"resource_link","uri":"https://x.example/d","name":"D\nrm","mimeType":"text/html"}]}`,
			agent.ToolResultData{
				Content: "[resource file:///a/b.txt]\ninside\n[link D rm https://x.example/d text/html]",
				Media:   []run.Media{{Name: "c.bin", MediaType: "application/octet-stream", Data: "AAE="}},
			},
		},
		"unknown parts": {`{"content":[{"type":"hologram"},7,{"type":"text","text":"a"}]}`, agent.ToolResultData{Content: "[a part of type \"hologram\" is left out]\n[a part is left out: it cannot be read]\na"}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, old := range []bool{false, true} {
				p := newPeer(t)
				p.old = old
				p.calling(func(w http.ResponseWriter, a ask) { p.result(w, a, c.result) })
				got, err := over(t, p).call("echo", tool.Call{})
				require.NoError(t, err)
				require.Equal(t, c.want, got)
				for _, a := range p.calls("initialize") {
					require.JSONEq(t, `{}`, string(a.Params.Capabilities), "nothing is promised")
				}
			}
		})
	}
}

// Results are cut at their bounds and say so.
func TestResultsAtTheirBounds(t *testing.T) {
	p := newPeer(t)
	r := over(t, p)
	p.calling(func(w http.ResponseWriter, a ask) {
		p.result(w, a, `{"content":[{"type":"text","text":"`+lines(9<<20, "x")+`"},{"type":"text","text":"more"}]}`)
	})
	got, err := r.call("echo", tool.Call{})
	require.NoError(t, err)
	require.Less(t, len(got.Content), 8<<20+100)
	require.True(t, strings.HasSuffix(got.Content, "x […]\n[the rest is left out: a result has at most 8388608 bytes of text]"), got.Content[len(got.Content)-100:])
	p.calling(func(w http.ResponseWriter, a ask) {
		p.result(w, a, `{"content":[`+lines(1200, `{"type":"text","text":"x"},`)+`{}]}`)
	})
	got, err = r.call("echo", tool.Call{})
	require.NoError(t, err)
	require.True(t, strings.HasSuffix(got.Content, "x\n[201 more parts are left out: a result has at most 1000]"))
}

// A server that does not keep to the schema it gave is believed all the same, and the model is told.
func TestLiesAboutOutput(t *testing.T) {
	for name, c := range map[string]struct{ schema, result, note string }{
		"fits":       {`{"type":"object","properties":{"n":{"type":"integer"}}}`, `{"content":[],"structuredContent":{"n":1}}`, ""},
		"lies":       {`{"type":"object","properties":{"n":{"type":"integer"}}}`, `{"content":[],"structuredContent":{"n":"many"}}`, "at /n: "},
		"none":       {`{"type":"object"}`, `{"content":[{"type":"text","text":"a"}]}`, "there is no structured content"},
		"an error":   {`{"type":"object"}`, `{"content":[{"type":"text","text":"a"}],"isError":true}`, ""},
		"unreadable": {`{"type":"nothing"}`, `{"content":[],"structuredContent":{}}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			tools := strings.TrimSuffix(echo, "}") + `,"outputSchema":` + c.schema + `}`
			got, err := overAnswering(t, tools, c.result).call("echo", tool.Call{})
			require.NoError(t, err)
			require.Equal(t, c.note != "", strings.Contains(got.Content, "[the result is not what the tool's outputSchema promises: "), got.Content)
			require.Contains(t, got.Content, c.note)
		})
	}
}

// Text that a model or a person reads hides nothing; what means something else then is not used.
func TestHiddenTextInDefinitions(t *testing.T) {
	got, err := overAnswering(t, `{"name":"echo","title":"T\u200b","description":"safe\u202eevil\u0007\nnext",
		"inputSchema":{"type":"object","properties":{"a":{"type":"string","description":"x\u2066y"}}}}`, "").list()
	require.NoError(t, err)
	require.Equal(t, "safe<U+202E>evil<U+0007>\nnext", got.Tools[0].Description)
	require.Equal(t, "T<U+200B>", got.Tools[0].Hints.Title)
	require.JSONEq(t, `{"type":"object","properties":{"a":{"type":"string","description":"x<U+2066>y"}}}`, string(got.Tools[0].Schema))
}

// Servers write patterns of JavaScript, of which RE2 does not know all: the server checks those. They stay where
// without them a schema would allow less, and such a tool is not used.
func TestPatternsOfServers(t *testing.T) {
	got, err := overAnswering(t, `{"name":"wait","inputSchema":{"type":"object","properties":{"pattern":{"type":"string","pattern":"^P(?!.*W)"},
		"code":{"type":"string","pattern":"^[a-z]+$","enum":["a",{"pattern":"(?=x)"}]}}}},
		{"name":"never","inputSchema":{"type":"object","not":{"required":["a"],"properties":{"a":{"pattern":"(?=x)"}}}}}`, "").list()
	require.NoError(t, err)
	require.Len(t, got.Tools, 1)
	require.JSONEq(t, `{"type":"object","properties":{"pattern":{"type":"string"},
		"code":{"type":"string","pattern":"^[a-z]+$","enum":["a",{"pattern":"(?=x)"}]}}}`, string(got.Tools[0].Schema))
}
