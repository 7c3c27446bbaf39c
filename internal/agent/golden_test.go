package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files that are generated; stored journals are only ever added")

const (
	golden        = "testdata/journal-v1"
	goldenJournal = golden + ".jsonl"
)

// goldens are stored journals by the name of their files: <name>.jsonl, and <name>.state.json, what that was folded to when it was written.
var goldens = map[string]func() [][]Event{
	golden: goldenRun, golden + "-reasoning": goldenReasoning, golden + "-output": goldenOutput, golden + "-static": goldenStaticRun,
	golden + "-repaired": goldenRepaired, golden + "-textdropped": goldenTextDropped,
}

// TestStoredJournalStillFolds is invariant 9: a journal that an earlier version wrote folds to a state whose fields known at
// that time are equal. The files are never rewritten; a new form gets new ones.
func TestStoredJournalStillFolds(t *testing.T) {
	all := maps.Clone(goldens)
	maps.Copy(all, goldenPlans())
	for name, run := range all {
		if *update {
			addGolden(t, name, AgentState{}, run())
		}
		requireGoldenState(t, name, fold(t, AgentState{}, unmarshalled(t, linesOf(t, name+".jsonl"))))
	}
}

// requireGoldenState wants a journal's state to be what it was when its files were written.
func requireGoldenState(t *testing.T, name string, s AgentState) {
	t.Helper()
	got, err := json.Marshal(s)
	require.NoError(t, err)
	want, err := os.ReadFile(name + ".state.json")
	require.NoError(t, err)
	requireKnownFields(t, name, decoded(t, want), decoded(t, got))
}

// TestStoredJournalHasEveryEvent, or what it proves is less than it says.
func TestStoredJournalHasEveryEvent(t *testing.T) {
	have := map[string]bool{}
	for _, line := range everyGoldenLine(t) {
		e, err := UnmarshalEntry(line)
		require.NoError(t, err)
		for _, ev := range e.Events {
			have[EventType(ev)] = true
		}
	}
	for name := range eventTypes {
		require.True(t, have[name], "%s is in no golden file", name)
	}
}

// requireKnownFields: what want has, got has and it is equal; got may have more keys.
func requireKnownFields(t *testing.T, at string, want, got any) {
	t.Helper()
	switch want := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		require.True(t, ok, at)
		for key, v := range want {
			require.Contains(t, g, key, at)
			requireKnownFields(t, at+"."+key, v, g[key])
		}
	case []any:
		g, ok := got.([]any)
		require.True(t, ok, at)
		require.Len(t, g, len(want), at)
		for i, v := range want {
			requireKnownFields(t, at, v, g[i])
		}
	default:
		require.Equal(t, want, got, at)
	}
}

func decoded(t *testing.T, raw []byte) any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	require.NoError(t, d.Decode(&v))
	return v
}

// addGolden writes a journal's files if there are none: what follows the seed, entry by entry.
func addGolden(t *testing.T, name string, seed AgentState, run [][]Event) {
	t.Helper()
	if _, err := os.Stat(name + ".jsonl"); !errors.Is(err, fs.ErrNotExist) {
		require.NoError(t, err)
		return
	}
	var journal bytes.Buffer
	s := seed
	for _, events := range run {
		d := NewDraft(s, "w1", worldTime(s.Entries))
		require.NoError(t, d.Add(events...))
		d.Mark(kindsOf(d.Entry.Events)...)
		require.NoError(t, d.Snap())
		raw, err := MarshalEntry(d.Entry)
		require.NoError(t, err)
		journal.Write(append(raw, '\n'))
		s = d.Committed()
	}
	state, err := json.MarshalIndent(s, "", "  ")
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
	require.NoError(t, os.WriteFile(name+".jsonl", journal.Bytes(), 0o644))
	require.NoError(t, os.WriteFile(name+".state.json", append(state, '\n'), 0o644))
}

