package agent

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// inPlan is a run whose plan's first call waits for a person; its second step is still to come.
func inPlan(t *testing.T) AgentState {
	t.Helper()
	call := RepliedCall{ID: "c1", Name: "wire", Effect: EffectNonIdempotent, Input: json.RawMessage(`{"n":1.0}`)}
	return fold(t, AgentState{}, entriesOf(t, AgentState{}, [][]Event{
		{RunStarted{Tenant: "default", Run: "r1", Agent: "small", Definition: "d1", Owner: "r1-0", MaxInteractions: 2, Messages: []UserBlock{{Text{"Wire."}}}}},
		{Planned{Spent: Spent{N: 1, Model: "m", Requests: 1}, Steps: []PlanStep{{Number: 1, Description: "Wire"}, {Number: 2, Description: "Look"}}}},
		{StepRouted{Spent: Spent{N: 2, Model: "m", Requests: 1}, Step: 1, Call: &call}, CallSuspended{Call: "c1", Approval: ApprovalID("r1", "c1", 1), Digest: "d", Expires: worldEpoch.Add(worldExpiry)}},
	}))
}

func entriesOf(t *testing.T, s AgentState, run [][]Event) []Entry {
	t.Helper()
	var out []Entry
	for _, events := range run {
		d := NewDraft(s, "w1", worldTime(s.Entries))
		require.NoError(t, d.Add(events...))
		out, s = append(out, d.Entry), d.Committed()
	}
	return out
}

// A fork in the middle of a plan goes on with it: the call is asked about anew, with the arguments that the router gave, and what was done
// comes from the parent's journal where the loop takes over.
func TestForkGoesOnWithAPlan(t *testing.T) {
	d := worldDefinition(func(d *Definition) { d.Orchestrator = Orchestrator{Enabled: true, TopK: 15, MaxSteps: 5, Retries: 1} })
	past := inPlan(t)
	from, err := ForkFrom(&past, "r2", worldEpoch)
	require.NoError(t, err)
	s := fold(t, Seed(past), entriesOf(t, Seed(past), [][]Event{
		{RunStarted{Tenant: "default", Run: "r2", Agent: "small", Definition: "d1", Owner: "r2-0", MaxInteractions: 2, From: &from}},
		{CallClaimed{Call: "c1"}},
		{CallFinished{Call: "c1", Content: "wired"}},
	}))
	require.Equal(t, Action{Kind: ActInfer, Lifecycle: LifecycleRoute}, Next(&d, &s))
	require.Zero(t, s.ModelCalls)
	r := BuildPlanRequest(&d, &s, Next(&d, &s), "", nil)
	require.Equal(t, int64(1), r.Inference, "the fork's replies count anew")
	require.Contains(t, r.Messages[0].Block.(Text).Text, "Step 1 (Wire): wired")
	left, err := Apply(s, LeavePlan(&s, LeftModelFailed, ""))
	require.NoError(t, err)
	all := left.Messages.All()
	require.Equal(t, ToolUse{ID: "c1", Name: "wire", Input: json.RawMessage(`{"n":1.0}`)}, all[1].Block)
	require.Equal(t, "r1", all[1].Source.Run)
	require.Equal(t, ToolResult{ID: "c1", Content: "wired"}, all[2].Block)
	require.NoError(t, wellFormed(&left))
}

// What steps did before a fork stands in the parent's journal, also where a later step's call has put it aside.
func TestForkBehindAStepOfAPlan(t *testing.T) {
	call := RepliedCall{ID: "c2", Name: "look", Effect: EffectRead, Input: json.RawMessage(`{}`)}
	past := inPlan(t)
	past = fold(t, past, entriesOf(t, past, [][]Event{
		{Decided{Slot: 1, Call: "c1", Approval: ApprovalID("r1", "c1", 1), Action: ActionDeny, By: "user:ana", Text: "Denied."}},
		{StepRouted{Spent: Spent{N: 3, Model: "m", Requests: 1}, Step: 2, Call: &call}},
	}))
	from, err := ForkFrom(&past, "r2", worldEpoch)
	require.NoError(t, err)
	s := fold(t, Seed(past), entriesOf(t, Seed(past), [][]Event{
		{RunStarted{Tenant: "default", Run: "r2", Agent: "small", Definition: "d1", Owner: "r2-0", MaxInteractions: 2, From: &from}},
		{CallFinished{Call: "c2", Ran: true, Content: "seen"}},
		{PlanLeft{N: 1, Why: LeftModelFailed}},
	}))
	runs := []string{}
	for _, m := range s.Messages.All() {
		runs = append(runs, m.Source.Run)
	}
	require.Equal(t, []string{"r1", "r1", "r1", "r1", ""}, runs, "the request, the first call, its denial, the second call, its result here")
	require.NoError(t, wellFormed(&s))
}

