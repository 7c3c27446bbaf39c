package run_test

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

var later = worldEpoch.Add(worldExpiry)

// started is a run with the events applied, each in an entry of its own, all by writer w1.
func started(t require.TestingT, events ...run.Event) run.AgentState {
	w := world{def: worldDefinition()}
	return then(t, commit(t, run.AgentState{}, "w1", w.start()), events...)
}

// then applies facts, each in an entry of its own.
func then(t require.TestingT, s run.AgentState, events ...run.Event) run.AgentState {
	for _, e := range events {
		s = commit(t, s, "w1", e)
	}
	return s
}

func commit(t require.TestingT, s run.AgentState, writer string, events ...run.Event) run.AgentState {
	d := run.NewDraft(s, writer, worldTime(s.Entries))
	for _, e := range events {
		require.NoError(t, d.Add(e))
	}
	return d.Committed()
}

// called is a reply with calls of effect non_idempotent, or read where the id begins with r.
func called(inference int64, ids ...string) run.Replied {
	e := run.Replied{Inference: inference, Model: "m", Requests: 1, Usage: run.Usage{Input: 3, Output: 1}, Units: 4}
	for _, id := range ids {
		effect := run.EffectNonIdempotent
		if strings.HasPrefix(id, "r") {
			effect = run.EffectRead
		}
		e.Calls = append(e.Calls, run.RepliedCall{ID: id, Name: "tool", Effect: effect, Input: json.RawMessage(`{}`)})
	}
	return e
}

func text(inference int64, said string) run.Replied {
	return run.Replied{Inference: inference, Model: "m", Requests: 1, Text: said}
}

func result(call, content string) run.CallFinished {
	return run.CallFinished{Call: call, Content: content}
}

func ran(call, content string) run.CallFinished {
	return run.CallFinished{Call: call, Ran: true, Content: content}
}

func suspend(call string) run.CallSuspended {
	return run.CallSuspended{Call: call, Approval: "ap-" + call, Digest: "dg-" + call, Expires: later}
}

func lost(call string) run.CallUnknown {
	return run.CallUnknown{Call: call, Approval: "un-" + call, Expires: later}
}

func decision(slot int64, call string, a run.DecisionAction) run.Decided {
	return run.Decided{Slot: slot, Call: call, Approval: "ap-" + call, Action: a, By: "user:ana", Digest: "dg-" + call, Text: "told " + call}
}

func said(slot int64, texts ...string) run.InputReceived {
	blocks := run.Map(texts, func(s string) run.UserBlock { return run.UserBlock{Block: run.Text{Text: s}} })
	return run.InputReceived{Slot: slot, ID: "m" + strconv.FormatInt(slot, 10), Blocks: blocks}
}

