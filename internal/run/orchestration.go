package run

import (
	"encoding/json"
	"fmt"
	"slices"
)

// PlanStage says where the next fact of a run's plan comes from.
type PlanStage string

// The stages. "" = the run has no plan, or none yet.
const (
	PlanAgain PlanStage = "again"     // the planner is asked once more
	PlanSteps PlanStage = "steps"     // the router is asked for the next step's call
	PlanSums  PlanStage = "synthesis" // every step is done: a model sums up what they gave
	PlanDone  PlanStage = "done"      // the plan has given the run's answer
	PlanGone  PlanStage = "left"      // the loop has taken over, or the run has ended before
)

// Plan is what the machine knows of a run's plan: where it stands, and which calls it has made. What the steps
// are is in Memory, which is the orchestrator's own (package plan). Its slices are never written in place.
type Plan struct {
	Stage    PlanStage       `json:"stage,omitempty"`
	Memory   json.RawMessage `json:"memory,omitempty"`   // kept as it is, and not read here
	Uses     []PlanUse       `json:"uses,omitempty"`     // its calls, in their order
	Since    int64           `json:"since,omitempty"`    // sequence of the entry that holds the plan
	Heard    int             `json:"heard,omitempty"`    // messages no inference had carried when the plan was made
	Answered int             `json:"answered,omitempty"` // of those, how many the plan has answered
	Facts    int64           `json:"facts,omitempty"`    // of the plan, so that a repeated one is known
	Replies  int64           `json:"replies,omitempty"`  // of models that were asked for the plan
	Failed   int             `json:"failed,omitempty"`   // requests that failed since the run's newest reply
}

// PlanUse is a call that a plan has made, as the model made it.
type PlanUse struct {
	Step int `json:"step"` // the number of its step
	ToolUse
	From Source `json:"from"` // where it stands
}

// Active reports whether the plan is not finished.
func (p *Plan) Active() bool { return p.Stage == PlanAgain || p.Working() }

// Working reports whether the plan's steps are carried out or summed up.
func (p *Plan) Working() bool { return p.Stage == PlanSteps || p.Stage == PlanSums }

// Replies counts those of models that the run has had, inferences and others.
func (s *AgentState) Replies() int64 { return s.Inferences + s.Plan.Replies }

// PlanFact is a fact of a plan: what a reply took, and what comes of it. Such replies are no inferences: they quote the
// conversation and do not carry it (presets 2).
type PlanFact struct {
	N        int64  `json:"n"`               // of the run's facts about its plan, from 1
	Model    string `json:"model,omitempty"` // that answered; "" = none did
	Requests int    `json:"requests"`        // to any model, failed ones included
	Usage    Usage  `json:"usage,omitzero"`
	Units    int64  `json:"units,omitempty"`
	At       int64  `json:"at,omitempty"`   // when the reply was there, milliseconds since 1970
	Cost     USD    `json:"cost,omitempty"` // 0 where no price is known
	Halt     *Halt  `json:"halt,omitempty"` // nil = no stop policy stops the run

	Stage  PlanStage       `json:"stage,omitempty"`  // that follows; "" = it stays
	Memory json.RawMessage `json:"memory,omitempty"` // of the orchestrator, in place of what it was; nil = it stays

	Step       int          `json:"step,omitempty"`       // the number of the step that it is about; 0 = of none
	Call       *RepliedCall `json:"call,omitempty"`       // of the step, committed before it is carried out
	Sequential bool         `json:"sequential,omitempty"` // as in Replied
	Offered    []string     `json:"offered,omitempty"`    // the only tools of the request, by original name; nil = all

	Text   string `json:"text,omitempty"`   // the run's answer, where the plan is done
	Static string `json:"static,omitempty"` // what stands for it where the model failed or gave no text
	Why    string `json:"why,omitempty"`    // the loop takes over
	Detail string `json:"detail,omitempty"` // of Why, fit to be stored and shown

	// A system text that is built once and was built for this request, as in Replied.
	System     string `json:"system,omitempty"`
	SystemText string `json:"systemText,omitempty"`
	SystemBlob bool   `json:"systemBlob,omitempty"`
}

// Fact is the fact by itself.
func (e PlanFact) Fact() PlanFact { return e }

// PlanEvent is one of the facts of a plan. The machine treats them alike; their names are for who reads the journal.
type PlanEvent interface {
	Event
	Fact() PlanFact
}

// Planned is the planner's reply.
type Planned struct{ PlanFact }

// StepRouted is the router's reply to a step.
type StepRouted struct{ PlanFact }

// Synthesised is the plan's answer.
type Synthesised struct{ PlanFact }

// PlanLeft gives the run to the loop. What the plan has called becomes part of the conversation.
type PlanLeft struct{ PlanFact }

