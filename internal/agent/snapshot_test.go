package agent

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// longRun is a run that evicts as it goes: rounds of one or two calls, of which some wait, and now and then a message.
func longRun(t *rapid.T, rounds int) []Entry {
	l := &snapRun{t: t, at: worldEpoch}
	l.commit(RunStarted{Tenant: "default", Run: "r1", Agent: "a", Definition: "d", Owner: "r1-0", MaxInteractions: 9999,
		Messages: []UserBlock{{Text{"Begin."}}}, Input: json.RawMessage(`{"x":1.10}`), Trace: &Trace{Traceparent: "first", Tracestate: "a=1", Parent: "p"}})
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
	s       AgentState
	entries []Entry
	slot    int64
}

func (l *snapRun) commit(events ...Event) {
	l.at = l.at.Add(time.Second)
	d := NewDraft(l.s, fmt.Sprintf("w%d", l.s.Entries), l.at)
	require.NoError(l.t, d.Add(events...))
	require.NoError(l.t, d.Snap())
	raw, err := MarshalEntry(d.Entry)
	require.NoError(l.t, err)
	e, err := UnmarshalEntry(raw)
	require.NoError(l.t, err)
	l.entries, l.s = append(l.entries, e), d.Committed()
}

// refused is now and then a reply that is no output, in an entry that evicts, so that a snapshot is taken between it and its
// correction.
func (l *snapRun) refused() {
	seen := l.s.Messages.Len() - l.s.Unseen
	if seen < 3 || rapid.IntRange(0, 3).Draw(l.t, "refused") > 0 {
		return
	}
	l.commit(Evicted{Total: l.s.EvictedMessages + 1}, Replied{Inference: l.s.Inferences + 1, Model: "m", Requests: 1, Text: "no",
		Correction: &Correction{Lifecycle: LifecycleOutputError, Text: "Again.", Ephemeral: rapid.Bool().Draw(l.t, "ephemeral")}})
}

// beside is now and then what code and people say beside the loop: each is in a snapshot that is taken of the entry itself, and some in
// all that come after.
func (l *snapRun) beside() {
	for range rapid.IntRange(0, 4).Draw(l.t, "beside") {
		var events []Event
		if !slices.ContainsFunc(l.s.Live, Call.Open) && l.s.Messages.Len()-l.s.Unseen > 3 {
			events = append(events, Evicted{Total: l.s.EvictedMessages + 1})
		}
		l.commit(append(events, rapid.SampledFrom(snapBeside).Draw(l.t, "what")(l)...)...)
		var over []Event
		for _, c := range l.s.Waits() {
			over = append(over, CallCancelled{Call: c.ID, Reason: WhyExpired, Content: "over"})
		}
		if len(over) > 0 {
			l.commit(over...)
		}
	}
}

// snapBeside are facts that a round has not.
var snapBeside = []func(*snapRun) []Event{
	func(l *snapRun) []Event { return []Event{Hooked{N: l.s.Hooks + 1, Phase: PhaseRunStart}} },
	func(l *snapRun) []Event {
		return []Event{Hooked{N: l.s.Hooks + 1, Phase: PhaseBeforeInference, Hidden: []string{"pay"}, Patches: []Patch{{Path: "/seen", Value: json.RawMessage(`1`)}}}}
	},
	func(l *snapRun) []Event {
		c := l.s.Live[0].ID
		return []Event{Hooked{N: l.s.Hooks + 1, Phase: PhaseAfterTool, Call: c, Says: []Said{{Text: "mind it", Reminder: true}, {Text: "so"}}}}
	},
	func(*snapRun) []Event {
		return []Event{ToolsJudged{Tools: []ToolApproval{{Tool: "pay", Comments: "no"}}}}
	},
	func(*snapRun) []Event { return []Event{PolicyEvaluated{Tools: []string{"read"}}} },
	func(l *snapRun) []Event {
		return []Event{PermissionChecked{Inference: l.s.Round.Inference, Tools: map[string]PermissionStatus{"pay": PermissionDenied}}}
	},
	func(l *snapRun) []Event {
		l.slot++
		return []Event{DecisionKept{Slot: l.slot, Target: fmt.Sprint("t", l.slot%3), Action: ActionApprove, Result: json.RawMessage(`{"a":1}`), By: "user:ana", Groups: []string{"g"}}}
	},
	func(l *snapRun) []Event { return []Event{l.spent()} },
	(*snapRun).blocked,
	(*snapRun).asked,
	func(l *snapRun) []Event { return []Event{HandedOver{Owner: fmt.Sprint("r1-", l.s.Generation+1)}} },
}

