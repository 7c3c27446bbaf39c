package bedrock

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/prompt"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/standins"
)

// everyByte is redacted content no text could hold.
func everyByte() []byte {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	return all
}

// talk is a run that is stored and read back after each entry, as one Lambda after another does.
type talk struct {
	t   *testing.T
	def agent.Definition
	s   run.AgentState
}

func newTalk(t *testing.T) *talk {
	c := &talk{t: t, def: agent.Definition{System: "Be brief.", Batch: agent.BatchAll, TextBesideCalls: agent.TextBesideKeep,
		Model: agent.ModelSpec{Provider: "bedrock", ID: "eu.anthropic.claude-x", Cache: agent.CacheFiveMinutes},
		Tools: []agent.ToolSpec{{Name: "get", Effect: run.EffectRead, Schema: json.RawMessage(`{"type":"object"}`)}}}}
	c.commit(run.RunStarted{Tenant: "default", Run: "r", Owner: "r-0", MaxInteractions: 9, Messages: []run.UserBlock{{Block: run.Text{Text: "q"}}}})
	return c
}

func (c *talk) commit(events ...run.Event) {
	c.t.Helper()
	d := run.NewDraft(c.s, "w", time.Unix(1e9, 0))
	require.NoError(c.t, d.Add(events...))
	raw, err := run.MarshalEntry(d.Entry)
	require.NoError(c.t, err)
	e, err := run.UnmarshalEntry(raw)
	require.NoError(c.t, err)
	c.s, err = run.ApplyEntry(c.s, e)
	require.NoError(c.t, err)
}

// turn asks the model, commits what it said and answers its calls.
func (c *talk) turn(m Model) {
	c.t.Helper()
	r, system := prompt.BuildRequest(&c.def, &c.s, policy.Next(&c.def, &c.s), c.def.System)
	reply, err := m.Generate(context.Background(), r)
	require.NoError(c.t, err)
	c.commit(policy.PlanReply(&c.def, &c.s, reply, 1, system))
	for _, call := range c.s.Live {
		if call.Open() {
			c.commit(run.CallFinished{Call: call.ID, Ran: true, Content: "found"})
		}
	}
}

// assistantContent are the blocks of the model's n-th message in a request.
func assistantContent(t *testing.T, r standins.BedrockRequest, n int) []json.RawMessage {
	t.Helper()
	var body struct {
		Messages []struct {
			Role    string
			Content []json.RawMessage
		}
	}
	require.NoError(t, json.Unmarshal(r.Body, &body))
	for _, m := range body.Messages {
		if m.Role == "assistant" {
			if n == 0 {
				return m.Content
			}
			n--
		}
	}
	t.Fatal("the request has not so many messages of the model's")
	return nil
}

func requireSent(t *testing.T, r standins.BedrockRequest, turn int, want ...standins.Block) {
	t.Helper()
	got := assistantContent(t, r, turn)
	require.Len(t, got, len(want))
	for i, b := range want {
		require.JSONEq(t, string(b.Whole), string(got[i]))
	}
}

// Reasoning goes out again as it came in, before the calls of its turn, as long as the tool loop goes on: the fake
// takes back only what it has sent, byte for byte.
func TestReasoningRoundTrip(t *testing.T) {
	first := []standins.Block{
		standins.Reasoning("EqQBCkYIBxgCKkA+/==", "Where <is> it?", " é\u2028\"\\\n", "\t"), standins.Redacted(everyByte()[:100], everyByte()[100:]),
		standins.Text("Let me ", "see."), standins.ToolUse("a", "get", `{"x":`, `1.0}`), standins.Reasoning("omitted+/="), standins.ToolUse("b", "get"),
	}
	second := []standins.Block{standins.Redacted([]byte("\xff\x00")), standins.Text("x"), standins.Reasoning("s2", "y"), standins.Text("z"), standins.ToolUse("c", "get", `{}`)}
	m, server := against(t, Model{}, blocks(first...), blocks(second...), blocks(standins.Reasoning("s3", "w"), standins.Text("done"), standins.Reasoning("s4", "v")), blocks(standins.Text("yes")))
	c := newTalk(t)
	c.turn(m)
	c.turn(m)
	c.turn(m)
	a := policy.Next(&c.def, &c.s)
	require.Equal(t, policy.ActEnd, a.Kind)
	require.JSONEq(t, `"done"`, string(a.End.Output))
	c.commit(run.InputReceived{Slot: 1, ID: "m", Blocks: []run.UserBlock{{Block: run.Text{Text: "Sure?"}}}})
	c.turn(m)
	requests := server.Requests()
	require.Len(t, requests, 4)
	for i, r := range requests[1:] {
		requireSent(t, r, 0, first...)
		if i > 0 {
			requireSent(t, r, 1, second...)
		}
	}
	requireSent(t, requests[3], 2, standins.Reasoning("s3", "w"), standins.Text("done"))
}

// A model is not shown what another one reasoned, and the conversation goes on without it.
func TestReasoningOfAnotherModel(t *testing.T) {
	m, server := against(t, Model{}, blocks(standins.Reasoning("s", "x"), standins.ToolUse("a", "get", `{}`)), blocks(standins.ToolUse("b", "get", `{}`)), blocks(standins.Text("done")))
	c := newTalk(t)
	c.turn(m)
	c.def.Model.ID = "us.anthropic.claude-x"
	c.turn(m)
	c.def.Model.ID = "eu.anthropic.claude-x"
	c.turn(m)
	requireSent(t, server.Requests()[1], 0, standins.ToolUse("a", "get", `{}`))
	requireSent(t, server.Requests()[2], 0, standins.Reasoning("s", "x"), standins.ToolUse("a", "get", `{}`))
}

func thinks(b run.Reasoning) run.Message { return assistant(b) }

// A call whose input is no JSON keeps the reasoning before it, so that the model can be told and go on.
func TestMalformedInputBesideReasoning(t *testing.T) {
	think, bad := standins.Reasoning("sig", "hm"), standins.ToolUse("a", "get", `{"x"`, `: <1`)
	m, server := against(t, Model{}, blocks(think, bad), blocks(standins.Text("sorry")))
	c := newTalk(t)
	r, _ := prompt.BuildRequest(&c.def, &c.s, policy.Next(&c.def, &c.s), c.def.System)
	reply, err := m.Generate(context.Background(), r)
	require.NoError(t, err)
	require.Equal(t, []agent.ReplyCall{call("a", "get", `{"x": <1`)}, reply.Calls)
	c.commit(policy.PlanReply(&c.def, &c.s, reply, 1, ""))
	c.commit(run.CallFinished{Call: "a", IsError: true, Reason: run.WhyInvalidArguments, Content: "no JSON"})
	c.turn(m)
	requireSent(t, server.Requests()[1], 0, think, standins.ToolUse("a", "get", `{"malformed_input":"{\"x\": <1"}`))
}

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
}

// The model's own fields go out byte for byte: they are what turns reasoning on.
func TestOptions(t *testing.T) {
	const options = `{"thinking":{"type":"enabled","budget_tokens":2048},"a":1.10}`
	r := agent.Request{Model: agent.ModelSpec{ID: "m", Options: json.RawMessage(options)}, Messages: []run.Message{ask("a")}}
	require.Contains(t, string(sent(t, Model{}, r).Body), `"additionalModelRequestFields":`+options)
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
		{"Nova", whole(nova), agent.CacheFiveMinutes, "s24", ""},
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
