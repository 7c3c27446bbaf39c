package agent

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func thought(text string) Reasoning {
	return Reasoning{Text: text, Signature: "sig:" + text, Provider: "bedrock", Model: "m"}
}

func at(r Reasoning, text, calls int) ReplyReasoning { return ReplyReasoning{r, text, calls} }

// commitReply commits a reply to a run that has just started.
func commitReply(t *testing.T, d Definition, r Reply) AgentState {
	t.Helper()
	s := started(t)
	return commit(t, s, "w1", PlanReply(&d, &s, r, 1, ""))
}

// turnOf is the model's newest turn in short.
func turnOf(s AgentState) string {
	var words []string
	for _, m := range s.Messages.All() {
		if m.Role != RoleAssistant {
			continue
		}
		switch b := m.Block.(type) {
		case Text:
			words = append(words, "text "+b.Text)
		case ToolUse:
			words = append(words, "call "+b.ID)
		case Reasoning:
			words = append(words, "thought "+b.Text)
		}
	}
	return strings.Join(words, ", ")
}

func TestReasoningKeepsItsPlace(t *testing.T) {
	calls := []ReplyCall{{ID: "a", Name: "look"}, {ID: "b", Name: "wire"}}
	look, wire := ToolSpec{Name: "look"}, ToolSpec{Name: "wire", Priority: 1}
	all := Definition{Batch: BatchAll, TextBesideCalls: TextBesideKeep}
	tests := []struct {
		name  string
		def   Definition
		reply Reply
		want  string
	}{
		{"before everything", all, Reply{Text: "x", Calls: calls, Reasoning: []ReplyReasoning{at(thought("1"), 0, 0), at(thought("2"), 0, 0)}},
			"thought 1, thought 2, text x, call a, call b"},
		{"within text", all, Reply{Text: "xyz", Reasoning: []ReplyReasoning{at(thought("1"), 1, 0), at(thought("2"), 3, 0)}},
			"text x, thought 1, text yz, thought 2"},
		{"between calls", all, Reply{Text: "x", Calls: calls, Reasoning: []ReplyReasoning{at(thought("1"), 0, 1), at(thought("2"), 1, 2)}},
			"text x, call a, thought 1, call b, thought 2"},
		{"alone", all, Reply{Reasoning: []ReplyReasoning{at(thought("1"), 0, 0)}}, "thought 1"},
		{"text is dropped beside calls", Definition{Batch: BatchAll, TextBesideCalls: TextBesideDrop},
			Reply{Text: "xyz", Calls: calls, Reasoning: []ReplyReasoning{at(thought("1"), 2, 0)}}, "thought 1, call a, call b"},
		{"a call before it is dropped", Definition{Batch: BatchHighestPriority, Tools: []ToolSpec{look, wire}, TextBesideCalls: TextBesideKeep},
			Reply{Text: "xy", Calls: calls, Reasoning: []ReplyReasoning{at(thought("1"), 1, 0), at(thought("2"), 2, 1)}}, "text x, thought 1, text y, thought 2, call b"},
		{"behind a dropped call is behind the text", Definition{Batch: BatchHighestPriority, Tools: []ToolSpec{look, wire}, TextBesideCalls: TextBesideKeep},
			Reply{Text: "xy", Calls: calls, Reasoning: []ReplyReasoning{at(thought("1"), 0, 1)}}, "text xy, thought 1, call b"},
		{"a call behind it is dropped", Definition{Batch: BatchFirst, TextBesideCalls: TextBesideKeep},
			Reply{Calls: calls, Reasoning: []ReplyReasoning{at(thought("1"), 0, 1)}}, "call a, thought 1"},
		{"places that make no sense", all, Reply{Text: "é", Calls: calls, Reasoning: []ReplyReasoning{at(thought("1"), 1, -1), at(thought("2"), 99, 99), at(thought("3"), -5, 0)}},
			"thought 1, text é, call a, call b, thought 2, thought 3"},
		{"what cannot be kept as it is", all, Reply{Text: "x", Reasoning: []ReplyReasoning{at(Reasoning{Text: "\xff", Signature: "s"}, 0, 0), at(Reasoning{Text: "t", Signature: "\xff"}, 0, 0), at(Reasoning{Provider: "p"}, 0, 0)}},
			"text x"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := commitReply(t, tt.def, tt.reply)
			require.Equal(t, tt.want, turnOf(s))
			for _, m := range s.Messages.All() {
				if m.Role == RoleAssistant {
					require.EqualValues(t, 1, m.Seen(s.Inferences))
				}
			}
		})
	}
}