func TestApplyForbids(t *testing.T) {
	fresh := func(t *testing.T) run.AgentState { return started(t) }
	open := func(t *testing.T) run.AgentState { return started(t, called(1, "a", "r")) }
	claimed := func(t *testing.T) run.AgentState {
		return commit(t, started(t, called(1, "a", "r")), "w2", run.CallClaimed{Call: "a"})
	}
	waiting := func(t *testing.T) run.AgentState {
		return started(t, called(1, "a", "r"), suspend("a"), ran("r", "ok"), run.Parked{Expires: later})
	}
	done := func(t *testing.T) run.AgentState { return started(t, called(1, "a"), policy.CancelRun("user:ana", "")) }
	tests := []struct {
		name  string
		state func(*testing.T) run.AgentState
		event run.Event
		want  string
	}{
		{"anything before the start", func(*testing.T) run.AgentState { return run.AgentState{} }, run.Resumed{}, "apply resumed: the run has not started"},
		{"a start without an owner", func(*testing.T) run.AgentState { return run.AgentState{} }, run.RunStarted{Tenant: "t", Run: "r"}, "apply run_started: tenant, run and owner are required"},
		{"a start that says a result", func(*testing.T) run.AgentState { return run.AgentState{} }, run.RunStarted{Tenant: "t", Run: "r", Owner: "o", Messages: []run.UserBlock{{Block: run.ToolResult{ID: "a"}}}}, "apply run_started: a user's message cannot contain "},
		{"another start", fresh, run.RunStarted{Tenant: "default", Run: "r1", Owner: "o", BodyDigest: "other"}, "apply run_started: the run has started with something else"},
		{"a slot after a gap", fresh, said(2, "x"), "apply input_received: slot 2 after 0"},
		{"an input without a slot", fresh, said(0, "x"), "apply input_received: a slot is required"},
		{"an input that says a call", fresh, run.InputReceived{Slot: 1, Blocks: []run.UserBlock{{Block: run.ToolUse{ID: "a"}}}}, "apply input_received: a user's message cannot contain "},
		{"an input to a parked run", waiting, said(1, "x"), "apply input_received: the run waits and has not been resumed"},
		{"an inference after a gap", fresh, text(2, "x"), "apply replied: inference 2 after 0"},
		{"an inference while a call is open", open, text(2, "x"), "apply replied to call a: still new"},
		{"an inference of a parked run", waiting, text(2, "x"), "apply replied: the run is waiting"},
		{"a call id used twice in a reply", fresh, called(1, "a", "a"), "apply replied to call a: the id is used already"},
		{"a call id used before", func(t *testing.T) run.AgentState { return started(t, called(1, "r"), ran("r", "ok")) }, called(2, "r"), "apply replied to call r: the id is used already"},
		{"a claim of no call", open, run.CallClaimed{Call: "z"}, "apply call_claimed to call z: the run has no such call"},
		{"a second claim", claimed, run.CallClaimed{Call: "a"}, `apply call_claimed to call a: a call does not go from "running" to "running"`},
		{"a claim of a suspended call", func(t *testing.T) run.AgentState { return started(t, called(1, "a"), suspend("a")) }, run.CallClaimed{Call: "a"}, `apply call_claimed to call a: a call does not go from "suspended" to "running"`},
		{"a claim in a parked run", waiting, run.CallClaimed{Call: "a"}, "apply call_claimed: the run waits and has not been resumed"},
		{"a result past another's claim", claimed, result("a", "x"), "apply call_finished to call a: another writer has the claim"},
		{"a result of a suspended call", func(t *testing.T) run.AgentState { return started(t, called(1, "a"), suspend("a")) }, result("a", "x"), "apply call_finished to call a: the call is suspended"},
		{"an effect without a claim", open, ran("a", "x"), "apply call_finished to call a: it ran without a claim"},
		{"an approved effect without a claim", func(t *testing.T) run.AgentState {
			return started(t, called(1, "r"), suspend("r"), decision(1, "r", run.ActionApprove))
		}, ran("r", "x"), "apply call_finished to call r: it ran without a claim"},
		{"asking about a call that runs", claimed, suspend("a"), "apply call_suspended to call a: the call is running"},
		{"asking again while asking", func(t *testing.T) run.AgentState { return started(t, called(1, "a"), suspend("a")) }, run.CallSuspended{Call: "a", Approval: "ap2", Expires: later}, `apply call_suspended to call a: a call does not go from "suspended" to "suspended"`},
		{"asking for ever", open, run.CallSuspended{Call: "a", Approval: "ap"}, "apply call_suspended to call a: a wait needs a request that people see and an expiry"},
		{"asking nobody", open, run.CallSuspended{Call: "a", Expires: later}, "apply call_suspended to call a: a wait needs a request that people see and an expiry"},
		{"an unknown outcome for ever", claimed, run.CallUnknown{Call: "a", Approval: "ap"}, "apply call_unknown to call a: a wait needs a request that people see and an expiry"},
		{"an unknown outcome of what never ran", open, lost("a"), "apply call_unknown to call a: the call is new"},
		{"an expiry of what does not wait", open, run.CallCancelled{Call: "a", Reason: run.WhyExpired}, "apply call_cancelled to call a: the call is new"},
		{"parking with nobody to wait for", open, run.Parked{Expires: later}, "apply parked: no call waits for anyone"},
		{"parking again without waking", func(t *testing.T) run.AgentState { return commit(t, waiting(t), "w1") }, run.Parked{Expires: later}, `apply parked: a run does not go from "waiting" to "waiting"`},
		{"an owner without a name", fresh, run.HandedOver{}, "apply handed_over: no owner named"},
		{"an end without a reason", fresh, run.Finished{}, "apply finished: want an ending reason, and an error exactly with reason error"},
		{"an error without an error", fresh, run.Finished{Reason: run.ReasonError}, "apply finished: want an ending reason, and an error exactly with reason error"},
		{"a natural end with an open call", open, run.Finished{Reason: run.ReasonNaturalEnd}, "apply finished to call a: still new"},
		{"a natural end with something unheard", fresh, run.Finished{Reason: run.ReasonNaturalEnd}, "apply finished: the model has not seen every message"},
		{"an eviction of what was not seen", fresh, run.Evicted{Total: 1}, "no inference has seen"},
		{"an eviction of more than there is", func(t *testing.T) run.AgentState {
			return started(t, text(1, "x"))
		}, run.Evicted{Total: 4}, "4 of 2 messages"},
		{"another end", done, policy.Fail(run.CodeInternal, "x"), "apply finished: the run is done"},
		{"an input after the end", done, said(1, "x"), "apply input_received: the run is done"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := tt.state(t)
			err := run.NewDraft(s, "w9", worldTime(s.Entries)).Add(tt.event)
			require.ErrorContains(t, err, tt.want)
			var refused *run.ApplyError
			require.True(t, errors.As(err, &refused))
			require.Equal(t, run.EventType(tt.event), refused.Event)
		})
	}
}