// spent is a reply of which limits and stop policies remember something.
func (l *snapRun) spent() Replied {
	e := Replied{
		Inference: l.s.Inferences + 1, Model: "m", Requests: 1, Text: "so far", Cost: 12, At: 5, Usage: Usage{Input: 3, Output: 1},
		Pace: &Pace{FailedRounds: 2, Asked: []string{"x"}},
	}
	if rapid.Bool().Draw(l.t, "halt") {
		e.Halt = &Halt{Code: StopLoop, Detail: "d"}
	}
	return e
}

// blocked is a round whose call makes a request about its tool, which stays open or is decided about by half.
func (l *snapRun) blocked() []Event {
	if len(l.s.Permissions.Asked) > 0 {
		return l.answered()
	}
	n := l.s.Inferences + 1
	a, b := fmt.Sprintf("c%d-0", n), fmt.Sprintf("c%d-1", n)
	in := json.RawMessage(`{}`)
	id := fmt.Sprintf("q%d", n)
	return []Event{
		Replied{Inference: n, Model: "m", Requests: 1, Dropped: "one was left out", Calls: []RepliedCall{{ID: a, Name: "pay", Input: in}, {ID: b, Name: "mail", Input: in}}},
		PermissionRequested{Approval: id, Reason: "why", Expires: worldEpoch.Add(worldExpiry), Tools: []RequestedTool{
			{Tool: "pay", Name: "pay", Calls: []string{a}, Digests: []string{"d"}}, {Tool: "mail", Name: "mail", Calls: []string{b}, Digests: []string{"e"}},
		}},
		CallFinished{Call: a, IsError: true, Reason: WhyAwaiting, Content: "Blocked"},
		CallFinished{Call: b, IsError: true, Reason: WhyAwaiting, Content: "Blocked"},
	}
}

// answered decides about what is left of the open request.
func (l *snapRun) answered() []Event {
	r := l.s.Permissions.Asked[0]
	for _, t := range r.Tools {
		if t.Verdict == "" {
			l.slot++
			e := Decided{Slot: l.slot, Call: t.Calls[0], Approval: r.Approval, Tools: []string{t.Tool}, By: "user:ana", Note: "n",
				Action: rapid.SampledFrom([]DecisionAction{ActionApprove, ActionDeny, ActionCancel}).Draw(l.t, "verdict")}
			return []Event{e}
		}
	}
	return []Event{r.Answer(false)}
}

// asked is a service's call whose answer is waited for and a tool's own question, in a run that stays as it is.
func (l *snapRun) asked() []Event {
	n := l.s.Inferences + 1
	a, b := fmt.Sprintf("c%d-0", n), fmt.Sprintf("c%d-1", n)
	in, until := json.RawMessage(`{}`), worldEpoch.Add(worldExpiry)
	return []Event{
		Replied{Inference: n, Model: "m", Requests: 1, Calls: []RepliedCall{{ID: a, Name: "ask", Input: in, Service: true}, {ID: b, Name: "read", Effect: EffectRead, Input: in}}},
		CallClaimed{Call: a}, CallSuspended{Call: a, For: ForAnswer, Expires: until},
		CallSuspended{Call: b, For: ForInput, Approval: ApprovalID("r1", b, 1), Digest: "x", Expires: until, Ticket: &Ticket{ID: "t9", Mode: TicketResult}, Ran: true},
	}
}

var snapReasoning = [][]RepliedReasoning{
	nil,
	{{Text: "hm", Signature: "s"}},
	{{Redacted: []byte{0, 255}, AfterText: 2}, {Text: "and", AfterText: 6}, {Text: "so", AfterText: 6, AfterCalls: 1}},
}

