package run_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/prompt"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/tool"
)

// Whatever bytes a model answers with, the fact of it can be stored, and whoever reads it back has what its writer had.
func TestPropertyAnyReplyCanBeStored(t *testing.T) {
	bytes := func(t *rapid.T, name string) string {
		return string(rapid.SliceOfN(rapid.SampledFrom([]byte("a<\xc3\xa9\xff\xe2\x82\"\n\x00")), 0, 8).Draw(t, name))
	}
	d := agent.Definition{Batch: agent.BatchHighestPriority, Tools: []agent.ToolSpec{{Name: "look", Priority: 1}}, TextBesideCalls: agent.TextBesideKeep}
	begun := started(t)
	rapid.Check(t, func(t *rapid.T) {
		r := agent.Reply{Model: bytes(t, "model"), Text: bytes(t, "text"), StopReason: bytes(t, "stop")}
		for range rapid.IntRange(0, 3).Draw(t, "calls") {
			name := rapid.SampledFrom([]string{"look", bytes(t, "name")}).Draw(t, "tool")
			r.Calls = append(r.Calls, agent.ReplyCall{ID: bytes(t, "id"), Name: name, Input: json.RawMessage(bytes(t, "input"))})
		}
		for range rapid.IntRange(0, 4).Draw(t, "thoughts") {
			r.Reasoning = append(r.Reasoning, run.RepliedReasoning{
				Reasoning: run.Reasoning{Text: bytes(t, "thought"), Provider: bytes(t, "provider"), Redacted: append([]byte(nil), bytes(t, "redacted")...)},
				AfterText: rapid.IntRange(-1, 9).Draw(t, "after text"), AfterCalls: rapid.IntRange(-1, 4).Draw(t, "after calls"),
			})
		}
		s := begun
		draft := run.NewDraft(s, "w1", worldTime(1))
		require.NoError(t, draft.Add(policy.PlanReply(&d, &s, r, 1, "")))
		require.Equal(t, exact(t, draft.Committed()), exact(t, fold(t, s, stored(t, []run.Entry{draft.Entry}))))
	})
}

// A call whose arguments are not all there, whatever cut the reply, is refused: it could be another one than was meant.
func TestCallCutInItsArguments(t *testing.T) {
	d := agent.Definition{Model: agent.ModelSpec{Repair: agent.RepairOn},
		Tools: []agent.ToolSpec{{Name: "look", Effect: run.EffectRead, Schema: json.RawMessage(`{"type":"object"}`)}}}
	for _, stop := range []string{"length", "model_length", "max_tokens", "content_filter", "guardrail_intervened"} {
		for _, input := range []string{"", `{"n": 12`} {
			draft := run.NewDraft(started(t), "w1", worldTime(1))
			require.NoError(t, draft.Add(policy.PlanReply(&d, &draft.State, agent.Reply{Model: "m", StopReason: stop,
				Calls: []agent.ReplyCall{{ID: "c1", Name: "look", Input: json.RawMessage(input)}}}, 1, "")))
			g := policy.GateHooked(&d, &draft.State, draft.State.Live[0], agent.PluginGate{}, tool.Validate, worldTime(1))
			require.NotNil(t, g.Refuse, stop)
			require.Equal(t, run.WhyInvalidArguments, g.Refuse.Reason)
		}
	}
}

// replies draws a reply and the blocks it is made of, in order, as a provider with texts before calls sends them.
func replies(t *rapid.T) (r agent.Reply, blocks []string) {
	calls := rapid.IntRange(0, 4).Draw(t, "calls")
	for _, kind := range rapid.SliceOfN(rapid.SampledFrom([]string{"text", "thought", "redacted"}), 0, 6).Draw(t, "before the calls") {
		blocks = append(blocks, addBlock(t, &r, kind))
	}
	for range calls {
		blocks = append(blocks, addBlock(t, &r, "call"))
		for range rapid.IntRange(0, 2).Draw(t, "thoughts") {
			blocks = append(blocks, addBlock(t, &r, rapid.SampledFrom([]string{"thought", "redacted"}).Draw(t, "kind")))
		}
	}
	return r, blocks
}

// addBlock adds a block of a kind to a reply.
func addBlock(t *rapid.T, r *agent.Reply, kind string) string {
	place := func(b run.Reasoning) string {
		b.Provider, b.Model = "bedrock", "m"
		r.Reasoning = append(r.Reasoning, run.RepliedReasoning{Reasoning: b, AfterText: len(r.Text), AfterCalls: len(r.Calls)})
		return "thought " + b.Text + "|" + b.Signature + "|" + string(b.Redacted)
	}
	switch kind {
	case "text":
		s := rapid.StringN(1, 5, -1).Draw(t, "text")
		r.Text += s
		return "text " + s
	case "thought":
		return place(run.Reasoning{Text: rapid.String().Draw(t, "thought"), Signature: rapid.StringN(1, 20, -1).Draw(t, "signature")})
	case "redacted":
		return place(run.Reasoning{Redacted: rapid.SliceOfN(rapid.Byte(), 1, 30).Draw(t, "redacted")})
	default:
		id := fmt.Sprintf("k%d", len(r.Calls))
		r.Calls = append(r.Calls, agent.ReplyCall{ID: id, Name: "look", Input: json.RawMessage(`{}`)})
		return "call " + id
	}
}

