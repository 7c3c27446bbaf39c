package cli

import (
	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/people/mask"
)

// plan tells how far a run has come with its plan.
func (pr *progress) plan(fact agent.Event) {
	switch f := fact.(type) {
	case agent.Planned:
		for _, s := range f.Steps {
			pr.tell("plan", "%d: %s", s.Number, cut(mask.Text(s.Description), width))
		}
	case agent.StepRouted:
		pr.routed(f)
	case agent.PlanLeft:
		pr.tell("plan", "left to the loop: %s", f.Why)
	}
}

func (pr *progress) routed(f agent.StepRouted) {
	switch {
	case f.Failed:
		pr.tell("step", "%d: no tool was called", f.Step)
	case f.Call != nil:
		pr.tools[f.Call.ID] = f.Call.Name
		if f.Call.Tool != "" {
			pr.tools[f.Call.ID] = f.Call.Tool
		}
		pr.tell("step", "%d: %s %s", f.Step, pr.call(f.Call.ID), cut(pr.input(f.Call.Name, f.Call.Input), width))
	}
}
