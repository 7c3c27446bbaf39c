package agent

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a grant covers in its run and beyond: under scope call with grants: standing the very arguments count, otherwise none do.
func TestGrantDigests(t *testing.T) {
	const args = `{"amount":5,"to":"ana"}`
	base := func(change ...func(*Definition)) Definition {
		return worldDefinition(append([]func(*Definition){func(d *Definition) { d.Permission.Grants = GrantsStanding }}, change...)...)
	}
	scope := func(s Scope) func(*Definition) { return func(d *Definition) { d.Permission.Scope = s } }
	digests := func(d Definition, s AgentState, args string, approvers ...string) [2]string {
		wire, ok := d.Tool("wire")
		require.True(t, ok)
		raw := json.RawMessage(args)
		return [2]string{ToolDigest(&d, &s, wire, raw, Decision{Approvers: approvers}), StandingDigest(&d, &s, wire, raw, Decision{Approvers: approvers})}
	}
	first := AgentState{Tenant: "default", Run: "r1", Agent: "small", Version: "1"}
	later := AgentState{Tenant: "default", Run: "r2", Agent: "small", Version: "2"}
	other := later
	other.Agent = "large"
	rival := later
	rival.Tenant = "rival"
	for name, c := range map[string]struct {
		def       Definition
		state     AgentState
		args      string
		approvers []string
		same      bool
	}{
		"the same":                 {base(), later, args, []string{"user:ana"}, true},
		"keys in another order":    {base(), later, `{"to":"ana","amount":5}`, []string{"user:ana"}, true},
		"escaped otherwise":        {base(), later, `{"amount":5,"to":"\u0061na"}`, []string{"user:ana"}, true},
		"scope call by name":       {base(scope(ScopeCall)), later, args, []string{"user:ana"}, false}, // another policy
		"another amount":           {base(), later, `{"amount":6,"to":"ana"}`, []string{"user:ana"}, false},
		"a number spelled anew":    {base(), later, `{"amount":5.0,"to":"ana"}`, []string{"user:ana"}, false},
		"a number as text":         {base(), later, `{"amount":"5","to":"ana"}`, []string{"user:ana"}, false},
		"one key more":             {base(), later, `{"amount":5,"to":"ana","x":null}`, []string{"user:ana"}, false},
		"no arguments":             {base(), later, `{}`, []string{"user:ana"}, false},
		"other approvers":          {base(), later, args, []string{"user:ben"}, false},
		"another agent":            {base(), other, args, []string{"user:ana"}, false},
		"another tenant":           {base(), rival, args, []string{"user:ana"}, false},
		"another tool of the name": {base(func(d *Definition) { d.Tools[3].Description = "Something else." }), later, args, []string{"user:ana"}, false},
		"another policy":           {base(func(d *Definition) { d.Permission.Default = DefaultAsk }), later, args, []string{"user:ana"}, false},
		"scope tool":               {base(scope(ScopeTool)), later, args, []string{"user:ana"}, false},
	} {
		want, got := digests(base(), first, args, "user:ana"), digests(c.def, c.state, c.args, c.approvers...)
		require.Equal(t, c.same, want[1] == got[1], name)
		require.NotEqual(t, got[0], got[1], name)
		require.NotEqual(t, want[0], got[0], "%s, in another run", name)
		inRun := c.state
		inRun.Run, inRun.Version = first.Run, first.Version
		require.Equal(t, c.same, want[0] == digests(c.def, inRun, c.args, c.approvers...)[0], "%s, in the run", name)
	}
	for _, grants := range []Grants{"", GrantsRun, GrantsOnce, GrantsStanding} {
		for _, s := range []Scope{"", ScopeCall, ScopeTool} {
			d := base(scope(s), func(d *Definition) { d.Permission.Grants = grants })
			bound := grants == GrantsStanding && s != ScopeTool
			require.Equal(t, bound, d.Permission.OfArguments())
			require.Equal(t, !bound, digests(d, first, args) == digests(d, first, `{}`), "%s %s", grants, s)
		}
	}
}
