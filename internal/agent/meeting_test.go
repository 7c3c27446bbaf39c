package agent

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// meeting is a run in which policies meet: windows, prune, guards, analysis, plans, dialects, open rounds and people who talk meanwhile.
// Everything is planned as the runtime plans it; only what models, tools and people say is drawn.
type meeting struct {
	t         *rapid.T
	d         Definition
	at        time.Time
	s         AgentState
	seed      AgentState // what the journal is folded from
	entries   []Entry
	slot      int64
	inputs    int
	summaries int // forced ones since somebody said something
	requests  int
}

var meetingSchema = json.RawMessage(`{"type":"object"}`)

func meetingDefinition(t *rapid.T) Definition {
	preset := rapid.SampledFrom([]Preset{PresetCountersign, PresetTirea, PresetCowork, PresetForge}).Draw(t, "preset")
	d, err := PresetDefaults(preset)
	require.NoError(t, err)
	d.Name = "a"
	for _, tool := range []struct {
		name   string
		effect Effect
	}{{"look", EffectRead}, {"set", EffectIdempotent}, {"pay", EffectNonIdempotent}} {
		d.Tools = append(d.Tools, ToolSpec{Name: tool.name, Kind: KindInternal, Effect: tool.effect, Schema: meetingSchema, Description: "It does."})
	}
	flip := func(name string) bool { return rapid.Bool().Draw(t, name) }
	d.Limits.Interactions = rapid.IntRange(2, 9).Draw(t, "interactions")
	d.Limits.OnLimit = rapid.SampledFrom([]OnLimit{OnLimitError, OnLimitStop, OnLimitSummarise}).Draw(t, "onLimit")
	d.Permission.Default = rapid.SampledFrom([]PermissionDefault{DefaultAllow, DefaultByEffect}).Draw(t, "default")
	if flip("open rounds") {
		d.Wait = WaitAllSuspended
	}
	d.Executor = rapid.SampledFrom([]Executor{ExecutorSequential, ExecutorParallelBatch}).Draw(t, "executor")
	d.Resume = rapid.SampledFrom([]ResumeMode{ResumeEach, ResumeAllAnswered, ResumeBatchAll}).Draw(t, "resume")
	d.Text = rapid.SampledFrom([]TextPolicy{TextFinal, TextHeuristic, TextRequireTool}).Draw(t, "text")
	d.Corrections = rapid.SampledFrom([]CorrectionMode{CorrectionsPersist, CorrectionsEphemeral}).Draw(t, "corrections")
	d.Model.Continuations = rapid.IntRange(0, 2).Draw(t, "continuations")
	d.Context = Context{Mask: flip("mask"), CompressAfter: rapid.IntRange(0, 3).Draw(t, "compressAfter")}
	if flip("window") {
		d.Context.Window = rapid.IntRange(150, 600).Draw(t, "tokens")
		d.Context.Reserve = Reserve{System: new(int), Tools: new(int)}
		d.Context.EvictBelow, d.Context.RoundMinimum = d.Context.Window*2/3, d.Context.Window/6
		d.Context.Keep, d.Context.Summary = rapid.IntRange(0, 5).Draw(t, "keep"), 50
	}
	if flip("prune") {
		d.Context.Prune = rapid.IntRange(10, 200).Draw(t, "pruned")
	}
	if flip("cut results") {
		d.Context.TruncateResult, d.Context.KeepWhole = 40, true
	}
	if flip("stop") {
		d.Stop = Stop{Rounds: rapid.IntRange(0, 4).Draw(t, "rounds"), ConsecutiveErrors: rapid.IntRange(0, 2).Draw(t, "errors"), LoopWindow: 3 * rapid.IntRange(0, 1).Draw(t, "loops")}
	}
	d.Limits.Grace, d.Limits.Tokens = rapid.IntRange(0, 1).Draw(t, "grace"), int64(60*rapid.IntRange(0, 2).Draw(t, "quota"))
	if flip("guards") {
		d.Guards = Guards{DuplicateCalls: true, FailedRounds: 2, ToolFailures: 2}
	}
	if flip("orchestrator") {
		d.Orchestrator = Orchestrator{Enabled: true, TopK: 15, MaxSteps: 3, Retries: 2}
	}
	return d
}

