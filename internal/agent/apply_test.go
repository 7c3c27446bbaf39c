package agent

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var later = worldEpoch.Add(worldExpiry)

// started is a run with the events applied, each in an entry of its own, all by writer w1.
func started(t *testing.T, events ...Event) AgentState {
	t.Helper()
	w := world{def: worldDefinition()}
	s := commit(t, AgentState{}, "w1", w.start())
	for _, e := range events {
		s = commit(t, s, "w1", e)
	}
	return s
}

func commit(t *testing.T, s AgentState, writer string, events ...Event) AgentState {
	t.Helper()
	d := NewDraft(s, writer, worldTime(s.Entries))
	for _, e := range events {
		require.NoError(t, d.Add(e))
	}
	return d.Committed()
}

// called is a reply with calls of effect non_idempotent, or read where the id begins with r.
func called(inference int64, ids ...string) Replied {
	e := Replied{Inference: inference, Model: "m", Requests: 1, Usage: Usage{Input: 3, Output: 1}, Units: 4}
	for _, id := range ids {
		effect := EffectNonIdempotent
		if strings.HasPrefix(id, "r") {
			effect = EffectRead
		}
		e.Calls = append(e.Calls, RepliedCall{ID: id, Name: "tool", Effect: effect, Input: json.RawMessage(`{}`)})
	}
	return e
}

func text(inference int64, said string) Replied {
	return Replied{Inference: inference, Model: "m", Requests: 1, Text: said}
}

func result(call, content string) CallFinished { return CallFinished{Call: call, Content: content} }

func ran(call, content string) CallFinished {
	return CallFinished{Call: call, Ran: true, Content: content}
}

func suspend(call string) CallSuspended {
	return CallSuspended{Call: call, Approval: "ap-" + call, Digest: "dg-" + call, Expires: later}
}

func lost(call string) CallUnknown {
	return CallUnknown{Call: call, Approval: "un-" + call, Expires: later}
}

func decision(slot int64, call string, a DecisionAction) Decided {
	return Decided{Slot: slot, Call: call, Approval: "ap-" + call, Action: a, By: "user:ana", Digest: "dg-" + call, Text: "told " + call}
}

func said(slot int64, texts ...string) InputReceived {
	e := InputReceived{Slot: slot, ID: "m" + strconv.FormatInt(slot, 10)}
	for _, s := range texts {
		e.Blocks = append(e.Blocks, UserBlock{Text{s}})
	}
	return e
}

