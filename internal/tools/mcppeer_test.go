package tools_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/tool"
	"github.com/countersign/countersign/internal/tools"
)

// ask is a message of the client's as a peer gets it.
type ask struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Name           string                     `json:"name"`
		Arguments      json.RawMessage            `json:"arguments"`
		Meta           map[string]json.RawMessage `json:"_meta"`
		Cursor         string                     `json:"cursor"`
		InputResponses json.RawMessage            `json:"inputResponses"`
		RequestState   string                     `json:"requestState"`
		Capabilities   json.RawMessage            `json:"capabilities"`
	} `json:"params"`

	header http.Header
}

// peer is a server by hand, of the newest protocol or an older one, of which a test replaces what it likes. It counts
// what it is told.
type peer struct {
	t     *testing.T
	old   bool                                       // initialize, not discover
	tools func(ask) string                           // the result of tools/list
	call  func(http.ResponseWriter, ask)             // tools/call
	first func(http.ResponseWriter, ask) (done bool) // before anything else; nil = nothing
	slow  chan struct{}                              // closed when the test ends: hangs end with it

	mu    sync.Mutex
	heard []ask
}

const echo = `{"name":"echo","description":"says it again","inputSchema":{"type":"object","properties":{"text":{"type":"string"}}}}`

func newPeer(t *testing.T) *peer {
	p := &peer{t: t, slow: make(chan struct{})}
	p.tools = func(ask) string { return `{"tools":[` + echo + `]}` }
	p.call = func(w http.ResponseWriter, a ask) { p.result(w, a, `{"content":[{"type":"text","text":"hello"}]}`) }
	return p
}

func (p *peer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	a := ask{header: r.Header}
	if json.Unmarshal(body, &a) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	p.mu.Lock()
	p.heard = append(p.heard, a)
	p.mu.Unlock()
	if p.first != nil && p.first(w, a) {
		return
	}
	p.answer(w, a)
}

func (p *peer) answer(w http.ResponseWriter, a ask) {
	switch a.Method {
	case "server/discover":
		if p.old {
			p.refuse(w, a, -32601, "no such method")
			return
		}
		p.result(w, a, `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"p","version":"1"}}}`)
	case "initialize":
		p.result(w, a, `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"p","version":"1"}}`)
	case "tools/list":
		p.result(w, a, p.tools(a))
	case "tools/call":
		p.mu.Lock()
		call := p.call
		p.mu.Unlock()
		call(w, a)
	default:
		w.WriteHeader(http.StatusAccepted)
	}
}

func (p *peer) result(w http.ResponseWriter, a ask, result string) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, a.ID, result)
}

