package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/tool"
	"github.com/countersign/countersign/internal/tools/mcp"
)

// fuzzed are the methods whose answer is any bytes.
var fuzzed = []string{"tools/call", "tools/list", "server/discover", "initialize"}

// Whatever bytes answer a request, after which the server ends: there is an end to it, in time, which is an error that can be shown or something
// within the bounds.
func FuzzAnswer(f *testing.F) {
	bodies := []string{all, `{"tools":[` + echo + `,` + other + `],"nextCursor":"x"}`, `{"supportedVersions":["2026-07-28"]}`, `{"protocolVersion":"2025-06-18"}`}
	for which, body := range bodies {
		f.Add(uint8(which), []byte(result(body)))
		f.Add(uint8(which), []byte(`{"jsonrpc":"2.0","id":`+id+`,"error":{"code":-32602,"message":"no\u202e","data":{}}}`))
		f.Add(uint8(which), []byte(strings.Replace(result(body), `"2.0"`, `"1.0"`, 1)))
		f.Add(uint8(which), []byte(result(body)[:len(body)/2]))
		f.Add(uint8(which), []byte(`{"jsonrpc":"2.0","id":"q1","method":"roots/list"}`+"\n"+result(body)))
		f.Add(uint8(which), []byte(strings.TrimSuffix(result(body), "}")+`,"error":{"code":1,"message":"m"}}`))
		f.Add(uint8(which), []byte("["+result(body)+"]"))
	}
	for _, seed := range []string{
		`{"resultType":"input_required","requestState":"s","inputRequests":{"q":{"method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object"}}},"r":{"method":"elicitation/create","params":{"mode":"url","url":"https://x.example/"}}}}`,
		`{"content":[7,{"type":"resource","resource":7},{"type":"resource","resource":{"uri":"\u202e","text":null}}],"structuredContent":1e999}`, `{"toolResult":{"n":1.0},"_meta":{}}`, `{"text":"a\ud800"}`, `"done"`, `null`, `[]`,
		`{"content":[],"isError":true,"isError":false}`, `{"content":null,"Content":[{"type":"text"}]}`, `{"resultType":"task"}`,
	} {
		f.Add(uint8(0), []byte(result(seed)))
		f.Add(uint8(len(fuzzed)), []byte(seed))
	}
	for which, body := range bodies {
		f.Add(uint8(len(fuzzed)+which), []byte(body))
	}
	f.Fuzz(func(t *testing.T, which uint8, raw []byte) {
		method := fuzzed[int(which)%len(fuzzed)]
		if int(which)/len(fuzzed)%2 == 1 { // in an envelope that is good
			raw = []byte(result(string(raw)))
		}
		remote, err := mcp.New(mcp.Config{Clock: clock.System(), Start: piped(func(a ask) (string, bool) {
			switch {
			case a.Method == method:
				return strings.ReplaceAll(string(raw), id, string(a.ID)), true
			case a.Method == "server/discover" && method == "initialize":
				return answered(a, `{}`), false
			}
			return speaks(a), false
		})})
		require.NoError(t, err)
		server := agent.MCPServer{Name: "s", Command: []string{"peer"}, Timeout: 10 * time.Second}
		session := remote.Open("acme", &agent.Definition{MCP: []agent.MCPServer{server}})
		defer session.Close()
		began := time.Now()
		defer func() { require.Less(t, time.Since(began), 8*time.Second) }()
		tools, err := session.(runtime.Lister).List(context.Background(), server)
		if err != nil {
			shown(t, err)
			return
		}
		listed(t, tools)
		if method != "tools/call" {
			return
		}
		spec := agent.ToolSpec{Name: "s.echo", Kind: agent.KindMCP, MCP: &agent.MCPTool{Server: "s", Tool: "echo", Digest: tools.Tools[0].Digest}}
		res, err := session.Tool(spec).Call(context.Background(), tool.Call{})
		if err != nil {
			var gone *tool.LostError
			require.True(t, errors.As(err, &gone) || strings.Contains(err.Error(), "it answered with error "), "it failed and nobody said so: %v", err)
			shown(t, err)
			return
		}
		within8MB(t, res)
	})
}

// shown fails where an error is not one that people can be shown.
func shown(t *testing.T, err error) {
	t.Helper()
	text := err.Error()
	require.Contains(t, text, "MCP server s: ")
	require.Less(t, len(text), 2200)
	require.True(t, utf8.ValidString(text))
	for _, ours := range []string{"Go struct", "Go value", "goroutine ", "unmarshal"} {
		require.NotContains(t, strings.ReplaceAll(text, "it answered with error", ""), ours)
	}
}

// listed fails where a listing holds what no tool may be.
func listed(t *testing.T, tools agent.ServerTools) {
	t.Helper()
	require.LessOrEqual(t, len(tools.Tools), 256)
	require.LessOrEqual(t, len(tools.Left), 65)
	for _, tool := range tools.Tools {
		require.True(t, agent.ValidToolName("s."+tool.Name), tool.Name)
		require.Len(t, tool.Digest, 64)
		require.LessOrEqual(t, len(tool.Description), 8<<10)
		_, err := jsonx.CompactJSON(tool.Schema, jsonx.JSONLimits{})
		require.NoError(t, err)
	}
	for _, l := range tools.Left {
		require.NotEmpty(t, l.Why)
		require.LessOrEqual(t, len(l.Name), 200)
		require.Less(t, len(l.Why), 2200)
	}
}

// within8MB fails where a result is more than is taken of one, or cannot be stored.
func within8MB(t *testing.T, res agent.ToolResultData) {
	t.Helper()
	_, err := json.Marshal(res)
	require.NoError(t, err)
	require.Less(t, len(res.Content), 8<<20+8<<10)
	require.LessOrEqual(t, len(res.Media), 1000)
	if res.Suspend == nil {
		return
	}
	require.NotEmpty(t, res.Suspend.Memo)
	_, err = jsonx.CompactJSON(res.Suspend.ResponseSchema, jsonx.JSONLimits{})
	require.NoError(t, err)
}
