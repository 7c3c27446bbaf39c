package agent

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// policies is a definition with those stop policies and the tools of the tests.
func policies(s Stop) Definition {
	return Definition{Stop: s, Batch: BatchAll, Limits: Limits{Interactions: 99}, Tools: []ToolSpec{{Name: "ledger.read"}, {Name: "pay"}}}
}

// talked is a run after so many rounds of one call each, the newest of which failed as often as said.
func talked(t *testing.T, d *Definition, rounds, failing int) AgentState {
	t.Helper()
	s := started(t)
	for i := range rounds {
		r := PlanReply(d, &s, Reply{Calls: ask(fmt.Sprintf("tool_%d", i)), Usage: Usage{Input: 1, Output: 1, CacheRead: 1, CacheWrite: 1}}, 1, "")
		require.Nil(t, r.Halt)
		s = commit(t, s, "w1", r, CallFinished{Call: r.Calls[0].ID, Ran: r.Calls[0].Effect == EffectRead, IsError: i >= rounds-failing, Content: "x"})
	}
	return s
}

func TestStopPolicies(t *testing.T) {
	at := func(d time.Duration) time.Time { return worldTime(0).Add(d) }
	calls := func(names ...string) Reply { return Reply{Calls: ask(names...)} }
	tests := []struct {
		name     string
		stop     Stop
		rounds   int
		failing  int
		reply    Reply
		want     string
		whatelse string
	}{
		{"nothing is asked for", Stop{}, 5, 5, Reply{Text: "x", At: at(99 * time.Hour)}, "", ""},
		{"a round is left", Stop{Rounds: 3}, 1, 0, calls("pay"), "", ""},
		{"no round is left", Stop{Rounds: 3}, 2, 0, calls("pay"), StopMaxRounds, ""},
		{"a text is a round", Stop{Rounds: 1}, 0, 0, Reply{Text: "x"}, StopMaxRounds, ""},
		{"an empty reply is a round", Stop{Rounds: 1}, 0, 0, Reply{}, StopMaxRounds, ""},
		{"time is left", Stop{Timeout: time.Hour}, 0, 0, Reply{At: at(time.Hour - time.Millisecond)}, "", ""},
		{"time is up", Stop{Timeout: time.Hour}, 0, 0, Reply{At: at(time.Hour)}, StopTimeout, ""},
		{"tokens are left", Stop{Tokens: 9}, 1, 0, Reply{Usage: Usage{Input: 4}}, "", ""},
		{"tokens of all kinds are used", Stop{Tokens: 9}, 1, 0, Reply{Usage: Usage{CacheRead: 4, CacheWrite: 1}}, StopTokens, ""},
		{"one round failed", Stop{ConsecutiveErrors: 2}, 3, 1, calls("pay"), "", ""},
		{"two rounds failed", Stop{ConsecutiveErrors: 2}, 3, 2, Reply{Text: "x"}, StopConsecutiveErrors, ""},
		{"more rounds failed than are remembered", Stop{ConsecutiveErrors: 30}, 30, 30, Reply{Text: "x"}, StopConsecutiveErrors, ""},
		{"another tool", Stop{OnTool: []string{"pay"}}, 0, 0, calls("ledger_read"), "", ""},
		{"the tool, by its original name", Stop{OnTool: []string{"pay", "ledger.read"}}, 0, 0, calls("x", "ledger_read"), StopOnTool, "ledger.read"},
		{"another text", Stop{Contains: "DONE"}, 0, 0, Reply{Text: "done"}, "", ""},
		{"the text", Stop{Contains: "DONE"}, 0, 0, Reply{Text: "it is DONE."}, StopContains, "DONE"},
		{"the text beside calls", Stop{Contains: "DONE"}, 0, 0, Reply{Text: "DONE", Calls: ask("pay")}, StopContains, "DONE"},
		{"other tools than before", Stop{LoopWindow: 2}, 3, 0, calls("tool_1"), "", ""},
		{"the tools of the round before", Stop{LoopWindow: 2}, 3, 0, calls("tool_2"), StopLoop, ""},
		{"one of them more often", Stop{LoopWindow: 2}, 3, 0, calls("tool_2", "tool_2"), "", ""},
		{"first of all rounds", Stop{Rounds: 1, Timeout: 1, Tokens: 1, OnTool: []string{"pay"}, Contains: "x", LoopWindow: 2}, 0, 0, Reply{Text: "x", Calls: ask("pay"), Usage: Usage{Input: 1}, At: at(1)}, StopMaxRounds, ""},
		{"then time", Stop{Timeout: 1, Tokens: 1, OnTool: []string{"pay"}, Contains: "x"}, 0, 0, Reply{Text: "x", Calls: ask("pay"), Usage: Usage{Input: 1}, At: at(time.Second)}, StopTimeout, ""},
		{"then tokens", Stop{Tokens: 1, ConsecutiveErrors: 1, OnTool: []string{"pay"}, Contains: "x"}, 0, 0, Reply{Text: "x", Calls: ask("pay"), Usage: Usage{Input: 1}}, StopTokens, ""},
		{"then errors", Stop{ConsecutiveErrors: 1, OnTool: []string{"pay"}, Contains: "x"}, 1, 1, Reply{Text: "x", Calls: ask("pay")}, StopConsecutiveErrors, ""},
		{"then tools", Stop{OnTool: []string{"pay"}, Contains: "x", LoopWindow: 2}, 0, 0, Reply{Text: "x", Calls: ask("pay")}, StopOnTool, "pay"},
		{"then text", Stop{Contains: "x", LoopWindow: 2}, 1, 0, Reply{Text: "x", Calls: ask("tool_0")}, StopContains, "x"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := policies(tt.stop)
			s := talked(t, &d, tt.rounds, tt.failing)
			got := PlanReply(&d, &s, tt.reply, 1, "").Halt
			if tt.want == "" {
				require.Nil(t, got)
				return
			}
			require.Equal(t, &Halt{Code: tt.want, Detail: tt.whatelse}, got)
		})
	}
}

