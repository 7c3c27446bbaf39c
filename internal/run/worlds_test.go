package run_test

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/prompt"
	"github.com/countersign/countersign/internal/run"
)

// worldAgents are the agents that a small one may ask.
func worldAgents(name string) (*agent.Definition, bool) {
	d := worldDefinition(func(d *agent.Definition) { d.Name = name })
	return &d, name == "aide"
}

// claims are the claims of a call, with its child where another agent carries it out; or that there can be none.
func (w *world) claims(s *run.AgentState, c run.Call) []step {
	child, refused := policy.Delegation(&w.def, s, c, worldAgents)
	if refused != nil {
		return []step{{name: "nobody is asked", writer: "w1", events: []run.Event{*refused}}}
	}
	return run.Map(w.writers, func(by string) step {
		return step{name: "claim", writer: by, events: []run.Event{run.CallClaimed{Call: c.ID, Child: child}}}
	})
}

// children are what the open children may say: each its answer or its failure, with what it used.
func (w *world) children(s *run.AgentState) []step {
	var steps []step
	for _, c := range s.Children.Open {
		used := run.ChildUsage{Usage: run.Usage{Input: 5}, Requests: 1, Units: 5}
		for _, e := range []run.Answered{
			{Call: c.Call, Content: "Done.", By: "run:" + c.Run, Used: &used},
			{Call: c.Call, Content: "Not done.", IsError: true, By: "run:" + c.Run, Used: &run.ChildUsage{}},
		} {
			steps = append(steps, step{name: "child answers", writer: "w1", events: []run.Event{w.slotted(s, e)}})
		}
	}
	return steps
}

// delegatingWorlds are small runs whose calls are runs of another agent.
func delegatingWorlds() []world {
	one, two := []string{"w1"}, []string{"w1", "w2"}
	asks := func(d *agent.Definition) {
		d.Tools = append(d.Tools,
			agent.ToolSpec{Name: "help", Kind: agent.KindAgent, Effect: run.EffectIdempotent, Schema: agent.DelegateSchema, Agent: &agent.Delegate{Agent: "aide"}},
			agent.ToolSpec{Name: "hire", Kind: agent.KindAgent, Effect: run.EffectNonIdempotent, Schema: agent.DelegateSchema, Agent: &agent.Delegate{Agent: "aide", Tokens: 3}},
			agent.ToolSpec{Name: "self", Kind: agent.KindAgent, Effect: run.EffectIdempotent, Schema: agent.DelegateSchema, Agent: &agent.Delegate{Agent: d.Name}})
		d.Permission.Rules = append(d.Permission.Rules, agent.Rule{Tool: "hire", Verdict: agent.VerdictAsk})
		d.Limits = agent.Limits{Interactions: 3, OnLimit: agent.OnLimitError, Tokens: 20, Children: 2}
	}
	open := func(d *agent.Definition) { d.Wait, d.Limits.OnLimit = run.WaitAllSuspended, agent.OnLimitStop }
	return []world{
		{name: "another agent that is asked", def: worldDefinition(asks), replies: [][]agent.ReplyCall{ask("help")}, maxCalls: 2, writers: two, inputs: 1, handovers: 1},
		{name: "agents at the same time", def: worldDefinition(asks), replies: [][]agent.ReplyCall{ask("help", "hire"), ask("self")}, maxCalls: 2, writers: one, small: true},
		{name: "agents over open rounds", def: worldDefinition(asks, open), replies: [][]agent.ReplyCall{ask("help", "look"), ask("help")}, maxCalls: 3, writers: one, small: true},
	}
}