// goldenRun is one run with every kind of event, entry by entry.
func goldenRun() [][]Event {
	later := worldEpoch.Add(worldExpiry)
	in := json.RawMessage(`{"amount":100.10,"to":"A & B"}`)
	start := RunStarted{
		Tenant: "default", Run: "r1", Agent: "billing", Version: "3", Definition: "d1", HooksVersion: "h1", Owner: "r1-0", BodyDigest: "b1",
		Subject: "customer 5", AccessControl: "team:a", Input: json.RawMessage(`{"customer":5}`), MaxInteractions: 5,
		Messages: []UserBlock{{Text{"Settle customer 5."}}, {Media{Name: "scan", MediaType: "image/png", Data: "iVBORw=="}}},
	}
	first := Replied{
		Inference: 1, Model: "m", Requests: 2, Usage: Usage{Input: 90, Output: 30, CacheRead: 8, CacheWrite: 4}, Units: 120, Text: "One moment.", Stop: "tool_calls", System: "s1",
		Calls: []RepliedCall{
			{ID: "c1", Name: "ledger_read", Tool: "ledger.read", Effect: EffectRead, Input: json.RawMessage(`{}`)},
			{ID: "c2", Name: "payments_send", Tool: "payments.send", Effect: EffectNonIdempotent, Input: in},
			{ID: "c3", Name: "letters_send", Tool: "letters.send", Effect: EffectNonIdempotent, Input: json.RawMessage(`{}`)},
			{ID: "c4", Name: "audit", Effect: EffectNonIdempotent, Input: json.RawMessage(`{}`)},
			{ID: "c5", Name: "ghost", Input: json.RawMessage(`{}`)},
		},
	}
	return [][]Event{
		{start},
		{first},
		{
			CallSuspended{Call: "c2", Approval: "a2", Digest: "x2", Expires: later}, CallSuspended{Call: "c3", Approval: "a3", Digest: "x3", Expires: later},
			CallClaimed{Call: "c4"}, CallFinished{Call: "c5", IsError: true, Reason: WhyUnknownTool, Content: "There is no tool ghost."},
		},
		{
			CallFinished{Call: "c1", Ran: true, Content: "balance 40", Media: []Media{{Name: "chart", MediaType: "image/png", Blob: "b9"}}},
			CallUnknown{Call: "c4", Approval: "a4", Expires: later}, Parked{Expires: later},
		},
		{
			Resumed{}, InputReceived{Slot: 1, ID: "m1", By: "user:ana", Blocks: []UserBlock{{Text{"Quickly, please."}}}},
			Decided{Slot: 2, Call: "c2", Approval: "a2", Action: ActionApprove, By: "user:ana", Note: "less", Args: json.RawMessage(`{"amount":40}`), Digest: "x2e"},
			CallClaimed{Call: "c2"},
		},
		{CallFinished{Call: "c2", Content: "payment p1"}, Parked{Expires: later}},
		{Resumed{}, HandedOver{Owner: "r1-1"}, Answered{Slot: 3, Call: "c4", Rerun: true, NotRun: true, By: "user:ana"}, CallClaimed{Call: "c4"}},
		{LateResult{Slot: 4, Call: "c4", Writer: "w1", Content: "audited", Blob: "b8"}, CallCancelled{Call: "c3", Reason: WhyExpired, Content: TextExpired()}},
		{Replied{Inference: 2, Model: "m", Requests: 1, Usage: Usage{Input: 200, Output: 9}, Units: 209, Text: "Paid 40; the letter was not sent."}},
		{InputReceived{Slot: 5, ID: "m2", By: "user:ana", Blocks: []UserBlock{{Text{"Send it after all."}}}}},
		{Evicted{Total: 2, Summary: "Somebody asked to settle customer 5."}, Replied{Inference: 3, Model: "m", Requests: 1, Usage: Usage{Input: 220, Output: 5}, Units: 225, Calls: []RepliedCall{{ID: "c6", Name: "letters_send", Tool: "letters.send", Effect: EffectNonIdempotent, Input: json.RawMessage(`{}`)}}}},
		{CancelRun("user:ana", "never mind")},
	}
}

