package agent

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestGateOrder: denied by a rule, unknown, invalid, needs a person, run. Each call fits every later line as well.
func TestGateOrder(t *testing.T) {
	bad := json.RawMessage(`{"bad":1}`)
	good := json.RawMessage(`{}`)
	d := worldDefinition(func(d *Definition) {
		d.Permission.Default = DefaultAsk
		d.Permission.Rules = []Rule{{Tool: "look", Verdict: VerdictAllow}, {Tool: "wire", Verdict: VerdictAllow}, {Tool: "drop*", Verdict: VerdictDeny, Note: "never"}}
	})
	tests := []struct {
		tool  string
		input json.RawMessage
		want  CallReason // of the refusal
		says  string
	}{
		{"dropghost", bad, WhyDenied, `The policy of this agent denies calling dropghost like this. Do not repeat the call. Note: "never"`},
		{"drop", bad, WhyDenied, `The policy of this agent denies calling drop like this. Do not repeat the call. Note: "never"`},
		{"ghost", bad, WhyUnknownTool, `There is no tool "ghost". The tools are: look, peek, pay_now, wire, drop.`},
		{"peek", bad, WhyInvalidArguments, "The arguments do not fit the schema of peek, so it was not called. Refer to the tool's definition:\n/bad: not allowed"},
		{"look", bad, WhyInvalidArguments, "The arguments do not fit the schema of look, so it was not called. Refer to the tool's definition:\n/bad: not allowed"},
		{"peek", good, "", ""},
		{"look", good, "", ""},
	}
	s := started(t)
	for _, tt := range tests {
		c := Call{ID: "a", Tool: tt.tool, Name: tt.tool, Input: tt.input, Status: StatusNew}
		g := GateCall(&d, &s, c, worldValid, worldEpoch)
		if tt.want == "" {
			require.Nil(t, g.Refuse)
			require.Equal(t, tt.tool == "look", g.Run)
			require.Equal(t, tt.tool == "peek", g.Suspend != nil)
			continue
		}
		require.Equal(t, Gate{Refuse: &CallFinished{Call: "a", IsError: true, Reason: tt.want, Content: tt.says}, Rule: g.Rule}, g)
	}
}

// TestGateComparesWhatWasApproved: whatever differs from the approved action voids the approval.
func TestGateComparesWhatWasApproved(t *testing.T) {
	d := worldDefinition()
	s := started(t, Replied{Inference: 1, Calls: []RepliedCall{{ID: "a", Name: "wire", Effect: EffectNonIdempotent, Input: json.RawMessage(`{"n":1}`)}}})
	c, _ := s.Call("a")
	asked := *GateCall(&d, &s, c, worldValid, worldEpoch).Suspend
	s = commit(t, s, "w1", asked)
	s = commit(t, s, "w1", Decided{Slot: 1, Call: "a", Approval: asked.Approval, Action: ActionApprove, Digest: asked.Digest})
	approved, _ := s.Call("a")
	require.True(t, GateCall(&d, &s, approved, worldValid, worldEpoch).Run)

	changes := map[string]func(*Definition, *AgentState, *Call){
		"arguments":         func(_ *Definition, _ *AgentState, c *Call) { c.Input = json.RawMessage(`{"n":1.0}`) },
		"approvers":         func(d *Definition, _ *AgentState, _ *Call) { d.Permission.Approvers = []string{"user:eve"} },
		"a rule":            func(d *Definition, _ *AgentState, _ *Call) { d.Permission.Rules = d.Permission.Rules[:1] },
		"the tool":          func(d *Definition, _ *AgentState, _ *Call) { d.Tools[3].Description = "Wire twice." },
		"the agent version": func(_ *Definition, s *AgentState, _ *Call) { s.Version = "2" },
		"the tenant":        func(_ *Definition, s *AgentState, _ *Call) { s.Tenant = "other" },
		"the call":          func(_ *Definition, _ *AgentState, c *Call) { c.ID = "b" },
	}
	for name, change := range changes {
		d, s, c := worldDefinition(), s, approved
		change(&d, &s, &c)
		g := GateCall(&d, &s, c, worldValid, worldEpoch)
		require.False(t, g.Run, name)
		require.NotNil(t, g.Refuse, name)
		require.Equal(t, WhyVoided, g.Refuse.Reason, name)
	}
	old := GateCall(&d, &s, approved, worldValid, approved.Grant.Expires)
	require.False(t, old.Run)
	require.Equal(t, WhyExpired, old.Refuse.Reason)
}

// Owners that handed over are no sign that a run gets nowhere; those that ended before are.
func TestTakeOvers(t *testing.T) {
	for want, s := range map[int64]AgentState{0: {Generation: 1, Entries: 1 << 20}, 1: {Generation: 1, Entries: 20}, 100: {Generation: 100, Entries: 200}} {
		require.Equal(t, want, s.TakeOvers())
	}
}
