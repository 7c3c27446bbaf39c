package bedrock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/model/modelretry"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/standins"
)

// against is a model whose server has the turns for a script.
func against(t *testing.T, m Model, turns ...standins.Turn) (Model, *standins.Bedrock) {
	t.Helper()
	server := standins.NewBedrock(turns...)
	t.Cleanup(server.Close)
	m.Client = NewClient(server.Config())
	return m, server
}

// generated is what comes of the request and one turn.
func generated(t *testing.T, turn standins.Turn) (agent.Reply, error) {
	t.Helper()
	m, _ := against(t, Model{}, turn)
	return m.Generate(context.Background(), request())
}

// requireFailure checks that a turn is no reply, and the class and the words of its error.
func requireFailure(t *testing.T, turn standins.Turn, class agent.ModelErrorClass, message string) {
	t.Helper()
	reply, err := generated(t, turn)
	requireClass(t, class, err)
	require.Equal(t, agent.Reply{}, reply)
	if message != "" {
		require.Equal(t, message, failureOf(t, err).Message)
	}
}

func request() agent.Request {
	return agent.Request{
		Model:    agent.ModelSpec{Provider: "bedrock", ID: "m"},
		Messages: []run.Message{ask("canary-content")},
	}
}

func call(id, name, input string) agent.ReplyCall {
	return agent.ReplyCall{ID: id, Name: name, Input: json.RawMessage(input)}
}

func signed(model, text, signature string) run.Reasoning {
	return run.Reasoning{Text: text, Signature: signature, Provider: "bedrock", Model: model}
}

// thoughts are reasoning at one place.
func thoughts(text, calls int, all ...run.Reasoning) []run.RepliedReasoning {
	var out []run.RepliedReasoning
	for _, b := range all {
		out = append(out, run.RepliedReasoning{Reasoning: b, AfterText: text, AfterCalls: calls})
	}
	return out
}

func blocks(bs ...standins.Block) standins.Reply { return standins.Reply{Blocks: bs} }

