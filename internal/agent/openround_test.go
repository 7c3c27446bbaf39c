package agent

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// openRounds is a run under all_suspended, after these facts.
func openRounds(t *testing.T, d *Definition, events ...Event) AgentState {
	t.Helper()
	s := commit(t, AgentState{}, "w1", (&world{def: *d}).start())
	for _, e := range events {
		s = commit(t, s, "w1", e)
	}
	return s
}

func allSuspended(change ...func(*Definition)) Definition {
	d := worldDefinition(change...)
	d.Wait = WaitAllSuspended
	return d
}

// TestNextUnderAllSuspended goes through the lower half of the table of semantics 6.1, by what is asked next.
func TestNextUnderAllSuspended(t *testing.T) {
	each, answered, batch := ResumeEach, ResumeAllAnswered, ResumeBatchAll
	tools := func(ids ...string) Action { return Action{Kind: ActTools, Calls: ids} }
	wait := Action{Kind: ActWait, Expires: later}
	results, input := Action{Kind: ActInfer, Lifecycle: LifecycleToolResult}, Action{Kind: ActInfer, Lifecycle: LifecycleInput}
	all := []ResumeMode{each, answered, batch}
	paused := []Event{called(1, "a", "b"), suspend("a"), suspend("b")}
	// a waits in an older round; b and c in the newest
	rounds := []Event{called(1, "r", "a"), ran("r", "1"), suspend("a"), called(2, "b", "c"), suspend("b"), suspend("c")}
	tests := []struct {
		name   string
		modes  []ResumeMode
		before []Event
		events []Event
		want   Action
	}{
		{"a round of which nothing came back parks", all, paused, nil, wait},
		{"one with a result goes to the model", all, []Event{called(1, "a", "r"), suspend("a")}, []Event{ran("r", "1")}, results},
		{"a refused call is a result", all, []Event{called(1, "a", "b"), suspend("a")}, []Event{CallFinished{Call: "b", IsError: true, Reason: WhyDenied}}, results},
		{"not before all that runs has come back", all, []Event{called(1, "a", "r", "r2"), suspend("a")}, []Event{ran("r", "1")}, tools("r2")},
		{"a denied one is finished", all[:1], paused, []Event{decision(1, "a", ActionDeny)}, results},
		{"so is one that is called off", all[:1], paused, []Event{decision(1, "a", ActionCancel)}, results},
		{"so is an expired one", all[:1], paused, []Event{CallCancelled{Call: "b", Reason: WhyExpired}}, results},
		{"a denied one waits for the others", all[1:], paused, []Event{decision(1, "a", ActionDeny)}, wait},
		{"so does one that is called off", all[1:], paused, []Event{decision(1, "a", ActionCancel)}, wait},
		{"so does an expired one", all[1:], paused, []Event{CallCancelled{Call: "b", Reason: WhyExpired}}, wait},
		{"but not with what a user says", all[1:], paused, []Event{decision(1, "a", ActionDeny), said(2, "x")}, results},
		{"nor when all are decided", all[1:], paused, []Event{decision(1, "a", ActionDeny), decision(2, "b", ActionDeny)}, results},
		{"input goes to the model at once", all, paused, []Event{said(1, "x")}, input},
		{"a last word parks", all, []Event{called(1, "a", "r"), suspend("a"), ran("r", "1")}, []Event{text(2, "Soon.")}, wait},
		{"so does an empty one", all, []Event{called(1, "a", "r"), suspend("a"), ran("r", "1")}, []Event{text(2, "")}, wait},
		{"an approved call is replayed", []ResumeMode{each}, paused, []Event{decision(1, "b", ActionApprove)}, tools("b")},
		{"and is a result", []ResumeMode{each}, paused, []Event{decision(1, "b", ActionApprove), CallClaimed{Call: "b"}, result("b", "1")}, results},
		{"one that suspends again parks", []ResumeMode{each}, paused, []Event{decision(1, "b", ActionApprove), CallClaimed{Call: "b"}, lost("b")}, wait},
		{"unless another one of the drain finished", []ResumeMode{each}, paused, []Event{
			decision(1, "a", ActionApprove), decision(2, "b", ActionApprove), CallClaimed{Call: "a"}, CallClaimed{Call: "b"}, lost("b"), result("a", "1"),
		}, results},
		{"an approval is held", []ResumeMode{answered, batch}, paused, []Event{decision(1, "b", ActionApprove)}, wait},
		{"until all are answered, in request order", []ResumeMode{answered, batch}, paused, []Event{decision(1, "b", ActionApprove), decision(2, "a", ActionApprove)}, tools("a", "b")},
		{"a denial releases it", []ResumeMode{answered, batch}, paused, []Event{decision(1, "b", ActionApprove), decision(2, "a", ActionDeny)}, tools("b")},
		{"calls of an older round do not hold", all[:1], rounds, []Event{decision(1, "c", ActionApprove)}, tools("c")},
		{"the newest round is counted", []ResumeMode{answered}, rounds, []Event{decision(1, "c", ActionApprove), decision(2, "b", ActionApprove)}, tools("b", "c")},
		{"and holds those of older ones", []ResumeMode{answered}, rounds, []Event{decision(1, "a", ActionApprove)}, wait},
		{"every round is counted", []ResumeMode{batch}, rounds, []Event{decision(1, "c", ActionApprove), decision(2, "b", ActionApprove)}, wait},
		{"then all are replayed", []ResumeMode{batch}, rounds, []Event{decision(1, "c", ActionApprove), decision(2, "b", ActionApprove), decision(3, "a", ActionApprove)}, tools("a", "b", "c")},
		{"a result beside a held call goes to the model", []ResumeMode{answered, batch}, []Event{called(1, "a", "b", "r"), suspend("a"), suspend("b")}, []Event{decision(1, "a", ActionApprove), ran("r", "1")}, results},
	}
	for _, tt := range tests {
		for _, mode := range tt.modes {
			t.Run(tt.name+", "+string(mode), func(t *testing.T) {
				d := allSuspended(func(d *Definition) { d.Resume, d.Limits.Interactions = mode, 5 })
				s := openRounds(t, &d, append(append([]Event{}, tt.before...), tt.events...)...)
				require.Equal(t, tt.want, Next(&d, &s))
				require.NoError(t, wellFormed(&s))
			})
		}
	}
}

