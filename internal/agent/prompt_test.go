package agent

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// prompted is an agent of seed 004 and a request of it, with one tool.
func prompted(t *testing.T, change func(*Definition)) (*Definition, Request) {
	t.Helper()
	d, err := PresetDefaults(PresetForge)
	require.NoError(t, err)
	d.Name, d.System = "helper", "You help."
	change(&d)
	tools := []ToolSpec{{Name: "clock.now", Description: "Time.", Schema: rawJSON(`{"type": "object"}`)}}
	return &d, Request{Model: d.Model, System: d.System, Tools: tools}
}

func TestBuiltInSectionsCanBeSaid(t *testing.T) {
	require.Len(t, codeOrder, len(sections))
	for _, s := range Sections() {
		require.Contains(t, codeOrder, s.Name)
		for _, built := range []SystemPrompt{SystemOnce, SystemEveryInference} {
			require.NoError(t, s.check(s.Text, built), s.Name)
		}
		require.False(t, (s.XML || s.Tools) && !s.Turn, "%s depends on the request", s.Name)
	}
}

// What rules say follows the agent's policies.
func TestRulesFollowTheAgent(t *testing.T) {
	for name, c := range map[string]struct {
		change    func(*Definition)
		has, lack []string
	}{
		"seed 004": {func(*Definition) {}, []string{"exactly one tool", "Every response makes a call"}, []string{"without a call: that ends"}},
		"tags, and text is final": {
			func(d *Definition) { d.Text = TextFinal }, []string{"at most one tool", "answer without a call: that ends the loop"}, []string{"task_completion", "exactly one"},
		},
		"nothing breaks the loop": {
			func(d *Definition) { d.XML.Disable = slices.Clone(LoopBreaking) }, []string{"Every response makes a call"}, []string{"nothing else ends"},
		},
		"native, all calls": {
			func(d *Definition) { d.Model.Dialect, d.Batch = DialectNative, BatchAll }, []string{"Call a tool in every response"}, []string{"exactly one", "<tool>", "available_tools"},
		},
		"native, the first call": {func(d *Definition) { d.Model.Dialect = DialectNative }, []string{"exactly one tool"}, []string{"<tool>"}},
	} {
		t.Run(name, func(t *testing.T) {
			d, r := prompted(t, c.change)
			system, err := BuildSystem(d, d.System, SystemData{Now: "now"})
			require.NoError(t, err)
			r.System = system
			r, err = WithPrompt(d, &AgentState{}, Action{}, time.Time{}, r, PromptContext{})
			require.NoError(t, err)
			all := r.Prompted()
			for _, text := range c.has {
				require.Contains(t, all.System+all.Turn, text)
			}
			for _, text := range c.lack {
				require.NotContains(t, all.System+all.Turn, text)
			}
			require.NotContains(t, all.System+all.Turn, "\n\n\n")
		})
	}
}

// The turn's words stand before the newest words of the user and behind results and their media; in no message of the request itself.
func TestTurnPlace(t *testing.T) {
	user := func(b Block) Message { return Message{Role: RoleUser, Block: b} }
	model := Message{Role: RoleAssistant, Block: Text{Text: "hm"}}
	said, result, media := user(Text{Text: "said"}), user(ToolResult{ID: "c1"}), user(Media{Name: "m"})
	for name, c := range map[string]struct {
		messages []Message
		want     int
	}{
		"nothing is said":                  {nil, 0},
		"the beginning":                    {[]Message{said}, 0},
		"a turn of several":                {[]Message{said, model, media, said}, 2},
		"behind results":                   {[]Message{said, model, result, result}, 4},
		"behind results, before a message": {[]Message{said, model, result, said, said}, 3},
		"behind a result's media":          {[]Message{said, model, result, media, media, result, said}, 6},
		"the user's own media":             {[]Message{said, model, result, said, media}, 3},
		"the model has spoken last":        {[]Message{said, model}, 2},
	} {
		require.Equal(t, c.want, turnPlace(c.messages), name)
	}
	r := Request{Turn: "turn", Inferences: 3, Messages: []Message{said, model, result, said}}
	sent := r.WithNotices()
	require.Equal(t, []Message{said, model, result, {Role: RoleUser, Block: Text{Text: "turn"}, Base: -3}, said}, sent.Messages)
	require.Empty(t, sent.Turn)
	require.Len(t, r.Messages, 4, "the request is left as it is")
	require.Equal(t, sent, sent.WithNotices(), "it is said once")
}

// Which sections count is known when a model is asked.
func TestPromptedByDialect(t *testing.T) {
	r := Request{System: "s", Prompts: map[Dialect]PromptText{DialectNative: {Turn: "n"}, DialectXML: {System: "x", Turn: "t"}}}
	require.Equal(t, Request{System: "s", Turn: "n"}, r.Prompted())
	r.Model.Dialect = DialectXML
	got := r.Prompted()
	require.Equal(t, "s\n\nx", got.System)
	require.Equal(t, "t", got.Turn)
	require.Equal(t, got, got.Prompted())
}

func TestToolPrompt(t *testing.T) {
	require.Empty(t, ToolPrompt(nil))
	require.Equal(t, `{"server_name":"local","tool_name":"orders_get","description":"An <order>.","schema":{"type":"object","properties":{}}}
{"server_name":"files","tool_name":"read.text"}
{"server_name":"local","tool_name":"odd"}`, ToolPrompt([]ToolSpec{
		{Name: "orders.get", Description: "An <order>.", Schema: rawJSON(`{"type": "object", "properties": {"parentSubject$$": {}}}`)},
		{Name: "files.read.text", Kind: KindMCP, Schema: rawJSON(`{`)},
		{Name: "odd", Kind: KindMCP},
	}))
}

// An agent without sections has the text that it has without this file.
func TestNoSections(t *testing.T) {
	d, err := PresetDefaults(PresetCountersign)
	require.NoError(t, err)
	d.Prompt.Order = PromptCode
	text, err := BuildSystem(&d, " as it is \n", SystemData{})
	require.NoError(t, err)
	require.Equal(t, " as it is \n", text)
	r, err := WithPrompt(&d, &AgentState{}, Action{}, time.Time{}, Request{}, PromptContext{Planning: "p"})
	require.NoError(t, err)
	require.Equal(t, Request{}, r)
}

// A text that only a run can show to be wrong is an error that names the section.
func TestSectionsThatFail(t *testing.T) {
	for name, want := range map[string]string{
		"agent_loop": `render section of helper: template: agent_loop:1:8: executing "agent_loop" at <.Input.x>`, "rag_context": "template: rag_context:1:8",
	} {
		d, r := prompted(t, func(d *Definition) { d.Prompt.Sections = map[string]string{name: "{{.Input.x}}"} })
		_, err := BuildSystem(d, "s", SystemData{Now: "now", Input: rawJSON(`{}`)})
		if strings.HasPrefix(name, "rag") {
			require.NoError(t, err)
			_, err = WithPrompt(d, &AgentState{Input: rawJSON(`{}`)}, Action{}, time.Time{}, r, PromptContext{})
		}
		require.ErrorContains(t, err, want)
	}
}