// Rounds are compared by their tools, in whatever order; a round fails by its own calls alone; and a summary is stopped by nothing.
func TestWhatIsCompared(t *testing.T) {
	calls := func(names ...string) []RepliedCall {
		d := Definition{Batch: BatchAll}
		return PlanReply(&d, &AgentState{}, Reply{Calls: ask(names...)}, 1, "").Calls
	}
	require.Equal(t, askedDigest(calls("b", "a", "b")), askedDigest(calls("b", "b", "a")))
	require.NotEqual(t, askedDigest(calls("a", "b", "b")), askedDigest(calls("a", "a", "b")))

	older := Call{ID: "a", Inference: 1, Status: StatusSuspended}
	failed := Call{ID: "b", Inference: 2, Status: StatusFailed, Result: &Result{IsError: true}}
	s := AgentState{Live: []Call{older, failed}, Round: Round{Inference: 2}}
	require.True(t, s.roundFailed())
	s.Round.Inference = 1
	require.False(t, s.roundFailed(), "a call that waits has not failed")

	d := policies(Stop{Rounds: 1})
	d.Limits = Limits{OnLimit: OnLimitSummarise}
	summary := PlanReply(&d, &AgentState{}, Reply{Text: "x"}, 1, "")
	require.True(t, summary.Summary)
	require.Nil(t, summary.Halt)
}

// A text between two rounds is none, so it neither fails nor breaks a row of failures.
func TestTextsAreNoRoundsOfTools(t *testing.T) {
	d := policies(Stop{ConsecutiveErrors: 2, LoopWindow: 2})
	s := talked(t, &d, 1, 1)
	s = commit(t, s, "w1", PlanReply(&d, &s, Reply{Text: "Hm."}, 1, ""), said(1, "Go on."))
	r := PlanReply(&d, &s, Reply{Calls: ask("other")}, 1, "")
	require.Equal(t, 1, r.Pace.FailedRounds)
	s = commit(t, s, "w1", r, CallFinished{Call: r.Calls[0].ID, IsError: true, Content: "x"})
	require.Equal(t, &Halt{Code: StopConsecutiveErrors}, PlanReply(&d, &s, Reply{}, 1, "").Halt)
}

