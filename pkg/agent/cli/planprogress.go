package cli

import (
	"github.com/countersign/countersign/internal/people/mask"
	"github.com/countersign/countersign/internal/run"
)

// plan tells how far a run has come with its plan.
func (pr *progress) plan(fact run.Event) {
	switch f := fact.(type) {
	case run.Planned:
		for _, s := range f.Steps {
			pr.tell("plan", "%d: %s", s.Number, cut(mask.Text(s.Description), width))
		}
	case run.StepRouted:
		pr.routed(f)
	case run.PlanLeft:
		pr.tell("plan", "left to the loop: %s", f.Why)
	}
}

func (pr *progress) routed(f run.StepRouted) {
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