// The text shown is the text replied.
func TestReplies(t *testing.T) {
	get := standins.ToolUse("a", "get", `{"x"`, `:1}`)
	tests := []struct {
		name  string
		reply standins.Reply
		want  agent.Reply
	}{
		{"text", standins.Reply{Blocks: []standins.Block{standins.Text("Hel", "lo")}, Usage: standins.Usage{Input: 30, Output: 7, CacheRead: 20, CacheWrite: 5}},
			agent.Reply{Text: "Hello", StopReason: "end_turn", Usage: run.Usage{Input: 30, Output: 7, CacheRead: 20, CacheWrite: 5}}},
		{"nothing", blocks(), agent.Reply{StopReason: "end_turn"}},
		{"blank pieces", blocks(standins.Text("", " ", "")), agent.Reply{Text: " ", StopReason: "end_turn"}},
		{"text and calls", blocks(standins.Text("Wait."), get, standins.ToolUse("b", "put", `{"y":"é<&>"}`)),
			agent.Reply{Text: "Wait.", StopReason: "tool_use", Calls: []agent.ReplyCall{call("a", "get", `{"x":1}`), call("b", "put", `{"y":"é<&>"}`)}}},
		{"no input", blocks(standins.ToolUse("a", "ping")), agent.Reply{StopReason: "tool_use", Calls: []agent.ReplyCall{call("a", "ping", `{}`)}}},
		{"digits", blocks(standins.ToolUse("a", "pay", `{"amount":12345678901234567890.10,"rate":1e-7}`)),
			agent.Reply{StopReason: "tool_use", Calls: []agent.ReplyCall{call("a", "pay", `{"amount":12345678901234567890.10,"rate":1e-7}`)}}},
		{"reasoning", blocks(standins.Reasoning("s+/=", "sec", "ret <é>"), standins.Text("a"), get),
			agent.Reply{Text: "a", StopReason: "tool_use", Calls: []agent.ReplyCall{call("a", "get", `{"x":1}`)}, Reasoning: thoughts(0, 0, signed("m", "secret <é>", "s+/="))}},
		{"reasoning here and there", blocks(standins.Redacted([]byte{0}, []byte{255, 1}), standins.Text("a"), standins.Unsigned("b"), standins.Text("c"), get, standins.Reasoning("s")),
			agent.Reply{Text: "ac", StopReason: "tool_use", Calls: []agent.ReplyCall{call("a", "get", `{"x":1}`)}, Reasoning: slices.Concat(
				thoughts(0, 0, run.Reasoning{Redacted: []byte{0, 255, 1}, Provider: "bedrock", Model: "m"}), thoughts(1, 0, signed("m", "b", "")), thoughts(2, 1, signed("m", "", "s")))}},
		{"reasoning alone", blocks(standins.Reasoning("s", "a")), agent.Reply{StopReason: "end_turn", Reasoning: thoughts(0, 0, signed("m", "a", "s"))}},
		{"reasoning that is none", blocks(standins.Unsigned(""), standins.Redacted(nil), standins.Text("a")), agent.Reply{Text: "a", StopReason: "end_turn"}},
		{"an unknown block behind reasoning", blocks(standins.Reasoning("s", "a"), standins.Other("hologram", "x"), standins.Text("b")),
			agent.Reply{Text: "b", StopReason: "end_turn", Reasoning: thoughts(0, 0, signed("m", "a", "s"))}},
		{"reasoning of a kind not known yet", blocks(standins.Other("reasoningContent", map[string]string{"hologram": "x"}), standins.Text("b")),
			agent.Reply{Text: "b", StopReason: "end_turn"}},
		{"reasoning behind a prompt router", standins.Reply{Blocks: []standins.Block{standins.Reasoning("s", "a"), standins.Text("b")}, Router: "m-2"},
			agent.Reply{Model: "m-2", Text: "b", StopReason: "end_turn", Reasoning: thoughts(0, 0, signed("m-2", "a", "s"))}},
		{"a call beside what cannot be read", standins.Reply{Blocks: []standins.Block{get}, StopReason: "malformed_tool_use"},
			agent.Reply{StopReason: "malformed_tool_use", Calls: []agent.ReplyCall{call("a", "get", `{"x":1}`)}}},
		{"a text that ends with the window", standins.Reply{Blocks: []standins.Block{standins.Text("a")}, StopReason: "model_context_window_exceeded"},
			agent.Reply{Text: "a", StopReason: "model_context_window_exceeded"}},
		{"a call that ends with the window", standins.Reply{Blocks: []standins.Block{get}, StopReason: "model_context_window_exceeded"},
			agent.Reply{StopReason: "model_context_window_exceeded", Calls: []agent.ReplyCall{call("a", "get", `{"x":1}`)}}},
		{"a call cut before its arguments", standins.Reply{Blocks: []standins.Block{standins.ToolUse("p", "ping"), standins.ToolUse("a", "get")}, StopReason: "max_tokens"},
			agent.Reply{StopReason: "max_tokens", Truncated: true, Calls: []agent.ReplyCall{call("p", "ping", `{}`), call("a", "get", "")}}},
		{"an unknown block behind a text", blocks(standins.Text("a"), standins.Other("hologram", "x"), standins.Text("b")),
			agent.Reply{Text: "ab", StopReason: "end_turn"}},
		{"an unknown block behind a call", blocks(get, standins.Other("hologram", map[string]int{"y": 1}), standins.Other("hologram", 1)),
			agent.Reply{StopReason: "tool_use", Calls: []agent.ReplyCall{call("a", "get", `{"x":1}`)}}},
		{"a call told twice", blocks(get, standins.Text("a"), get),
			agent.Reply{Text: "a", StopReason: "tool_use", Calls: []agent.ReplyCall{call("a", "get", `{"x":1}`)}}},
		{"calls without ids", blocks(standins.ToolUse("", "get", `{"x":1}`), standins.ToolUse("", "get", `{"x":1}`)),
			agent.Reply{StopReason: "tool_use", Calls: []agent.ReplyCall{call("", "get", `{"x":1}`), call("", "get", `{"x":1}`)}}},
		{"a call of the server's own", blocks(standins.Block{
			Whole:  json.RawMessage(`{"toolUse":{"toolUseId":"s","name":"search","input":{},"type":"server_tool_use"}}`),
			Start:  json.RawMessage(`{"toolUse":{"toolUseId":"s","name":"search","type":"server_tool_use"}}`),
			Deltas: []json.RawMessage{json.RawMessage(`{"toolUse":{"input":"{}"}}`)},
		}, standins.Text("a")), agent.Reply{Text: "a", StopReason: "tool_use"}},
	}
	for _, reason := range []string{"max_tokens", "stop_sequence", "content_filtered", "guardrail_intervened", "not known yet"} {
		tests = append(tests, struct {
			name  string
			reply standins.Reply
			want  agent.Reply
		}{reason, standins.Reply{StopReason: reason}, agent.Reply{StopReason: reason, Truncated: reason == "max_tokens"}})
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var shown strings.Builder
			onDelta := func(r agent.Request, d agent.Delta) {
				require.Equal(t, request(), r)
				if d.Kind == agent.DeltaText {
					require.NotEmpty(t, d.Text)
					shown.WriteString(d.Text)
				}
			}
			m, server := against(t, Model{OnDelta: onDelta}, tt.reply)
			reply, err := m.Generate(context.Background(), request())
			require.NoError(t, err)
			if tt.want.Model == "" {
				tt.want.Model = "m"
			}
			require.Equal(t, tt.want, reply)
			require.Equal(t, tt.want.Text, shown.String())
			require.Zero(t, server.Left())
		})
	}
}