func meet(t *rapid.T) *meeting {
	m := &meeting{t: t, d: meetingDefinition(t), at: worldEpoch}
	wait, resume := m.d.OpenRounds()
	m.commit(RunStarted{
		Tenant: "default", Run: "r1", Agent: "a", Definition: "d", Owner: "r1-0", MaxInteractions: m.d.Limits.Interactions, Wait: wait, Resume: resume,
		Messages: []UserBlock{{Text{"Look and then pay."}}},
	})
	return m
}

func (m *meeting) draft() *Draft {
	m.at = m.at.Add(time.Second)
	return NewDraft(m.s, fmt.Sprintf("w%d", len(m.entries)/3), m.at)
}

func (m *meeting) add(d *Draft, events ...Event) {
	m.t.Helper()
	require.NoError(m.t, d.Add(events...), "%s", m.story())
}

func (m *meeting) story() string {
	var names []string
	for _, e := range m.entries {
		for _, f := range e.Events {
			names = append(names, EventType(f))
		}
		names = append(names, "|")
	}
	return strings.Join(names, " ")
}

func (m *meeting) commit(events ...Event) {
	m.t.Helper()
	d := m.draft()
	if len(m.entries) == 0 && m.seed.past != nil {
		d = NewDraft(m.seed, "w0", m.at)
	}
	m.add(d, events...)
	m.write(d)
}

// write commits the draft: what a reader makes of the journal is what the writer has, from its beginning and from its newest snapshot.
func (m *meeting) write(d *Draft) {
	m.t.Helper()
	require.NoError(m.t, d.Snap())
	raw, err := MarshalEntry(d.Entry)
	require.NoError(m.t, err)
	e, err := UnmarshalEntry(raw)
	require.NoError(m.t, err)
	m.entries, m.s = append(m.entries, e), d.Committed()
	require.NoError(m.t, wellFormed(&m.s), "%s", m.story())
	whole, err := Fold(m.seed, m.entries)
	require.NoError(m.t, err)
	require.Equal(m.t, exact(m.t, m.s), exact(m.t, whole))
	part, ok, err := Restore(m.entries[whole.ReadFrom():])
	require.NoError(m.t, err)
	if ok && !whole.inherits() {
		require.Equal(m.t, shared(m.t, whole), shared(m.t, part), "%s", m.story())
		require.Equal(m.t, Next(&m.d, &whole), Next(&m.d, &part))
	}
}

// go on until the run has ended. That it does is what the test is about.
func (m *meeting) drive() {
	for n := 0; m.s.Status != RunDone; n++ {
		if n > 400 {
			m.t.Fatalf("the run goes on for ever: %s", m.story())
		}
		m.step()
	}
	require.Nil(m.t, m.s.openCall())
	require.Empty(m.t, m.s.Queued)
}

func (m *meeting) step() {
	a := Next(&m.d, &m.s)
	switch a.Kind {
	case ActInfer:
		m.infer(a)
	case ActTools:
		m.tools(a)
	case ActWait:
		m.waits()
	case ActContinue:
		m.commit(HandedOver{Owner: fmt.Sprint(m.s.Run, "-", m.s.Generation+1)})
	case ActEnd:
		m.ends(m.draft(), a.End)
	default:
		m.t.Fatalf("next is %s: %s", a.Kind, m.story())
	}
}

func (m *meeting) ends(d *Draft, end Finished) {
	if end.Reason != ReasonError {
		require.Nil(m.t, d.State.openCall(), "ends as %s while a call is open: %s", end.Reason, m.story())
		require.True(m.t, len(d.State.Queued) == 0 || d.State.Plan.active(), "only a plan still holds what users say: %s", m.story())
	}
	m.add(d, end)
	require.Empty(m.t, d.State.Queued, "what users said is part of the conversation")
	m.write(d)
}