// childrenHold: a child is noted with its call from its claim until it has answered, whatever has become of the call, and what the open
// ones are promised is no more than the run had.
func childrenHold(d *agent.Definition, s *run.AgentState) error {
	for _, o := range s.Children.Open {
		if c, ok := s.Call(o.Call); !ok || c.Child != o.Run {
			return fmt.Errorf("child %s is open and call %s does not have it", o.Run, o.Call)
		}
	}
	for _, c := range s.Live {
		t, _ := d.Tool(c.Tool)
		noted := slices.ContainsFunc(s.Children.Open, func(o run.OpenChild) bool { return o.Call == c.ID })
		if t.Kind == agent.KindAgent && !noted && c.Open() && c.Executions > 0 && s.From == nil {
			return fmt.Errorf("call %s is %s and its child is not noted", c.ID, c.Status)
		}
	}
	promised := int64(0)
	for _, o := range s.Children.Open {
		promised += o.Tokens
	}
	if d.Limits.Tokens > 0 && promised > d.Limits.Tokens {
		return fmt.Errorf("%d tokens are promised, and there were %d", promised, d.Limits.Tokens)
	}
	if d.Limits.Children > 0 && len(s.Children.Open) > d.Limits.Children || s.Children.Begun < len(s.Children.Open) {
		return fmt.Errorf("%d children are open of %d", len(s.Children.Open), s.Children.Begun)
	}
	return nil
}

func worldServerTool(name string, e run.Effect) agent.ToolSpec {
	return agent.ToolSpec{Name: "files." + name, Kind: agent.KindMCP, Effect: e, MCP: &agent.MCPTool{Server: "files", Tool: name, Digest: "1"}}
}

// listings are what may come of asking the servers: all of their tools, some, none as one was not to be had, and that the run cannot do without.
func (w *world) listings() []step {
	listed := func(name string, s run.ServerState) step {
		return step{name: name, writer: "w1", events: []run.Event{run.ToolsListed{Definition: "d2", Servers: []run.ServerState{s}}}}
	}
	return []step{
		listed("list", run.ServerState{Name: "files", Protocol: "p", Tools: []string{"read", "pay"}}),
		listed("list some", run.ServerState{Name: "files", Tools: []string{"pay"}, Disabled: []run.DisabledTool{{Tool: "read", Why: run.DisabledNew, Digest: "2"}}}),
		{name: "list in vain", writer: "w1", events: []run.Event{policy.Fail(run.CodeMCPUnavailable, "down")}},
	}
}

// changes is what a call of a server's tool may come to beside a result: the server has changed the tool.
func (w *world) changes(c run.Call) []step {
	t, _ := w.def.Tool(c.Tool)
	if t.MCP == nil {
		return nil
	}
	return []step{{name: "tool changed", writer: max("w1", c.Claim), events: []run.Event{
		run.CallFinished{Call: c.ID, IsError: true, Reason: run.WhyToolChanged, Content: "changed"},
		run.ToolsDisabled{Server: t.MCP.Server, Tool: t.MCP.Tool, Why: run.DisabledChanged, Digest: "2"},
	}}}
}

// lacksTool reports whether the tool of a call is disabled in the run.
func lacksTool(s *run.AgentState, c run.Call) bool {
	return slices.ContainsFunc(s.Servers, func(v run.ServerState) bool {
		return slices.ContainsFunc(v.Disabled, func(d run.DisabledTool) bool { return v.Name+"."+d.Tool == c.Tool })
	})
}

// forPlan is what may come of a request for the run's plan.
func (w *world) forPlan(s *run.AgentState, a policy.Action) []step {
	var steps []step
	add := func(name string, r agent.Reply) {
		r.Model, r.Usage = "m", run.Usage{Input: 5, Output: 1}
		accepts := func(t agent.ToolSpec, args json.RawMessage) bool { return worldValid(t, args) == nil }
		steps = append(steps, step{name: string(a.Lifecycle) + " " + name, writer: "w1", events: prompt.PlanFacts(&w.def, s, a, r, 1, accepts, nil)})
	}
	failed := prompt.PlanFailed(&w.def, s, a, &agent.ModelError{Class: agent.ModelServer}, 2, nil)
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
