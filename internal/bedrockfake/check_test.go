package bedrockfake_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/bedrockfake"
)

func TestCheck(t *testing.T) {
	const hi = `{"role":"user","content":[{"text":"hi"}]}`
	const use = `{"role":"assistant","content":[{"toolUse":{"toolUseId":"a","name":"get","input":{}}}]}`
	const result = `{"toolResult":{"toolUseId":"a","content":[{"text":"1"}]}}`
	const tools = `,"toolConfig":{"tools":[{"toolSpec":{"name":"get","inputSchema":{"json":{}}}}]}`
	const document = `{"document":{"name":"d","format":"pdf","source":{"bytes":"AAAA"}}}`
	user := func(blocks ...string) string { return `{"role":"user","content":[` + strings.Join(blocks, ",") + `]}` }
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
		{"an empty image", messages(user(`{"image":{"format":"png","source":{"bytes":""}}}`)), "is empty"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := bedrockfake.Check([]byte("{" + tt.body + "}"))
			if tt.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tt.want)
		})
	}
	require.ErrorContains(t, bedrockfake.Check([]byte(`[`)), "not JSON")
}

func TestServerRefuses(t *testing.T) {
	server := bedrockfake.New(bedrockfake.Reply{})
	defer server.Close()
	const good = `{"messages":[{"role":"user","content":[{"text":"hi"}]}]}`
	tests := []struct {
		name, path, key, body string
		status                int
		code                  string
	}{
		{"another path", "/model/m", "k", good, 404, "UnknownOperationException"},
		{"no model", "/model//converse", "k", good, 404, "UnknownOperationException"},
		{"not signed", "/model/m/converse", "", good, 403, "MissingAuthenticationTokenException"},
		{"a broken rule", "/model/m/converse", "k", "{}", 400, "ValidationException"},
		{"in order", "/model/m%2F1/converse-stream", "k", good, 200, ""},
		{"the script has run out", "/model/m/converse", "k", good, 400, "ValidationException"},
	}
	for _, tt := range tests {
		request, err := http.NewRequest(http.MethodPost, server.URL()+tt.path, strings.NewReader(tt.body))
		require.NoError(t, err)
		if tt.key != "" {
			request.Header.Set("Authorization", tt.key)
		}
		response, err := server.Config().HTTPClient.Do(request)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, tt.status, response.StatusCode, tt.name)
		code, _, _ := strings.Cut(response.Header.Get("X-Amzn-ErrorType"), ":")
		require.Equal(t, tt.code, code, tt.name)
	}
	require.Zero(t, server.Left())
	require.Len(t, server.Requests(), len(tests))
	require.Equal(t, "m/1", server.Requests()[4].Model)
	require.Empty(t, server.Requests()[4].Refused)
	require.NotEmpty(t, server.Requests()[3].Refused)
	server.Then(bedrockfake.Reply{}, bedrockfake.Reply{})
	require.Equal(t, 2, server.Left())
}