func (m *meeting) infer(a Action) {
	m.requests++
	d := m.draft()
	if a.Lifecycle.ForPlan() {
		m.forPlan(d, a)
		return
	}
	if left, ok := LeavesPlan(&d.State, a); ok {
		m.add(d, left)
	}
	facts, _ := MakeRoom(&m.d, &d.State, a, Measured{System: "You help."})
	if m.add(d, facts...); len(facts) > 0 {
		a = Next(&m.d, &d.State)
	}
	switch a.Kind {
	case ActWait:
		m.add(d, Parked{Expires: a.Expires})
		m.write(d)
		return
	case ActEnd:
		m.ends(d, a.End)
		return
	}
	r, _ := BuildRequest(&m.d, &d.State, a, "You help.")
	m.fits(r)
	if a.Lifecycle == LifecycleSummary {
		m.summaries++
		require.LessOrEqual(m.t, m.summaries, 1, "%s", m.story())
	}
	said := PlanReply(&m.d, &d.State, m.reply(), 1, "")
	require.Equal(m.t, a.Lifecycle == LifecycleSummary, said.Summary)
	if !m.d.Unjudged(a) {
		said = Judge(&m.d, &d.State, said, func(json.RawMessage) error { return nil })
	}
	before := d.State
	m.add(d, said)
	require.Equal(m.t, before.Inferences+1, d.State.Inferences)
	require.Equal(m.t, before.ModelCalls+1, d.State.ModelCalls)
	counts := 1
	if said.Summary {
		counts = 0
	}
	require.Equal(m.t, before.Interactions.Current+counts, d.State.Interactions.Current)
	next := Next(&m.d, &d.State)
	if next.Kind == ActEnd && rapid.IntRange(0, 3).Draw(m.t, "input first") > 0 {
		m.ends(d, next.End)
		return
	}
	m.write(d)
	m.speak()
}

func (m *meeting) forPlan(d *Draft, a Action) {
	r := BuildPlanRequest(&m.d, &d.State, a, "You help.", nil)
	require.NotEmpty(m.t, r.Messages)
	if rapid.IntRange(0, 9).Draw(m.t, "model fails") == 0 {
		m.add(d, PlanFailed(&m.d, &d.State, a, &ModelError{Class: ModelServer}, 2, nil)...)
	} else {
		reply := m.reply()
		if a.Lifecycle == LifecyclePlan {
			reply = Reply{Text: rapid.SampledFrom(meetingPlans).Draw(m.t, "plan")}
		}
		m.add(d, PlanFacts(&m.d, &d.State, a, reply, 1, func(ToolSpec, json.RawMessage) bool { return true }, nil)...)
	}
	m.write(d)
	m.speak()
}

var meetingPlans = []string{
	"nonsense", `plan.respond("Hi.")`, `plan.add_step(1, "", "Look and pay")`, `plan.add_step(1, "", "Look") plan.add_step(2, "", "Pay for step 1")`,
	`plan.add_step(1, "", "a") plan.add_step(2, "", "b") plan.add_step(3, "", "c")`,
}

// fits: a tool_use meets exactly one tool_result, directly behind its turn, and no request is empty.
func (m *meeting) fits(r Request) {
	m.t.Helper()
	require.NotEmpty(m.t, r.Messages, "%s", m.story())
	var owed []string
	used := map[string]bool{}
	for i, msg := range r.Messages {
		if msg.Role == RoleAssistant && i > 0 && r.Messages[i-1].Role == RoleUser {
			require.Empty(m.t, owed, "the model goes on at message %d without results: %s", i, m.story())
		}
		switch b := msg.Block.(type) {
		case ToolUse:
			require.False(m.t, used[b.ID], "call %s twice: %s", b.ID, m.story())
			used[b.ID], owed = true, append(owed, b.ID)
		case ToolResult:
			require.Contains(m.t, owed, b.ID, "message %d is a result of nobody's: %s", i, m.story())
			owed = slices.DeleteFunc(owed, func(id string) bool { return id == b.ID })
		}
	}
	require.Empty(m.t, owed, "calls without result: %s", m.story())
	require.NotEqual(m.t, RoleAssistant, r.WithNotices().Messages[len(r.WithNotices().Messages)-1].Role, "ends with the model's words: %s", m.story())
	_, err := ResultsByCall(r.InText().Messages)
	require.NoError(m.t, err)
}

