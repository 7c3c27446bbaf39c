package agent

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var anyArguments = json.RawMessage(`{"type":"object"}`)

func offers(names ...string) ServerTools {
	var l ServerTools
	for _, n := range names {
		l.Tools = append(l.Tools, ServerTool{Name: n, Schema: anyArguments, Digest: "d-" + n, Hints: MCPHints{ReadOnly: true, Idempotent: true}})
	}
	return l
}

func namesOf(tools []ToolSpec) []string {
	var names []string
	for _, t := range tools {
		names = append(names, t.Name)
	}
	return names
}

func TestResolve(t *testing.T) {
	long := strings.Repeat("x", 200)
	for name, c := range map[string]struct {
		own      []ToolSpec
		text     TextPolicy
		server   MCPServer
		listed   ServerTools
		pins     Pins
		tools    []string
		disabled []string // tool: why
	}{
		"all, in the server's order":           {listed: offers("b", "a"), tools: []string{"files.b", "files.a"}},
		"dots in a name":                       {listed: offers("a.b"), tools: []string{"files.a.b"}},
		"deny before allow":                    {server: MCPServer{Allow: []string{"a*"}, Deny: []string{"*b"}}, listed: offers("a", "ab", "b", "c"), tools: []string{"files.a"}},
		"nothing is pinned yet":                {listed: offers("a"), pins: nil, tools: []string{"files.a"}},
		"pinned as it is":                      {listed: offers("a"), pins: Pins{"a": "d-a", "gone": "1"}, tools: []string{"files.a"}},
		"changed":                              {listed: offers("a", "b"), pins: Pins{"a": "0", "b": "d-b"}, tools: []string{"files.b"}, disabled: []string{"a: changed d-a"}},
		"new":                                  {listed: offers("a"), pins: Pins{}, disabled: []string{"a: new d-a"}},
		"changed, and not wanted":              {server: MCPServer{Deny: []string{"a"}}, listed: offers("a"), pins: Pins{"a": "0"}},
		"no name for a model":                  {listed: offers("a b", ""), disabled: []string{"a b: unusable", ": unusable"}},
		"a long name":                          {listed: offers(strings.Repeat("x", 59)), disabled: []string{strings.Repeat("x", 59) + ": unusable"}},
		"a longer one is not shown whole":      {listed: offers(long), disabled: []string{long[:80] + "…: unusable"}},
		"the longest":                          {listed: offers(strings.Repeat("x", 58)), tools: []string{"files." + strings.Repeat("x", 58)}},
		"collides with the agent's own":        {own: []ToolSpec{{Name: "files_a"}}, listed: offers("a"), disabled: []string{"a: collision"}},
		"collides within the server":           {listed: offers("a.b", "a_b"), tools: []string{"files.a.b"}, disabled: []string{"a_b: collision"}},
		"a changed one takes no name":          {listed: offers("a.b", "a_b"), pins: Pins{"a.b": "0", "a_b": "d-a_b"}, tools: []string{"files.a_b"}, disabled: []string{"a.b: changed d-a.b"}},
		"collides with what ends a run":        {text: TextRequireTool, server: MCPServer{Name: "task"}, listed: offers("completion"), disabled: []string{"completion: collision"}},
		"a schema that refers to somebody":     {listed: ServerTools{Tools: []ServerTool{{Name: "a", Digest: "1", Schema: json.RawMessage(`{"type":"object","$ref":"https://x"}`)}}}, disabled: []string{"a: unusable"}},
		"a schema of something else":           {listed: ServerTools{Tools: []ServerTool{{Name: "a", Digest: "1", Schema: json.RawMessage(`{"type":"array"}`)}}}, disabled: []string{"a: unusable"}},
		"no digest":                            {listed: ServerTools{Tools: []ServerTool{{Name: "a", Schema: anyArguments}}}, disabled: []string{"a: unusable"}},
		"what the adapter left out, if wanted": {server: MCPServer{Deny: []string{"z"}}, listed: ServerTools{Left: []LeftTool{{"y", "too large"}, {"z", "too large"}}}, disabled: []string{"y: unusable"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := Definition{Tools: c.own, Text: c.text}
			if c.server.Name == "" {
				c.server.Name = "files"
			}
			tools, disabled := Resolve(&d, c.server, c.listed, c.pins)
			require.Equal(t, c.tools, namesOf(tools))
			var said []string
			for _, no := range disabled {
				said = append(said, strings.TrimSpace(fmt.Sprintf("%s: %s %s", no.Tool, no.Why, no.Digest)))
				require.True(t, no.Why.Valid())
			}
			require.Equal(t, c.disabled, said)
		})
	}
}

