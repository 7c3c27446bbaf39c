package agent

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// FuzzUnmarshalEntry: what can be read can be written, and reads as the same.
func FuzzUnmarshalEntry(f *testing.F) {
	for _, line := range sampleLines(f) {
		f.Add(line)
	}
	f.Add([]byte(`{"v":2,"s":0,"w":"w","t":0,"e":[]}`))
	f.Add([]byte(`{"v":1,"s":0,"w":"w","t":0,"e":[{"parked":{},"resumed":{}}]}`))
	f.Add([]byte(`{"v":1,"s":0,"w":"w","t":0,"e":[{"input_received":{"slot":1,"id":"m","msgs":[{"type":"video"}]}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := UnmarshalEntry(data)
		if err != nil {
			return
		}
		once, err := MarshalEntry(e)
		require.NoError(t, err)
		back, err := UnmarshalEntry(once)
		require.NoError(t, err)
		require.Equal(t, e.Time, back.Time)
		twice, err := MarshalEntry(back)
		require.NoError(t, err)
		require.Equal(t, string(once), string(twice))
	})
}

// FuzzCanonicalJSON: whatever CompactJSON takes has one canonical form. It is JSON, its own canonical form, as large in digits as what it is
// of, and the same however the members are ordered and the strings are escaped.
func FuzzCanonicalJSON(f *testing.F) {
	for _, in := range []string{`{"b":1.50,"a":[null,true,"\u00e9\/"]}`, `{"\ud83d\ude00":1,"\ufb33":2,"a":1E400}`, `"\u2028"`, `[]`, `-0.0`} {
		f.Add([]byte(in))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		raw, err := CompactJSON(data, JSONLimits{})
		if err != nil {
			return
		}
		once, err := CanonicalJSON(raw)
		require.NoError(t, err)
		compact, err := CompactJSON([]byte(once), JSONLimits{Bytes: len(once) + 1})
		require.NoError(t, err)
		require.Equal(t, once, string(compact))
		twice, err := CanonicalJSON(compact)
		require.NoError(t, err)
		require.Equal(t, once, twice)
		want, err := asSpelled(raw)
		require.NoError(t, err)
		got, err := asSpelled(compact)
		require.NoError(t, err)
		require.Equal(t, want, got)
		spelled, err := MarshalVerbatim(want) // keys in another order, strings spelled otherwise
		require.NoError(t, err)
		again, err := CanonicalJSON(spelled)
		require.NoError(t, err)
		require.Equal(t, once, again)
	})
}

// asSpelled decodes JSON with its numbers as they are spelled.
func asSpelled(raw []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	return v, d.Decode(&v)
}

// FuzzFold throws facts at a run in any order, by any writer, three bytes each: which, about what, and how. Most are refused;
// those that are not keep the run well formed, and once it is done it stays as it is.
func FuzzFold(f *testing.F) {
	for _, script := range fuzzScripts {
		f.Add([]byte(script))
	}
	f.Add([]byte("\x00\x05\x01\x01\x00\x00\x02\x00\x00"))
	f.Fuzz(func(t *testing.T, script []byte) { foldScript(t, script) })
}

// TestAnyFactsKeepARunWellFormed is the same with long random scripts.
func TestAnyFactsKeepARunWellFormed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { foldScript(t, rapid.SliceOfN(rapid.Byte(), 150, 300).Draw(t, "script")) })
}

func foldScript(t require.TestingT, script []byte) {
	foldScriptUnder(t, worldDefinition(), script)
	for _, resume := range []ResumeMode{ResumeEach, ResumeAllAnswered, ResumeBatchAll} {
		foldScriptUnder(t, worldDefinition(func(d *Definition) { d.Wait, d.Resume = WaitAllSuspended, resume }), script)
	}
}

func foldScriptUnder(t require.TestingT, d Definition, script []byte) {
	s, err := ApplyEntry(AgentState{}, Entry{Writer: "w1", Time: worldEpoch, Events: []Event{(&world{def: d}).start()}})
	require.NoError(t, err)
	for ; len(script) >= 3 && s.Entries < 100; script = script[3:] {
		s = fuzzStep(t, &d, s, script[0], script[1], script[2])
	}
}

// fuzzStep applies one fact as an entry of its own; a refused one leaves the run as it was.
func fuzzStep(t require.TestingT, d *Definition, s AgentState, kind, about, how byte) AgentState {
	e := fuzzEvents[int(kind)%len(fuzzEvents)](&s, about, how)
	n, err := ApplyEntry(s, Entry{Seq: s.Entries, Writer: pick(how>>4, "w1", "w2"), Time: worldTime(s.Entries), Events: []Event{e}})
	if err != nil {
		require.Equal(t, s.Entries, n.Entries)
		require.NoError(t, wellFormed(&n))
		return n
	}
	require.NotEqual(t, RunDone, s.Status, "an entry after the end")
	require.NoError(t, sameOnceSettled(&s, &n, e))
	require.NoError(t, wellFormed(&n))
	_, err = json.Marshal(n)
	require.NoError(t, err)
	if a := Next(d, &n); a.Kind == ActInfer {
		require.NoError(t, answered(d, &n, a))
	}
	if n.Status != RunRunning {
		return n
	}
	d2 := NewDraft(n, "w1", worldTime(n.Entries))
	require.NoError(t, d2.Add(Early(d, &n, worldValid, worldTime(0).Add(-worldExpiry))...), "what is kept can always be settled")
	require.False(t, EarlyOwed(&d2.State))
	return n
}

func pick[T any](n byte, from ...T) T { return from[int(n)%len(from)] }

func fuzzCall(about byte) string { return pick(about, "a", "b", "c") }

// fuzzSlot is the next slot, one that is known, or one behind a gap; and none.
func fuzzSlot(s *AgentState, how byte) int64 {
	return pick(how, s.Drained+1, s.Drained+1, s.Drained+1, s.Drained, s.Drained+2, 0)
}

var fuzzEvents = []func(s *AgentState, about, how byte) Event{
	func(s *AgentState, about, how byte) Event {
		e := Replied{Inference: s.Inferences + int64(pick(how, 1, 1, 1, 0, 2)), Text: pick(how, "", "said")}
		for i := range about % 4 {
			e.Calls = append(e.Calls, RepliedCall{ID: fuzzCall(how + i), Name: "tool", Effect: pick(how+i, EffectRead, EffectNonIdempotent), Input: json.RawMessage(`{}`)})
		}
		for i := range about >> 2 % 3 {
			place := pick(how+i, 0, 0, 1, 4, 5)
			e.Reasoning = append(e.Reasoning, RepliedReasoning{Text: "t", AfterText: place, AfterCalls: pick(about+i, 0, 0, 1, 4)})
		}
		e.Dropped = pick(about>>5, "", "", "left out")
		e.Summary, e.Static = how>>6 == 1, pick(how>>4, "", "", "static")
		e.Correction = pick(how>>5, nil, nil, nil, nil, nil, &Correction{Lifecycle: LifecycleOutputError, Text: "no"},
			&Correction{Lifecycle: LifecycleOutputError, Text: "no", Ephemeral: true}, &Correction{Text: "no"})
		return e
	},
	func(_ *AgentState, about, _ byte) Event { return CallClaimed{Call: fuzzCall(about)} },
	func(_ *AgentState, about, how byte) Event {
		return CallFinished{Call: fuzzCall(about), Ran: how&1 == 0, IsError: how&2 == 0, Content: "x", Media: make([]Media, how>>2&1), Patch: fuzzPatch(how >> 3)}
	},
	func(_ *AgentState, about, how byte) Event {
		return CallSuspended{Call: fuzzCall(about), Approval: pick(how, "p", "q", ""), Digest: "d", Expires: worldEpoch}
	},
	func(_ *AgentState, about, how byte) Event {
		return CallUnknown{Call: fuzzCall(about), Approval: pick(how, "p", "q"), Expires: worldEpoch}
	},
	func(_ *AgentState, about, how byte) Event {
		return CallCancelled{Call: fuzzCall(about), Reason: pick(how, WhyExpired, WhySkipped)}
	},
	func(s *AgentState, about, how byte) Event {
		return Decided{Slot: fuzzSlot(s, about>>2), Call: fuzzCall(about), Approval: pick(how, "p", "q"), Action: pick(how>>1, ActionApprove, ActionDeny, ActionCancel)}
	},
	func(s *AgentState, about, how byte) Event {
		return Answered{Slot: fuzzSlot(s, about>>2), Call: fuzzCall(about), IsError: how&1 == 0, Rerun: how&2 == 0, NotRun: how&4 == 0, Patch: fuzzPatch(how >> 3)}
	},
	func(s *AgentState, about, how byte) Event {
		return LateResult{Slot: fuzzSlot(s, about>>2), Call: fuzzCall(about), IsError: how&1 == 0, Patch: fuzzPatch(how >> 3)}
	},
	func(s *AgentState, about, how byte) Event {
		return LateSuspended{Slot: fuzzSlot(s, about>>2), Call: fuzzCall(about), Writer: pick(how, "w1", "w2"), Ticket: pick(how>>2, &Ticket{}, &Ticket{Mode: TicketResult}, nil), Digest: "d", Expires: worldEpoch}
	},
	func(s *AgentState, about, how byte) Event {
		return InputReceived{Slot: fuzzSlot(s, about), Blocks: []UserBlock{{pick[Block](how, Text{"x"}, Media{Name: "x"}, ToolResult{ID: "a"})}}}
	},
	func(*AgentState, byte, byte) Event { return Resumed{} },
	func(*AgentState, byte, byte) Event { return Parked{Expires: worldEpoch} },
	func(_ *AgentState, _, how byte) Event { return HandedOver{Owner: pick(how, "x", "y", "")} },
	func(s *AgentState, about, how byte) Event {
		if about%4 > 0 { // or most runs would be short
			return Finished{Reason: ReasonNaturalEnd}
		}
		return pick(how, CancelRun("user:ana", "n"), Fail(CodeInternal, "x"), Finished{Reason: ReasonError})
	},
	func(_ *AgentState, about, how byte) Event {
		e := ContextBuilt{}
		for i := range about % 3 {
			e.Messages = append(e.Messages, BuiltMessage{Role: pick(how+i, RoleUser, RoleAssistant, ""), Content: UserBlock{pick[Block](about>>2, Text{"x"}, Media{Name: "x"}, ToolResult{ID: "a"})}, Seen: int64(how>>4&3) - 1})
		}
		return e
	},
	func(_ *AgentState, about, how byte) Event {
		ticket := pick(how>>4, &Ticket{ID: "s"}, &Ticket{Mode: TicketResult}, &Ticket{Pending: Pending{ID: "b"}, Mode: TicketPass}, nil)
		return CallSuspended{Call: fuzzCall(about), Approval: pick(how, "p", "q", "p2"), Digest: "d", Expires: worldEpoch, For: pick(about>>2, ForInput, ForInput, ForInput, ForApproval, ForOutcome), Ticket: ticket, Ran: how>>2&1 == 0}
	},
	func(s *AgentState, about, how byte) Event {
		return Decided{Slot: fuzzSlot(s, about>>2), Call: fuzzCall(about), Approval: pick(how, "p", "q", "p2"), Action: pick(how>>3, ActionApprove, ActionApprove, ActionCancel), Result: pick(how>>4, nil, json.RawMessage(`1`)), Early: pick(how>>6, "", "a", "s")}
	},
	func(s *AgentState, about, how byte) Event {
		return DecisionKept{Slot: fuzzSlot(s, about>>2), Target: pick(how, "a", "s", "b", ""), Action: pick(how>>2, ActionApprove, ActionDeny), By: pick(how>>4, "user:ana", "")}
	},
	func(_ *AgentState, about, _ byte) Event { return DecisionDropped{Target: pick(about, "a", "s", "z")} },
}

// fuzzPatch are changes that now and then meet, or fit nowhere.
func fuzzPatch(how byte) []Patch {
	one := Patch{Path: pick(how>>1, "/x", "/y", "/x/y", "no pointer"), Value: json.RawMessage(`1`)}
	return pick(how, nil, []Patch{one}, []Patch{{Path: "/z"}, one})
}

// fuzzScripts: a lost claim that is run again, an approval, and two rounds; numbers are places in fuzzEvents.
var fuzzScripts = []string{
	"\x00\x01\x00\x01\x00\x00\x04\x00\x10\x0b\x00\x00\x0a\x00\x00\x07\x00\x01\x01\x00\x00\x02\x00\x00",
	"\x00\x02\x00\x03\x00\x00\x03\x01\x01\x0b\x00\x00\x0a\x00\x00\x06\x00\x00\x01\x00\x00\x06\x01\x03\x02\x00\x01",
	"\x00\x01\x00\x02\x00\x00\x09\x00\x00\x00\x01\x01\x0c\x00\x00\x08\x01\x00\x0d\x00\x00",
	"\x00\x01\x00\x0e\x00\x00\x0f\x00\x00\x01\x00\x00\x0e\x00\x01\x0f\x00\x01\x10\x00\x00\x11\x00\x00\x02\x00\x00",
}

// sampleEntries are the entries of a few random journals, with snapshots, and of what the fuzz scripts make of a run.
func sampleEntries() []Entry {
	journals := rapid.Custom(func(t *rapid.T) []Entry {
		_, journal := randomJournal(t)
		return append(journal, longRun(t, 4)...)
	})
	var out []Entry
	for seed := range 12 {
		out = append(out, journals.Example(seed)...)
	}
	for _, script := range fuzzScripts {
		for i := 0; i+3 <= len(script); i += 3 {
			e := fuzzEvents[int(script[i])%len(fuzzEvents)](&AgentState{}, script[i+1], script[i+2])
			out = append(out, Entry{Seq: int64(i), Writer: "w1", Time: worldEpoch, Events: []Event{e}})
		}
	}
	return out
}

// sampleLines are sampleEntries as they are stored.
func sampleLines(t require.TestingT) [][]byte {
	var out [][]byte
	for _, e := range sampleEntries() {
		line, err := MarshalEntry(e)
		require.NoError(t, err)
		out = append(out, line)
	}
	return out
}
