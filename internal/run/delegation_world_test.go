package run_test

import (
	"fmt"
	"slices"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
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
	var steps []step
	for _, by := range w.writers {
		steps = append(steps, step{name: "claim", writer: by, events: []run.Event{run.CallClaimed{Call: c.ID, Child: child}}})
	}
	return steps
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
			agent.ToolSpec{Name: "help", Kind: agent.KindAgent, Effect: run.EffectIdempotent, Schema: policy.DelegateSchema, Agent: &agent.Delegate{Agent: "aide"}},
			agent.ToolSpec{Name: "hire", Kind: agent.KindAgent, Effect: run.EffectNonIdempotent, Schema: policy.DelegateSchema, Agent: &agent.Delegate{Agent: "aide", Tokens: 3}},
			agent.ToolSpec{Name: "self", Kind: agent.KindAgent, Effect: run.EffectIdempotent, Schema: policy.DelegateSchema, Agent: &agent.Delegate{Agent: d.Name}})
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
