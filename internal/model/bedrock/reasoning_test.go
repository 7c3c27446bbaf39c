package bedrock

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/standins"
)

func thinks(b run.Reasoning) run.Message { return assistant(b) }

func TestReasoningThatMakesNoSense(t *testing.T) {
	piece := func(delta any) standins.Frame {
		return standins.Event("contentBlockDelta", map[string]any{"contentBlockIndex": 0, "delta": map[string]any{"reasoningContent": delta}})
	}
	end := blocks().Frames()[1:]
	many := make([]standins.Block, maxThoughts+1)
	for i := range many {
		many[i] = standins.Reasoning("s", "x")
	}
	tests := map[string]struct {
		turn standins.Turn
		want string
	}{
		"two kinds": {standins.Stream{Frames: append([]standins.Frame{piece(map[string]string{"text": "canary"}), piece(map[string][]byte{"redactedContent": {1}})}, end...)},
			"reply has a reasoning block of two kinds"},
		"too many":  {blocks(many...), "reply has more than 1000 reasoning blocks"},
		"too large": {blocks(standins.Reasoning("s", strings.Repeat("x", 8<<20), strings.Repeat("x", 8<<20))), "reply is larger than 16 MiB"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			requireFailure(t, tt.turn, agent.ModelInvalid, tt.want)
		})
	}
}

func TestOutputFormat(t *testing.T) {
	const schema = `{"type":"object","properties":{"z":{"maximum":12345678901234567890.10},"a":{}}}`
	r := agent.Request{Model: agent.ModelSpec{ID: "m"}, Messages: []run.Message{ask("a")}, Output: agent.OutputFormat{JSON: true, Schema: json.RawMessage(schema)}}
	for name, want := range map[string]string{"": "output", "receipt": "receipt"} {
		r.Output.Name = name
		var body struct{ OutputConfig json.RawMessage }
		require.NoError(t, json.Unmarshal(sent(t, Model{}, r).Body, &body))
		require.Equal(t, fmt.Sprintf(`{"textFormat":{"structure":{"jsonSchema":{"name":%q,"schema":%q}},"type":"json_schema"}}`, want, schema), string(body.OutputConfig))
	}
	for _, none := range []agent.OutputFormat{{}, {JSON: true}, {Schema: json.RawMessage(schema)}} {
		r.Output = none
		require.NotContains(t, string(sent(t, Model{}, r).Body), "outputConfig")
	}
	const closed = `{"type":"object","properties":{"a":{"type":"object","additionalProperties":false}},"additionalProperties":false}`
	for name, c := range map[string]struct {
		model, schema string
		takes         bool
	}{
		"Nova":              {"eu.amazon.nova-pro-v1:0", closed, false},
		"Llama":             {"us.meta.llama4-scout-v1:0", closed, false},
		"an old Claude":     {"anthropic.claude-3-7-sonnet-20250219-v1:0", closed, false},
		"Claude 4":          {"us.anthropic.claude-sonnet-4-20250514-v1:0", closed, false},
		"Claude 4.1":        {"us.anthropic.claude-opus-4-1-20250805-v1:0", closed, false},
		"Claude":            {"us.anthropic.claude-sonnet-4-5-20250929-v1:0", closed, true},
		"a newer Claude":    {"us.anthropic.claude-opus-4-6-v1", closed, true},
		"an open object":    {"anthropic.claude-sonnet-5", `{"type":"object","properties":{"a":{"type":"object"}},"additionalProperties":false}`, false},
		"a list of objects": {"anthropic.claude-sonnet-5", `{"type":"array","items":{"properties":{}}}`, false},
		"a limit":           {"anthropic.claude-sonnet-5", `{"type":"object","properties":{"n":{"type":"integer","minimum":1}},"additionalProperties":false}`, false},
		"a limit's name":    {"anthropic.claude-sonnet-5", `{"type":"object","properties":{"minimum":{"type":"integer"}},"additionalProperties":false}`, true},
	} {
		r.Model.ID, r.Output = c.model, agent.OutputFormat{JSON: true, Schema: json.RawMessage(c.schema)}
		p, err := newPrompt(context.Background(), r)
		require.NoError(t, err, name)
		require.Equal(t, c.takes, p.OutputConfig != nil, name)
		require.Equal(t, c.takes, len(p.System) == 0, "%s: the form is asked for in words", name)
	}
}