// TestSequentialUnderAllSuspended: what stands behind a call that waits is skipped, in its round alone.
func TestSequentialUnderAllSuspended(t *testing.T) {
	d := allSuspended(func(d *Definition) { d.Executor, d.Limits.Interactions = ExecutorSequential, 5 })
	s := openRounds(t, &d, called(1, "r", "a", "b", "r2"))
	next := func(want ...string) { require.Equal(t, Action{Kind: ActTools, Calls: want}, Next(&d, &s)) }
	next("r")
	skip := func(id string) bool {
		c, _ := s.Call(id)
		e, ok := Skip(&d, &s, c)
		require.Equal(t, !ok, e == CallCancelled{})
		return ok
	}
	require.False(t, skip("b"))
	s = commit(t, s, "w1", ran("r", "1"), suspend("a"))
	require.False(t, skip("r") || skip("a"), "only what is new is skipped")
	require.Zero(t, s.Unseen, "the round has not come to rest")
	for _, id := range []string{"b", "r2"} {
		next(id)
		require.True(t, skip(id))
		c, _ := s.Call(id)
		e, _ := Skip(&d, &s, c)
		s = commit(t, s, "w1", e)
		c, _ = s.Call(id)
		require.Equal(t, []any{StatusCancelled, WhySkipped, 0}, []any{c.Status, c.Reason, c.Executions})
	}
	require.Equal(t, ActInfer, Next(&d, &s).Kind)
	require.Equal(t, []string{"user/1", "use:r/1", "use:a/1", "use:b/1", "use:r2/1", "r/0", "b/0", "r2/0"}, stands(&s))

	s = commit(t, s, "w1", called(2, "r3", "r4"))
	next("r3")
	require.False(t, skip("r3"), "a call of an older round stops none of the newest")
	s = commit(t, s, "w1", ran("r3", "1"))
	next("r4")

	parallel := allSuspended()
	s = openRounds(t, &parallel, called(1, "a", "r"), suspend("a"))
	require.False(t, skip("a"))
	c, _ := s.Call("r")
	_, ok := Skip(&parallel, &s, c)
	require.False(t, ok)
	external := started(t, called(1, "a", "r"), suspend("a"))
	_, err := Apply(external, CallCancelled{Call: "r", Reason: WhySkipped})
	require.ErrorContains(t, err, "the call is new")
	_, err = Apply(s, CallCancelled{Call: "r", Reason: WhyExpired})
	require.ErrorContains(t, err, "the call is new")
}

