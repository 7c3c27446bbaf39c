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

// transcript is the conversation in short, one message a word: who or what, and its seenCount.
func transcript(s AgentState) string {
	var words []string
	for _, m := range s.Messages.All() {
		word := ""
		switch b := m.Block.(type) {
		case Text:
			word = string(m.Role) + ":" + b.Text
		case Media:
			word = "media:" + b.Name
		case ToolUse:
			word = "call:" + b.ID
		case ToolResult:
			word = "result:" + b.ID + "=" + b.Content
		}
		words = append(words, word+"/"+strconv.FormatInt(m.Seen(s.Inferences), 10))
	}
	return strings.Join(words, " ")
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
		{"a start that says a result", func(*testing.T) AgentState { return AgentState{} }, RunStarted{Tenant: "t", Run: "r", Owner: "o", Messages: []UserBlock{{ToolResult{ID: "a"}}}}, "apply run_started: a user does not say agent.ToolResult"},
		{"another start", fresh, RunStarted{Tenant: "default", Run: "r1", Owner: "o", BodyDigest: "other"}, "apply run_started: the run has started with something else"},
		{"a slot after a gap", fresh, said(2, "x"), "apply input_received: slot 2 after 0"},
		{"an input without a slot", fresh, said(0, "x"), "apply input_received: without a slot a duplicate could not be told"},
		{"an input that says a call", fresh, InputReceived{Slot: 1, Blocks: []UserBlock{{ToolUse{ID: "a"}}}}, "apply input_received: a user does not say agent.ToolUse"},
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
			s.head.writer = "w9"
			before := exact(t, s)
			got, err := Apply(s, tt.event)
			require.EqualError(t, err, tt.want)
			var refused *ApplyError
			require.True(t, errors.As(err, &refused))
			require.Equal(t, EventType(tt.event), refused.Event)
			require.Equal(t, before, exact(t, got), "the state that is returned")
			require.Equal(t, before, exact(t, s), "the argument")
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

// TestSeenCount is the table of semantics 1.2.
func TestSeenCount(t *testing.T) {
	tests := []struct {
		name   string
		events []Event
		want   string
	}{
		{"the user's first message has not been seen", nil, "user:Do it./0"},
		{"the model's text has been seen once, by the model", []Event{text(1, "hi")}, "user:Do it./1 assistant:hi/1"},
		{"so have its calls", []Event{called(1, "r1", "r2")}, "user:Do it./1 call:r1/1 call:r2/1"},
		{"results have not", []Event{called(1, "r"), ran("r", "ok")}, "user:Do it./1 call:r/1 result:r=ok/0"},
		{"an inference adds one to every live message", []Event{called(1, "r"), ran("r", "ok"), text(2, "bye")}, "user:Do it./2 call:r/2 result:r=ok/1 assistant:bye/1"},
		{"an empty reply counts", []Event{text(1, "")}, "user:Do it./1"},
		{"a failed call of the model changes nothing", []Event{Fail(CodeModelFailed, "m")}, "user:Do it./0"},
		{"input that came in time is seen by the reply", []Event{said(1, "more"), text(1, "hi")}, "user:Do it./1 user:more/1 assistant:hi/1"},
		{"input that came later is not", []Event{text(1, "hi"), said(1, "more")}, "user:Do it./1 assistant:hi/1 user:more/0"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { require.Equal(t, tt.want, transcript(started(t, tt.events...))) })
	}
}

func TestRepliedCounts(t *testing.T) {
	s := started(t, called(1, "r"), ran("r", "ok"))
	s = commit(t, s, "w1", Replied{Inference: 2, Model: "m", Requests: 3, Usage: Usage{Input: 7, Output: 2, CacheRead: 1}, Units: 9, Text: "hi"})
	require.EqualValues(t, 2, s.Inferences)
	require.Equal(t, Interactions{Current: 2, Max: 2}, s.Interactions)
	require.EqualValues(t, 4, s.ModelCalls)
	require.Equal(t, Usage{Input: 10, Output: 3, CacheRead: 1}, s.Usage)
	require.EqualValues(t, 13, s.ExecutionUnits)
	s = commit(t, s, "w1", Finished{Reason: ReasonNaturalEnd, Requests: 2, Output: json.RawMessage(`"hi"`)})
	require.EqualValues(t, 6, s.ModelCalls)
	require.Equal(t, worldTime(s.Seq()), s.EndedAt)
}

// TestOrderOfMessages holds the order of semantics 6.1: what is known when the round comes to rest, in request order; what comes
// later together, in request order; media directly behind its result; users behind the round.
func TestOrderOfMessages(t *testing.T) {
	media := func(call, content string) CallFinished {
		f := ran(call, content)
		f.Media = []Media{{Name: call + "1", MediaType: "image/png", Blob: "b"}, {Name: call + "2", MediaType: "image/png", Blob: "b"}}
		return f
	}
	tests := []struct {
		name   string
		events []Event
		want   string
	}{
		{"nothing while a call has not come to rest", []Event{called(1, "r1", "r2"), ran("r2", "2")}, ""},
		{"request order, whichever was first", []Event{called(1, "r1", "r2", "r3"), ran("r3", "3"), ran("r1", "1"), ran("r2", "2")}, "result:r1=1/0 result:r2=2/0 result:r3=3/0"},
		{"what is known when the rest waits", []Event{called(1, "a", "r1", "b", "r2"), suspend("a"), ran("r2", "2"), suspend("b"), ran("r1", "1")}, "result:r1=1/0 result:r2=2/0"},
		{
			"what comes later waits for the last", []Event{called(1, "a", "r", "b"), suspend("a"), suspend("b"), ran("r", "1"), decision(1, "b", ActionDeny)},
			"result:r=1/0",
		},
		{
			"and stands in request order",
			[]Event{called(1, "a", "r", "b"), suspend("a"), suspend("b"), ran("r", "1"), decision(1, "b", ActionDeny), decision(2, "a", ActionApprove), CallClaimed{Call: "a"}, result("a", "paid")},
			"result:r=1/0 result:a=paid/0 result:b=told b/0",
		},
		{"media directly behind its result", []Event{called(1, "r1", "r2"), media("r2", "2"), media("r1", "1")}, "result:r1=1/0 media:r11/0 media:r12/0 result:r2=2/0 media:r21/0 media:r22/0"},
		{"users are heard behind the round", []Event{called(1, "r1", "r2"), said(1, "x"), ran("r1", "1"), said(2, "y"), ran("r2", "2")}, "result:r1=1/0 result:r2=2/0 user:x/0 user:y/0"},
		{"and not before it is over", []Event{called(1, "a", "r"), suspend("a"), said(1, "x"), ran("r", "1")}, "result:r=1/0"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := transcript(started(t, tt.events...))
			_, results, ok := strings.Cut(got, "/1 result:")
			if ok {
				results = "result:" + results
			}
			require.Equal(t, tt.want, results, got)
		})
	}
}

