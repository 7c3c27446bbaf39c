package openai

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
)

func user(b run.Block) run.Message { return run.Message{Role: run.RoleUser, Block: b} }
func assistant(b run.Block) run.Message {
	return run.Message{Role: run.RoleAssistant, Block: b}
}

func use(id, input string) run.Message {
	return assistant(run.ToolUse{ID: id, Name: "get", Input: json.RawMessage(input)})
}

func result(id, content string) run.Message {
	return user(run.ToolResult{ID: id, Content: content})
}

func say(text string) run.Message { return assistant(run.Text{Text: text}) }
func ask(text string) run.Message { return user(run.Text{Text: text}) }

var thinks = assistant(run.Reasoning{Text: "hm", Signature: "s", Provider: "openai", Model: "m"})

func TestOutputFormat(t *testing.T) {
	schema := json.RawMessage(`{"type":"object","properties":{"z":{"maximum":1.10},"a":{}}}`)
	for want, f := range map[string]agent.OutputFormat{
		`"response_format":{"type":"json_schema","json_schema":{"name":"output","schema":` + string(schema) + `}},"stream":true`:  {JSON: true, Schema: schema},
		`"response_format":{"type":"json_schema","json_schema":{"name":"receipt","schema":` + string(schema) + `}},"stream":true`: {JSON: true, Schema: schema, Name: "receipt"},
		`"response_format":{"type":"json_object"},"stream":true`:                                                                  {JSON: true},
		`"messages":[],"stream":true`: {Schema: schema},
	} {
		got, err := encodeRequest(agent.Request{Output: f})
		require.NoError(t, err)
		require.Contains(t, string(got), want)
	}
}

// The object form is refused unless the conversation speaks of JSON, and a used up quota is told to the model twice.
func TestNotices(t *testing.T) {
	r := agent.Request{System: "Be brief.", Messages: []run.Message{ask("Hi")}, Output: agent.OutputFormat{JSON: true}, Exhausted: true}
	body, err := encodeRequest(r)
	require.NoError(t, err)
	var got struct {
		Messages []struct{ Role, Content string }
	}
	require.NoError(t, json.Unmarshal(body, &got))
	require.Len(t, got.Messages, 2)
	require.Regexp(t, `^Be brief\.\n\nYou have used up .*\n\nGive your final answer as one JSON value`, got.Messages[0].Content)
	require.Regexp(t, `^Hi\s+You have used up `, got.Messages[1].Content)

	// beside tools few servers but OpenAI take a form, or let the model call one, and some take no schema or no object
	const array, object = `{"type":"array"}`, `{"type":"object"}`
	tools := []agent.ToolSpec{{Name: "a"}}
	for _, c := range []struct {
		base, schema string
		tools        []agent.ToolSpec
		form         bool
	}{
		{DefaultBaseURL, object, tools, true}, {DefaultBaseURL, array, nil, false}, {DefaultBaseURL, `{"type":"object","anyOf":[{}]}`, nil, false}, {"http://127.0.0.1:11434/v1", array, tools, false},
		{"http://127.0.0.1:11434/v1", array, nil, true}, {"https://api.deepseek.com", object, nil, false}, {"https://api.deepseek.com", "", nil, true}, {"http://localhost:1234/v1", "", nil, false},
	} {
		r = agent.Request{Model: agent.ModelSpec{BaseURL: c.base}, Tools: c.tools, Output: agent.OutputFormat{JSON: true, Schema: json.RawMessage(c.schema)}}
		body, err = encodeRequest(r)
		require.NoError(t, err)
		require.Equal(t, c.form, strings.Contains(string(body), "response_format"), "%v", c)
		require.Equal(t, !c.form && c.schema != "", strings.Contains(string(body), "It has to fit this JSON Schema:"), "%v", c)
	}
}