// Whatever bytes a model answers with, the fact of it can be stored, and whoever reads it back has what its writer had.
func TestPropertyAnyReplyCanBeStored(t *testing.T) {
	bytes := func(t *rapid.T, name string) string {
		return string(rapid.SliceOfN(rapid.SampledFrom([]byte("a<\xc3\xa9\xff\xe2\x82\"\n\x00")), 0, 8).Draw(t, name))
	}
	d := Definition{Batch: BatchHighestPriority, Tools: []ToolSpec{{Name: "look", Priority: 1}}, TextBesideCalls: TextBesideKeep}
	begun := started(t)
	rapid.Check(t, func(t *rapid.T) {
		r := Reply{Model: bytes(t, "model"), Text: bytes(t, "text"), StopReason: bytes(t, "stop")}
		for range rapid.IntRange(0, 3).Draw(t, "calls") {
			name := rapid.SampledFrom([]string{"look", bytes(t, "name")}).Draw(t, "tool")
			r.Calls = append(r.Calls, ReplyCall{ID: bytes(t, "id"), Name: name, Input: json.RawMessage(bytes(t, "input"))})
		}
		for range rapid.IntRange(0, 4).Draw(t, "thoughts") {
			r.Reasoning = append(r.Reasoning, ReplyReasoning{
				Reasoning{Text: bytes(t, "thought"), Provider: bytes(t, "provider"), Redacted: append([]byte(nil), bytes(t, "redacted")...)},
				rapid.IntRange(-1, 9).Draw(t, "after text"), rapid.IntRange(-1, 4).Draw(t, "after calls"),
			})
		}
		s := begun
		draft := NewDraft(s, "w1", worldTime(1))
		require.NoError(t, draft.Add(PlanReply(&d, &s, r, 1, "")))
		require.Equal(t, exact(t, draft.Committed()), exact(t, fold(t, s, stored(t, []Entry{draft.Entry}))))
	})
}

// replies draws a reply and the blocks it is made of, in order, as a provider with texts before calls sends them.
func replies(t *rapid.T) (r Reply, blocks []string) {
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
func addBlock(t *rapid.T, r *Reply, kind string) string {
	place := func(b Reasoning) string {
		b.Provider, b.Model = "bedrock", "m"
		r.Reasoning = append(r.Reasoning, ReplyReasoning{b, len(r.Text), len(r.Calls)})
		return "thought " + b.Text + "|" + b.Signature + "|" + string(b.Redacted)
	}
	switch kind {
	case "text":
		s := rapid.StringN(1, 5, -1).Draw(t, "text")
		r.Text += s
		return "text " + s
	case "thought":
		return place(Reasoning{Text: rapid.String().Draw(t, "thought"), Signature: rapid.StringN(1, 20, -1).Draw(t, "signature")})
	case "redacted":
		return place(Reasoning{Redacted: rapid.SliceOfN(rapid.Byte(), 1, 30).Draw(t, "redacted")})
	default:
		id := fmt.Sprintf("k%d", len(r.Calls))
		r.Calls = append(r.Calls, ReplyCall{ID: id, Name: "look", Input: json.RawMessage(`{}`)})
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
		d := Definition{Batch: BatchAll, System: "Be brief.", TextBesideCalls: TextBesideKeep, Tools: []ToolSpec{{Name: "look", Effect: EffectRead}}}
		l := &snapRun{t: t, at: worldEpoch}
		l.commit(RunStarted{Tenant: "default", Run: "r1", Agent: "a", Definition: "d", Owner: "r1-0", MaxInteractions: 9, Messages: []UserBlock{{Text{"Begin."}}}})
		l.commit(PlanReply(&d, &l.s, r, 1, ""))
		for _, c := range l.s.Live {
			l.commit(CallFinished{Call: c.ID, Ran: true, Content: "ok"})
		}
		l.commit(InputReceived{Slot: 1, ID: "m", Blocks: []UserBlock{{Text{"Go on."}}}}, Evicted{Total: 1, Summary: "Somebody began."})
		part, ok, err := Restore(l.entries[l.s.ReadFrom():])
		require.NoError(t, err)
		require.True(t, ok)
		for _, s := range []AgentState{l.s, fold(t, AgentState{}, stored(t, l.entries)), part} {
			req, _ := BuildRequest(&d, &s, Action{Kind: ActInfer, Lifecycle: LifecycleInput}, "")
			require.Equal(t, joined(blocks), modelBlocks(req.Messages))
		}
	})
}

func modelBlocks(messages []Message) []string {
	var out []string
	for _, m := range messages {
		switch b := m.Block.(type) {
		case Reasoning:
			out = append(out, "thought "+b.Text+"|"+b.Signature+"|"+string(b.Redacted))
		case ToolUse:
			out = append(out, "call "+b.ID)
		case Text:
			if m.Role == RoleAssistant {
				out = append(out, "text "+b.Text)
			}
		}
	}
	return out
}
