package openai

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/policy"
)

// events reads a whole stream; the error is the one it ended with.
func events(r io.Reader) ([]event, error) {
	e := eventReader{r: bufio.NewReader(r)}
	var list []event
	for {
		ev, err := e.next()
		if err != nil {
			return list, err
		}
		list = append(list, event{ev.name, bytes.Clone(ev.data)})
	}
}

func TestEvents(t *testing.T) {
	data := func(s string) event { return event{data: []byte(s)} }
	tests := []struct {
		name, stream string
		want         []event
	}{
		{"two", "data: a\n\ndata: b\n\n", []event{data("a"), data("b")}},
		{"lines", "data: a\ndata\ndata:  b\n\n", []event{data("a\n\n b")}},
		{"name and others", "event: error\nid: 1\nretry: 2\nwhat: x\ndata: a\n\ndata: b\n\n", []event{{"error", []byte("a")}, data("b")}},
		{"a name without data is forgotten", "event: error\n\ndata: b\n\n", []event{data("b")}},
		{"comments", ": x\n\n:\n\ndata: a\n: data: b\n\n", []event{data("a")}},
		{"CR", "data: a\rdata: b\r\rdata: c\r\r", []event{data("a\nb"), data("c")}},
		{"CRLF", "data: a\r\ndata: b\r\n\r\ndata: c\r\n\r\n", []event{data("a\nb"), data("c")}},
		{"byte order mark", "\uFEFFdata: a\n\n", []event{data("a")}},
		{"no blank line at the end", "data: a\n", []event{data("a")}},
		{"cut line", "data: a\n\ndata: b", []event{data("a")}},
		{"empty data", "data\n\n", []event{{}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := events(strings.NewReader(tt.stream))
			require.ErrorIs(t, err, io.EOF)
			require.Equal(t, len(tt.want), len(got))
			for i := range got {
				require.Equal(t, tt.want[i].name, got[i].name)
				require.Equal(t, string(tt.want[i].data), string(got[i].data))
			}
		})
	}
}

// However the bytes arrive and whatever ends the lines, the events are the same.
func FuzzEvents(f *testing.F) {
	f.Add([]byte("event: x\ndata: a\ndata: b\n\n: c\n\ndata: [DONE]\n\n"))
	f.Add([]byte("data: a\r\n\r\ndata: b\r\r\n\ndata"))
	f.Add([]byte("\uFEFFdata: a\n\n\n\ndata:b\n"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		want, err := events(bytes.NewReader(stream))
		require.ErrorIs(t, err, io.EOF)
		slow, err := events(iotest.OneByteReader(bytes.NewReader(stream)))
		require.ErrorIs(t, err, io.EOF)
		require.Equal(t, want, slow)
		if !bytes.ContainsRune(stream, '\r') {
			crlf, err := events(bytes.NewReader(bytes.ReplaceAll(stream, []byte("\n"), []byte("\r\n"))))
			require.ErrorIs(t, err, io.EOF)
			require.Equal(t, want, crlf)
		}
	})
}