// TestHintsAreNoPolicy: what a server says of its tools decides neither effect nor anything else; the author's first pattern that matches does.
func TestHintsAreNoPolicy(t *testing.T) {
	server := MCPServer{Name: "files", Tools: []MCPPattern{
		{Match: "read_secret", Priority: 7}, {Match: "read_*", Effect: EffectRead, Timeout: time.Second, Priority: 3}, {Match: "r*", Effect: EffectIdempotent},
	}}
	tools, _ := Resolve(&Definition{}, server, offers("read_secret", "read_a", "rest", "tidy"), nil)
	require.Len(t, tools, 4)
	for i, want := range []ToolSpec{
		{Effect: EffectNonIdempotent, Priority: 7}, {Effect: EffectRead, Timeout: time.Second, Priority: 3}, {Effect: EffectIdempotent}, {Effect: EffectNonIdempotent},
	} {
		require.Equal(t, want, ToolSpec{Effect: tools[i].Effect, Timeout: tools[i].Timeout, Priority: tools[i].Priority}, tools[i].Name)
	}
	require.Equal(t, &MCPTool{Server: "files", Tool: "read_a", Digest: "d-read_a"}, tools[1].MCP)
}

// TestResolvedNamesAreOneToTheModel: whatever servers list, no two tools of the resolved definition are one to the model, each can be called by its
// name, and what a server lists is used, disabled or not wanted.
func TestResolvedNamesAreOneToTheModel(t *testing.T) {
	name := rapid.StringMatching(`[ab._-]{0,4}`)
	rapid.Check(t, func(t *rapid.T) {
		d := Definition{Tools: []ToolSpec{{Name: "s.a"}, {Name: "b_a"}}}
		var all []ListedServer
		for _, server := range []string{"s", "b", "s_a"} {
			l := ListedServer{Server: MCPServer{Name: server, Allow: rapid.SliceOfN(rapid.StringMatching(`[ab*]{1,2}`), 0, 2).Draw(t, "allow")}}
			l.Tools = offers(rapid.SliceOfDistinct(name, func(s string) string { return s }).Draw(t, "tools")...)
			all = append(all, l)
		}
		resolved, states := ResolveServers(&d, all)
		require.Len(t, d.Tools, 2)
		seen := map[string]bool{}
		for _, tool := range resolved.Tools {
			require.False(t, seen[tool.ModelName()], tool.Name)
			require.True(t, validWord(tool.ModelName()) && validToolName(tool.Name), tool.Name)
			seen[tool.ModelName()] = true
		}
		for i, s := range states {
			wanted := 0
			for _, tool := range all[i].Tools.Tools {
				if all[i].Server.Wants(tool.Name) {
					wanted++
				}
			}
			require.Equal(t, wanted, len(s.Tools)+len(s.Disabled))
		}
	})
}

func TestResolveServersBoundsWhatIsTaken(t *testing.T) {
	var many []string
	for i := range maxServerTools + 3 {
		many = append(many, fmt.Sprintf("t%d", i))
	}
	d, states := ResolveServers(&Definition{}, []ListedServer{{Server: MCPServer{Name: "s"}, Tools: offers(many...)}, {Server: MCPServer{Name: "x"}, Problem: "down", Tools: offers("a")}})
	require.Len(t, d.Tools, maxServerTools)
	require.Equal(t, "it lists 515 tools, of which the first 512 are taken", states[0].Problem)
	require.Equal(t, ServerState{Name: "x", Problem: "down"}, states[1])
}

func served(t *testing.T) AgentState {
	t.Helper()
	return commit(t, started(t), "w1", ToolsListed{Definition: "d2", Servers: []ServerState{{Name: "files", Tools: []string{"read", "pay"}}}})
}

