package run_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

// longRun is a run that evicts as it goes: rounds of one or two calls, of which some wait, and now and then a message.
func longRun(t *rapid.T, rounds int) []run.Entry {
	l := &snapRun{t: t, at: worldEpoch}
	l.commit(run.RunStarted{Tenant: "default", Run: "r1", Agent: "a", Definition: "d", Owner: "r1-0", MaxInteractions: 9999,
		Messages: []run.UserBlock{{Block: run.Text{Text: "Begin."}}}, Input: json.RawMessage(`{"x":1.10}`), Trace: &run.Trace{Traceparent: "first", Tracestate: "a=1", Parent: "p"}})
	for range rounds {
		l.refused()
		l.round(l.s.Inferences + 1)
		l.beside()
	}
	l.refused()
	return l.entries
}

type snapRun struct {
	t       *rapid.T
	at      time.Time
	s       run.AgentState
	entries []run.Entry
	slot    int64
}

func (l *snapRun) commit(events ...run.Event) {
	l.at = l.at.Add(time.Second)
	d := run.NewDraft(l.s, fmt.Sprintf("w%d", l.s.Entries), l.at)
	require.NoError(l.t, d.Add(events...))
	require.NoError(l.t, d.Snap())
	l.entries, l.s = append(l.entries, stored(l.t, []run.Entry{d.Entry})...), d.Committed()
}

// refused is now and then a reply that is no output, in an entry that evicts, so that a snapshot is taken between it and its
// correction.
func (l *snapRun) refused() {
	seen := l.s.Messages.Len() - l.s.Unseen
	if seen < 3 || rapid.IntRange(0, 3).Draw(l.t, "refused") > 0 {
		return
	}
	l.commit(run.Evicted{Total: l.s.EvictedMessages + 1}, run.Replied{Inference: l.s.Inferences + 1, Model: "m", Requests: 1, Text: "no",
		Correction: &run.Correction{Lifecycle: run.LifecycleOutputError, Text: "Again.", Ephemeral: rapid.Bool().Draw(l.t, "ephemeral")}})
}

// beside is now and then what code and people say beside the loop: each is in a snapshot that is taken of the entry itself, and some in
// all that come after.
func (l *snapRun) beside() {
	for range rapid.IntRange(0, 4).Draw(l.t, "beside") {
		var events []run.Event
		if !slices.ContainsFunc(l.s.Live, run.Call.Open) && l.s.Messages.Len()-l.s.Unseen > 3 {
			events = append(events, run.Evicted{Total: l.s.EvictedMessages + 1})
		}
		l.commit(append(events, rapid.SampledFrom(snapBeside).Draw(l.t, "what")(l)...)...)
		var over []run.Event
		for _, c := range l.s.Waits() {
			over = append(over, run.CallCancelled{Call: c.ID, Reason: run.WhyExpired, Content: "over"})
		}
		if len(over) > 0 {
			l.commit(over...)
		}
	}
}

// snapBeside are facts that a round has not.
var snapBeside = []func(*snapRun) []run.Event{
	func(l *snapRun) []run.Event {
		return []run.Event{run.Hooked{N: l.s.Hooks + 1, Phase: run.PhaseRunStart}}
	},
	func(l *snapRun) []run.Event {
		return []run.Event{run.Hooked{N: l.s.Hooks + 1, Phase: run.PhaseBeforeInference, Hidden: []string{"pay"}, Patches: []run.Patch{{Path: "/seen", Value: json.RawMessage(`1`)}}}}
	},
	func(l *snapRun) []run.Event {
		c := l.s.Live[0].ID
		return []run.Event{run.Hooked{N: l.s.Hooks + 1, Phase: run.PhaseAfterTool, Call: c, Says: []run.Said{{Text: "mind it", Reminder: true}, {Text: "so"}}}}
	},
	func(*snapRun) []run.Event {
		return []run.Event{run.Remembered{Policy: "approvals", Value: json.RawMessage(`[{"tool":"pay","comments":"<no>"}]`)}}
	},
	func(*snapRun) []run.Event {
		return []run.Event{run.Remembered{Policy: "listed", Value: json.RawMessage(`["read"]`)}}
	},
	func(l *snapRun) []run.Event {
		return []run.Event{run.PermissionChecked{Inference: l.s.Round.Inference, Tools: map[string]run.PermissionStatus{"pay": "DENIED"}}}
	},
	func(l *snapRun) []run.Event {
		l.slot++
		return []run.Event{run.DecisionKept{Slot: l.slot, Target: fmt.Sprint("t", l.slot%3), Action: run.ActionApprove, Result: json.RawMessage(`{"a":1}`), By: "user:ana", Groups: []string{"g"}}}
	},
	func(l *snapRun) []run.Event { return []run.Event{l.spent()} },
	(*snapRun).blocked,
	(*snapRun).asked,
	func(l *snapRun) []run.Event {
		return []run.Event{run.HandedOver{Owner: fmt.Sprint("r1-", l.s.Generation+1)}}
	},
}

