package policy

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
)

// Texts of elements become what the tool's schema wants, and stay texts where they are none of that.
func TestFitted(t *testing.T) {
	schema := json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"},"x":{"type":["number","null"]},"b":{"type":"boolean"},"s":{"type":"string"},
		"a":{"type":"array","items":{"type":"integer"}},"o":{"type":"object","properties":{"n":{"type":"number"}}},"l":{"type":"array","items":{"type":"object","properties":{"n":{"type":"integer"}}}},
		"u":{"type":["string","array"]},"any":{}}}`)
	for _, tt := range []struct{ name, in, want string }{
		{"numbers", `{"n":" 12 ","x":"1.50"}`, `{"n":12,"x":1.50}`},
		{"null and truth", `{"x":"null","b":"true"}`, `{"x":null,"b":true}`},
		{"what is none", `{"n":"twelve","b":"yes","x":"1 2"}`, `{"n":"twelve","b":"yes","x":"1 2"}`},
		{"a text", `{"s":"12","u":"12","any":"12"}`, `{"s":"12","u":"12","any":"12"}`},
		{"a list of one name", `{"a":["1","2"]}`, `{"a":[1,2]}`},
		{"a list of elements within", `{"a":{"item":["1","2"]}}`, `{"a":[1,2]}`},
		{"a list of one within", `{"a":{"item":"1"}}`, `{"a":[1]}`},
		{"a list of one", `{"a":"1"}`, `{"a":[1]}`},
		{"a list that is spelled", `{"a":"[1,2]"}`, `{"a":[1,2]}`},
		{"an empty list", `{"a":" "}`, `{"a":[]}`},
		{"an object", `{"o":{"n":"1"}}`, `{"o":{"n":1}}`},
		{"an object that is spelled", `{"o":"{\"n\":1}"}`, `{"o":{"n":1}}`},
		{"objects", `{"l":{"e":[{"n":"1"},{"n":"2"}]}}`, `{"l":[{"n":1},{"n":2}]}`},
		{"a list of one object", `{"l":{"n":"1"}}`, `{"l":[{"n":1}]}`},
		{"what the schema does not know", `{"z":"1"}`, `{"z":"1"}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			require.JSONEq(t, tt.want, string(fitArguments(schema, json.RawMessage(tt.in))))
		})
	}
	require.JSONEq(t, `{"n":"1"}`, string(fitArguments(json.RawMessage(`true`), json.RawMessage(`{"n":"1"}`))))
}

// A completion whose run ends in JSON gives the value, or spells it where the schema wants no text.
func TestCompletedValue(t *testing.T) {
	for _, tt := range []struct{ name, schema, result, want string }{
		{"a value", ``, `{"a":1.10}`, `{"a":1.10}`},
		{"one that is spelled", ``, `"{\"a\":1}"`, `{"a":1}`},
		{"a text", ``, `"noon"`, `"noon"`},
		{"a text that is a number", ``, `"12"`, `"12"`},
		{"a number that is wanted", `{"type":"integer"}`, `"12"`, `12`},
		{"a text that is wanted", `{"type":["string","object"]}`, `"{}"`, `"{}"`},
		{"a list that is spelled", `{"items":{}}`, `"[1]"`, `[1]`},
	} {
		d := &agent.Definition{Output: agent.Output{Format: agent.OutputJSON}}
		if tt.schema != "" {
			d.Output.Schema = json.RawMessage(tt.schema)
		}
		got, err := CompletedValue(d, json.RawMessage(`{"result":`+tt.result+`}`))
		require.NoError(t, err, tt.name)
		require.Equal(t, tt.want, string(got), tt.name)
	}
	for _, bad := range []string{``, `[]`, `{}`, `{"Result":`, `"x"`} {
		_, err := CompletedValue((&agent.Definition{}), json.RawMessage(bad))
		require.Error(t, err, bad)
	}
}

// A conversation goes to a model that writes its calls as text without any call or result: a turn is one text, reasoning of its own is left
// out, a provider's keeps its place, and everything else stays.
func TestInText(t *testing.T) {
	turn, other := run.Source{Seq: 1}, run.Source{Seq: 4}
	says := func(b run.Block, from run.Source) run.Message {
		return run.Message{Role: run.RoleAssistant, Block: b, Base: 1, Source: from}
	}
	hears := func(b run.Block, seq int64) run.Message {
		return run.Message{Role: run.RoleUser, Block: b, Source: run.Source{Seq: seq}}
	}
	signed := run.Reasoning{Text: "hm", Signature: "s", Provider: "bedrock", Model: "m"}
	r := agent.Request{
		System: "You help.", Prompts: map[agent.Dialect]agent.PromptText{agent.DialectXML: {System: "The tools are: look."}, agent.DialectNative: {System: "no"}}, Inferences: 1,
		Model: agent.ModelSpec{Dialect: agent.DialectXML},
		Tools: []agent.ToolSpec{{Name: "files.read", Kind: agent.KindMCP}, {Name: "pay.now", Kind: agent.KindInternal}},
		Messages: []run.Message{
			hears(run.Text{Text: "Do it."}, 0),
			says(run.Reasoning{Text: "own", Provider: TextReasoning}, turn), says(run.Text{Text: "I "}, turn), says(signed, turn), says(run.Text{Text: "look."}, turn),
			says(run.Reasoning{Text: "own", Provider: TextReasoning}, turn), says(run.Text{Text: " Wait."}, turn),
			says(run.ToolUse{ID: "a", Name: "files_read", Input: json.RawMessage(`{"path":"</tool>"}`)}, turn),
			says(run.ToolUse{ID: "b", Name: "pay_now", Input: json.RawMessage(`{}`)}, turn),
			hears(run.ToolResult{ID: "a", Content: "text"}, 2), hears(run.ToolResult{ID: "b", Content: "no money", IsError: true}, 3),
			hears(run.Media{Name: "p", MediaType: "image/png", Data: "x"}, 3),
			says(run.ToolUse{ID: "c", Name: "ghost", Input: json.RawMessage(`{}`)}, other), hears(run.ToolResult{ID: "c", Content: "gone"}, 5),
		},
		Late: []string{"b"},
	}
	before := r
	got := WithCallsAsText(r)
	require.Equal(t, before, r)
	require.Empty(t, got.Tools)
	require.Empty(t, got.Late)
	require.Equal(t, "You help.\n\nThe tools are: look.", got.System)
	want := []run.Message{
		hears(run.Text{Text: "Do it."}, 0), says(run.Text{Text: "I "}, turn), says(signed, turn),
		says(run.Text{Text: "look. Wait.\n<tool>\n" + `{"server_name": "files", "tool_name": "read", "arguments": {"path":"<\/tool>"}}` + "\n</tool>\n<tool>\n" +
			`{"server_name": "local", "tool_name": "pay_now", "arguments": {}}` + "\n</tool>"}, turn),
		hears(run.Text{Text: "Tool 'files_read' result: text"}, 2), hears(run.Text{Text: "Tool 'pay_now' result: no money"}, 3), hears(run.Media{Name: "p", MediaType: "image/png", Data: "x"}, 3),
		says(run.Text{Text: "<tool>\n" + `{"server_name": "local", "tool_name": "ghost", "arguments": {}}` + "\n</tool>"}, other), hears(run.Text{Text: "Tool 'ghost' result: gone"}, 5),
	}
	require.Equal(t, want, got.Messages[:len(want)])
	require.Len(t, got.Messages, len(want)+1)
	require.Contains(t, got.Messages[len(want)].Block.(run.Text).Text, "pay_now (b)")
}