// TestEndClosesEveryCall with exactly one result, and says of none that was entered that it had no effect.
func TestEndClosesEveryCall(t *testing.T) {
	s := started(t, called(1, "new", "claimed", "asked", "lost", "again", "norun", "read"), CallClaimed{Call: "claimed"}, suspend("asked"),
		CallClaimed{Call: "lost"}, lost("lost"), CallClaimed{Call: "again"}, lost("again"), Answered{Slot: 1, Call: "again", Rerun: true},
		CallClaimed{Call: "norun"}, lost("norun"), Answered{Slot: 2, Call: "norun", Rerun: true, NotRun: true}, ran("read", "ok"), said(3, "hurry"))
	s = commit(t, s, "api", CancelRun("user:ana", "stop"))
	require.Equal(t, RunDone, s.Status)
	require.Equal(t, ReasonCancelled, s.Reason)
	why := map[string]CallReason{}
	for _, c := range s.Calls() {
		why[c.ID] = c.Reason
	}
	require.Equal(t, map[string]CallReason{
		"new": WhyCancelled, "asked": WhyCancelled, "norun": WhyCancelled, "claimed": WhyOutcomeUnknown, "lost": WhyOutcomeUnknown, "again": WhyOutcomeUnknown, "read": "",
	}, why)
	require.NoError(t, wellFormed(&s))
	got := transcript(s)
	for id, reason := range why {
		want := map[CallReason]string{WhyCancelled: textRunEnded, WhyOutcomeUnknown: textOutcomeUnknown, "": "ok"}[reason]
		require.Equal(t, 1, strings.Count(got, "result:"+id+"="+want+"/0"), id)
	}
	require.True(t, strings.HasSuffix(got, `user:hurry/0 user:The run was cancelled by user:ana and stopped here. Their note: "stop"/0`), got)
}

