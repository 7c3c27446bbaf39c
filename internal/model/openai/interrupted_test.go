package openai

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
)

// callChunk is a chunk that begins a call and has so much of its arguments.
func callChunk(index int, id, arguments string) string {
	return chunk(fmt.Sprintf(`{"tool_calls":[{"index":%d,"id":%q,"function":{"name":"get","arguments":%q}}]}`, index, id, arguments))
}

// What was received before a stream broke off comes with the error: text, and calls that are all there.
func TestInterruptedStreams(t *testing.T) {
	kept := func(r agent.Reply) *agent.Reply {
		r.Model, r.StopReason = "m-1", policy.StopInterrupted
		return &r
	}
	whole := call("a", "get", `{"x":1}`)
	tests := []struct {
		name, body string
		class      agent.ModelErrorClass
		want       *agent.Reply
	}{
		{"text", text("I ren") + text("amed"), agent.ModelConnection, kept(agent.Reply{Text: "I renamed"})},
		{"text, and a line that was cut", text("a") + `data: {"choi`, agent.ModelConnection, kept(agent.Reply{Text: "a"})},
		{"text, and a call that is not all there", text("a") + callChunk(0, "a", `{"x":`), agent.ModelConnection, kept(agent.Reply{Text: "a"})},
		{"two calls, one of them all there", callChunk(0, "a", `{"x":1}`) + callChunk(1, "b", `{"x":`), agent.ModelConnection, kept(agent.Reply{Calls: []agent.ReplyCall{whole}})},
		{"a call without arguments yet", text("a") + callChunk(0, "a", ""), agent.ModelConnection, kept(agent.Reply{Text: "a"})},
		{"an error of the server's", text("a") + "data: {\"error\":{\"code\":502,\"message\":\"canary-content\"}}\n\n", agent.ModelServer, kept(agent.Reply{Text: "a"})},
		{"what is no chunk", text("a") + "data: {canary\n\n", agent.ModelInvalid, kept(agent.Reply{Text: "a"})},
		{"reasoning alone", chunk(`{"reasoning":"hm"}`), agent.ModelConnection, nil},
		{"reasoning and text", chunk(`{"reasoning":"hm"}`) + text("a"), agent.ModelConnection, kept(agent.Reply{Text: "a", Reasoning: reasoned("reasoning", "hm")})},
		{"a call alone that is not all there", callChunk(0, "a", `{"x":1`), agent.ModelConnection, nil},
		{"blanks", text("\n"), agent.ModelConnection, nil},
		{"nothing", "", agent.ModelConnection, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			reply, err := against(t, nil, answer("text/event-stream", tt.body)).Generate(context.Background(), request())
			requireClass(t, tt.class, err)
			require.Equal(t, agent.Reply{}, reply, "whether it is kept is not the adapter's to say")
			require.Equal(t, tt.want, failureOf(t, err).Partial)
		})
	}
}

// A connection that hangs until the request's time is over has told what it has told.
func TestInterruptedByTime(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	_, err := against(t, nil, hang).Generate(ctx, request())
	requireClass(t, agent.ModelTimeout, err)
	require.Equal(t, "a", failureOf(t, err).Partial.Text)
}

// Whoever listens hears text, reasoning and calls as they come.
func TestDeltas(t *testing.T) {
	var heard []agent.Delta
	onDelta := func(r agent.Request, d agent.Delta) {
		require.Equal(t, "m", r.Model.ID)
		heard = append(heard, d)
	}
	body := chunk(`{"reasoning_content":"hm"}`) + text("Hel") + text("lo") + callChunk(0, "a", "") + chunk(`{"tool_calls":[{"index":0,"function":{"arguments":"{\"x\""}}]}`) +
		chunk(`{"tool_calls":[{"index":0,"function":{"arguments":":1}"}}]}`) + callChunk(1, "b", "{}") + done("tool_calls") + usageOnly + end
	_, err := against(t, onDelta, answer("text/event-stream", body)).Generate(context.Background(), request())
	require.NoError(t, err)
	of := func(place int, id, text string) agent.Delta {
		return agent.Delta{Kind: agent.DeltaCall, Text: text, Place: place, Call: id, Name: "get"}
	}
	require.Equal(t, []agent.Delta{
		{Kind: agent.DeltaReasoning, Text: "hm"}, {Kind: agent.DeltaText, Text: "Hel"}, {Kind: agent.DeltaText, Text: "lo"},
		of(0, "a", ""), of(0, "a", `{"x"`), of(0, "a", ":1}"), of(1, "b", "{}"),
	}, heard)
}

