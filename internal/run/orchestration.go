package run

import (
	"encoding/json"
	"fmt"
	"slices"
)

// PlanStage says how far a run has come with its plan.
type PlanStage string

// The stages. "" = the run has none, or none yet.
const (
	PlanAgain PlanStage = "again" // the planner is asked once more: its plan has one step, and the request asks for several things
	PlanSteps PlanStage = "steps" // the steps are carried out, and then summed up
	PlanDone  PlanStage = "done"  // the plan has given the run's answer
	PlanGone  PlanStage = "left"  // the loop has taken over, or the run has ended before
)

// Orchestration is what is known of a run's plan. Its slices are never written in place.
type Orchestration struct {
	Stage    PlanStage   `json:"stage,omitempty"`
	Steps    []StepState `json:"steps,omitempty"`
	Tries    int         `json:"tries,omitempty"`    // replies without a call to the step that is next
	Since    int64       `json:"since,omitempty"`    // sequence of the entry that holds the plan: what is said later is not part of it
	Heard    int         `json:"heard,omitempty"`    // messages no inference had carried when the plan was made
	Answered int         `json:"answered,omitempty"` // of those, how many the plan has answered without an inference
	Facts    int64       `json:"facts,omitempty"`    // of the plan, so that a repeated one is known
	Replies  int64       `json:"replies,omitempty"`  // of models that were asked for the plan
	Failed   int         `json:"failed,omitempty"`   // requests that failed since the run's newest reply
	Rounds   int64       `json:"rounds,omitempty"`   // calls that steps have made in this run
}

// StepState is one step of a run's plan and what has become of it.
type StepState struct {
	PlanStep
	Use    ToolUseForm `json:"use,omitzero"`     // its call, as the router made it; zero = it has none yet
	From   Source      `json:"from,omitzero"`    // where that stands
	Failed bool        `json:"failed,omitempty"` // no call came of it
}

// ToolUseForm is a ToolUse as it is stored.
type ToolUseForm struct {
	ID    string          `json:"id"`
	Name  string          `json:"name"`
	Input json.RawMessage `json:"input"`
}

// Active reports whether the plan owes the run something.
func (p *Orchestration) Active() bool { return p.Stage == PlanAgain || p.Stage == PlanSteps }

// Next is the place of the step that is to be carried out next; as many as there are steps once none is.
func (p *Orchestration) Next() int {
	i := slices.IndexFunc(p.Steps, func(s StepState) bool { return s.Use.ID == "" && !s.Failed })
	if i < 0 {
		return len(p.Steps)
	}
	return i
}

// zero reports whether nothing is known.
func (p *Orchestration) zero() bool { return p.Stage == "" && p.Facts == 0 && p.Failed == 0 }

// CurrentStep is the place of the step that is being carried out, from 0; false where none is.
func (s *AgentState) CurrentStep() (int, bool) {
	p := &s.Plan
	if p.Stage != PlanSteps {
		return 0, false
	}
	at := p.Next()
	if at > 0 && p.Steps[at-1].Use.ID != "" {
		if c, ok := s.Call(p.Steps[at-1].Use.ID); ok && c.Open() {
			return at - 1, true
		}
	}
	return at, at < len(p.Steps)
}

// StepDone is what became of the step at a place of the plan: its call, the zero Call where it has none; false while it is not done.
func (s *AgentState) StepDone(at int) (Call, bool) {
	if at >= len(s.Plan.Steps) {
		return Call{}, false
	}
	step := s.Plan.Steps[at]
	c, ok := s.Call(step.Use.ID)
	return c, step.Failed || ok && !c.Open()
}

// Replies counts those of models that the run has had, inferences and others.
func (s *AgentState) Replies() int64 { return s.Inferences + s.Plan.Replies }

// Owes reports whether a model owes the run a reply, as far as the conversation and the plan say.
func (s *AgentState) Owes() bool {
	began := s.Prior+s.Inferences > 0 || s.Plan.Stage == PlanDone
	return s.Plan.Active() || s.Unseen > s.Plan.Answered || s.Unsaid || s.Correction.Owed() || !began
}

