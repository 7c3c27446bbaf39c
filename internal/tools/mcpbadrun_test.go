package tools_test

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
	"github.com/countersign/countersign/internal/tool"
	"github.com/countersign/countersign/internal/tools"
)

// answering opens an invocation against a program that answers one method with a text, and ends with it or goes on.
func answering(t *testing.T, method, text string, ends bool) *rig {
	t.Helper()
	remote := tools.MCP{Clock: clock.System(), Start: piped(func(a ask) (string, bool) {
		switch {
		case a.Method == method:
			return strings.ReplaceAll(text, id, string(a.ID)), ends
		case a.Method == "server/discover" && method == "initialize":
			return answered(a, `{}`), false
		}
		return speaks(a), false
	})}
	r := open(t, remote, agent.MCPServer{Name: "s", Command: []string{"peer"}, Timeout: 10 * time.Second})
	t.Cleanup(r.session.Close)
	return r
}

const (
	// other is the tool echo as somebody else describes it.
	other = `{"name":"echo","description":"sends it home",` +
		`"inputSchema":{"type":"object","properties":{"text":{"type":"string"}}}}`

	protocolError = `{"jsonrpc":"2.0","id":` + id + `,"error":{"code":-32602,"message":"no \u202e"}}`
	stranger      = `{"jsonrpc":"2.0","id":77,"result":{"tools":[],"content":[]}}`
	both          = `{"jsonrpc":"2.0","id":` + id + `,"result":{"tools":[],"content":[]},` +
		`"error":{"code":-32602,"message":"no"}}`
)

// Of listings that are refused one of each kind, with what is said of it; the rest are those of TestBadPages.
func TestRefusedListings(t *testing.T) {
	for says, c := range map[string]struct{ method, answer string }{
		"it wrote something that is no message of the protocol": {"tools/list", `{"jsonrpc":}`},
		"it answered a request that nobody made":                {"tools/list", stranger},
		"it answered with error -32602: no <U+202E>":            {"tools/list", protocolError},
		"it answered with a result and an error at once":        {"tools/list", both},
		"want the key tools once": {
			"tools/list", result(`{"tools":[` + echo + `],"tools":[` + other + `]}`),
		},
		"its list of tools begins again and again": {
			"tools/list", result(`{"tools":[` + other + `],"nextCursor":"x"}`),
		},
		"it ended the connection":                     {"server/discover", result(`{}`)},
		"exceeded the configured maximum line length": {"tools/list", result(`{"x":"` + lines(17<<20, "x") + `"}`)},
	} {
		_, err := answering(t, c.method, c.answer, false).list()
		require.ErrorContains(t, err, says)
	}
}

// An answer to a call that cannot be read leaves open whether the call was made; an error says that it was not.
func TestUnreadableAnswersToCalls(t *testing.T) {
	for _, c := range []struct {
		answer, says string
		lost         bool
	}{
		{`{"jsonrpc":}`, "it wrote something that is no message of the protocol", true},
		{`{"jsonrpc":"2.0","result":{"content":[]}}`, "the answer was lost", true},
		{`{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no"}}`, "the answer was lost", true},
		{stranger, "it answered a request that nobody made", true},
		{`{"jsonrpc":"2.0","id":` + id + `}`, "the answer was lost", true},
		{both, "it answered with a result and an error at once", true},
		{result(`{"content":[],"isError":true,"isError":false}`),
			"its answer cannot be read: want the key isError once", true},
		{protocolError, "it answered with error -32602: no <U+202E>", false},
	} {
		_, err := answering(t, "tools/call", c.answer, false).call("echo", tool.Call{})
		require.ErrorContains(t, err, c.says)
		require.Equal(t, c.lost, errors.As(err, new(*tool.LostError)), c.answer)
	}
}

// fuzzed are the methods whose answer is any bytes.
var fuzzed = []string{"tools/call", "tools/list", "server/discover", "initialize"}

// Whatever bytes answer a request, after which the server ends: there is an end to it, in time, which is an error that
// can be shown or something within the bounds.
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
		r := answering(t, method, string(raw), true)
		began := time.Now()
		defer func() { require.Less(t, time.Since(began), 8*time.Second) }()
		tools, err := r.list()
		if err != nil {
			shown(t, err)
			return
		}
		listed(t, tools)
		if method != "tools/call" {
			return
		}
		res, err := r.pinned("echo", tools.Tools[0].Digest).Call(context.Background(), tool.Call{})
		if err != nil {
			require.True(t, errors.As(err, new(*tool.LostError)) || strings.Contains(err.Error(), "it answered with error "), "it failed and nobody said so: %v", err)
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
