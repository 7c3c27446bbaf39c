package openai

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
)

// A model that writes its calls as text is sent texts and no tools; what it writes comes back as a text, for whoever plans with it to read.
// A model with calls of its own behind the same decorator is sent them as ever.
func TestDialect(t *testing.T) {
	var body []byte
	m := runtime.WithDialect(against(t, nil, func(w http.ResponseWriter, r *http.Request) {
		body, _ = io.ReadAll(r.Body)
		answer("text/event-stream", text("I look. <to")+text("ol>{}</tool>")+done("stop")+end)(w, r)
	}))
	r := request()
	r.System = "You help."
	r.Prompts = map[agent.Dialect]agent.PromptText{agent.DialectXML: {System: "You have one tool."}}
	r.Tools = []agent.ToolSpec{{Name: "clock.now", Schema: json.RawMessage(`{"type":"object"}`)}}
	r.Messages = append(r.Messages,
		run.Message{Role: run.RoleAssistant, Block: run.Text{Text: "I look."}},
		run.Message{Role: run.RoleAssistant, Block: run.ToolUse{ID: "c1-0", Name: "clock_now", Input: json.RawMessage(`{}`)}},
		run.Message{Role: run.RoleUser, Block: run.ToolResult{ID: "c1-0", Content: "no clock", IsError: true}},
		run.Message{Role: run.RoleUser, Block: run.Text{Text: "Try again."}},
	)
	for _, tt := range []struct {
		dialect agent.Dialect
		want    string
	}{
		{agent.DialectXML, `{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":[
			{"role":"system","content":"You help.\n\nYou have one tool."},{"role":"user","content":"canary-content"},
			{"role":"assistant","content":"I look.\n<tool>\n{\"server_name\": \"local\", \"tool_name\": \"clock_now\", \"arguments\": {}}\n</tool>"},
			{"role":"user","content":"Tool 'clock_now' result: no clock\n\nTry again."}]}`},
		{agent.DialectNative, `{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":[
			{"role":"system","content":"You help."},{"role":"user","content":"canary-content"},
			{"role":"assistant","content":"I look.","tool_calls":[{"id":"c1-0","type":"function","function":{"name":"clock_now","arguments":"{}"}}]},
			{"role":"tool","tool_call_id":"c1-0","content":"no clock"},{"role":"user","content":"Try again."}],
			"tools":[{"type":"function","function":{"name":"clock_now","parameters":{"type":"object"}}}]}`},
	} {
		r.Model.Dialect = tt.dialect
		reply, err := m.Generate(context.Background(), r)
		require.NoError(t, err)
		require.JSONEq(t, tt.want, string(body))
		require.Equal(t, "I look. <tool>{}</tool>", reply.Text)
		require.Empty(t, reply.Calls)
	}
}