// planned takes in the planner's reply.
func (s *AgentState) planned(e Planned) error {
	if e.N <= s.Plan.Facts {
		return nil
	}
	if err := s.planFits("planned", e.N, s.Plan.Stage == "" && s.Inferences == 0 || s.Plan.Stage == PlanAgain); err != nil {
		return err
	}
	if e.Text != "" && len(e.Steps) > 0 || e.Again && len(e.Steps) != 1 {
		return &ApplyError{Event: "planned", Problem: "a plan is steps or an answer, and one that is made again has one step"}
	}
	if (e.SystemText != "" || e.SystemBlob) && e.System == "" || e.SystemText != "" && e.SystemBlob {
		return &ApplyError{Event: "planned", Problem: "a system text stands once, beside its digest"}
	}
	s.spent(e.Spent)
	if e.System != "" {
		s.System, s.SystemText, s.SystemBlob = e.System, e.SystemText, e.SystemBlob
	}
	p := &s.Plan
	p.Facts, p.Since, p.Heard, p.Steps = e.N, s.head.seq, s.Unseen, nil
	for _, step := range e.Steps {
		p.Steps = append(p.Steps, StepState{PlanStep: step})
	}
	switch {
	case e.Text != "":
		s.answeredByPlan(Text{Text: e.Text}, 1)
	case e.Again:
		p.Stage = PlanAgain
	case len(e.Steps) > 0:
		p.Stage = PlanSteps
	}
	return nil
}

// routed takes in a router's reply to one step.
func (s *AgentState) routed(e StepRouted) error {
	if e.N <= s.Plan.Facts {
		return nil
	}
	if err := s.planFits("step_routed", e.N, s.Plan.Stage == PlanSteps); err != nil {
		return err
	}
	p := &s.Plan
	at := p.Next()
	if at >= len(p.Steps) || p.Steps[at].Number != e.Step {
		return &ApplyError{Event: "step_routed", Problem: fmt.Sprintf("step %d is not the next", e.Step)}
	}
	if e.Call != nil && e.Failed {
		return &ApplyError{Event: "step_routed", Call: e.Call.ID, Problem: "a step that has a call has not failed"}
	}
	hidden := s.Hidden
	s.spent(e.Spent)
	p.Facts = e.N
	if e.Call == nil && !e.Failed {
		p.Tries++
		return nil
	}
	p.Tries = 0
	p.Steps = slices.Clone(p.Steps)
	p.Steps[at].Failed = e.Failed
	if e.Failed {
		return nil
	}
	p.Steps[at].Use, p.Steps[at].From = ToolUseForm{e.Call.ID, e.Call.Name, e.Call.Input}, s.source(0)
	s.Prior++ // a round of its own, before those of the run's inferences
	p.Rounds++
	if err := s.askedFor(Replied{Calls: []RepliedCall{*e.Call}, Sequential: e.Sequential}, hidden); err != nil {
		return err
	}
	s.Live[len(s.Live)-1].Step = e.Step // askedFor has made the list
	return nil
}

// synthesised takes in the plan's answer.
func (s *AgentState) synthesised(e Synthesised) error {
	if e.N <= s.Plan.Facts {
		return nil
	}
	if err := s.planFits("synthesised", e.N, s.Plan.Stage == PlanSteps && s.Plan.Next() == len(s.Plan.Steps)); err != nil {
		return err
	}
	if (e.Text == "") == (e.Static == "") {
		return &ApplyError{Event: "synthesised", Problem: "the answer is the model's text or the one that stands for it"}
	}
	s.spent(e.Spent)
	s.Plan.Facts = e.N
	if e.Static != "" {
		s.answeredByPlan(Text{Text: e.Static}, 0)
		return nil
	}
	s.answeredByPlan(Text{Text: e.Text}, 1)
	return nil
}

// left gives the run to the loop. What steps have done becomes part of the conversation, so that the loop's model does not do it again.
func (s *AgentState) left(e PlanLeft) error {
	if e.N <= s.Plan.Facts {
		return nil
	}
	if err := s.planFits("plan_left", e.N, s.Plan.Stage == "" && s.Inferences == 0 || s.Plan.Active()); err != nil {
		return err
	}
	if e.Why == "" {
		return &ApplyError{Event: "plan_left", Problem: "a reason is required"}
	}
	s.ModelCalls += int64(e.Requests)
	s.Plan.Facts, s.Plan.Failed = e.N, s.Plan.Failed+e.Requests
	s.Hidden = nil
	s.leavePlan()
	return nil
}

