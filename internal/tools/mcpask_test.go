package tools_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/tool"
	"github.com/countersign/countersign/internal/tools"
)

// booking is a tool of an SDK server that asks people before it does anything.
func booking(s *sdk.Server, booked *[]string) {
	s.AddTool(&sdk.Tool{Name: "book", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		if r.Params.InputResponses == nil {
			return &sdk.CallToolResult{RequestState: "signed: <R1>", InputRequests: sdk.InputRequestMap{"when": &sdk.ElicitParams{
				Message: "Which day?", RequestedSchema: json.RawMessage(`{"type":"object","properties":{"day":{"type":"integer"}},"required":["day"]}`),
			}}}, nil
		}
		answer, _ := r.Params.InputResponses["when"].(*sdk.ElicitResult)
		*booked = append(*booked, fmt.Sprint(r.Params.RequestState, " ", answer.Action, " ", answer.Content["day"]))
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "booked"}}}, nil
	})
}

// A tool that needs input parks the run; the answer goes to the server with its state, maybe by another process.
func TestInputOverTheNewestProtocol(t *testing.T) {
	var booked []string
	server := served(nil, true, func(s *sdk.Server) { booking(s, &booked) })
	r := over(t, server)
	res, err := r.call("book", tool.Call{Key: "k"})
	require.NoError(t, err)
	require.NotNil(t, res.Suspend, res.Content)
	require.Empty(t, booked)
	asked, err := policy.NormalizeTicket(*res.Suspend)
	require.NoError(t, err)
	require.Equal(t, "Which day?", asked.Message)
	require.JSONEq(t, `{"type":"object","properties":{"day":{"type":"integer"}},"required":["day"]}`, string(asked.ResponseSchema))

	res, err = over(t, server).call("book", tool.Call{Key: "k", Resume: json.RawMessage(`{"day":9007199254740993}`), Memo: asked.Memo})
	require.NoError(t, err)
	require.Equal(t, "booked", res.Content)
	require.Len(t, booked, 1)
	require.Contains(t, booked[0], "signed: <R1> accept")
}

// Over an older protocol there is nobody to answer in time: the tool fails, and says why.
func TestInputOverAnOlderProtocol(t *testing.T) {
	var booked []string
	r := over(t, served([]string{"2025-11-25"}, false, func(s *sdk.Server) { booking(s, &booked) }))
	_, err := r.call("book", tool.Call{Key: "k"})
	require.ErrorContains(t, err, "elicitation")
	require.Empty(t, booked)
}