// goldenReasoning is a run whose model reasons before, within and behind what it says.
func goldenReasoning() [][]Event {
	call := []RepliedCall{{ID: "c1", Name: "look", Effect: EffectRead, Input: json.RawMessage(`{}`)}}
	return [][]Event{
		{RunStarted{Tenant: "default", Run: "r2", Agent: "a", Definition: "d1", Owner: "r2-0", MaxInteractions: 5, Messages: []UserBlock{{Text{"Look."}}}}},
		{Replied{Inference: 1, Model: "m", Requests: 1, Usage: Usage{Input: 9, Output: 3}, Units: 12, Text: "I will look.", Calls: call, Reasoning: []RepliedReasoning{
			{Text: "Where <is> it?", Signature: "c2ln+/=", Provider: "bedrock", Model: "m"},
			{Redacted: []byte{0, 1, 254, 255}, Provider: "bedrock", Model: "m", AfterText: 2},
			{Text: "And now?", Provider: "bedrock", Model: "m", AfterText: 12, AfterCalls: 1},
		}}},
		{CallFinished{Call: "c1", Ran: true, Content: "there"}},
		{Replied{Inference: 2, Model: "m", Requests: 1, Usage: Usage{Input: 20, Output: 2}, Units: 22, Text: "There.", Reasoning: []RepliedReasoning{{Signature: "omitted", Provider: "bedrock", Model: "m"}}}},
	}
}

// goldenOutput is a run whose output is judged: refused in the conversation, refused in passing, summed up in vain, and, after one more
// message, well.
func goldenOutput() [][]Event {
	reply := func(n int64, text string) Replied {
		return Replied{Inference: n, Model: "m", Requests: 1, Usage: Usage{Input: 9, Output: 3}, Units: 12, Text: text}
	}
	kept, passing, last, static, well := reply(1, "ten"), reply(2, "[no reply]"), reply(3, "11"), reply(4, ""), reply(5, `{"total":10.0}`)
	kept.Correction = &Correction{Lifecycle: LifecycleOutputError, Text: `{"type":"error","name":"invalid_output"}`}
	passing.Correction = &Correction{Lifecycle: LifecycleOutputError, Text: "Again.", Ephemeral: true}
	last.Summary, last.Correction = true, &Correction{Text: "it does not fit"}
	static.Summary, static.Static = true, "The model gave no summary."
	well.Summary = true
	input := func(slot int64) InputReceived {
		return InputReceived{Slot: slot, ID: "m", Blocks: []UserBlock{{Text{"And?"}}}}
	}
	return [][]Event{
		{RunStarted{Tenant: "default", Run: "r3", Agent: "a", Definition: "d1", Owner: "r3-0", MaxInteractions: 2, Messages: []UserBlock{{Text{"Add up."}}}}},
		{kept}, {passing}, {last, input(1)}, {static, input(2)},
		{well, Finished{Reason: ReasonNaturalEnd, Output: json.RawMessage(`{"total":10.0}`), History: true}},
	}
}

// goldenTextDropped is a run whose model said something beside a call that its preset does not keep.
func goldenTextDropped() [][]Event {
	return [][]Event{
		{RunStarted{Tenant: "default", Run: "r3", Agent: "a", Definition: "d1", Owner: "r3-0", MaxInteractions: 2, Messages: []UserBlock{{Text{"Look."}}}}},
		{Replied{
			Inference: 1, Model: "m", Requests: 1, Usage: Usage{Input: 9, Output: 3}, Units: 12, TextDropped: true,
			Calls: []RepliedCall{{ID: "c1", Name: "look", Effect: EffectRead, Input: json.RawMessage(`{}`)}},
		}},
		{CallFinished{Call: "c1", Ran: true, Content: "there"}},
		{Replied{Inference: 2, Model: "m", Requests: 1, Usage: Usage{Input: 20, Output: 2}, Units: 22, Text: "There."}},
	}
}
