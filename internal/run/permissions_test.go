package run_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

// A call that was claimed under a grant of its tool and is to run again runs only while that grant is of what would run (A6, A18).
func TestGateComparesTheGrantOfATool(t *testing.T) {
	blocks := func(d *agent.Definition) {
		d.Permission.Mode, d.Permission.Scope = agent.ModeBlockAndRetry, agent.ScopeTool
	}
	d := worldDefinition(blocks)
	s := run.AgentState{Tenant: "default", Run: "r1", Agent: "small"}
	wire, _ := d.Tool("wire")
	c := run.Call{ID: "a", Tool: "wire", Name: "wire", Input: []byte(`{}`), Effect: run.EffectNonIdempotent, Status: run.StatusResuming}
	c.Grant = &run.Grant{Approval: "a1", Tool: true, Consumed: true, Digest: policy.ToolDigest(&d, &s, wire, c.Input, policy.Decision{Approvers: d.Permission.Approvers})}
	require.True(t, policy.GateCall(&d, &s, c, worldValid, worldEpoch).Run)
	for name, change := range map[string]func(*agent.Definition){
		"the policy":    func(d *agent.Definition) { d.Permission.Default = agent.DefaultAsk },
		"the approvers": func(d *agent.Definition) { d.Permission.Approvers = []string{"user:bo"} },
		"the tool":      func(d *agent.Definition) { d.Tools[3].Description = "Something else." },
	} {
		other := worldDefinition(blocks, change)
		g := policy.GateCall(&other, &s, c, worldValid, worldEpoch)
		require.NotNil(t, g.Refuse, name)
		require.Equal(t, run.WhyVoided, g.Refuse.Reason, name)
	}
}