var meetingTexts = []string{
	"", " ", "Done.", "All done.", "I will continue with the next file.", "Would you like me to go on?",
	`<tool>{"server_name":"local","tool_name":"look","arguments":{"x":1}}</tool>`, `<tool>{"tool`, `<thinking>so</thinking>Fine. <tool>{"server_name":"local","tool_name":"task_completion","arguments":{"result":"ok"}}</tool>`,
	"<thinking>hm</thinking>", strings.Repeat("long ", 60),
}

func (m *meeting) reply() Reply {
	t := m.t
	out := Reply{Model: "m", Usage: Usage{Input: 7, Output: 3}, StopReason: "end_turn", Text: rapid.SampledFrom(meetingTexts).Draw(t, "text")}
	if rapid.IntRange(0, 4).Draw(t, "truncated") == 0 {
		out.Truncated, out.StopReason = true, "max_tokens"
	}
	if rapid.IntRange(0, 2).Draw(t, "calls") == 0 {
		return out
	}
	names := []string{"look", "look", "set", "pay", "ghost", "task_completion", "ask_question", "read_more"}
	for range rapid.IntRange(1, 3).Draw(t, "n") {
		name := rapid.SampledFrom(names).Draw(t, "name")
		input := rapid.SampledFrom([]string{`{}`, `{"path":"a.txt"}`, `{"result":"ok"}`, `{"call":"c1-0","from":3}`, `nonsense`}).Draw(t, "input")
		id := rapid.SampledFrom([]string{"", "x", "c1-0", "c2-0"}).Draw(t, "id")
		out.Calls = append(out.Calls, ReplyCall{ID: id, Name: name, Input: json.RawMessage(input)})
	}
	return out
}

func (m *meeting) tools(a Action) {
	d := m.draft()
	for _, id := range a.Calls {
		if c, _ := d.State.Call(id); c.Open() {
			m.tool(d, c)
		}
	}
	m.write(d)
	m.speak()
}

func (m *meeting) tool(d *Draft, c Call) {
	if c.Status == StatusRunning {
		if c.Claim == d.Entry.Writer {
			m.add(d, m.result(c, false))
			return
		}
		m.add(d, CallUnknown{Call: c.ID, Approval: ApprovalID("r1", c.ID, c.Asks+1), Expires: d.Entry.Time.Add(OutcomeExpiry), Claim: c.Claim})
		return
	}
	if skip, ok := Skip(&m.d, &d.State, c); ok {
		m.add(d, skip)
		return
	}
	g := GateHooked(&m.d, &d.State, c, PluginGate{}, meetingValid, d.Entry.Time)
	switch {
	case g.Give != nil:
		m.add(d, CallFinished{Call: c.ID, Content: g.Give.Content, IsError: g.Give.IsError})
	case g.Suspend != nil:
		m.add(d, *g.Suspend)
	case g.Refuse != nil:
		m.add(d, *g.Refuse)
	case g.Claim != nil:
		m.add(d, *g.Claim)
	case c.NeedsClaim() || c.Status == StatusResuming:
		m.add(d, CallClaimed{Call: c.ID})
	default:
		m.add(d, m.result(c, true))
	}
}

func meetingValid(_ ToolSpec, args json.RawMessage) error {
	if !strings.HasPrefix(string(args), "{") {
		return fmt.Errorf("it is no object")
	}
	return nil
}