// spent is a reply of which limits and stop policies remember something.
func (l *snapRun) spent() run.Replied {
	e := run.Replied{
		Inference: l.s.Inferences + 1, Model: "m", Requests: 1, Text: "so far", Cost: 12, At: 5, Usage: run.Usage{Input: 3, Output: 1},
		Memory: map[string]json.RawMessage{"streaks": json.RawMessage(`[{"name":"error_rounds","of":"failed","times":2}]`)},
	}
	if rapid.Bool().Draw(l.t, "halt") {
		e.Halt = &run.Halt{Code: policy.StopLoop, Detail: "d"}
	}
	return e
}

// blocked is a round whose call makes a request about its tool, which stays open or is decided about by half.
func (l *snapRun) blocked() []run.Event {
	if len(l.s.Permissions.Asked) > 0 {
		return l.answered()
	}
	n := l.s.Inferences + 1
	a, b := fmt.Sprintf("c%d-0", n), fmt.Sprintf("c%d-1", n)
	in := json.RawMessage(`{}`)
	id := fmt.Sprintf("q%d", n)
	return []run.Event{
		run.Replied{Inference: n, Model: "m", Requests: 1, Dropped: "one was left out", Calls: []run.RepliedCall{{ID: a, Name: "pay", Input: in}, {ID: b, Name: "mail", Input: in}}},
		run.PermissionRequested{Approval: id, Reason: "why", Expires: worldEpoch.Add(worldExpiry), Tools: []run.RequestedTool{
			{Tool: "pay", Name: "pay", Calls: []string{a}, Digests: []string{"d"}}, {Tool: "mail", Name: "mail", Calls: []string{b}, Digests: []string{"e"}},
		}},
		run.CallFinished{Call: a, IsError: true, Reason: run.WhyAwaiting, Content: "Blocked"},
		run.CallFinished{Call: b, IsError: true, Reason: run.WhyAwaiting, Content: "Blocked"},
	}
}

// answered decides about what is left of the open request.
func (l *snapRun) answered() []run.Event {
	r := l.s.Permissions.Asked[0]
	for _, t := range r.Tools {
		if t.Verdict == "" {
			l.slot++
			e := run.Decided{Slot: l.slot, Call: t.Calls[0], Approval: r.Approval, Tools: []string{t.Tool}, By: "user:ana", Note: "n",
				Action: rapid.SampledFrom([]run.DecisionAction{run.ActionApprove, run.ActionDeny, run.ActionCancel}).Draw(l.t, "verdict")}
			return []run.Event{e}
		}
	}
	return []run.Event{policy.AnswerRequest(r, false)}
}

// asked is a service's call whose answer is waited for and a tool's own question, in a run that stays as it is.
func (l *snapRun) asked() []run.Event {
	n := l.s.Inferences + 1
	a, b := fmt.Sprintf("c%d-0", n), fmt.Sprintf("c%d-1", n)
	in, until := json.RawMessage(`{}`), worldEpoch.Add(worldExpiry)
	return []run.Event{
		run.Replied{Inference: n, Model: "m", Requests: 1, Calls: []run.RepliedCall{{ID: a, Name: "ask", Input: in, Service: true}, {ID: b, Name: "read", Effect: run.EffectRead, Input: in}}},
		run.CallClaimed{Call: a}, run.CallSuspended{Call: a, For: run.ForAnswer, Expires: until},
		run.CallSuspended{Call: b, For: run.ForInput, Approval: run.ApprovalID("r1", b, 1), Digest: "x", Expires: until, Ticket: &run.Ticket{ID: "t9", Mode: run.TicketResult}, Ran: true},
	}
}

