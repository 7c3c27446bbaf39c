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
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/tool"
	"github.com/countersign/countersign/pkg/agent/agentfile"
)

// server is an MCP server of mcp.yaml, with its tools, results and failures.
type server struct {
	name       string
	protocol   string
	tools      []serverTool
	listFails  int        // the number of first attempts to list it that fail
	downAfter  afterEvent // from then on no attempt to list it succeeds
	hang       string
	diesAtCall int // the call, from 1, that kills the server before it answers; 0 = none
	changes    []change
	unlocked   bool // mcp.lock has no entry for the server
}

// serverTool is a tool that a server lists after an event.
type serverTool struct {
	agent.ServerTool
	canned toolScript
	after  afterEvent
}

// withDigest returns the tool with the digest of its definition.
func (t serverTool) withDigest() agent.ServerTool {
	t.Digest = store.BlobDigest(fmt.Appendf(nil, "%s\n%s\n%s\n%v", t.Name, t.Description, t.Schema, t.Hints))
	return t.ServerTool
}

// change is another description of a tool, or its removal, after an event.
type change struct {
	after       afterEvent
	tool        string
	description string
	gone        bool
}

// afterEvent is an event of a server: "call N", once it has served N calls; "run 1", once the first run has ended. The
// zero value is the start.
type afterEvent struct {
	event string
	count int
}

// serverForm is an element of mcp.yaml.
type serverForm struct {
	Name      string           `json:"name"`
	Protocol  string           `json:"protocol"`
	Tools     []serverToolForm `json:"tools"`
	ListFails int              `json:"listFails"`
	Down      string           `json:"down"`
	Hang      string           `json:"hang"`
	Dies      int              `json:"dies"`
	Changes   []changeForm     `json:"changes"`
	Locked    *bool            `json:"locked"`
}

type serverToolForm struct {
	Name        string            `json:"name"`
	Description string            `json:"description"`
	Schema      json.RawMessage   `json:"schema"`
	Annotations agent.MCPHints    `json:"annotations"`
	After       string            `json:"after"`
	Results     []json.RawMessage `json:"results"`
}

type changeForm struct {
	After       string `json:"after"`
	Tool        string `json:"tool"`
	Description string `json:"description"`
	Gone        bool   `json:"gone"`
}

// loadServers reads mcp.yaml and checks that it has the agent's servers. The tools that they list at the start are
// locked, as if mcp.lock pinned them.
func (s *Scenario) loadServers(files map[string]section, ps *problems) {
	f, ok := files[mcpFile]
	if ok {
		list, err := agentfile.ParseList(s.archive, f.padded())
		ps.add(err)
		for _, item := range list {
			s.servers = append(s.servers, parseServer(s.archive, item, ps))
		}
	}
	for i, m := range s.agent.MCP {
		v := s.server(m.Name)
		if v == nil {
			ps.add(files[agentFile].problem(0, "mcp", "got the server "+m.Name+", want it in "+mcpFile))
			continue
		}
		if v.unlocked {
			continue
		}
		s.agent.MCP[i].Locked = map[string]string{}
		for _, t := range v.tools {
			if t.after == (afterEvent{}) {
				s.agent.MCP[i].Locked[t.Name] = t.withDigest().Digest
			}
		}
	}
	for _, v := range s.servers {
		if !slices.ContainsFunc(s.agent.MCP, func(m agent.MCPServer) bool { return m.Name == v.name }) {
			ps.add(f.problem(0, "name", fmt.Sprintf("got %q, want a server of %s", v.name, agentFile)))
		}
		for _, t := range v.tools {
			s.tools = append(s.tools, t.canned)
		}
	}
}

func (s *Scenario) server(name string) *server {
	i := slices.IndexFunc(s.servers, func(v server) bool { return v.name == name })
	if i < 0 {
		return nil
	}
	return &s.servers[i]
}