// The model's own fields go out byte for byte: they are what turns reasoning on.
func TestOptions(t *testing.T) {
	const options = `{"thinking":{"type":"enabled","budget_tokens":2048},"a":1.10}`
	r := agent.Request{Model: agent.ModelSpec{ID: "m", Options: json.RawMessage(options)}, Messages: []run.Message{ask("a")}}
	require.Contains(t, string(sent(t, Model{}, r).Body), `"additionalModelRequestFields":`+options)

	// Claude cannot go on thinking in a turn that began without a thought of its own
	own := thinks(run.Reasoning{Text: "hm", Signature: "s", Provider: "bedrock", Model: "anthropic.claude-x"})
	r.Model.ID = "anthropic.claude-x"
	for name, c := range map[string]struct {
		messages []run.Message
		want     string
	}{
		"another model's turn": {[]run.Message{ask("q"), use("a", `{}`), result("a", "1"), use("b", `{}`), result("b", "1")}, `{"a":1.10}`},
		"its own":              {[]run.Message{ask("q"), own, use("a", `{}`), result("a", "1"), use("b", `{}`), result("b", "1")}, options},
		"an earlier turn":      {[]run.Message{ask("q"), use("a", `{}`), result("a", "1"), say("x"), ask("r"), own, use("b", `{}`), result("b", "1")}, options},
		"the user's turn":      {[]run.Message{ask("q"), say("x"), ask("r")}, options},
	} {
		r.Messages = c.messages
		p, err := newPrompt(context.Background(), r)
		require.NoError(t, err)
		got, err := p.AdditionalModelRequestFields.MarshalSmithyDocument()
		require.NoError(t, err)
		require.Equal(t, c.want, string(got), name)
	}
}

func TestCachePoints(t *testing.T) {
	conversation := []run.Message{ask("q"), use("a", `{}`), result("a", "1"), ask("r"), use("b", `{}`), result("b", "2")}
	get := []agent.ToolSpec{{Name: "get"}}
	const claude, nova, profile = "eu.anthropic.claude-x", "amazon.nova-pro-v1:0", "arn:aws:bedrock:eu-1:1:application-inference-profile/x"
	whole := func(id string) agent.Request {
		return agent.Request{Model: agent.ModelSpec{ID: id}, System: "S", Tools: get, Messages: conversation}
	}
	tests := []struct {
		name  string
		r     agent.Request
		cache agent.Cache
		want  string // where points are: s system, t tools, and the places of messages
		life  string
	}{
		{"off", whole(claude), agent.CacheOff, "", ""},
		{"nothing said", whole(claude), "", "", ""},
		{"Claude", whole(claude), agent.CacheFiveMinutes, "st24", ""},
		{"Claude for an hour", whole(claude), agent.CacheOneHour, "st24", "1h"},
		{"Nova, which takes none behind a result", whole(nova), agent.CacheFiveMinutes, "s02", ""},
		{"a model nobody knows", whole(profile), agent.CacheOneHour, "s24", "1h"},
		{"nothing to mark", agent.Request{Model: agent.ModelSpec{ID: claude}, System: " ", Messages: conversation[:1]}, agent.CacheFiveMinutes, "0", ""},
		{"behind a document", agent.Request{Model: agent.ModelSpec{ID: claude}, Messages: []run.Message{media("x", "application/pdf", "AAAA")}}, agent.CacheFiveMinutes, "0", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.r.Model.Cache = tt.cache
			got, life := pointsIn(t, sent(t, Model{}, tt.r).Body)
			require.Equal(t, tt.want, got)
			require.Equal(t, tt.life, life)
		})
	}
}

// pointsIn says where a request has cache points, each the last of its list, and their life.
func pointsIn(t *testing.T, raw json.RawMessage) (places, life string) {
	t.Helper()
	type block struct {
		CachePoint *struct{ Type, TTL string }
	}
	var body struct {
		System   []block
		Messages []struct{ Content []block }
		Tools    struct{ Tools []block } `json:"toolConfig"`
	}
	require.NoError(t, json.Unmarshal(raw, &body))
	look := func(place string, blocks []block) {
		for i, b := range blocks {
			if b.CachePoint != nil {
				require.Equal(t, len(blocks)-1, i)
				places, life = places+place, b.CachePoint.TTL
			}
		}
	}
	look("s", body.System)
	look("t", body.Tools.Tools)
	for i, m := range body.Messages {
		look(fmt.Sprint(i), m.Content)
	}
	return places, life
}
