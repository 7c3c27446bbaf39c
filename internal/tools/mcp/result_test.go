package mcp_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/tool"
)

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
			p := newPeer(t)
			p.tools = func(ask) string {
				return `{"tools":[` + strings.TrimSuffix(echo, "}") + `,"outputSchema":` + c.schema + `}]}`
			}
			p.calling(func(w http.ResponseWriter, a ask) { p.result(w, a, c.result) })
			got, err := over(t, p).call("echo", tool.Call{})
			require.NoError(t, err)
			require.Equal(t, c.note != "", strings.Contains(got.Content, "[the result is not what the tool's outputSchema promises: "), got.Content)
			require.Contains(t, got.Content, c.note)
		})
	}
}

// Text that a model or a person reads hides nothing; what means something else then is not used.
func TestHiddenTextInDefinitions(t *testing.T) {
	p := newPeer(t)
	p.tools = func(ask) string {
		return `{"tools":[{"name":"echo","title":"T\u200b","description":"safe\u202eevil\u0007\nnext","inputSchema":{"type":"object","properties":{"a":{"type":"string","description":"x\u2066y"}}}}]}`
	}
	got, err := over(t, p).list()
	require.NoError(t, err)
	require.Equal(t, "safe<U+202E>evil<U+0007>\nnext", got.Tools[0].Description)
	require.Equal(t, "T<U+200B>", got.Tools[0].Hints.Title)
	require.JSONEq(t, `{"type":"object","properties":{"a":{"type":"string","description":"x<U+2066>y"}}}`, string(got.Tools[0].Schema))
}

// What a server asks for while a call is under way it does not get, and the call's result says so.
func TestWhatServersOfOldAskFor(t *testing.T) {
	for method, says := range map[string]string{
		"elicitation/create":     "[meanwhile the server wanted to ask people, which was declined: it can over protocol 2026-07-28]",
		"sampling/createMessage": `[meanwhile the server asked for "sampling/createMessage", which is not to be had]`,
		"roots/list":             `[meanwhile the server asked for "roots/list", which is not to be had]`,
	} {
		t.Run(method, func(t *testing.T) {
			p := newPeer(t)
			p.old = true
			answered := make(chan json.RawMessage, 1)
			p.calling(func(w http.ResponseWriter, a ask) {
				stream(w)
				_, _ = fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":\"q1\",\"method\":%q,\"params\":{\"message\":\"m\",\"requestedSchema\":{\"type\":\"object\"}}}\n\n", method)
				w.(http.Flusher).Flush()
				<-answered
				_, _ = fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"content\":[]}}\n\n", a.ID)
			})
			p.first = func(w http.ResponseWriter, a ask) bool {
				if string(a.ID) == `"q1"` {
					answered <- a.ID
					w.WriteHeader(http.StatusAccepted)
				}
				return string(a.ID) == `"q1"`
			}
			r := over(t, p)
			got, err := r.call("echo", tool.Call{})
			require.NoError(t, err)
			require.Equal(t, says, got.Content)
			init := p.calls("initialize")
			require.Len(t, init, 1)
			require.JSONEq(t, `{}`, string(init[0].Params.Capabilities), "nothing is promised")
		})
	}
}
