package run

import (
	"encoding/json"
	"fmt"
	"slices"
)

// PlanStage says what comes next in a run's plan.
type PlanStage string

// The stages. "" = the run has no plan, or none yet.
const (
	PlanAgain     PlanStage = "again"     // the planner is asked again
	PlanSteps     PlanStage = "steps"     // the router is asked for the next step's call
	PlanSynthesis PlanStage = "synthesis" // every step is done, and a model answers from the results
	PlanDone      PlanStage = "done"      // the plan has given the run's answer
	PlanAbandoned PlanStage = "left"      // the loop has taken over, or the run has ended
)

// Plan is what the machine knows of a run's plan: its stage and the calls it has made. Memory holds the steps and
// belongs to the orchestrator (package plan). Slices are never written in place.
type Plan struct {
	Stage    PlanStage       `json:"stage,omitempty"`
	Memory   json.RawMessage `json:"memory,omitempty"`   // stored unchanged, not interpreted here
	Uses     []PlanUse       `json:"uses,omitempty"`     // calls of the plan, in order
	Since    int64           `json:"since,omitempty"`    // sequence of the entry that holds the plan
	Unseen   int             `json:"unseen,omitempty"`   // unseen messages when the plan was made
	Answered int             `json:"answered,omitempty"` // how many of those the plan has answered
	Facts    int64           `json:"facts,omitempty"`    // number of the plan's facts, to recognise a repeated one
	Replies  int64           `json:"replies,omitempty"`  // replies of models to the plan's requests
	Failed   int             `json:"failed,omitempty"`   // failed requests since the run's newest reply
}

// PlanUse is a call of a plan, as the model made it.
type PlanUse struct {
	Step int `json:"step"` // number of the step
	ToolUse
	From Source `json:"from"` // place in the journal
}

// Active reports whether the plan is not finished.
func (p *Plan) Active() bool { return p.Stage == PlanAgain || p.Working() }

// Working reports whether the plan's steps are being carried out or summed up.
func (p *Plan) Working() bool { return p.Stage == PlanSteps || p.Stage == PlanSynthesis }

// Replies returns the number of replies of models in the run, for inferences and for its plan.
func (s *AgentState) Replies() int64 { return s.Inferences + s.Plan.Replies }

// PlanFact is a fact of a plan: the cost of a reply and its consequences. These replies are not inferences, because
// their requests only quote the conversation (presets 2).
type PlanFact struct {
	N        int64  `json:"n"`               // number among the run's facts about its plan, from 1
	Model    string `json:"model,omitempty"` // model that answered; "" = none did
	Requests int    `json:"requests"`        // to any model, including failed ones
	Usage    Usage  `json:"usage,omitzero"`
	Units    int64  `json:"units,omitempty"`
	At       int64  `json:"at,omitempty"`   // time of the reply, milliseconds since 1970
	Cost     USD    `json:"cost,omitempty"` // 0 if no price is known
	Halt     *Halt  `json:"halt,omitempty"` // nil = no stop policy stops the run

	Stage  PlanStage       `json:"stage,omitempty"`  // next stage; "" = unchanged
	Memory json.RawMessage `json:"memory,omitempty"` // replaces the orchestrator's memory; nil = unchanged

	Step       int          `json:"step,omitempty"`       // number of the step that the fact is about; 0 = none
	Call       *RepliedCall `json:"call,omitempty"`       // call of the step, committed before it is carried out
	Sequential bool         `json:"sequential,omitempty"` // as in Replied
	Offered    []string     `json:"offered,omitempty"`    // original names of the request's tools; nil = all

	Text   string `json:"text,omitempty"`   // the run's answer, if the plan is done
	Static string `json:"static,omitempty"` // the answer if the model failed or returned no text
	Why    string `json:"why,omitempty"`    // why the loop takes over
	Detail string `json:"detail,omitempty"` // detail of Why, safe to store and to show

	// A system text that is built once and was built for this request, as in Replied.
	System     string `json:"system,omitempty"`
	SystemText string `json:"systemText,omitempty"`
	SystemBlob bool   `json:"systemBlob,omitempty"`
}

// Fact returns the fact itself, for PlanEvent.
func (e PlanFact) Fact() PlanFact { return e }

// PlanEvent is one of the facts of a plan. The machine treats them alike; their names help readers of the journal.
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

// PlanLeft gives the run to the loop. The plan's calls become part of the conversation.
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
		p.Since, p.Unseen = s.head.seq, s.Unseen
	}
	if e.Memory != nil {
		p.Memory = e.Memory
	}
	if e.Stage != "" {
		p.Stage = e.Stage
	}
	switch {
	case e.Call != nil: // a separate round, before those of the run's inferences
		use := PlanUse{e.Step, e.Call.use(), s.nextSource(0)}
		p.Uses = append(slices.Clip(p.Uses), use)
		s.Prior++
		if err := s.openRound(Replied{Calls: []RepliedCall{*e.Call}, Sequential: e.Sequential}, hidden); err != nil {
			return err
		}
		s.Live[len(s.Live)-1].Step = e.Step // openRound made the list
	case e.Stage == PlanDone:
		seen := int64(1)
		if e.Static != "" {
			seen = 0
		}
		s.appendMessage(RoleAssistant, e.block(), seen, s.nextSource(0))
		p.Answered = p.Unseen
		s.flushQueued()
	case e.Stage == PlanAbandoned:
		s.leavePlan()
	}
	return nil
}

// planProblem returns why a fact is not the plan's next one or does not fit the run's state, or "".
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
		return "want a text or a static text exactly with stage done"
	case (e.Why != "") != (e.Stage == PlanAbandoned):
		return "want a reason exactly with stage left"
	case e.Call != nil && (e.Step < 1 || e.Stage != "" && e.Stage != PlanSynthesis):
		return "a call needs a step, and no next stage but synthesis"
	case (e.SystemText != "" || e.SystemBlob) && e.System == "" || e.SystemText != "" && e.SystemBlob:
		return "a system text needs its digest, and is either here or in a blob"
	}
	if s.mergePatches(); len(s.Patches) > 0 {
		return "the calls' changes of the shared state conflict"
	}
	return ""
}

// block returns the block that the fact adds: the call of a step, or the plan's answer.
func (e PlanFact) block() Block {
	if e.Call != nil {
		return e.Call.use()
	}
	return Text{Text: e.Text + e.Static}
}

// leavePlan adds the plan's calls and their results to the conversation, so that the loop's model does not repeat them.
func (s *AgentState) leavePlan() {
	s.Plan.Stage = PlanAbandoned
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

// inheritPlan takes over the plan of the run that this one branches off, with new counters.
func (s *AgentState) inheritPlan(past *AgentState) {
	p := past.Plan
	p.Facts, p.Replies, p.Failed, p.Since = 0, 0, 0, 0
	p.Uses = slices.Clone(p.Uses)
	for i := range p.Uses {
		p.Uses[i].From = p.Uses[i].From.inRun(past.Run)
	}
	s.Plan = p
}