// A reply that nobody could read may come out better the next time; one that had no room will not.
func TestRepliesThatAreNone(t *testing.T) {
	said := []standins.Block{standins.Reasoning("s", "canary"), standins.Text("canary")}
	tests := []struct {
		blocks []standins.Block
		stop   string
		class  agent.ModelErrorClass
		want   string
	}{
		{said, "malformed_tool_use", agent.ModelServer, "reply cannot be read, malformed_tool_use"},
		{said, "malformed_model_output", agent.ModelServer, "reply cannot be read, malformed_model_output"},
		{nil, "model_context_window_exceeded", agent.ModelContextOverflow, "reply is empty, model_context_window_exceeded"},
		{said[:1], "model_context_window_exceeded", agent.ModelContextOverflow, "reply is empty, model_context_window_exceeded"},
	}
	for _, tt := range tests {
		requireFailure(t, standins.Reply{Blocks: tt.blocks, StopReason: tt.stop}, tt.class, tt.want)
	}
}

// What the model wrote as input reaches the core as it is: it alone says what is wrong with it.
func TestMalformedInput(t *testing.T) {
	for _, input := range []string{`{"x": <1`, `{"x":1,"x":2}`, `[1]`, `"`, "{\"x\":\"\x01\"}", ` {"b":1.0, "a":2} `} {
		reply, err := generated(t, blocks(standins.ToolUse("a", "get", input[:1], input[1:])))
		require.NoError(t, err)
		require.Equal(t, []agent.ReplyCall{call("a", "get", input)}, reply.Calls)
	}
}

func TestBrokenReplies(t *testing.T) {
	many := make([]standins.Block, maxCalls+1)
	for i := range many {
		many[i] = standins.ToolUse("a", "get", `{}`)
	}
	tests := []struct {
		name  string
		turn  standins.Turn
		class agent.ModelErrorClass
	}{
		{"one id, two calls", blocks(standins.ToolUse("a", "get", `{}`), standins.ToolUse("a", "put", `{}`)), agent.ModelInvalid},
		{"one id, two inputs", blocks(standins.ToolUse("a", "get", `{}`), standins.ToolUse("a", "get", `{"x":1}`)), agent.ModelInvalid},
		{"too many calls", blocks(many...), agent.ModelInvalid},
		{"an answer that is no stream", standins.Body{Type: "application/json", Text: `{"output":{}}`}, agent.ModelConnection},
		{"page", standins.Body{Type: "text/html", Text: "<html>canary-content</html>"}, agent.ModelConnection},
		{"an answer that is nothing", standins.Body{}, agent.ModelConnection},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { requireFailure(t, tt.turn, tt.class, "") })
	}
}

// failureOf is the model error that err is.
func failureOf(t *testing.T, err error) *agent.ModelError {
	t.Helper()
	var failure *agent.ModelError
	require.ErrorAs(t, err, &failure)
	return failure
}

// requireClass checks the class and that nothing a test calls a canary is in any text of the error.
func requireClass(t *testing.T, class agent.ModelErrorClass, err error) {
	t.Helper()
	failure := failureOf(t, err)
	require.Equal(t, class, failure.Class, err)
	require.Equal(t, "m", failure.Model)
	requireNoCanary(t, err)
}

func requireNoCanary(t *testing.T, err error) {
	t.Helper()
	for e := err; e != nil; e = errors.Unwrap(e) {
		require.NotContains(t, strings.ToLower(fmt.Sprintf("%v %+v %#v", e, e, e)), "canary")
	}
}