// What a run waited for people is not time that it ran.
func TestWaitingIsNoRunningTime(t *testing.T) {
	d := policies(Stop{Timeout: time.Hour})
	s := started(t, called(1, "a"), suspend("a"), Parked{Expires: later})
	s = commit(t, s, "w1", Resumed{Waited: 2 * 3_600_000}, CallCancelled{Call: "a", Reason: WhyExpired})
	s = commit(t, s, "w1", text(2, "Hm."), said(1, "Go on."))
	at := s.StartedAt.Add(3 * time.Hour)
	require.Nil(t, PlanReply(&d, &s, Reply{At: at.Add(-time.Millisecond)}, 1, "").Halt)
	require.Equal(t, StopTimeout, PlanReply(&d, &s, Reply{At: at}, 1, "").Halt.Code)
}

// However long a run is, what the policies remember of it is bounded, and only what they ask for is kept.
func TestPaceIsBounded(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		d := policies(Stop{ConsecutiveErrors: 1000, LoopWindow: 20})
		s := started(t)
		for i := range rapid.IntRange(1, 60).Draw(rt, "rounds") {
			s.Pace = *PlanReply(&d, &s, Reply{Calls: ask(fmt.Sprint("t", i), fmt.Sprint("u", i))}, 1, "").Pace
			require.LessOrEqual(t, len(s.Pace.Asked), 20)
		}
	})
	none := policies(Stop{Rounds: 5, Contains: "x"})
	s := started(t)
	require.Nil(t, PlanReply(&none, &s, Reply{Calls: ask("a")}, 1, "").Pace)
}

func TestLoops(t *testing.T) {
	for _, tt := range []struct {
		asked  []string
		window int
		want   bool
	}{
		{nil, 2, false},
		{[]string{"a"}, 2, false},
		{[]string{"a", "a"}, 2, true},
		{[]string{"a", "b", "a"}, 3, false},
		{[]string{"a", "a", "b"}, 2, false},
		{[]string{"a", "a", "b"}, 3, true},
	} {
		require.Equal(t, tt.want, loops(tt.asked, tt.window), "%v within %d", tt.asked, tt.window)
	}
}

// TestStopWaitsForTheRound: the calls of the reply that stops the run are carried out; then it ends, whatever was said meanwhile.
func TestStopWaitsForTheRound(t *testing.T) {
	d := policies(Stop{OnTool: []string{"pay"}})
	s := started(t)
	s = commit(t, s, "w1", PlanReply(&d, &s, Reply{Calls: ask("pay", "ledger_read"), Text: "So."}, 1, ""), said(1, "And?"))
	require.Equal(t, Action{Kind: ActTools, Calls: []string{"a", "b"}}, Next(&d, &s))
	s = commit(t, s, "w1", suspend("a"), CallFinished{Call: "b", Content: "40"})
	require.Equal(t, ActWait, Next(&d, &s).Kind)
	s = commit(t, s, "w1", CallCancelled{Call: "a", Reason: WhyExpired})
	end := Next(&d, &s)
	require.Equal(t, ActEnd, end.Kind)
	require.Equal(t, Stopped(StopOnTool), end.End.Reason)
	require.Equal(t, "pay", end.End.Detail)
	require.Nil(t, end.End.Output, "it has said nothing that was its last word")
	s = commit(t, s, "w1", end.End)
	require.Equal(t, RunDone, s.Status)
	require.Equal(t, "pay", s.EndingDetail)
}

// A stop policy that has spoken is not asked again by a fold, and its first word stays.
func TestFirstHaltStays(t *testing.T) {
	s := started(t)
	s = commit(t, s, "w1", Replied{Inference: 1, Halt: &Halt{Code: StopLoop}}, said(1, "x"))
	s = commit(t, s, "w1", Replied{Inference: 2, Halt: &Halt{Code: StopTokens}})
	require.Equal(t, Stopped(StopLoop), s.Ending)
	_, err := Apply(started(t), Replied{Inference: 1, Halt: &Halt{}})
	require.ErrorContains(t, err, "a stop policy has a code")
}

