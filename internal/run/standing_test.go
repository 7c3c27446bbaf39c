package run_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

// What a grant covers in its run and beyond: under scope call with grants: standing the very arguments count, otherwise none do.
func TestGrantDigests(t *testing.T) {
	const args = `{"amount":5,"to":"ana"}`
	base := func(change ...func(*agent.Definition)) agent.Definition {
		return worldDefinition(append([]func(*agent.Definition){func(d *agent.Definition) { d.Permission.Grants = agent.GrantsStanding }}, change...)...)
	}
	scope := func(s agent.Scope) func(*agent.Definition) {
		return func(d *agent.Definition) { d.Permission.Scope = s }
	}
	digests := func(d agent.Definition, s run.AgentState, args string, approvers ...string) [2]string {
		wire, ok := d.Tool("wire")
		require.True(t, ok)
		raw := json.RawMessage(args)
		return [2]string{policy.ToolDigest(&d, &s, wire, raw, policy.Decision{Approvers: approvers}), policy.StandingDigest(&d, &s, wire, raw, policy.Decision{Approvers: approvers})}
	}
	first := run.AgentState{Tenant: "default", Run: "r1", Agent: "small", Version: "1"}
	later := run.AgentState{Tenant: "default", Run: "r2", Agent: "small", Version: "2"}
	other := later
	other.Agent = "large"
	rival := later
	rival.Tenant = "rival"
	for name, c := range map[string]struct {
		def       agent.Definition
		state     run.AgentState
		args      string
		approvers []string
		same      bool
	}{
		"the same":                 {base(), later, args, []string{"user:ana"}, true},
		"keys in another order":    {base(), later, `{"to":"ana","amount":5}`, []string{"user:ana"}, true},
		"escaped otherwise":        {base(), later, `{"amount":5,"to":"\u0061na"}`, []string{"user:ana"}, true},
		"scope call by name":       {base(scope(agent.ScopeCall)), later, args, []string{"user:ana"}, false}, // another policy
		"another amount":           {base(), later, `{"amount":6,"to":"ana"}`, []string{"user:ana"}, false},
		"a number spelled anew":    {base(), later, `{"amount":5.0,"to":"ana"}`, []string{"user:ana"}, false},
		"a number as text":         {base(), later, `{"amount":"5","to":"ana"}`, []string{"user:ana"}, false},
		"one key more":             {base(), later, `{"amount":5,"to":"ana","x":null}`, []string{"user:ana"}, false},
		"no arguments":             {base(), later, `{}`, []string{"user:ana"}, false},
		"other approvers":          {base(), later, args, []string{"user:ben"}, false},
		"another agent":            {base(), other, args, []string{"user:ana"}, false},
		"another tenant":           {base(), rival, args, []string{"user:ana"}, false},
		"another tool of the name": {base(func(d *agent.Definition) { d.Tools[3].Description = "Something else." }), later, args, []string{"user:ana"}, false},
		"another policy":           {base(func(d *agent.Definition) { d.Permission.Default = agent.DefaultAsk }), later, args, []string{"user:ana"}, false},
		"scope tool":               {base(scope(agent.ScopeTool)), later, args, []string{"user:ana"}, false},
	} {
		want, got := digests(base(), first, args, "user:ana"), digests(c.def, c.state, c.args, c.approvers...)
		require.Equal(t, c.same, want[1] == got[1], name)
		require.NotEqual(t, got[0], got[1], name)
		require.NotEqual(t, want[0], got[0], "%s, in another run", name)
		inRun := c.state
		inRun.Run, inRun.Version = first.Run, first.Version
		require.Equal(t, c.same, want[0] == digests(c.def, inRun, c.args, c.approvers...)[0], "%s, in the run", name)
	}
	for _, grants := range []agent.Grants{"", agent.GrantsRun, agent.GrantsOnce, agent.GrantsStanding} {
		for _, s := range []agent.Scope{"", agent.ScopeCall, agent.ScopeTool} {
			d := base(scope(s), func(d *agent.Definition) { d.Permission.Grants = grants })
			bound := grants == agent.GrantsStanding && s != agent.ScopeTool
			require.Equal(t, bound, d.Permission.OfArguments())
			require.Equal(t, !bound, digests(d, first, args) == digests(d, first, `{}`), "%s %s", grants, s)
		}
	}
}
