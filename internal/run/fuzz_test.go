package run_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

// FuzzUnmarshalEntry: what can be read can be written, and reads as the same.
func FuzzUnmarshalEntry(f *testing.F) {
	for _, line := range written(f, sampleEntries()) {
		f.Add(line)
	}
	f.Add([]byte(`{"v":2,"s":0,"w":"w","t":0,"e":[]}`))
	f.Add([]byte(`{"v":1,"s":0,"w":"w","t":0,"e":[{"parked":{},"resumed":{}}]}`))
	f.Add([]byte(`{"v":1,"s":0,"w":"w","t":0,"e":[{"input_received":{"slot":1,"id":"m","msgs":[{"type":"video"}]}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := run.UnmarshalEntry(data)
		if err != nil {
			return
		}
		once, err := run.MarshalEntry(e)
		require.NoError(t, err)
		back, err := run.UnmarshalEntry(once)
		require.NoError(t, err)
		require.Equal(t, e.Time, back.Time)
		twice, err := run.MarshalEntry(back)
		require.NoError(t, err)
		require.Equal(t, string(once), string(twice))
	})
}

// FuzzCanonicalJSON: whatever CompactJSON takes has one canonical form. It is JSON, its own canonical form, as large in
// digits as what it is of, and the same however the members are ordered and the strings are escaped.
func FuzzCanonicalJSON(f *testing.F) {
	for _, in := range []string{`{"b":1.50,"a":[null,true,"\u00e9\/"]}`, `{"\ud83d\ude00":1,"\ufb33":2,"a":1E400}`, `"\u2028"`, `[]`, `-0.0`} {
		f.Add([]byte(in))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		raw, err := jsonx.CompactJSON(data, jsonx.JSONLimits{})
		if err != nil {
			return
		}
		once, err := jsonx.CanonicalJSON(raw)
		require.NoError(t, err)
		compact, err := jsonx.CompactJSON([]byte(once), jsonx.JSONLimits{Bytes: len(once) + 1})
		require.NoError(t, err)
		require.Equal(t, once, string(compact))
		twice, err := jsonx.CanonicalJSON(compact)
		require.NoError(t, err)
		require.Equal(t, once, twice)
		want, err := jsonx.DecodeNumbers(raw)
		require.NoError(t, err)
		got, err := jsonx.DecodeNumbers(compact)
		require.NoError(t, err)
		require.Equal(t, want, got)
		spelled, err := jsonx.MarshalVerbatim(want) // keys in another order, strings spelled otherwise
		require.NoError(t, err)
		again, err := jsonx.CanonicalJSON(spelled)
		require.NoError(t, err)
		require.Equal(t, once, again)
	})
}

// FuzzFold throws facts at a run in any order, by any writer, three bytes each: which, about what, and how. Most are
// refused; those that are not keep the run well formed, and once it is done it stays as it is.
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
	for _, resume := range []run.ResumeMode{run.ResumeEach, run.ResumeAllAnswered, run.ResumeBatchAll} {
		foldScriptUnder(t, worldDefinition(func(d *agent.Definition) { d.Wait, d.Resume = run.WaitAllSuspended, resume }), script)
	}
}

func foldScriptUnder(t require.TestingT, d agent.Definition, script []byte) {
	s, err := run.ApplyEntry(run.AgentState{}, run.Entry{Writer: "w1", Time: worldEpoch, Events: []run.Event{(&world{def: d}).start()}})
	require.NoError(t, err)
	for ; len(script) >= 3 && s.Entries < 100; script = script[3:] {
		s = fuzzStep(t, &d, s, script[0], script[1], script[2])
	}
}

// fuzzStep applies one fact as an entry of its own; a refused one leaves the run as it was.
func fuzzStep(t require.TestingT, d *agent.Definition, s run.AgentState, kind, about, how byte) run.AgentState {
	e := fuzzEvents[int(kind)%len(fuzzEvents)](&s, about, how)
	n, err := run.ApplyEntry(s, run.Entry{Seq: s.Entries, Writer: pick(how>>4, "w1", "w2"), Time: worldTime(s.Entries), Events: []run.Event{e}})
	if err != nil {
		require.Equal(t, s.Entries, n.Entries)
		require.NoError(t, wellFormed(&n))
		return n
	}
	require.NotEqual(t, run.RunDone, s.Status, "an entry after the end")
	require.NoError(t, sameOnceSettled(&s, &n, e))
	require.NoError(t, wellFormed(&n))
	_, err = policy.View(&n)
	require.NoError(t, err)
	if a := policy.Next(d, &n); a.Kind == policy.ActInfer {
		require.NoError(t, answered(d, &n, a))
	}
	if n.Status != run.RunRunning {
		return n
	}
	d2 := run.NewDraft(n, "w1", worldTime(n.Entries))
	require.NoError(t, d2.Add(policy.ApplyEarlyDecisions(d, &n, nil, worldValid, worldTime(0).Add(-worldExpiry))...), "what is kept can always be settled")
	require.False(t, policy.HasEarlyDecisions(&d2.State))
	return n
}

func pick[T any](n byte, from ...T) T { return from[int(n)%len(from)] }

func fuzzCall(about byte) string { return pick(about, "a", "b", "c") }

// fuzzSlot is the next slot, one that is known, or one behind a gap; and none.
func fuzzSlot(s *run.AgentState, how byte) int64 {
	return pick(how, s.Drained+1, s.Drained+1, s.Drained+1, s.Drained, s.Drained+2, 0)
}

var fuzzEvents = []func(s *run.AgentState, about, how byte) run.Event{
	func(s *run.AgentState, about, how byte) run.Event {
		e := run.Replied{Inference: s.Inferences + int64(pick(how, 1, 1, 1, 0, 2)), Text: pick(how, "", "said")}
		for i := range about % 4 {
			e.Calls = append(e.Calls, run.RepliedCall{ID: fuzzCall(how + i), Name: "tool", Effect: pick(how+i, run.EffectRead, run.EffectNonIdempotent), Input: json.RawMessage(`{}`)})
		}
		for i := range about >> 2 % 3 {
			place := pick(how+i, 0, 0, 1, 4, 5)
			e.Reasoning = append(e.Reasoning, run.RepliedReasoning{Reasoning: run.Reasoning{Text: "t"}, AfterText: place, AfterCalls: pick(about+i, 0, 0, 1, 4)})
		}
		e.Dropped = pick(about>>5, "", "", "left out")
		e.Summary, e.Static = how>>6 == 1, pick(how>>4, "", "", "static")
		e.Correction = pick(how>>5, nil, nil, nil, nil, nil, &run.Correction{Lifecycle: run.LifecycleOutputError, Text: "no"},
			&run.Correction{Lifecycle: run.LifecycleOutputError, Text: "no", Ephemeral: true}, &run.Correction{Text: "no"})
		return e
	},
	func(_ *run.AgentState, about, _ byte) run.Event { return run.CallClaimed{Call: fuzzCall(about)} },
	func(_ *run.AgentState, about, how byte) run.Event {
		return run.CallFinished{Call: fuzzCall(about), Ran: how&1 == 0, IsError: how&2 == 0, Content: "x", Media: make([]run.Media, how>>2&1), Patch: fuzzPatch(how >> 3)}
	},
	func(_ *run.AgentState, about, how byte) run.Event {
		return run.CallSuspended{Call: fuzzCall(about), Approval: pick(how, "p", "q", ""), Digest: "d", Expires: worldEpoch}
	},
	func(_ *run.AgentState, about, how byte) run.Event {
		return run.CallUnknown{Call: fuzzCall(about), Approval: pick(how, "p", "q"), Expires: worldEpoch}
	},
	func(_ *run.AgentState, about, how byte) run.Event {
		return run.CallCancelled{Call: fuzzCall(about), Reason: pick(how, run.WhyExpired, run.WhySkipped)}
	},
	func(s *run.AgentState, about, how byte) run.Event {
		return run.Decided{Slot: fuzzSlot(s, about>>2), Call: fuzzCall(about), Approval: pick(how, "p", "q"), Action: pick(how>>1, run.ActionApprove, run.ActionDeny, run.ActionCancel)}
	},
	func(s *run.AgentState, about, how byte) run.Event {
		return run.Answered{Slot: fuzzSlot(s, about>>2), Call: fuzzCall(about), IsError: how&1 == 0, Rerun: how&2 == 0, NotRun: how&4 == 0, Patch: fuzzPatch(how >> 3)}
	},
	func(s *run.AgentState, about, how byte) run.Event {
		return run.LateResult{Slot: fuzzSlot(s, about>>2), CallFinished: run.CallFinished{Call: fuzzCall(about), IsError: how&1 == 0, Patch: fuzzPatch(how >> 3)}}
	},
	func(s *run.AgentState, about, how byte) run.Event {
		return run.LateSuspended{Slot: fuzzSlot(s, about>>2), Writer: pick(how, "w1", "w2"), CallSuspended: run.CallSuspended{Call: fuzzCall(about), Ticket: pick(how>>2, &run.Ticket{}, &run.Ticket{Mode: run.TicketResult}, nil), Digest: "d", Expires: worldEpoch}}
	},
	func(s *run.AgentState, about, how byte) run.Event {
		return run.InputReceived{Slot: fuzzSlot(s, about), Blocks: []run.UserBlock{{Block: pick[run.Block](how, run.Text{Text: "x"}, run.Media{Name: "x"}, run.ToolResult{ID: "a"})}}}
	},
	func(*run.AgentState, byte, byte) run.Event { return run.Resumed{} },
	func(*run.AgentState, byte, byte) run.Event { return run.Parked{Expires: worldEpoch} },
	func(_ *run.AgentState, _, how byte) run.Event { return run.HandedOver{Owner: pick(how, "x", "y", "")} },
	func(s *run.AgentState, about, how byte) run.Event {
		if about%4 > 0 { // or most runs would be short
			return run.Finished{Reason: run.ReasonNaturalEnd}
		}
		return pick(how, policy.CancelRun("user:ana", "n"), policy.Fail(run.CodeInternal, "x"), run.Finished{Reason: run.ReasonError})
	},
	func(_ *run.AgentState, about, how byte) run.Event {
		e := run.ContextBuilt{}
		for i := range about % 3 {
			e.Messages = append(e.Messages, run.BuiltMessage{Role: pick(how+i, run.RoleUser, run.RoleAssistant, ""), Content: run.UserBlock{Block: pick[run.Block](about>>2, run.Text{Text: "x"}, run.Media{Name: "x"}, run.ToolResult{ID: "a"})}, Seen: int64(how>>4&3) - 1})
		}
		return e
	},
	func(_ *run.AgentState, about, how byte) run.Event {
		ticket := pick(how>>4, &run.Ticket{ID: "s"}, &run.Ticket{Mode: run.TicketResult}, &run.Ticket{Pending: run.Pending{ID: "b"}, Mode: run.TicketPass}, nil)
		return run.CallSuspended{Call: fuzzCall(about), Approval: pick(how, "p", "q", "p2"), Digest: "d", Expires: worldEpoch, For: pick(about>>2, run.ForInput, run.ForInput, run.ForInput, run.ForApproval, run.ForOutcome), Ticket: ticket, Ran: how>>2&1 == 0}
	},
	func(s *run.AgentState, about, how byte) run.Event {
		return run.Decided{Slot: fuzzSlot(s, about>>2), Call: fuzzCall(about), Approval: pick(how, "p", "q", "p2"), Action: pick(how>>3, run.ActionApprove, run.ActionApprove, run.ActionCancel), Result: pick(how>>4, nil, json.RawMessage(`1`)), Early: pick(how>>6, "", "a", "s")}
	},
	func(s *run.AgentState, about, how byte) run.Event {
		return run.DecisionKept{Slot: fuzzSlot(s, about>>2), Target: pick(how, "a", "s", "b", ""), Action: pick(how>>2, run.ActionApprove, run.ActionDeny), By: pick(how>>4, "user:ana", "")}
	},
	func(_ *run.AgentState, about, _ byte) run.Event {
		return run.DecisionDropped{Target: pick(about, "a", "s", "z")}
	},
}

// fuzzPatch are changes that now and then meet, or fit nowhere.
func fuzzPatch(how byte) []run.Patch {
	one := run.Patch{Path: pick(how>>1, "/x", "/y", "/x/y", "no pointer"), Value: json.RawMessage(`1`)}
	return pick(how, nil, []run.Patch{one}, []run.Patch{{Path: "/z"}, one})
}

// fuzzScripts: a lost claim that is run again, an approval, and two rounds; numbers are places in fuzzEvents.
var fuzzScripts = []string{
	"\x00\x01\x00\x01\x00\x00\x04\x00\x10\x0b\x00\x00\x0a\x00\x00\x07\x00\x01\x01\x00\x00\x02\x00\x00",
	"\x00\x02\x00\x03\x00\x00\x03\x01\x01\x0b\x00\x00\x0a\x00\x00\x06\x00\x00\x01\x00\x00\x06\x01\x03\x02\x00\x01",
	"\x00\x01\x00\x02\x00\x00\x09\x00\x00\x00\x01\x01\x0c\x00\x00\x08\x01\x00\x0d\x00\x00",
	"\x00\x01\x00\x0e\x00\x00\x0f\x00\x00\x01\x00\x00\x0e\x00\x01\x0f\x00\x01\x10\x00\x00\x11\x00\x00\x02\x00\x00",
}

// sampleEntries are the entries of a few random journals, with snapshots, and of what the fuzz scripts make of a run.
func sampleEntries() []run.Entry {
	journals := rapid.Custom(func(t *rapid.T) []run.Entry { _, journal := randomJournal(t); return journal })
	var out []run.Entry
	for seed := range 24 {
		out = append(out, journals.Example(seed)...)
	}
	for _, script := range fuzzScripts {
		for i := 0; i+3 <= len(script); i += 3 {
			e := fuzzEvents[int(script[i])%len(fuzzEvents)](&run.AgentState{}, script[i+1], script[i+2])
			out = append(out, run.Entry{Seq: int64(i), Writer: "w1", Time: worldEpoch, Events: []run.Event{e}})
		}
	}
	return out
}