func TestRequest(t *testing.T) {
	var got []byte
	var header http.Header
	m := against(t, nil, func(w http.ResponseWriter, r *http.Request) {
		require.Equal(t, "POST /v1/chat/completions", r.Method+" "+r.URL.String())
		body, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		got, header = body, r.Header
		answer("text/event-stream", end)(w, r)
	})
	zero := 0.0
	r := agent.Request{
		Model:    agent.ModelSpec{ID: "m", MaxTokens: 100, Temperature: &zero},
		System:   "Be <brief>.",
		Messages: []run.Message{ask("Hi & bye")},
		Tools: []agent.ToolSpec{
			{Name: "orders.get", Description: "Look.", Schema: json.RawMessage(`{"type":"object"}`)},
			{Name: "ping"},
		},
	}
	_, err := m.generate(context.Background(), r)
	require.NoError(t, err)
	require.Equal(t, `{"model":"m","messages":[{"role":"system","content":"Be <brief>."},{"role":"user","content":"Hi & bye"}],`+
		`"tools":[{"type":"function","function":{"name":"orders_get","description":"Look.","parameters":{"properties":{},"type":"object"}}},`+
		`{"type":"function","function":{"name":"ping","parameters":{"type":"object","properties":{}}}}],`+
		`"max_tokens":100,"temperature":0,"stream":true,"stream_options":{"include_usage":true}}`, string(got))
	require.Equal(t, "Bearer "+key, header.Get("Authorization"))
	require.Equal(t, "application/json", header.Get("Content-Type"))

	m.key = ""
	_, err = m.generate(context.Background(), agent.Request{Model: agent.ModelSpec{ID: "m"}})
	require.NoError(t, err)
	require.Equal(t, `{"model":"m","messages":[],"stream":true,"stream_options":{"include_usage":true}}`, string(got))
	require.NotContains(t, header, "Authorization")
}

// A server is sent no field that it refuses.
func TestFieldsThatServersKnow(t *testing.T) {
	const usage, old, new = `,"stream_options":{"include_usage":true}`, `,"max_tokens":9`, `,"max_completion_tokens":9`
	for base, want := range map[string]string{
		DefaultBaseURL: new + `,"stream":true` + usage, "http://127.0.0.1:11434/v1": old + `,"stream":true` + usage,
		"https://api.mistral.ai/v1": old + `,"stream":true`,
	} {
		body, err := encodeRequest(agent.Request{Model: agent.ModelSpec{ID: "m", BaseURL: base, MaxTokens: 9}})
		require.NoError(t, err)
		require.Equal(t, `{"model":"m","messages":[]`+want+`}`, string(body), base)
	}
}

// Gateways refuse Claude's and Nova's calls in a conversation without tools, as the last request of a run has none.
func TestToolsOfTheConversation(t *testing.T) {
	messages := []run.Message{ask("q"), use("a", `{}`), result("a", "1"), use("b", `{}`), result("b", "2"), ask("Sum up.")}
	for id, want := range map[string]int{"bedrock/us.anthropic.claude-x": 1, "claude-sonnet-4-5": 1, "us.amazon.nova-pro-v1:0": 1, "gpt-5": 0} {
		body, err := encodeRequest(agent.Request{Model: agent.ModelSpec{ID: id, BaseURL: "https://litellm.example/v1"}, Messages: messages})
		require.NoError(t, err)
		var sent struct{ Tools []chatTool }
		require.NoError(t, json.Unmarshal(body, &sent))
		require.Len(t, sent.Tools, want, id)
	}
	body, err := encodeRequest(agent.Request{Model: agent.ModelSpec{ID: "claude-x"}, Messages: messages[5:]})
	require.NoError(t, err)
	require.NotContains(t, string(body), `"tools"`)
}

