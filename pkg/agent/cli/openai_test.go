package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// chatServer speaks the chat completions protocol: it records requests and answers from a list.
type chatServer struct {
	*httptest.Server
	answers  []chatResponse
	requests []chatRequest
}

type chatResponse struct {
	status int // 0 = 200
	body   string
	header map[string]string
}

type chatRequest struct {
	url    string
	header http.Header
	body   map[string]any
}

func newChatServer(t *testing.T, answers ...chatResponse) *chatServer {
	t.Helper()
	c := &chatServer{answers: answers}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var a chatRequest
		a.url, a.header = r.URL.String(), r.Header
		raw, err := io.ReadAll(r.Body)
		if err != nil || json.Unmarshal(raw, &a.body) != nil || len(c.requests) == len(c.answers) {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		c.requests = append(c.requests, a)
		answer := c.answers[len(c.requests)-1]
		w.Header().Set("Content-Type", "application/json")
		for key, value := range answer.header {
			w.Header().Set(key, value)
		}
		w.WriteHeader(max(answer.status, http.StatusOK))
		_, _ = io.WriteString(w, answer.body)
	}))
	t.Cleanup(c.Close)
	return c
}

// newChatReply returns a whole reply.
func newChatReply(message, finish string) chatResponse {
	return chatResponse{body: fmt.Sprintf(`{"model": "answers-as", "choices": [{"message": %s, "finish_reason": %q}]}`, message, finish)}
}

// messages returns the messages of a request, as JSON.
func (a chatRequest) messages(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, m := range a.body["messages"].([]any) {
		raw, err := json.Marshal(m)
		require.NoError(t, err)
		out = append(out, string(raw))
	}
	return out
}

// What a model was sent is counted with what its provider had in a cache.
func TestUsageIsToldWithTheCache(t *testing.T) {
	usage := `, "usage": {"prompt_tokens": 50, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 20}}}`
	hello := newChatReply(`{"content": "Hello."}`, "stop")
	c := newChatServer(t, chatResponse{body: strings.TrimSuffix(hello.body, "}") + usage})
	d := newHarness(t, chatAgentYAML(c, "/v1", ""), "")
	who := d.exits(0, "run", d.dir, "--message", "Hi.")
	require.Contains(t, who.stderr.String(), "50 tokens in, 7 out")
	run := runID.FindString(d.exits(0, "runs").stdout.String())
	require.Contains(t, d.exits(0, "show", run).stdout.String(), "50 tokens in, 7 out")
}

func chatAgentYAML(c *chatServer, base, more string) string {
	return `{name: helper, system: You help., tools: [{name: move_file, root: .}], model: {provider: openai, id: m, baseURL: "` + c.URL + base + `"` + more + `}}`
}

// What a model thought, and what its server wants back with a call, comes back to that model under the names they came by, behind a wait and in
// another process, and goes to no other model.
func TestReasoningGoesBackToItsModel(t *testing.T) {
	c := newChatServer(t,
		newChatReply(`{"content": null, "reasoning_content": "Move it.", "tool_calls": [{"id": "c1", "type": "function", "extra_content": {"google": {"thought_signature": "c2ln"}},
			"function": {"name": "move_file", "arguments": "{\"source\": \"a.txt\", \"destination\": \"b.txt\"}"}}]}`, "tool_calls"),
		chatResponse{status: 500, body: `{}`},
		newChatReply(`{"content": "Done.", "reasoning": "It worked."}`, "stop"),
		newChatReply(`{"content": "Bye."}`, "stop"))
	d := newHarness(t, chatAgentYAML(c, "/v1", `, retry: {attempts: 1}, fallbacks: [{provider: openai, id: other, baseURL: "`+c.URL+`/v1"}]`), "")
	who := d.exits(3, "run", d.dir, "--message", "Move a.txt to b.txt.")
	d.exits(0, "approve", approvalID.FindStringSubmatch(who.stdout.String())[1])
	require.Len(t, c.requests, 3)

	own, other := c.requests[1].messages(t), c.requests[2].messages(t)
	require.Equal(t, "m", c.requests[1].body["model"])
	require.Contains(t, own[2], `"reasoning_content":"Move it."`)
	require.Contains(t, own[2], `"extra_content":{"google":{"thought_signature":"c2ln"}}`)
	require.Equal(t, "other", c.requests[2].body["model"])
	require.NotContains(t, other[2], "reasoning_content")
	require.NotContains(t, other[2], "extra_content")

	run := runID.FindString(d.run(t.Context(), "", "runs").stdout.String())
	d.exits(0, "run", d.dir, "--message", "Thanks.", "--continue", run)
	last := strings.Join(c.requests[3].messages(t), "\n")
	require.Contains(t, last, `"reasoning_content":"Move it."`)
	require.NotContains(t, last, "It worked.", "the other model thought that")
}

