package stream

import "encoding/json"

// The types of the activities about a plan, which an agent makes before its loop (seed 002, orchestrator): PlanContent and PlanStepContent.
const (
	ActivityPlan = "plan"
	ActivityStep = "plan_step"
)

// PlanContent is the content of the activity plan: the steps that are going to be made.
type PlanContent struct {
	Steps []PlanStepContent `json:"steps"`
}

// PlanStepContent is a step of a plan, and the content of the activity plan_step: how it stands.
type PlanStepContent struct {
	Step        int             `json:"step"` // from 1
	Description string          `json:"description,omitempty"`
	Server      string          `json:"server,omitempty"` // that the planner expects to serve it; "" = not said
	Status      StepStatus      `json:"status,omitempty"` // "" in a plan
	Call        string          `json:"call_id,omitempty"`
	Tool        string          `json:"tool,omitempty"`
	Arguments   json.RawMessage `json:"arguments,omitempty"`
	Result      string          `json:"result,omitempty"` // what came of it, at its beginning
}

// StepStatus says how a step of a plan stands.
type StepStatus string

// A step is carried out, has come to something, or has not.
const (
	StepExecuting StepStatus = "executing"
	StepCompleted StepStatus = "completed"
	StepFailed    StepStatus = "failed"
)

// stepPreview is how much of a result the events about a step tell, in characters.
const stepPreview = 200

func preview(text string) string {
	r := []rune(text)
	return string(r[:min(len(r), stepPreview)])
}