func TestToolsListed(t *testing.T) {
	s := served(t)
	require.Equal(t, "d2", s.Definition)
	require.True(t, s.Listed)
	again, err := Apply(s, ToolsListed{Definition: "d2"})
	require.NoError(t, err)
	require.Equal(t, s, again)
	for name, c := range map[string]struct {
		s AgentState
		e ToolsListed
	}{
		"others":        {s, ToolsListed{Definition: "d3", Servers: s.Servers}},
		"no definition": {started(t), ToolsListed{Servers: s.Servers}},
		"no servers":    {started(t), ToolsListed{Definition: "d2"}},
		"too late":      {commit(t, started(t), "w1", text(1, "hi")), ToolsListed{Definition: "d2", Servers: s.Servers}},
	} {
		_, err := Apply(c.s, c.e)
		var forbidden *ApplyError
		require.ErrorAs(t, err, &forbidden, name)
	}
}

func TestToolsDisabled(t *testing.T) {
	s := served(t)
	lost := ToolsDisabled{Server: "files", Tool: "read", Why: DisabledChanged, Digest: "9"}
	after, err := Apply(s, lost)
	require.NoError(t, err)
	require.Equal(t, []ServerState{{Name: "files", Tools: []string{"pay"}, Disabled: []DisabledTool{{Tool: "read", Why: DisabledChanged, Digest: "9"}}}}, after.Servers)
	require.Equal(t, []string{"read", "pay"}, s.Servers[0].Tools, "the state before is as it was")
	again, err := Apply(after, lost)
	require.NoError(t, err)
	require.Equal(t, after, again)
	for _, e := range []ToolsDisabled{{Server: "files", Tool: "x", Why: DisabledChanged}, {Server: "x", Tool: "read", Why: DisabledChanged}, {Server: "files", Tool: "pay", Why: "so"}} {
		_, err := Apply(after, e)
		require.Error(t, err)
	}
}

func serverDefinition(digest string) Definition {
	d := worldDefinition()
	d.MCP = []MCPServer{{Name: "files", URL: "https://x"}}
	read, pay := worldServerTool("read", EffectRead), worldServerTool("pay", EffectNonIdempotent)
	read.Schema, pay.Schema, pay.MCP.Digest = anyArguments, anyArguments, digest
	d.Tools = append(d.Tools, read, pay)
	d.Permission.Rules = append(d.Permission.Rules, Rule{Tool: "files.pay", Verdict: VerdictAsk})
	return d
}

// TestDisabledToolIsGone: the model is not offered it, plugins do not see it, and whoever calls it is told why it was not called.
func TestDisabledToolIsGone(t *testing.T) {
	d := serverDefinition("1")
	s := commit(t, served(t), "w1", ToolsDisabled{Server: "files", Tool: "read", Why: DisabledChanged})
	r, _ := BuildRequest(&d, &s, Next(&d, &s), "x")
	require.NotContains(t, namesOf(r.Tools), "files.read")
	require.Contains(t, namesOf(r.Tools), "files.pay")
	require.NotContains(t, namesOf(d.ToolsIn(&s)), "files.read")
	for tool, want := range map[string]CallReason{"files.read": WhyToolChanged, "files.pay": ""} {
		g := GateCall(&d, &s, Call{ID: "c", Tool: tool, Name: ModelName(tool), Status: StatusNew, Input: json.RawMessage(`{}`)}, worldValid, worldEpoch)
		if want == "" {
			require.NotNil(t, g.Suspend, tool)
			continue
		}
		require.Equal(t, want, g.Refuse.Reason)
		require.Contains(t, g.Refuse.Content, "Do not call it again.")
	}
}

