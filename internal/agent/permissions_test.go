package agent

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A call that was claimed under a grant of its tool and is to run again runs only while that grant is of what would run (A6, A18).
func TestGateComparesTheGrantOfATool(t *testing.T) {
	d := worldDefinition(func(d *Definition) { d.Permission.Mode, d.Permission.Scope = ModeBlockAndRetry, ScopeTool })
	s := AgentState{Tenant: "default", Run: "r1", Agent: "small"}
	wire, _ := d.Tool("wire")
	c := Call{ID: "a", Tool: "wire", Name: "wire", Input: []byte(`{}`), Effect: EffectNonIdempotent, Status: StatusResuming}
	c.Grant = &Grant{Approval: "a1", Tool: true, Consumed: true, Digest: ToolDigest(&d, &s, wire, c.Input, Decision{Approvers: d.Permission.Approvers})}
	require.True(t, GateCall(&d, &s, c, worldValid, worldEpoch).Run)
	for name, change := range map[string]func(*Definition){
		"the policy":    func(d *Definition) { d.Permission.Default = DefaultAsk },
		"the approvers": func(d *Definition) { d.Permission.Approvers = []string{"user:bo"} },
		"the tool":      func(d *Definition) { d.Tools[3].Description = "Something else." },
	} {
		other := worldDefinition(func(d *Definition) { d.Permission.Mode, d.Permission.Scope = ModeBlockAndRetry, ScopeTool }, change)
		g := GateCall(&other, &s, c, worldValid, worldEpoch)
		require.NotNil(t, g.Refuse, name)
		require.Equal(t, WhyVoided, g.Refuse.Reason, name)
	}
}