// A stream of any bytes is a reply or a model error.
func FuzzStream(f *testing.F) {
	f.Add([]byte(text("a") + done("stop") + usageOnly + end))
	f.Add([]byte(chunk(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"get","arguments":"{"}}]}`) + end))
	f.Add([]byte("data: {\"error\":{\"code\":429}}\n\n"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		var shown strings.Builder
		a := &assembly{onDelta: func(d agent.Delta) {
			if d.Kind == agent.DeltaText {
				shown.WriteString(d.Text)
			}
		}}
		err := a.readStream(context.Background(), bufio.NewReader(bytes.NewReader(stream)))
		if err == nil {
			require.Equal(t, shown.String(), a.reply().Text)
			return
		}
		var failure *agent.ModelError
		require.True(t, errors.As(err, &failure))
		require.True(t, failure.Class.Valid())
		if kept := failure.Partial; kept != nil {
			require.Equal(t, shown.String(), kept.Text)
			for _, c := range kept.Calls {
				_, err := jsonx.CompactJSON(c.Input, jsonx.JSONLimits{})
				require.NoError(t, err)
			}
		}
	})
}

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
		{"what is no chunk", text("a") + "data: {canary\n\n", agent.ModelConnection, kept(agent.Reply{Text: "a"})},
		{"reasoning alone", chunk(`{"reasoning":"hm"}`), agent.ModelConnection, nil},
		{"reasoning and text", chunk(`{"reasoning":"hm"}`) + text("a"), agent.ModelConnection, kept(agent.Reply{Text: "a", Reasoning: reasoned("reasoning", "hm")})},
		{"a call alone that is not all there", callChunk(0, "a", `{"x":1`), agent.ModelConnection, nil},
		{"blanks", text("\n"), agent.ModelConnection, nil},
		{"nothing", "", agent.ModelConnection, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			reply, err := against(t, nil, answer("text/event-stream", tt.body)).generate(context.Background(), request())
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
	_, err := against(t, nil, hang).generate(ctx, request())
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
	_, err := against(t, onDelta, answer("text/event-stream", body)).generate(context.Background(), request())
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
		{"a call by name", fmt.Sprintf(ollama, `{"name": "write", "arguments": {"path": "/a",}}`), []string{"read", "write"}, `write {"path":"/a"}`},
		{"a call cut behind a member", fmt.Sprintf(ollama, `{"name": "write", "arguments": {"path": "/a"`), []string{"write"}, ""},
		{"arguments cut behind a list's member", fmt.Sprintf(ollama, `{"pay": [{"to": "ben"}`), []string{"pay"}, ""},
		{"a call cut without a tag", fmt.Sprintf(llama, `<tool_call>{"name": "pay", "arguments": {"to": "ben"`), []string{"pay"}, ""},
		{"parameters", fmt.Sprintf(ollama, `{"name": "write", "parameters": {"path": ""/a""}}`), []string{"read", "write"}, `write {"path":"/a"}`},
		{"function", fmt.Sprintf(ollama, `{"type": "function", "function": {"name": "read", "arguments": "{\"path\": 1}"},}`), []string{"read", "write"}, `read {"path": 1}`},
		{"in tags", fmt.Sprintf(llama, "<tool_call>\n{'name': 'read', 'arguments': {'path': '/a'}\n</tool_call>"), []string{"read", "write"}, `read {"path":"/a"}`},

		{"arguments, and nobody knows whose", fmt.Sprintf(ollama, `{"path": "/a",}`), []string{"read", "write"}, ""},
		{"arguments in what may be anything", fmt.Sprintf(llama, `{"path": "/a",}`), []string{"read"}, ""},
		{"a tool that is not on offer", fmt.Sprintf(ollama, `{"name": "pay", "arguments": {"path": "/a",}}`), []string{"read"}, ""},
		{"no tools", fmt.Sprintf(ollama, `{"name": "read", "arguments": {},}`), nil, ""},
		{"no object", fmt.Sprintf(ollama, "ls -R"), []string{"read"}, ""},
		{"a number before the end of the tags", fmt.Sprintf(llama, `<tool_call>{"name": "pay", "arguments": {"amount": 12</tool_call>`), []string{"pay"}, `pay {"amount":12}`},
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
					"status 500":    refusal(http.StatusInternalServerError, string(body)),
					"in the stream": answer("text/event-stream", "data: "+string(body)+"\n\n"),
					"in a document": answer("application/json", string(body)),
				}[form]
				reply, err := against(t, nil, serve).generate(context.Background(), r)
				if tt.want == "" {
					requireClass(t, agent.ModelServer, err)
					return
				}
				require.NoError(t, err)
				require.Len(t, reply.Calls, 1)
				require.Equal(t, tt.want, reply.Calls[0].Name+" "+string(reply.Calls[0].Input))
				require.True(t, reply.Calls[0].Repaired)
				require.Equal(t, agent.Reply{Model: "m", Calls: reply.Calls, StopReason: "repaired"}, reply)

				_, err = against(t, nil, refusal(http.StatusBadGateway, string(body))).generate(context.Background(), r)
				requireClass(t, agent.ModelServer, err) // which is not the status that servers report such a call with
				r.Model.Repair = agent.RepairOff
				_, err = against(t, nil, serve).generate(context.Background(), r)
				requireClass(t, agent.ModelServer, err)
			})
		}
	}
}

// Groq refuses a call that does not fit its tool's schema, and says which: the model is told as of any such call. A
// model that may not be repaired is asked again, since it may write another one.
func TestCallsThatGroqRefuses(t *testing.T) {
	const refused = `{"error":{"message":"Tool call validation failed","type":"invalid_request_error","code":"tool_use_failed","failed_generation":%q,"status_code":400}}`
	for _, c := range []struct {
		failed string
		repair agent.Repair
		want   string
	}{
		{"{\"name\": \"read\", \"arguments\": {\n  \"foo\": \"bar\"\n}}", agent.RepairOn, "{\n  \"foo\": \"bar\"\n}"},
		{"{\"name\": \"read\", \"arguments\": {\"foo\": \"bar\"}}", agent.RepairOff, ""},
		{"{\"name\": \"read\", \"arguments\": {\"foo\": \"bar\"", agent.RepairOn, ""},
		{"maybe", agent.RepairOn, ""}, {"", agent.RepairOn, ""},
	} {
		body := fmt.Sprintf(refused, c.failed)
		for form, serve := range map[string]http.HandlerFunc{
			"status 400":    refusal(http.StatusBadRequest, body),
			"in the stream": answer("text/event-stream", chunk(`{"reasoning":"hm"}`)+"event: error\ndata: "+body+"\n\n"),
		} {
			t.Run(form+" "+c.failed, func(t *testing.T) {
				r := request()
				r.Model.Repair, r.Tools = c.repair, []agent.ToolSpec{{Name: "read"}}
				reply, err := against(t, nil, serve).generate(context.Background(), r)
				if c.want == "" {
					requireClass(t, agent.ModelServer, err)
					return
				}
				require.NoError(t, err)
				require.Len(t, reply.Calls, 1)
				require.Equal(t, c.want, string(reply.Calls[0].Input))
			})
		}
	}
}

// A reply that has said that it is over gets no call from an error behind it.
func TestQuotedCallBehindTheEnd(t *testing.T) {
	r := request()
	r.Model.Repair, r.Tools = agent.RepairOn, []agent.ToolSpec{{Name: "read"}}
	problem := `data: {"error":"error parsing tool call: raw='{\"path\":1}}', err=x"}` + "\n\n"
	_, err := against(t, nil, answer("text/event-stream", text("a")+done("stop")+problem)).generate(context.Background(), r)
	requireClass(t, agent.ModelServer, err)
	reply, err := against(t, nil, answer("text/event-stream", text("a")+problem)).generate(context.Background(), r)
	require.NoError(t, err)
	require.Equal(t, "a", reply.Text)
	require.Len(t, reply.Calls, 1)
}