// Several questions are asked at once, and pages are shown, not opened. The bytes of an answer are the person's.
func TestQuestionsAndAnswers(t *testing.T) {
	form := func(message, schema string) string {
		return fmt.Sprintf(`{"method":"elicitation/create","params":{"mode":"form","message":%q,"requestedSchema":%s}}`, message, schema)
	}
	page := `{"method":"elicitation/create","params":{"mode":"url","message":"Sign in.","url":"https://id.example/x?y=1","elicitationId":"e"}}`
	day := `{"type":"object","properties":{"day":{"type":"integer"}}}`
	for name, c := range map[string]struct{ requests, message, schema, answer, sent string }{
		"a form":    {`{"when":` + form("Which\u202e day?", day) + `}`, "Which<U+202E> day?", day, `{"day":9007199254740993}`, `{"when":{"action":"accept","content":{"day":9007199254740993}}}`},
		"no schema": {`{"a":{"method":"elicitation/create","params":{"message":"Sure?"}}}`, "Sure?", `{"type":"object"}`, `{}`, `{"a":{"action":"accept"}}`},
		"a page":    {`{"a":` + page + `}`, "Sign in.\nOpen this page of id.example, and answer true once it is done:\nhttps://id.example/x?y=1", `{"const":true}`, `true`, `{"a":{"action":"accept"}}`},
		"two": {
			`{"b":` + form("Which day?", day) + `,"a":` + page + `}`,
			"a: Sign in.\nOpen this page of id.example, and answer true once it is done:\nhttps://id.example/x?y=1\nb: Which day?",
			`{"type":"object","properties":{"a":{"const":true},"b":` + day + `},"required":["a","b"],"additionalProperties":false}`,
			`{"a":true,"b":{"day":3}}`, `{"a":{"action":"accept"},"b":{"action":"accept","content":{"day":3}}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPeer(t)
			p.calling(func(w http.ResponseWriter, a ask) {
				if a.Params.InputResponses == nil {
					p.result(w, a, `{"resultType":"input_required","inputRequests":`+c.requests+`,"requestState":"s<1>"}`)
					return
				}
				p.result(w, a, `{"content":[]}`)
			})
			r := over(t, p)
			res, err := r.call("echo", tool.Call{Args: json.RawMessage(`{"text":"t"}`), Key: "r/c"})
			require.NoError(t, err)
			require.NotNil(t, res.Suspend, res.Content)
			asked, err := policy.NormalizeTicket(*res.Suspend)
			require.NoError(t, err)
			require.Equal(t, c.message, asked.Message)
			require.JSONEq(t, c.schema, string(asked.ResponseSchema))
			require.NotContains(t, asked.Message+string(asked.Parameters)+string(asked.ResponseSchema), "s<1>")

			_, err = r.call("echo", tool.Call{Args: json.RawMessage(`{"text":"t"}`), Key: "r/c", Resume: json.RawMessage(c.answer), Memo: asked.Memo})
			require.NoError(t, err)
			calls := p.calls("tools/call")
			require.Len(t, calls, 2)
			require.Equal(t, "s<1>", calls[1].Params.RequestState)
			require.Equal(t, c.sent, string(calls[1].Params.InputResponses))
			require.Equal(t, calls[0].Params.Arguments, calls[1].Params.Arguments)
			require.Equal(t, `"r/c"`, string(calls[1].Params.Meta["countersign/idempotency-key"]))
		})
	}
}

// What nobody could be asked is an error of the tool's, which says why.
func TestQuestionsThatAreNone(t *testing.T) {
	many := map[string]any{}
	for i := range 17 {
		many[fmt.Sprint(i)] = map[string]any{"method": "elicitation/create"}
	}
	flood, err := json.Marshal(many)
	require.NoError(t, err)
	form := `{"method":"elicitation/create","params":{"message":"m","requestedSchema":%s}}`
	for name, c := range map[string]struct{ requests, state, says string }{
		"a model":       {`{"a":{"method":"sampling/createMessage","params":{}}}`, "", `it asks for "sampling/createMessage", and only people are asked`},
		"busy":          {`{}`, "", "it is busy and asks to try again later"},
		"too many":      {string(flood), "", "it asks 17 questions at once, want at most 16"},
		"much state":    {`{"a":` + fmt.Sprintf(form, "{}") + `}`, lines(16<<10+1, "s"), "its requestState has 16385 bytes, want at most 16384"},
		"references":    {`{"a":` + fmt.Sprintf(form, `{"type":"object","$ref":"#/x","x":{}}`) + `,"b":` + fmt.Sprintf(form, `{"type":"object"}`) + `}`, "", "cannot stand beside others"},
		"a javascript":  {`{"a":{"method":"elicitation/create","params":{"mode":"url","url":"javascript:alert(1)"}}}`, "", "leads to a page that cannot be shown"},
		"plain http":    {`{"a":{"method":"elicitation/create","params":{"url":"http://id.example"}}}`, "", "leads to a page that cannot be shown"},
		"a false front": {`{"a":{"method":"elicitation/create","params":{"url":"https://bank.example@evil.example"}}}`, "", "leads to a page that cannot be shown"},
	} {
		t.Run(name, func(t *testing.T) {
			answer := `{"resultType":"input_required","inputRequests":` + c.requests + `,"requestState":"` + c.state + `"}`
			res, err := overAnswering(t, "", answer).call("echo", tool.Call{})
			require.NoError(t, err)
			require.Nil(t, res.Suspend)
			require.True(t, res.IsError)
			require.True(t, strings.HasPrefix(res.Content, "The server needs input and did nothing: "), res.Content)
			require.Contains(t, res.Content, c.says)
		})
	}
}

// What a server asks is kept word for word until people have answered: nothing of it may be a secret that the
// connection was made with.
func TestQuestionsHoldNoSecrets(t *testing.T) {
	for name, answer := range map[string]string{
		"the state":   `{"resultType":"input_required","requestState":"for hunter2","inputRequests":{"a":{"method":"elicitation/create","params":{"message":"m"}}}}`,
		"a schema":    `{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create","params":{"requestedSchema":{"type":"object","properties":{"hunter2":{}}}}}}}`,
		"its own key": `{"resultType":"input_required","inputRequests":{"hunter2":{"method":"elicitation/create","params":{"message":"m"}}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			res, err := overAnswering(t, "", answer, withKey).call("echo", tool.Call{})
			require.NoError(t, err)
			require.Nil(t, res.Suspend)
			require.True(t, res.IsError)
			require.Contains(t, res.Content, "holds a secret")
			require.NotContains(t, res.Content, "hunter2")
		})
	}
}

// A tool whose definition has a secret in what the model and the journal see word for word is left out, and the reason
// has none either.
func TestDefinitionsHoldNoSecrets(t *testing.T) {
	all, err := overAnswering(t, echo+`,
		{"name":"t","inputSchema":{"type":"object","properties":{"k":{"default":"hunter2"}}}},
		{"name":"hunter2","inputSchema":{"type":"object"}},{"name":"hunter2 !","inputSchema":{"type":"object"}}`,
		"", withKey).list()
	require.NoError(t, err)
	require.Len(t, all.Tools, 1)
	require.Len(t, all.Left, 3)
	require.Contains(t, all.Left[0].Why, "holds a secret")
	require.NotContains(t, fmt.Sprint(all), "hunter2")
}

// What is noted of a result quotes the server, too.
func TestNotesHoldNoSecrets(t *testing.T) {
	res, err := overAnswering(t,
		`{"name":"echo","inputSchema":{"type":"object"},"outputSchema":{"type":"object","required":["hunter2"]}}`,
		`{"content":[],"structuredContent":{}}`, withKey).call("echo", tool.Call{})
	require.NoError(t, err)
	require.Contains(t, res.Content, "outputSchema promises")
	require.NotContains(t, res.Content, "hunter2")
}

// withKey makes a connection with the vault's secret.
func withKey(c *tools.MCP, s *agent.MCPServer) {
	c.Secrets = mcpVault{}
	s.Headers = map[string]string{"X-Key": "${secret:key}"}
}

// An answer that the server could not be given is an error, and nothing is sent.
func TestAnswersThatFitNothing(t *testing.T) {
	for name, c := range map[string]struct{ memo, resume, says string }{
		"no memo":        {`{}`, `{}`, "is not known any more"},
		"no object":      {`{"asked":[{"id":"a"}]}`, `7`, "the answer to question a is no object"},
		"null":           {`{"asked":[{"id":"a"}]}`, `null`, "the answer to question a is no object"},
		"no keys":        {`{"asked":[{"id":"a"},{"id":"b"}]}`, `7`, "no object with a key for each question"},
		"one is missing": {`{"asked":[{"id":"a"},{"id":"b"}]}`, `{"a":{}}`, "the answer to question b is no object"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPeer(t)
			_, err := over(t, p).call("echo", tool.Call{Memo: c.memo, Resume: json.RawMessage(c.resume)})
			require.ErrorContains(t, err, c.says)
			require.ErrorContains(t, err, "the call was not made")
			require.Empty(t, p.calls("tools/call"))
		})
	}
}
