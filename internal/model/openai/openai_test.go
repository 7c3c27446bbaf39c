package openai

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/model/modelretry"
	"github.com/countersign/countersign/internal/run"
)

const key = "sk-canary-key"

// against is a server that answers as the handler does.
func against(t *testing.T, onDelta agent.OnDelta, handler http.HandlerFunc) *server {
	t.Helper()
	at := httptest.NewServer(handler)
	m, err := newServer(at.URL+"/v1/", key, onDelta)
	require.NoError(t, err)
	t.Cleanup(func() { m.client.CloseIdleConnections(); at.Close() })
	return m
}

// answer is a handler that always sends the same body.
func answer(contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		_, _ = io.WriteString(w, body) // a client that hung up is the client's business
	}
}

// refusal is a handler that refuses.
func refusal(status int, body string, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// chunk is a chunk of a stream with a delta; done one that ends the reply.
func chunk(delta string) string {
	return fmt.Sprintf("data: {\"model\":\"m-1\",\"choices\":[{\"index\":0,\"delta\":%s,\"finish_reason\":null}]}\n\n", delta)
}

func text(s string) string { return chunk(fmt.Sprintf(`{"content":%q}`, s)) }

func done(reason string) string {
	return fmt.Sprintf("data: {\"model\":\"m-1\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":%q}]}\n\n", reason)
}

const (
	end       = "data: [DONE]\n\n"
	usageOnly = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":50,\"completion_tokens\":7,\"prompt_tokens_details\":{\"cached_tokens\":20}}}\n\n"
)

func request() agent.Request {
	return agent.Request{
		Model:    agent.ModelSpec{Provider: "openai", ID: "m"},
		Messages: []run.Message{{Role: run.RoleUser, Block: run.Text{Text: "canary-content"}}},
	}
}

func call(id, name, input string) agent.ReplyCall {
	return agent.ReplyCall{ID: id, Name: name, Input: json.RawMessage(input)}
}

func reasoned(field, text string) []run.RepliedReasoning {
	return []run.RepliedReasoning{{Reasoning: run.Reasoning{Text: text, Provider: "openai", Model: "m", Field: field}}}
}

