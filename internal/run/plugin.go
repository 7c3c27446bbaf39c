package run

import (
	"fmt"
	"slices"
	"strings"
)

// Phase is a moment of a run at which plugins act (seed 001).
type Phase string

// The phases, in the order of a run.
const (
	PhaseRunStart        Phase = "run_start" // of an attempt: at the start, and whenever a parked run goes on
	PhaseStepStart       Phase = "step_start"
	PhaseBeforeInference Phase = "before_inference"
	PhaseAfterInference  Phase = "after_inference"
	PhaseStepEnd         Phase = "step_end"
	PhaseBeforeTool      Phase = "before_tool_execute"
	PhaseAfterTool       Phase = "after_tool_execute"
	PhaseRunEnd          Phase = "run_end" // of an attempt: the run parks or ends
)

// Phases lists the phases in the order of a run.
func Phases() []Phase {
	return []Phase{
		PhaseRunStart, PhaseStepStart, PhaseBeforeInference, PhaseAfterInference, PhaseStepEnd, PhaseBeforeTool,
		PhaseAfterTool, PhaseRunEnd,
	}
}

func (p Phase) ofTool() bool { return p == PhaseBeforeTool || p == PhaseAfterTool }

// ReasonPluginRequested ends a run because a plugin wants it to.
const ReasonPluginRequested Reason = "plugin_requested"

// Deferred reports whether an end for this reason lets the calls that were asked for finish first.
func (r Reason) Deferred() bool { return strings.HasPrefix(string(r), stoppedPrefix) }

// ValidStopCode reports whether code is one that a run can be stopped with: 1 to 40 of a to z and _.
func ValidStopCode(code string) bool {
	return code != "" && len(code) <= 40 && strings.Trim(code, "abcdefghijklmnopqrstuvwxyz_") == ""
}

// Hooked is what the plugins of an agent decided in one phase. Plugins run before the entry is written and never in a
// fold, which has their decisions as data. A phase without decisions leaves no fact, but for run_start, which
// is not entered again in the attempt.
type Hooked struct {
	N       int64   `json:"n"` // of the run's facts of this kind, from 1
	Phase   Phase   `json:"phase"`
	Call    string  `json:"call,omitempty"` // of the two tool phases
	Patches []Patch `json:"patches,omitempty"`
	// before_inference: tools that this inference is not offered, by original name
	Hidden []string `json:"hidden,omitempty"`
	Says   []Said   `json:"says,omitempty"` // after_tool_execute: what stands behind the round's results
	End    Reason   `json:"end,omitempty"`  // before_inference, after_inference: the run is to end

	// after_tool_execute: a plugin failed behind a call whose result is kept; the run is to end
	Failed *RunError `json:"failed,omitempty"`
}

// Said is a text that a plugin adds to the conversation, with seenCount 0.
type Said struct {
	Text     string `json:"text"`
	Reminder bool   `json:"reminder,omitempty"` // it is a system reminder; else it counts as the user's text
}

// Empty reports whether nothing was decided.
func (e Hooked) Empty() bool {
	return len(e.Patches) == 0 && len(e.Hidden) == 0 && len(e.Says) == 0 && e.End == "" && e.Failed == nil
}

// problem says what is decided that the phase does not allow (presets 10), "" where nothing is.
func (e Hooked) problem() string {
	inference := e.Phase == PhaseBeforeInference || e.Phase == PhaseAfterInference
	code, stopped := strings.CutPrefix(string(e.End), stoppedPrefix)
	requestable := e.End == ReasonPluginRequested || stopped && ValidStopCode(code)
	switch {
	case !slices.Contains(Phases(), e.Phase):
		return fmt.Sprintf("%q is no phase", e.Phase)
	case e.Phase.ofTool() != (e.Call != ""):
		return "a call belongs to the two tool phases, and to them alone"
	case len(e.Hidden) > 0 && e.Phase != PhaseBeforeInference:
		return "only before_inference chooses tools"
	case e.Failed != nil && e.Phase != PhaseAfterTool:
		return "a failure that is not behind a call ends the run at once"
	case len(e.Says) > 0 && e.Phase != PhaseAfterTool:
		return "only after_tool_execute adds messages"
	case e.End != "" && (!inference || !requestable):
		return "only a phase of the inference ends a run, as plugin_requested or stopped:<code>"
	default:
		return ""
	}
}

func (e Hooked) apply(s *AgentState) error {
	if problem := e.problem(); problem != "" {
		return &ApplyError{Call: e.Call, Problem: problem}
	}
	if e.N <= s.Hooks && e.N > 0 {
		return nil
	}
	if e.N != s.Hooks+1 {
		return &ApplyError{Call: e.Call, Problem: fmt.Sprintf("number %d after %d", e.N, s.Hooks)}
	}
	if err := s.requireAwake(); err != nil {
		return err
	}
	if err := s.markGateAsked(e); err != nil {
		return err
	}
	if len(e.Patches) > 0 { // no part of a round, so at once: also while calls of one are under way
		state, err := ApplyPatches(s.Shared, e.Patches)
		if err != nil {
			return &ApplyError{Call: e.Call, Problem: err.Error()}
		}
		s.Shared = state
	}
	s.Hooks = e.N
	switch {
	case e.Phase == PhaseRunStart:
		s.Begun = true
	case e.Failed != nil && s.Broken == nil:
		s.Broken = e.Failed
	case e.End != "" && s.Ending == "":
		s.Ending = e.End
	case e.Phase == PhaseBeforeInference:
		s.Hidden = e.Hidden
	}
	for i, m := range e.Says {
		s.queue(m.block(), i)
	}
	if len(e.Says) > 0 {
		s.flushQueued()
	}
	return nil
}

// markGateAsked records that a call's gate has been asked, so that what was decided there is not decided twice.
func (s *AgentState) markGateAsked(e Hooked) error {
	if !e.Phase.ofTool() {
		return nil
	}
	c, ok := s.Call(e.Call)
	if !ok {
		return &ApplyError{Call: e.Call, Problem: "the run has no such call"}
	}
	if e.Phase == PhaseAfterTool || c.Status.Terminal() {
		return nil
	}
	return s.changeCall(e.Call, func(c *Call) error {
		if c.Status != StatusNew && c.Status != StatusResuming {
			return &ApplyError{Call: c.ID, Problem: "the call is " + string(c.Status)}
		}
		c.Gated = true
		return nil
	})
}

func (m Said) block() Block {
	if m.Reminder {
		return Text{Text: TextFromSystem(m.Text)}
	}
	return Text{Text: m.Text}
}