func parseServer(archive string, item agentfile.Value, ps *problems) server {
	bad := func(key, text string) {
		ps.add(agentfile.Problem{File: archive, Line: item.Line, Key: joinPath(item.Key, key), Text: text})
	}
	var form serverForm
	if err := (section{}).decode(item.JSON, 0, &form); err != nil {
		p, _ := err.(agentfile.Problem) //nolint:errorlint // decode returns no other type
		bad(p.Key, p.Text)
		return server{}
	}
	parseAfter := func(key, text string) afterEvent {
		if text == "" {
			return afterEvent{}
		}
		what, of, _ := strings.Cut(text, " ")
		n, err := strconv.Atoi(of)
		if err != nil || n < 1 || what != "call" && text != "run 1" {
			bad(key, fmt.Sprintf("got %q, want call N or run 1", text))
			return afterEvent{}
		}
		return afterEvent{what, n}
	}
	v := server{name: form.Name, protocol: cmp.Or(form.Protocol, "2026-07-28"), listFails: form.ListFails, hang: form.Hang, diesAtCall: form.Dies,
		unlocked: form.Locked != nil && !*form.Locked}
	if form.Down != "" {
		v.downAfter = parseAfter("down", form.Down)
	}
	for i, t := range form.Tools {
		key := fmt.Sprintf("tools[%d]", i)
		v.tools = append(v.tools, t.parse(v.name, parseAfter(key+".after", t.After), item.Line, func(at, text string) { bad(joinPath(key, at), text) }))
	}
	for i, c := range form.Changes {
		key := fmt.Sprintf("changes[%d]", i)
		if !slices.ContainsFunc(form.Tools, func(t serverToolForm) bool { return t.Name == c.Tool }) {
			bad(key+".tool", fmt.Sprintf("got %q, want a tool of the server", c.Tool))
		}
		v.changes = append(v.changes, change{parseAfter(key+".after", c.After), c.Tool, c.Description, c.Gone})
	}
	return v
}

func (t serverToolForm) parse(server string, from afterEvent, line int, bad func(key, text string)) serverTool {
	c := toolScript{spec: agent.ToolSpec{Name: server + "." + t.Name, Kind: agent.KindMCP}, resultsLine: line}
	for i, raw := range t.Results {
		r, p := parseResult(raw)
		if p.Text != "" {
			bad(joinPath(fmt.Sprintf("results[%d]", i), p.Key), p.Text)
		}
		c.results = append(c.results, r)
	}
	if t.Name == "" {
		bad("name", "got nothing, want the tool's name")
	}
	schema := t.Schema
	if schema == nil {
		schema = json.RawMessage(`{"type":"object"}`)
	}
	return serverTool{agent.ServerTool{Name: t.Name, Description: t.Description, Schema: schema, Hints: t.Annotations}, c, from}
}

// effectOf returns the effect of a tool. For a server's tool, it comes from the agent's patterns.
func (s *Scenario) effectOf(name string) (run.Effect, bool) {
	if t, ok := s.agent.Tool(name); ok {
		return t.Effect, true
	}
	for _, m := range s.agent.MCP {
		own, ok := strings.CutPrefix(name, m.Name+".")
		if !ok {
			continue
		}
		for _, p := range m.Tools {
			if agent.MatchTool(p.Match, own) {
				return cmp.Or(p.Effect, run.EffectNonIdempotent), true
			}
		}
		return run.EffectNonIdempotent, true
	}
	return "", false
}

// fakeServers are the scenario's MCP servers with their state. No crash of an invocation changes it.
type fakeServers struct {
	sim          *simulation
	servedCalls  map[string]map[string]bool // by server: the calls that it has answered
	listAttempts map[string]int             // by server: the number of attempts to list it
	fatalCall    map[string]string          // by server: the call that killed it
}

// hasReached reports whether an event of a server has happened. The given call itself does not count.
func (fs *fakeServers) hasReached(m afterEvent, server, call string) bool {
	switch m.event {
	case "run":
		return fs.sim.continues != ""
	case "call":
		n := len(fs.servedCalls[server])
		if fs.servedCalls[server][call] {
			n--
		}
		return n >= m.count
	default:
		return true
	}
}