// A refusal and a filter are told as what they are.
func TestRefusalsAndFilters(t *testing.T) {
	for message, want := range map[string][2]string{
		`{"content": null, "refusal": "I will not."}`: {"I will not.", "refusal"},
		`{"content": "I may not"}`:                    {"I may not", "content_filter"},
	} {
		c := newChatServer(t, newChatReply(message, map[bool]string{true: "content_filter", false: "stop"}[want[1] == "content_filter"]))
		d := newHarness(t, chatAgentYAML(c, "/v1", ""), "")
		who := d.run(t.Context(), "", "run", d.dir, "--message", "Hello.", "--json")
		var run struct{ Output, Reason, Detail string }
		require.NoError(t, json.Unmarshal([]byte(who.stdout.String()), &run), who.stderr.String())
		require.Equal(t, want[0], run.Output)
		require.Equal(t, want[1], run.Detail)
		require.Contains(t, who.stderr.String(), want[1])
	}
}

// Options are merged into the body and null takes a field out; OpenAI's key goes to no other server, and a secret to the one that names it.
func TestRequestsOfAModel(t *testing.T) {
	t.Run("options", func(t *testing.T) {
		c := newChatServer(t, newChatReply(`{"content": "Hello."}`, "stop"))
		d := newHarness(t, chatAgentYAML(c, "/v1", `, maxTokens: 50, options: {reasoning_effort: low, stream_options: null, provider: {only: [x]}}`), "")
		d.env = map[string]string{"OPENAI_API_KEY": "sk-openai"}
		require.Equal(t, 0, d.run(t.Context(), "", "run", d.dir, "--message", "Hello.").code)
		body := c.requests[0].body
		require.Equal(t, "low", body["reasoning_effort"])
		require.Equal(t, map[string]any{"only": []any{"x"}}, body["provider"])
		require.NotContains(t, body, "stream_options")
		require.EqualValues(t, 50, body["max_tokens"])
		require.Empty(t, c.requests[0].header.Get("Authorization"))
	})
	t.Run("azure", func(t *testing.T) {
		c := newChatServer(t, newChatReply(`{"content": "Hello."}`, "stop"))
		d := newHarness(t, chatAgentYAML(c, "/openai/deployments/d?api-version=2024-10-21", ", maxTokens: 50, key: '${secret:AZURE}'"), "")
		d.write("home/secrets.yaml", `AZURE: "the-key"`)
		d.exits(0, "run", d.dir, "--message", "Hello.")
		require.Equal(t, "/openai/deployments/d/chat/completions?api-version=2024-10-21", c.requests[0].url)
		require.Equal(t, "the-key", c.requests[0].header.Get("Api-Key"))
		require.Empty(t, c.requests[0].header.Get("Authorization"))
		require.EqualValues(t, 50, c.requests[0].body["max_completion_tokens"])
		require.NotContains(t, c.requests[0].body, "max_tokens")
	})
	t.Run("key", func(t *testing.T) {
		c := newChatServer(t, newChatReply(`{"content": "Hello."}`, "stop"))
		d := newHarness(t, chatAgentYAML(c, "/v1", ", key: '${secret:OTHER}'"), "")
		d.env = map[string]string{"OPENAI_API_KEY": "sk-openai", "COUNTERSIGN_SECRET_OTHER": "the-key"}
		d.exits(0, "run", d.dir, "--message", "Hello.")
		require.Equal(t, "Bearer the-key", c.requests[0].header.Get("Authorization"))

		other := newChatServer(t, newChatReply(`{"content": "Hello."}`, "stop"))
		d.exits(0, "run", d.dir, "--message", "Hello.", "--model", "openai:x@"+other.URL+"/v1")
		require.Empty(t, other.requests[0].header.Get("Authorization"), "the key is the agent's server's alone")
		d.write("replies.jsonl", `{"text": "Hello."}`)
		d.exits(0, "run", d.dir, "--message", "Hello.", "--model", "script:"+filepath.Join(d.dir, "replies.jsonl"))
	})
}