// OpenAI and Azure refuse schemas that combine others at the top, and long descriptions: the model reads them elsewhere.
func TestToolsThatOpenAIRefuses(t *testing.T) {
	long := strings.Repeat("é", maxDescription+1)
	r := agent.Request{Model: agent.ModelSpec{ID: "m", BaseURL: DefaultBaseURL}, System: "Be brief.", Tools: []agent.ToolSpec{
		{Name: "orders.get", Description: long, Schema: json.RawMessage(`{"type":"object","properties":{},"not":{}}`)}}}
	var got chatRequest
	body, err := encodeRequest(r)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(body, &got))
	f := got.Tools[0].Function
	require.JSONEq(t, `{"type":"object","properties":{}}`, string(f.Parameters))
	require.Len(t, []rune(f.Description), maxDescription)
	require.Equal(t, "Be brief.\n\nThe tool orders_get: "+long+"\n\nThe arguments must also fit this JSON Schema: {\"not\":{}}", got.Messages[0].Content)

	r.Model.ID, r.Model.BaseURL, r.Tools[0].Schema = "kimi-k2.6", "https://api.moonshot.ai/v1",
		json.RawMessage(`{"type":"object","properties":{"a":{"type":"object","anyOf":[{"required":["b"]},{"type":"null"},{"$ref":"#/$defs/c"}]}},"anyOf":[{"required":["a"]}]}`)
	body, err = encodeRequest(r)
	require.NoError(t, err)
	require.Contains(t, string(body), `"parameters":{"properties":{"a":{"anyOf":[{"required":["b"],"type":"object"},{"type":"null"},{"$ref":"#/$defs/c"}]}},"type":"object"}}`)
	r.Model.ID, r.Tools[0].Schema = "m", json.RawMessage(`{"type":"object","properties":{},"not":{}}`)

	r.Model.BaseURL = "http://127.0.0.1:11434/v1"
	body, err = encodeRequest(r)
	require.NoError(t, err)
	require.Contains(t, string(body), `"description":"`+long+`","parameters":{"type":"object","properties":{},"not":{}}`)
}

