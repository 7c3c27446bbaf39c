package run_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

func delegating() agent.Definition {
	d := worldDefinition()
	d.Tools = append(d.Tools, agent.ToolSpec{
		Name: "help", Kind: agent.KindAgent, Effect: run.EffectIdempotent, Schema: policy.DelegateSchema, Domain: "eu", Agent: &agent.Delegate{Agent: "aide", USD: 5},
	})
	return d
}

func TestDelegation(t *testing.T) {
	priced := func(name string) (*agent.Definition, bool) {
		d, ok := worldAgents(name)
		d.Model.Price = &agent.Price{}
		return d, ok
	}
	for want, tt := range map[string]struct {
		def   func(*agent.Definition)
		state func(*run.AgentState)
		find  func(string) (*agent.Definition, bool)
	}{
		"": {},
		"this deployment has no agent aide": {
			find: func(string) (*agent.Definition, bool) { return &agent.Definition{}, false },
		},
		"agent aide would work for itself (root -> aide -> small -> aide)": {
			state: func(s *run.AgentState) { s.Parent = &run.Parent{Depth: 2, Agents: []string{"root", "aide"}} },
		},
		"there are 4 agents above this one's, and no more than 4 may stand in a line": {
			state: func(s *run.AgentState) { s.Parent = &run.Parent{Depth: 4} },
		},
		"1 agents are at work for this run, and that is all there may be at a time": {
			def: func(d *agent.Definition) { d.Limits.Children = 1 }, state: func(s *run.AgentState) { s.Children.Open = []run.OpenChild{{Call: "x"}} },
		},
		"the run has asked agents 64 times, and that is all it may": {
			state: func(s *run.AgentState) { s.Children.Begun = agent.MaxChildren },
		},
		"nothing is left of the run's 10 tokens": {
			def: func(d *agent.Definition) { d.Limits.Tokens = 10 }, state: func(s *run.AgentState) { s.Usage.Input = 10 },
		},
		"nothing is left of the run's 0.000000000010 USD": {
			def: func(d *agent.Definition) { d.Limits.USD = 10 }, state: func(s *run.AgentState) { s.Cost = 3; s.Children.Open = []run.OpenChild{{Child: run.Child{USD: 7}}} },
		},
		"its budget is in USD, and a model of agent aide has no price": {find: worldAgents},
	} {
		d := delegating()
		s := run.AgentState{Tenant: "default", Run: "r1", Agent: "small"}
		if tt.def != nil {
			tt.def(&d)
		}
		if tt.state != nil {
			tt.state(&s)
		}
		if tt.find == nil {
			tt.find = priced
		}
		child, refused := policy.Delegation(&d, &s, run.Call{ID: "c1", Tool: "help", Name: "help"}, tt.find)
		if want == "" {
			require.Nil(t, refused)
			require.Equal(t, &run.Child{Run: agent.ChildID("default", "aide", "r1", "c1"), USD: 5}, child)
			continue
		}
		require.Nil(t, child, want)
		require.Equal(
			t, "help was not asked: "+strings.Replace(want, "0.000000000010", "0.00000000001", 1)+".", refused.Content,
		)
		require.True(t, refused.IsError)
	}
	d := delegating()
	again, refused := policy.Delegation(
		&d, &run.AgentState{
			Children: run.Children{Begun: agent.MaxChildren},
		}, run.Call{ID: "c1", Tool: "help", Child: "r2"}, nil,
	)
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
		var names []string
		for name := range agents {
			names = append(names, name)
		}
		return agent.CheckAgents(names, find)
	}
	add("a", "b", "c")
	add("b", "d")
	add("c", "d")
	add("d")
	require.NoError(t, check(), "two that ask the same one are no circle")
	add("d", "a")
	require.EqualError(t, check(), "an agent would work for itself: a -> b -> d -> a")
	require.EqualError(t, agent.CheckCircle(agents["c"], find), "an agent would work for itself: c -> d -> a -> c")
	add("d", "d")
	require.EqualError(t, check(), "an agent would work for itself: d -> d")
	add("d", "e")
	require.EqualError(t, check(), `agent d: tools[0].agent: there is no agent "e"; known: a, b, c, d`)
	add("d")
	agents["a"].Limits.USD = 5
	require.EqualError(
		t, check(), "agent a: tools[0]: a budget in USD is set, and a model of agent b has no price\nagent a: tools[1]: a budget in USD is set, and a model of agent c has no price",
	)
}