func TestReplies(t *testing.T) {
	const sse, doc = "text/event-stream; charset=utf-8", "application/json"
	two := []agent.ReplyCall{call("a", "get", `{"x":1}`), call("b", "put", `{"y":"é"}`)}
	tests := []struct {
		name, contentType, body string
		want                    agent.Reply
	}{
		{"text", sse, chunk(`{"role":"assistant","content":""}`) + text("Hel") + text("lo") + done("stop") + usageOnly + end,
			agent.Reply{Model: "m-1", Text: "Hello", StopReason: "stop", Usage: run.Usage{Input: 30, Output: 7, CacheRead: 20}}},
		{"no usage", sse, text("a") + done("length") + end, agent.Reply{Model: "m-1", Text: "a", StopReason: "length", Truncated: true}},
		{"no finish reason", sse, text("a") + end, agent.Reply{Model: "m-1", Text: "a"}},
		{"no [DONE]", sse, text("a") + done("content_filter"), agent.Reply{Model: "m-1", Text: "a", StopReason: "content_filter"}},
		{"cut after the finish reason", sse, text("a") + done("stop") + "data: {\"choi", agent.Reply{Model: "m-1", Text: "a", StopReason: "stop"}},
		{"nothing at all", sse, end, agent.Reply{Model: "m"}},
		{"comments, names and ids", sse, ": keep-alive\n\nevent: message\nid: 1\n" + text("a") + ":\n:\n\n" + end, agent.Reply{Model: "m-1", Text: "a"}},
		{"CRLF", sse, strings.ReplaceAll(": hi\n\n"+text("a")+done("stop")+end, "\n", "\r\n"), agent.Reply{Model: "m-1", Text: "a", StopReason: "stop"}},
		{"data without a space", sse, strings.ReplaceAll(text("a")+end, "data: ", "data:"), agent.Reply{Model: "m-1", Text: "a"}},
		{"other choices", sse, "data: {\"choices\":[{\"index\":1,\"delta\":{\"content\":\"no\"}}]}\n\n" + text("a") + end, agent.Reply{Model: "m-1", Text: "a"}},
		{"one call", sse, text("Let me see.") +
			chunk(`{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"get","arguments":""}}]}`) +
			chunk(`{"tool_calls":[{"index":0,"function":{"arguments":"{\"x\":"}}]}`) +
			chunk(`{"tool_calls":[{"index":0,"function":{"arguments":" 1.0}"}}]}`) + done("tool_calls") + end,
			agent.Reply{Model: "m-1", Text: "Let me see.", StopReason: "tool_calls", Calls: []agent.ReplyCall{call("a", "get", `{"x": 1.0}`)}}},
		{"interleaved calls", sse, chunk(`{"tool_calls":[{"index":1,"id":"b","function":{"name":"put","arguments":"{\"y\""}}]}`) +
			chunk(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"get","arguments":"{\"x\""}},{"index":1,"function":{"arguments":":\"é\"}"}}]}`) +
			chunk(`{"tool_calls":[{"index":0,"function":{"arguments":":1}"}}]}`) + done("tool_calls") + end,
			agent.Reply{Model: "m-1", StopReason: "tool_calls", Calls: two}},
		{"every call at index 0", sse, chunk(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"get","arguments":"{\"x\":1}"}}]}`) +
			chunk(`{"tool_calls":[{"index":0,"id":"b","function":{"name":"put","arguments":"{\"y\":\"é\"}"}}]}`) + end,
			agent.Reply{Model: "m-1", Calls: two}},
		{"no index", sse, chunk(`{"tool_calls":[{"id":"a","function":{"name":"get","arguments":"{\"x\""}}]}`) +
			chunk(`{"tool_calls":[{"function":{"arguments":":1}"}},{"id":"b","function":{"name":"put","arguments":"{\"y\":\"é\"}"}}]}`) + end,
			agent.Reply{Model: "m-1", Calls: two}},
		{"no index, no id", sse, chunk(`{"tool_calls":[{"function":{"name":"get","arguments":"{\"x\":1}"}},{"function":{"name":"get","arguments":"{}"}}]}`) + end,
			agent.Reply{Model: "m-1", Calls: []agent.ReplyCall{call("", "get", `{"x":1}`), call("", "get", `{}`)}}},
		{"arguments that are no JSON", sse, chunk(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"get","arguments":"{\"x\": <1"}}]}`) + end,
			agent.Reply{Model: "m-1", Calls: []agent.ReplyCall{call("a", "get", `{"x": <1`)}}},
		{"no arguments", sse, chunk(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"get"}}]}`) + end,
			agent.Reply{Model: "m-1", Calls: []agent.ReplyCall{call("a", "get", `{}`)}}},
		{"cut before the last arguments", sse, chunk(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"get"}},{"index":1,"id":"b","function":{"name":"put","arguments":""}}]}`) + done("length") + end,
			agent.Reply{Model: "m-1", StopReason: "length", Truncated: true, Calls: []agent.ReplyCall{call("a", "get", `{}`), call("b", "put", "")}}},
		{"a filter before the arguments", sse, chunk(`{"tool_calls":[{"index":0,"id":"b","function":{"name":"put","arguments":""}}]}`) + done("content_filter") + end,
			agent.Reply{Model: "m-1", StopReason: "content_filter", Calls: []agent.ReplyCall{call("b", "put", "")}}},
		{"reasoning that the total alone includes", sse, text("a") + done("stop") + "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":20,\"completion_tokens\":198,\"total_tokens\":623}}\n\n" + end,
			agent.Reply{Model: "m-1", Text: "a", StopReason: "stop", Usage: run.Usage{Input: 20, Output: 603}}},
		{"more usage than sums can hold", sse, text("a") + done("stop") + "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9223372036854775807,\"completion_tokens\":2}}\n\n" + end,
			agent.Reply{Model: "m-1", Text: "a", StopReason: "stop", Usage: run.Usage{Input: 1e12, Output: 2}}},
		{"reasoning_content", sse, chunk(`{"reasoning_content":"Let me ","content":null}`) + chunk(`{"reasoning_content":"think."}`) + text("Hi") + done("stop") + end,
			agent.Reply{Model: "m-1", Text: "Hi", StopReason: "stop", Reasoning: reasoned("reasoning_content", "Let me think.")}},
		{"reasoning", sse, chunk(`{"reasoning":"hm","content":""}`) + chunk(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"get","arguments":"{\"x\":1}"}}]}`) + end,
			agent.Reply{Model: "m-1", Calls: two[:1], Reasoning: reasoned("reasoning", "hm")}},
		{"both names", sse, chunk(`{"reasoning":"hm","reasoning_content":"hm"}`) + end, agent.Reply{Model: "m-1", Reasoning: reasoned("reasoning_content", "hm")}},
		{"reasoning that is no text", sse, chunk(`{"reasoning":{"effort":"low"},"reasoning_content":null,"content":"Hi"}`) + end, agent.Reply{Model: "m-1", Text: "Hi"}},
		{"document with reasoning", doc, `{"choices":[{"message":{"content":"Hi","reasoning_content":"hm"}}]}`,
			agent.Reply{Model: "m", Text: "Hi", Reasoning: reasoned("reasoning_content", "hm")}},
		{"parts of which some are thoughts", sse, chunk(`{"content":[{"type":"thinking","thinking":[{"type":"text","text":"Let me "}]}]}`) +
			chunk(`{"content":[{"type":"thinking","thinking":"think."},{"type":"text","text":"Hel"}]}`) + text("lo") + done("stop") + end,
			agent.Reply{Model: "m-1", Text: "Hello", StopReason: "stop", Reasoning: reasoned("", "Let me think.")}},
		{"document", doc, `{"model":"m-1","choices":[{"index":0,"message":{"role":"assistant","content":"Hello"},"finish_reason":"stop"}],
			"usage":{"prompt_tokens":5,"completion_tokens":2},"error":null}`,
			agent.Reply{Model: "m-1", Text: "Hello", StopReason: "stop", Usage: run.Usage{Input: 5, Output: 2}}},
		{"document with calls", doc, `{"model":"m-1","choices":[{"message":{"content":null,"tool_calls":[
			{"id":"a","function":{"name":"get","arguments":{"x":1}}},{"id":"b","function":{"name":"put","arguments":"{\"y\":\"é\"}"}}]}}]}`,
			agent.Reply{Model: "m-1", Calls: two}},
		{"ids that are numbers", sse, chunk(`{"tool_calls":[{"index":0,"id":7,"function":{"name":"get","arguments":"{\"x\":1}"}}]}`) + end,
			agent.Reply{Model: "m-1", Calls: []agent.ReplyCall{call("7", "get", `{"x":1}`)}}},
		{"another id with each piece", sse, chunk(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"get","arguments":""}}]}`) +
			chunk(`{"tool_calls":[{"index":0,"id":"c","function":{"name":"","arguments":"{\"x\""}}]}`) + chunk(`{"tool_calls":[{"index":0,"id":"d","function":{"arguments":":1}"}}]}`) + end,
			agent.Reply{Model: "m-1", Calls: two[:1]}},
		{"a call that begins at another's index", sse, callChunk(0, "a", `{"x":1}`) + chunk(`{"tool_calls":[{"index":0,"id":"b","function":{"name":"put","arguments":""}}]}`) +
			chunk(`{"tool_calls":[{"index":1,"function":{"arguments":"{\"y\":\"é\"}"}}]}`) + end, agent.Reply{Model: "m-1", Calls: two}},
		{"whole calls at index 0 without ids", sse, callChunk(0, "", `{"x":1}`) + callChunk(0, "", `{}`) + end,
			agent.Reply{Model: "m-1", Calls: []agent.ReplyCall{call("", "get", `{"x":1}`), call("", "get", `{}`)}}},
		{"the name with each piece", sse, callChunk(0, "", `{"x":{}`) + callChunk(0, "", `}`) + end, agent.Reply{Model: "m-1", Calls: []agent.ReplyCall{call("", "get", `{"x":{}}`)}}},
		{"a filter's other names", sse, text("a") + done("content_filter: RECITATION") + end, agent.Reply{Model: "m-1", Text: "a", StopReason: "content_filter"}},
		{"a filter's other names, Gemini", sse, text("a") + done("SAFETY") + end, agent.Reply{Model: "m-1", Text: "a", StopReason: "content_filter"}},
		{"a filter's other names, Z.ai", sse, callChunk(0, "a", "") + done("sensitive") + end, agent.Reply{Model: "m-1", StopReason: "content_filter", Calls: []agent.ReplyCall{call("a", "get", "")}}},
		{"the limit's other names", sse, text("a") + done("MAX_TOKENS") + end, agent.Reply{Model: "m-1", Text: "a", StopReason: "length", Truncated: true}},
		{"names with more than a name", doc, `{"choices":[{"message":{"tool_calls":[{"id":"a","function":{"name":" get\n","arguments":"{\"x\":1}"}},{"id":"b","function":{"name":"put<|channel|>commentary","arguments":"{\"y\":\"é\"}"}}]}}]}`,
			agent.Reply{Model: "m", Calls: two}},
		{"data that are empty or null", sse, "data: \n\n" + text("a") + "data:\n\ndata: null\n\n" + done("stop") + end, agent.Reply{Model: "m-1", Text: "a", StopReason: "stop"}},
		{"stream that calls itself JSON", doc, "\n\n" + text("a") + end, agent.Reply{Model: "m-1", Text: "a"}},
		{"document that calls itself a stream", sse, "\n" + `{"choices":[{"message":{"content":"a"}}]}`, agent.Reply{Model: "m", Text: "a"}},
		{"reasoning that a server wants back as a list", sse, chunk(`{"reasoning":"h","reasoning_details":[{"type":"reasoning.text","text":"h","index":0}]}`) +
			chunk(`{"reasoning":"m","reasoning_details":[{"type":"reasoning.text","text":"m","index":0,"signature":null},{"type":"reasoning.text","signature":"s","index":0}]}`) +
			chunk(`{"reasoning_details":[{"type":"reasoning.encrypted","data":"x","index":1},{"type":"reasoning.encrypted","data":"y","index":1}]}`) + text("a") + end,
			agent.Reply{Model: "m-1", Text: "a", Reasoning: append(reasoned("reasoning", "hm"), run.RepliedReasoning{Reasoning: run.Reasoning{Provider: "openai", Model: "m", Field: "reasoning_details",
				Redacted: []byte(`[{"index":0,"signature":"s","text":"hm","type":"reasoning.text"},{"data":"x","index":1,"type":"reasoning.encrypted"},{"data":"y","index":1,"type":"reasoning.encrypted"}]`)}})}},
		{"lists that say no more than the text", sse, chunk(`{"reasoning":"hm","reasoning_details":[{"type":"reasoning.text","text":"hm"}],"thinking_blocks":{}}`) + text("a") + end,
			agent.Reply{Model: "m-1", Text: "a", Reasoning: reasoned("reasoning", "hm")}},
		{"thinking blocks", doc, `{"choices":[{"message":{"content":"a","thinking_blocks":[{"type":"thinking","thinking":"h","signature":"s"},{"type":"thinking","thinking":"m","signature":"t"}]}}]}`,
			agent.Reply{Model: "m", Text: "a", Reasoning: []run.RepliedReasoning{{Reasoning: run.Reasoning{Provider: "openai", Model: "m", Field: "thinking_blocks",
				Redacted: []byte(`[{"signature":"s","thinking":"h","type":"thinking"},{"signature":"t","thinking":"m","type":"thinking"}]`)}}}}},
		{"document that calls itself text", "text/plain", `{"choices":[{"message":{"content":"a"}}]}`, agent.Reply{Model: "m", Text: "a"}},
		{"stream that calls itself text", "text/plain", text("a") + end, agent.Reply{Model: "m-1", Text: "a"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var pieces strings.Builder
			onDelta := func(_ agent.Request, d agent.Delta) {
				if d.Kind == agent.DeltaText {
					pieces.WriteString(d.Text)
				}
			}
			reply, err := against(t, onDelta, answer(tt.contentType, tt.body)).generate(context.Background(), request())
			require.NoError(t, err)
			require.Equal(t, tt.want, reply)
			require.Equal(t, tt.want.Text, pieces.String())
		})
	}
}

func TestBrokenReplies(t *testing.T) {
	const sse, doc = "text/event-stream", "application/json"
	problem := func(s string) string { return text("a") + "data: {\"error\":" + s + "}\n\n" + end }
	tests := []struct {
		name, contentType, body string
		class                   agent.ModelErrorClass
	}{
		{"truncated", sse, text("a"), agent.ModelConnection},
		{"empty stream", sse, "", agent.ModelConnection},
		{"empty body", "text/plain", "", agent.ModelConnection},
		{"chunk that is no JSON", sse, text("a") + "data: {canary-content\n\n" + end, agent.ModelConnection},
		{"chunk of another kind", sse, "data: {\"choices\":\"canary-content\"}\n\n" + end, agent.ModelInvalid},
		{"page", "text/html", "<html>canary-content</html>", agent.ModelInvalid},
		{"page that calls itself JSON", doc, "<html>canary-content</html>", agent.ModelInvalid},
		{"no choice", doc, `{"choices":[]}`, agent.ModelInvalid},
		{"cut document", doc, `{"choices":[{"message":`, agent.ModelConnection},
		{"error in a document", doc, `{"error":{"message":"canary-content","type":"server_error"}}`, agent.ModelServer},
		{"too many calls", doc, `{"choices":[{"message":{"tool_calls":[` + strings.Repeat(`{},`, maxCalls) + `{}]}}]}`, agent.ModelInvalid},
		{"mid-stream error without a code", sse, problem(`{"message":"canary-content"}`), agent.ModelServer},
		{"mid-stream text", sse, problem(`"canary-content"`), agent.ModelServer},
		{"mid-stream limit", sse, problem(`{"code":"rate_limit_exceeded"}`), agent.ModelThrottled},
		{"mid-stream overload", sse, problem(`{"type":"overloaded_error"}`), agent.ModelUnavailable},
		{"mid-stream status", sse, problem(`{"code":502,"message":"canary-content"}`), agent.ModelServer},
		{"mid-stream status as text", sse, problem(`{"code":"429"}`), agent.ModelThrottled},
		{"mid-stream overflow", sse, problem(`{"message":"exceeds the maximum context length of 8192"}`), agent.ModelContextOverflow},
		{"mid-stream status of a missing model", sse, problem(`{"code":404}`), agent.ModelUnavailable},
		{"a missing model in a document", doc, `{"error":{"code":"model_not_found"}}`, agent.ModelUnavailable},
		{"a reply that Mistral gave up", sse, text("a") + done("error") + end, agent.ModelServer},
		{"a reply that DeepSeek gave up", sse, text("a") + done("insufficient_system_resource"), agent.ModelUnavailable},
		{"a reply that Z.ai gave up", sse, text("a") + done("network_error") + end, agent.ModelServer},
		{"a call that Gemini could not read", doc, `{"choices":[{"message":{},"finish_reason":"function_call_filter: MALFORMED_FUNCTION_CALL"}]}`, agent.ModelServer},
		{"vLLM's own form", sse, "data: {\"object\":\"error\",\"message\":\"canary-content\",\"type\":\"BadRequestError\",\"code\":400}\n\n", agent.ModelInvalid},
		{"error event", sse, "event: error\ndata: canary-content\n\n", agent.ModelServer},
		{"long stream", sse, ":" + strings.Repeat("x", MaxResponse) + "\n\n" + text("a") + end, agent.ModelInvalid},
		{"long document", doc, `{"choices":[{"message":{"content":"` + strings.Repeat("x", MaxResponse) + `"}}]}`, agent.ModelInvalid},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			reply, err := against(t, nil, answer(tt.contentType, tt.body)).generate(context.Background(), request())
			requireClass(t, tt.class, err)
			require.Equal(t, strings.Contains(tt.name, "missing model"), failureOf(t, err).Lasting)
			require.Equal(t, agent.Reply{}, reply)
		})
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
	for e := err; e != nil; e = errors.Unwrap(e) {
		require.NotContains(t, fmt.Sprintf("%v %+v", e, e), "canary")
	}
}

func TestStatuses(t *testing.T) {
	tests := []struct {
		status  int
		body    string
		class   agent.ModelErrorClass
		message string
	}{
		{400, `{"error":{"message":"canary-content","type":"invalid_request_error","code":null}}`, agent.ModelInvalid, "status 400, invalid_request_error"},
		{400, `{"error":{"code":"context_length_exceeded"}}`, agent.ModelContextOverflow, "status 400, context_length_exceeded"},
		{400, `{"object":"error","message":"This model's maximum context length is 4096 tokens","code":400}`, agent.ModelContextOverflow, "status 400"},
		{400, `{"error":{"code":400,"message":"request exceeds the available context size","type":"exceed_context_size_error"}}`,
			agent.ModelContextOverflow, "status 400, exceed_context_size_error"},
		{400, `[{"error":{"code":400,"message":"The input token count (9) exceeds the maximum number of tokens allowed (8).","status":"INVALID_ARGUMENT"}}]`,
			agent.ModelContextOverflow, "status 400"}, // Gemini
		{400, `{"code":"invalid-argument","error":"This model's maximum prompt length is 8 but the request contains 9 tokens."}`, agent.ModelContextOverflow, "status 400"},                                         // xAI
		{400, `{"error":{"message":"Your request exceeded model token limit: 8 (requested: 9)"}}`, agent.ModelContextOverflow, "status 400"},                                                                        // Kimi
		{400, `{"error":{"message":"input length and ` + "`max_tokens`" + ` exceed context limit: 9 + 2 > 10"}}`, agent.ModelContextOverflow, "status 400"},                                                         // Claude
		{422, `{"error":{"message":"` + "`inputs`" + ` tokens + ` + "`max_new_tokens`" + ` must be <= 4097"}}`, agent.ModelContextOverflow, "status 422"},                                                           // Together, TGI
		{400, `{"error":{"code":"invalid_parameter_error","message":"Range of input length should be [1, 9]"}}`, agent.ModelContextOverflow, "status 400, invalid_parameter_error"},                                 // DashScope
		{400, `{"error":{"code":"1261","message":"Prompt exceeds max length"}}`, agent.ModelContextOverflow, "status 400"},                                                                                          // Z.ai
		{400, `{"error":{"message":"The decoder prompt (length 9) is longer than the maximum model length of 8."}}`, agent.ModelContextOverflow, "status 400"},                                                      // vLLM
		{400, `{"message":"Input length (9 tokens) exceeds the maximum allowed length (8 tokens)."}`, agent.ModelContextOverflow, "status 400"},                                                                     // SGLang
		{413, `{"error":{"code":"tokens_limit_reached","message":"Request body too large for m. Max size: 8 tokens."}}`, agent.ModelContextOverflow, "status 413, tokens_limit_reached"},                            // GitHub Models
		{413, `{"error":{"code":"rate_limit_exceeded","message":"Request too large for model m on tokens per minute (TPM): Limit 8, Requested 9"}}`, agent.ModelContextOverflow, "status 413, rate_limit_exceeded"}, // Groq
		{429, `{"error":{"code":"rate_limit_exceeded","message":"Request too large for m on tokens per min (TPM): Limit 8, Requested 9."}}`, agent.ModelContextOverflow, "status 429, rate_limit_exceeded"},         // OpenAI
		{429, `{"error":{"type":"exceeded_current_quota_error","message":"suspended due to insufficient balance"}}`, agent.ModelAuth, "status 429, exceeded_current_quota_error"},                                   // Kimi
		{429, `{"error":{"code":"1113","message":"Insufficient balance or no resource package. Please recharge."}}`, agent.ModelAuth, "status 429"},                                                                 // Z.ai
		{429, `{"error":{"code":"billing_not_active"}}`, agent.ModelAuth, "status 429, billing_not_active"},
		{400, `{"error":{"message":"Provider returned error","code":400,"metadata":{"raw":"{\"error\":{\"message\":\"prompt is too long\"}}"}}}`, agent.ModelContextOverflow, "status 400"}, // OpenRouter
		{400, `{"detail":"This model's maximum context length is 8 tokens"}`, agent.ModelContextOverflow, "status 400"},                                                                     // FastAPI
		{500, `{"error":"maximum context length"}`, agent.ModelServer, "status 500"},
		{401, `{"error":{"message":"Incorrect API key: sk-canary-key","code":"sk-canary-key"}}`, agent.ModelAuth, "status 401"},
		{402, ``, agent.ModelAuth, "status 402"},
		{403, `<html>canary-content</html>`, agent.ModelAuth, "status 403"},
		{404, `{"error":"model canary-content not found"}`, agent.ModelUnavailable, "status 404"},
		{404, `{"error":{"code":"model_not_found"}}`, agent.ModelUnavailable, "status 404, model_not_found"},
		{408, ``, agent.ModelTimeout, "status 408"},
		{409, ``, agent.ModelUnavailable, "status 409"},
		{422, `[1]`, agent.ModelInvalid, "status 422"},
		{425, ``, agent.ModelUnavailable, "status 425"},
		{429, `{"error":{"code":"rate_limit_exceeded"}}`, agent.ModelThrottled, "status 429, rate_limit_exceeded"},
		{429, `{"error":{"code":"insufficient_quota"}}`, agent.ModelAuth, "status 429, insufficient_quota"},
		{500, `{"error":{"type":"server_error"}}`, agent.ModelServer, "status 500, server_error"},
		{501, ``, agent.ModelInvalid, "status 501"},
		{503, strings.Repeat("canary", maxRefusal), agent.ModelUnavailable, "status 503"},
		{504, ``, agent.ModelTimeout, "status 504"},
		{529, ``, agent.ModelUnavailable, "status 529"},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprint(tt.status, tt.message), func(t *testing.T) {
			_, err := against(t, nil, refusal(tt.status, tt.body)).generate(context.Background(), request())
			requireClass(t, tt.class, err)
			require.Equal(t, tt.message, failureOf(t, err).Message)
			require.Equal(t, tt.status == 404, failureOf(t, err).Lasting, "a model that is not there stays away")
		})
	}
}

func TestRefusedMedia(t *testing.T) {
	for body, status := range map[string]int{
		`{"error":{"code":500,"message":"image input is not supported - hint: you may need to provide the mmproj"}}`: 500, // llama.cpp
		`{"error":{"code":404,"message":"No endpoints found that support image input"}}`:                             404,
		`data: {"error":{"message":"m is not a multimodal model","code":400}}` + "\n\n":                              200,
	} {
		_, err := against(t, nil, refusal(status, body)).generate(context.Background(), request())
		failure := failureOf(t, err)
		require.True(t, failure.Lasting, body)
		refused, ok := errors.AsType[*modelretry.Refusal](failure.Cause)
		require.True(t, ok)
		require.Equal(t, modelretry.Pictures, refused.Media)
	}
}

func TestRetryAfter(t *testing.T) {
	date := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	tests := []struct {
		value, date string
		want        time.Duration
	}{
		{"", "", 0},
		{"7", "", 7 * time.Second},
		{"7.25", "", 7250 * time.Millisecond}, // Groq
		{"-7", "", 0},
		{"99999999999999999999", "", 0},
		{"soon", "", 0},
		{date.Add(90 * time.Second).Format(http.TimeFormat), date.Format(http.TimeFormat), 90 * time.Second},
		{date.Format(http.TimeFormat), date.Add(time.Hour).Format(http.TimeFormat), 0},
		{date.Format(http.TimeFormat), "no date", 0},
	}
	for _, tt := range tests {
		t.Run(tt.value, func(t *testing.T) {
			m := against(t, nil, refusal(http.StatusTooManyRequests, "", "Retry-After", tt.value, "Date", tt.date))
			_, err := m.generate(context.Background(), request())
			var asks interface{ RetryAfter() time.Duration }
			requireClass(t, agent.ModelThrottled, err)
			require.ErrorAs(t, failureOf(t, err).Cause, &asks)
			require.Equal(t, tt.want, asks.RetryAfter())
		})
	}
}

func TestConnectionLost(t *testing.T) {
	drop := func(before string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, before)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
	}
	_, err := against(t, nil, drop(text("a"))).generate(context.Background(), request())
	requireClass(t, agent.ModelConnection, err)

	reply, err := against(t, nil, drop(text("a")+done("stop"))).generate(context.Background(), request())
	require.NoError(t, err)
	require.Equal(t, "a", reply.Text)

	_, err = against(t, nil, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		require.NoError(t, err)
		_, _ = io.WriteString(conn, "HTTP/1.1 canary canary-content\r\n\r\n")
		_ = conn.Close()
	}).generate(context.Background(), request())
	requireClass(t, agent.ModelConnection, err)

	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	m, err := newServer(gone.URL, key, nil)
	require.NoError(t, err)
	_, err = m.generate(context.Background(), request())
	requireClass(t, agent.ModelConnection, err)
	require.Equal(t, "connection refused", failureOf(t, err).Message)
}

// hang sends a piece of text and then nothing until the client goes away.
func hang(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, text("a"))
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

func TestCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	m := against(t, func(agent.Request, agent.Delta) { cancel() }, hang)
	_, err := m.generate(ctx, request())
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorAs(t, err, new(*agent.ModelError))

	_, err = m.generate(ctx, request())
	require.ErrorIs(t, err, context.Canceled)
}

// roundTrip is a transport without a network, so that time can be virtual.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// The request's deadline, and the client's own.
func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := roundTrip(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		m, err := newServer("", "", nil)
		require.NoError(t, err)
		m.client.Transport = slow
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_, err = m.generate(ctx, request())
		requireClass(t, agent.ModelTimeout, err)

		m.client.Timeout = time.Second
		_, err = m.generate(context.Background(), request())
		requireClass(t, agent.ModelTimeout, err)
		require.Equal(t, "network timed out", failureOf(t, err).Message)
	})
}

func TestRedirects(t *testing.T) {
	asked := 0
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	defer other.Close()
	tests := []struct {
		name     string
		status   int
		location string
		class    agent.ModelErrorClass // "" = followed
	}{
		{"same host", 307, "/moved", ""},
		{"same host, as a GET", 302, "/moved", agent.ModelInvalid},
		{"another host", 307, other.URL, agent.ModelInvalid},
		{"for ever", 308, "/v1/chat/completions", agent.ModelInvalid},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := against(t, nil, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/moved" {
					http.Redirect(w, r, tt.location, tt.status)
					return
				}
				body, err := io.ReadAll(r.Body)
				require.NoError(t, err)
				require.Contains(t, string(body), "canary-content")
				require.Equal(t, "Bearer "+key, r.Header.Get("Authorization"))
				answer("text/event-stream", text("a")+end)(w, r)
			})
			_, err := m.generate(context.Background(), request())
			if tt.class == "" {
				require.NoError(t, err)
				return
			}
			requireClass(t, tt.class, err)
		})
	}
	require.Zero(t, asked)
}

func TestServersThatCannotBeAsked(t *testing.T) {
	for _, base := range []string{"", "http://127.0.0.1:11434/v1"} {
		_, err := newServer(base, "", nil)
		require.NoError(t, err)
		require.Equal(t, base == "", OwnHost(base))
	}
	require.False(t, OwnHost("HTTP://api.openai.com/v1"), "its key would be sent in the clear")
	for name, c := range map[string]struct{ base, key, err string }{
		"no scheme":           {"127.0.0.1:11434", "", "baseURL is not an http or https URL"},
		"no host":             {"http:///v1", "", "baseURL is not an http or https URL"},
		"another scheme":      {"file:///etc/passwd", "", "baseURL is not an http or https URL"},
		"user":                {"https://me:canary@host/v1", "", "baseURL has a user, a query or a fragment"},
		"query":               {"https://host/v1?key=canary", "", "baseURL has a user, a query or a fragment"},
		"key with a line end": {"", "canary\n", "key has characters that no header may hold"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := newServer(c.base, c.key, nil)
			require.ErrorContains(t, err, c.err)
			require.NotContains(t, err.Error(), "canary")
		})
	}
}

// proxy is that of the process, which the environment names once and for all. No server on this machine is asked by it.
var proxy = httptest.NewServer(answer("application/json", `{"choices":[{"message":{"content":"by proxy"}}]}`))

func init() {
	_ = errors.Join(os.Setenv("HTTP_PROXY", proxy.URL), os.Setenv("NO_PROXY", "nothing.invalid"))
}

func TestProxy(t *testing.T) {
	m, err := newServer("http://models.invalid/v1", key, nil)
	require.NoError(t, err)
	reply, err := m.generate(context.Background(), request())
	require.NoError(t, err)
	require.Equal(t, "by proxy", reply.Text)
}

func TestIOFailures(t *testing.T) {
	tests := []struct {
		name string
		err  error
		want agent.ModelError
	}{
		{"refused", syscall.ECONNREFUSED, agent.ModelError{Class: agent.ModelConnection, Message: "connection refused"}},
		{"reset", syscall.ECONNRESET, agent.ModelError{Class: agent.ModelConnection, Message: "connection lost"}},
		{"broken pipe", syscall.EPIPE, agent.ModelError{Class: agent.ModelConnection, Message: "connection lost"}},
		{"cut", io.ErrUnexpectedEOF, agent.ModelError{Class: agent.ModelConnection, Message: "connection lost"}},
		{"closed", io.EOF, agent.ModelError{Class: agent.ModelConnection, Message: "connection lost"}},
		{"name", &net.DNSError{Err: "no such host", Name: "canary"}, agent.ModelError{Class: agent.ModelConnection, Message: "host name not found"}},
		{"slow name server", &net.DNSError{IsTimeout: true}, agent.ModelError{Class: agent.ModelTimeout, Message: "network timed out"}},
		{"slow", &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}, agent.ModelError{Class: agent.ModelTimeout, Message: "network timed out"}},
		{"certificate", &tls.CertificateVerificationError{Err: errors.New("canary")}, agent.ModelError{Class: agent.ModelConnection, Message: "connection failed"}},
		{"too large", &http.MaxBytesError{Limit: 1}, agent.ModelError{Class: agent.ModelInvalid, Message: "reply is larger than 16 MiB"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			wrapped := &url.Error{Op: "Post", URL: "http://canary/", Err: tt.err}
			require.Equal(t, &tt.want, ioFailure(context.Background(), wrapped))
		})
	}
}
