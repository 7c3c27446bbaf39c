package stream

import "github.com/countersign/countersign/internal/agent"

// PlanCreatedData is a plan that is to be carried out.
type PlanCreatedData struct {
	Message string           `json:"message_id"`
	Steps   []agent.PlanStep `json:"steps"`
}

// StepExecutingData begins a step of a plan. Its call comes, or does not, between this and its completion.
type StepExecutingData struct {
	Step        int    `json:"step"` // its number in the plan
	Description string `json:"description"`
}

// StepCompletedData is what came of a step: its call's result, an error too, or that no call came of it.
type StepCompletedData struct {
	Step    int    `json:"step"`
	Success bool   `json:"success"` // a tool was called, whatever it said
	Call    string `json:"call_id,omitempty"`
	Tool    string `json:"tool,omitempty"`    // the original name
	Preview string `json:"preview,omitempty"` // the first 200 characters of the result
}

// maxPreview is how many characters of a step's result are told.
const maxPreview = 200

// spent tells a reply for a plan, which is no step of the run: what it took, and what of it is kept.
func (w *writing) spent(took agent.Spent, text string) {
	if w.after.Plan.Facts == w.before.Plan.Facts || took.Model == "" {
		return
	}
	done := InferenceDoneData{Model: took.Model, Usage: took.Usage, Units: took.Units, Requests: took.Requests, Text: text}
	if took.At > 0 {
		done.Duration = max(0, took.At-w.entry.Time.UnixMilli())
	}
	w.add(InferenceDone, 0, done)
}

func planned(w *writing, fact agent.Event) {
	if e, ok := fact.(agent.Planned); ok {
		w.spent(e.Spent, e.Text)
	}
}

func routed(w *writing, fact agent.Event) {
	e, ok := fact.(agent.StepRouted)
	if !ok || w.after.Plan.Facts == w.before.Plan.Facts {
		return
	}
	if e.Call != nil {
		w.add(ToolCallStart, 0, ToolCallStartData{ID: e.Call.ID, Name: e.Call.Name})
		w.add(ToolCallReady, 0, w.ready(*e.Call))
	}
	w.spent(e.Spent, "")
}

func synthesised(w *writing, fact agent.Event) {
	e, ok := fact.(agent.Synthesised)
	if !ok {
		return
	}
	w.spent(e.Spent, e.Text)
	if e.Static != "" {
		w.conversation()
	}
}

// plan tells how far the run has come with its plan, where that is farther than before.
func (w *writing) plan() {
	steps := w.after.Plan.Steps
	if w.after.Plan.Stage == agent.PlanSteps && w.before.Plan.Stage != agent.PlanSteps && w.before.Status != "" {
		d := PlanCreatedData{Message: w.message()}
		for _, s := range steps {
			d.Steps = append(d.Steps, s.PlanStep)
		}
		w.add(PlanCreated, 0, d)
	}
	for i, s := range steps {
		call, done := w.after.StepDone(i)
		if _, was := w.before.StepDone(i); !done || was || w.before.Status == "" {
			continue
		}
		w.add(StepCompleted, 0, StepCompletedData{Step: s.Number, Success: !s.Failed, Call: call.ID, Tool: call.Tool, Preview: preview(call)})
	}
	at, now := w.after.CurrentStep()
	if was, ok := w.before.CurrentStep(); now && (!ok || was != at) {
		w.add(StepExecuting, 0, StepExecutingData{Step: steps[at].Number, Description: steps[at].Description})
	}
}

func preview(c agent.Call) string {
	if c.Result == nil {
		return ""
	}
	n := 0
	for i := range c.Result.Content {
		if n == maxPreview {
			return c.Result.Content[:i]
		}
		n++
	}
	return c.Result.Content
}
