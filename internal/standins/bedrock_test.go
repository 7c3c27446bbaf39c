package standins_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/standins"
)

func TestCheck(t *testing.T) {
	const hi = `{"role":"user","content":[{"text":"hi"}]}`
	const use = `{"role":"assistant","content":[{"toolUse":{"toolUseId":"a","name":"get","input":{}}}]}`
	const result = `{"toolResult":{"toolUseId":"a","content":[{"text":"1"}]}}`
	const tools = `,"toolConfig":{"tools":[{"toolSpec":{"name":"get","inputSchema":{"json":{}}}}]}`
	const document = `{"document":{"name":"d","format":"pdf","source":{"bytes":"AAAA"}}}`
	user := func(blocks ...string) string { return `{"role":"user","content":[` + strings.Join(blocks, ",") + `]}` }
	const thought = `{"reasoningContent":{"reasoningText":{"text":"hm","signature":"s"}}}`
	const point = `{"cachePoint":{"type":"default"}}`
	thinks := func(blocks ...string) string { return strings.Replace(user(blocks...), "user", "assistant", 1) }
	var sixDocuments []string
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		sixDocuments = append(sixDocuments, strings.Replace(document, `"d"`, `"`+name+`"`, 1))
	}
	messages := func(ms ...string) string { return `"messages":[` + strings.Join(ms, ",") + `]` }
	tests := []struct {
		name, body, want string
	}{
		{"in order", messages(hi, use, user(result, `{"text":"and"}`)) + tools, ""},
		{"document", messages(user(document, `{"text":"a"}`)), ""},
		{"nothing", ``, "must start with a user message"},
		{"the assistant first", messages(use), "must start with a user message"},
		{"no alternation", messages(hi, hi), "roles must alternate"},
		{"no content", messages(user()), "content is empty"},
		{"blank", messages(user(`{"text":" "}`)), "is blank"},
		{"blank system", `"system":[{"text":""}],` + messages(hi), "is blank"},
		{"no tools", messages(hi, use, user(result)), "toolConfig field must be defined"},
		{"empty tools", messages(hi) + `,"toolConfig":{"tools":[]}`, "has no tools"},
		{"a tool without a schema", messages(hi) + `,"toolConfig":{"tools":[{"toolSpec":{"name":"get"}}]}`, "not in order"},
		{"no result", messages(hi, use, hi) + tools, "exactly one toolResult"},
		{"no result at the end", messages(hi, use) + tools, "without a toolResult"},
		{"two results", messages(hi, use, user(result, result)) + tools, "exactly one toolResult"},
		{"a result of nothing", messages(user(result)) + tools, "exactly one toolResult"},
		{"a result behind a text", messages(hi, use, user(`{"text":"a"}`, result)) + tools, "must come first"},
		{"an empty result", messages(hi, use, user(`{"toolResult":{"toolUseId":"a","content":[]}}`)) + tools, "toolResult is empty"},
		{"a blank result", messages(hi, use, user(`{"toolResult":{"toolUseId":"a","content":[{"text":""}]}}`)) + tools, "is blank"},
		{"an id twice", messages(hi, use, user(result), use, user(result)) + tools, "id of another"},
		{"input that is no object", messages(hi, strings.Replace(use, `{}}}`, `""}}`, 1), user(result)) + tools, "no object for input"},
		{"a document alone", messages(user(document)), "needs a text"},
		{"a name twice", messages(user(document, document, `{"text":"a"}`)), "name of another"},
		{"a bad name", messages(user(strings.Replace(document, `"d"`, `"d.pdf"`, 1), `{"text":"a"}`)), "no proper one"},
		{"a bad format", messages(user(strings.Replace(document, `"pdf"`, `"exe"`, 1), `{"text":"a"}`)), "of no known format"},
		{"too many documents", messages(user(strings.Join(sixDocuments, ","), `{"text":"a"}`)), "too many documents"},
		{"reasoning", messages(hi, thinks(thought, `{"text":"a"}`), hi), ""},
		{"redacted reasoning", messages(hi, thinks(`{"reasoningContent":{"redactedContent":"AA=="}}`, `{"text":"a"}`)), ""},
		{"reasoning of the user", messages(user(thought, `{"text":"a"}`)), "cannot contain reasoning"},
		{"reasoning at the end", messages(hi, thinks(`{"text":"a"}`, thought)), "final block"},
		{"unsigned reasoning", messages(hi, thinks(`{"reasoningContent":{"reasoningText":{"text":"hm"}}}`, `{"text":"a"}`)), "no signature"},
		{"reasoning of two kinds", messages(hi, thinks(`{"reasoningContent":{"reasoningText":{"text":"hm","signature":"s"},"redactedContent":"AA=="}}`, `{"text":"a"}`)), "two kinds"},
		{"reasoning of no kind", messages(hi, thinks(`{"reasoningContent":{}}`, `{"text":"a"}`)), "two kinds"},
		{"cache points", `"system":[{"text":"a"},` + point + `],` + messages(user(`{"text":"a"}`, point)) + strings.Replace(tools, `]}`, `,`+point+`]}`, 1), ""},
		{"a cache point first", messages(user(point, `{"text":"a"}`)), "cannot be inserted"},
		{"a cache point behind reasoning", messages(hi, thinks(thought, point, `{"text":"a"}`)), "cannot be inserted"},
		{"five cache points", messages(user(`{"text":"a"}`, point, point, point, point, point)), "too many cache points"},
		{"two lives", `"system":[{"text":"a"},` + point + `],` + messages(user(`{"text":"a"}`, strings.Replace(point, `"default"`, `"default","ttl":"1h"`, 1))), "another life"},
		{"a life nobody knows", messages(user(`{"text":"a"}`, strings.Replace(point, `"default"`, `"default","ttl":"2h"`, 1))), "another life"},
		{"an output format", messages(hi) + `,"outputConfig":{"textFormat":{"type":"json_schema","structure":{"jsonSchema":{"name":"a","schema":"{}"}}}}`, ""},
		{"an output format without a schema", messages(hi) + `,"outputConfig":{"textFormat":{"type":"json_schema","structure":{"jsonSchema":{"name":"a","schema":"x"}}}}`, "outputConfig"},
		{"an empty image", messages(user(`{"image":{"format":"png","source":{"bytes":""}}}`)), "is empty"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := standins.CheckConverse([]byte("{" + tt.body + "}"))
			if tt.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tt.want)
		})
	}
	require.ErrorContains(t, standins.CheckConverse([]byte(`[`)), "not JSON")
}

