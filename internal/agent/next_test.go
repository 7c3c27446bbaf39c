package agent

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestNext(t *testing.T) {
	sequential := func(d *Definition) { d.Executor = ExecutorSequential }
	allAnswered := func(d *Definition) { d.Resume = ResumeAllAnswered }
	tools := func(ids ...string) Action { return Action{Kind: ActTools, Calls: ids} }
	wait := Action{Kind: ActWait, Expires: later}
	round := called(1, "a", "r", "b")
	tests := []struct {
		name   string
		change func(*Definition)
		events []Event
		want   Action
	}{
		{"the model is asked first", nil, nil, Action{Kind: ActInfer, Lifecycle: LifecycleInit}},
		{"then its calls run, all at once", nil, []Event{round}, tools("a", "r", "b")},
		{"a sequential executor takes one", sequential, []Event{round}, tools("a")},
		{"a running call is looked after", nil, []Event{round, CallClaimed{Call: "a"}, ran("r", "1")}, tools("a", "b")},
		{"a suspended one is not", nil, []Event{round, suspend("a"), ran("r", "1")}, tools("b")},
		{"a sequential executor takes none behind it", sequential, []Event{round, suspend("a")}, wait},
		{"and goes on once it is settled", sequential, []Event{round, suspend("a"), decision(1, "a", ActionDeny)}, tools("r")},
		{"an approved call runs while another waits", nil, []Event{called(1, "a", "b"), suspend("a"), suspend("b"), decision(1, "a", ActionApprove)}, tools("a")},
		{"but not where all have to be answered", allAnswered, []Event{called(1, "a", "b"), suspend("a"), suspend("b"), decision(1, "a", ActionApprove)}, wait},
		{"then they run in request order", allAnswered, []Event{called(1, "a", "b"), suspend("a"), suspend("b"), decision(1, "b", ActionApprove), decision(2, "a", ActionApprove)}, tools("a", "b")},
		{"new calls run before all are answered", allAnswered, []Event{called(1, "a", "b"), suspend("a")}, tools("b")},
		{"a round that rests waits", nil, []Event{called(1, "a", "r"), suspend("a"), ran("r", "1")}, wait},
		{"a parked run waits", nil, []Event{called(1, "a"), suspend("a"), Parked{Expires: later}}, wait},
		{"so does one with unheard input", nil, []Event{called(1, "a"), suspend("a"), said(1, "x")}, wait},
		{"an unknown outcome waits", nil, []Event{called(1, "a"), CallClaimed{Call: "a"}, lost("a")}, wait},
		{"results go to the model", nil, []Event{called(1, "r"), ran("r", "1")}, Action{Kind: ActInfer, Lifecycle: LifecycleToolResult}},
		{"with what users said meanwhile", nil, []Event{called(1, "r"), ran("r", "1"), said(1, "x")}, Action{Kind: ActInfer, Lifecycle: LifecycleToolResult}},
		{"input goes to the model", nil, []Event{text(1, "hi"), said(1, "x")}, Action{Kind: ActInfer, Lifecycle: LifecycleInput}},
		{"a text nobody answers ends the run", nil, []Event{text(1, "hi")}, Action{Kind: ActEnd, End: Finished{Reason: ReasonNaturalEnd, Output: json.RawMessage(`"hi"`)}}},
		{"so does an empty reply", nil, []Event{text(1, "")}, Action{Kind: ActEnd, End: Finished{Reason: ReasonNaturalEnd, Output: json.RawMessage(`""`)}}},
		{"a run that is done is done", nil, []Event{text(1, "hi"), Finished{Reason: ReasonNaturalEnd}}, Action{Kind: ActDone}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := worldDefinition()
			if tt.change != nil {
				tt.change(&d)
			}
			s := started(t, tt.events...)
			require.Equal(t, tt.want, Next(&d, &s))
		})
	}
}