func (e PlanFact) apply(s *AgentState) error {
	p := &s.Plan
	if e.N <= p.Facts {
		return nil
	}
	if open := s.OpenCall(); open != nil {
		return &ApplyError{Call: open.ID, Problem: "still " + string(open.Status)}
	}
	if problem := s.planProblem(e); problem != "" {
		return &ApplyError{Problem: problem}
	}
	hidden := s.Hidden
	s.spend(ChildUsage{e.Usage, int64(e.Requests), e.Units, e.Cost})
	s.Hidden = nil
	s.applyHalt(e.Halt)
	if e.System != "" {
		s.System, s.SystemText, s.SystemBlob = e.System, e.SystemText, e.SystemBlob
	}
	if p.Facts, p.Failed = e.N, p.Failed+e.Requests; e.Model != "" {
		p.Replies, p.Failed = p.Replies+1, 0
	}
	if !p.Working() {
		p.Since, p.Heard = s.head.seq, s.Unseen
	}
	if e.Memory != nil {
		p.Memory = e.Memory
	}
	if e.Stage != "" {
		p.Stage = e.Stage
	}
	switch {
	case e.Call != nil: // a round of its own, before those of the run's inferences
		use := PlanUse{e.Step, e.Call.use(), s.nextSource(0)}
		p.Uses = append(slices.Clip(p.Uses), use)
		s.Prior++
		if err := s.askedFor(Replied{Calls: []RepliedCall{*e.Call}, Sequential: e.Sequential}, hidden); err != nil {
			return err
		}
		s.Live[len(s.Live)-1].Step = e.Step // askedFor has made the list
	case e.Stage == PlanDone:
		seen := int64(1)
		if e.Static != "" {
			seen = 0
		}
		s.appendMessage(RoleAssistant, e.block(), seen, s.nextSource(0))
		p.Answered = p.Heard
		s.flushQueued()
	case e.Stage == PlanGone:
		s.leavePlan()
	}
	return nil
}

// planProblem says why a fact is not the plan's next one, or does not belong where the run is; "" = it does.
func (s *AgentState) planProblem(e PlanFact) string {
	p := &s.Plan
	switch {
	case e.N != p.Facts+1:
		return fmt.Sprintf("number %d after %d", e.N, p.Facts)
	case s.Status != RunRunning:
		return "the run is " + string(s.Status)
	case !p.Active() && (p.Stage != "" || s.Inferences > 0),
		e.Call != nil && p.Stage != PlanSteps, e.Stage == PlanDone && p.Stage == PlanSteps:
		return fmt.Sprintf("the plan is at %q", p.Stage)
	case (e.Text != "" || e.Static != "") != (e.Stage == PlanDone) || e.Text != "" && e.Static != "":
		return "the plan's answer is the model's text or the one that stands for it"
	case (e.Why != "") != (e.Stage == PlanGone):
		return "a reason is required where the loop takes over, and only there"
	case e.Call != nil && (e.Step < 1 || e.Stage != "" && e.Stage != PlanSums):
		return "a call is that of a step"
	case (e.SystemText != "" || e.SystemBlob) && e.System == "" || e.SystemText != "" && e.SystemBlob:
		return "a system text stands once, beside its digest"
	}
	if s.mergePatches(); len(s.Patches) > 0 {
		return "what calls changed of the run's state does not go together"
	}
	return ""
}

// block is the block that the fact adds: the call of a step, or the plan's answer.
func (e PlanFact) block() Block {
	if e.Call != nil {
		return e.Call.use()
	}
	return Text{Text: e.Text + e.Static}
}

// leavePlan says what the plan has done, each call with its result, so that the loop's model does not do it again.
func (s *AgentState) leavePlan() {
	s.Plan.Stage = PlanGone
	for _, u := range s.Plan.Uses {
		c, ok := s.Call(u.ID)
		if !ok || c.Result == nil || c.Result.Shown {
			continue
		}
		s.appendMessage(RoleAssistant, u.ToolUse, 1, u.From)
		s.appendResult(c.ID, *c.Result)
		shown := *c.Result
		shown.Shown = true
		mark := func(c Call) Call {
			if c.ID == u.ID {
				c.Result = &shown
			}
			return c
		}
		s.Settled = s.Settled.Map(mark)
		s.Live = slices.Clone(s.Live)
		for i, c := range s.Live {
			s.Live[i] = mark(c)
		}
	}
	s.flushQueued()
}

// inheritPlan takes over the plan of a run that this one branches off, with a count of its own.
func (s *AgentState) inheritPlan(past *AgentState) {
	p := past.Plan
	p.Facts, p.Replies, p.Failed, p.Since = 0, 0, 0, 0
	p.Uses = slices.Clone(p.Uses)
	for i := range p.Uses {
		p.Uses[i].From = p.Uses[i].From.inRun(past.Run)
	}
	s.Plan = p
}