// What does not belong where the plan is is refused, and what is known is not.
func TestFactsOfPlansThatAreRefused(t *testing.T) {
	open := inPlan(t)
	n := func(n int64) Spent { return Spent{N: n, Model: "m", Requests: 1} }
	done, err := Apply(open, CallCancelled{Call: "c1", Reason: WhyExpired, Content: "late"})
	require.NoError(t, err)
	call := &RepliedCall{ID: "c2", Name: "look", Input: json.RawMessage(`{}`)}
	for name, c := range map[string]struct {
		s    AgentState
		e    Event
		want string
	}{
		"a call is open":       {open, StepRouted{Spent: n(3), Step: 2, Call: call}, "apply step_routed to call c1: still suspended"},
		"another number":       {done, StepRouted{Spent: n(4), Step: 2, Call: call}, "apply step_routed: number 4 after 2"},
		"another step":         {done, StepRouted{Spent: n(3), Step: 1, Call: call}, "apply step_routed: step 1 is not the next"},
		"a call and a failure": {done, StepRouted{Spent: n(3), Step: 2, Call: call, Failed: true}, "apply step_routed to call c2: a step that has a call has not failed"},
		"an id that is taken":  {done, StepRouted{Spent: n(3), Step: 2, Call: &RepliedCall{ID: "c1", Name: "look"}}, "apply replied to call c1: the id is used already"},
		"too early an answer":  {done, Synthesised{Spent: n(3), Text: "Done."}, `apply synthesised: the plan is at "steps"`},
		"a second plan":        {done, Planned{Spent: n(3), Text: "Hi."}, `apply planned: the plan is at "steps"`},
		"no reason":            {done, PlanLeft{N: 3}, "apply plan_left: a reason is required"},
		"an inference":         {done, Replied{Inference: 1, Model: "m"}, "apply replied: the run's plan is not carried out"},
		"an end":               {done, Finished{Reason: ReasonNaturalEnd}, "apply finished: the run's plan is not carried out"},
	} {
		t.Run(name, func(t *testing.T) {
			after, err := Apply(c.s, c.e)
			require.EqualError(t, err, c.want)
			require.Equal(t, c.s.Plan, after.Plan)
		})
	}
	for _, known := range []Event{StepRouted{Spent: n(2), Step: 9}, Planned{Spent: n(1)}, Synthesised{Spent: n(2)}, PlanLeft{N: 1}} {
		after, err := Apply(done, known)
		require.NoError(t, err)
		require.Equal(t, done, after)
	}
}

// Planner and router are asked coolly, unless their own specification says otherwise; who sums up, as the planner is specified.
func TestPlanModels(t *testing.T) {
	hot := 0.7
	d := Definition{Model: ModelSpec{ID: "own", Temperature: &hot, Fallbacks: []ModelSpec{{ID: "next", Temperature: &hot}}}}
	for l, want := range map[Lifecycle]float64{LifecyclePlan: 0.1, LifecycleRoute: 0.1, LifecycleSynthesis: 0.7} {
		m := d.PlanModel(l)
		require.Equal(t, "own", m.ID)
		require.InDelta(t, want, *m.Temperature, 0)
		require.InDelta(t, want, *m.Fallbacks[0].Temperature, 0)
	}
	require.InDelta(t, 0.7, *d.Model.Fallbacks[0].Temperature, 0, "the definition stays as it is")
	d.Orchestrator = Orchestrator{Planner: &ModelSpec{ID: "big"}, Router: &ModelSpec{ID: "small", Temperature: &hot}}
	require.InDelta(t, 0.1, *d.PlanModel(LifecyclePlan).Temperature, 0)
	require.Nil(t, d.PlanModel(LifecycleSynthesis).Temperature)
	require.Equal(t, "big", d.PlanModel(LifecycleSynthesis).ID)
	require.InDelta(t, 0.7, *d.PlanModel(LifecycleRoute).Temperature, 0)
}

// Why a plan was left may be in the words of a deployment's code, as long as they please: what is stored is bounded.
func TestLeavePlanBounded(t *testing.T) {
	left := LeavePlan(&AgentState{}, LeftIndexFailed, strings.Repeat("\xff", 1<<20))
	require.Equal(t, Bounded(strings.Repeat("\xff", 1<<20)), left.Detail)
	require.Less(t, len(left.Detail), 8<<10)
}

// What ends a loop is offered to no planner and to no step.
func TestPlansAreOfferedWhatDoesSomething(t *testing.T) {
	d := validDefinition(t, PresetForge)
	d.Orchestrator.Enabled = true
	s := &AgentState{}
	require.Len(t, offered(&d, s, Action{}), len(d.Tools)+len(LoopBreaking))
	for _, l := range []Lifecycle{LifecyclePlan, LifecycleRoute} {
		for _, tool := range offeredToPlan(&d, s, Action{Lifecycle: l}) {
			require.NotContains(t, LoopBreaking, tool.Name)
		}
		require.Len(t, offeredToPlan(&d, s, Action{Lifecycle: l}), len(d.Tools))
	}
}