func TestNextWaitsForTheFirstToExpire(t *testing.T) {
	soon := suspend("b")
	soon.Expires = later.Add(-time.Hour)
	d := worldDefinition()
	s := started(t, called(1, "a", "b"), suspend("a"), soon)
	require.Equal(t, Action{Kind: ActWait, Expires: soon.Expires}, Next(&d, &s))
}

// TestNextCountsInteractions: a call is made while current < max + grace, and is exhausted from max on.
func TestNextCountsInteractions(t *testing.T) {
	tests := []struct {
		max, grace int
		on         OnLimit
		asked      []bool // exhausted, of each inference that is made
		want       Reason
	}{
		{1, 0, OnLimitError, []bool{false}, ReasonError},
		{2, 0, OnLimitStop, []bool{false, false}, ReasonMaxRounds},
		{2, 1, OnLimitError, []bool{false, false, true}, ReasonError},
		{1, 2, OnLimitStop, []bool{false, true, true}, ReasonMaxRounds},
	}
	for _, tt := range tests {
		d := worldDefinition(func(d *Definition) { d.Limits = Limits{Interactions: tt.max, Grace: tt.grace, OnLimit: tt.on} })
		w := world{def: d}
		s := commit(t, AgentState{}, "w1", w.start())
		var asked []bool
		a := Next(&d, &s)
		for ; a.Kind == ActInfer; a = Next(&d, &s) {
			asked = append(asked, a.Exhausted)
			id := "r" + string(rune('0'+len(asked)))
			s = commit(t, s, "w1", called(s.Inferences+1, id))
			s = commit(t, s, "w1", ran(id, "ok"))
		}
		require.Equal(t, tt.asked, asked)
		require.Equal(t, ActEnd, a.Kind)
		require.Equal(t, tt.want, a.End.Reason)
		if tt.want == ReasonError {
			require.Equal(t, CodeInteractionsExhausted, a.End.Error.Code)
			require.Contains(t, a.End.Error.Message, "1234"[tt.max-1:tt.max])
		}
		s = commit(t, s, "w1", a.End)
		require.Equal(t, RunDone, s.Status)
	}
}

func TestNextHandsOverAfterManyEntries(t *testing.T) {
	d := worldDefinition()
	s := started(t)
	s.Entries = s.OwnedSince + entriesPerExecution - 1
	require.Equal(t, ActInfer, Next(&d, &s).Kind)
	s.Entries++
	require.Equal(t, Action{Kind: ActContinue}, Next(&d, &s))
	s = commit(t, s, "w1", HandedOver{Owner: "r1-1"})
	require.Equal(t, ActInfer, Next(&d, &s).Kind)
}

// An execution ends after a year, which nothing in it can catch: whatever the run does next, another one goes on in time.
func TestNextHandsOverWithinAYear(t *testing.T) {
	d := worldDefinition()
	s := started(t)
	year := 365 * 24 * time.Hour
	require.Less(t, s.HandsOverAt().Sub(s.StartedAt), year-24*time.Hour)
	s.head.time = s.HandsOverAt().Add(-time.Millisecond)
	require.Equal(t, ActInfer, Next(&d, &s).Kind)
	s.head.time = s.HandsOverAt()
	require.Equal(t, Action{Kind: ActContinue}, Next(&d, &s))
	draft := NewDraft(s, "w1", s.HandsOverAt())
	require.NoError(t, draft.Add(HandedOver{Owner: "r1-1"}))
	after := draft.Committed()
	require.Equal(t, ActInfer, Next(&d, &after).Kind)
	require.Equal(t, after.UpdatedAt.Add(s.HandsOverAt().Sub(s.StartedAt)), after.HandsOverAt(), "the next one has as long")
}