// TestApplyKnows: facts that have been overtaken or are known change nothing but the slot they came in.
func TestApplyKnows(t *testing.T) {
	settled := func(t *testing.T) run.AgentState { return started(t, called(1, "r"), ran("r", "ok")) }
	suspended := func(t *testing.T) run.AgentState { return started(t, called(1, "a"), suspend("a")) }
	done := func(t *testing.T) run.AgentState { return started(t, called(1, "a"), policy.CancelRun("user:ana", "")) }
	tests := []struct {
		name  string
		state func(*testing.T) run.AgentState
		event run.Event
	}{
		{"a second result", settled, ran("r", "another")},
		{"a claim of a settled call", settled, run.CallClaimed{Call: "r"}},
		{"a late result of a settled call", settled, run.LateResult{Slot: 1, CallFinished: run.CallFinished{Call: "r", Content: "late"}}},
		{"a decision on a settled call", settled, decision(1, "r", run.ActionDeny)},
		{"a result of a call of an earlier round", func(t *testing.T) run.AgentState { return started(t, called(1, "r"), ran("r", "ok"), called(2, "r2")) }, ran("r", "x")},
		{"the reply again", settled, called(1, "r")},
		{"an eviction again", func(t *testing.T) run.AgentState {
			return started(t, text(1, "x"), run.Evicted{Total: 1, Summary: "One."})
		}, run.Evicted{Total: 1, Summary: "Two."}},
		{"a decision on another request", suspended, run.Decided{Slot: 1, Call: "a", Approval: "older", Action: run.ActionApprove}},
		{"a decision on no call", suspended, run.Decided{Slot: 1, Call: "z", Approval: "ap-z", Action: run.ActionApprove}},
		{"an answer to a question for approval", suspended, run.Answered{Slot: 1, Call: "a", Content: "x"}},
		{"a late result of a call that waits for approval", suspended, run.LateResult{Slot: 1, CallFinished: run.CallFinished{Call: "a"}}},
		{"a decision on an unknown outcome", func(t *testing.T) run.AgentState {
			return started(t, called(1, "a"), run.CallClaimed{Call: "a"}, lost("a"))
		}, run.Decided{Slot: 1, Call: "a", Approval: "un-a", Action: run.ActionDeny}},
		{"waking what runs", settled, run.Resumed{}},
		{"the start again after the end", done, run.RunStarted{Tenant: "default", Run: "r1", BodyDigest: "b1"}},
		{"the same end again", done, policy.CancelRun("user:eve", "me too")},
		{"a result after the end", done, result("a", "x")},
		{"the reply after the end", done, called(1, "a")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := tt.state(t)
			want := s
			want.Drained = run.InboxSlot(tt.event)
			got, err := run.Apply(s, tt.event)
			require.NoError(t, err)
			require.Equal(t, exact(t, want), exact(t, got))
		})
	}
}