func TestConversation(t *testing.T) {
	const callA = `{"id":"a","type":"function","function":{"name":"get","arguments":"{\"x\":1.0}"}}`
	const callB = `{"id":"b","type":"function","function":{"name":"get","arguments":"{}"}}`
	tests := []struct {
		name     string
		messages []run.Message
		want     string
	}{
		{"a turn with text and two calls", []run.Message{ask("q"), say("wait"), use("a", `{"x":1.0}`), use("b", ``), result("a", "1"), result("b", "2"), say("done")},
			`[{"role":"user","content":"q"},{"role":"assistant","content":"wait","tool_calls":[` + callA + `,` + callB + `]},
			{"role":"tool","content":"1","tool_call_id":"a"},{"role":"tool","content":"2","tool_call_id":"b"},{"role":"assistant","content":"done"}]`},
		{"results in another order, behind a text", []run.Message{use("a", `{"x":1.0}`), use("b", `{}`), ask("q"), result("b", "2"), result("a", "1"), ask("r")},
			`[{"role":"user","content":"(The beginning of this conversation is left out.)"},{"role":"assistant","content":null,"tool_calls":[` + callA + `,` + callB + `]},
			{"role":"tool","content":"1","tool_call_id":"a"},{"role":"tool","content":"2","tool_call_id":"b"},{"role":"user","content":"q\n\nr"}]`},
		{"the last result wins", []run.Message{use("b", `{}`), result("b", "1"), ask("q"), result("b", "2")},
			`[{"role":"user","content":"(The beginning of this conversation is left out.)"},{"role":"assistant","content":null,"tool_calls":[` + callB + `]},{"role":"tool","content":"2","tool_call_id":"b"},{"role":"user","content":"q"}]`},
		{"an empty result is a result", []run.Message{use("b", `{}`), result("b", "")},
			`[{"role":"user","content":"(The beginning of this conversation is left out.)"},{"role":"assistant","content":null,"tool_calls":[` + callB + `]},{"role":"tool","content":"(no output)","tool_call_id":"b"}]`},
		{"two texts of the model", []run.Message{ask("q"), say("a"), say("b"), use("b", `"{x"`), result("b", "1")}, `[{"role":"user","content":"q"},{"role":"assistant","content":"a\n\nb","tool_calls":[
			{"id":"b","type":"function","function":{"name":"get","arguments":"{\"malformed_input\":\"{x\"}"}}]},{"role":"tool","content":"1","tool_call_id":"b"}]`},
		{"media", []run.Message{ask("look"), user(run.Media{Name: "p.png", MediaType: "image/png", Data: "AAAA"}), ask(""), user(run.Media{Name: "f.pdf", MediaType: "application/pdf", Data: "BBBB"})},
			`[{"role":"user","content":[{"type":"text","text":"look"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}},
			{"type":"file","file":{"filename":"f.pdf","file_data":"data:application/pdf;base64,BBBB"}}]}]`},
		{"blank texts", []run.Message{ask("q"), say(" "), ask("r"), say(""), use("b", `{}`), result("b", "1"), ask("\n"), say("a")},
			`[{"role":"user","content":"q\n\nr"},{"role":"assistant","content":null,"tool_calls":[` + callB + `]},{"role":"tool","content":"1","tool_call_id":"b"},{"role":"assistant","content":"a"}]`},
		{"files that nobody takes", []run.Message{ask("q"), user(run.Media{Name: "a.zip", MediaType: "application/zip", Data: "UEsD/w=="}), user(run.Media{MediaType: "audio/mpeg", Data: "BBBB"})},
			`[{"role":"user","content":"q\n\n[a.zip (application/zip) is left out: chat completions take pictures and documents]\n\n[(audio/mpeg) is left out: chat completions take pictures and documents]"}]`},
		{"pictures that OpenAI does not take", []run.Message{user(run.Media{Name: "s.tif", MediaType: "image/tiff", Data: "SUkq/w=="}), user(run.Media{MediaType: "image/heic", Data: "BBBB"}), user(run.Media{MediaType: "IMAGE/JPG", Data: "BBBB"})},
			`[{"role":"user","content":[{"type":"text","text":"[s.tif (image/tiff) is left out: OpenAI takes PNG, JPEG, GIF and WebP]"},
			{"type":"text","text":"[(image/heic) is left out: OpenAI takes PNG, JPEG, GIF and WebP]"},{"type":"image_url","image_url":{"url":"data:IMAGE/JPG;base64,BBBB"}}]}]`},
		{"a text file", []run.Message{user(run.Media{Name: "n.md", MediaType: "text/markdown; charset=utf-8", Data: "IyBIaQ=="}), user(run.Media{MediaType: "application/x-sh", Data: "e30="}), user(run.Media{MediaType: "image/svg+xml", Data: "PHN2Zy8+"})},
			`[{"role":"user","content":"[n.md (text/markdown; charset=utf-8)]\n# Hi\n\n[(application/x-sh)]\n{}\n\n[(image/svg+xml)]\n<svg/>"}]`},
		{"a file without a name", []run.Message{user(run.Media{MediaType: "application/pdf", Data: "BBBB"})},
			`[{"role":"user","content":[{"type":"file","file":{"filename":"file","file_data":"data:application/pdf;base64,BBBB"}}]}]`},
		{"reasoning", []run.Message{ask("q"), thinks, say("a"), thinks, say("b"), thinks, use("b", `{}`), thinks, result("b", "1"), thinks, ask("r"), thinks, say("c"), thinks, ask("s"), say("d"), thinks, use("c", `{}`), say("e")},
			`[{"role":"user","content":"q"},{"role":"assistant","content":"ab","tool_calls":[` + callB + `]},{"role":"tool","content":"1","tool_call_id":"b"},
			{"role":"user","content":"r"},{"role":"assistant","content":"c"},{"role":"user","content":"s"},{"role":"assistant","content":"d","tool_calls":[` + strings.Replace(callB, `"b"`, `"c"`, 1) + `]},
			{"role":"tool","content":"{\"type\":\"error\",\"name\":\"no_tool_response\",\"message\":\"There is no response from this tool.\"}","tool_call_id":"c"},{"role":"assistant","content":"e"}]`},
		{"a shortened result", []run.Message{use("b", `{}`), user(run.ToolResult{ID: "b", Content: "start…", Blob: "d"})},
			`[{"role":"user","content":"(The beginning of this conversation is left out.)"},{"role":"assistant","content":null,"tool_calls":[` + callB + `]},{"role":"tool","content":"start…","tool_call_id":"b"}]`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			messages, err := conversation(agent.ModelSpec{ID: "m", BaseURL: DefaultBaseURL}, "", tt.messages)
			require.NoError(t, err)
			got, err := json.Marshal(messages)
			require.NoError(t, err)
			require.JSONEq(t, tt.want, string(got))
		})
	}
}

