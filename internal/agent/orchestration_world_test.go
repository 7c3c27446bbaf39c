package agent

import "encoding/json"

// forPlan is what may come of a request for the run's plan.
func (w *world) forPlan(s *AgentState, a Action) []step {
	var steps []step
	add := func(name string, r Reply) {
		r.Model, r.Usage = "m", Usage{Input: 5, Output: 1}
		accepts := func(t ToolSpec, args json.RawMessage) bool { return worldValid(t, args) == nil }
		steps = append(steps, step{name: string(a.Lifecycle) + " " + name, writer: "w1", events: PlanFacts(&w.def, s, a, r, 1, accepts, nil)})
	}
	failed := PlanFailed(&w.def, s, a, &ModelError{Class: ModelServer}, 2, nil)
	steps = append(steps, step{name: string(a.Lifecycle) + " fails", writer: "w1", events: failed})
	switch a.Lifecycle {
	case LifecyclePlan:
		for _, text := range w.plans {
			add(text, Reply{Text: text})
		}
	case LifecycleRoute:
		add("says nothing", Reply{})
		add("names a tool", Reply{Text: "look!"})
		for _, calls := range w.replies {
			add("calls", Reply{Calls: calls})
		}
	default:
		add("says nothing", Reply{})
		add("says all", Reply{Text: "All done."})
	}
	return steps
}

// plannedWorlds are runs that begin with a plan: one that is made again, under every wait, and one whose tokens are used up by it.
func plannedWorlds() []world {
	plans := func(change ...func(*Definition)) Definition {
		return worldDefinition(append([]func(*Definition){func(d *Definition) {
			d.Orchestrator = Orchestrator{Enabled: true, TopK: 15, MaxSteps: 2, Retries: 2}
			d.Limits.Interactions = 1
		}}, change...)...)
	}
	said := []string{
		"nonsense", `plan.respond("Hi.")`, `plan.add_step(1, "", "Look and pay")`, `plan.add_step(1, "", "Look") plan.add_step(2, "", "Pay for step 1")`,
		`plan.add_step(1, "", "a") plan.add_step(2, "", "b") plan.add_step(3, "", "c")`,
	}
	waits := func(d *Definition) { d.Wait = WaitAllSuspended }
	used := func(d *Definition) { d.Limits = Limits{Interactions: 2, Tokens: 12, OnLimit: OnLimitSummarise} }
	return []world{
		{name: "a plan", def: plans(), twofold: true, replies: [][]ReplyCall{ask("wire", "look"), ask("ghost")}, maxCalls: 3, writers: []string{"w1"}, small: true, plans: said[:4]},
		{name: "a plan while calls wait", def: plans(waits), replies: [][]ReplyCall{ask("peek")}, maxCalls: 2, writers: []string{"w1"}, small: true, inputs: 1, plans: said[2:]},
		{name: "a plan that uses up its tokens", def: plans(used), replies: [][]ReplyCall{ask("look")}, maxCalls: 3, writers: []string{"w1"}, plans: said[1:]},
		{name: "a plan with plugins", def: plans(), replies: [][]ReplyCall{ask("look")}, maxCalls: 2, writers: []string{"w1"}, hooks: true, plans: said[3:4]},
	}
}
