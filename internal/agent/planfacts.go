package agent

// Spent is what a reply for a plan took: one that plans, chooses a step's call or sums up. Such replies are no inferences (semantics 6.1).
type Spent struct {
	N        int64  `json:"n"`               // of the run's facts about its plan, from 1
	Model    string `json:"model,omitempty"` // that answered; "" = none did
	Requests int    `json:"requests"`        // to any model, failed ones included
	Usage    Usage  `json:"usage"`
	Units    int64  `json:"units"`
	At       int64  `json:"at,omitempty"`   // when the reply was there, milliseconds since 1970
	Cost     USD    `json:"cost,omitempty"` // 0 where no price is known
	Halt     *Halt  `json:"halt,omitempty"` // nil = no stop policy stops the run
}

// Planned is the planner's reply: steps, or the run's answer. With neither it was no plan, and PlanLeft stands behind it. With Again the
// plan is in force only if the planner, asked once more, makes none with more steps.
type Planned struct {
	Spent
	Steps []PlanStep `json:"steps,omitempty"`
	Text  string     `json:"text,omitempty"`
	Again bool       `json:"again,omitempty"`

	// A system text that is built once and was built for this request, as in Replied.
	System     string `json:"system,omitempty"`
	SystemText string `json:"systemText,omitempty"`
	SystemBlob bool   `json:"systemBlob,omitempty"`
}

// StepRouted is the router's reply to a step. Call is committed before it is carried out. Without it and without Failed the router is asked
// again.
type StepRouted struct {
	Spent
	Step       int          `json:"step"` // its number in the plan
	Call       *RepliedCall `json:"call,omitempty"`
	Sequential bool         `json:"sequential,omitempty"` // as in Replied
	Failed     bool         `json:"failed,omitempty"`     // no reply had a call
	Offered    []string     `json:"offered,omitempty"`    // the only tools of the request, by original name; nil = all
}

// Synthesised is the plan's answer: the model's, or a text that stands for it where the model failed or said nothing.
type Synthesised struct {
	Spent
	Text   string `json:"text,omitempty"`
	Static string `json:"static,omitempty"`
}

// PlanLeft gives the run to the loop. What the plan's steps have called becomes part of the conversation.
type PlanLeft struct {
	N        int64       `json:"n"` // of the run's facts about its plan
	Why      LeaveReason `json:"why"`
	Step     int         `json:"step,omitempty"`     // that it failed at
	Detail   string      `json:"detail,omitempty"`   // fit to be stored and shown
	Requests int         `json:"requests,omitempty"` // failed model calls that led to it
}

// LeaveReason says why the loop takes over from a plan.
type LeaveReason string

// The reasons.
const (
	LeftUnreadable  LeaveReason = "unreadable"     // the planner's reply is no plan
	LeftTooLong     LeaveReason = "too_many_steps" // more than the definition allows
	LeftModelFailed LeaveReason = "model_failed"
	LeftIndexFailed LeaveReason = "index_failed"  // the tools could not be compared with the step
	LeftStepFailed  LeaveReason = "step_failed"   // and a later step needs what it would have given
	LeftNothingDone LeaveReason = "nothing_done"  // not all steps went well, and none called a tool
	LeftLimit       LeaveReason = "limit_reached" // of tokens or of cost: the loop ends as limits say
)

func (Planned) event()     {}
func (StepRouted) event()  {}
func (Synthesised) event() {}
func (PlanLeft) event()    {}

// applyPlan applies the facts of a plan.
func (s *AgentState) applyPlan(e Event) error {
	switch e := e.(type) {
	case Planned:
		return s.planned(e)
	case StepRouted:
		return s.routed(e)
	case Synthesised:
		return s.synthesised(e)
	case PlanLeft:
		return s.left(e)
	default:
		return &ApplyError{Event: EventType(e), Problem: "the run's state does not take it"}
	}
}

// planFact is the number of a fact about the plan; 0 = it is about something else.
func planFact(e Event) int64 {
	switch e := e.(type) {
	case Planned:
		return e.N
	case StepRouted:
		return e.N
	case Synthesised:
		return e.N
	case PlanLeft:
		return e.N
	default:
		return 0
	}
}

// planPart is block number part of those that a fact of a plan adds.
func planPart(e Event, part int) (Block, bool) {
	switch e := e.(type) {
	case Planned:
		return Text{Text: e.Text}, part == 0 && e.Text != ""
	case Synthesised:
		return Text{Text: e.Text + e.Static}, part == 0
	case StepRouted:
		if e.Call == nil || part != 0 {
			return nil, false
		}
		return ToolUse{ID: e.Call.ID, Name: e.Call.Name, Input: e.Call.Input}, true
	default:
		return nil, false
	}
}
