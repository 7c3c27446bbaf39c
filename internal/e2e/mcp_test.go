package e2e

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/standins"
	"github.com/countersign/countersign/internal/tools"
	"github.com/countersign/countersign/internal/web"
)

// fakeSecrets is a fake Secrets Manager: values by their full names.
type fakeSecrets map[string]string

func (v fakeSecrets) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var in struct {
		SecretID string `json:"SecretId"`
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	out := map[string]string{"SecretString": v[in.SecretID]}
	if v[in.SecretID] == "" {
		w.WriteHeader(http.StatusBadRequest)
		out = map[string]string{"__type": "ResourceNotFoundException"}
	}
	_ = json.NewEncoder(w).Encode(out) // a function that is gone by now does not miss it
}

// mcpProxy is a way to an MCP server that lets through whoever has the key, and knows which function speaks to it: the
// state machine invokes one at a time.
type mcpProxy struct {
	t   *testing.T
	url string // in place of the server's own
	key string

	mu      sync.Mutex
	visits  []mcpInvocation
	now     string // the function that is invoked; "" = none
	sockets map[net.Conn]bool
}

// mcpInvocation is one invocation of a function, with its messages to the server.
type mcpInvocation struct {
	function string
	told     []string // methods; of calls also the tool
}

func newMCPProxy(t *testing.T, server, key string) *mcpProxy {
	t.Helper()
	to, err := url.Parse(server)
	require.NoError(t, err)
	w := &mcpProxy{t: t, key: key, sockets: map[net.Conn]bool{}}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = to.Scheme, to.Host }, FlushInterval: -1,
	}
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { w.forward(proxy, rw, r) }))
	srv.Config.ConnState = w.trackConnection
	srv.Start()
	t.Cleanup(srv.Close)
	w.url = srv.URL + to.Path
	return w
}

// trackConnection records the open sockets.
func (w *mcpProxy) trackConnection(c net.Conn, s http.ConnState) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s == http.StateClosed {
		delete(w.sockets, c)
		return
	}
	w.sockets[c] = true
}

func (w *mcpProxy) forward(to http.Handler, rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the function is gone
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if r.Header.Get("X-Api-Key") != w.key {
		http.Error(rw, "wrong key", http.StatusUnauthorized)
		return
	}
	w.recordMessage(r.Method, body)
	to.ServeHTTP(rw, r)
}

// recordMessage records a message to the server, under the invoked function.
func (w *mcpProxy) recordMessage(method string, body []byte) {
	var message struct {
		Method string
		Params struct{ Name string }
	}
	if method == http.MethodPost {
		if err := json.Unmarshal(body, &message); err != nil {
			w.t.Errorf("%s is no message: %v", body, err)
			return
		}
		method = strings.TrimSpace(message.Method + " " + message.Params.Name)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.now == "" {
		w.t.Errorf("%s, and no function is invoked", method)
		return
	}
	last := &w.visits[len(w.visits)-1]
	last.told = append(last.told, method)
}

// deliverWatched is a deployment's way to deliver the state machine's events, with the watch told of them. When a
// function has answered, its process lives on: soon after no socket is open.
func (w *mcpProxy) deliverWatched(d *deployment) func(function string, payload []byte) ([]byte, error) {
	return func(function string, payload []byte) ([]byte, error) {
		w.mu.Lock()
		w.now, w.visits = function, append(w.visits, mcpInvocation{function: function})
		w.mu.Unlock()
		out, err := d.functions[function].Invoke(w.t.Context(), payload)
		w.mu.Lock()
		w.now = ""
		w.mu.Unlock()
		w.requireNoConnections(function)
		return out, err
	}
}

// requireNoConnections requires that all sockets are closed while the function's process lives on.
func (w *mcpProxy) requireNoConnections(function string) {
	assert.Eventually(w.t, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.sockets) == 0
	}, 2*time.Minute, 5*time.Millisecond, "functions/%s has answered and leaves sockets open", function)
}

// waitAnswered waits until a function has answered and no other has been invoked since.
func (w *mcpProxy) waitAnswered(function string) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.now == "" && w.visits[len(w.visits)-1].function == function
	}, 2*time.Minute, 10*time.Millisecond)
}