// post makes a request that is signed with a key; "" = it is not.
func post(t *testing.T, server *standins.Bedrock, path, key, body string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL()+path, strings.NewReader(body))
	require.NoError(t, err)
	if key != "" {
		r.Header.Set("Authorization", key)
	}
	response, err := server.Config().HTTPClient.Do(r)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	return response
}

func TestServerRefuses(t *testing.T) {
	server := standins.NewBedrock(standins.Reply{})
	defer server.Close()
	const good = `{"messages":[{"role":"user","content":[{"text":"hi"}]}]}`
	tests := []struct {
		name, path, key, body string
		status                int
		code                  string
	}{
		{"another path", "/model/m", "k", good, 404, "UnknownOperationException"},
		{"no model", "/model//converse-stream", "k", good, 404, "UnknownOperationException"},
		{"not signed", "/model/m/converse-stream", "", good, 403, "MissingAuthenticationTokenException"},
		{"a broken rule", "/model/m/converse-stream", "k", "{}", 400, "ValidationException"},
		{"in order", "/model/m%2F1/converse-stream", "k", good, 200, ""},
		{"the script has run out", "/model/m/converse-stream", "k", good, 400, "ValidationException"},
	}
	for _, tt := range tests {
		response := post(t, server, tt.path, tt.key, tt.body)
		require.Equal(t, tt.status, response.StatusCode, tt.name)
		code, _, _ := strings.Cut(response.Header.Get("X-Amzn-ErrorType"), ":")
		require.Equal(t, tt.code, code, tt.name)
	}
	require.Zero(t, server.Left())
	require.Len(t, server.Requests(), len(tests))
	require.Equal(t, "m/1", server.Requests()[4].Model)
	require.Empty(t, server.Requests()[4].Refused)
	require.NotEmpty(t, server.Requests()[3].Refused)
	server.Then(standins.Reply{}, standins.Reply{})
	require.Equal(t, 2, server.Left())
}

// Reasoning is taken back from the very model that wrote it, byte for byte, and from nobody else.
func TestServerVerifiesReasoning(t *testing.T) {
	server := standins.NewBedrock(standins.Reply{Blocks: []standins.Block{standins.Reasoning("s+/=", "h", "m")}}, standins.Reply{})
	defer server.Close()
	server.Wrote("m", standins.Redacted([]byte{0, 255}))
	status := func(model, content string) int {
		body := `{"messages":[{"role":"user","content":[{"text":"hi"}]},{"role":"assistant","content":[` + content + `{"text":"a"}]},{"role":"user","content":[{"text":"hi"}]}]}`
		return post(t, server, "/model/"+model+"/converse-stream", "k", body).StatusCode
	}
	const own, redacted = `{"reasoningContent":{"reasoningText":{"text":"hm","signature":"s+/="}}},`, `{"reasoningContent":{"redactedContent":"AP8="}},`
	require.Equal(t, 400, status("m", own), "it has not been written yet")
	require.Equal(t, 200, status("m", ""))
	for _, changed := range []string{strings.Replace(own, "hm", "hm ", 1), strings.Replace(own, "s+", "s-", 1), strings.Replace(redacted, "AP8=", "AP4=", 1)} {
		require.Equal(t, 400, status("m", changed))
	}
	require.Equal(t, 400, status("m2", own))
	require.Equal(t, 200, status("m", own+redacted))
}