// Owners that handed over are no sign that a run gets nowhere; those that ended before are.
func TestTakeOvers(t *testing.T) {
	for _, c := range []struct{ generation, entries, want int64 }{
		{0, 1, 0},
		{1, entriesPerExecution + 1, 0}, // handed over
		{1, 20, 1},
		{200, 200*entriesPerExecution + 200, 0},
		{101, entriesPerExecution + 101, 100},
		{3, 20 * entriesPerExecution, 0}, // by a build whose executions wrote more
	} {
		s := AgentState{Generation: c.generation, Entries: c.entries}
		require.Equal(t, c.want, s.TakeOvers(), "%+v", c)
	}
}

func TestPlanReply(t *testing.T) {
	priorities := func(mode BatchMode) func(*Definition) {
		return func(d *Definition) {
			d.Batch = mode
			d.Tools[0].Priority, d.Tools[2].Priority, d.Tools[3].Priority = -1, 5, 5 // look, pay.now, wire
		}
	}
	drop := func(d *Definition) { d.TextBesideCalls = TextBesideDrop }
	tests := []struct {
		name   string
		change func(*Definition)
		reply  Reply
		text   string
		want   string // ids and names
	}{
		{"text alone", drop, Reply{Text: "hi"}, "hi", ""},
		{"text beside calls is kept", nil, Reply{Text: "hi", Calls: ask("look")}, "hi", "a:look"},
		{"or dropped", drop, Reply{Text: "hi", Calls: ask("look")}, "", "a:look"},
		{"all", nil, Reply{Calls: ask("look", "wire", "ghost")}, "", "a:look b:wire c:ghost"},
		{"the first", func(d *Definition) { d.Batch = BatchFirst }, Reply{Calls: ask("look", "wire")}, "", "a:look"},
		{"the highest priority, ties in request order", priorities(BatchHighestPriority), Reply{Calls: ask("look", "wire", "ghost", "pay_now")}, "", "b:wire d:pay_now"},
		{"an unknown tool has priority zero", priorities(BatchHighestPriority), Reply{Calls: ask("look", "ghost", "drop")}, "", "b:ghost c:drop"},
		{"an id used before is replaced", nil, Reply{Calls: []ReplyCall{{ID: "old", Name: "look"}, {ID: "new", Name: "look"}}}, "", "c2-0:look new:look"},
		{"so is one used twice", nil, Reply{Calls: []ReplyCall{{ID: "x", Name: "look"}, {ID: "x", Name: "wire"}}}, "", "x:look c2-1:wire"},
		{"and one that is missing or malformed", nil, Reply{Calls: []ReplyCall{{Name: "look"}, {ID: "a b", Name: "wire"}}}, "", "c2-0:look c2-1:wire"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := worldDefinition()
			if tt.change != nil {
				tt.change(&d)
			}
			s := started(t, called(1, "old"), result("old", "x"))
			e := PlanReply(&d, &s, tt.reply, 2, "sys")
			require.EqualValues(t, 2, e.Inference)
			require.Equal(t, 2, e.Requests)
			require.Equal(t, "sys", e.System)
			require.Equal(t, tt.text, e.Text)
			var got []string
			for _, c := range e.Calls {
				got = append(got, c.ID+":"+c.Name)
			}
			require.Equal(t, tt.want, strings.Join(got, " "))
			commit(t, s, "w1", e)
		})
	}
}

func TestPlanReplyLooksToolsUp(t *testing.T) {
	d := worldDefinition()
	s := started(t)
	e := PlanReply(&d, &s, Reply{Usage: Usage{Input: 5, Output: 2, CacheRead: 3}, Calls: ask("look", "pay_now", "ghost")}, 1, "")
	require.EqualValues(t, 7, e.Units)
	require.Equal(t, []Effect{EffectRead, EffectNonIdempotent, ""}, []Effect{e.Calls[0].Effect, e.Calls[1].Effect, e.Calls[2].Effect})
	s = commit(t, s, "w1", e)
	pay, _ := s.Call("b")
	require.Equal(t, "pay.now", pay.Tool)
	require.Equal(t, "pay_now", pay.Name)
	ghost, _ := s.Call("c")
	require.Equal(t, "ghost", ghost.Tool)
	require.True(t, ghost.NeedsClaim(), "what nobody knows is not repeated")
}

