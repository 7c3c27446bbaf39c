package run_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/prompt"
	"github.com/countersign/countersign/internal/run"
)

// budgetOf is the budget of a request that needs no more room.
func budgetOf(d *agent.Definition, s *run.AgentState, a policy.Action, m prompt.Measured) prompt.Budget {
	_, left := prompt.MakeRoom(d, s, a, m)
	return left
}

// toolsOf are tools whose definitions measure so many tokens.
func toolsOf(t *testing.T, tokens int) []agent.ToolSpec {
	t.Helper()
	tools := []agent.ToolSpec{{Name: "ocr.read", Kind: agent.KindMCP, Effect: run.EffectRead, Schema: json.RawMessage(`{"type":"object","properties":{"path":{"type":"string"}}}`)}}
	for budgetOf(&agent.Definition{Tools: tools, Context: agent.Context{Window: 1}}, &run.AgentState{}, policy.Action{}, prompt.Measured{}).Tools < tokens {
		tools[0].Description += "x"
	}
	return tools
}

func preset(t *testing.T, p agent.Preset) *agent.Definition {
	t.Helper()
	d, err := agent.PresetDefaults(p)
	require.NoError(t, err)
	d.Name, d.System, d.Model.Provider, d.Model.ID = "a", "You rename screenshots.", "demo", "m"
	return &d
}

// The seed's own figure (seed 002, round 0), by the preset's own terms and tools that measure what its tools did; and what the same inputs give
// by the terms of the source's newer version.
func TestBudgetOfTheSeed(t *testing.T) {
	d := preset(t, agent.PresetCowork)
	d.Tools = toolsOf(t, 2257)
	b := budgetOf(d, &run.AgentState{}, policy.Action{}, prompt.Measured{System: d.System})
	require.Equal(t, prompt.Budget{Window: 32_768, System: 500, Tools: 2257, Active: 9500, Output: 2000, Safety: 768, Remaining: 17_743}, b)
	require.Equal(t, &run.Room{Left: 17_743, Of: 32_768}, b.Room(d))

	system := 900
	d.Context.Reserve.System, d.Context.Reserve.Active = &system, 0
	require.Equal(t, 26_843, budgetOf(d, &run.AgentState{}, policy.Action{}, prompt.Measured{System: d.System}).Remaining)
}

func TestBudgetTerms(t *testing.T) {
	d := preset(t, agent.PresetCountersign)
	d.Tools = toolsOf(t, 100)
	system := strings.Repeat("s", 320)
	s := conversation(spoke(run.RoleUser, run.Text{Text: strings.Repeat("x", 320)}))
	b := budgetOf(d, &s, policy.Action{}, prompt.Measured{System: system})
	require.Equal(t, prompt.Budget{Window: 200_000, System: 100, Tools: 100, Output: 4096, Safety: 768, Messages: 104, Remaining: 200_000 - 100 - 100 - 4096 - 768 - 104}, b)
	require.Nil(t, b.Room(d), "far from the end nothing is written down")

	s.Summary = "Somebody asked."
	require.Greater(t, budgetOf(d, &s, policy.Action{}, prompt.Measured{System: system}).System, 100+5, "the summary is part of the system text")
	require.Zero(t, budgetOf(d, &s, policy.Action{Lifecycle: run.LifecycleSummary}, prompt.Measured{}).Tools, "a summary is offered none")

	fixed := 7
	d.Context.Reserve.Tools = &fixed
	require.Equal(t, 7, budgetOf(d, &s, policy.Action{}, prompt.Measured{}).Tools)
	d.Context.Window = 50
	require.Zero(t, budgetOf(d, &s, policy.Action{}, prompt.Measured{}).Remaining, "saturating")
	d.Context.Window = 0
	require.Equal(t, prompt.Budget{}, budgetOf(d, &s, policy.Action{}, prompt.Measured{}), "nobody counts")
	require.Nil(t, prompt.Budget{}.Room(d))
}