func TestRefusals(t *testing.T) {
	tests := []struct {
		status  int
		code    string
		says    string
		class   agent.ModelErrorClass
		message string
	}{
		{429, "ThrottlingException", "Too many tokens, please wait before trying again.", agent.ModelThrottled, "status 429, ThrottlingException"},
		{429, "ModelNotReadyException", "canary", agent.ModelUnavailable, "status 429, ModelNotReadyException"},
		{408, "ModelTimeoutException", "canary", agent.ModelTimeout, "status 408, ModelTimeoutException"},
		{424, "ModelErrorException", "canary", agent.ModelServer, "status 424, ModelErrorException"},
		{424, "ModelErrorException", "prompt is too long", agent.ModelContextOverflow, "status 424, ModelErrorException"},
		{500, "InternalServerException", "canary", agent.ModelServer, "status 500, InternalServerException"},
		{503, "ServiceUnavailableException", "canary", agent.ModelUnavailable, "status 503, ServiceUnavailableException"},
		{400, "ValidationException", "canary", agent.ModelInvalid, "status 400, ValidationException"},
		{400, "ValidationException", "Invocation of model ID m with on-demand throughput isn’t supported.", agent.ModelInvalid, "status 400, ValidationException (want the id of an inference profile for this model)"},
		{400, "ValidationException", "Input is too long for requested model.", agent.ModelContextOverflow, "status 400, ValidationException"},
		{400, "ValidationException", "The model returned the following errors: prompt is too long: 200049 tokens > 200000 maximum", agent.ModelContextOverflow, "status 400, ValidationException"},
		{400, "ValidationException", "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000", agent.ModelContextOverflow, "status 400, ValidationException"},
		{400, "ValidationException", "This model's maximum context length is 202752 tokens.", agent.ModelContextOverflow, "status 400, ValidationException"},
		{404, "ResourceNotFoundException", "canary", agent.ModelUnavailable, "status 404, ResourceNotFoundException"},
		{403, "AccessDeniedException", "You don't have access to canary", agent.ModelAuth, "status 403, AccessDeniedException"},
		{403, "UnrecognizedClientException", "canary", agent.ModelAuth, "status 403, UnrecognizedClientException"},
		{400, "ExpiredTokenException", "canary", agent.ModelAuth, "status 400, ExpiredTokenException"},
		{401, "", "canary", agent.ModelAuth, "status 401"},
		{403, "CanaryException", "canary", agent.ModelAuth, "status 403"},
		{400, "CanaryException", "prompt is too long", agent.ModelInvalid, "status 400"},
		{413, "", "canary", agent.ModelInvalid, "status 413"},
		{424, "", "canary", agent.ModelServer, "status 424"},
		{504, "", "canary", agent.ModelTimeout, "status 504"},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%d %s", tt.status, tt.code), func(t *testing.T) {
			m, server := against(t, Model{}, standins.Failure{Status: tt.status, Code: tt.code, Message: tt.says, Wait: 3})
			_, err := m.Generate(context.Background(), request())
			requireClass(t, tt.class, err)
			require.Equal(t, tt.message, failureOf(t, err).Message)
			require.Equal(t, tt.status == 404, failureOf(t, err).Lasting, "a model that is not there stays away")
			require.Len(t, server.Requests(), 1, "the SDK must not retry by itself")
			var asks interface{ RetryAfter() time.Duration }
			require.ErrorAs(t, failureOf(t, err).Cause, &asks)
			require.Equal(t, 3*time.Second, asks.RetryAfter())
		})
	}
}

func TestRefusedMedia(t *testing.T) {
	m, _ := against(t, Model{}, standins.Failure{Status: 400, Code: "ValidationException", Message: "This model doesn't support the image field for user messages. Remove image and try again."})
	_, err := m.Generate(context.Background(), request())
	refused, ok := errors.AsType[*modelretry.Refusal](failureOf(t, err).Cause)
	require.True(t, ok)
	require.Equal(t, modelretry.Pictures, refused.Media)
}

func TestRefusalsThatAreNoJSON(t *testing.T) {
	for status, class := range map[int]agent.ModelErrorClass{502: agent.ModelServer, 503: agent.ModelUnavailable, 429: agent.ModelThrottled, 403: agent.ModelAuth, 400: agent.ModelInvalid, 307: agent.ModelInvalid} {
		page := standins.Body{Status: status, Type: "text/html", Text: "<html>canary-content"}
		requireFailure(t, page, class, fmt.Sprintf("status %d", status))
	}
}