// addingModel is a model that says hello to the server, has it add two numbers and repeats its answer.
func addingModel(t *testing.T) *standins.Bedrock {
	t.Helper()
	return newModel(t, func(r standins.BedrockRequest) standins.Turn {
		b := standins.Text("It is 42.")
		switch strings.Count(string(r.Body), `"toolResult"`) {
		case 0:
			b = standins.ToolUse("t1", "everything_echo", `{"message":"hello"}`)
		case 1:
			b = standins.ToolUse("t2", "everything_get-sum", `{"a":19,"b":23}`)
		}
		return standins.Reply{Blocks: []standins.Block{b}}
	})
}

const (
	theKey    = "key-of-acme-7131"
	keySecret = "countersign-dev/tools/" + acme + "/EVERYTHING_KEY"
)

// startAddRun starts a run whose agent has the server's tools but for its environment. Whatever the server says of
// them, to echo is to read, and the sum is countersigned.
func (d *deployment) startAddRun(server string, locked map[string]string) run.AgentState {
	d.t.Helper()
	def, err := agent.Definition{
		Name: "sums", System: "You add.", Model: agent.ModelSpec{Provider: "bedrock", ID: "m"},
		Permission: agent.Permission{Default: agent.DefaultByEffect, Approvers: []string{"group:operators"}},
		MCP: []agent.MCPServer{{
			Name: "everything", URL: server, Locked: locked, Headers: map[string]string{"X-Api-Key": "${secret:EVERYTHING_KEY}"}, Deny: []string{"get-env"},
			Tools: []agent.MCPPattern{{Match: "echo", Effect: run.EffectRead}, {Match: "get-*", Effect: run.EffectNonIdempotent}},
		}},
	}.Resolve()
	require.NoError(d.t, err)
	require.NoError(d.t, def.Check())
	return d.start(runtime.Start{Tenant: acme, Agent: &def, Key: "k"}, "19 and 23?")
}

// lockTools lists a server as mcp.lock is written: the digests of its tools by their names.
func lockTools(t *testing.T, server string) map[string]string {
	t.Helper()
	remote := tools.MCP{
		Clock: clock.System(), Client: func(*url.URL) (*http.Client, error) { return &http.Client{}, nil },
	}
	m := agent.MCPServer{Name: "everything", URL: server}
	session := remote.Open("", &agent.Definition{MCP: []agent.MCPServer{m}})
	defer session.Close()
	listed, err := session.(runtime.Lister).List(t.Context(), m)
	require.NoError(t, err)
	digests := map[string]string{}
	for _, tool := range listed.Tools {
		require.Regexp(t, "^[0-9a-f]{64}$", tool.Digest)
		digests[tool.Name] = tool.Digest
	}
	return digests
}

// Tools of a real MCP server, over HTTP, with a key from Secrets Manager: they are as mcp.lock pins them, one that it
// does not have is disabled, a call waits for people with no function and no connection there, and is made once. Only
// functions/tool ever speaks to the server, and hangs up with each batch.
func TestToolsOfAnMCPServer(t *testing.T) {
	server := standins.StartMCPServer(t)
	w := newMCPProxy(t, server.URL, theKey)
	at, err := url.Parse(w.url)
	require.NoError(t, err)
	model := addingModel(t)
	d := deploy(t, model, func(d *deployment) {
		d.values["PrivateHosts"] = at.Host
		d.vault[keySecret] = theKey
		d.deliver = w.deliverWatched(d)
	})
	locked := lockTools(t, server.URL)
	var unlocked string
	for tool := range locked {
		if !slices.Contains([]string{"echo", "get-sum", "get-env"}, tool) {
			unlocked = tool
		}
	}
	delete(locked, unlocked)
	started := d.startAddRun(w.url, locked)
	s := d.waitFor(acme, started.Run, isParked)
	ana := d.anaClient()
	def := d.requirePinned(ana, started.Definition, s, locked, unlocked)
	waiting, err := ana.Run(t.Context(), s.Run)
	require.NoError(t, err)
	require.Equal(t, run.StatusSucceeded, waiting.Calls[0].Status, "the author's word is that echo reads")
	require.Equal(t, run.StatusSuspended, waiting.Calls[1].Status)
	require.Contains(t, string(model.Requests()[0].Body), `"everything_get-sum"`)
	require.NotContains(t, string(model.Requests()[0].Body), `"everything_get-env"`)

	w.waitAnswered("approve") // which has kept the task token
	d.killAll()
	d.approve(ana, s)
	s = d.waitFor(acme, s.Run, isDone)
	d.waitAtRest()
	require.Equal(t, run.ReasonNaturalEnd, s.Reason, "%+v", s.Error)
	require.Equal(t, `"It is 42."`, string(s.Output))
	calls := s.Calls()
	require.Len(t, calls, 2)
	require.Equal(t, "Echo: hello", calls[0].Result.Content)
	require.Equal(t, "The sum of 19 and 23 is 42.", calls[1].Result.Content)
	require.Equal(t, []int{1, 1}, []int{calls[0].Executions, calls[1].Executions})

	d.requireMCPTraffic(w, server)
	view, err := policy.View(&s)
	require.NoError(t, err)
	kept, err := json.Marshal([]any{view, def})
	require.NoError(t, err)
	require.Contains(t, string(kept), "${secret:EVERYTHING_KEY}")
	require.NotContains(t, string(kept)+d.log.String(), theKey)
}

