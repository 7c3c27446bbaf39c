package agent

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAskedFillsInWhatIsLeftOut (seed 001, 3.1): a ticket without a word is the call itself.
func TestAskedFillsInWhatIsLeftOut(t *testing.T) {
	in := json.RawMessage(`{"room":"R1"}`)
	c := Call{ID: "c1", Tool: "rooms.book", Name: "rooms_book", Input: in}
	_, ok := c.Asked()
	require.False(t, ok)
	c.Ticket = &Ticket{}
	got, ok := c.Asked()
	require.True(t, ok)
	require.Equal(t, Ticket{ID: "c1", Action: "tool:rooms.book", Parameters: in, Mode: TicketReplay, Pending: Pending{ID: "c1", Name: "rooms.book", Arguments: in}}, got)

	c.Ticket = &Ticket{ID: "s", Action: "pick", Message: "m", Parameters: json.RawMessage(`1`), ResponseSchema: json.RawMessage(`{}`), Mode: TicketPass, Pending: Pending{Arguments: json.RawMessage(`2`)}}
	got, _ = c.Asked()
	require.Equal(t, Ticket{
		ID: "s", Action: "pick", Message: "m", Parameters: json.RawMessage(`1`), ResponseSchema: json.RawMessage(`{}`), Mode: TicketPass,
		Pending: Pending{ID: "c1", Name: "rooms.book", Arguments: json.RawMessage(`2`)},
	}, got)
}

func TestTicketChecked(t *testing.T) {
	got, err := Ticket{Message: "a\xffb", Parameters: json.RawMessage(`{ "a" : 1.0 }`)}.Checked()
	require.NoError(t, err)
	require.Equal(t, Ticket{Message: "a\uFFFDb", Parameters: json.RawMessage(`{"a":1.0}`)}, got)
	for want, bad := range map[string]Ticket{
		"mode":              {Mode: "later"},
		"id":                {ID: strings.Repeat("x", 129)},
		"pending.id":        {Pending: Pending{ID: "a\nb"}},
		"pending.name":      {Pending: Pending{Name: "\xff"}},
		"action":            {Action: strings.Repeat("x", 201)},
		"message":           {Message: strings.Repeat("x", 4001)},
		"parameters":        {Parameters: json.RawMessage(`{"a":1,"a":2}`)},
		"responseSchema":    {ResponseSchema: json.RawMessage(`{`)},
		"pending.arguments": {Pending: Pending{Arguments: json.RawMessage(`nope`)}},
		"bytes":             {Parameters: json.RawMessage(`"` + strings.Repeat("x", 33<<10) + `"`)},
	} {
		_, err := bad.Checked()
		require.ErrorContains(t, err, want)
	}
}

// TestWaitingPrefersTheCall: what a tool names its suspension never takes a decision away from another call.
func TestWaitingPrefersTheCall(t *testing.T) {
	input := func(id string, ticket Ticket) Call {
		return Call{ID: id, Status: StatusSuspended, Wait: &Wait{For: ForInput, Approval: "a-" + id}, Ticket: &ticket}
	}
	s := &AgentState{Live: []Call{
		input("c1", Ticket{ID: "c2", Pending: Pending{ID: "s3"}}), input("c2", Ticket{ID: "s2", Pending: Pending{ID: "p2"}}), input("c3", Ticket{ID: "s3"}),
		{ID: "c4", Status: StatusSuspended, Wait: &Wait{For: ForApproval, Approval: "a-c4"}}, {ID: "c5", Status: StatusRunning, Ticket: &Ticket{ID: "s5"}},
	}}
	for target, want := range map[string]string{
		"c1": "c1", "c2": "c2", "s2": "c2", "p2": "c2", "s3": "c3", "a-c3": "c3", "c4": "c4", "a-c4": "c4", "fc_c4": "c4", "fc_c1": "", "s5": "", "c5": "", "": "",
	} {
		got, ok := s.Waiting(target)
		require.Equal(t, want, got.ID, target)
		require.Equal(t, want != "", ok, target)
	}
}