// A server that reports the call it could not read has told the call: where arguments are repaired, that is the reply.
func TestQuotedCalls(t *testing.T) {
	const ollama, llama = "error parsing tool call: raw='%s', err=invalid character '}' looking for beginning of object key string", "Failed to parse input at pos 0: %s"
	tests := []struct {
		name, message string
		tools         []string
		want          string // name and input; "" = an error
	}{
		{"arguments of the only tool", fmt.Sprintf(ollama, `{"path": "/a",}`), []string{"read"}, `read {"path":"/a"}`},
		{"a bracket too many", fmt.Sprintf(ollama, `{"path": "it's"}]`), []string{"read"}, `read {"path":"it's"}`},
		{"a call by name", fmt.Sprintf(ollama, `{"name": "write", "arguments": {"path": "/a"`), []string{"read", "write"}, `write {"path":"/a"}`},
		{"parameters", fmt.Sprintf(ollama, `{"name": "write", "parameters": {"path": ""/a""}}`), []string{"read", "write"}, `write {"path":"/a"}`},
		{"function", fmt.Sprintf(ollama, `{"type": "function", "function": {"name": "read", "arguments": "{\"path\": 1}"},}`), []string{"read", "write"}, `read {"path": 1}`},
		{"in tags", fmt.Sprintf(llama, "<tool_call>\n{'name': 'read', 'arguments': {'path': '/a'}\n</tool_call>"), []string{"read", "write"}, `read {"path":"/a"}`},

		{"arguments, and nobody knows whose", fmt.Sprintf(ollama, `{"path": "/a",}`), []string{"read", "write"}, ""},
		{"arguments in what may be anything", fmt.Sprintf(llama, `{"path": "/a",}`), []string{"read"}, ""},
		{"a tool that is not on offer", fmt.Sprintf(ollama, `{"name": "pay", "arguments": {"path": "/a",}}`), []string{"read"}, ""},
		{"no tools", fmt.Sprintf(ollama, `{"name": "read", "arguments": {},}`), nil, ""},
		{"no object", fmt.Sprintf(ollama, "ls -R"), []string{"read"}, ""},
		{"a call without its end", "error parsing tool call: raw='{\"amount\": 12", []string{"pay"}, ""},
		{"a list", fmt.Sprintf(ollama, `[{"path": 1},]`), []string{"read"}, ""},
		{"a piece of a call", "Failed to parse tool call arguments as JSON: [json.exception.parse_error.101] last read: '{\"path\": 1'", []string{"read"}, ""},
		{"another error", `boom {"path": 1}`, []string{"read"}, ""},
	}
	for _, tt := range tests {
		for _, form := range []string{"status 500", "in the stream", "in a document"} {
			t.Run(tt.name+"/"+form, func(t *testing.T) {
				r := request()
				r.Model.Repair = agent.RepairOn
				for _, name := range tt.tools {
					r.Tools = append(r.Tools, agent.ToolSpec{Name: name})
				}
				body, err := json.Marshal(map[string]any{"error": map[string]string{"message": tt.message, "type": "api_error"}})
				require.NoError(t, err)
				serve := map[string]http.HandlerFunc{
					"status 500": func(w http.ResponseWriter, _ *http.Request) {
						w.WriteHeader(http.StatusInternalServerError)
						_, _ = w.Write(body)
					},
					"in the stream": answer("text/event-stream", "data: "+string(body)+"\n\n"),
					"in a document": answer("application/json", string(body)),
				}[form]
				reply, err := against(t, nil, serve).Generate(context.Background(), r)
				if tt.want == "" {
					requireClass(t, agent.ModelServer, err)
					return
				}
				require.NoError(t, err)
				require.Len(t, reply.Calls, 1)
				require.Equal(t, tt.want, reply.Calls[0].Name+" "+string(reply.Calls[0].Input))
				require.True(t, reply.Calls[0].Repaired)
				require.Equal(t, agent.Reply{Model: "m", Calls: reply.Calls, StopReason: "repaired"}, reply)

				r.Model.Repair = agent.RepairOff
				_, err = against(t, nil, serve).Generate(context.Background(), r)
				requireClass(t, agent.ModelServer, err)
			})
		}
	}
}

// Only the status that servers report such a call with does.
func TestQuotedCallsOfOtherStatuses(t *testing.T) {
	r := request()
	r.Model.Repair, r.Tools = agent.RepairOn, []agent.ToolSpec{{Name: "read"}}
	_, err := against(t, nil, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadGateway)
		_, _ = io.WriteString(w, `{"error":"error parsing tool call: raw='{}}', err=x"}`)
	}).Generate(context.Background(), r)
	requireClass(t, agent.ModelServer, err)
}

// A model that is not there is not there the next moment either: it is asked once, and the next one may be.
func TestNotFoundLasts(t *testing.T) {
	_, err := against(t, nil, http.NotFound).Generate(context.Background(), request())
	requireClass(t, agent.ModelUnavailable, err)
	require.True(t, failureOf(t, err).Lasting)
	_, err = against(t, nil, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }).Generate(context.Background(), request())
	require.False(t, failureOf(t, err).Lasting)
}

// A reply that has said that it is over gets no call from an error behind it.
func TestQuotedCallBehindTheEnd(t *testing.T) {
	r := request()
	r.Model.Repair, r.Tools = agent.RepairOn, []agent.ToolSpec{{Name: "read"}}
	problem := `data: {"error":"error parsing tool call: raw='{\"path\":1}}', err=x"}` + "\n\n"
	_, err := against(t, nil, answer("text/event-stream", text("a")+done("stop")+problem)).Generate(context.Background(), r)
	requireClass(t, agent.ModelServer, err)
	reply, err := against(t, nil, answer("text/event-stream", text("a")+problem)).Generate(context.Background(), r)
	require.NoError(t, err)
	require.Equal(t, "a", reply.Text)
	require.Len(t, reply.Calls, 1)
}