func TestPlanReplyKeepsArgumentsWellFormed(t *testing.T) {
	tests := []struct{ name, input, want string }{
		{"none", "", `{}`},
		{"compacted", "{ \"n\" : 1.10 }", `{"n":1.10}`},
		{"as written but for spaces", `{"to":"<A & B>"}`, `{"to":"<A & B>"}`},
		{"not JSON", `{"n":`, `"{\"n\":"`},
		{"duplicate keys", `{"n":1,"n":2}`, `"{\"n\":1,\"n\":2}"`},
		{"trailing data", `{} {}`, `"{} {}"`},
	}
	d := worldDefinition()
	s := started(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := PlanReply(&d, &s, Reply{Calls: []ReplyCall{{ID: "a", Name: "look", Input: json.RawMessage(tt.input)}}}, 1, "")
			require.Equal(t, tt.want, string(e.Calls[0].Input))
		})
	}
	long := PlanReply(&d, &s, Reply{Calls: []ReplyCall{{Name: "look", Input: json.RawMessage("\xff" + strings.Repeat("x", 9000))}}}, 1, "")
	var back string
	require.NoError(t, json.Unmarshal(long.Calls[0].Input, &back))
	require.Equal(t, "\uFFFD"+strings.Repeat("x", 4095), back)
}

// TestGateOrder: denied by a rule, unknown, invalid, needs a person, run. Each call fits every later line as well.
func TestGateOrder(t *testing.T) {
	bad := json.RawMessage(`{"bad":1}`)
	good := json.RawMessage(`{}`)
	d := worldDefinition(func(d *Definition) {
		d.Permission.Default = DefaultAsk
		d.Permission.Rules = []Rule{{Tool: "look", Verdict: VerdictAllow}, {Tool: "wire", Verdict: VerdictAllow}, {Tool: "drop*", Verdict: VerdictDeny, Note: "never"}}
	})
	tests := []struct {
		tool  string
		input json.RawMessage
		want  CallReason // of the refusal
		says  string
	}{
		{"dropghost", bad, WhyDenied, `The policy of this agent denies calling dropghost like this. Do not repeat the call. Note: "never"`},
		{"drop", bad, WhyDenied, `The policy of this agent denies calling drop like this. Do not repeat the call. Note: "never"`},
		{"ghost", bad, WhyUnknownTool, `There is no tool "ghost". The tools are: look, peek, pay_now, wire, drop.`},
		{"peek", bad, WhyInvalidArguments, "The arguments do not fit the schema of peek, so it was not called. Refer to the tool's definition:\n/bad: not allowed"},
		{"look", bad, WhyInvalidArguments, "The arguments do not fit the schema of look, so it was not called. Refer to the tool's definition:\n/bad: not allowed"},
		{"peek", good, "", ""},
		{"look", good, "", ""},
	}
	s := started(t)
	for _, tt := range tests {
		c := Call{ID: "a", Tool: tt.tool, Name: tt.tool, Input: tt.input, Status: StatusNew}
		g := GateCall(&d, &s, c, worldValid, worldEpoch)
		if tt.want == "" {
			require.Nil(t, g.Refuse)
			require.Equal(t, tt.tool == "look", g.Run)
			require.Equal(t, tt.tool == "peek", g.Suspend != nil)
			continue
		}
		require.Equal(t, Gate{Refuse: &CallFinished{Call: "a", IsError: true, Reason: tt.want, Content: tt.says}, Rule: g.Rule}, g)
	}
}

