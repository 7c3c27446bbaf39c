package run_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

// Every effect in every phase: what docs/presets.md, section 10, does not allow is a forbidden fact.
func TestHookedAllowsWhatThePhaseAllows(t *testing.T) {
	effects := map[string]func(*run.Hooked){
		"patch":  func(h *run.Hooked) { h.Patches = []run.Patch{{Path: "/a", Value: json.RawMessage("1")}} },
		"hide":   func(h *run.Hooked) { h.Hidden = []string{"look"} },
		"say":    func(h *run.Hooked) { h.Texts = []run.PluginText{{Text: "x"}} },
		"end":    func(h *run.Hooked) { h.End = run.ReasonPluginRequested },
		"stop":   func(h *run.Hooked) { h.End = run.Stopped("enough") },
		"failed": func(h *run.Hooked) { h.Failed = &run.RunError{Code: run.CodeInternal, Message: "x"} },
	}
	allowed := map[run.Phase]string{
		run.PhaseRunStart: "patch", run.PhaseStepStart: "patch", run.PhaseStepEnd: "patch", run.PhaseRunEnd: "patch", run.PhaseBeforeTool: "patch",
		run.PhaseBeforeInference: "patch hide end stop", run.PhaseAfterInference: "patch end stop", run.PhaseAfterTool: "patch say failed",
	}
	require.Len(t, allowed, len(run.Phases()))
	for _, phase := range run.Phases() {
		for name, effect := range effects {
			s := started(t, called(1, "c1"))
			h := run.Hooked{N: 1, Phase: phase}
			if phase == run.PhaseBeforeTool || phase == run.PhaseAfterTool {
				h.Call = "c1"
			}
			effect(&h)
			_, err := run.Apply(s, h)
			require.Equal(t, slices.Contains(strings.Fields(allowed[phase]), name), err == nil, "%s in %s: %v", name, phase, err)
		}
	}
}

// The gate's order (presets 3): of everything that can be wrong with a call, the first counts.
func TestGateOrderWithPlugins(t *testing.T) {
	reason := "no"
	block, result, ask := agent.PluginGate{Block: &reason}, agent.PluginGate{Result: &agent.ToolResultData{Content: "given"}}, agent.PluginGate{Suspend: &run.Ticket{ID: "t"}}
	for _, c := range []struct {
		tool    string
		bad     bool
		hidden  bool
		plugins agent.PluginGate
		want    string
	}{
		{"drop", true, true, block, "denied"}, {"drop", true, true, result, "denied"},
		{"look", true, true, block, "blocked"}, {"ghost", true, false, block, "blocked"},
		{"look", true, true, result, "given"}, {"ghost", false, false, result, "given"}, {"wire", false, false, result, "given"},
		{"look", true, true, ask, "out_of_scope"}, {"look", false, true, agent.PluginGate{}, "out_of_scope"}, {"ghost", false, false, ask, "unknown_tool"},
		{"look", true, false, ask, "invalid_arguments"}, {"look", false, false, ask, "suspended t"}, {"wire", false, false, ask, "suspended t"},
		{"wire", false, false, agent.PluginGate{}, "suspended"}, {"look", false, false, agent.PluginGate{}, "run"},
	} {
		d := worldDefinition()
		args := json.RawMessage(`{}`)
		if c.bad {
			args = json.RawMessage(`{"bad":1}`)
		}
		call := run.Call{ID: "c1", Tool: c.tool, Name: c.tool, Input: args, Status: run.StatusNew, Hidden: c.hidden}
		g := policy.GateHooked(&d, &run.AgentState{Run: "r"}, call, c.plugins, worldValid, worldEpoch)
		require.Equal(t, c.want, gateShown(g), "%+v", c)
	}
}

func gateShown(g policy.Gate) string {
	switch {
	case g.Refuse != nil:
		return string(g.Refuse.Reason)
	case g.Give != nil:
		return g.Give.Content
	case g.Suspend != nil && g.Suspend.Ticket != nil && g.Suspend.For == run.ForInput:
		return "suspended " + g.Suspend.Ticket.ID
	case g.Suspend != nil:
		return "suspended"
	default:
		return "run"
	}
}

// The output of a run that a plugin ends is the last text so far, and never anything that was not accepted.
func TestOutputOfARunThatAPluginEnds(t *testing.T) {
	ends := run.Hooked{N: 1, Phase: run.PhaseAfterInference, End: run.ReasonPluginRequested}
	refused := text(1, `{"a":1}`)
	refused.Correction = &run.Correction{Lifecycle: run.LifecycleOutputError, Text: "no"}
	for name, c := range map[string]struct {
		format agent.OutputKind
		events []run.Event
		want   string
	}{
		"nothing yet":             {"", []run.Event{text(1, ""), ends}, ""},
		"a text":                  {"", []run.Event{text(1, "One."), ends}, `"One."`},
		"JSON: what was refused":  {agent.OutputJSON, []run.Event{refused, ends}, ""},
		"JSON: what was accepted": {agent.OutputJSON, []run.Event{text(1, ` {"a": 1.0}`), ends}, `{"a":1.0}`},
	} {
		d := worldDefinition(func(d *agent.Definition) { d.Output.Format = c.format })
		s := started(t, c.events...)
		require.Equal(t, c.want, string(policy.Next(&d, &s).End.Output), name)
	}
}