// Some services refuse a turn of another model's, or one that said nothing of its reasoning, unless something stands in
// for it, and some take reasoning under one name alone.
func TestReasoningThatServersWant(t *testing.T) {
	thought := func(field, text, raw string) run.Message {
		return assistant(run.Reasoning{Text: text, Provider: "openai", Model: "m", Field: field, Redacted: []byte(raw)})
	}
	const blank, named, skip = `,"reasoning_content":" "`, `,"reasoning":"hm"`, `,"extra_content":{"google":{"thought_signature":"skip_thought_signature_validator"}}`
	const details = `[{"type":"reasoning.encrypted","data":"x"}]`
	for _, c := range []struct {
		base, id string
		thoughts []run.Message
		fields   string
		extra    string
	}{
		{"https://api.deepseek.com", "deepseek-v4-pro", nil, blank, ""},
		{"https://api.moonshot.ai/v1", "kimi-k2.6", nil, blank, ""},
		{"https://api.groq.com/openai/v1", "moonshotai/kimi-k2", nil, "", ""},
		{"https://api.groq.com/openai/v1", "m", []run.Message{thought("reasoning_content", "hm", "")}, named, ""},
		{"https://api.cerebras.ai/v1", "m", []run.Message{thought("reasoning", "hm", "")}, named, ""},
		{"http://127.0.0.1:4000/v1", "magistral-medium", []run.Message{assistant(run.Reasoning{Text: "hm", Provider: "openai", Model: "magistral-medium", Field: "reasoning_content"})}, "", ""},
		{"https://openrouter.ai/api/v1", "m", []run.Message{thought("reasoning", "hm", ""), thought("reasoning_details", "", details)}, named + `,"reasoning_details":` + details, ""},
		{"http://127.0.0.1:4000/v1", "m", []run.Message{thought("thinking_blocks", "", details)}, `,"thinking_blocks":` + details, ""},
		{"http://127.0.0.1:4000/v1", "m", []run.Message{thought("reasoning_content", "hm", ""), use("a", `{}`), result("a", "1")}, blank, ""},
		{"https://generativelanguage.googleapis.com/v1beta/openai", "gemini-3-pro-preview", nil, "", skip},
		{"https://generativelanguage.googleapis.com/v1beta/openai", "gemini-3-pro-preview", []run.Message{use("a", `{}`), assistant(run.Reasoning{Provider: "openai", Model: "gemini-3-pro-preview", Field: "extra_content", Redacted: []byte(`{"google":{}}`)})}, "", ""},
		{"https://generativelanguage.googleapis.com/v1beta/openai", "gemini-2.5-pro", nil, "", ""},
	} {
		messages := append(append([]run.Message{ask("q")}, c.thoughts...), use("b", `{}`), result("b", "1"))
		sent, err := conversation(agent.ModelSpec{ID: c.id, BaseURL: c.base}, "", messages)
		require.NoError(t, err)
		got, err := json.Marshal(sent)
		require.NoError(t, err)
		require.Contains(t, string(got), `"function":{"name":"get","arguments":"{}"}`+c.extra+`}]`+c.fields+`},{"role":"tool",`)
	}
}