func (p *peer) refuse(w http.ResponseWriter, a ask, code int, message string) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%q}}`, a.ID, code, message)
}

// hang answers nothing until the client gives up.
func (p *peer) hang(w http.ResponseWriter) {
	stream(w)
	w.(http.Flusher).Flush()
	<-p.slow
}

// calling changes what calls are answered with.
func (p *peer) calling(f func(http.ResponseWriter, ask)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.call = f
}

// calls are what reached a method.
func (p *peer) calls(method string) (out []ask) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.heard {
		if a.Method == method {
			out = append(out, a)
		}
	}
	return out
}

// rig is one invocation against one server called "s".
type rig struct {
	t       *testing.T
	server  agent.MCPServer
	session runtime.Session
}

// over serves h and opens an invocation against it. Everything of it is gone when the test ends.
func over(t *testing.T, h http.Handler, change ...func(*tools.MCP, *agent.MCPServer)) *rig {
	t.Helper()
	before := goleak.IgnoreCurrent()
	server := httptest.NewServer(h)
	transport := &http.Transport{}
	c := tools.MCP{Clock: clock.System(), Client: as(&http.Client{Transport: transport})}
	s := agent.MCPServer{Name: "s", URL: server.URL + "/mcp", Timeout: time.Minute}
	for _, f := range change {
		f(&c, &s)
	}
	r := open(t, c, s)
	t.Cleanup(func() {
		r.session.Close()
		if p, ok := h.(*peer); ok {
			close(p.slow)
		}
		transport.CloseIdleConnections()
		server.CloseClientConnections()
		server.Close()
		requireNoLeak(t, before)
	})
	return r
}

func open(t *testing.T, c tools.MCP, s agent.MCPServer) *rig {
	return &rig{t: t, server: s, session: c.Open("acme", &agent.Definition{MCP: []agent.MCPServer{s}})}
}

// overAnswering is an invocation against a server that lists these tools, "" = echo, and answers calls with a result.
func overAnswering(t *testing.T, list, result string, change ...func(*tools.MCP, *agent.MCPServer)) *rig {
	t.Helper()
	p := newPeer(t)
	if list != "" {
		p.tools = func(ask) string { return `{"tools":[` + list + `]}` }
	}
	p.calling(func(w http.ResponseWriter, a ask) { p.result(w, a, result) })
	return over(t, p, change...)
}

func within(d time.Duration) func(*tools.MCP, *agent.MCPServer) {
	return func(_ *tools.MCP, s *agent.MCPServer) { s.Timeout = d }
}

func (r *rig) list() (agent.ServerTools, error) {
	return r.session.(runtime.Lister).List(context.Background(), r.server)
}

// tool is a tool as the run is pinned to it: as the server describes it now.
func (r *rig) tool(name string) tool.Tool {
	r.t.Helper()
	all, err := r.list()
	require.NoError(r.t, err)
	for _, tool := range all.Tools {
		if tool.Name == name {
			return r.pinned(name, tool.Digest)
		}
	}
	r.t.Fatalf("no tool %s among %v, left %v", name, all.Tools, all.Left)
	return nil
}

func (r *rig) pinned(name, digest string) tool.Tool {
	return r.session.Tool(agent.ToolSpec{Name: "s." + name, Kind: agent.KindMCP, MCP: &agent.MCPTool{Server: "s", Tool: name, Digest: digest}})
}

func (r *rig) call(name string, c tool.Call) (agent.ToolResultData, error) {
	r.t.Helper()
	return r.tool(name).Call(context.Background(), c)
}

func lines(n int, line string) string { return strings.Repeat(line, n) }

// as is a client for every server.
func as(c *http.Client) tools.MCPClient {
	return func(*url.URL) (*http.Client, error) { return c, nil }
}

// requireNoLeak waits until every goroutine that began after before has ended. A program may need a while to end on a
// loaded machine.
func requireNoLeak(t *testing.T, before goleak.Option) {
	t.Helper()
	var leak error
	if !assert.Eventually(t, func() bool {
		leak = goleak.Find(before)
		return leak == nil
	}, 2*time.Minute, 10*time.Millisecond) {
		t.Fatal(leak)
	}
}

// piped is a server as a program is one, without the program: it answers each request with lines, by hand, and may end
// with them.
func piped(answer func(ask) (text string, ends bool)) tools.StartProgram {
	return func([]string, string, map[string]string) (tools.Program, error) {
		in, toServer := io.Pipe()
		fromServer, out := io.Pipe()
		go func() {
			defer func() { _, _ = in.Close(), out.Close() }() // pipes in memory
			told := bufio.NewScanner(in)
			told.Buffer(nil, 32<<20)
			for told.Scan() {
				var a ask
				if json.Unmarshal(told.Bytes(), &a) != nil || a.ID == nil || a.Method == "" {
					continue
				}
				text, ends := answer(a)
				if _, err := io.WriteString(out, text+"\n"); err != nil || ends {
					return
				}
			}
		}()
		both := &ends{Reader: fromServer, Writer: toServer, close: []io.Closer{fromServer, toServer}}
		return pipes{Transport: &sdk.IOTransport{Reader: both, Writer: both}, ends: both}, nil
	}
}

// pipes are a program that has nothing to say at its end.
type pipes struct {
	sdk.Transport
	ends *ends
}

func (p pipes) End()              { _ = p.ends.Close() } // pipes in memory
func (p pipes) LastWords() string { return "" }

// ends are the client's ends of two pipes.
type ends struct {
	io.Reader
	io.Writer
	once  sync.Once
	close []io.Closer
}

func (e *ends) Close() error {
	e.once.Do(func() {
		for _, c := range e.close {
			_ = c.Close() // pipes in memory
		}
	})
	return nil
}

// speaks is what a server of the newest protocol with the tool echo answers.
func speaks(a ask) string {
	switch a.Method {
	case "server/discover":
		return answered(a, `{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`)
	case "tools/list":
		return answered(a, `{"tools":[`+echo+`]}`)
	case "tools/call":
		return answered(a, `{"content":[{"type":"text","text":"hello"}]}`)
	default:
		return `{"jsonrpc":"2.0","id":` + string(a.ID) + `,"error":{"code":-32601,"message":"no such method"}}`
	}
}

func answered(a ask, result string) string {
	return `{"jsonrpc":"2.0","id":` + string(a.ID) + `,"result":` + result + `}`
}