// stands is the conversation in short, each message with its seenCount.
func stands(s *AgentState) []string {
	var out []string
	for _, m := range s.Messages.All() {
		word := string(m.Role)
		switch b := m.Block.(type) {
		case ToolUse:
			word = "use:" + b.ID
		case ToolResult:
			word = b.ID
		case Text:
			if m.Role == RoleUser && b.Text != "Do it." {
				word = b.Text
			}
		}
		out = append(out, word+"/"+string(rune('0'+m.Seen(s.Inferences))))
	}
	return out
}

// TestWhereLateResultsStand: behind the first results of the newest round and never within its turn, then in order of arrival.
func TestWhereLateResultsStand(t *testing.T) {
	d := allSuspended(func(d *Definition) { d.Limits.Interactions = 5 })
	s := openRounds(t, &d,
		called(1, "a", "b", "r"), suspend("a"), suspend("b"), ran("r", "1"), said(1, "one"), called(2, "c", "r2"), decision(2, "b", ActionDeny), suspend("c"))
	require.Equal(t, []string{"user/2", "use:a/2", "use:b/2", "use:r/2", "r/1", "one/1", "use:c/1", "use:r2/1"}, stands(&s), "the newest round has nothing to say yet")
	s = commit(t, s, "w1", said(3, "two"))
	require.Len(t, s.Queued, 1)
	s = commit(t, s, "w1", ran("r2", "2"))
	s = commit(t, s, "w1", decision(4, "c", ActionDeny))
	s = commit(t, s, "w1", said(5, "three"), decision(6, "a", ActionDeny))
	require.Equal(t, []string{"user/2", "use:a/2", "use:b/2", "use:r/2", "r/1", "one/1", "use:c/1", "use:r2/1", "r2/0", "b/0", "two/0", "c/0", "three/0", "a/0"}, stands(&s))
	require.Equal(t, 6, s.Unseen)
	require.NoError(t, wellFormed(&s))
}

// TestPlaceholders: a request has one result for every call, in the order of the turn, whatever is known; what is new and stands farther
// up is named behind it, for providers only.
func TestPlaceholders(t *testing.T) {
	d := allSuspended(func(d *Definition) { d.Limits.Interactions, d.Resume = 5, ResumeAllAnswered })
	finished := ran("r", "1")
	finished.Media = []Media{{Name: "m", MediaType: "image/png", Blob: "b"}}
	s := openRounds(t, &d, called(1, "a", "r", "b", "c"), suspend("a"), suspend("b"), CallClaimed{Call: "c"}, lost("c"), finished, decision(1, "b", ActionApprove))
	build := func() Request {
		a := infer(&d, &s) // whether Next would ask yet or not
		require.NoError(t, answered(&d, &s, a))
		r, _ := BuildRequest(&d, &s, a, "")
		return r
	}
	r := build()
	a, b, c := r.Messages[5].Block.(ToolResult), r.Messages[8].Block.(ToolResult), r.Messages[9].Block.(ToolResult)
	require.Equal(t, []string{"a", "b", "c"}, []string{a.ID, b.ID, c.ID})
	require.Contains(t, a.Content, "awaiting approval, paused")
	require.Contains(t, b.Content, "approved and paused")
	require.Contains(t, c.Content, "somebody has to say")
	require.Equal(t, ToolResult{ID: "r", Content: "1"}, r.Messages[6].Block)
	require.Equal(t, finished.Media[0], r.Messages[7].Block, "media stay with their result")
	require.Len(t, r.Messages, 10)
	require.Empty(t, r.Late)
	require.Equal(t, r, r.WithNotices())

	s = commit(t, s, "w1", text(2, "Soon."))
	late := Answered{Slot: 2, Call: "c", Content: "it was", Media: finished.Media}
	s = commit(t, s, "w1", late, decision(3, "a", ActionDeny))
	require.Equal(t, []string{"b"}, Next(&d, &s).Calls)
	s = commit(t, s, "w1", CallClaimed{Call: "b"}, lost("b"))
	require.Equal(t, []string{"user/2", "use:a/2", "use:r/2", "use:b/2", "use:c/2", "r/1", "user/1", "assistant/1", "c/0", "user/0", "a/0"}, stands(&s), "what is stored stays as it happened")
	r = build()
	require.Equal(t, ToolResult{ID: "a", Content: "told a", IsError: true}, r.Messages[5].Block)
	require.Equal(t, ToolResult{ID: "c", Content: "it was"}, r.Messages[9].Block)
	require.Equal(t, late.Media[0], r.Messages[10].Block)
	require.Equal(t, Text{"Soon."}, r.Messages[11].Block)
	require.Len(t, r.Messages, 12)
	require.Equal(t, []string{"c", "a"}, r.Late)
	sent := r.WithNotices()
	require.Len(t, r.Messages, 12)
	require.Len(t, sent.Messages, 13)
	last := sent.Messages[12]
	require.Equal(t, RoleUser, last.Role)
	require.Contains(t, last.Block.(Text).Text, "tool (c), tool (a)")

	s = commit(t, s, "w1", text(3, "Good."), said(4, "And?"))
	r = build()
	require.Empty(t, r.Late, "an inference has carried them")
	require.Len(t, r.Messages, 14)
	s = commit(t, s, "w1", Answered{Slot: 5, Call: "b", Content: "it was not"})
	require.Equal(t, []string{"b"}, build().Late)
	s = commit(t, s, "w1", text(4, ""), said(6, "Well?"))
	require.Empty(t, build().Late, "an inference has carried it, though the model said nothing")
}