// TestEntryIsAllOrNothing: one refused event refuses the entry.
func TestEntryIsAllOrNothing(t *testing.T) {
	s := started(t)
	before := exact(t, s)
	got, err := run.ApplyEntry(s, run.Entry{Seq: 1, Writer: "w1", Time: time.Unix(0, 0), Events: []run.Event{called(1, "a"), run.CallClaimed{Call: "z"}}})
	require.EqualError(t, err, "entry 1: apply call_claimed to call z: the run has no such call")
	require.Equal(t, before, exact(t, got))
	require.Equal(t, before, exact(t, s))
}

func TestVerdictsThatContradictTheReply(t *testing.T) {
	c := &run.Correction{Lifecycle: run.LifecycleOutputError, Text: "no"}
	for want, e := range map[string]run.Replied{
		"a reply with calls is neither":           {Summary: true, Calls: called(1, "a").Calls},
		"neither a summary nor refused":           {Correction: c, Calls: called(1, "a").Calls},
		"only an empty summary has a static text": {Static: "x"},
		"empty summary has a static text":         {Static: "x", Summary: true, Correction: &run.Correction{Text: "no"}},
		"a refused summary only why":              {Summary: true, Correction: c},
		"a refused reply says why and when":       {Correction: &run.Correction{Text: "no"}},
		"says why and when the model is told":     {Correction: &run.Correction{Lifecycle: run.LifecycleOutputError}},
		"and when the model is told, a refused s": {Summary: true, Correction: &run.Correction{}},
	} {
		s := started(t)
		e.Inference = 1
		n, err := run.Apply(s, e)
		require.ErrorContains(t, err, want)
		require.Equal(t, exact(t, s), exact(t, n))
	}
}

// A claimant that was thought dead tells what it did. The call is to run again, and the gate or the tool has asked people
// about that meanwhile: the result settles the call, or else it would happen twice.
func TestLateResultWhileTheRerunAsks(t *testing.T) {
	again := started(t, called(1, "a"), run.CallClaimed{Call: "a"}, lost("a"), run.Answered{Slot: 1, Call: "a", Rerun: true, By: "user:ana"})
	for name, asks := range map[string]func(*testing.T) run.AgentState{
		"a rule asks": func(t *testing.T) run.AgentState { return then(t, again, suspend("a")) },
		"a plugin asks": func(t *testing.T) run.AgentState {
			ask := suspend("a")
			ask.For, ask.Ticket, ask.Gate = run.ForInput, &run.Ticket{Message: "Really?"}, true
			return then(t, again, ask)
		},
		"the tool asks": func(t *testing.T) run.AgentState {
			ask := suspend("a")
			ask.For, ask.Ticket = run.ForInput, &run.Ticket{Message: "Which?"}
			return commit(t, commit(t, again, "w2", run.CallClaimed{Call: "a"}), "w2", ask)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := then(t, asks(t), run.LateResult{Slot: 2, Writer: "w1", CallFinished: run.CallFinished{Call: "a", Content: "paid"}})
			c, _ := s.Call("a")
			require.Equal(t, run.StatusSucceeded, c.Status)
			require.Equal(t, "paid", c.Result.Content)
		})
	}
}
