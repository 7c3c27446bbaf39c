package agent

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every effect in every phase: what semantics 3.2 does not allow is a forbidden fact.
func TestHookedAllowsWhatThePhaseAllows(t *testing.T) {
	effects := map[string]func(*Hooked){
		"patch":  func(h *Hooked) { h.Patches = []Patch{{Path: "/a", Value: json.RawMessage("1")}} },
		"hide":   func(h *Hooked) { h.Hidden = []string{"look"} },
		"say":    func(h *Hooked) { h.Says = []Said{{Text: "x"}} },
		"end":    func(h *Hooked) { h.End = ReasonPluginRequested },
		"stop":   func(h *Hooked) { h.End = Stopped("enough") },
		"failed": func(h *Hooked) { h.Failed = &RunError{Code: CodeInternal, Message: "x"} },
	}
	allowed := map[Phase]string{
		PhaseRunStart: "patch", PhaseStepStart: "patch", PhaseStepEnd: "patch", PhaseRunEnd: "patch", PhaseBeforeTool: "patch",
		PhaseBeforeInference: "patch hide end stop", PhaseAfterInference: "patch end stop", PhaseAfterTool: "patch say failed",
	}
	require.Len(t, allowed, len(Phases()))
	for _, phase := range Phases() {
		for name, effect := range effects {
			s := atGate(t)
			h := Hooked{N: 1, Phase: phase}
			if phase == PhaseBeforeTool || phase == PhaseAfterTool {
				h.Call = "c1"
			}
			effect(&h)
			_, err := Apply(s, h)
			require.Equal(t, slices.Contains(strings.Fields(allowed[phase]), name), err == nil, "%s in %s: %v", name, phase, err)
		}
	}
}

// atGate is a run with one new call, c1 of look.
func atGate(t *testing.T) AgentState {
	t.Helper()
	d := NewDraft(AgentState{}, "w1", worldEpoch)
	require.NoError(t, d.Add(
		RunStarted{Tenant: "default", Run: "r", Owner: "r-0", MaxInteractions: 5, Messages: []UserBlock{{Text{"Go."}}}},
		Replied{Inference: 1, Model: "m", Text: "I look.", Calls: []RepliedCall{{ID: "c1", Name: "look", Effect: EffectRead, Input: json.RawMessage(`{}`)}}},
	))
	return d.Committed()
}

// The gate's order (semantics 6.1): of everything that can be wrong with a call, the first counts.
func TestGateOrderWithPlugins(t *testing.T) {
	reason := "no"
	block, result, ask := PluginGate{Block: &reason}, PluginGate{Result: &ToolResultData{Content: "given"}}, PluginGate{Suspend: &Ticket{ID: "t"}}
	for _, c := range []struct {
		tool    string
		bad     bool
		hidden  bool
		plugins PluginGate
		want    string
	}{
		{"drop", true, true, block, "denied"}, {"drop", true, true, result, "denied"},
		{"look", true, true, block, "blocked"}, {"ghost", true, false, block, "blocked"},
		{"look", true, true, result, "given"}, {"ghost", false, false, result, "given"}, {"wire", false, false, result, "given"},
		{"look", true, true, ask, "out_of_scope"}, {"look", false, true, PluginGate{}, "out_of_scope"}, {"ghost", false, false, ask, "unknown_tool"},
		{"look", true, false, ask, "invalid_arguments"}, {"look", false, false, ask, "suspended t"}, {"wire", false, false, ask, "suspended t"},
		{"wire", false, false, PluginGate{}, "suspended"}, {"look", false, false, PluginGate{}, "run"},
	} {
		d := worldDefinition()
		args := json.RawMessage(`{}`)
		if c.bad {
			args = json.RawMessage(`{"bad":1}`)
		}
		call := Call{ID: "c1", Tool: c.tool, Name: c.tool, Input: args, Status: StatusNew, Hidden: c.hidden}
		g := GateHooked(&d, &AgentState{Run: "r"}, call, c.plugins, worldValid, worldEpoch)
		require.Equal(t, c.want, gateShown(g), "%+v", c)
	}
}

func gateShown(g Gate) string {
	switch {
	case g.Refuse != nil:
		return string(g.Refuse.Reason)
	case g.Give != nil:
		return g.Give.Content
	case g.Suspend != nil && g.Suspend.Ticket != nil && g.Suspend.For == ForInput:
		return "suspended " + g.Suspend.Ticket.ID
	case g.Suspend != nil:
		return "suspended"
	default:
		return "run"
	}
}

// The output of a run that a plugin ends is the last text so far, and never anything that was not accepted.
func TestOutputOfARunThatAPluginEnds(t *testing.T) {
	ends := Hooked{N: 1, Phase: PhaseAfterInference, End: ReasonPluginRequested}
	refused := text(1, `{"a":1}`)
	refused.Correction = &Correction{Lifecycle: LifecycleOutputError, Text: "no"}
	for name, c := range map[string]struct {
		format OutputKind
		events []Event
		want   string
	}{
		"nothing yet":             {"", []Event{text(1, ""), ends}, ""},
		"a text":                  {"", []Event{text(1, "One."), ends}, `"One."`},
		"JSON: what was refused":  {OutputJSON, []Event{refused, ends}, ""},
		"JSON: what was accepted": {OutputJSON, []Event{text(1, ` {"a": 1.0}`), ends}, `{"a":1.0}`},
	} {
		d := worldDefinition(func(d *Definition) { d.Output.Format = c.format })
		s := started(t, c.events...)
		require.Equal(t, c.want, string(Next(&d, &s).End.Output), name)
	}
}
