package run_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

var anyArguments = json.RawMessage(`{"type":"object"}`)

func offers(names ...string) agent.ServerTools {
	var l agent.ServerTools
	for _, n := range names {
		l.Tools = append(l.Tools, agent.ServerTool{Name: n, Schema: anyArguments, Digest: "d-" + n, Hints: agent.MCPHints{ReadOnly: true, Idempotent: true}})
	}
	return l
}

func TestResolve(t *testing.T) {
	long := strings.Repeat("x", 200)
	for name, c := range map[string]struct {
		own      []agent.ToolSpec
		text     agent.TextPolicy
		server   agent.MCPServer
		listed   agent.ServerTools
		pins     map[string]string
		tools    []string
		disabled []string // tool: why
	}{
		"dots in a name":                       {listed: offers("a.b"), tools: []string{"files.a.b"}},
		"deny before allow":                    {server: agent.MCPServer{Allow: []string{"a*"}, Deny: []string{"*b"}}, listed: offers("a", "ab", "b", "c"), tools: []string{"files.a"}},
		"pinned as it is":                      {listed: offers("a"), pins: map[string]string{"a": "d-a", "gone": "1"}, tools: []string{"files.a"}},
		"changed":                              {listed: offers("a", "b"), pins: map[string]string{"a": "0", "b": "d-b"}, tools: []string{"files.b"}, disabled: []string{"a: changed d-a"}},
		"new":                                  {listed: offers("a"), pins: map[string]string{}, disabled: []string{"a: new d-a"}},
		"changed, and not wanted":              {server: agent.MCPServer{Deny: []string{"a"}}, listed: offers("a"), pins: map[string]string{"a": "0"}},
		"no name for a model":                  {listed: offers("a b", ""), disabled: []string{"a b: unusable", ": unusable"}},
		"a long name":                          {listed: offers(strings.Repeat("x", 59)), disabled: []string{strings.Repeat("x", 59) + ": unusable"}},
		"the longest":                          {listed: offers(strings.Repeat("x", 58)), tools: []string{"files." + strings.Repeat("x", 58)}},
		"a longer one is not shown whole":      {listed: offers(long), disabled: []string{long[:80] + "…: unusable"}},
		"collides with the agent's own":        {own: []agent.ToolSpec{{Name: "files_a"}}, listed: offers("a"), disabled: []string{"a: collision"}},
		"a changed one takes no name":          {listed: offers("a.b", "a_b"), pins: map[string]string{"a.b": "0", "a_b": "d-a_b"}, tools: []string{"files.a_b"}, disabled: []string{"a.b: changed d-a.b"}},
		"collides with what ends a run":        {text: agent.TextRequireTool, server: agent.MCPServer{Name: "task"}, listed: offers("completion"), disabled: []string{"completion: collision"}},
		"a schema that refers to somebody":     {listed: agent.ServerTools{Tools: []agent.ServerTool{{Name: "a", Digest: "1", Schema: json.RawMessage(`{"type":"object","$ref":"https://x"}`)}}}, disabled: []string{"a: unusable"}},
		"no digest":                            {listed: agent.ServerTools{Tools: []agent.ServerTool{{Name: "a", Schema: anyArguments}}}, disabled: []string{"a: unusable"}},
		"what the adapter left out, if wanted": {server: agent.MCPServer{Deny: []string{"z"}}, listed: agent.ServerTools{Left: []agent.LeftTool{{Name: "y", Why: "too large"}, {Name: "z", Why: "too large"}}}, disabled: []string{"y: unusable"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := agent.Definition{Tools: c.own, Text: c.text}
			if c.server.Name == "" {
				c.server.Name = "files"
			}
			c.server.Locked = c.pins
			tools, disabled := policy.Resolve(&d, c.server, c.listed)
			require.Equal(t, c.tools, run.Map(tools, func(t agent.ToolSpec) string { return t.Name }))
			var said []string
			for _, no := range disabled {
				said = append(said, strings.TrimSpace(fmt.Sprintf("%s: %s %s", no.Tool, no.Why, no.Digest)))
				require.True(t, no.Why.Valid())
			}
			require.Equal(t, c.disabled, said)
		})
	}
}

// TestResolvedNamesAreOneToTheModel: whatever servers list, no two tools of the resolved definition are one to the model, each can be called by its
// name, and what a server lists is used, disabled or not wanted.
func TestResolvedNamesAreOneToTheModel(t *testing.T) {
	name := rapid.StringMatching(`[ab._-]{0,4}`)
	rapid.Check(t, func(t *rapid.T) {
		d := agent.Definition{Tools: []agent.ToolSpec{{Name: "s.a"}, {Name: "b_a"}}}
		var all []policy.ListedServer
		for _, server := range []string{"s", "b", "s_a"} {
			l := policy.ListedServer{Server: agent.MCPServer{Name: server, Allow: rapid.SliceOfN(rapid.StringMatching(`[ab*]{1,2}`), 0, 2).Draw(t, "allow")}}
			l.Tools = offers(rapid.SliceOfDistinct(name, func(s string) string { return s }).Draw(t, "tools")...)
			all = append(all, l)
		}
		resolved, states := policy.ResolveServers(&d, all)
		require.Len(t, d.Tools, 2)
		seen := map[string]bool{}
		for _, tool := range resolved.Tools {
			require.False(t, seen[tool.ModelName()], tool.Name)
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

func TestCheckServersNeverShowsValues(t *testing.T) {
	d := worldDefinition()
	d.MCP = []agent.MCPServer{
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
		d := worldDefinition(func(d *agent.Definition) { d.MCP = []agent.MCPServer{{Name: "files", URL: url}} })
		err := d.CheckWithoutModel()
		require.Equal(t, !ok, err != nil && strings.Contains(err.Error(), "mcp[0].url"), "%s: %v", url, err)
	}
}