func (m *meeting) result(c Call, ran bool) CallFinished {
	e := CallFinished{Call: c.ID, Ran: ran, Content: rapid.SampledFrom([]string{"", "fine", strings.Repeat("much ", 40)}).Draw(m.t, "content")}
	switch rapid.IntRange(0, 4).Draw(m.t, "kind") {
	case 0:
		e.IsError, e.Reason = true, WhyToolError
	case 1:
		e.Media = []Media{{Name: "p", MediaType: "image/png", Blob: "b1"}, {Name: "q", MediaType: "image/png", Blob: "b2"}}
	case 2:
		if m.d.KeepsWhole() {
			e.Whole = &Whole{Blob: "b3", Chars: 500}
		}
	}
	return e
}

// speak is what people say while the run goes on, now and then.
func (m *meeting) speak() {
	if m.s.Status != RunRunning || m.inputs > 3 || rapid.IntRange(0, 6).Draw(m.t, "speaks") > 0 {
		return
	}
	m.commit(m.input())
}

func (m *meeting) input() InputReceived {
	m.inputs++
	m.slot++
	m.summaries = 0
	return InputReceived{Slot: m.slot, ID: fmt.Sprint(m.slot), Blocks: []UserBlock{{Text{"And then?"}}}}
}

func (m *meeting) waits() {
	if m.s.Status == RunRunning {
		m.commit(Parked{Expires: m.s.EarliestExpiry()})
		return
	}
	events := []Event{Resumed{Waited: 5}}
	if m.inputs <= 3 && rapid.IntRange(0, 3).Draw(m.t, "talks") == 0 {
		m.commit(append(events, m.input())...)
		return
	}
	waiting := m.s.Waits()
	c := waiting[rapid.IntRange(0, len(waiting)-1).Draw(m.t, "which")]
	m.slot++
	switch how := rapid.IntRange(0, 3).Draw(m.t, "how"); {
	case how == 0:
		m.slot--
		m.commit(append(events, CallCancelled{Call: c.ID, Reason: WhyExpired, Content: "over"})...)
	case c.Wait.For == ForOutcome && how == 1:
		m.commit(append(events, Answered{Slot: m.slot, Call: c.ID, Approval: c.Wait.Approval, Rerun: true, By: "user:ana"})...)
	case c.Wait.For == ForOutcome:
		m.commit(append(events, Answered{Slot: m.slot, Call: c.ID, Approval: c.Wait.Approval, Content: "it was", By: "user:ana"})...)
	case how == 1:
		m.commit(append(events, Decided{Slot: m.slot, Call: c.ID, Approval: c.Wait.Approval, Action: ActionDeny, By: "user:ana", Text: "Denied."})...)
	default:
		m.commit(append(events, Decided{Slot: m.slot, Call: c.ID, Approval: c.Wait.Approval, Action: ActionApprove, By: "user:ana", Digest: c.Wait.Digest})...)
	}
}

// branch is a run that begins from m as it is: one that goes on where it has ended, else a fork.
func (m *meeting) branch() (*meeting, bool) {
	n := &meeting{t: m.t, d: m.d, at: m.at}
	from, err := ContinueFrom(&m.s)
	first := RunStarted{Tenant: "default", Run: "r2", Agent: "a", Definition: "d", Owner: "r2-0", MaxInteractions: m.d.Limits.Interactions, Messages: []UserBlock{{Text{"Go on."}}}}
	if err != nil {
		if from, err = ForkFrom(&m.s, "r2", m.at); err != nil {
			return nil, false
		}
		first.Messages = nil
	}
	first.From = &from
	first.Wait, first.Resume = m.d.OpenRounds()
	n.seed = Seed(m.s)
	n.commit(first)
	return n, true
}

// Where policies meet, every run ends, every request is one that a provider takes, no call is run in doubt, and whoever reads the journal,
// from its beginning or from a snapshot, or goes on with it in another run, has the run as it was.
func TestPoliciesMeet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := meet(t)
		branchAt := rapid.IntRange(2, 40).Draw(t, "branch at")
		for m.s.Status != RunDone && len(m.entries) < branchAt {
			m.step()
		}
		if n, ok := m.branch(); ok {
			n.drive()
		}
		m.drive()
	})
}
