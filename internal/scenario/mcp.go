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

// server is an MCP server that lists and gives what mcp.yaml says.
type server struct {
	name      string
	protocol  string
	tools     []serverTool
	listFails int   // so many attempts to list it fail, the first ones
	down      since // no attempt succeeds
	hang      string
	dies      int // which call of the server kills it before it can answer, from 1; 0 = none does
	changes   []change
	unlocked  bool // mcp.lock does not have the server
}

// serverTool is a tool of a server, there from a moment on.
type serverTool struct {
	agent.ServerTool
	canned canned
	since  since
}

// define returns the tool with the digest of its definition.
func (t serverTool) define() agent.ServerTool {
	t.Digest = store.BlobDigest(fmt.Appendf(nil, "%s\n%s\n%s\n%v", t.Name, t.Description, t.Schema, t.Hints))
	return t.ServerTool
}

// change is another description of a tool, from a moment on.
type change struct {
	since       since
	tool        string
	description string
	gone        bool
}

// since is a moment in the life of a server: "call N", once it has served so many calls; "run 1", once the first run has ended. The zero since
// is the beginning.
type since struct {
	what string
	n    int
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

// loadServers reads mcp.yaml and wants it to have the agent's servers, each once. What they list in the beginning is
// locked, as if mcp.lock pinned it.
func (s *Scenario) loadServers(files map[string]section, ps *problems) {
	f, ok := files[mcpFile]
	if ok {
		list, err := agentfile.ParseList(s.archive, f.padded())
		ps.add(err)
		for _, item := range list {
			s.servers = append(s.servers, loadServer(s.archive, item, ps))
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
			if t.since == (since{}) {
				s.agent.MCP[i].Locked[t.Name] = t.define().Digest
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

func loadServer(archive string, item agentfile.Value, ps *problems) server {
	bad := func(key, text string) {
		ps.add(agentfile.Problem{File: archive, Line: item.Line, Key: under(item.Key, key), Text: text})
	}
	var form serverForm
	if err := (section{}).decode(item.JSON, 0, &form); err != nil {
		p, _ := err.(agentfile.Problem) //nolint:errorlint // decode makes nothing else
		bad(p.Key, p.Text)
		return server{}
	}
	moment := func(key, text string) since {
		m, err := parseSince(text)
		if err != nil {
			bad(key, err.Error())
		}
		return m
	}
	v := server{name: form.Name, protocol: cmp.Or(form.Protocol, "2026-07-28"), listFails: form.ListFails, hang: form.Hang, dies: form.Dies,
		unlocked: form.Locked != nil && !*form.Locked}
	if form.Down != "" {
		v.down = moment("down", form.Down)
	}
	for i, t := range form.Tools {
		key := fmt.Sprintf("tools[%d]", i)
		v.tools = append(v.tools, t.read(v.name, moment(key+".after", t.After), item.Line, func(at, text string) { bad(under(key, at), text) }))
	}
	for i, c := range form.Changes {
		key := fmt.Sprintf("changes[%d]", i)
		if !slices.ContainsFunc(form.Tools, func(t serverToolForm) bool { return t.Name == c.Tool }) {
			bad(key+".tool", fmt.Sprintf("got %q, want a tool of the server", c.Tool))
		}
		v.changes = append(v.changes, change{moment(key+".after", c.After), c.Tool, c.Description, c.Gone})
	}
	return v
}

func (t serverToolForm) read(server string, from since, line int, bad func(key, text string)) serverTool {
	c := canned{spec: agent.ToolSpec{Name: server + "." + t.Name, Kind: agent.KindMCP}, line: line}
	for i, raw := range t.Results {
		r, p := readResult(raw)
		if p.Text != "" {
			bad(under(fmt.Sprintf("results[%d]", i), p.Key), p.Text)
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

func parseSince(text string) (since, error) {
	if text == "" {
		return since{}, nil
	}
	what, of, _ := strings.Cut(text, " ")
	n, err := strconv.Atoi(of)
	if err != nil || n < 1 || what != "call" && text != "run 1" {
		return since{}, fmt.Errorf("got %q, want call N or run 1", text)
	}
	return since{what, n}, nil
}

// effectOf is the effect of a tool, which for a server's tool the agent's patterns say.
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

// servers is what the world outside knows of the scenario's MCP servers. No crash of an invocation reaches it.
type servers struct {
	stage  *stage
	served map[string]map[string]bool // by server: the calls it has served
	listed map[string]int             // by server: attempts to list it
	killer map[string]string          // by server: the call that killed it
}

func newServers(s *stage) *servers {
	return &servers{stage: s, served: map[string]map[string]bool{}, listed: map[string]int{}, killer: map[string]string{}}
}

// reached reports whether a moment of a server has come, the call that asks not counted.
func (v *servers) reached(m since, server, call string) bool {
	switch m.what {
	case "run":
		return v.stage.first != ""
	case "call":
		n := len(v.served[server])
		if v.served[server][call] {
			n--
		}
		return n >= m.n
	default:
		return true
	}
}

// has is what a server has now, as it is for a call.
func (v *servers) has(s *server, call string) []agent.ServerTool {
	var tools []agent.ServerTool
	for _, t := range s.tools {
		gone := !v.reached(t.since, s.name, call)
		for _, c := range s.changes {
			if c.tool == t.Name && v.reached(c.since, s.name, call) {
				t.Description, gone = c.description, c.gone
			}
		}
		if gone {
			continue
		}
		tools = append(tools, t.define())
	}
	return tools
}

// Open implements runtime.Remote.
func (v *servers) Open(string, *agent.Definition) runtime.Session {
	return &serverSession{servers: v, dead: map[string]bool{}}
}

// serverSession is one invocation's connections.
type serverSession struct {
	servers *servers
	dead    map[string]bool // servers that died in it
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
	v, canned := s.servers, s.servers.stage.scenario.server(m.Name)
	v.listed[m.Name]++
	switch {
	case s.closed:
		return agent.ServerTools{}, errServerClosed
	case canned.hang == "list":
		return agent.ServerTools{}, v.stage.clock.Sleep(ctx, 24*time.Hour)
	case v.listed[m.Name] <= canned.listFails, canned.down.what != "" && v.reached(canned.down, m.Name, ""):
		return agent.ServerTools{}, errServerDown
	}
	return agent.ServerTools{Protocol: canned.protocol, Tools: v.has(canned, "")}, nil
}

// Tool implements runtime.Session.
func (s *serverSession) Tool(t agent.ToolSpec) tool.Tool { return &serverCall{s, t} }

type serverCall struct {
	session *serverSession
	spec    agent.ToolSpec
}

func (t *serverCall) Spec() agent.ToolSpec { return t.spec }

// Call checks that the tool is the pinned one, enters it, and answers if the server lives.
func (t *serverCall) Call(ctx context.Context, c tool.Call) (agent.ToolResultData, error) {
	s, v := t.session, t.session.servers
	pinned := t.spec.MCP
	server := v.stage.scenario.server(pinned.Server)
	switch {
	case s.closed:
		return agent.ToolResultData{}, errServerClosed
	case s.dead[server.name]:
		return agent.ToolResultData{}, errServerDied
	case server.hang == pinned.Tool:
		return agent.ToolResultData{}, v.stage.clock.Sleep(ctx, 24*time.Hour)
	}
	now := ""
	for _, has := range v.has(server, c.ID) {
		if has.Name == pinned.Tool {
			now = has.Digest
		}
	}
	if now != pinned.Digest {
		return agent.ToolResultData{}, &tool.ChangedError{Server: pinned.Server, Tool: pinned.Tool, Want: pinned.Digest, Got: now}
	}
	if server.dies > 0 && len(v.served[server.name]) == server.dies-1 && v.killer[server.name] == "" {
		v.killer[server.name] = c.ID
	}
	ledger := v.stage.partOf(c.Run).ledger
	res, err := (&cannedTool{ledger, ledger.tools[t.spec.Name]}).Call(ctx, c)
	if v.killer[server.name] == c.ID {
		ledger.lose(t.spec.Name, c.ID)
	}
	if err != nil || fault.Crashed(ctx) {
		return res, err
	}
	if v.served[server.name] == nil {
		v.served[server.name] = map[string]bool{}
	}
	v.served[server.name][c.ID] = true
	if v.killer[server.name] == c.ID {
		s.dead[server.name] = true
		return agent.ToolResultData{}, &tool.LostError{Err: errServerDied}
	}
	return res, nil
}