// TestResumeInput: null is true; the answer is checked; only an answer that takes the arguments' place changes the action.
func TestResumeInput(t *testing.T) {
	d := worldDefinition()
	ana := Principal{ID: "user:ana"}
	call := func(mode TicketMode) Call {
		return Call{ID: "a", Tool: "wire", Input: json.RawMessage(`{}`), Status: StatusSuspended, Wait: &Wait{For: ForInput, Approval: "q", Digest: "d"}, Ticket: &Ticket{Mode: mode, ResponseSchema: json.RawMessage(`{}`)}}
	}
	s := &AgentState{Tenant: "default", Run: "r1"}
	for _, tt := range []struct {
		mode                 TicketMode
		result, answer, args string
	}{
		{TicketReplay, ``, `true`, ``}, {TicketReplay, ` null `, `true`, ``}, {TicketReplay, `false`, `false`, ``}, {TicketReplay, `{ "n":1.0 }`, `{"n":1.0}`, ``},
		{TicketResult, `0`, `0`, ``}, {TicketPass, `true`, `true`, ``}, {TicketPass, `false`, `false`, ``}, {TicketPass, `{"n":2}`, `{"n":2}`, `{"n":2}`},
	} {
		var result json.RawMessage
		if tt.result != "" {
			result = json.RawMessage(tt.result)
		}
		fact, err := ResumeInput(&d, s, call(tt.mode), result, ana.ID, ana.mayDecide, worldValid)
		require.NoError(t, err)
		require.Equal(t, []string{tt.answer, tt.args}, []string{string(fact.Result), string(fact.Args)}, "%s %s", tt.mode, tt.result)
		require.Equal(t, tt.args == "", fact.Digest == "d", "another action has another digest")
	}
	var refused *AnswerError
	_, err := ResumeInput(&d, s, call(TicketReplay), json.RawMessage(`"bad"`), ana.ID, ana.mayDecide, worldValid)
	require.ErrorAs(t, err, &refused)
	require.Contains(t, err.Error(), "response schema of call a")
	_, err = ResumeInput(&d, s, call(TicketPass), json.RawMessage(`{"n":2}`), "user:eve", Principal{ID: "user:eve"}.mayDecide, worldValid)
	require.ErrorIs(t, err, ErrOtherApprovers)
	c := call(TicketPass)
	c.Tool = "drop"
	var amend *AmendError
	_, err = ResumeInput(&d, s, c, json.RawMessage(`{"n":2}`), ana.ID, ana.mayDecide, worldValid)
	require.ErrorAs(t, err, &amend)
	c.Tool = "wire"
	failing := func(ToolSpec, json.RawMessage) error { return errors.New("no") }
	c.Ticket.ResponseSchema = nil
	_, err = ResumeInput(&d, s, c, json.RawMessage(`{"n":2}`), ana.ID, ana.mayDecide, failing)
	require.ErrorAs(t, err, &amend)
}

// TestEarlySettlesTheNewest: of the decisions that meet one call the newest counts, whatever they were aimed at, and none is left.
func TestEarlySettlesTheNewest(t *testing.T) {
	d := worldDefinition()
	later := worldTime(1000)
	wait := Call{ID: "a", Tool: "wire", Input: json.RawMessage(`{}`), Status: StatusSuspended, Wait: &Wait{For: ForApproval, Approval: "q", Digest: "d", Expires: later}}
	keep := func(target string, a DecisionAction, by, result string) DecisionKept {
		k := DecisionKept{Slot: 1, Target: target, Action: a, By: by}
		if result != "" {
			k.Result = json.RawMessage(result)
		}
		return k
	}
	yes := func(target string) Event {
		return Decided{Call: "a", Approval: "q", Action: ActionApprove, By: "user:ana", Digest: "d", Early: target, Voices: []Voice{{By: "user:ana", At: worldEpoch}}}
	}
	drop := func(target, why string) Event { return DecisionDropped{Target: target, Call: "a", Why: why} }
	outcome := wait
	outcome.Wait = &Wait{For: ForOutcome, Approval: "q", Expires: later}
	for name, tt := range map[string]struct {
		call Call
		kept []DecisionKept
		want []Event
	}{
		"nothing":            {wait, nil, nil},
		"something else":     {wait, []DecisionKept{keep("b", ActionApprove, "user:ana", "")}, nil},
		"one":                {wait, []DecisionKept{keep("a", ActionApprove, "user:ana", "true")}, []Event{yes("a")}},
		"two":                {wait, []DecisionKept{keep("a", ActionDeny, "user:ana", ""), keep("fc_a", ActionApprove, "user:ana", "")}, []Event{yes("fc_a"), drop("a", dropOvertaken)}},
		"a stranger's":       {wait, []DecisionKept{keep("a", ActionApprove, "user:eve", "")}, []Event{drop("a", dropNotApprover)}},
		"a stranger's no":    {wait, []DecisionKept{keep("a", ActionDeny, "user:eve", "")}, []Event{drop("a", dropNotApprover)}},
		"with a result":      {wait, []DecisionKept{keep("a", ActionApprove, "user:ana", `{"amount":1}`)}, []Event{drop("a", dropNoResult)}},
		"with no":            {wait, []DecisionKept{keep("a", ActionApprove, "user:ana", `false`)}, []Event{drop("a", dropNoResult)}},
		"an unknown outcome": {outcome, []DecisionKept{keep("a", ActionApprove, "user:ana", "")}, []Event{drop("a", dropNoDecision)}},
	} {
		s := &AgentState{Tenant: "default", Run: "r1", Status: RunRunning, Live: []Call{tt.call}, Kept: tt.kept}
		require.Equal(t, tt.want, Early(&d, s, worldValid, worldEpoch), name)
		require.Equal(t, len(tt.want) > 0, EarlyOwed(s), name)
	}
	s := &AgentState{Tenant: "default", Run: "r1", Status: RunRunning, Live: []Call{wait}, Kept: []DecisionKept{keep("a", ActionApprove, "user:ana", "")}}
	require.Equal(t, []Event{drop("a", dropExpired)}, Early(&d, s, worldValid, later))
}