// What a provider counted replaces the estimate where nothing of the partition is fixed and the figure can be one of this text.
func TestBudgetByCount(t *testing.T) {
	long := spoke(run.RoleUser, run.Text{Text: strings.Repeat("x", 3200)})
	at := func(p agent.Preset, counted, count int64) int {
		d := preset(t, p)
		s := conversation(long, spoke(run.RoleAssistant, run.Text{Text: strings.Repeat("y", 320)}))
		s.Counted = run.Counted{Tokens: counted, Through: 1}
		return budgetOf(d, &s, policy.Action{}, prompt.Measured{Count: count}).Messages
	}
	require.Equal(t, 1004+104, at(agent.PresetCountersign, 0, 0))
	require.Equal(t, 1500+104, at(agent.PresetCountersign, 1500, 0), "what came since is estimated")
	require.Equal(t, 600+104, at(agent.PresetCountersign, 600, 0))
	require.Equal(t, 1004+104, at(agent.PresetCountersign, 9, 0), "no text is that far off")
	require.Equal(t, 1004+104, at(agent.PresetCountersign, 5000, 0))
	require.Equal(t, 1300, at(agent.PresetCountersign, 1500, 1300), "a count of this very request is all of it")
	require.Equal(t, 1004+104, at(agent.PresetCowork, 1500, 1300), "the seed's arithmetic stays what it is")
}

// A request for more of a shared budget is asked again after a change of policy, as it always was, so that older journals
// fold as they did; one that is void is the end of its call, and no refusal.
func TestVoidIsNotAskedAgain(t *testing.T) {
	begin := func() *run.Draft {
		at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		d := run.NewDraft(run.AgentState{}, "w1", at)
		require.NoError(t, d.Add(run.RunStarted{Tenant: "acme", Run: "r1", Owner: "r1-0", Messages: []run.UserBlock{{Block: run.Text{Text: "Go."}}}},
			run.BudgetAsked{Call: "budget-1", Tool: run.ToolAgentBudget, Input: json.RawMessage(`{"tokens":10}`)},
			run.CallSuspended{Call: "budget-1", Approval: run.ApprovalID("r1", "budget-1", 1), Expires: at.Add(time.Hour)}, run.Parked{}, run.Resumed{}))
		return d
	}
	decided := func(a run.DecisionAction) run.Decided {
		return run.Decided{Slot: 1, Call: "budget-1", Approval: run.ApprovalID("r1", "budget-1", 1), Action: a, By: "policy"}
	}
	d := begin()
	require.NoError(t, d.Add(decided(run.ActionAskAgain),
		run.CallSuspended{Call: "budget-1", Approval: run.ApprovalID("r1", "budget-1", 2), Expires: d.Entry.Time.Add(time.Hour)}, run.Parked{}))
	require.Equal(t, run.RunWaiting, d.State.Status)

	d = begin()
	require.NoError(t, d.Add(decided(run.ActionVoid)))
	c, _ := d.State.Call("budget-1")
	require.Equal(t, run.StatusCancelled, c.Status)
	require.Equal(t, run.WhyVoided, c.Reason)
	require.Empty(t, d.State.Budget.Shared)
}

// A model has given a call the id that the run's request for budget would have. Whoever reads the run from a snapshot,
// without that call, asks by the same call as whoever reads all of it.
func TestBudgetIsAskedByAnIDOfItsOwn(t *testing.T) {
	d := worldDefinition(func(d *agent.Definition) {
		d.Limits.Interactions, d.Limits.Tokens, d.Limits.OnBudget = 9, 4, agent.OnBudgetAsk
	})
	var s run.AgentState
	var journal []run.Entry
	for _, events := range [][]run.Event{
		{(&world{def: d}).start()}, {called(1, "budget-1", "r")}, {run.CallClaimed{Call: "budget-1"}}, {result("budget-1", "1"), ran("r", "2")},
		{called(2, "r2")}, {ran("r2", "3"), run.Evicted{Total: 1, Summary: "Somebody began."}},
	} {
		e := run.NewDraft(s, "w1", worldTime(s.Entries))
		require.NoError(t, e.Add(events...))
		require.NoError(t, e.Snap())
		journal, s = append(journal, e.Entry), e.Committed()
	}
	part, ok, err := run.Restore(stored(t, journal)[s.ReadFrom():])
	require.NoError(t, err)
	require.True(t, ok)
	_, known := part.Call("budget-1")
	require.False(t, known)
	ask := policy.Next(&d, &part).Ask
	require.Equal(t, policy.Next(&d, &s).Ask, ask)
	then(t, s, ask, suspend(ask.Call), run.Parked{Expires: later})
}
