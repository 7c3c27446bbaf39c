package stream_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/web/stream"
)

// A reply is text of the message while it is written. What an attempt has written that failed, or what turns out not to
// be the reply, is taken back; nothing is there twice.
func TestChatLive(t *testing.T) {
	piece := func(attempt int, kind agent.DeltaKind, text string) stream.Delta {
		return stream.Delta{Inference: 1, Attempt: attempt, Delta: agent.Delta{Kind: kind, Text: text}}
	}
	said := replied(1, "Hello")
	said.Reasoning = []run.RepliedReasoning{{Reasoning: run.Reasoning{Text: "Hm."}}}
	all, state := eventsOf(t, []run.Event{started(nil)}, []run.Event{said})
	events := all[1]
	for name, c := range map[string]struct {
		live []stream.Delta
		want []string
	}{
		"none": {nil, []string{"start-step", "reasoning-start", "reasoning-delta Hm.", "reasoning-end", "text-start", "text-delta Hello", "text-end"}},
		"a part": {
			[]stream.Delta{piece(0, agent.DeltaReasoning, "H"), piece(0, agent.DeltaReasoning, "m."), piece(0, agent.DeltaText, "He")},
			[]string{"start-step", "reasoning-start", "reasoning-delta H", "reasoning-delta m.", "reasoning-end", "text-start", "text-delta He", "text-delta llo", "text-end"},
		},
		"two attempts": {
			[]stream.Delta{piece(0, agent.DeltaText, "Hell"), piece(1, agent.DeltaReasoning, "Hm.")},
			[]string{"start-step", "text-start", "text-delta Hell", "reset-step", "reasoning-start", "reasoning-delta Hm.", "reasoning-end", "text-start", "text-delta Hello", "text-end"},
		},
		"another text": {
			[]stream.Delta{piece(0, agent.DeltaText, "<call>")},
			[]string{"start-step", "text-start", "text-delta <call>", "reset-step", "reasoning-start", "reasoning-delta Hm.", "reasoning-end", "text-start", "text-delta Hello", "text-end"},
		},
		"a call": {
			[]stream.Delta{piece(0, agent.DeltaCall, "{")},
			[]string{"start-step", "reasoning-start", "reasoning-delta Hm.", "reasoning-end", "text-start", "text-delta Hello", "text-end"},
		},
	} {
		chat := stream.NewChat(nil, nil, nil, nil)
		var got []string
		for _, d := range c.live {
			got = append(got, chunks(t, chat.Live(d))...)
		}
		entry, err := chat.Entry(events, &state)
		require.NoError(t, err)
		require.Equal(t, append(c.want, "finish-step"), append(got, chunks(t, entry)...), name)
	}
}

// chunks are the types of chunks, with their texts.
func chunks(t *testing.T, all []stream.Encoded) (out []string) {
	t.Helper()
	for _, e := range all {
		raw, err := json.Marshal(e.Body)
		require.NoError(t, err)
		var body struct{ Type, Delta string }
		require.NoError(t, json.Unmarshal(raw, &body))
		if body.Delta != "" {
			body.Type += " " + body.Delta
		}
		out = append(out, body.Type)
	}
	return out
}

// What a run gives that no reply has said, as a plan's answer, is text of the message, whether it came live or not; what
// a reply has said is there once.
func TestChatResult(t *testing.T) {
	ends := run.Finished{Reason: run.ReasonNaturalEnd, Output: json.RawMessage(`"Hello there"`)}
	live := stream.Delta{Inference: 2, Delta: agent.Delta{Kind: agent.DeltaText, Text: "Hello "}}
	text := []string{"start-step", "text-start", "text-delta Hello there", "text-end", "finish-step"}
	for said, c := range map[string]struct {
		live []stream.Delta
		want []string
	}{
		"Hello there": {nil, nil}, " Hello there\n": {nil, nil}, "there": {nil, nil}, "": {nil, text}, "I look.": {nil, text}, "Hello": {nil, text},
		"I plan.": {[]stream.Delta{live}, []string{"start-step", "text-start", "text-delta Hello ", "text-delta there", "text-end", "finish-step"}},
	} {
		all, state := eventsOf(t, []run.Event{started(nil)}, []run.Event{replied(1, said)}, []run.Event{ends})
		chat := stream.NewChat(nil, nil, nil, nil)
		_, err := chat.Entry(all[1], &state)
		require.NoError(t, err)
		var got []string
		for _, d := range c.live {
			got = append(got, chunks(t, chat.Live(d))...)
		}
		entry, err := chat.Entry(all[2], &state)
		require.NoError(t, err)
		require.Equal(t, c.want, append(got, chunks(t, entry)...), "%q", said)
		require.True(t, chat.IsOver())
	}
}
