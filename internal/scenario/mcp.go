package scenario

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/tool"
	"github.com/countersign/countersign/pkg/agent/agentfile"
)

// server is an MCP server of mcp.yaml, with its tools and failures.
type server struct {
	Name      string         `json:"name"`
	Protocol  string         `json:"protocol"`
	Tools     []serverTool   `json:"tools"`
	ListFails int            `json:"listFails"` // the number of first attempts to list it that fail
	Down      serverEvent    `json:"down"`      // from then on no attempt to list it succeeds; "" = never
	Hang      string         `json:"hang"`
	Dies      int            `json:"dies"`    // the call, from 1, that kills the server before it answers; 0 = none
	Changes   []serverChange `json:"changes"` // of tools' descriptions, or their removal
	Locked    *bool          `json:"locked"`  // false = mcp.lock has no entry for the server
}

// serverTool is a tool that a server lists after an event.
type serverTool struct {
	Name        string            `json:"name"`
	Description string            `json:"description"`
	Schema      json.RawMessage   `json:"schema"`
	Annotations agent.MCPHints    `json:"annotations"`
	After       serverEvent       `json:"after"`
	Results     []json.RawMessage `json:"results"`
}

type serverChange struct {
	After       serverEvent `json:"after"`
	Tool        string      `json:"tool"`
	Description string      `json:"description"`
	Gone        bool        `json:"gone"`
}

// serverEvent is an event of a server: "call N", once it has served N calls; "run 1", once the first run has ended; ""
// is the start.
type serverEvent string

// calls returns N of "call N", and 0 for any other event.
func (e serverEvent) calls() int {
	of, ok := strings.CutPrefix(string(e), "call ")
	if n, err := strconv.Atoi(of); ok && err == nil {
		return n
	}
	return 0
}

func (t serverTool) listed() agent.ServerTool {
	return agent.ServerTool{
		Name: t.Name, Description: t.Description, Schema: t.Schema, Hints: t.Annotations,
		Digest: store.BlobDigest(fmt.Appendf(nil, "%s\n%s\n%s\n%v", t.Name, t.Description, t.Schema, t.Annotations)),
	}
}

// loadServers reads mcp.yaml and checks that it has the agent's servers. The tools that they list at the start are
// locked, as if mcp.lock pinned them.
func (s *Scenario) loadServers(files map[string]section) {
	f, ok := files[mcpFile]
	if ok {
		list, err := agentfile.ParseList(s.archive, f.padded())
		s.add(err)
		for _, item := range list {
			s.servers = append(s.servers, s.parseServer(item))
		}
	}
	s.lockServers(files[agentFile])
	for _, v := range s.servers {
		if !slices.ContainsFunc(s.agent.MCP, func(m agent.MCPServer) bool { return m.Name == v.Name }) {
			f.bad("name", "got %q, want a server of %s", v.Name, agentFile)
		}
	}
}

// lockServers locks the tools of the agent's servers. The agent was read from f.
func (s *Scenario) lockServers(f section) {
	for i, m := range s.agent.MCP {
		at := slices.IndexFunc(s.servers, func(v server) bool { return v.Name == m.Name })
		if at < 0 {
			f.bad("mcp", "got the server %s, want it in %s", m.Name, mcpFile)
			continue
		}
		v := s.servers[at]
		if v.Locked != nil && !*v.Locked {
			continue
		}
		s.agent.MCP[i].Locked = map[string]string{}
		for _, t := range v.Tools {
			if t.After == "" {
				s.agent.MCP[i].Locked[t.Name] = t.listed().Digest
			}
		}
	}
}

// parseServer parses an element of mcp.yaml, and adds its tools' results to those of the scenario.
func (s *Scenario) parseServer(item agentfile.Value) server {
	var v server
	if !s.decodeItem(item, &v) {
		return v
	}
	bad := func(key, format string, args ...any) { s.at(item.Line, joinPath(item.Key, key), format, args...) }
	checkEvent := func(key string, e serverEvent) {
		if e != "" && e != "run 1" && e.calls() < 1 {
			bad(key, "got %q, want call N or run 1", e)
		}
	}
	v.Protocol = cmp.Or(v.Protocol, "2026-07-28")
	checkEvent("down", v.Down)
	for i, t := range v.Tools {
		key := fmt.Sprintf("tools[%d]", i)
		if t.Name == "" {
			bad(key+".name", "got nothing, want the tool's name")
		}
		if t.Schema == nil {
			v.Tools[i].Schema = json.RawMessage(`{"type":"object"}`)
		}
		checkEvent(key+".after", t.After)
		c := toolScript{spec: agent.ToolSpec{Name: v.Name + "." + t.Name, Kind: agent.KindMCP}, resultsLine: item.Line}
		for i, raw := range t.Results {
			r, at, text := parseResult(raw)
			if text != "" {
				bad(joinPath(fmt.Sprintf("%s.results[%d]", key, i), at), "%s", text)
			}
			c.results = append(c.results, r)
		}
		s.tools = append(s.tools, c)
	}
	hasTool := func(name string) bool {
		return slices.ContainsFunc(v.Tools, func(t serverTool) bool { return t.Name == name })
	}
	if v.Hang != "" && v.Hang != "list" && !hasTool(v.Hang) {
		bad("hang", "got %q, want list or a tool of the server", v.Hang)
	}
	for i, c := range v.Changes {
		key := fmt.Sprintf("changes[%d]", i)
		if !hasTool(c.Tool) {
			bad(key+".tool", "got %q, want a tool of the server", c.Tool)
		}
		checkEvent(key+".after", c.After)
	}
	return v
}