// TestChangedPinVoidsAnApproval: what people approve of a call holds for the tool's definition as they saw it (A6, A7), for one call as for all.
func TestChangedPinVoidsAnApproval(t *testing.T) {
	d, changed := serverDefinition("1"), serverDefinition("2")
	s := commit(t, served(t), "w1", Replied{Inference: 1, Model: "m", Requests: 1, Calls: []RepliedCall{
		{ID: "c1", Name: "files_pay", Tool: "files.pay", Effect: EffectNonIdempotent, Input: json.RawMessage(`{}`)},
	}})
	c, _ := s.Call("c1")
	asked := GateCall(&d, &s, c, worldValid, worldEpoch).Suspend
	require.NotNil(t, asked)
	s = commit(t, s, "w1", *asked)
	s = commit(t, s, "w1", Decided{Slot: 1, Call: "c1", Approval: asked.Approval, Action: ActionApprove, By: "user:ana", Digest: asked.Digest})
	c, _ = s.Call("c1")
	require.True(t, GateCall(&d, &s, c, worldValid, worldEpoch).Run)
	g := GateCall(&changed, &s, c, worldValid, worldEpoch)
	require.NotNil(t, g.Refuse)
	require.Equal(t, WhyVoided, g.Refuse.Reason)
	was, _ := d.Tool("files.pay")
	is, _ := changed.Tool("files.pay")
	require.NotEqual(t, StandingDigest(&d, &s, was, c.Input, Decision{}), StandingDigest(&d, &s, is, c.Input, Decision{}))
}

func TestForkInheritsWhatWasListedAndAContinuationDoesNot(t *testing.T) {
	d := serverDefinition("1")
	parent := commit(t, served(t), "w1", text(1, "hi"))
	from, err := ForkFrom(&parent, "r2", worldEpoch)
	require.NoError(t, err)
	fork, err := Apply(Seed(parent), RunStarted{Tenant: "default", Run: "r2", Agent: parent.Agent, Definition: "d2", Owner: "o", MaxInteractions: 3, From: &from})
	require.NoError(t, err)
	require.True(t, fork.Listed)
	require.Equal(t, parent.Servers, fork.Servers)
	require.NotEqual(t, ActList, Next(&d, &fork).Kind)

	ended := commit(t, parent, "w1", Finished{Reason: ReasonNaturalEnd})
	from, err = ContinueFrom(&ended)
	require.NoError(t, err)
	next, err := Apply(Seed(ended), RunStarted{Tenant: "default", Run: "r3", Agent: parent.Agent, Definition: "d1", Owner: "o", MaxInteractions: 3, From: &from})
	require.NoError(t, err)
	require.False(t, next.Listed)
	require.Empty(t, next.Servers)
	require.Equal(t, ActList, Next(&d, &next).Kind)
}

func TestStopOnAServersTool(t *testing.T) {
	d := serverDefinition("1")
	d.Tools = nil
	d.Permission.Rules = nil
	d.Model = ModelSpec{Provider: "demo", Retry: Retry{Attempts: 1}}
	for tool, want := range map[string]bool{"files.anything": true, "files.": false, "other.x": false, "files": false} {
		d.Stop.OnTool = []string{tool}
		err := d.Check()
		require.Equal(t, !want, err != nil && strings.Contains(err.Error(), "stop.onTool[0]"), "%s: %v", tool, err)
	}
}

func TestCheckServersNeverShowsValues(t *testing.T) {
	d := worldDefinition()
	d.MCP = []MCPServer{
		{Name: "a", URL: "https://user:hunter2@x", Headers: map[string]string{"Authorization": "hunter2\n", "X": "${hunter2"}},
		{Name: "b", Command: []string{"x\x00hunter2"}, Env: map[string]string{"A": "hunter2\x00", "B": "${secret:hunter 2}"}},
	}
	err := d.CheckWithoutModel()
	require.Error(t, err)
	for _, at := range []string{"mcp[0].url", "mcp[0].headers.Authorization", "mcp[0].headers.X", "mcp[1].command[0]", "mcp[1].env.A", "mcp[1].env.B"} {
		require.Contains(t, err.Error(), at+": ")
	}
	require.NotContains(t, err.Error(), "hunter")
}

func TestServerURLs(t *testing.T) {
	for url, ok := range map[string]bool{
		"https://example.com/mcp": true, "http://localhost:1/mcp": true, "http://127.9.9.9": true, "http://[::1]:8": true, "http://10.0.0.1": false,
		"http://localhost.example.com": false, "ftp://x": false, "https://": false, "https://x#f": false, "https://u@x": false, "https://x/${secret:A}": false, "x": false,
	} {
		require.Equal(t, ok, validServerURL(url), url)
	}
}
