package run_test

import (
	"encoding/json"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/plan"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

// forPlan is what may come of a request for the run's plan.
func (w *world) forPlan(s *run.AgentState, a policy.Action) []step {
	var steps []step
	add := func(name string, r agent.Reply) {
		r.Model, r.Usage = "m", run.Usage{Input: 5, Output: 1}
		accepts := func(t agent.ToolSpec, args json.RawMessage) bool { return worldValid(t, args) == nil }
		steps = append(steps, step{name: string(a.Lifecycle) + " " + name, writer: "w1", events: plan.PlanFacts(&w.def, s, a, r, 1, accepts, nil)})
	}
	failed := plan.PlanFailed(&w.def, s, a, &agent.ModelError{Class: agent.ModelServer}, 2, nil)
	steps = append(steps, step{name: string(a.Lifecycle) + " fails", writer: "w1", events: failed})
	switch a.Lifecycle {
	case run.LifecyclePlan:
		for _, text := range w.plans {
			add(text, agent.Reply{Text: text})
		}
	case run.LifecycleRoute:
		add("says nothing", agent.Reply{})
		add("names a tool", agent.Reply{Text: "look!"})
		for _, calls := range w.replies {
			add("calls", agent.Reply{Calls: calls})
		}
	default:
		add("says nothing", agent.Reply{})
		add("says all", agent.Reply{Text: "All done."})
	}
	return steps
}

// plannedWorlds are runs that begin with a plan: one that is made again, under every wait, and one whose tokens are used up by it.
func plannedWorlds() []world {
	plans := func(change ...func(*agent.Definition)) agent.Definition {
		return worldDefinition(append([]func(*agent.Definition){func(d *agent.Definition) {
			d.Orchestrator = agent.Orchestrator{Enabled: true, TopK: 15, MaxSteps: 2, Retries: 2}
			d.Limits.Interactions = 1
		}}, change...)...)
	}
	said := []string{
		"nonsense", `plan.respond("Hi.")`, `plan.add_step(1, "", "Look and pay")`, `plan.add_step(1, "", "Look") plan.add_step(2, "", "Pay for step 1")`,
		`plan.add_step(1, "", "a") plan.add_step(2, "", "b") plan.add_step(3, "", "c")`,
	}
	waits := func(d *agent.Definition) { d.Wait = run.WaitAllSuspended }
	used := func(d *agent.Definition) {
		d.Limits = agent.Limits{Interactions: 2, Tokens: 12, OnLimit: agent.OnLimitSummarise}
	}
	return []world{
		{name: "a plan", def: plans(), twofold: true, replies: [][]agent.ReplyCall{ask("wire", "look"), ask("ghost")}, maxCalls: 3, writers: []string{"w1"}, small: true, plans: said[:4]},
		{name: "a plan while calls wait", def: plans(waits), replies: [][]agent.ReplyCall{ask("peek")}, maxCalls: 2, writers: []string{"w1"}, small: true, inputs: 1, plans: said[2:]},
		{name: "a plan that uses up its tokens", def: plans(used), replies: [][]agent.ReplyCall{ask("look")}, maxCalls: 3, writers: []string{"w1"}, plans: said[1:]},
		{name: "a plan with plugins", def: plans(), replies: [][]agent.ReplyCall{ask("look")}, maxCalls: 2, writers: []string{"w1"}, hooks: true, plans: said[3:4]},
	}
}