func TestLateResults(t *testing.T) {
	claimed := func(t *testing.T) AgentState { return started(t, called(1, "a"), CallClaimed{Call: "a"}) }
	unknown := func(t *testing.T) AgentState { return commit(t, claimed(t), "w2", lost("a")) }
	for name, state := range map[string]func(*testing.T) AgentState{"claimed": claimed, "unknown": unknown} {
		for _, isError := range []bool{false, true} {
			t.Run(name+" "+strconv.FormatBool(isError), func(t *testing.T) {
				s := commit(t, state(t), "w3", LateResult{Slot: 1, Call: "a", Writer: "w1", Content: "late", IsError: isError})
				c, _ := s.Call("a")
				require.Equal(t, outcome(isError), c.Status)
				require.Equal(t, isError, c.Reason == WhyToolError)
				require.Equal(t, 1, c.Executions)
				require.Equal(t, "user:Do it./1 call:a/1 result:a=late/0", transcript(s))
				require.EqualValues(t, 1, s.Drained)
			})
		}
	}
}

func TestExecutionsCountEntries(t *testing.T) {
	tests := []struct {
		name   string
		events []Event
		want   int
	}{
		{"given without running", []Event{result("a", "x")}, 0},
		{"refused", []Event{CallFinished{Call: "a", IsError: true, Reason: WhyInvalidArguments}}, 0},
		{"claimed", []Event{CallClaimed{Call: "a"}}, 1},
		{"claimed and finished", []Event{CallClaimed{Call: "a"}, result("a", "x")}, 1},
		{"lost and answered", []Event{CallClaimed{Call: "a"}, lost("a"), Answered{Slot: 1, Call: "a", Content: "x"}}, 1},
		{"lost and run again", []Event{CallClaimed{Call: "a"}, lost("a"), Answered{Slot: 1, Call: "a", Rerun: true}, CallClaimed{Call: "a"}}, 2},
		{"lost before it ran, and run", []Event{CallClaimed{Call: "a"}, lost("a"), Answered{Slot: 1, Call: "a", Rerun: true, NotRun: true}, CallClaimed{Call: "a"}}, 1},
		{"denied", []Event{suspend("a"), decision(1, "a", ActionDeny)}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, ok := func() (Call, bool) {
				s := started(t, append([]Event{called(1, "a")}, tt.events...)...)
				return s.Call("a")
			}()
			require.True(t, ok)
			require.Equal(t, tt.want, c.Executions)
		})
	}
}