func TestTokensAndDollarsAreLimits(t *testing.T) {
	price := &Price{Input: 100_000 * usdUnit, Output: 200_000 * usdUnit}
	reply := func(u Usage) Reply { return Reply{Calls: ask("pay"), Usage: u} }
	for _, tt := range []struct {
		name   string
		limits Limits
		used   Usage
		want   ErrorCode
	}{
		{"no limit", Limits{}, Usage{Input: 1e9}, ""},
		{"a token is left", Limits{Tokens: 10}, Usage{Input: 4, CacheRead: 5}, ""},
		{"no token is left", Limits{Tokens: 10}, Usage{Input: 4, CacheRead: 5, Output: 1}, CodeTokensExhausted},
		{"money is left", Limits{USD: 300_000_000_001}, Usage{Input: 1, Output: 1}, ""},
		{"to the last unit", Limits{USD: 300_000_000_000}, Usage{Input: 1, Output: 1}, CodeUSDExhausted},
		{"tokens before money", Limits{Tokens: 1, USD: 1}, Usage{Input: 1}, CodeTokensExhausted},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, on := range []OnLimit{OnLimitError, OnLimitStop, OnLimitSummarise} {
				d := policies(Stop{})
				tt.limits.OnLimit, tt.limits.Grace = on, 2
				d.Limits, d.Model.Price = tt.limits, price
				s := started(t)
				s = commit(t, s, "w1", PlanReply(&d, &s, reply(tt.used), 1, ""), CallFinished{Call: "a", Content: "x"})
				require.Equal(t, tt.want, usedUp(&d, &s))
				requireLimitAction(t, Next(&d, &s), on, tt.want)
			}
		})
	}
}

func requireLimitAction(t *testing.T, a Action, on OnLimit, code ErrorCode) {
	t.Helper()
	switch {
	case code == "":
		require.Equal(t, Action{Kind: ActInfer, Lifecycle: LifecycleToolResult}, a)
	case on == OnLimitSummarise:
		require.Equal(t, Action{Kind: ActInfer, Lifecycle: LifecycleSummary, Exhausted: true}, a)
	case on == OnLimitStop:
		require.Equal(t, Stopped(string(code)), a.End.Reason)
	default:
		require.Equal(t, code, a.End.Error.Code)
	}
}

func TestModelFailed(t *testing.T) {
	failure := &ModelError{Class: ModelServer, Model: "m", Message: "500"}
	open := started(t, called(1, "a"))
	quiet := started(t)
	for _, tt := range []struct {
		name   string
		d      Definition
		s      *AgentState
		reason Reason
		output string
	}{
		{"no static text", Definition{}, &quiet, ReasonError, ""},
		{"static text", Definition{Model: ModelSpec{StaticText: "We are closed."}}, &quiet, ReasonNaturalEnd, `"We are closed."`},
		{"static JSON", Definition{Model: ModelSpec{StaticText: `{"a":1}`}, Output: Output{Format: OutputJSON}}, &quiet, ReasonNaturalEnd, `{"a":1}`},
		{"calls are open", Definition{Model: ModelSpec{StaticText: "We are closed."}}, &open, ReasonError, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			end := ModelFailed(&tt.d, tt.s, failure, 3)
			require.Equal(t, tt.reason, end.Reason)
			require.Equal(t, tt.output, string(end.Output))
			after := commit(t, *tt.s, "w1", end)
			require.EqualValues(t, 3, after.ModelCalls-tt.s.ModelCalls)
			require.Equal(t, tt.s.Inferences, after.Inferences)
		})
	}
	for _, e := range []Finished{{Reason: ReasonCancelled, Static: "x"}, {Reason: ReasonNaturalEnd, Static: "x", Note: "y"}} {
		_, err := Apply(started(t), e)
		require.ErrorContains(t, err, "only a natural end has a text that stands for the model")
	}
	_, err := Apply(started(t, called(1, "a")), Finished{Reason: ReasonNaturalEnd, Static: "x"})
	require.ErrorContains(t, err, "still new")
}

// A static text is part of the conversation, and is seen for the first time by a run that goes on with it.
func TestStaticTextIsSeenLater(t *testing.T) {
	d := Definition{Model: ModelSpec{StaticText: "We are closed."}}
	past := started(t)
	past = commit(t, past, "w1", ModelFailed(&d, &past, &ModelError{Class: ModelServer}, 1))
	from, err := ContinueFrom(&past)
	require.NoError(t, err)
	s := begun(t, past, from)
	said := func() Message {
		i := slices.IndexFunc(s.Messages.All(), func(m Message) bool { return m.Block == Text{Text: "We are closed."} })
		return s.Messages.At(i)
	}
	require.Equal(t, RoleAssistant, said().Role)
	require.Zero(t, said().Seen(s.Inferences))
	s = commit(t, s, "w1", text(1, "Now."))
	require.EqualValues(t, 1, said().Seen(s.Inferences))
}