// Ids of other servers, which a run has where its model changed, are sent in the form that this one takes.
func TestIDsOfCalls(t *testing.T) {
	long := "chatcmpl-tool-0123456789abcdef0123456789abcdef"
	for _, c := range []struct{ model, id, want string }{
		{"gpt-5", "tooluse_1", "tooluse_1"}, {"gpt-5", long, "^[a-z0-9]{25}$"},
		{"mistral-large", "aB3dE5gH9", "aB3dE5gH9"}, {"mistral-large", "c1-0", "^[a-z0-9]{9}$"},
	} {
		messages, err := conversation(agent.ModelSpec{ID: c.model}, "", []run.Message{ask("q"), use(c.id, `{}`), result(c.id, "1")})
		require.NoError(t, err)
		require.Regexp(t, c.want, messages[1].ToolCalls[0].ID)
		require.Equal(t, messages[1].ToolCalls[0].ID, messages[2].ToolCallID)
		require.Equal(t, "1", messages[2].Content)
	}
}

// A file that a tool gave ends no run where the service takes none.
func TestFilesThatServersRefuse(t *testing.T) {
	const pdf, png = `{"type":"file",`, `{"type":"image_url",`
	for base, want := range map[string][]string{
		DefaultBaseURL: {pdf, png}, "https://litellm.example/v1": {pdf, png}, "https://api.groq.com/openai/v1": {"p.pdf (application/pdf) is left out", png},
		"http://localhost:11434/v1": {"p.pdf (application/pdf) is left out", png}, "https://api.deepseek.com": {"p.pdf (application/pdf) is left out", "p.png (image/png) is left out"},
	} {
		sent, err := conversation(agent.ModelSpec{ID: "m", BaseURL: base}, "", []run.Message{
			user(run.Media{Name: "p.pdf", MediaType: "application/pdf", Data: "BBBB"}), user(run.Media{Name: "p.png", MediaType: "image/png", Data: "BBBB"})})
		require.NoError(t, err)
		got, err := json.Marshal(sent)
		require.NoError(t, err)
		for _, w := range want {
			require.Contains(t, string(got), w, base)
		}
	}
}

// Mistral's models take nothing of the user's directly behind a tool's result.
func TestUserBehindAResult(t *testing.T) {
	for model, want := range map[string]int{"mistral-large-latest": 5, "mistralai/Devstral-Small-2507": 5, "pixtral-12b": 5, "gpt-5": 4} {
		messages, err := conversation(agent.ModelSpec{ID: model}, "", []run.Message{ask("p"), use("b", `{}`), result("b", "1"), ask("q")})
		require.NoError(t, err)
		require.Len(t, messages, want, model)
		require.Equal(t, want == 5, messages[3].Role == "assistant")
	}
}

func TestRequestsThatCannotBeMade(t *testing.T) {
	of := func(messages ...run.Message) agent.Request { return agent.Request{Messages: messages} }
	tests := []struct {
		name string
		r    agent.Request
		want string
	}{
		{"no block", of(run.Message{Role: run.RoleUser}), "message 0 has no block"},
		{"schema that is no JSON", agent.Request{Tools: []agent.ToolSpec{{Name: "a", Schema: json.RawMessage(`canary`)}}}, "request cannot be written as JSON"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			asked := false
			m := against(t, nil, func(http.ResponseWriter, *http.Request) { asked = true })
			tt.r.Model.ID = "m"
			_, err := m.generate(context.Background(), tt.r)
			requireClass(t, agent.ModelInvalid, err)
			require.Equal(t, tt.want, failureOf(t, err).Message)
			require.False(t, asked)
		})
	}
}