// fakeServer is an MCP server with its state. No crash of an invocation changes the state.
type fakeServer struct {
	server
	sim       *simulation
	served    map[string]bool // the calls that it has answered
	listed    int             // the number of attempts to list it
	fatalCall string          // the call that killed it
}

// fakeServers are the scenario's MCP servers by name, a runtime.Remote.
type fakeServers map[string]*fakeServer

// hasReached reports whether an event of the server has happened. The given call itself does not count.
func (s *fakeServer) hasReached(e serverEvent, call string) bool {
	if e == "run 1" {
		return s.sim.continues != ""
	}
	n := len(s.served)
	if s.served[call] {
		n--
	}
	return n >= e.calls()
}

func (s *fakeServer) listTools(call string) []agent.ServerTool {
	var tools []agent.ServerTool
	for _, t := range s.Tools {
		gone := !s.hasReached(t.After, call)
		for _, c := range s.Changes {
			if c.Tool == t.Name && s.hasReached(c.After, call) {
				t.Description, gone = c.Description, c.Gone
			}
		}
		if !gone {
			tools = append(tools, t.listed())
		}
	}
	return tools
}

func (all fakeServers) Open(string, *agent.Definition) runtime.Session {
	return &serverSession{servers: all, dead: map[*fakeServer]bool{}}
}

// serverSession is the connections of one invocation, a runtime.Session and Lister.
type serverSession struct {
	servers fakeServers
	dead    map[*fakeServer]bool // servers that died during the session
	closed  bool
}

var (
	errServerDied   = errors.New("connection reset by peer")
	errServerClosed = errors.New("the session is closed")
)

func (s *serverSession) Close() { s.closed = true }

func (s *serverSession) List(ctx context.Context, m agent.MCPServer) (agent.ServerTools, error) {
	server := s.servers[m.Name]
	c := fault.Call{Port: "remote.List", Target: m.Name}
	return fault.Result(ctx, server.sim.injector.Do, c, func() (found agent.ServerTools, err error) {
		server.listed++
		switch {
		case s.closed:
			return found, errServerClosed
		case server.Hang == "list":
			return found, server.sim.clock.Sleep(ctx, 24*time.Hour)
		case server.listed <= server.ListFails, server.Down != "" && server.hasReached(server.Down, ""):
			return found, errors.New("connection refused")
		}
		return agent.ServerTools{Protocol: server.Protocol, Tools: server.listTools("")}, nil
	})
}

func (s *serverSession) Tool(t agent.ToolSpec) tool.Tool {
	return &serverCall{s, s.servers[t.MCP.Server], t}
}

type serverCall struct {
	session *serverSession
	server  *fakeServer
	spec    agent.ToolSpec
}

func (t *serverCall) Spec() agent.ToolSpec { return t.spec }

func (t *serverCall) Call(ctx context.Context, c tool.Call) (agent.ToolResultData, error) {
	return t.server.sim.callTool(ctx, t.spec, c, func() (agent.ToolResultData, error) { return t.call(ctx, c) })
}

// call checks the pinned digest, executes the tool, and answers if the server lives.
func (t *serverCall) call(ctx context.Context, c tool.Call) (agent.ToolResultData, error) {
	s, server, pinned := t.session, t.server, t.spec.MCP
	switch {
	case s.closed:
		return agent.ToolResultData{}, errServerClosed
	case s.dead[server]:
		return agent.ToolResultData{}, errServerDied
	case server.Hang == pinned.Tool:
		return agent.ToolResultData{}, server.sim.clock.Sleep(ctx, 24*time.Hour)
	}
	changed := &tool.ChangedError{Server: pinned.Server, Tool: pinned.Tool, Want: pinned.Digest}
	for _, has := range server.listTools(c.ID) {
		if has.Name == pinned.Tool {
			changed.Got = has.Digest
		}
	}
	if changed.Got != changed.Want {
		return agent.ToolResultData{}, changed
	}
	if server.Dies > 0 && len(server.served) == server.Dies-1 && server.fatalCall == "" {
		server.fatalCall = c.ID
	}
	sr := server.sim.scriptedRunOf(c.Run)
	res, err := sr.executeTool(ctx, sr.tools[t.spec.Name], c)
	if server.fatalCall == c.ID {
		for _, e := range slices.Backward(server.sim.toolExecutions) {
			if e.by == sr && e.tool == t.spec.Name && e.key.call == c.ID {
				e.resultLost = true
				break
			}
		}
	}
	if err != nil || fault.HasCrashed(ctx) {
		return res, err
	}
	server.served[c.ID] = true
	if server.fatalCall == c.ID {
		s.dead[server] = true
		return agent.ToolResultData{}, &tool.LostError{Err: errServerDied}
	}
	return res, nil
}