func TestDecisions(t *testing.T) {
	edit := decision(1, "a", ActionApprove)
	edit.Args, edit.Digest, edit.Note = json.RawMessage(`{"n":2}`), "dg-edited", "less"
	tests := []struct {
		name   string
		event  Event
		status CallStatus
		why    CallReason
		input  string
		grant  *Grant
	}{
		{"approve", decision(1, "a", ActionApprove), StatusResuming, "", `{}`, &Grant{Approval: "ap-a", Digest: "dg-a", By: "user:ana", Expires: later}},
		{"edit", edit, StatusResuming, "", `{"n":2}`, &Grant{Approval: "ap-a", Digest: "dg-edited", By: "user:ana", Note: "less", Edited: true, Expires: later}},
		{"deny", decision(1, "a", ActionDeny), StatusCancelled, WhyDenied, `{}`, nil},
		{"cancel", decision(1, "a", ActionCancel), StatusCancelled, WhyCancelled, `{}`, nil},
		{"anything else denies", decision(1, "a", "maybe"), StatusCancelled, WhyDenied, `{}`, nil},
		{"expire", CallCancelled{Call: "a", Reason: WhyExpired, Content: "x"}, StatusCancelled, WhyExpired, `{}`, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := started(t, called(1, "a"), suspend("a"), tt.event)
			c, _ := s.Call("a")
			require.Equal(t, tt.status, c.Status)
			require.Equal(t, tt.why, c.Reason)
			require.Equal(t, tt.input, string(c.Input))
			require.Equal(t, tt.grant, c.Grant)
			require.Nil(t, c.Wait)
			require.Equal(t, ToolUse{ID: "a", Name: "tool", Input: json.RawMessage(`{}`)}, s.Messages.At(1).Block, "the model's own words stay")
		})
	}
}

func TestClaimUsesTheGrantUp(t *testing.T) {
	approved := started(t, called(1, "a"), suspend("a"), decision(1, "a", ActionApprove))
	s := commit(t, approved, "w2", CallClaimed{Call: "a"})
	c, _ := s.Call("a")
	require.Equal(t, "w2", c.Claim)
	require.True(t, c.Grant.Consumed)
	before, _ := approved.Call("a")
	require.False(t, before.Grant.Consumed, "the state before shares the grant")
}

func TestParkingNamesItsWait(t *testing.T) {
	s := started(t, called(1, "a"), suspend("a"), Parked{Expires: later})
	require.Equal(t, RunWaiting, s.Status)
	require.Equal(t, ReasonSuspended, s.Reason)
	require.EqualValues(t, 3, s.WaitSeq)
	s = commit(t, s, "w2", Resumed{}, Parked{Expires: later})
	require.EqualValues(t, 4, s.WaitSeq)
	s = commit(t, s, "w2", Resumed{})
	require.Equal(t, RunRunning, s.Status)
	require.Zero(t, s.WaitSeq)
	require.Empty(t, s.Reason)
}

func TestHandOver(t *testing.T) {
	s := started(t, HandedOver{Owner: "r1-1"})
	require.Equal(t, "r1-1", s.Owner)
	require.Equal(t, "r1-0", s.FormerOwner)
	require.EqualValues(t, 1, s.Generation)
	require.EqualValues(t, 1, s.OwnedSince)
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

// TestEveryRoundComesToRestAnew: what an earlier round committed says nothing of the next one.
func TestEveryRoundComesToRestAnew(t *testing.T) {
	s := started(t, called(1, "r"), ran("r", "1"), called(2, "a", "r2"), suspend("a"), ran("r2", "2"))
	require.Equal(t, "user:Do it./2 call:r/2 result:r=1/1 call:a/1 call:r2/1 result:r2=2/0", transcript(s))
	s = commit(t, s, "w1", decision(1, "a", ActionDeny))
	require.True(t, strings.HasSuffix(transcript(s), "result:r2=2/0 result:a=told a/0"))
}

// TestHeldBackInputsAreNotShared: two continuations of a state that holds inputs back each keep their own.
func TestHeldBackInputsAreNotShared(t *testing.T) {
	base := started(t, called(1, "r"), said(1, "a"), said(2, "b"), said(3, "c"))
	one := commit(t, base, "w1", said(4, "one"))
	two := commit(t, base, "w1", said(4, "two"))
	for s, want := range map[*AgentState]string{&one: " user:one/0", &two: " user:two/0", &base: ""} {
		got := transcript(commit(t, *s, "w1", ran("r", "ok")))
		require.Equal(t, "user:Do it./1 call:r/1 result:r=ok/0 user:a/0 user:b/0 user:c/0"+want, got)
	}
}