var snapReasoning = [][]run.RepliedReasoning{
	nil,
	{{Reasoning: run.Reasoning{Text: "hm", Signature: "s"}}},
	{
		{Reasoning: run.Reasoning{Redacted: []byte{0, 255}}, AfterText: 2}, {Reasoning: run.Reasoning{Text: "and"}, AfterText: 6},
		{Reasoning: run.Reasoning{Text: "so"}, AfterText: 6, AfterCalls: 1},
	},
}

// patches is what a call changes of the state now and then, from one round on or never.
func (l *snapRun) patches(n int64) []run.Patch {
	if rapid.IntRange(0, 2).Draw(l.t, "patches") > 0 {
		return nil
	}
	return []run.Patch{{Path: "/round", Value: json.RawMessage(fmt.Sprint(n))}, {Path: "/log/-", Value: json.RawMessage(`"A & B"`)}, {Path: "/gone"}}
}

func (l *snapRun) round(n int64) {
	for _, r := range l.s.Permissions.Asked { // or the run could not park
		if r.Complete() {
			l.commit(policy.AnswerRequest(r, false))
		}
	}
	var events []run.Event
	if seen := l.s.Messages.Len() - l.s.Unseen; n > 2 && seen > 3 && rapid.IntRange(0, 2).Draw(l.t, "evict") == 0 {
		leave := rapid.IntRange(1, seen-1).Draw(l.t, "leave")
		events = append(events, run.Evicted{Total: l.s.EvictedMessages + int64(leave), Summary: fmt.Sprintf("summary %d", n)})
	}
	a, b := fmt.Sprintf("c%d-0", l.s.Prior+n), fmt.Sprintf("c%d-1", l.s.Prior+n)
	in := json.RawMessage(`{"to":"A & B"}`)
	l.commit(append(events, run.Replied{Inference: n, Model: "m", Requests: 1, Text: "On it.", Calls: []run.RepliedCall{
		{ID: a, Name: "read", Effect: run.EffectRead, Input: in}, {ID: b, Name: "pay", Effect: run.EffectNonIdempotent, Input: in},
	}, Reasoning: rapid.SampledFrom(snapReasoning).Draw(l.t, "reasoning")})...)
	ap := fmt.Sprintf("a%d", n)
	l.commit(run.CallSuspended{Call: b, Approval: ap, Digest: "x", Expires: worldEpoch.Add(worldExpiry)},
		run.CallFinished{Call: a, Ran: true, Content: "read", Media: []run.Media{{Name: "p", MediaType: "image/png", Blob: "b1"}}, Patch: l.patches(n)}, run.Parked{Expires: worldEpoch.Add(worldExpiry)})
	l.slot += 2
	l.commit(run.Resumed{}, run.InputReceived{Slot: l.slot - 1, ID: fmt.Sprint(n), By: "user:bo", Blocks: []run.UserBlock{{Block: run.Text{Text: "And?"}}}},
		run.Decided{Slot: l.slot, Call: b, Approval: ap, Action: run.ActionDeny, By: "user:ana", Text: "Denied."})
}

// A reader that begins at ReadFrom ends up where a reader of the whole journal does, settled calls aside.
func TestRestoreIsTheFold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		entries := longRun(t, rapid.IntRange(3, 14).Draw(t, "rounds"))
		var whole run.AgentState
		for i := range entries {
			whole = fold(t, whole, entries[i:i+1])
			restores(t, &whole, entries[:i+1])
		}
	})
}

// restores holds where a reader of the entries from ReadFrom on ends up where whole is.
func restores(t require.TestingT, whole *run.AgentState, entries []run.Entry) {
	from := whole.ReadFrom()
	part, ok, err := run.Restore(entries[from:])
	require.NoError(t, err)
	if whole.EvictedMessages == 0 {
		require.False(t, ok, "no snapshot is taken of a run that has not evicted")
		return
	}
	require.True(t, ok)
	require.True(t, part.Partial)
	require.Equal(t, shared(t, *whole), shared(t, part))
	require.Equal(t, from, part.ReadFrom())
}

// place is where in its entry a state's newest fact stands.
var place = regexp.MustCompile(`event:\d+ `)

// shared is everything a restored state must share with the fold.
func shared(t require.TestingT, s run.AgentState) string {
	s.Settled, s.Partial, s.From = run.Log[run.Call]{}, false, nil
	return place.ReplaceAllString(exact(t, s), "")
}