func TestApplyForbids(t *testing.T) {
	fresh := func(t *testing.T) AgentState { return started(t) }
	open := func(t *testing.T) AgentState { return started(t, called(1, "a", "r")) }
	claimed := func(t *testing.T) AgentState {
		return commit(t, started(t, called(1, "a", "r")), "w2", CallClaimed{Call: "a"})
	}
	waiting := func(t *testing.T) AgentState {
		return started(t, called(1, "a", "r"), suspend("a"), ran("r", "ok"), Parked{Expires: later})
	}
	done := func(t *testing.T) AgentState { return started(t, called(1, "a"), CancelRun("user:ana", "")) }
	tests := []struct {
		name  string
		state func(*testing.T) AgentState
		event Event
		want  string
	}{
		{"anything before the start", func(*testing.T) AgentState { return AgentState{} }, Resumed{}, "apply resumed: the run has not started"},
		{"a start without an owner", func(*testing.T) AgentState { return AgentState{} }, RunStarted{Tenant: "t", Run: "r"}, "apply run_started: tenant, run and owner are required"},
		{"a start that says a result", func(*testing.T) AgentState { return AgentState{} }, RunStarted{Tenant: "t", Run: "r", Owner: "o", Messages: []UserBlock{{ToolResult{ID: "a"}}}}, "apply run_started: a user does not say "},
		{"another start", fresh, RunStarted{Tenant: "default", Run: "r1", Owner: "o", BodyDigest: "other"}, "apply run_started: the run has started with something else"},
		{"a slot after a gap", fresh, said(2, "x"), "apply input_received: slot 2 after 0"},
		{"an input without a slot", fresh, said(0, "x"), "apply input_received: without a slot a duplicate could not be told"},
		{"an input that says a call", fresh, InputReceived{Slot: 1, Blocks: []UserBlock{{ToolUse{ID: "a"}}}}, "apply input_received: a user does not say "},
		{"an input to a parked run", waiting, said(1, "x"), "apply input_received: the run waits and has not been resumed"},
		{"an inference after a gap", fresh, text(2, "x"), "apply replied: inference 2 after 0"},
		{"an inference while a call is open", open, text(2, "x"), "apply replied to call a: still new"},
		{"an inference of a parked run", waiting, text(2, "x"), "apply replied: the run is waiting"},
		{"a call id used twice in a reply", fresh, called(1, "a", "a"), "apply replied to call a: the id is used already"},
		{"a call id used before", func(t *testing.T) AgentState { return started(t, called(1, "r"), ran("r", "ok")) }, called(2, "r"), "apply replied to call r: the id is used already"},
		{"a claim of no call", open, CallClaimed{Call: "z"}, "apply call_claimed to call z: the run has no such call"},
		{"a second claim", claimed, CallClaimed{Call: "a"}, `apply call_claimed to call a: a call does not go from "running" to "running"`},
		{"a claim of a suspended call", func(t *testing.T) AgentState { return started(t, called(1, "a"), suspend("a")) }, CallClaimed{Call: "a"}, `apply call_claimed to call a: a call does not go from "suspended" to "running"`},
		{"a claim in a parked run", waiting, CallClaimed{Call: "a"}, "apply call_claimed: the run waits and has not been resumed"},
		{"a result past another's claim", claimed, result("a", "x"), "apply call_finished to call a: another writer has the claim"},
		{"a result of a suspended call", func(t *testing.T) AgentState { return started(t, called(1, "a"), suspend("a")) }, result("a", "x"), "apply call_finished to call a: the call is suspended"},
		{"an effect without a claim", open, ran("a", "x"), "apply call_finished to call a: it ran without a claim"},
		{"an approved effect without a claim", func(t *testing.T) AgentState {
			return started(t, called(1, "r"), suspend("r"), decision(1, "r", ActionApprove))
		}, ran("r", "x"), "apply call_finished to call r: it ran without a claim"},
		{"asking about a call that runs", claimed, suspend("a"), "apply call_suspended to call a: the call is running"},
		{"asking again while asking", func(t *testing.T) AgentState { return started(t, called(1, "a"), suspend("a")) }, CallSuspended{Call: "a", Approval: "ap2", Expires: later}, `apply call_suspended to call a: a call does not go from "suspended" to "suspended"`},
		{"asking for ever", open, CallSuspended{Call: "a", Approval: "ap"}, "apply call_suspended to call a: a wait needs a request that people see and an expiry"},
		{"asking nobody", open, CallSuspended{Call: "a", Expires: later}, "apply call_suspended to call a: a wait needs a request that people see and an expiry"},
		{"an unknown outcome for ever", claimed, CallUnknown{Call: "a", Approval: "ap"}, "apply call_unknown to call a: a wait needs a request that people see and an expiry"},
		{"an unknown outcome of what never ran", open, lost("a"), "apply call_unknown to call a: the call is new"},
		{"an expiry of what does not wait", open, CallCancelled{Call: "a", Reason: WhyExpired}, "apply call_cancelled to call a: the call is new"},
		{"parking with nobody to wait for", open, Parked{Expires: later}, "apply parked: no call waits for anyone"},
		{"parking again without waking", func(t *testing.T) AgentState { return commit(t, waiting(t), "w1") }, Parked{Expires: later}, `apply parked: a run does not go from "waiting" to "waiting"`},
		{"an owner without a name", fresh, HandedOver{}, "apply handed_over: no owner named"},
		{"an end without a reason", fresh, Finished{}, "apply finished: an ending reason is required, and an error exactly where it is error"},
		{"an error without an error", fresh, Finished{Reason: ReasonError}, "apply finished: an ending reason is required, and an error exactly where it is error"},
		{"a natural end with an open call", open, Finished{Reason: ReasonNaturalEnd}, "apply finished to call a: still new"},
		{"a natural end with something unheard", fresh, Finished{Reason: ReasonNaturalEnd}, "apply finished: the model has not seen everything that was said"},
		{"another end", done, Fail(CodeInternal, "x"), "apply finished: the run is done"},
		{"an input after the end", done, said(1, "x"), "apply input_received: the run is done"},
		{"an inference after the end", done, text(2, "x"), "apply replied: the run is done"},
		{"a hand-over after the end", done, HandedOver{Owner: "x"}, "apply handed_over: the run is done"},
		{"a wake after the end", done, Resumed{}, "apply resumed: the run is done"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := tt.state(t)
			err := NewDraft(s, "w9", worldTime(s.Entries)).Add(tt.event)
			require.ErrorContains(t, err, tt.want)
			var refused *ApplyError
			require.True(t, errors.As(err, &refused))
			require.Equal(t, EventType(tt.event), refused.Event)
		})
	}
}

