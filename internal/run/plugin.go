package run

import (
	"fmt"
	"slices"
	"strings"
)

// Phase is a point of a run at which plugins act (seed 001).
type Phase string

// The phases, in the order of a run.
const (
	PhaseRunStart        Phase = "run_start" // at the start of an attempt: when the run starts or a parked run resumes
	PhaseStepStart       Phase = "step_start"
	PhaseBeforeInference Phase = "before_inference"
	PhaseAfterInference  Phase = "after_inference"
	PhaseStepEnd         Phase = "step_end"
	PhaseBeforeTool      Phase = "before_tool_execute"
	PhaseAfterTool       Phase = "after_tool_execute"
	PhaseRunEnd          Phase = "run_end" // at the end of an attempt: the run parks or ends
)

// Phases lists the phases in the order of a run.
func Phases() []Phase {
	return []Phase{
		PhaseRunStart, PhaseStepStart, PhaseBeforeInference, PhaseAfterInference, PhaseStepEnd, PhaseBeforeTool,
		PhaseAfterTool, PhaseRunEnd,
	}
}

func (p Phase) ofTool() bool { return p == PhaseBeforeTool || p == PhaseAfterTool }

// ReasonPluginRequested ends a run at a plugin's request.
const ReasonPluginRequested Reason = "plugin_requested"

// Deferred reports whether a run that ends for this reason lets its requested calls finish first.
func (r Reason) Deferred() bool { return strings.HasPrefix(string(r), stoppedPrefix) }

// ValidStopCode reports whether a run can be stopped with the code: 1 to 40 of a to z and _.
func ValidStopCode(code string) bool {
	return code != "" && len(code) <= 40 && strings.Trim(code, "abcdefghijklmnopqrstuvwxyz_") == ""
}

// Hooked holds the decisions of an agent's plugins in one phase. Plugins run before the entry is written and never
// during a fold, which reads their decisions as data. A phase without decisions leaves no fact. The exception is
// run_start, so that it is not entered again in the same attempt.
type Hooked struct {
	N       int64   `json:"n"` // number among the run's facts of this kind, from 1
	Phase   Phase   `json:"phase"`
	Call    string  `json:"call,omitempty"` // in the two tool phases
	Patches []Patch `json:"patches,omitempty"`
	// before_inference: tools that are not offered to this inference, by original name
	Hidden []string     `json:"hidden,omitempty"`
	Texts  []PluginText `json:"texts,omitempty"` // after_tool_execute: texts behind the round's results
	End    Reason       `json:"end,omitempty"`   // before_inference, after_inference: the run has to end

	// after_tool_execute: a plugin failed after a call. The call's result is kept, and the run has to end
	Failed *RunError `json:"failed,omitempty"`
}

// PluginText is a text that a plugin adds to the conversation, with seenCount 0.
type PluginText struct {
	Text     string `json:"text"`
	Reminder bool   `json:"reminder,omitempty"` // the text is a system reminder; otherwise it counts as the user's
}

// Empty reports whether the plugins decided nothing.
func (e Hooked) Empty() bool {
	return len(e.Patches) == 0 && len(e.Hidden) == 0 && len(e.Texts) == 0 && e.End == "" && e.Failed == nil
}

// problem returns which decision the phase does not allow (presets 10), or "".
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
	case len(e.Texts) > 0 && e.Phase != PhaseAfterTool:
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
	if err := s.markGated(e); err != nil {
		return err
	}
	if len(e.Patches) > 0 { // not part of a round, so applied at once, even while calls are running
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
	for i, m := range e.Texts {
		s.queue(m.block(), i)
	}
	if len(e.Texts) > 0 {
		s.flushQueued()
	}
	return nil
}

// markGated records that the plugins have decided about a call before it runs, so that they do not decide twice.
func (s *AgentState) markGated(e Hooked) error {
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

func (m PluginText) block() Block {
	if m.Reminder {
		return Text{Text: TextFromSystem(m.Text)}
	}
	return Text{Text: m.Text}
}