// A call under a name that the model made up and that no server takes does not end the run: the model is told.
func TestNamesThatNoServerTakes(t *testing.T) {
	calls := `{"tool_calls": [{"id": "c1", "type": "function", "function": {"name": "functions.move file", "arguments": "{}"}},
		{"id": "c2", "type": "function", "function": {"name": "` + strings.Repeat("x", 70) + `", "arguments": "{}"}}]}`
	c := newChatServer(t, newChatReply(calls, "tool_calls"), newChatReply(`{"content": "Sorry."}`, "stop"))
	d := newHarness(t, chatAgentYAML(c, "/v1", ""), "")
	d.exits(0, "run", d.dir, "--message", "Move it.")
	sent := c.requests[1].messages(t)
	require.Contains(t, sent[2], `"name":"functions_move_file"`)
	require.Contains(t, sent[2], `"name":"`+strings.Repeat("x", 64)+`"`)
	require.Contains(t, sent[3], `There is no tool \"functions.move file\"`)
	require.Contains(t, sent[4], `There is no tool \"`+strings.Repeat("x", 64)+`\"`)
}

// An error names the parameter and the code, and quotes nothing.
func TestModelErrorsNameTheParameter(t *testing.T) {
	c := newChatServer(t, chatResponse{status: 400, body: `{"error": {"message": "canary", "type": "invalid_request_error", "code": "unsupported_parameter", "param": "max_tokens"}}`})
	d := newHarness(t, chatAgentYAML(c, "/v1", ""), "")
	who := d.exits(1, "run", d.dir, "--message", "Hello.")
	require.Contains(t, who.stderr.String(), "status 400, unsupported_parameter, param max_tokens")
	require.NotContains(t, who.stderr.String(), "canary")
}

// A server may say in milliseconds when it wants to be asked again.
func TestRetryAfterMilliseconds(t *testing.T) {
	c := newChatServer(t,
		chatResponse{status: 429, body: `{}`, header: map[string]string{"Retry-After": "3600", "Retry-After-Ms": "5"}},
		newChatReply(`{"content": "Hello."}`, "stop"))
	d := newHarness(t, chatAgentYAML(c, "/v1", ", retry: {attempts: 2, backoff: 1ms}"), "")
	require.Equal(t, 0, d.run(t.Context(), "", "run", d.dir, "--message", "Hello.").code)
	require.Len(t, c.requests, 2)
	require.NotContains(t, d.run(t.Context(), "", "runs").stdout.String(), "running")
}

// Ten inferences of a run go to an OpenAI-compatible server over one connection, whichever model of the chain is asked.
func TestTenInferencesAreOneConnection(t *testing.T) {
	var opened atomic.Int64
	asked := 0
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		delta := fmt.Sprintf(`{"tool_calls": [{"index": 0, "id": "c%d", "function": {"name": "count", "arguments": "{}"}}]}`, asked)
		if asked++; asked == 10 {
			delta = `{"content": "Counted."}`
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for _, data := range []string{`{"choices": [{"delta": ` + delta + `, "finish_reason": "stop"}]}`, "[DONE]"} {
			_, _ = fmt.Fprintf(w, "data: %s\n\n", data)
			http.NewResponseController(w).Flush() //nolint:errcheck // the recorder of the test sees what came
		}
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	d := newHarness(t, `{name: counter, system: You count., guards: {duplicateCalls: false}, tools: [{name: count}],
		model: {provider: openai, id: m, baseURL: "`+server.URL+`/v1"}}`, "")
	who := d.exits(0, "run", d.dir, "--message", "Count.", "--yes")
	require.Equal(t, "Counted.\n", who.stdout.String())
	require.Equal(t, 10, asked)
	require.EqualValues(t, 1, opened.Load())
}
