package script

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
)

func newModel(t *testing.T, text string) *Model {
	t.Helper()
	s, err := Parse("model.jsonl", []byte(text))
	require.NoError(t, err)
	return New(s)
}

func user(b run.Block) run.Message { return run.Message{Role: run.RoleUser, Block: b} }
func assistant(b run.Block) run.Message {
	return run.Message{Role: run.RoleAssistant, Block: b}
}

// request is the second inference of a run that used one tool.
func request() agent.Request {
	return agent.Request{
		Inference: 2, Inferences: 1, System: "You look orders up.", Lifecycle: run.LifecycleToolResult,
		Messages: []run.Message{
			user(run.Text{Text: "Where is <7>?"}),
			assistant(run.ToolUse{ID: "c1", Name: "orders_get", Input: json.RawMessage(`{"id":7.0}`)}),
			{Role: run.RoleUser, Base: -1, Block: run.ToolResult{ID: "c1", Content: "shipped"}},
		},
		Tools: []agent.ToolSpec{
			{Name: "orders.get", Description: "Look an order up.", Schema: json.RawMessage(`{"type":"object"}`)},
			{Name: "orders.list", Description: "List."},
		},
	}
}

const second = "{\"text\": \"first\"}\n"

func TestReplies(t *testing.T) {
	m := newModel(t, `{"calls": [{"id": "c1", "name": "a", "input": {"x": 1}}], "text": "see", "usage": {"input": 5, "output": 2}, `+
		`"reasoning": {"text": "hm", "signature": "s"}}
{"error": "throttled"}
{"json": {"a": 1}, "model": "big"}
{"empty": true}`)
	ask := func(inference int64, attempt int) (agent.Reply, error) {
		return m.Generate(context.Background(), agent.Request{Inference: inference, Attempt: attempt, Model: agent.ModelSpec{ID: "big"}})
	}

	reply, err := ask(1, 0)
	require.NoError(t, err)
	require.Equal(t, agent.Reply{
		Model: "big", Text: "see", StopReason: "tool_calls", Usage: run.Usage{Input: 5, Output: 2},
		Calls:     []agent.ReplyCall{{ID: "c1", Name: "a", Input: json.RawMessage(`{"x":1}`)}},
		Reasoning: []run.RepliedReasoning{{Reasoning: run.Reasoning{Text: "hm", Signature: "s", Provider: "script", Model: "big"}}},
	}, reply)
	_, err = ask(2, 0)
	require.Equal(t, &agent.ModelError{Class: agent.ModelThrottled, Model: "big", Message: "scripted error, model.jsonl:2"}, err)
	require.Equal(t, []int{3, 4}, m.Leftover())
	reply, err = ask(2, 1)
	require.NoError(t, err)
	require.Equal(t, `{"a":1}`, reply.Text)
	reply, err = ask(3, 0)
	require.NoError(t, err)
	require.Equal(t, agent.Reply{Model: "big", StopReason: "stop"}, reply)
	require.Empty(t, m.Leftover())
	require.Empty(t, m.Failures())
}

func TestWantedOutput(t *testing.T) {
	r := agent.Request{Inference: 1, Output: agent.OutputFormat{JSON: true, Schema: json.RawMessage(`{"type":"object"}`)}}
	m := newModel(t, `{"json": {}, "want": {"output": {"format": "json", "schema": {"type": "object"}}}}`)
	_, err := m.Generate(context.Background(), r)
	requireFailures(t, m, err, nil)
	m = newModel(t, `{"json": {}, "want": {"output": null}}`)
	_, err = m.Generate(context.Background(), r)
	requireFailures(t, m, err, []string{`model.jsonl:1: output: got {"format":"json","schema":{"type":"object"}}, want null`})
	_, err = newModel(t, `{"text": "a", "want": {"output": null}}`).Generate(context.Background(), agent.Request{Inference: 1})
	require.NoError(t, err)
}

func TestWant(t *testing.T) {
	tests := []struct {
		name, want string
		failures   []string
	}{
		{"everything", `{"system": "~orders", "lifecycle": "tool_result", "exhausted": false, "tools": ["orders_get", "orders_list"],
			"messages": [{"role": "user", "seenCount": 1, "content": {"type": "text", "text": "Where is <7>?"}},
			{"role": "assistant", "content": {"type": "tool_use", "id": "c1", "input": {"id": 7}}},
			{"seenCount": 0, "content": {"type": "tool_result", "content": "~ship"}}]}`, nil},
		{"tools as objects", `{"tools": [{"name": "orders_get", "description": "~Look", "schema": {"type": "object"}}, "orders_list"]}`, nil},
		{"seenCount", `{"messages": [{"seenCount": 2}, {}, {}]}`, []string{`model.jsonl:2: messages[0].seenCount: got 1, want 2`}},
		{"several", `{"system": "x", "exhausted": true}`, []string{
			`model.jsonl:2: exhausted: got false, want true`,
			`model.jsonl:2: system: got "You look orders up.", want "x"`}},
		{"a tool too many", `{"tools": ["orders_get"]}`, []string{`model.jsonl:2: tools[1]: got "orders_list", want absent`}},
		{"a tool missing", `{"tools": ["orders_get", "orders_list", "x"]}`, []string{`model.jsonl:2: tools[2]: got absent, want "x"`}},
		{"tool object", `{"tools": [{"name": "x"}, {}]}`, []string{`model.jsonl:2: tools[0].name: got "orders_get", want "x"`}},
		{"tools is no list", `{"tools": 1}`, []string{`model.jsonl:2: tools: got ["orders_get","orders_list"], want 1`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := newModel(t, second+`{"text": "", "want": `+strings.ReplaceAll(tt.want, "\n", " ")+`}`)
			_, err := m.Generate(context.Background(), request())
			requireFailures(t, m, err, tt.failures)
		})
	}
}