func TestGateAsks(t *testing.T) {
	d := worldDefinition()
	s := started(t, Replied{Inference: 1, Calls: []RepliedCall{{ID: "a", Name: "wire", Effect: EffectNonIdempotent, Input: json.RawMessage(`{}`)}}})
	c, _ := s.Call("a")
	now := worldEpoch.Add(1500 * time.Microsecond)
	g := GateCall(&d, &s, c, worldValid, now)
	wire, _ := d.Tool("wire")
	require.Equal(t, &CallSuspended{
		Call: "a", Approval: ApprovalID("r1", "a", 1), Digest: ActionDigest(&d, &s, c, wire, Decision{Approvers: []string{"user:ana"}}), Expires: worldEpoch.Add(worldExpiry + time.Millisecond),
	}, g.Suspend)
	require.False(t, g.Run)
	s = commit(t, s, "w1", *g.Suspend)
	waits, _ := s.Call("a")
	require.Equal(t, ApprovalID("r1", "a", 2), AskFor(&d, &s, waits, g.Rule, now).Approval, "asking anew makes a new request")
}

// TestGateComparesWhatWasApproved: whatever differs from the approved action voids the approval.
func TestGateComparesWhatWasApproved(t *testing.T) {
	d := worldDefinition()
	s := started(t, Replied{Inference: 1, Calls: []RepliedCall{{ID: "a", Name: "wire", Effect: EffectNonIdempotent, Input: json.RawMessage(`{"n":1}`)}}})
	c, _ := s.Call("a")
	asked := *GateCall(&d, &s, c, worldValid, worldEpoch).Suspend
	s = commit(t, s, "w1", asked)
	s = commit(t, s, "w1", Decided{Slot: 1, Call: "a", Approval: asked.Approval, Action: ActionApprove, Digest: asked.Digest})
	approved, _ := s.Call("a")
	require.True(t, GateCall(&d, &s, approved, worldValid, worldEpoch).Run)

	changes := map[string]func(*Definition, *AgentState, *Call){
		"arguments":         func(_ *Definition, _ *AgentState, c *Call) { c.Input = json.RawMessage(`{"n":1.0}`) },
		"approvers":         func(d *Definition, _ *AgentState, _ *Call) { d.Permission.Approvers = []string{"user:eve"} },
		"a rule":            func(d *Definition, _ *AgentState, _ *Call) { d.Permission.Rules = d.Permission.Rules[:1] },
		"the tool":          func(d *Definition, _ *AgentState, _ *Call) { d.Tools[3].Description = "Wire twice." },
		"the agent version": func(_ *Definition, s *AgentState, _ *Call) { s.Version = "2" },
		"the tenant":        func(_ *Definition, s *AgentState, _ *Call) { s.Tenant = "other" },
		"the call":          func(_ *Definition, _ *AgentState, c *Call) { c.ID = "b" },
	}
	for name, change := range changes {
		d, s, c := worldDefinition(), s, approved
		change(&d, &s, &c)
		g := GateCall(&d, &s, c, worldValid, worldEpoch)
		require.False(t, g.Run, name)
		require.NotNil(t, g.Refuse, name)
		require.Equal(t, WhyVoided, g.Refuse.Reason, name)
	}
	old := GateCall(&d, &s, approved, worldValid, approved.Grant.Expires)
	require.False(t, old.Run)
	require.Equal(t, WhyExpired, old.Refuse.Reason)
}

func TestEndsSayWhatBecameOfOpenCalls(t *testing.T) {
	stops, fails, full := Definition{Limits: Limits{OnLimit: OnLimitStop}}, Definition{Limits: Limits{OnLimit: OnLimitError}}, AgentState{}
	ends := []Finished{Fail(CodeInternal, "x"), CancelRun("user:ana", ""), quotaEnd(&stops, &full), quotaEnd(&fails, &full), stoppedEnd(&stops, &AgentState{Ending: Stopped(StopLoop)})}
	for _, e := range ends {
		require.NotEmpty(t, e.OpenText, e.Reason)
		require.NotEmpty(t, e.UnknownText, e.Reason)
		s := started(t, called(1, "a"), CallClaimed{Call: "a"})
		require.Equal(t, RunDone, commit(t, s, "w1", e).Status)
	}
}