// TestApplyKnows: facts that have been overtaken or are known change nothing but the slot they came in.
func TestApplyKnows(t *testing.T) {
	settled := func(t *testing.T) AgentState { return started(t, called(1, "r"), ran("r", "ok")) }
	suspended := func(t *testing.T) AgentState { return started(t, called(1, "a"), suspend("a")) }
	done := func(t *testing.T) AgentState { return started(t, called(1, "a"), CancelRun("user:ana", "")) }
	tests := []struct {
		name  string
		state func(*testing.T) AgentState
		event Event
	}{
		{"a second result", settled, ran("r", "another")},
		{"a claim of a settled call", settled, CallClaimed{Call: "r"}},
		{"a suspension of a settled call", settled, suspend("r")},
		{"a late result of a settled call", settled, LateResult{Slot: 1, Call: "r", Content: "late"}},
		{"a decision on a settled call", settled, decision(1, "r", ActionDeny)},
		{"a result of a call of an earlier round", func(t *testing.T) AgentState { return started(t, called(1, "r"), ran("r", "ok"), called(2, "r2")) }, ran("r", "x")},
		{"the reply again", settled, called(1, "r")},
		{"a decision on another request", suspended, Decided{Slot: 1, Call: "a", Approval: "older", Action: ActionApprove}},
		{"a decision on no call", suspended, Decided{Slot: 1, Call: "z", Approval: "ap-z", Action: ActionApprove}},
		{"an answer to a question for approval", suspended, Answered{Slot: 1, Call: "a", Content: "x"}},
		{"an answer about no call", suspended, Answered{Slot: 1, Call: "z"}},
		{"a late result of a call that waits for approval", suspended, LateResult{Slot: 1, Call: "a"}},
		{"a late result of no call", suspended, LateResult{Slot: 1, Call: "z"}},
		{"a decision on an unknown outcome", func(t *testing.T) AgentState { return started(t, called(1, "a"), CallClaimed{Call: "a"}, lost("a")) }, Decided{Slot: 1, Call: "a", Approval: "un-a", Action: ActionDeny}},
		{"waking what runs", settled, Resumed{}},
		{"the start again after the end", done, RunStarted{Tenant: "default", Run: "r1", BodyDigest: "b1"}},
		{"the same end again", done, CancelRun("user:eve", "me too")},
		{"a result after the end", done, result("a", "x")},
		{"the reply after the end", done, called(1, "a")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := tt.state(t)
			want := s
			want.Drained = InboxSlot(tt.event)
			got, err := Apply(s, tt.event)
			require.NoError(t, err)
			require.Equal(t, exact(t, want), exact(t, got))
		})
	}
}

func TestEntriesAreContiguous(t *testing.T) {
	s := started(t, text(1, "hi"))
	_, err := ApplyEntry(s, Entry{Seq: 5})
	require.EqualError(t, err, "apply entry 5: the journal has a gap after 1")
	again, err := ApplyEntry(s, Entry{Seq: 1, Events: []Event{text(1, "something else")}})
	require.NoError(t, err)
	require.Equal(t, exact(t, s), exact(t, again))
	s = commit(t, s, "w1", Finished{Reason: ReasonNaturalEnd})
	_, err = ApplyEntry(s, Entry{Seq: 3, Events: []Event{text(2, "more")}})
	require.EqualError(t, err, "apply entry 3: the run ended at 2")
}

// TestEntryIsAllOrNothing: one refused event refuses the entry.
func TestEntryIsAllOrNothing(t *testing.T) {
	s := started(t)
	before := exact(t, s)
	got, err := ApplyEntry(s, Entry{Seq: 1, Writer: "w1", Time: time.Unix(0, 0), Events: []Event{called(1, "a"), CallClaimed{Call: "z"}}})
	require.EqualError(t, err, "entry 1: apply call_claimed to call z: the run has no such call")
	require.Equal(t, before, exact(t, got))
	require.Equal(t, before, exact(t, s))
}

func TestHandOver(t *testing.T) {
	s := started(t, HandedOver{Owner: "r1-1"})
	require.Equal(t, "r1-1", s.Owner)
	require.Equal(t, "r1-0", s.FormerOwner)
	require.EqualValues(t, 1, s.Generation)
	require.EqualValues(t, 1, s.OwnedSince)
}