// listTools returns the tools that a server has at a call.
func (fs *fakeServers) listTools(s *server, call string) []agent.ServerTool {
	var tools []agent.ServerTool
	for _, t := range s.tools {
		gone := !fs.hasReached(t.after, s.name, call)
		for _, c := range s.changes {
			if c.tool == t.Name && fs.hasReached(c.after, s.name, call) {
				t.Description, gone = c.description, c.gone
			}
		}
		if gone {
			continue
		}
		tools = append(tools, t.withDigest())
	}
	return tools
}

// Open implements runtime.Remote.
func (fs *fakeServers) Open(string, *agent.Definition) runtime.Session {
	return &serverSession{servers: fs, dead: map[string]bool{}}
}

// serverSession is the connections of one invocation.
type serverSession struct {
	servers *fakeServers
	dead    map[string]bool // servers that died during the session
	closed  bool
}

var (
	errServerDown   = errors.New("connection refused")
	errServerDied   = errors.New("connection reset by peer")
	errServerClosed = errors.New("the session is closed")
)

// Close implements runtime.Session.
func (s *serverSession) Close() { s.closed = true }

// List implements runtime.Lister.
func (s *serverSession) List(ctx context.Context, m agent.MCPServer) (agent.ServerTools, error) {
	fs, canned := s.servers, s.servers.sim.scenario.server(m.Name)
	fs.listAttempts[m.Name]++
	switch {
	case s.closed:
		return agent.ServerTools{}, errServerClosed
	case canned.hang == "list":
		return agent.ServerTools{}, fs.sim.clock.Sleep(ctx, 24*time.Hour)
	case fs.listAttempts[m.Name] <= canned.listFails, canned.downAfter.event != "" && fs.hasReached(canned.downAfter, m.Name, ""):
		return agent.ServerTools{}, errServerDown
	}
	return agent.ServerTools{Protocol: canned.protocol, Tools: fs.listTools(canned, "")}, nil
}

// Tool implements runtime.Session.
func (s *serverSession) Tool(t agent.ToolSpec) tool.Tool { return &serverCall{s, t} }

type serverCall struct {
	session *serverSession
	spec    agent.ToolSpec
}

func (t *serverCall) Spec() agent.ToolSpec { return t.spec }

// Call checks the pinned digest, executes the tool, and answers if the server lives.
func (t *serverCall) Call(ctx context.Context, c tool.Call) (agent.ToolResultData, error) {
	s, fs := t.session, t.session.servers
	pinned := t.spec.MCP
	server := fs.sim.scenario.server(pinned.Server)
	switch {
	case s.closed:
		return agent.ToolResultData{}, errServerClosed
	case s.dead[server.name]:
		return agent.ToolResultData{}, errServerDied
	case server.hang == pinned.Tool:
		return agent.ToolResultData{}, fs.sim.clock.Sleep(ctx, 24*time.Hour)
	}
	now := ""
	for _, has := range fs.listTools(server, c.ID) {
		if has.Name == pinned.Tool {
			now = has.Digest
		}
	}
	if now != pinned.Digest {
		return agent.ToolResultData{}, &tool.ChangedError{Server: pinned.Server, Tool: pinned.Tool, Want: pinned.Digest, Got: now}
	}
	if server.diesAtCall > 0 && len(fs.servedCalls[server.name]) == server.diesAtCall-1 && fs.fatalCall[server.name] == "" {
		fs.fatalCall[server.name] = c.ID
	}
	effects := fs.sim.scriptedRunOf(c.Run).effects
	res, err := (&fakeTool{effects, effects.tools[t.spec.Name]}).Call(ctx, c)
	if fs.fatalCall[server.name] == c.ID {
		for _, e := range slices.Backward(effects.executions[t.spec.Name]) {
			if e.key.call == c.ID {
				e.resultLost = true
				break
			}
		}
	}
	if err != nil || fault.HasCrashed(ctx) {
		return res, err
	}
	if fs.servedCalls[server.name] == nil {
		fs.servedCalls[server.name] = map[string]bool{}
	}
	fs.servedCalls[server.name][c.ID] = true
	if fs.fatalCall[server.name] == c.ID {
		s.dead[server.name] = true
		return agent.ToolResultData{}, &tool.LostError{Err: errServerDied}
	}
	return res, nil
}