func TestInterruptSaysWhatTheRunWasAt(t *testing.T) {
	for _, tt := range []struct {
		name string
		s    AgentState
		want string
	}{
		{"before the first inference", started(t), "during inference"},
		{"with every result", started(t, called(1, "a", "r"), CallClaimed{Call: "a"}, CallFinished{Call: "a"}, ran("r", "ok")), "during inference"},
		{"with a call under way", started(t, called(1, "a", "r"), suspend("a")), "during tools"},
		{"with nothing but waiting", started(t, called(1, "a", "r"), suspend("a"), ran("r", "ok"), Parked{Expires: later}), "while it waited"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			end := Interrupt(&tt.s, "user:ana", "stop")
			require.Equal(t, "The previous run was interrupted "+tt.want+`: it was cancelled by user:ana and stopped here. Their note: "stop"`, end.Note)
			s := commit(t, tt.s, "api", end)
			notes := slices.DeleteFunc(slices.Clone(s.Messages.All()), func(m Message) bool { return m.Block != Text{Text: end.Note} })
			require.Len(t, notes, 1)
		})
	}
}

func TestReplyInPieces(t *testing.T) {
	d := policies(Stop{})
	d.Model.Continuations = 2
	s := started(t)
	s.Interactions.Max = 9
	piece := func(s *AgentState, text string) Replied {
		return PlanReply(&d, s, Reply{Text: text, Truncated: true}, 1, "")
	}
	s = commit(t, s, "w1", piece(&s, "a"))
	s = commit(t, s, "w1", said(1, "Hurry."), piece(&s, ""))
	require.Equal(t, Action{Kind: ActInfer, Lifecycle: LifecycleNudge}, Next(&d, &s))
	require.Equal(t, Cut{From: 1, Prompts: 2}, s.Cut)
	branch, err := ForkFrom(&s, childRun, worldTime(9))
	require.NoError(t, err)
	child := begun(t, s, branch)
	last := piece(&s, "b")
	require.Nil(t, last.Correction, "it was asked twice")
	s = commit(t, s, "w1", last)
	require.Equal(t, `"ab"`, string(Next(&d, &s).End.Output))
	child = commit(t, child, "w1", PlanReply(&d, &child, Reply{Text: "c"}, 1, ""))
	require.Equal(t, `"ac"`, string(Next(&d, &child).End.Output), "a fork goes on with the pieces, too")
	s = commit(t, s, "w1", said(2, "More."))
	s = commit(t, s, "w1", piece(&s, "d"))
	require.Equal(t, 1, s.Cut.Prompts, "what comes after is a reply of its own")
	s = commit(t, s, "w1", text(5, "e"))
	require.Equal(t, `"de"`, string(Next(&d, &s).End.Output))
}

// Nobody is asked to go on where that is for nothing.
func TestNotGoneOnWith(t *testing.T) {
	for name, tt := range map[string]struct {
		d func(*Definition)
		r Reply
	}{
		"off":                 {func(d *Definition) { d.Model.Continuations = 0 }, Reply{Text: "a", Truncated: true}},
		"whole":               {nil, Reply{Text: "a"}},
		"calls":               {nil, Reply{Text: "a", Calls: ask("pay"), Truncated: true}},
		"stopped":             {func(d *Definition) { d.Stop.Contains = "a" }, Reply{Text: "a", Truncated: true}},
		"no interaction left": {func(d *Definition) { d.Limits.Interactions = 1 }, Reply{Text: "a", Truncated: true}},
		"no token left":       {func(d *Definition) { d.Limits.Tokens = 5 }, Reply{Text: "a", Truncated: true, Usage: Usage{Output: 5}}},
		"no money left":       {func(d *Definition) { d.Limits.USD, d.Model.Price = 5, &Price{Output: 1_000_000} }, Reply{Text: "a", Truncated: true, Usage: Usage{Output: 5}}},
		"a summary":           {func(d *Definition) { d.Limits = Limits{OnLimit: OnLimitSummarise} }, Reply{Text: "a", Truncated: true}},
	} {
		d := policies(Stop{})
		d.Model.Continuations = 3
		if tt.d != nil {
			tt.d(&d)
		}
		s := started(t)
		s.Interactions.Max = d.Limits.Interactions
		require.Nil(t, PlanReply(&d, &s, tt.r, 1, "").Correction, name)
	}
}