// requirePinned checks what a run and its agent know of the server, and gives the definition the run goes on with.
func (d *deployment) requirePinned(ana *web.Client, written string, s run.AgentState, locked map[string]string, unlocked string) *agent.Definition {
	d.t.Helper()
	shown, err := ana.Run(d.t.Context(), s.Run)
	require.NoError(d.t, err)
	require.Len(d.t, shown.Servers, 1)
	got := shown.Servers[0]
	require.Equal(d.t, "everything", got.Name)
	require.NotEmpty(d.t, got.Protocol)
	require.Empty(d.t, got.Problem)
	disabled := map[string]run.DisabledWhy{}
	for _, tool := range got.Disabled {
		disabled[tool.Tool] = tool.Why
	}
	require.Equal(d.t, map[string]run.DisabledWhy{
		unlocked: run.DisabledNew, "simulate-research-query": run.DisabledUnusable, // which runs as a task alone
	}, disabled)
	require.Contains(d.t, d.log.String(), "use the tool "+unlocked+" of the MCP server everything of agent sums")
	require.Contains(d.t, d.log.String(), "run: countersign mcp lock")
	require.Subset(d.t, got.Tools, []string{"echo", "get-sum"})
	require.NotContains(d.t, got.Tools, "get-env")

	require.NotEqual(d.t, written, s.Definition)
	def, err := runtime.PinnedDefinitions(d.ports.Blobs)(d.t.Context(), acme, s.Definition)
	require.NoError(d.t, err)
	var names []string
	for _, tool := range def.Tools {
		names = append(names, tool.MCP.Tool)
		require.Equal(d.t, locked[tool.MCP.Tool], tool.MCP.Digest)
	}
	require.Equal(d.t, got.Tools, names)
	return def
}

// requireMCPTraffic checks the messages to the server, with their senders and order.
func (d *deployment) requireMCPTraffic(w *mcpProxy, server *standins.MCPServer) {
	d.t.Helper()
	// The server does not know the first, a newer protocol's: then the handshake of its own is made. To ask people,
	// nobody has to connect.
	hello := []string{"server/discover", "initialize", "notifications/initialized", "tools/list"}
	talk := func(more ...string) mcpInvocation {
		return mcpInvocation{"tool", slices.Concat(hello, more, []string{"DELETE"})}
	}
	step := mcpInvocation{function: "step"}
	w.mu.Lock()
	defer w.mu.Unlock()
	require.Equal(d.t, []mcpInvocation{
		step, talk(), step, talk("tools/call echo"), step, {function: "tool"}, step, {function: "approve"}, // and all functions are gone
		step, talk("tools/call get-sum"), step,
	}, w.visits)
	said := server.Said.String()
	require.Equal(d.t, 4, strings.Count(said, "Session initialized"), "one of them to write mcp.lock")
	require.Equal(d.t, 4, strings.Count(said, "Transport closed for session"), "the server itself has ended them")
	require.NotContains(d.t, said, "Error")
}