// TestNoResumingCallIsAnOrphan: seed 001 settles a resuming call whose suspension is gone. Here call and suspension are one record: a call
// comes to resume from its suspension alone, by a fact that names the very request, and keeps what it was asked and answered.
func TestNoResumingCallIsAnOrphan(t *testing.T) {
	for _, a := range CallArrows() {
		require.Equal(t, a.To == StatusResuming, a.From == StatusSuspended && a.To != StatusCancelled, a)
	}
	w := world{def: worldDefinition()}
	s := fold(t, AgentState{}, []Entry{{Writer: "w1", Time: worldEpoch, Events: []Event{
		w.start(), Replied{Inference: 1, Calls: []RepliedCall{{ID: "a", Name: "pay_now", Tool: "pay.now", Input: json.RawMessage(`{}`)}}}, CallClaimed{Call: "a"},
		CallSuspended{Call: "a", Approval: "q1", For: ForInput, Ticket: &Ticket{}, Expires: worldTime(9)},
	}}})
	for _, e := range []Event{
		Decided{Call: "a", Approval: "q0", Action: ActionApprove}, Decided{Call: "a", Approval: "q0", Action: ActionCancel}, Decided{Call: "b", Approval: "q1", Action: ActionApprove},
		Answered{Call: "a", Content: "x"}, LateResult{Call: "a", Content: "x"},
	} {
		n, err := Apply(s, e)
		require.NoError(t, err)
		require.Equal(t, exact(t, s), exact(t, n), "%T changes nothing", e)
	}
	n, err := Apply(s, Decided{Call: "a", Approval: "q1", Action: ActionApprove})
	require.NoError(t, err)
	c, _ := n.Call("a")
	require.Equal(t, []any{StatusResuming, &Ticket{}, json.RawMessage("true")}, []any{c.Status, c.Ticket, c.Resume})
}

// TestGateGivesTheAnswer: where the answer is the result the tool does not run, but what policy denies by now is denied.
func TestGateGivesTheAnswer(t *testing.T) {
	d := worldDefinition()
	c := Call{ID: "a", Tool: "pay.now", Name: "pay_now", Input: json.RawMessage(`{}`), Status: StatusResuming, Ticket: &Ticket{Mode: TicketResult}, Resume: json.RawMessage(`"on Monday"`)}
	g := GateCall(&d, &AgentState{}, c, worldValid, worldEpoch)
	require.Equal(t, &ToolResultData{Content: "on Monday"}, g.Give)
	d.Permission.Rules = append(d.Permission.Rules, Rule{Tool: "pay.now", Verdict: VerdictDeny})
	require.Equal(t, WhyDenied, GateCall(&d, &AgentState{}, c, worldValid, worldEpoch).Refuse.Reason)
}
