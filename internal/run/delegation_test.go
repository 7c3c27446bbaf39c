package run_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

func delegating() agent.Definition {
	d := worldDefinition()
	d.Tools = append(d.Tools, agent.ToolSpec{
		Name: "help", Kind: agent.KindAgent, Effect: run.EffectIdempotent, Schema: agent.DelegateSchema, Domain: "eu", Agent: &agent.Delegate{Agent: "aide", USD: 5},
	})
	return d
}

// Depth, agents at a time and tokens are in delegate-depth, delegate-fanout and delegate-budget-used-up.
func TestDelegation(t *testing.T) {
	priced := func(name string) (*agent.Definition, bool) {
		d, ok := worldAgents(name)
		d.Model.Price = &agent.Price{}
		return d, ok
	}
	nobody := func(string) (*agent.Definition, bool) { return &agent.Definition{}, false }
	for want, tt := range map[string]struct {
		find   func(string) (*agent.Definition, bool)
		change func(*agent.Definition, *run.AgentState)
	}{
		"":                                  {find: priced},
		"this deployment has no agent aide": {find: nobody},
		"agent aide would work for itself (root -> aide -> small -> aide)": {priced, func(_ *agent.Definition, s *run.AgentState) {
			s.Parent = &run.Parent{Depth: 2, Agents: []string{"root", "aide"}}
		}},
		"the run has asked agents 64 times, and that is all it may": {priced, func(_ *agent.Definition, s *run.AgentState) {
			s.Children.Begun = agent.MaxChildren
		}},
		"nothing is left of the run's 0.00000000001 USD": {priced, func(d *agent.Definition, s *run.AgentState) {
			d.Limits.USD, s.Cost, s.Children.Open = 10, 3, []run.OpenChild{{Child: run.Child{USD: 7}}}
		}},
		"its budget is in USD, and a model of agent aide has no price": {find: worldAgents},
	} {
		d, s := delegating(), run.AgentState{Tenant: "default", Run: "r1", Agent: "small"}
		if tt.change != nil {
			tt.change(&d, &s)
		}
		child, refused := policy.Delegation(&d, &s, run.Call{ID: "c1", Tool: "help", Name: "help"}, tt.find)
		if want == "" {
			require.Nil(t, refused)
			require.Equal(t, &run.Child{Run: agent.ChildID("default", "aide", "r1", "c1"), USD: 5}, child)
			continue
		}
		require.Nil(t, child, want)
		require.Equal(t, "help was not asked: "+want+".", refused.Content)
		require.True(t, refused.IsError)
	}
	d := delegating()
	full := run.AgentState{Children: run.Children{Begun: agent.MaxChildren}}
	again, refused := policy.Delegation(&d, &full, run.Call{ID: "c1", Tool: "help", Child: "r2"}, nil)
	require.Nil(t, refused, "a call that is sent again asks nobody anew")
	require.Nil(t, again)
	_, refused = policy.Delegation(&d, &run.AgentState{}, run.Call{ID: "c1", Tool: "look"}, nil)
	require.Nil(t, refused)
}

// No key that anybody can choose gives the id of a call's run.
func TestChildID(t *testing.T) {
	require.Equal(t, agent.ChildID("t", "a", "r1", "c1"), agent.ChildID("t", "a", "r1", "c1"))
	require.NotEqual(t, agent.ChildID("t", "a", "r1", "c1"), agent.ChildID("t", "a", "r1", "c2"))
	for _, key := range []string{"r1/c1", "r1c1", "r1\x00c1"} {
		require.NotEqual(t, agent.RunID("t", "a", key), agent.ChildID("t", "a", "r1", "c1"))
	}
}

func TestCheckAgents(t *testing.T) {
	agents := map[string]*agent.Definition{}
	add := func(name string, asks ...string) {
		d := worldDefinition(func(d *agent.Definition) { d.Name, d.Tools = name, nil })
		for _, to := range asks {
			d.Tools = append(
				d.Tools, agent.ToolSpec{Name: "ask." + to, Kind: agent.KindAgent, Agent: &agent.Delegate{Agent: to}},
			)
		}
		agents[name] = &d
	}
	find := func(name string) (*agent.Definition, bool) { d, ok := agents[name]; return d, ok }
	check := func() error {
		return agent.CheckAgents(slices.Collect(maps.Keys(agents)), find)
	}
	add("a", "b", "c")
	add("b", "d")
	add("c", "d")
	add("d")
	require.NoError(t, check(), "two that ask the same one are no circle")
	add("d", "a")
	require.EqualError(t, check(), "agent a: tools[0].agent: an agent would work for itself: a -> b -> d -> a")
	require.EqualError(t, agent.CheckCircle(agents["c"], find), "agent c: tools[0].agent: an agent would work for itself: c -> d -> a -> c")
	add("d", "d")
	require.EqualError(t, check(), "agent d: tools[0].agent: an agent would work for itself: d -> d")
	add("d", "e")
	require.EqualError(t, check(), `agent d: tools[0].agent: there is no agent "e"; known: a, b, c, d`)
	add("d")
	agents["a"].Limits.USD = 5
	require.EqualError(
		t, check(), "agent a: tools[0]: a budget in USD is set, and a model of agent b has no price\nagent a: tools[1]: a budget in USD is set, and a model of agent c has no price",
	)
}