// joined is blocks with neighbouring texts as one: between two texts nothing stood that has to be kept.
func joined(blocks []string) []string {
	var out []string
	for _, b := range blocks {
		said, isText := strings.CutPrefix(b, "text ")
		if n := len(out); isText && n > 0 && strings.HasPrefix(out[n-1], "text ") {
			out[n-1] += said
			continue
		}
		out = append(out, b)
	}
	return out
}

// Whatever a model's reply is made of, the request that shows it the calls' results has every block of it, byte for byte and in
// order; also for a reader of the stored journal, and for one that begins at a snapshot.
func TestPropertyRepliesAreSentBackAsTheyWere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, blocks := replies(t)
		d := agent.Definition{Batch: agent.BatchAll, System: "Be brief.", TextBesideCalls: agent.TextBesideKeep, Tools: []agent.ToolSpec{{Name: "look", Effect: run.EffectRead}}}
		var s run.AgentState
		var journal []run.Entry
		commit := func(events ...run.Event) {
			d := run.NewDraft(s, "w1", worldTime(s.Entries))
			require.NoError(t, d.Add(events...))
			require.NoError(t, d.Snap())
			journal, s = append(journal, d.Entry), d.Committed()
		}
		commit(run.RunStarted{Tenant: "default", Run: "r1", Agent: "a", Definition: "d", Owner: "r1-0", MaxInteractions: 9, Messages: []run.UserBlock{{Block: run.Text{Text: "Begin."}}}})
		commit(policy.PlanReply(&d, &s, r, 1, ""))
		for _, c := range s.Live {
			commit(run.CallFinished{Call: c.ID, Ran: true, Content: "ok"})
		}
		commit(run.InputReceived{Slot: 1, ID: "m", Blocks: []run.UserBlock{{Block: run.Text{Text: "Go on."}}}}, run.Evicted{Total: 1, Summary: "Somebody began."})
		journal = stored(t, journal)
		part, ok, err := run.Restore(journal[s.ReadFrom():])
		require.NoError(t, err)
		require.True(t, ok)
		for _, s := range []run.AgentState{s, fold(t, run.AgentState{}, journal), part} {
			req, _ := prompt.BuildRequest(&d, &s, policy.Action{Kind: policy.ActInfer, Lifecycle: run.LifecycleInput}, "")
			require.Equal(t, joined(blocks), modelBlocks(req.Messages))
		}
	})
}

func modelBlocks(messages []run.Message) []string {
	var out []string
	for _, m := range messages {
		switch b := m.Block.(type) {
		case run.Reasoning:
			out = append(out, "thought "+b.Text+"|"+b.Signature+"|"+string(b.Redacted))
		case run.ToolUse:
			out = append(out, "call "+b.ID)
		case run.Text:
			if m.Role == run.RoleAssistant {
				out = append(out, "text "+b.Text)
			}
		}
	}
	return out
}

// A result is late where the model has spoken since it made the call, until an inference has carried it.
func TestLateResultsAreNamed(t *testing.T) {
	d := worldDefinition(func(d *agent.Definition) { d.Wait, d.Limits.Interactions = run.WaitAllSuspended, 9 })
	s := commit(t, run.AgentState{}, "w1", (&world{def: d}).start())
	late := func(events ...run.Event) []string {
		s = then(t, s, events...)
		r, _ := prompt.BuildRequest(&d, &s, policy.Next(&d, &s), "")
		return r.Late
	}
	require.Empty(t, late(called(1, "a", "r"), suspend("a"), ran("r", "1")))
	require.Equal(t, []string{"a"}, late(text(2, "So."), decision(1, "a", run.ActionDeny)))
	require.Empty(t, late(called(3, "r3"), ran("r3", "3")), "an inference has carried it")
}

// A run's execution units are the tokens of its replies and notes, those of a provider's cache as well.
func TestExecutionUnits(t *testing.T) {
	r := agent.Reply{Model: "m", Text: "Done.", Usage: run.Usage{Input: 1, Output: 2, CacheRead: 4, CacheWrite: 8}}
	require.EqualValues(t, 15, policy.PlanReply(&agent.Definition{}, &run.AgentState{}, r, 1, "").Units)
	require.EqualValues(t, 15, prompt.Summarised(&agent.Definition{}, run.Evicted{}, r, 1).Units)
}