// requireFailures checks that the failures are recorded, once even if asked again, and that the call failed as well.
func requireFailures(t *testing.T, m *Model, err error, want []string) {
	t.Helper()
	var got []string
	for _, f := range m.Failures() {
		got = append(got, f.Error())
	}
	require.Equal(t, want, got)
	if want == nil {
		require.NoError(t, err)
		return
	}
	var me *agent.ModelError
	require.ErrorAs(t, err, &me)
	require.Equal(t, agent.ModelInvalid, me.Class)
	require.NotContains(t, me.Message, "orders")
	var we *WantError
	require.ErrorAs(t, err, &we)
	require.Equal(t, want[0], we.Error())
}

func TestMalformed(t *testing.T) {
	use := func(id string) run.Message { return assistant(run.ToolUse{ID: id, Name: "a"}) }
	result := func(id string) run.Message { return user(run.ToolResult{ID: id}) }
	tests := []struct {
		name     string
		messages []run.Message
		failures []string
	}{
		{"nothing", nil, nil},
		{"pairs", []run.Message{use("c1"), use("c2"), result("c2"), user(run.Text{Text: "x"}), result("c1")}, nil},
		{"no result", []run.Message{use("c1"), use("c2"), result("c2")},
			[]string{`model.jsonl:1: messages[0]: got tool_use "c1" with 0 results, want exactly one result`}},
		{"a result behind another turn", []run.Message{use("c1"), user(run.Text{Text: "x"}), assistant(run.Text{Text: "y"}), result("c1")},
			[]string{`model.jsonl:1: messages[3]: got tool_result "c1" behind another turn, want it behind the turn of its tool_use`}},
		{"two results", []run.Message{use("c1"), result("c1"), result("c1")},
			[]string{`model.jsonl:1: messages[0]: got tool_use "c1" with 2 results, want exactly one result`}},
		{"result first", []run.Message{result("c1"), use("c1"), result("c1")},
			[]string{`model.jsonl:1: messages[0]: got tool_result "c1", want its tool_use before it`}},
		{"use twice", []run.Message{use("c1"), result("c1"), use("c1")},
			[]string{`model.jsonl:1: messages[2]: got tool_use "c1" a second time, want ids that are unique`}},
		{"no block", []run.Message{{Role: run.RoleUser}},
			[]string{`model.jsonl:1: request: got write message 0: marshal block: <nil> is not a block, want a request that is JSON`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := newModel(t, `{"text": "", "want": {}}`)
			r := agent.Request{Inference: 1, Messages: tt.messages}
			_, err := m.Generate(context.Background(), r)
			requireFailures(t, m, err, tt.failures)
			_, err = m.Generate(context.Background(), r)
			requireFailures(t, m, err, tt.failures)
			require.Empty(t, m.Leftover())
		})
	}
}

func TestWrongModelAndEnd(t *testing.T) {
	m := newModel(t, "{\"text\": \"\", \"model\": \"big\"}\n\n")
	_, err := m.Generate(context.Background(), agent.Request{Inference: 1, Model: agent.ModelSpec{ID: "small"}})
	requireFailures(t, m, err, []string{"model.jsonl:1: model: got small, want big"})

	m = newModel(t, "{\"text\": \"\"}\n\n")
	_, err = m.Generate(context.Background(), agent.Request{Inference: 2})
	requireFailures(t, m, err, []string{"model.jsonl:2: model.jsonl: got a request for inference 2, want no more requests"})
	require.Equal(t, []int{1}, m.Leftover())

	m = newModel(t, "")
	_, err = m.Generate(context.Background(), agent.Request{Inference: 1})
	requireFailures(t, m, err, []string{"model.jsonl:1: model.jsonl: got a request for inference 1, want no more requests"})
}

func TestStream(t *testing.T) {
	m := newModel(t, `{"text": "whole", "reasoning": "hm"}
{"chunks": ["a", "", "b"]}
{"calls": [{"name": "x"}]}
{"error": "server"}`)
	var pieces []string
	m.OnDelta = func(_ agent.Request, d agent.Delta) { pieces = append(pieces, string(d.Kind)+" "+d.Name+d.Text) }
	for inference := range int64(3) {
		_, err := m.Generate(context.Background(), agent.Request{Inference: inference + 1})
		require.NoError(t, err)
	}
	_, err := m.Generate(context.Background(), agent.Request{Inference: 4})
	require.Error(t, err)
	require.Equal(t, []string{"reasoning hm", "text whole", "text a", "text b", "call x{}"}, pieces)
}

func TestContextDone(t *testing.T) {
	m := newModel(t, `{"text": ""}`)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := m.Generate(ctx, agent.Request{Inference: 1})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, []int{1}, m.Leftover())
}
