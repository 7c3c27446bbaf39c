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
			if phase.ofTool() {
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

func TestHookedIsForbidden(t *testing.T) {
	patch := func(path, value string) []Patch { return []Patch{{Path: path, Value: json.RawMessage(value)}} }
	for name, c := range map[string]struct {
		fact Hooked
		want string
	}{
		"no phase":                  {Hooked{N: 1, Phase: "lunch"}, "is no phase"},
		"a phase without its call":  {Hooked{N: 1, Phase: PhaseBeforeTool}, "a call belongs"},
		"a call without its phase":  {Hooked{N: 1, Phase: PhaseRunEnd, Call: "c1"}, "a call belongs"},
		"nobody's call":             {Hooked{N: 1, Phase: PhaseAfterTool, Call: "c9"}, "no such call"},
		"an end without a code":     {Hooked{N: 1, Phase: PhaseAfterInference, End: "stopped:"}, "ends a run"},
		"an end of another kind":    {Hooked{N: 1, Phase: PhaseAfterInference, End: ReasonNaturalEnd}, "ends a run"},
		"a patch of the root":       {Hooked{N: 1, Phase: PhaseRunEnd, Patches: patch("", `1`)}, "want an object"},
		"a patch without a slash":   {Hooked{N: 1, Phase: PhaseRunEnd, Patches: patch("a", `1`)}, "leading slash"},
		"a patch that is no JSON":   {Hooked{N: 1, Phase: PhaseRunEnd, Patches: patch("/a", `{`)}, `at "/a": want JSON`},
		"a patch that is not there": {Hooked{N: 1, Phase: PhaseRunEnd, Patches: patch("/a", ``)}, `at "/a": want JSON`},
		"no number":                 {Hooked{Phase: PhaseRunStart}, "number 0 after 0"},
		"a number too far":          {Hooked{N: 2, Phase: PhaseRunStart}, "number 2 after 0"},
	} {
		s := atGate(t)
		after, err := Apply(s, c.fact)
		require.ErrorContains(t, err, c.want, name)
		require.Equal(t, s, after, name)
	}
	s := atGate(t)
	s.Live[0].Status = StatusRunning
	_, err := Apply(s, Hooked{N: 1, Phase: PhaseBeforeTool, Call: "c1"})
	require.ErrorContains(t, err, "the call is running")
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

// What Next says once plugins want an end, by what is still open.
func TestNextWithAnEnd(t *testing.T) {
	failed := &RunError{Code: CodeInternal, Message: "x"}
	for name, c := range map[string]struct {
		ending Reason
		broken *RunError
		calls  []CallStatus
		want   ActionKind
		reason Reason
		run    []string
	}{
		"end, a new call":                  {ReasonPluginRequested, nil, []CallStatus{StatusNew}, ActEnd, ReasonPluginRequested, nil},
		"end, a suspended call":            {ReasonPluginRequested, nil, []CallStatus{StatusSuspended}, ActWait, "", nil},
		"end, a suspended and a new call":  {ReasonPluginRequested, nil, []CallStatus{StatusSuspended, StatusNew}, ActWait, "", nil},
		"end, a resuming and a new call":   {ReasonPluginRequested, nil, []CallStatus{StatusResuming, StatusNew}, ActTools, "", []string{"c0"}},
		"stop, a new call":                 {Stopped("x"), nil, []CallStatus{StatusNew}, ActTools, "", []string{"c0"}},
		"stop, a suspended call":           {Stopped("x"), nil, []CallStatus{StatusSuspended}, ActWait, "", nil},
		"stop, all settled":                {Stopped("x"), nil, []CallStatus{StatusSucceeded}, ActEnd, Stopped("x"), nil},
		"failed, a new call":               {"", failed, []CallStatus{StatusNew}, ActEnd, ReasonError, nil},
		"failed, a suspended call":         {"", failed, []CallStatus{StatusSuspended}, ActEnd, ReasonError, nil},
		"failed, a running and a new call": {"", failed, []CallStatus{StatusRunning, StatusNew}, ActTools, "", []string{"c0"}},
		"failed and stopped":               {Stopped("x"), failed, []CallStatus{StatusResuming}, ActEnd, ReasonError, nil},
	} {
		d := worldDefinition()
		s := AgentState{Status: RunRunning, Inferences: 1, Unseen: 1, Interactions: Interactions{Current: 1, Max: 9}, Ending: c.ending, Broken: c.broken}
		for i, status := range c.calls {
			call := Call{ID: "c" + string(rune('0'+i)), Status: status}
			if status == StatusSuspended {
				call.Wait = &Wait{For: ForApproval, Expires: worldEpoch}
			}
			s.Live = append(s.Live, call)
		}
		a := Next(&d, &s)
		require.Equal(t, c.want, a.Kind, name)
		require.Equal(t, c.run, a.Calls, name)
		require.Equal(t, c.reason, a.End.Reason, name)
	}
}

// The output of a run that a plugin ends is the last text so far, and never anything that was not accepted.
func TestOutputSoFar(t *testing.T) {
	text := worldDefinition()
	jsonOut := worldDefinition(func(d *Definition) { d.Output.Format = OutputJSON })
	say := func(replies ...Replied) AgentState {
		d := NewDraft(AgentState{}, "w1", worldEpoch)
		require.NoError(t, d.Add(RunStarted{Tenant: "default", Run: "r", Owner: "r-0", MaxInteractions: 5, Messages: []UserBlock{{Text{"Go."}}}}))
		for i, e := range replies {
			e.Inference = int64(i + 1)
			require.NoError(t, d.Add(e))
			for _, c := range e.Calls {
				require.NoError(t, d.Add(CallFinished{Call: c.ID, Ran: true, Content: "result"}))
			}
		}
		return d.Committed()
	}
	calls := []RepliedCall{{ID: "c1", Name: "look", Effect: EffectRead, Input: json.RawMessage(`{}`)}}
	refused := &Correction{Lifecycle: LifecycleOutputError, Text: "no"}
	for name, c := range map[string]struct {
		def     Definition
		replies []Replied
		want    string
	}{
		"nothing yet":              {text, nil, ""},
		"a text":                   {text, []Replied{{Text: "One."}}, `"One."`},
		"a text with calls":        {text, []Replied{{Text: "One.", Calls: calls}}, `"One."`},
		"a text before silence":    {text, []Replied{{Text: "One."}, {Calls: calls}}, `"One."`},
		"a text in two pieces":     {text, []Replied{{Text: "One.Two.", Reasoning: []RepliedReasoning{{Text: "hm", AfterText: 4}}}}, `"One.Two."`},
		"the newest":               {text, []Replied{{Text: "One."}, {Text: "Two."}}, `"Two."`},
		"JSON: nothing yet":        {jsonOut, nil, ""},
		"JSON: a text with calls":  {jsonOut, []Replied{{Text: `{"a":1}`, Calls: calls}}, ""},
		"JSON: what was refused":   {jsonOut, []Replied{{Text: `{"a":1}`, Correction: refused}}, ""},
		"JSON: what was accepted":  {jsonOut, []Replied{{Text: ` {"a": 1.0}`}}, `{"a":1.0}`},
		"JSON: accepted, then not": {jsonOut, []Replied{{Text: `{"a":1}`}, {Calls: calls}}, ""},
	} {
		s := say(c.replies...)
		require.Equal(t, c.want, string(outputSoFar(&c.def, &s)), name)
	}
}

// A call of a tool that the model was not offered is not carried out in a fork either.
func TestForkKeepsWhatWasNotOffered(t *testing.T) {
	d := NewDraft(AgentState{}, "w1", worldEpoch)
	require.NoError(t, d.Add(
		RunStarted{Tenant: "default", Run: "r", Owner: "r-0", MaxInteractions: 5, Messages: []UserBlock{{Text{"Go."}}}},
		Hooked{N: 1, Phase: PhaseBeforeInference, Hidden: []string{"look"}},
		Replied{Inference: 1, Model: "m", Calls: []RepliedCall{{ID: "c1", Name: "look", Effect: EffectRead, Input: json.RawMessage(`{}`)}}},
	))
	past := d.Committed()
	from, err := ForkFrom(&past, childRun, worldTime(1000))
	require.NoError(t, err)
	c := begun(t, past, from)
	def := worldDefinition()
	require.Equal(t, WhyOutOfScope, GateCall(&def, &c, c.Live[0], worldValid, worldEpoch).Refuse.Reason)
}