// patches is what a call changes of the state now and then, from one round on or never.
func (l *snapRun) patches(n int64) []Patch {
	if rapid.IntRange(0, 2).Draw(l.t, "patches") > 0 {
		return nil
	}
	return []Patch{{Path: "/round", Value: json.RawMessage(fmt.Sprint(n))}, {Path: "/log/-", Value: json.RawMessage(`"A & B"`)}, {Path: "/gone"}}
}

func (l *snapRun) round(n int64) {
	for _, r := range l.s.Permissions.Asked { // or the run could not park
		if r.Complete() {
			l.commit(r.Answer(false))
		}
	}
	var events []Event
	if seen := l.s.Messages.Len() - l.s.Unseen; n > 2 && seen > 3 && rapid.IntRange(0, 2).Draw(l.t, "evict") == 0 {
		leave := rapid.IntRange(1, seen-1).Draw(l.t, "leave")
		events = append(events, Evicted{Total: l.s.EvictedMessages + int64(leave), Summary: fmt.Sprintf("summary %d", n)})
	}
	a, b := fmt.Sprintf("c%d-0", l.s.Prior+n), fmt.Sprintf("c%d-1", l.s.Prior+n)
	in := json.RawMessage(`{"to":"A & B"}`)
	l.commit(append(events, Replied{Inference: n, Model: "m", Requests: 1, Text: "On it.", Calls: []RepliedCall{
		{ID: a, Name: "read", Effect: EffectRead, Input: in}, {ID: b, Name: "pay", Effect: EffectNonIdempotent, Input: in},
	}, Reasoning: rapid.SampledFrom(snapReasoning).Draw(l.t, "reasoning")})...)
	ap := fmt.Sprintf("a%d", n)
	l.commit(CallSuspended{Call: b, Approval: ap, Digest: "x", Expires: worldEpoch.Add(worldExpiry)},
		CallFinished{Call: a, Ran: true, Content: "read", Media: []Media{{Name: "p", MediaType: "image/png", Blob: "b1"}}, Patch: l.patches(n)}, Parked{Expires: worldEpoch.Add(worldExpiry)})
	l.slot += 2
	l.commit(Resumed{}, InputReceived{Slot: l.slot - 1, ID: fmt.Sprint(n), By: "user:bo", Blocks: []UserBlock{{Text{"And?"}}}},
		Decided{Slot: l.slot, Call: b, Approval: ap, Action: ActionDeny, By: "user:ana", Text: "Denied."})
}

// A reader that begins at ReadFrom ends up where a reader of the whole journal does, settled calls aside.
func TestRestoreIsTheFold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		entries := longRun(t, rapid.IntRange(3, 14).Draw(t, "rounds"))
		var whole AgentState
		for i := range entries {
			whole = fold(t, whole, entries[i:i+1])
			restores(t, &whole, entries[:i+1])
		}
	})
}

// restores holds where a reader of the entries from ReadFrom on ends up where whole is.
func restores(t require.TestingT, whole *AgentState, entries []Entry) {
	from := whole.ReadFrom()
	part, ok, err := Restore(entries[from:])
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
func shared(t require.TestingT, s AgentState) string {
	s.Settled, s.Partial, s.From = CallLog{}, false, nil
	return place.ReplaceAllString(exact(t, s), "")
}

func TestEvictedTakesOnlyWhatWasSeenAndOnce(t *testing.T) {
	s, err := Apply(AgentState{}, RunStarted{Tenant: "default", Run: "r", Owner: "r-0", MaxInteractions: 5, Messages: []UserBlock{{Text{"a"}}, {Text{"b"}}}})
	require.NoError(t, err)
	_, err = Apply(s, Evicted{Total: 1})
	require.ErrorContains(t, err, "no inference has carried")
	s, err = Apply(s, Replied{Inference: 1, Text: "ok"})
	require.NoError(t, err)
	_, err = Apply(s, Evicted{Total: 4})
	require.ErrorContains(t, err, "4 of 3 messages")
	s, err = Apply(s, Evicted{Total: 1, Summary: "a was said"})
	require.NoError(t, err)
	again, err := Apply(s, Evicted{Total: 1, Summary: "something else"})
	require.NoError(t, err)
	require.Equal(t, 2, again.Messages.Len())
	require.Equal(t, "a was said", again.Summary)
}
