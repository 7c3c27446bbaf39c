package run_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

// TestGateComparesWhatWasApproved: whatever differs from the approved action voids the approval.
func TestGateComparesWhatWasApproved(t *testing.T) {
	d := worldDefinition()
	s := started(t, run.Replied{
		Inference: 1, Calls: []run.RepliedCall{
			{ID: "a", Name: "wire", Effect: run.EffectNonIdempotent, Input: json.RawMessage(`{"n":1}`)},
		},
	})
	c, _ := s.Call("a")
	asked := *policy.GateHooked(&d, &s, c, agent.PluginGate{}, worldValid, worldEpoch).Suspend
	s = commit(t, s, "w1", asked)
	s = commit(t, s, "w1", run.Decided{
		Slot: 1, Call: "a", Approval: asked.Approval, Action: run.ActionApprove, Digest: asked.Digest,
	})
	approved, _ := s.Call("a")
	require.True(t, policy.GateHooked(&d, &s, approved, agent.PluginGate{}, worldValid, worldEpoch).Run)

	changes := map[string]func(*agent.Definition, *run.AgentState, *run.Call){
		"arguments": func(_ *agent.Definition, _ *run.AgentState, c *run.Call) { c.Input = json.RawMessage(`{"n":1.0}`) },
		"approvers": func(d *agent.Definition, _ *run.AgentState, _ *run.Call) {
			d.Permission.Approvers = []string{"user:eve"}
		},
		"a rule":            func(d *agent.Definition, _ *run.AgentState, _ *run.Call) { d.Permission.Rules = d.Permission.Rules[:1] },
		"the tool":          func(d *agent.Definition, _ *run.AgentState, _ *run.Call) { d.Tools[3].Description = "Wire twice." },
		"the agent version": func(_ *agent.Definition, s *run.AgentState, _ *run.Call) { s.Version = "2" },
		"the tenant":        func(_ *agent.Definition, s *run.AgentState, _ *run.Call) { s.Tenant = "other" },
		"the call":          func(_ *agent.Definition, _ *run.AgentState, c *run.Call) { c.ID = "b" },
	}
	for name, change := range changes {
		d, s, c := worldDefinition(), s, approved
		change(&d, &s, &c)
		g := policy.GateHooked(&d, &s, c, agent.PluginGate{}, worldValid, worldEpoch)
		require.False(t, g.Run, name)
		require.NotNil(t, g.Refuse, name)
		require.Equal(t, run.WhyVoided, g.Refuse.Reason, name)
	}
	old := policy.GateHooked(&d, &s, approved, agent.PluginGate{}, worldValid, approved.Grant.Expires)
	require.False(t, old.Run)
	require.Equal(t, run.WhyExpired, old.Refuse.Reason)
}

// Owners that handed over are no sign that a run gets nowhere; those that ended before are.
func TestTakeOvers(t *testing.T) {
	for want, s := range map[int64]run.AgentState{
		0: {Generation: 1, Entries: 1 << 20}, 1: {Generation: 1, Entries: 20}, 99: {Generation: 101, Entries: 1617}, 100: {Generation: 100, Entries: 200},
	} {
		require.Equal(t, want, s.TakeOvers())
	}
}

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
	require.True(t, policy.GateHooked(&d, &s, c, agent.PluginGate{}, worldValid, worldEpoch).Run)
	for name, change := range map[string]func(*agent.Definition){
		"the policy":    func(d *agent.Definition) { d.Permission.Default = agent.DefaultAsk },
		"the approvers": func(d *agent.Definition) { d.Permission.Approvers = []string{"user:bo"} },
		"the tool":      func(d *agent.Definition) { d.Tools[3].Description = "Something else." },
	} {
		other := worldDefinition(blocks, change)
		g := policy.GateHooked(&other, &s, c, agent.PluginGate{}, worldValid, worldEpoch)
		require.NotNil(t, g.Refuse, name)
		require.Equal(t, run.WhyVoided, g.Refuse.Reason, name)
	}
}