func TestOpenCallsKeepTheirWords(t *testing.T) {
	d := allSuspended(func(d *Definition) { d.Limits.Interactions = 5 })
	s := openRounds(t, &d, called(1, "a", "r"), suspend("a"), ran("r", "1"), text(2, "Soon."))
	_, err := Apply(s, Evicted{Total: 2})
	require.ErrorContains(t, err, "still suspended")
	s = commit(t, s, "w1", Evicted{Total: 1})
	require.Equal(t, 4, s.Messages.Len())
	external := started(t, called(1, "a", "r"), suspend("a"), ran("r", "1"))
	_, err = Apply(external, Evicted{Total: 1})
	require.ErrorContains(t, err, "still suspended")
}

func TestOpenRoundsAreNamedAtTheStart(t *testing.T) {
	d := worldDefinition(func(d *Definition) { d.Resume = ResumeBatchAll })
	wait, resume := d.OpenRounds()
	require.Empty(t, wait)
	require.Empty(t, resume)
	d.Wait = WaitAllSuspended
	wait, resume = d.OpenRounds()
	require.Equal(t, []any{WaitAllSuspended, ResumeBatchAll}, []any{wait, resume})
	for _, e := range []RunStarted{{Wait: WaitAnyExternal}, {Wait: "never"}, {Resume: ResumeEach}} {
		e.Tenant, e.Run, e.Owner = "t", "r", "o"
		_, err := Apply(AgentState{}, e)
		require.ErrorContains(t, err, "not known")
	}
}

// TestReplyWhileCallsAreOpen: only calls that wait may be open when the model speaks, and only under all_suspended.
func TestReplyWhileCallsAreOpen(t *testing.T) {
	d := allSuspended(func(d *Definition) { d.Limits.Interactions, d.Resume = 5, ResumeEach })
	for name, events := range map[string][]Event{
		"still new":      {called(1, "a", "r"), suspend("a")},
		"still running":  {called(1, "a", "b"), suspend("a"), CallClaimed{Call: "b"}},
		"still resuming": {called(1, "a", "b"), suspend("a"), suspend("b"), decision(1, "b", ActionApprove)},
	} {
		s := openRounds(t, &d, events...)
		_, err := Apply(s, text(2, "x"))
		require.ErrorContains(t, err, name)
	}
	s := started(t, called(1, "a", "r"), suspend("a"), ran("r", "1"))
	_, err := Apply(s, text(2, "x"))
	require.ErrorContains(t, err, "still suspended")
	s = openRounds(t, &d, called(1, "a", "r"), suspend("a"), ran("r", "1"), text(2, "x"))
	_, err = Apply(s, Finished{Reason: ReasonNaturalEnd})
	require.ErrorContains(t, err, "still suspended")
}