// leavePlan says what the plan's steps have done, each call with its result.
func (s *AgentState) leavePlan() {
	s.Plan.Stage = PlanGone
	for _, step := range s.Plan.Steps {
		c, ok := s.Call(step.Use.ID)
		if !ok || c.Result == nil || c.Result.Shown {
			continue
		}
		s.say(RoleAssistant, ToolUse{ID: step.Use.ID, Name: step.Use.Name, Input: step.Use.Input}, 1, step.From)
		s.show(c.ID, *c.Result)
		s.shown(c.ID)
	}
	s.unqueue()
}

// shown notes that a settled call's result is in the conversation.
func (s *AgentState) shown(id string) {
	mark := func(c Call) Call {
		r := *c.Result
		r.Shown = true
		c.Result = &r
		return c
	}
	if i := slices.IndexFunc(s.Live, func(c Call) bool { return c.ID == id }); i >= 0 {
		s.Live = slices.Clone(s.Live)
		s.Live[i] = mark(s.Live[i])
		return
	}
	var settled CallLog
	for _, c := range s.Settled.All() {
		if c.ID == id {
			c = mark(c)
		}
		settled = settled.Append(c)
	}
	s.Settled = settled
}

// planFits refuses a fact of the plan that is not the next one, or that does not belong where the run is.
func (s *AgentState) planFits(event string, n int64, fits bool) error {
	switch open := s.OpenCall(); {
	case n != s.Plan.Facts+1:
		return &ApplyError{Event: event, Problem: fmt.Sprintf("number %d after %d", n, s.Plan.Facts)}
	case s.Status != RunRunning:
		return &ApplyError{Event: event, Problem: "the run is " + string(s.Status)}
	case !fits:
		return &ApplyError{Event: event, Problem: fmt.Sprintf("the plan is at %q", s.Plan.Stage)}
	case open != nil:
		return &ApplyError{Event: event, Call: open.ID, Problem: "still " + string(open.Status)}
	}
	if s.mergePatches(); len(s.Patches) > 0 {
		return &ApplyError{Event: event, Problem: "what calls changed of the run's state does not go together"}
	}
	return nil
}

// spent counts what a reply for the plan took. It is no inference: it quotes the conversation and does not carry it (semantics 6.1).
func (s *AgentState) spent(e Spent) {
	s.ModelCalls += int64(e.Requests)
	s.Usage = s.Usage.Add(e.Usage)
	s.ExecutionUnits += e.Units
	s.Cost = s.Cost.Add(e.Cost)
	s.Hidden = nil
	s.halt(e.Halt)
	if e.Model == "" {
		s.Plan.Failed += e.Requests
		return
	}
	s.Plan.Replies, s.Plan.Failed = s.Plan.Replies+1, 0
}

// answeredByPlan ends the plan with the run's answer.
func (s *AgentState) answeredByPlan(b Block, seen int64) {
	s.say(RoleAssistant, b, seen, s.source(0))
	s.Plan.Stage, s.Plan.Answered = PlanDone, s.Plan.Heard
	s.unqueue()
}

// inheritPlan takes over the plan of a run that this one branches off, with a count of its own.
func (s *AgentState) inheritPlan(past *AgentState) {
	p := past.Plan
	p.Facts, p.Replies, p.Failed, p.Rounds, p.Since = 0, 0, 0, 0, 0
	p.Steps = slices.Clone(p.Steps)
	for i := range p.Steps {
		if p.Steps[i].Use.ID != "" {
			p.Steps[i].From = p.Steps[i].From.in(past.Run)
		}
	}
	s.Plan = p
}

// PlanStep is one step of a plan. The zero value is not valid.
type PlanStep struct {
	Number      int             `json:"number"` // from 1, rising: what other steps call it
	Description string          `json:"description"`
	Server      string          `json:"server,omitempty"` // whose tools are likely to be needed: what stands before the first dot of their names; "" = not said
	Hints       json.RawMessage `json:"hints,omitempty"`  // arguments that the planner suggests, an object; nil = none
}

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

func (Planned) event() {}

func (StepRouted) event() {}

func (Synthesised) event() {}

func (PlanLeft) event() {}

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

// Offers reports whether the request of a is narrowed to other tools.
func (a Action) Offers(tool string) bool { return a.Offered == nil || slices.Contains(a.Offered, tool) }
